"""The command ``gem-gym init``: write a package with an environment of your own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg


def init(
    name: Annotated[Positional[str], arg(metavar="NAME")],
    dataset: bool = False,
    into: Path = Path(),
) -> int:
    """Write a package with an environment of your own, ready to install, check and change.

    Args:
        name: the package's name, as word-ladder; its environment is then word_ladder:WordLadder-v0.
        dataset: make an environment over a data set (questions, answers, a grader) instead of a game.
        into: the folder in which the package's folder is made.
    """
    from gem.errors import pip_command
    from gem.scaffold import write_package

    package = write_package(name, into, kind="dataset" if dataset else "class")
    print(
        f"wrote {package.folder}, with {package.env_id}. Next:\n"
        f"  {pip_command(f'-e {shlex.quote(str(package.folder))}')}\n"
        f"  gem-gym check {package.env_id}\n"
        f"  gem-gym audit {package.env_id}"
    )
    return 0
