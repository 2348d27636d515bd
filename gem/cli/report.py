"""The command ``gem-gym report``: training runs on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import MaybePath
from gem.errors import BadArgument, needs_extra


def report(
    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")],
    out: MaybePath = None,
) -> None:
    """Write a training run as one HTML page; for several runs, a page that compares them.

    The page is a single file that loads nothing else. It shows what the files of a run hold, whether the run
    has ended, was stopped or still goes on. `gem-gym train` writes the page of its run at the end.

    Args:
        runs: folders of training runs, or folders of such folders.
        out: the file; by default report.html in the folder of the run, or in the folder of all of them.
    """
    with needs_extra("the page of a run", "jinja2", "viewer"):
        from gem.viewer.report import write_report

    if not runs:
        raise BadArgument("no run was named; give the folder of a training run.")
    print(write_report(runs, out))
