"""The command ``gem-gym train``: its flags, the run, and the table and picture at its end."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from gem.content import printable
from gem.errors import BadArgument, GemError
from gem.evals.data_flags import DataFlags
from gem.registry import spec_named
from gem.sandbox.choice import check_needs
from gem.train import check_torch
from gem.train.config import TrainConfig
from gem.train.config.toml_file import read_configs, to_toml
from gem.train.report.progress import Terminal, about_best, draw, sketch, table
from gem.train.report.run_folder import RunFolder
from gem.waiting import name_wait


@dataclass(frozen=True)
class Arguments:
    """Train a language model on an environment with a policy gradient.

    With the defaults, the built-in tiny model learns game:GuessTheNumber-v0-easy from text prompts, on one
    core, in minutes. Some defaults depend on --algorithm and --model: add these flags to --help to see them.
    """

    config: Annotated[TrainConfig, tyro.conf.arg(name="")]
    """Settings of the run."""

    own: Annotated[DataFlags, tyro.conf.arg(name="")] = field(default_factory=DataFlags)

    resume: bool = False
    """Resume the run in the folder --out from its last checkpoint."""

    phase: str = ""
    """Name of the phase that --resume adds where it is given this, or more --episodes: it goes on from the
    last checkpoint with a --lr, --kl and schedules of its own (default: phase-2 and so on)."""

    overwrite: bool = False
    """Replace the run in the folder --out."""

    files: Annotated[
        tuple[Path, ...], tyro.conf.arg(name="config", metavar="FILE"), tyro.conf.UseAppendAction
    ] = ()
    """Read settings from a TOML file, named as the flags here with _ for -. A later file overrides an earlier
    one, and flags override files. Paths in a file are relative to the working folder."""

    print_config: bool = False
    """Print the settings of the run as TOML that --config reads, and train nothing."""

    trust: bool = False
    """Let a --config file, or the run that --resume continues, name code and servers that a file may not name
    (docs/guides/trust.md). A run that was begun by this user on this machine needs no --trust."""


def command(args: list[str], prog: str, report: Callable[[Path], Path] | None = None) -> int:
    """Run ``gem-gym train``; defaults depend on the flags, or with --resume on the stored run.

    `report` writes a page about the run in a folder and returns its path; it is called at the end of the run.

    Raises:
        BadArgument: for flags that contradict each other or the stored run.
    """
    trust = "--trust" in args
    read = read_configs((Path(file) for file in _flags(args, "config") if file), trust)
    folder = RunFolder(Path(_flag(args, "out") or read.get("out", TrainConfig.out)))
    resume = "--resume" in args and "--help" not in args and "-h" not in args
    run = folder
    if resume:
        folder = next(reversed(run.later_phases), run)
    stored = replace(folder.read_config(trust), out=folder.path) if resume else None
    if stored is None:
        given = TrainConfig.fitting(**{**read, **_decisive(args)})
    else:
        given = {**{f.name: getattr(stored, f.name) for f in fields(stored)}, **read}
    # Not checked here: a flag may complete what a file leaves open. The combination is checked.
    default = Arguments(TrainConfig.make_unchecked(**given))
    parsed = tyro.cli(
        Arguments, prog=prog, args=args, default=default, config=(tyro.conf.FlagCreatePairsOff,)
    )
    if parsed.resume and parsed.overwrite:
        raise BadArgument("--resume continues a run and --overwrite replaces it; choose one.")
    config, phase_of = parsed.config, None
    named_too = [name for name in ("environments", "curriculum") if getattr(config, name)]
    if parsed.own.data and (named_too or _flag(args, "env") is not None):
        both = f"data and {(*named_too, 'env')[0]}"
        raise BadArgument(f"{both} both say what is played; leave one of them out.")
    brought = parsed.own.task()
    if brought is not None:
        sys.stderr.write(printable(brought.about) + "\n")
        config = replace(config, env=brought.env, env_kwargs={**brought.written, **config.env_kwargs})
    if parsed.phase and stored is None:
        raise BadArgument("--phase names a later phase of a run; give --resume too.")
    named = parsed.phase not in ("", "" if folder is run else folder.path.name)
    if stored is not None and (named or "episodes" in config.differences(stored)):
        from gem.train.learn.phases import plan_phase  # here: it needs torch

        config, phase_of = plan_phase(run, folder, config, parsed.phase), folder.path
        stored, folder = None, RunFolder(config.out)
    if stored is not None:
        if folder is not run and not folder.checkpoint.exists():
            # A phase that was killed before its first checkpoint begins again.
            phase_of = next((each.path for each in reversed(run.later_phases[:-1])), run.path)
        dtype = stored.dtype if config.dtype == "auto" else config.dtype
        config = replace(config, out=folder.path, dtype=dtype)
        if changed := config.differences(stored):
            from gem.train.learn.phases import MAY_CHANGE

            name = changed[0]
            phase = "add a phase with settings of its own (more --episodes), " if name in MAY_CHANGE else ""
            raise BadArgument(
                f"the run in {folder.path} has {name}={getattr(stored, name)!r}, --resume was given "
                f"{getattr(config, name)!r}; a resumed run keeps its settings. Leave it out of the flags and "
                f"configs, {phase}or start another run with another --out (--from takes this one's weights)."
            )
    if parsed.print_config:
        sys.stdout.write(to_toml(config))
        return 0
    check_sandbox(config)
    if parsed.overwrite and _first():
        folder.clear()
    elif not parsed.resume and _first():
        folder.check_free()
    return _carry_out(config, folder, parsed.resume and phase_of is None, report, phase_of, args)


def check_sandbox(config: TrainConfig) -> None:
    """Refuse a run whose environments or tools run programs, where no sandbox works.

    Raises:
        SandboxFailed: it names them. With Ray the nodes look themselves.
    """
    for part in () if config.ray else config.parts:
        check_needs([spec_named(part.id)], (*(part.tools or ()), *(part.wrappers or ())), part.kwargs)


def _decisive(args: list[str]) -> dict[str, Any]:
    """Return the flags that other defaults depend on; an unknown algorithm is refused at once."""
    given: dict[str, Any] = {name: value for name in ("model", "algorithm") if (value := _flag(args, name))}
    if _flag(args, "staleness") == "1":
        given["staleness"] = 1
    if agent := _flag(args, "agent"):
        given["agent"] = agent
    if source := _flag(args, "from") or _flag(args, "start-from"):
        given["start_from"] = source
    return given


def _first() -> bool:
    """Tell whether this is the first of several processes, as torchrun numbers them, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def _flag(args: list[str], name: str) -> str | None:
    """Return what a flag is given, before anything is parsed; given twice, the last counts, as in parsing."""
    return next(reversed(_flags(args, name)), None)


def _flags(args: list[str], name: str) -> list[str]:
    """Return all that a flag is given, in order, before anything is parsed.

    As in parsing, - and _ in a flag are the same, and its value is the next word or stands behind =.
    """
    values = []
    for word, following in zip(args, (*args[1:], ""), strict=False):  # none where args is empty
        flag, equals, value = word.partition("=")
        if word.startswith("--") and flag.replace("_", "-") == f"--{name}":
            values.append(value if equals else following)
    return values


def _carry_out(
    config: TrainConfig,
    folder: RunFolder,
    resume: bool,
    report: Callable[[Path], Path] | None,
    phase_of: Path | None = None,
    args: Sequence[str] = (),
) -> int:
    check_torch()
    with name_wait("torch to be loaded"):
        from gem.train.learn.training import train  # here: seconds, after all that can be refused at once

    console = Console(quiet=not _first())
    watcher = Terminal(console)
    try:
        summary = train(config, resume=resume, phase_of=phase_of, watcher=watcher)
    except KeyboardInterrupt:
        watcher.close()
        how, words = "nothing is saved yet. Begin again with", args
        if folder.checkpoint.exists():
            how, words = "the run is saved. Resume it with", ["--out", str(config.out), "--resume"]
        command = f"{_find_command()} train {shlex.join(words)}"
        console.print(f"stopped; {how}: {command}", highlight=False, markup=False, soft_wrap=True)
        raise
    watcher.close()
    if not _first():
        return 0
    figures = watcher.figures
    history = folder.history()
    if any(metrics.success == metrics.success for metrics in history):  # it is NaN where none is reported
        console.print(f"\nsuccess over {summary['episodes']:,} training episodes", highlight=False)
        console.print(sketch([metrics.success for metrics in history]), highlight=False)
    if figures:
        console.print(table(figures))
    for label, apart in watcher.apart.items():
        console.print(table(apart, label))
    evaluations = folder.evaluated()
    if best := about_best(evaluations, summary["episodes"]):
        console.print(best, highlight=False)
    picture = ""
    if history:
        draw(history, figures, config, folder.curve, evaluations)
        picture = f"Picture: {config.out / folder.curve.name}  "
    console.print(
        f"{summary['cpu_s']:.0f} CPU seconds, {summary['wall_s']:.0f} s. {picture}"
        f"Figures: {config.out / folder.summary.name}",
        highlight=False,
    )
    if report is not None:
        try:
            page = config.out / report(folder.path).name
            console.print(f"All of it on one page: {page}", highlight=False, soft_wrap=True)
        except (GemError, OSError) as error:  # the run is whole without it
            watcher.warned(f"the report was not written: {error} `gem-gym report {folder.path}` tries again.")
    return 0


def _find_command() -> str:
    """Return the command that runs gem-gym in this shell: `make demo` runs it from outside PATH."""
    if Path(sys.argv[0]).name != "gem-gym":
        return shlex.join([sys.executable, "-m", "gem"])
    return "gem-gym" if shutil.which("gem-gym") == sys.argv[0] else shlex.quote(sys.argv[0])
