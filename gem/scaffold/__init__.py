"""Scaffold: writes a new package with one environment, as a start for your own, or one for verifiers.

The templates are files with placeholders (`string.Template`); both kinds share those in ``templates/any``. In
a path, ``module`` becomes the package's name, and the suffix ``.txt`` is dropped.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

from gem import registry
from gem.errors import BadArgument, StoreError, check_argument, reason
from gem.naming import is_fixed, is_path
from gem.record import SEAT

Kind = Literal["class", "dataset"]

TEMPLATES = Path(__file__).with_name("templates")
SUMMARIES: dict[Kind, str] = {
    "class": "A row of lamps that must be put out.",
    "dataset": "Questions with one-word answers.",
}
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
IMPORTED = {"gem", "verifiers"}
"""The modules that packages import, installed here or not."""


class Package(NamedTuple):
    """A written package: its folder, and the id of its environment."""

    folder: Path
    env_id: str


def write_package(name: str, into: str | Path = ".", kind: Kind = "class") -> Package:
    """Write a package with one environment into the folder `into`/`name`.

    Args:
        name: the package's name, such as ``word-ladder``: its module is ``word_ladder`` and its environment
            ``word_ladder:WordLadder-v0``.
        into: the folder in which the package's folder is made.
        kind: ``class`` for a game, or ``dataset`` for questions from a file with a grader.

    Raises:
        BadArgument: for an invalid or taken name, or a folder that exists.
    """
    check_argument("kind", kind, kind in SUMMARIES, ", ".join(SUMMARIES))
    words = _words(name)
    words |= {"env_id": f"{words['module']}:{words['class_name']}-v0", "summary": SUMMARIES[kind]}
    return _write(Path(into) / name, ("any", kind), words)


def write_taskset(env_id: str, folder: str | Path) -> Package:
    """Write a package that gives one of gem's environments to verifiers, as a taskset.

    Args:
        env_id: a registered id of one seat.
        folder: the folder to make; its name is the package's, and the taskset's id.

    Raises:
        UnknownEnv: for an id that is not registered. BadArgument: for an id that no other machine has, or of
            several seats; for an invalid or taken name, or a folder that exists.
    """
    if is_path(env_id):
        raise BadArgument(
            f"{env_id} is in a file of this machine; accepted: an id that an installed package registers. "
            "`gem-gym init NAME` makes such a package; put the class into it."
        )
    spec, folder = registry.spec(env_id), Path(folder)
    if spec.seats != (SEAT,):
        raise BadArgument(f"{spec.id} has the seats {', '.join(spec.seats)}; accepted: one seat.")
    family = registry.FAMILIES.get(spec.family)
    if is_fixed(spec.id) or (family is not None and not family.names):
        raise BadArgument(
            f"{spec.id} is at a place of this machine; accepted: an id, as `gem-gym list` shows."
        )
    extras = ",".join(each for each in ("verifiers", spec.extra) if each)
    top = str(spec.entry_point).partition(":")[0].partition(".")[0]
    own = [] if top == "gem" else packages_distributions().get(top, [])[:1]
    words = _words(folder.name)
    words |= {
        "env_id": spec.id,
        "summary": f"{spec.id} of gem, as a taskset of verifiers.",
        "needs": ", ".join(f'"{each}"' for each in (f"gem-gym[{extras}]", *own)),
    }
    return _write(folder, ("verifiers",), words)


def _words(name: str) -> dict[str, str]:
    module = _module(name)
    class_name = "".join(word.capitalize() for word in module.split("_"))
    return {"name": name, "module": module, "class_name": class_name}


def _write(folder: Path, parts: tuple[str, ...], words: Mapping[str, str]) -> Package:
    """Write the templates of `parts`. Raises BadArgument for a folder that exists, StoreError."""
    if folder.exists():
        raise BadArgument(f"{folder} exists already and is not overwritten; choose another name or folder.")
    for part in parts:
        for source in sorted((TEMPLATES / part).rglob("*.txt")):
            path = str(source.relative_to(TEMPLATES / part)).removesuffix(".txt")
            path = path.replace("module", words["module"])
            text = Template(source.read_text(encoding="utf-8")).substitute(words)
            try:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8")
            except OSError as error:
                raise StoreError(
                    f"{folder} cannot be written: {reason(error)}; choose another folder."
                ) from error
    return Package(folder, words["env_id"])


def _module(name: str) -> str:
    """Return the module's name.

    Raises:
        BadArgument: for an invalid or taken name.
    """
    if not NAME.fullmatch(name):
        raise BadArgument(
            f"name is {name!r:.80}; accepted: small letters and digits, in words joined by hyphens, as "
            "word-ladder."
        )
    module = name.replace("-", "_")
    taken = {env_id.partition(":")[0] for env_id in registry.ids()} | IMPORTED | sys.stdlib_module_names
    if module in taken or iskeyword(module):
        raise BadArgument(f"name is {name!r}: {module} is taken by Python, gem or verifiers; choose another.")
    there = find_spec(module)
    if (
        there is not None and there.origin is not None
    ):  # a folder without __init__.py has none, and hides nothing
        raise BadArgument(
            f"name is {name!r}: a module {module} is installed ({there.origin}); choose another."
        )
    return module
