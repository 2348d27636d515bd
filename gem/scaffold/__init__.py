"""Scaffold: writes a new package with one environment, as a start for your own.

The templates are files with placeholders (`string.Template`); both kinds share those in ``templates/any``. In
a path, ``module`` becomes the package's name, and the suffix ``.txt`` is dropped.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from string import Template
from typing import Literal, NamedTuple

from gem import registry
from gem.errors import BadArgument, StoreError, check_argument, reason

Kind = Literal["class", "dataset"]

TEMPLATES = Path(__file__).with_name("templates")
SUMMARIES: dict[Kind, str] = {
    "class": "A row of lamps that must be put out.",
    "dataset": "Questions with one-word answers.",
}
NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


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
    module = _module(name)
    folder = Path(into) / name
    if folder.exists():
        raise BadArgument(f"{folder} exists already and is not overwritten; choose another name or folder.")
    class_name = "".join(word.capitalize() for word in module.split("_"))
    words = {
        "name": name,
        "module": module,
        "class_name": class_name,
        "env_id": f"{module}:{class_name}-v0",
        "summary": SUMMARIES[kind],
    }
    for part in ("any", kind):
        for source in sorted((TEMPLATES / part).rglob("*.txt")):
            path = str(source.relative_to(TEMPLATES / part)).removesuffix(".txt").replace("module", module)
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
    taken = {env_id.partition(":")[0] for env_id in registry.ids()} | {"gem"} | sys.stdlib_module_names
    if module in taken or iskeyword(module):
        raise BadArgument(f"name is {name!r}: {module} is taken by Python or by gem; choose another.")
    there = find_spec(module)
    if (
        there is not None and there.origin is not None
    ):  # a folder without __init__.py has none, and hides nothing
        raise BadArgument(
            f"name is {name!r}: a module {module} is installed ({there.origin}); choose another."
        )
    return module
