"""The command ``gem-gym baseline``: the runs of a study, and their table."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import FAILED, MaybeInt, table
from gem.content import printable
from gem.errors import BadArgument, MissingExtra, check_least, did_you_mean, needs_extra

if TYPE_CHECKING:
    from gem.train.baselines.runs import Plan
    from gem.train.baselines.study import Study

RUNS = Path("runs/baselines")
"""The default folder of the runs' folders."""

PAGES = Path("docs/baselines")
"""The default folder of pages and pictures."""


def baseline(
    file: Annotated[Positional[Path], arg(metavar="FILE.toml")],
    only: Annotated[tuple[str, ...], arg(metavar="ENV [ENV ...]")] = (),
    variant: Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]")] = (),
    seed: tuple[int, ...] = (),
    workers: MaybeInt = None,
    dry_run: bool = False,
    report: bool = False,
    overwrite: bool = False,
    keep_older: bool = False,
    runs: Path = RUNS,
    page: Path = PAGES,
    trust: bool = False,
) -> int:
    """Train each variant on each environment with each seed of a study, and show the results.

    Finished runs are not run again, interrupted ones are resumed, and failed ones are tried again. Several of
    these commands may work on one study. A row of figures per environment and variant is written into a
    folder beside the file, as JSON to be kept in git. The exit code is 1 where a run failed.

    Args:
        file: the study; its format is in the guide and in `gem/train/baselines/study.py`.
        only: run these environments only, by name.
        variant: run these variants only, by name.
        seed: run these seeds only.
        workers: runs at once; by default one per core, or one alone where runs take threads or a GPU.
        dry_run: run nothing; show the state of each run.
        report: run nothing; show the results of finished runs.
        overwrite: run again what was run under other settings, and restart failed runs from the beginning.
        keep_older: continue runs and rows that are older than a setting, with its default.
        runs: folder of the runs' folders.
        page: folder of the page and the picture.
        trust: let the study name code that a file may not name; docs/guides/trust.md has the rule.
    """
    with needs_extra("training", "torch", "train"):
        from gem.train.baselines.runs import Carrier, Plan
        from gem.train.baselines.study import read_study
        from gem.train.command import check_sandbox

    def make_plan(study: Study) -> Plan:
        environments = _choose_names("environment", only, [part.name for part in study.environments])
        variants = _choose_names("variant", variant, [part.name for part in study.variants])
        if unknown := sorted({*seed} - {*study.seeds}):
            raise BadArgument(
                f"the study has no seed {unknown[0]}; it has {', '.join(map(str, study.seeds))}."
            )
        cells = tuple(
            cell
            for cell in study.cells
            if cell.environment.name in environments and cell.variant.name in variants
        )
        return Plan(
            study, runs, cells, tuple(each for each in study.seeds if not seed or each in seed), keep_older
        )

    study = read_study(file, trust)
    plan = make_plan(study)
    if dry_run and report:
        raise BadArgument("--dry-run and --report both run nothing, and show different things; choose one.")
    check_least("workers", workers)
    if dry_run:
        _stand(plan)
        return 0
    code = 0
    if not report:
        if not overwrite and (changed := plan.find_changes()):
            changes = "\n".join(f"  {name}: {what}" for name, what in changed.items())
            way = "Restore the settings, or run them again (--overwrite)."
            if any("newer than" in what for what in changed.values()):
                way += (
                    " A run that is only older than a setting can continue with its default (--keep-older)."
                )
            raise BadArgument(f"these were run under other settings than {file} has now:\n{changes}\n{way}")
        for cell in plan.cells:
            check_sandbox(study.config(cell))
        carrier = Carrier(plan, workers=workers or _workers(plan), overwrite=overwrite, tell=_tell)
        try:
            outcome = carrier.carry_out()
        except KeyboardInterrupt as stop:
            stop.add_note(f"to continue from the last checkpoints: gem-gym baseline {shlex.quote(str(file))}")
            raise
        code = FAILED if outcome.failed else 0
    _report(study, page)
    return code


def _tell(text: str) -> None:
    print(printable(text), flush=True)


def _choose_names(what: str, wanted: tuple[str, ...], known: list[str]) -> list[str]:
    for name in wanted:
        if name not in known:
            hint = did_you_mean(name, known) or f" It has {', '.join(known)}."
            raise BadArgument(f"the study has no {what} {name!r}.{hint}")
    return list(wanted) or known


def _workers(plan: Plan) -> int:
    configs = [plan.study.config(cell) for cell in plan.cells]
    alone = any(config.threads != 1 or config.device != "cpu" for config in configs)
    return 1 if alone else os.cpu_count() or 1


def _stand(plan: Plan) -> None:
    lines: list[tuple[str, ...]] = []
    for cell in plan.cells:
        for task in plan.tasks(cell):
            state, reason = plan.state(task)
            run = str(task.seed) if task.point is None else f"search {task.point + 1}, {task.seed}"
            lines.append((cell.environment.name, cell.variant.name, run, state, printable(reason)))
        if plan.waits(cell):
            seeds = ", ".join(map(str, plan.seeds))
            lines.append((cell.environment.name, cell.variant.name, seeds, "waits", "for the search"))
    table("environment", "variant", "seed", "state", "", rows=lines)


def _report(study: Study, folder: Path) -> None:
    """Print the table, and write the page and the picture."""
    from gem.train.baselines.page import table_heads, table_rows, write_page
    from gem.train.baselines.picture import write_picture
    from gem.train.baselines.summary import summarise_study

    summary = summarise_study(study)
    table(*table_heads(summary), rows=table_rows(summary))
    page = write_page(summary, folder)
    try:
        picture = write_picture(summary, folder)
    except MissingExtra as error:
        picture = None
        print(printable(f"no picture was drawn: {error}"), file=sys.stderr)
    print(printable(f"\npage: {page}" + (f"  picture: {picture}" if picture else "")))
