"""The command ``gem-gym compare``: compare two stored runs on the same tasks."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.terms import FAILED, MaybePath, MaybeText, table
from gem.content import printable
from gem.errors import BadArgument
from gem.evals import Comparison, Paired, RunOutcomes, compare, read_run
from gem.evals.comparison import name_changes
from gem.evals.outcomes import Metric
from gem.evals.reports import escape_cell, markdown_table
from gem.evals.scorecard import MIN_COVERAGE
from gem.evals.usage import Prices
from gem.evals.usage import dollars as write_dollars
from gem.files import read_json
from gem.rollout.store import find_store
from gem.statistics import Interval
from gem.waiting import name_wait

MOST_CHANGES = 25
"""The most tasks that a list in Markdown names."""

_TRAINING = "config.json", "metrics.jsonl"
"""The files of a training run's folder that tell it from others."""

_COSTS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tokens": ("tokens", "{:,.0f}".format),
    "usd": ("cost", write_dollars),
    "cpu_s": ("CPU s", "{:.1f}".format),
}
"""The head of each cost of a run, and how its amount is written."""


def compare_runs(
    run_a: Annotated[Positional[Path], arg(metavar="RUN_A")],
    run_b: Annotated[Positional[Path], arg(metavar="RUN_B")],
    metric: Metric = "success",
    seat: MaybeText = None,
    min_coverage: float = MIN_COVERAGE,
    json: bool = False,
    markdown: bool = False,
    not_worse: bool = False,
    prices: MaybePath = None,
    picture: MaybePath = None,
) -> int:
    """Compare two runs on the tasks that both played: is one better, and by how much?

    Two episodes are a pair if environment, keywords, wrappers, seed and sample number are the same; data of
    equal content may lie in other folders. Tasks are treated as the random sample. `B - A` has a 95% interval
    and a bootstrap interval. `A : B alone` counts the pairs that only one of the two won. `p` is for the
    hypothesis of no difference: McNemar's exact test for success, and returns of 0 and 1 (with several
    samples per task, signs are flipped by task); Student's t for other returns.
    `Holm` is `p` corrected for several environments. `all` is the unweighted mean over environments.

    Where a run is an agent program's, the tokens of its models and its CPU seconds on these samples are
    shown, in all and per solved sample; with `prices` dollars too, and of other agents as well.

    Episodes without a verdict are in no figure. `coverage` is the share of all samples whose success (or
    return) is known in both runs; all figures are of these `pairs`. `bounds` is B - A if every other sample
    counts against B, and if every one counts for B. The exit code is 1 if the last headline is withheld: the
    coverage is too low, or a run lacks an environment of the other.

    Args:
        run_a: a folder of `gem-gym eval --out` (of several agents: the folder of one), or a file of episodes.
        run_b: the run to compare it with.
        metric: success or return.
        seat: in a game of several seats, the seat to compare; if left out, the episode's success and the mean
            return.
        min_coverage: no headline is given below this coverage.
        json: print the figures as JSON, and every pair whose values differ.
        markdown: print the comparison in Markdown, as for a pull request: first the tasks that B lost.
        not_worse: exit with code 1 also if A is better: overall, or on an environment.
        prices: a file with dollars per million tokens, by model; see `gem-gym eval --help`.
        picture: draw the differences into this file: .png, .svg or .pdf.
    """
    from gem.evals.picture import check_picture, draw

    if picture is not None:
        check_picture(picture)
    if json and markdown:
        raise BadArgument("--json and --markdown are two forms of one answer; give one of them.")
    with name_wait("the episodes of both runs to be read"):
        refuse_training("compare", run_a, run_b)
        a, b = read_run(run_a, seat), read_run(run_b, seat)
        priced = None if prices is None else Prices.read(prices)
        if priced is not None or any(run.agent.startswith("program:") for run in (a, b)):
            a, b = (read_run(run, seat, costs=True, prices=priced) for run in (run_a, run_b))
    costs = _sum_costs(a, b)
    with name_wait("the bootstrap intervals"):
        comparison = compare(a.outcomes, b.outcomes, metric=metric, min_coverage=min_coverage)
    if json or markdown:
        comparison = name_changes(comparison, run_a)
    warnings = [*_warnings(comparison, a, b), *_warn_of_costs(costs)]
    if a.address != b.address and not json:
        a, b = (replace(run, agent=f"{run.agent} at {run.address}") if run.address else run for run in (a, b))
    if json:
        about = {
            name: {"run": run.name, "agent": run.agent, "address": run.address}
            for name, run in (("A", a), ("B", b))
        }
        more = {"costs": costs} if costs else {}
        print(json_module.dumps({**about, **comparison.to_json(), **more}, indent=2, allow_nan=False))
    elif markdown:
        print(_markdown(comparison, a, b, warnings))
    else:
        _show(comparison, a, b)
        if costs:
            kinds = [kind for kind in _COSTS if kind != "usd" or priced is not None]
            heads = [head for kind in kinds for head in (_COSTS[kind][0], "per solved sample")]
            rows = [_write_cost(name, cost, kinds) for name, cost in costs.items()]
            print()
            table("run", "samples", "solved", *heads, rows=rows)
    for warning in warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    if picture is not None:
        draw(comparison, picture, _run_title(a), _run_title(b))
        if not (json or markdown):
            print(printable(f"\nthe picture is in {picture}"))
    worse = not_worse and "A" in [row.better for row in (*comparison.rows, comparison.overall)]
    return FAILED if worse or comparison.overall.withheld else 0


def refuse_training(command: str, *runs: Path) -> None:
    """Refuse a training run: all weights from its first to its last played its episodes.

    Args:
        command: what the runs were given to.
        runs: folders, or files of episodes.

    Raises:
        BadArgument: with the commands that evaluate its last weights. Otherwise see `find_store`.
    """
    trained = {run: find_store(run).parent for run in runs}
    trained = {run: at for run, at in trained.items() if all((at / name).is_file() for name in _TRAINING)}
    if not trained:
        return
    played = {run: f"{at}-eval" for run, at in trained.items()}
    lines = [
        ["gem-gym", "eval", *_environments_of(at), "--agent", str(at), "--out", played[run]]
        for run, at in trained.items()
    ]
    lines.append(["gem-gym", command, *(played.get(run, str(run)) for run in runs)])
    if len(trained) > 1:
        lines.append(["gem-gym", "report", *map(str, trained.values())])
    are = "are training runs: their" if len(trained) > 1 else "is a training run: its"
    raise BadArgument(
        f"{' and '.join(map(str, trained))} {are} episodes were played by all weights from the first to the "
        "last, and say little about what was trained. Evaluate that:\n  "
        + "\n  ".join(map(shlex.join, lines))
    )


def _environments_of(run: Path) -> list[str]:
    """Return the words of `gem-gym eval` for the environments of a training run."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        config = read_json(run / "config.json")
        if not config["env_kwargs"] and not config["environments"]:
            flags = [(f"--{name}", ",".join(config[name])) for name in ("tools", "wrappers") if config[name]]
            return [str(config["env"]), *(word for flag in flags for word in flag)]
    return ["SUITE.toml"]  # environments with keywords have no flags


def _show(comparison: Comparison, a: RunOutcomes, b: RunOutcomes) -> None:
    print(printable(f"A: {_run_title(a)}\nB: {_run_title(b)}\n"))
    for columns in _tables(comparison):
        table(*columns, rows=list(zip(*columns.values(), strict=True)))
        print()
    print(*map(printable, _headlines(comparison)), sep="\n")


def _markdown(comparison: Comparison, a: RunOutcomes, b: RunOutcomes, warnings: Sequence[str]) -> str:
    """Return the comparison in Markdown, as for a pull request: what B lost, by name, stands first."""
    first = [f"**{escape_cell(line)}**" for line in _headlines(comparison)[-1:]]
    lines = [*first, "", f"A: {escape_cell(_run_title(a))}; B: {escape_cell(_run_title(b))}"]
    worse = [change for change in comparison.changes if change.b < change.a]
    better = [change for change in reversed(comparison.changes) if change.b > change.a]
    for title, changes in ((f"Worse in B: {len(worse)}", worse), (f"Better in B: {len(better)}", better)):
        part = changes[:MOST_CHANGES]
        columns: dict[str, list[object]] = {
            "environment": [each.env for each in part],
            "task": [each.task for each in part],
            "seed": [each.seed for each in part],
            "sample": [each.sample for each in part],
            "A": [f"{each.a:g}" for each in part],
            "B": [f"{each.b:g}" for each in part],
            "episode of A": [each.a_episode for each in part],
            "episode of B": [each.b_episode for each in part],
        }
        if not any(columns["task"]):
            del columns["task"]
        if part:
            rows = list(zip(*columns.values(), strict=True))
            lines += ["", f"### {title}", "", markdown_table(tuple(columns), rows, escape=True)]
        if len(changes) > MOST_CHANGES:
            lines += ["", f"And {len(changes) - MOST_CHANGES} more: `--json` has all."]
    lines += ["", "### Figures"]
    for columns in _tables(comparison):
        figures = markdown_table(tuple(columns), list(zip(*columns.values(), strict=True)), escape=True)
        lines += ["", figures]
    lines += ["", *(f"- {escape_cell(line)}" for line in (*_headlines(comparison), *warnings))]
    return "\n".join(lines)


def _sum_costs(a: RunOutcomes, b: RunOutcomes) -> dict[str, dict[str, float | None]]:
    """Return what each run cost on the samples whose success in both is known; empty if it was not read.

    A sum is None where a part of it is unknown: what is known would look cheap.
    """
    runs = {"A": a, "B": b}
    scored = [
        {(o.task, o.sample, o.repeat): o for o in run.outcomes if o.success is not None}
        for run in runs.values()
    ]
    costs: dict[str, dict[str, float | None]] = {}
    for name, own, other in zip(runs, scored, reversed(scored), strict=True):
        shared = [own[key] for key in own.keys() & other.keys()]
        amounts = {kind: [getattr(each, kind) for each in shared] for kind in _COSTS}
        sums = {kind: None if None in each else sum(each) for kind, each in amounts.items()}
        costs[name] = {
            "samples": len(shared),
            "solved": sum(bool(each.success) for each in shared),
            **sums,
            **{f"{kind}_unknown": amounts[kind].count(None) for kind in ("tokens", "cpu_s")},
        }
    read = any(cost["samples"] and cost[kind] is not None for cost in costs.values() for kind in _COSTS)
    return costs if read else {}


def _warn_of_costs(costs: dict[str, dict[str, float | None]]) -> list[str]:
    """Return warnings about samples whose cost is not known, where that of others is."""
    warnings = []
    for name, cost in costs.items():
        for kind, what in (("tokens", "tokens"), ("cpu_s", "CPU seconds")):
            lacking, samples = cost[f"{kind}_unknown"], cost["samples"]
            if lacking and (kind == "tokens" or lacking != samples):  # only programs have CPU seconds
                warnings.append(f"the {what} of {lacking} of {samples} samples of {name} are unknown.")
    return warnings


def _write_cost(name: str, cost: dict[str, float | None], kinds: Sequence[str]) -> tuple[object, ...]:
    """Return the row of a run: what it cost in all, and per solved sample where one was solved."""
    cells: list[object] = [name, cost["samples"], cost["solved"]]
    for kind in kinds:
        (_, write), value, solved = _COSTS[kind], cost[kind], cost["solved"]
        cells += ["-" if value is None else write(value)]
        cells += [write(value / solved) if solved and value is not None else "-"]
    return tuple(cells)


def _tables(comparison: Comparison) -> list[dict[str, list[object]]]:
    """Return the columns of the two tables, by their heads."""
    several = _has_overall(comparison)
    rows = [*comparison.rows, *([comparison.overall] if several else [])]
    success = comparison.metric == "success"
    envs: list[object] = [printable(row.env) for row in rows]
    figures: dict[str, list[object]] = {"env": envs}
    figures[f"A {comparison.metric}"] = [_number(row.a, success) for row in rows]
    figures[f"B {comparison.metric}"] = [_number(row.b, success) for row in rows]
    figures["B - A"] = [_difference(row.difference, success) for row in rows]
    figures["coverage"] = [f"{row.coverage:.1%}" for row in rows]
    more: dict[str, list[object]] = {"env": envs, "tasks": [row.tasks for row in rows]}
    more["pairs"] = [row.pairs for row in rows]
    if any(row.pairs < row.of for row in rows):
        more["pairs"] = [f"{row.pairs}/{row.of}" for row in rows]
        more["A : B scored"] = [f"{row.a_scored} : {row.b_scored}" for row in rows]
        if success:
            more["bounds"] = [_worst(row) for row in rows]
    more["bootstrap"] = [_bounds(row.bootstrap, success) for row in rows]
    if success:
        more["A : B alone"] = ["-" if row.lost is None else f"{row.lost} : {row.won}" for row in rows]
    more["p"] = [_p(row.p) for row in rows]
    if several:
        more["Holm"] = [_p(row.corrected) for row in rows]
    return [figures, more]


def _has_overall(comparison: Comparison) -> bool:
    """Return whether the row over environments says more than that of a single one."""
    return len(comparison.rows) > 1 or bool(comparison.alone)


def _headlines(comparison: Comparison) -> list[str]:
    if not _has_overall(comparison):
        return [str(comparison.rows[0].withheld or comparison.rows[0].headline)]
    return [f"{row.env}: {row.withheld or row.headline}" for row in (*comparison.rows, comparison.overall)]


def _worst(row: Paired) -> str:
    if row.at_least is None or row.at_most is None:
        return "-"
    return f"{100 * row.at_least:+.1f} to {100 * row.at_most:+.1f}"


def _number(value: Interval | None, success: bool) -> str:
    if value is None:
        return "-"
    return f"{value.mean:.1%}" if success else f"{value.mean:.3f}"


def _difference(value: Interval | None, success: bool) -> str:
    if value is None:
        return "-"
    mean = f"{100 * value.mean:+.1f}" if success else f"{value.mean:+.3f}"
    return f"{mean} ({_bounds(value, success)})"


def _bounds(value: Interval | None, success: bool) -> str:
    if value is None:
        return "-"
    return value.write_bounds(lambda bound: f"{100 * bound:+.1f}" if success else f"{bound:+.3f}")


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def _warnings(comparison: Comparison, a: RunOutcomes, b: RunOutcomes) -> list[str]:
    warnings = list(comparison.warnings)
    for run in (a, b):
        if run.damaged:
            warnings.append(damaged_of(run))
    if comparison.alone:
        warnings.append(f"only one run holds {', '.join(comparison.alone)}; no figure includes it.")
    return warnings


def damaged_of(run: RunOutcomes) -> str:
    """Return the warning about a run's damaged lines."""
    lines = "1 damaged line is" if run.damaged == 1 else f"{run.damaged} damaged lines are"
    return f"{run.name}: {lines} left out."


def _run_title(run: RunOutcomes) -> str:
    return f"{run.name}, {run.agent}" if run.agent else run.name
