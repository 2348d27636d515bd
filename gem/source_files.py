"""Python files that a user names, as modules named by their content.

``relay.py:Relay`` names a class in a file that no package installs. Such a file becomes the module
``gem_source_DIGEST.relay``: the digest is of its text and of the text of the siblings that it imports
(modules and packages in its folder, and what they import). So two files of one name are two modules, an
edited file is another module, and a stored task says which text it was played with.

The folder is never put on the path: a neighbour ``random.py`` must not hide the standard library's. Instead,
an import in such a file looks in the folder last: what Python finds without the folder wins. What it finds in
the folder belongs to the source.

Another process has no such module. A pickle that goes to a worker carries the sources that it names
(`with_sources`). A source that this user named before is in the user's cache (`remember`), by digest, and is
found there by any later process of this user.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gem.errors import BadArgument, text_of_error

PREFIX = "gem_source_"
"""The start of the name of each module that is made from a file; a digest follows."""

_NAMED = re.compile(PREFIX + r"([0-9a-f]{12})(?:\.(.+))?", re.DOTALL)
_NAMED_IN_BYTES = re.compile(rb"(?:" + PREFIX.encode() + rb"|\.py@)([0-9a-f]{12})")

MOST_FILES, MOST_CHARACTERS = 1000, 20_000_000
"""The largest source: an import that drags in more than this is a mistake, or a package to install."""


def parse_code(code: str | bytes) -> ast.Module:
    """Parse code, with a retry because Python 3.11 may miscount its recursion depth in threads."""
    for _ in range(9):
        try:
            return ast.parse(code)
        except SystemError:
            continue
    return ast.parse(code)


@dataclass(frozen=True)
class Source:
    """A Python file and the siblings that it imports, as text.

    `files`: each file's text, by its path in the folder, with ``/``. `main`: the path of the named file.
    `siblings`: the names that its imports take from the folder. `folder`: where the files are on this
    machine, or None; it is no part of the digest, and of no record but the user's own cache.
    """

    main: str
    files: Mapping[str, str]
    siblings: frozenset[str] = frozenset()
    folder: str | None = field(default=None, compare=False)

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits of the SHA-256 of the text."""
        content = [self.main, sorted(self.siblings), sorted(self.files.items())]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]

    @property
    def module(self) -> str:
        """The name of the main file's module."""
        return f"{PREFIX}{self.digest}.{self.main.removesuffix('.py')}"

    def __deepcopy__(self, memo: object) -> Source:
        """Return itself: it never changes."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Make unpickling install the source, so that names of its modules after it can be loaded."""
        return _installed, (self.main, dict(self.files), self.siblings, self.folder)


def _installed(main: str, files: Mapping[str, str], siblings: frozenset[str], folder: str | None) -> Source:
    return install(Source(main, files, siblings, folder))


_SOURCES: dict[str, Source] = {}
"""The sources that this process knows, by digest."""


# -- from a file to a source


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a Python file and the siblings that it imports; execute nothing.

    Raises:
        BadArgument: when there is no such file, or a file has a syntax error.
    """
    path = Path(path)
    if not path.is_file():
        raise BadArgument(f"there is no file {path}.")
    folder = path.resolve().parent
    main = re.sub(r"[.\s]", "_", path.stem) + ".py"
    files = {main: _text(path)}
    siblings: set[str] = set()
    waiting = [main]
    while waiting:
        file = waiting.pop()
        for name in _imported_names(files[file], "/" not in file) - siblings:
            if not _is_sibling(name, folder):
                continue
            siblings.add(name)
            for source in _files_of(name, folder):
                relative = source.relative_to(folder).as_posix()
                if relative not in files and source != path.resolve():
                    files[relative] = _text(source)
                    waiting.append(relative)
        if len(files) > MOST_FILES or sum(map(len, files.values())) > MOST_CHARACTERS:
            raise BadArgument(
                f"{path} imports {len(files)} files of its folder; accepted: {MOST_FILES} files and "
                f"{MOST_CHARACTERS} characters. Make a package of them (gem-gym init), and install it."
            )
    return Source(main, files, frozenset(siblings), str(folder))


def _text(path: Path) -> str:
    """Return a file's text.

    Raises:
        BadArgument: when it cannot be read, or is not Python.
    """
    try:
        text = importlib.util.decode_source(path.read_bytes())
        compile(text, str(path), "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error.strerror}.") from error
    except SyntaxError as error:
        raise BadArgument(f"{path} is not valid Python: {error.msg} (line {error.lineno}).") from error
    except (ValueError, RecursionError, MemoryError) as error:  # undecodable, a null byte, nested too deeply
        raise BadArgument(f"{path} is not valid Python: {text_of_error(error)}.") from error
    return text


def _imported_names(text: str, at_the_top: bool) -> set[str]:
    """Return the first parts of the names that a file imports; relative ones only for a file at the top."""
    names: set[str] = set()
    for node in ast.walk(parse_code(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (at_the_top or not node.level):
            names |= {node.module.partition(".")[0]} if node.module else {alias.name for alias in node.names}
    return names


def _is_sibling(name: str, folder: Path) -> bool:
    """Return whether an import takes this name from the folder: Python finds it nowhere else."""
    if name in sys.stdlib_module_names or name == "gem" or not _files_of(name, folder):
        return False
    elsewhere = [entry for entry in sys.path if Path(entry or os.getcwd()).resolve() != folder]
    for finder in sys.meta_path:
        module = None
        with suppress(ImportError, ValueError, AttributeError):
            module = finder.find_spec(name, elsewhere if finder is PathFinder else None)
        if module is not None and module.origin is not None:  # a folder without __init__.py has no origin
            return False
    return True


def _files_of(name: str, folder: Path) -> list[Path]:
    """Return the files of a module or package of a folder, sorted."""
    if (folder / name).is_dir():
        return sorted(file for file in (folder / name).rglob("*.py") if file.is_file())
    return [folder / f"{name}.py"] if (folder / f"{name}.py").is_file() else []


# -- from a source to a module


class _Finder(MetaPathFinder):
    """Finds the modules of the known sources."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the spec of a module of a known source, else None."""
        named = _NAMED.fullmatch(fullname)
        source = known_source(named[1]) if named else None
        if named is None or source is None:
            return None
        place = (named[2] or "").replace(".", "/")
        package = f"{place}/__init__.py".lstrip("/")
        if place and f"{place}.py" in source.files and package not in source.files:
            return ModuleSpec(fullname, _Loader(source, f"{place}.py"), origin=_path(source, f"{place}.py"))
        if place and not any(name.startswith(f"{place}/") for name in source.files):
            return None
        file = package if place and package in source.files else None
        loader = _Loader(source, file)
        return ModuleSpec(fullname, loader, origin=file and _path(source, file), is_package=True)


def _path(source: Source, file: str) -> str:
    if source.folder is None:
        return f"<source {source.digest}>/{file}"
    return str(Path(source.folder, file))


class _Loader(InspectLoader):
    """Loads one module of a source; a package without a file is empty."""

    def __init__(self, source: Source, file: str | None) -> None:
        self.source, self.file = source, file

    def get_source(self, fullname: str) -> str:
        """Return the module's text."""
        return "" if self.file is None else self.source.files[self.file]

    def is_package(self, fullname: str) -> bool:
        """Return whether it has submodules."""
        return self.file is None or self.file.endswith("__init__.py")

    def get_code(self, fullname: str) -> CodeType:
        """Compile the module; its imports of siblings become relative."""
        tree = parse_code(self.get_source(fullname))
        depth = fullname.count(".") + self.is_package(fullname)
        tree = ast.fix_missing_locations(_Relative(self.source.siblings, depth).visit(tree))
        path = _path(self.source, self.file) if self.file else f"<{fullname}>"
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module in its namespace."""
        if self.file is not None:
            module.__file__ = _path(self.source, self.file)
        super().exec_module(module)


class _Relative(ast.NodeTransformer):
    """Turns imports of siblings into imports relative to the top of the source."""

    def __init__(self, siblings: frozenset[str], depth: int) -> None:
        self.siblings, self.depth = siblings, depth

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """``from helpers import x`` becomes ``from .helpers import x``."""
        if not node.level and node.module and node.module.partition(".")[0] in self.siblings:
            node.level = self.depth
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        """``import helpers`` becomes ``from . import helpers``."""
        statements: list[ast.stmt] = []
        for alias in node.names:
            top, _, rest = alias.name.partition(".")
            if top not in self.siblings:
                statements.append(ast.Import([alias]))
                continue
            parent, _, last = alias.name.rpartition(".")
            if rest or alias.asname:  # loads the module, and binds the last name
                known_as = ast.alias(last, alias.asname or top)
                statements.append(ast.ImportFrom(parent or None, [known_as], self.depth))
            if not alias.asname:  # `import package.module` binds the package
                statements.append(ast.ImportFrom(None, [ast.alias(top)], self.depth))
        return [ast.copy_location(statement, node) for statement in statements]


sys.meta_path.append(_Finder())


# -- which sources are known


def install(source: Source) -> Source:
    """Make the modules of a source importable in this process; return the source known by its digest."""
    known = _SOURCES.setdefault(source.digest, source)
    if source.folder not in (None, known.folder):  # where it was named last
        known = _SOURCES[source.digest] = source
    return known


def known_source(digest: str) -> Source | None:
    """Return a source that this process has installed, or that the user's cache has; None if neither."""
    if digest not in _SOURCES and (source := recall_source(digest)) is not None:
        install(source)
    return _SOURCES.get(digest)


def cache_folder() -> Path:
    """Return the user's folder for what gem keeps between runs; it may not exist yet."""
    if given := os.environ.get("GEM_CACHE"):
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gem-gym"


def remember(source: Source) -> None:
    """Keep a source that this user named in the user's cache; later `recall_source` finds it by its digest.

    A cache that cannot be written is ignored: the source is then known to this process only.
    """
    folder = cache_folder() / "sources"
    path = folder / f"{source.digest}.json"
    content = {"main": source.main, "siblings": sorted(source.siblings), "folder": source.folder}
    text = json.dumps({**content, "files": dict(source.files)})
    with suppress(OSError, ValueError):
        if path.is_file() and path.read_text("utf-8") == text:
            return
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, "utf-8")
        part.replace(path)


def recall_source(digest: str) -> Source | None:
    """Return the source with this digest that this user named before, from the user's cache, or None.

    A file whose content has another digest is ignored.
    """
    if not re.fullmatch("[0-9a-f]{12}", digest):
        return None
    try:
        content = json.loads((cache_folder() / "sources" / f"{digest}.json").read_text("utf-8"))
        siblings, folder = frozenset(content["siblings"]), content.get("folder")
        source = Source(content["main"], content["files"], siblings, folder)
        return source if source.digest == digest else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError):
        return None


_NAMES: set[str] = set()
"""The hashes of what this process was told to remember."""


def remember_name(*parts: str) -> None:
    """Remember for this user that a name, of a source with this content, was given on a command line.

    A cache that cannot be written is ignored: it is then known to this process only.
    """
    known = _hash(parts)
    _NAMES.add(known)
    folder = cache_folder() / "named"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / known).touch()


def named_before(*parts: str) -> bool:
    """Return whether `remember_name` was called with these parts by this user before."""
    known = _hash(parts)
    return known in _NAMES or (cache_folder() / "named" / known).is_file()


def _hash(parts: tuple[str, ...]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


# -- names and pickles


def digest_of(name: str) -> str | None:
    """Return the digest in the name of a file's module or in an entry point, or None for other names."""
    named = _NAMED.match(name) if isinstance(name, str) else None
    return named[1] if named else None


def source_of(thing: Any) -> Source | None:
    """Return the source of a class, a function or an object of a class, or of an entry point; else None."""
    module = thing if isinstance(thing, str) else getattr(thing, "__module__", None)
    digest = digest_of(module) if isinstance(module, str) else None
    return known_source(digest) if digest else None


def with_sources(pickled: bytes) -> bytes:
    """Return a pickle, for `pickle.loads`, that also carries the sources whose modules `pickled` names."""
    if not _SOURCES:
        return pickled
    digests = dict.fromkeys(_NAMED_IN_BYTES.findall(pickled))
    sources = [source for each in digests if (source := known_source(each.decode())) is not None]
    if not sources:
        return pickled
    import pickle  # here, because `import gem` is to be light

    return pickle.dumps(_Carrier(sources, pickled))


class _Carrier:
    """A pickle with the sources that it needs; loading it gives what the inner pickle holds."""

    def __init__(self, sources: Iterable[Source], pickled: bytes) -> None:
        self.sources, self.pickled = sources, pickled

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.sources, self.pickled)


def _unpacked(sources: Iterable[Source], pickled: bytes) -> Any:
    import pickle

    return pickle.loads(pickled)


def reduced_with_source(cls: type, reduced: Any) -> Any:
    """Return the result of ``__reduce_ex__`` of an object, with the source of its class ahead of it."""
    source = source_of(cls)
    if source is None or isinstance(reduced, str):
        return reduced
    return _rebuilt, (source, *reduced[:2]), *reduced[2:]


def _rebuilt(source: Source, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*args)
