"""The command ``gem-gym train``: a run, and its report at the end."""

from __future__ import annotations

from pathlib import Path


def command(args: list[str], prog: str) -> int:
    """Run ``gem-gym train``, which `gem.train.command` describes."""
    from gem.train.command import command as train

    return train(args, prog, report=_report)


def _report(folder: Path) -> Path:
    from gem.viewer.report import write_report

    return write_report([folder], folder / "report.html")
