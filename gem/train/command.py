"""``gem-gym train``: a run from the command line, with its table and its picture at the end."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gem.errors import BadArgument
from gem.train.config import TrainConfig
from gem.train.progress import Terminal, draw, sketch, table
from gem.train.run import RunFolder


def command(
    config: Annotated[TrainConfig, tyro.conf.arg(name="")],
    resume: bool = False,
    overwrite: bool = False,
) -> int:
    """Train a language model on an environment with a policy gradient.

    The defaults are the demonstration: the embedded tiny model learns game:GuessTheNumber-v0-easy from its
    text prompts, on one core, in minutes.

    Args:
        config: the run.
        resume: go on with the run in the folder --out, from its last finished iteration.
        overwrite: replace the run in the folder --out.
    """
    folder = RunFolder(config.out)
    if resume and overwrite:
        raise BadArgument("--resume goes on with a run and --overwrite replaces it; choose one.")
    if resume:
        config = _resumed(config, folder.read_config())
    elif overwrite:
        folder.clear()
    else:
        folder.check_free()
    from gem.train.policy_gradient import train  # here: seconds, after all that can be refused at once

    console = Console()
    watcher = Terminal(console)
    try:
        summary = train(config, resume=resume, watcher=watcher)
    except KeyboardInterrupt:
        watcher.close()
        if folder.checkpoint.exists():
            console.print(
                "stopped; the run stands. Go on with: "
                f"{_invoked()} train --out {shlex.quote(str(config.out))} --resume",
                highlight=False,
                soft_wrap=True,
            )
        raise
    watcher.close()
    figures = watcher.shown
    history = folder.history()
    console.print(f"\nsuccess over {summary['episodes']:,} training episodes", highlight=False)
    console.print(sketch([metrics.success for metrics in history]), highlight=False)
    console.print(table(figures))
    draw(history, figures, config, folder.curve)
    console.print(
        f"{summary['cpu_s']:.0f} CPU seconds, {summary['wall_s']:.0f} s. "
        f"Picture: {folder.curve}  Figures: {folder.summary}",
        highlight=False,
    )
    return 0


def _invoked() -> str:
    """Return what this shell can type to reach gem-gym: `make demo` runs it from outside the path."""
    if Path(sys.argv[0]).name != "gem-gym":
        return shlex.join([sys.executable, "-m", "gem"])
    return "gem-gym" if shutil.which("gem-gym") == sys.argv[0] else shlex.quote(sys.argv[0])


def _resumed(asked: TrainConfig, stored: TrainConfig) -> TrainConfig:
    """Return the stored config; flags that were given and differ from it are refused."""
    given = asked.differences(TrainConfig())  # a flag that names its default cannot be told from none
    for name in asked.differences(stored):
        if name in given:
            raise BadArgument(
                f"the run in {asked.out} has {name}={getattr(stored, name)!r}, --resume was given "
                f"{getattr(asked, name)!r}; a run goes on as it began. Leave the flag out, or begin another "
                "run with another --out."
            )
    return TrainConfig.from_json({**stored.to_json(), "out": str(asked.out)})
