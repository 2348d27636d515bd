"""The packages that a program may import besides the standard library: an allow list.

gem, the packages that it grades with, and all others are hidden. Otherwise a program could read the package
that judges it, or solutions of others, instead of solving its task.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import sys
import sysconfig
from collections.abc import Sequence

from gem.errors import BadArgument

IMAGES: dict[str, tuple[str, ...]] = {
    "bare": (),
    "science": (
        *("numpy", "scipy", "sympy", "gmpy2", "pandas", "matplotlib", "seaborn", "networkx", "z3-solver"),
        *("scikit-learn", "statsmodels", "shapely", "sortedcontainers", "more-itertools", "regex", "pytest"),
    ),
}
"""The packages of each image; their dependencies are included if they are installed."""

JUDGES = ("gem-gym", "reasoning-gym", "math-verify", "latex2sympy2-extended")
"""Packages that make or judge tasks; no program can read them, even if a user allows it."""


def list_allowed(packages: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the packages that an image allows, or ``science`` plus a list of packages.

    Raises:
        BadArgument: for an unknown image, or a package that judges programs.
    """
    if isinstance(packages, str):
        if packages not in IMAGES:
            raise BadArgument(
                f"packages is {packages!r}; accepted: {', '.join(IMAGES)}, or a list of packages that "
                "programs may import beside those of 'science'."
            )
        return IMAGES[packages]
    more = tuple(_plain(name) for name in packages)
    if judges := sorted(set(more) & set(JUDGES)):
        raise BadArgument(
            f"packages names {', '.join(judges)}, which makes or judges tasks: no program may read that."
        )
    return (*IMAGES["science"], *more)


def sites() -> list[str]:
    """Return the folders from which this interpreter imports installed packages."""
    folders = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    folders += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return [path for path in dict.fromkeys(map(os.path.abspath, folders)) if os.path.isdir(path)]


@functools.cache
def entries(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the files and folders, directly in the site folders, of packages and of their dependencies."""
    visited: set[str] = set(JUDGES)
    left, paths = [_plain(name) for name in names], set()
    folders = sites()
    while left:
        name = left.pop()
        if name in visited:
            continue
        visited.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        left += [_plain(need) for need in map(_parse_requirement, distribution.requires or ()) if need]
        site = os.path.abspath(str(distribution.locate_file("")))
        if site in folders:
            paths |= {os.path.join(site, top) for top in _tops(distribution, name)}
    return tuple(sorted(path for path in paths if os.path.exists(path)))


def _tops(distribution: importlib.metadata.Distribution, name: str) -> set[str]:
    """Return a package's entries directly in its site folder, except files that run when Python starts."""
    if files := distribution.files:
        tops = {file.parts[0] for file in files}
    else:  # installed by a distribution's own tools
        names = (distribution.read_text("top_level.txt") or name.replace("-", "_")).split()
        tops = {*names, *(f"{top}.py" for top in names)}
    return {top for top in tops if top not in ("..", "/", "__pycache__") and not top.endswith(".pth")}


def _parse_requirement(requirement: str) -> str | None:
    """Return the package that a requirement names; None if it belongs to an extra."""
    name, _, marker = requirement.partition(";")
    return None if "extra" in marker else re.split(r"[\s\[(<>=!~]", name.strip(), maxsplit=1)[0]


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
