"""The page of a study, as Markdown: the question, the table, the curves, the set-up, and how to repeat it.

It depends on the study's file and its rows alone, so that a page can be compared with them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

from gem.content import printable
from gem.evals.reports import markdown_table
from gem.files import replace_file
from gem.train.baselines import picture, rows
from gem.train.baselines.rows import Run, Searched
from gem.train.baselines.study import Search, Study
from gem.train.baselines.summary import (
    LEAST_GAIN,
    P_VALUE,
    POLICIES,
    CellSummary,
    Difference,
    Measure,
    Summary,
    number,
    with_interval,
)
from gem.train.baselines.transfer import MOVED, summarise_transfer

SIGNS = """The last two columns assume no distribution: a studentised bootstrap over the seeds, and the share
of all choices of signs of the differences whose sum is as far from 0. The bootstrap has "none" where so few
seeds differ that its bounds are beyond 100 points."""

TURNS = """A curve of turns is the length of all episodes: one that an unreadable answer ends early is short,
so the curve can fall below the solver's line, which the figures of the table cannot."""

MEANS_ALONE = f"A panel of more than {picture.MOST_SEEDS} variants shows the means alone."

NARROW = """‡ Few seeds agree here more closely than their evaluations are precise, which is chance: the
interval is widened to what the evaluations alone leave, and the p-value beside it goes with that."""

GAINS = """Paired by seed, with Student's t interval and its p, and Holm's correction over all of them.
RL that only makes a policy surer of what it does already raises sampled play, and not greedy play."""

MOST_ROWS = 12
"""Differences, or environments, of which all is shown at once; where there are more, a part is folded."""


def table_heads(summary: Summary) -> tuple[str, ...]:
    """Return the heads of the columns of table_rows()."""
    titles = (POLICIES[name] for name in _policies(summary))
    return ("environment", "variant", *titles, "last third", "CPU s")


def _policies(summary: Summary) -> list[str]:
    """Return the policies that a table shows: greedy play before RL only where a run has it."""
    known = any("before_greedy" in each.figures for each in summary.cells)
    return [name for name in POLICIES if known or name != "before_greedy"]


def page_path(study: Study, folder: Path) -> Path:
    """Return the path of a study's page."""
    return folder / f"{study.name}.md"


def write_page(summary: Summary, folder: Path) -> Path:
    """Write the page of a study into a folder, unless the file there is the same.

    Raises:
        StoreError: when it cannot be written.
    """
    path, text = page_path(summary.study, folder), page(summary)
    if not path.exists() or path.read_bytes() != text.encode():
        with replace_file(path, parents=True) as partial:
            partial.write_text(text, encoding="utf-8")
    return path


def page(summary: Summary) -> str:
    """Return the page of a study, as Markdown."""
    study = summary.study
    wrote = (
        f"<!-- `gem-gym baseline {study.name}.toml --report` wrote this: edit the study, not the page. -->"
    )
    parts = [
        f"# {study.title}",
        wrote,
        study.about.strip(),
        "## Verdict",
        study.verdict.strip() or "None is written yet.",
        "## Results",
        *_results(summary),
        *_comparison(summary),
        *_transfer(summary),
        *_search(summary),
        *_cost(summary),
        "## Set-up",
        *_setup(summary),
        "## How to repeat it",
        *_repeat(summary),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cell_row(each: CellSummary, policies: Sequence[str]) -> tuple[str, ...]:
    """Return the table row of a cell, with the figures of these policies."""
    figures = []
    for name in policies:
        figure = each.figures.get(name)
        mark = "†" * (name == "before" and bool(each.below_random))
        if figure is None:
            figures.append("-" if name != "after" or not each.state else each.state)
        elif name == "after":
            state = f"; {each.state}" if each.state else ""
            figures.append(with_interval(figure, each.measure) + "‡" * each.narrow + state)
        else:
            figures.append(number(figure.mean, each.measure) + mark)
    trend = "-"
    if each.trend is not None:
        trend = each.trend.says
        if trend != "flat":
            trend = f"{trend} ({number(each.trend.gain, each.measure, signed=True)})"
    elif each.runs:
        trend = "too short" if each.alike else "stopped early"
    cpu_s = "-" if each.cpu_s is None else f"{each.cpu_s:.0f}" + "*" * bool(each.over)
    return (each.cell.environment.name, each.cell.variant.name, *figures, trend, cpu_s)


def table_rows(summary: Summary) -> list[tuple[str, ...]]:
    """Return the rows of the table; an environment that no variant was run on has a single one."""
    lines, policies = [], _policies(summary)
    for part in summary.study.environments:
        cells = summary.of(part)
        if len(cells) > 1 and all(each.state == "not run" for each in cells):
            name, _, *others = cell_row(cells[0], policies)
            lines.append((name, f"all {len(cells)}", *others))
        else:
            lines += [cell_row(each, policies) for each in cells]
    return lines


WHAT: dict[Measure, str] = {
    "success": "the rate of success",
    "return": "the mean return",
    "turns": "the turns to success (fewer are better; a failure counts as one more than the limit)",
}


def _results(summary: Summary) -> Iterator[str]:
    study, cells = summary.study, summary.cells
    lines = table_rows(summary)
    waiting = [line for line in lines if "not run" in line] if len(study.environments) > MOST_ROWS else []
    yield markdown_table(table_heads(summary), [line for line in lines if line not in waiting])
    if waiting:
        yield _fold("What has not run", markdown_table(table_heads(summary), waiting))
    measures = {each.measure for each in cells if each.runs}
    figures = " or ".join(what for measure, what in WHAT.items() if measure in measures or not measures)
    yield _points(
        f"""
        A figure is {figures}, the mean over the seeds that have run, of {_count(study.seeds, "seed")}. The
        interval after RL is Student's t over the seeds, at 95%: a seed decides the chance in training and in
        evaluation. With few seeds it is wide.
        {"An interval of a rate is cut at 0 and 100%." if "success" in measures else ""}
        """,
        """
        **Before RL**: the policy after its warm-up, which imitates random well-formed play, the solver's
        play or demonstrations. **After RL**: it samples as in training. **Greedy**: it takes the likeliest
        token.
        """,
        _instances(cells),
        f"""
        **Last third** of the learning curve, which has the scores of the training episodes: rising or falling
        if the Mann-Kendall test finds a trend (one-sided p of {P_VALUE:g} or less) and a straight line
        changes by more than {LEAST_GAIN:.0%} of the scale; in brackets, by how much. Otherwise flat: no trend
        was found. A curve that rises or falls at its end may not have converged. The step size and `kl` fall
        to 0 over a run, so a flat end may be the schedule's. Runs that stopped at different episodes have no
        common curve.
        """,
    )
    if any(each.over for each in cells):
        yield "\\* At least one run took more CPU seconds than the study expects. No run is stopped for it."
    if marked := [each for each in cells if each.below_random]:
        yield (
            "† The warm-up ended below random play, beyond noise: "
            + "; ".join(
                f"{each.cell.name}, {'seed' if len(each.below_random) == 1 else 'seeds'} "
                f"{', '.join(map(str, each.below_random))}"
                for each in marked
            )
            + "."
        )
    if any(each.narrow for each in cells):
        yield _prose(NARROW)
    if failed := [(each, seed, run) for each in cells for seed, run in each.failed.items()]:
        yield "Failed:\n\n" + "\n".join(
            f"- {each.cell.name}, seed {seed}: {_code(run.error or '')}" for each, seed, run in failed
        )
    yield from _gain(summary)
    if any(each.curves for each in cells):
        drawn = f"![Learning curves of every environment and variant]({study.name}.png)"
        yield _fold("Learning curves", drawn) if len(study.environments) > MOST_ROWS else drawn
        crowded = not all(picture.draws_seeds(summary.of(part)) for part in study.environments)
        yield _prose(
            f"""
            Each panel is an environment. A thick line is the mean over seeds, thin lines are the seeds, and
            the band goes from the lowest seed to the highest. {MEANS_ALONE if crowded else ""} Each point is
            the mean of the training episodes of a part of the run, of at most {rows.POINTS} parts.
            Horizontal lines show random play and the solver. {TURNS if "turns" in measures else ""}
            """
        )


def _gain(summary: Summary) -> Iterator[str]:
    """Yield what RL added to the policy before it, where several seeds tell."""
    lines = [
        (
            each.cell.environment.name,
            each.cell.variant.name,
            with_interval(each.interval, each.measure, signed=True) + "‡" * each.narrow,
            _p(each.p),
            _p(each.corrected),
            "-" if each.greedy is None else with_interval(each.greedy, each.measure, signed=True),
        )
        for each in summary.gains
    ]
    if not lines:
        return
    yield "## What RL added"
    greedy = any(each.greedy is not None for each in summary.gains)
    yield _prose(f"{GAINS} {'' if greedy else 'These runs are older than that figure.'}")
    heads = ("environment", "variant", "after RL minus before RL", "p", "p, Holm", "the same, greedy")
    width = len(heads) if greedy else -1
    yield _fold(
        "Each environment and variant", markdown_table(heads[:width], [line[:width] for line in lines])
    )
    if any(each.narrow for each in summary.gains):
        yield _prose(NARROW)


def _instances(cells: Sequence[CellSummary]) -> str:
    """Return which environments have so few instances that training and evaluation share all of them."""
    counts = {}
    for each in cells:
        for run in each.runs.values():
            greedy = run.figures.get("greedy")
            bounds = greedy and (greedy.success or greedy.reward)
            if bounds and bounds.exact:
                counts[each.cell.environment.name] = bounds.n
    apart = "The seeds of evaluation are not those of training."
    if not counts:
        return apart
    instances = ", ".join(f"{name} ({count})" for name, count in counts.items())
    return f"{apart} These environments have few instances, which both play: {instances}."


def _comparison(summary: Summary) -> Iterator[str]:
    study, first = summary.study, summary.study.variants[0].name
    if not summary.differences:
        return
    points = " (success in percentage points)" * any(
        each.measure == "success" for each in summary.differences
    )
    yield "## Variants compared"
    many = any(each.signs is not None for each in summary.differences)
    lines = []
    for each in summary.differences:
        seeds = f"; {each.interval.n} of {len(study.seeds)} seeds" * (each.interval.n < len(study.seeds))
        line = (
            each.environment.name,
            each.variant.name,
            with_interval(each.interval, each.measure, signed=True) + "‡" * each.narrow + seeds,
            _p(each.p),
            _p(each.corrected),
        )
        lines.append((*line, _bootstrap(each), _p(each.signs)) if many else line)
    heads = ("environment", "variant", f"minus {first}", "p", "p, Holm")
    table = markdown_table((*heads, "bootstrap", "p, signs") if many else heads, lines)
    long = len(summary.differences) > MOST_ROWS
    yield _fold("Each environment and variant", table) if long else table
    yield _prose(
        f"""
        The difference after RL between a variant and {first}, paired by seed{points}. Other pairs are not
        tested. Runs with the same seed are evaluated on the same instances. They also start from the same
        policy if model and warm-up are the same. Interval and p are Student's t over the seeds, which
        assumes normal differences{_least_p(summary)}. They are of the settings that were run, and do not tell
        how uncertain their choice is. {_family(summary)}
        {SIGNS if many else ""}
        """
    )
    if any(each.narrow for each in summary.differences):
        yield _prose(NARROW)
    if summary.aggregates:
        yield markdown_table(
            ("variant", "interquartile mean"),
            [(each.variant.name, with_interval(each.interval, "return")) for each in summary.aggregates],
        )
        yield _prose(
            f"""
            Over {"; ".join(summary.aggregated)}. On this scale random play is 0 and the solver is 1. The
            figure is the mean of the middle half of all runs, with a stratified bootstrap interval over
            seeds, at 95% ([Agarwal et al., 2021](https://arxiv.org/abs/2108.13264)). The scores of random
            play and the solver are taken as exact. With few seeds the interval is too narrow.
            """
        )
        if summary.left_out:
            reasons: dict[str, list[str]] = {}
            for name, why in summary.left_out.items():
                reasons.setdefault(why, []).append(name)
            omitted = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
            yield f"Not in the mean over environments: {omitted}."
    elif len(study.environments) > 1:
        yield "There is no mean over environments: fewer than two are finished and can be put on one scale."


def _least_p(summary: Summary) -> str:
    """Return what a test without that assumption could show at best, where the seeds are few."""
    n = max((each.interval.n for each in summary.differences if each.signs is None), default=0)
    return f": with {n} seeds a test by signs alone is never below {_p(2.0 ** (1 - n))}" if n else ""


def _family(summary: Summary) -> str:
    """Return which comparisons Holm's correction is over, and whether there will be more."""
    tested = sum(each.corrected is not None for each in summary.differences)
    begun = f"Holm's correction is over {tested} comparison{'s' * (tested != 1)}"
    if all(each.whole for each in summary.cells):
        return f"{begun}."
    planned = len(summary.study.environments) * (len(summary.study.variants) - 1)
    return f"{begun} so far, of {planned} in the study: it will be stricter with more of them."


def _transfer(summary: Summary) -> Iterator[str]:
    found_elsewhere = summarise_transfer(summary)
    if not found_elsewhere:
        return
    yield "## On other environments"
    lines = []
    for each in found_elsewhere:
        figures = []
        for name, figure in each.figures.items():
            if figure is None:
                figures.append("-")
            else:
                with_bounds = with_interval(figure, each.measure)
                figures.append(with_bounds if name == "after" else number(figure.mean, each.measure))
        figures += [
            "-" if figure is None else with_interval(figure, each.measure, signed=True)
            for figure in each.gains.values()
        ]
        lines.append((each.cell.environment.name, each.cell.variant.name, each.elsewhere, *figures))
    names = [POLICIES[name] for name in MOVED]
    heads = ("trained on", "variant", "evaluated on", *names, *(f"minus {name}" for name in names[:-1]))
    yield markdown_table(heads, lines)
    yield _prose(
        """
        The trained policies, unchanged, on environments that they were not trained on. Before RL: the policy
        after the warm-up on its training environment. A run keeps it only if `kl` is above 0. The last two
        columns are the differences of the trained policy from the others, paired by seed; intervals are
        Student's t over the seeds, at 95%.
        """
    )


def _search(summary: Summary) -> Iterator[str]:
    search = summary.study.search
    if search is None:
        return
    yield "## Search"
    halved = len(search.shares) > 1
    names = list(search.points[0])
    lines = []
    for each in summary.cells:
        who = (each.cell.environment.name, each.cell.variant.name)
        tried = each.row.search if each.row is not None else None
        if tried is None:
            lines.append((*who, *("-" for _ in names), "not run", ""))
            continue
        for place, point in enumerate(tried.points):
            failed = any(score is None for score in point.scores)
            score = "failed" if failed else number(point.mean, each.measure)
            values = (_value(point.settings[name]) for name in names)
            share = (f"{point.share:.0%}",) if halved else ()
            lines.append(
                (*who, *values, *share, score, _name_choice(search, tried) if place == tried.chosen else "")
            )
    heads = ("environment", "variant", *names, *(("episodes",) if halved else ()), "score", "")
    yield _fold("What was tried", markdown_table(heads, lines))
    yield _prose(
        f"""
        Each environment and variant was tried with the same {len(search.points)} settings and
        {_count(search.seeds, "seed")} ({", ".join(map(str, search.seeds))}) that no other figure uses.
        {_halving(search.shares) if halved else ""} {_short_grids(search)}
        The score is the mean after RL over these seeds. The best one was chosen; of equal ones, the first.
        The best score of a search is biased upwards. Use the figures above.
        """
    )


def _halving(shares: Sequence[float]) -> str:
    first, *others = (f"{share:.0%}" for share in shares)
    later = ", then the best of these with ".join(others)
    return (
        f"All ran with {first} of the episodes, the best of them with {later}. The row of a setting has the "
        "largest share that it ran with."
    )


def _short_grids(search: Search) -> str:
    """Return that each choice is at an edge, where a setting has two values."""
    two = [name for name in search.points[0] if len({str(point[name]) for point in search.points}) == 2]
    names = " and ".join(f"`{name}`" for name in two)
    return f"Of {names} two values were tried, so each choice is at an edge of the grid." if two else ""


def _name_choice(search: Search, tried: Searched) -> str:
    """Return that a point was chosen, of which settings it is at an edge, and how many others are as good."""
    assert tried.chosen is not None
    chosen, edges = tried.points[tried.chosen], []
    for name, value in search.points[tried.chosen].items():
        every = [point[name] for point in search.points]
        if isinstance(value, int | float) and len({*every}) > 2 and value in (min(every), max(every)):
            edges.append(f"{'lowest' if value == min(every) else 'highest'} {name}")
    equal = [each for each in tried.points if (each.mean, each.share) == (chosen.mean, chosen.share)]
    if len(equal) > 1:
        edges.append(f"the first of {len(equal)} as good")
    return f"chosen ({', '.join(edges)})" if edges else "chosen"


def _bootstrap(each: Difference) -> str:
    if each.bootstrap is None:
        return "-"
    if each.measure == "success" and max(-each.bootstrap.low, each.bootstrap.high) > 1:
        return "none"
    return each.bootstrap.write_bounds(lambda bound: number(bound, each.measure, signed=True))


def _cost(summary: Summary) -> Iterator[str]:
    """Yield what training cost for each episode that it solved, where the rows tell."""
    lines = []
    for each in summary.cells:
        if solved := each.count_in_training("success"):
            cpu_s = fsum(run.cpu_s for run in each.runs.values()) / solved
            tokens = each.count_in_training("turns", "answer_tokens")
            sampled = "-" if tokens is None else f"{tokens / solved:,.1f}"
            who = (each.cell.environment.name, each.cell.variant.name)
            lines.append((*who, f"{solved / len(each.runs):,.0f}", f"{1000 * cpu_s:,.1f}", sampled))
    if lines:
        heads = ("environment", "variant", "solved in a run", "CPU ms for each", "sampled tokens for each")
        yield "## Cost"
        pairs = [[run.cpu_s for run in each.runs.values()] for each in summary.cells if len(each.runs) > 1]
        spread = max((max(each) / min(each) for each in pairs if min(each) > 0), default=0.0)
        differ = f": the dearest seed of a row took up to {spread:.2f} times the cheapest" * (spread > 0)
        searched = ", without the search" * (summary.study.search is not None)
        yield _prose(
            f"""
            The training episodes that a run solved, and what a run took for each of them: all its CPU time,
            with warm-up and measurements{searched}, and the tokens that it sampled in training, which older
            rows do not have. CPU time depends on what else the machine did, so small differences mean
            nothing{differ}.
            """
        )
        yield _fold("What a solved episode took", markdown_table(heads, lines))


def _setup(summary: Summary) -> Iterator[str]:
    study = summary.study
    yield _prose(
        f"""
        Seeds: {", ".join(map(str, study.seeds))}. All other settings have the defaults of `gem-gym train`
        for the algorithm and the model (`gem-gym train --help` tells what each means). The files in
        `baselines/{study.name}/` hold every setting.
        """
    )
    lines = [("all", "", _settings(study.settings))]
    for part in study.environments:
        own = {name: value for name, value in part.settings.items() if name != "env"}
        claimed = "" if part.cpu_s is None else f"; a run is expected to take {part.cpu_s:g} CPU seconds"
        lines.append(("environment", part.name, f"`{part.settings['env']}`; {_settings(own)}{claimed}"))
    lines += [("variant", part.name, _settings(part.settings)) for part in study.variants]
    table = markdown_table(("of", "name", "settings"), lines)
    runs = [run for each in summary.cells for run in each.runs.values()]
    if runs:
        searches = [each.row.search for each in summary.cells if each.row is not None and each.row.search]
        searched = sum(sum(point.cpu_s) for search in searches for point in search.points)
        table = "\n".join([table, "", *_provenance(runs, searched)])
    yield _fold("Settings of each environment and variant, machine and versions", table)
    others = {
        each.cell.name: sorted(set(each.row.runs) - {str(seed) for seed in study.seeds}, key=int)
        for each in summary.cells
        if each.row is not None
    }
    if entries := [f"{name}: {', '.join(seeds)}" for name, seeds in others.items() if seeds]:
        yield f"The rows hold other seeds too. No figure uses them: {'; '.join(entries)}."
    if summary.strange:
        entries = [f"`{name}`" for name in summary.strange]
        yield f"Rows of no environment and variant of the study: {', '.join(entries)}."


def _provenance(runs: Sequence[Run], searched: float) -> Iterator[str]:
    def all_of(values: Sequence[str]) -> str:
        counts = Counter(values)
        return "; ".join(
            f"{value} ({count} runs)" * (len(counts) > 1) or value for value, count in counts.items()
        )

    def of(name: str) -> list[str]:
        return [run.versions.get(name, "?") for run in runs]

    yield f"- Machine: {all_of([_machine(run.machine) for run in runs])}"
    yield f"- gem {all_of(of('gem'))}, commit {all_of(of('commit'))} (`+`: with changes)"
    yield f"- PyTorch {all_of(of('torch'))}, Python {all_of(of('python'))}"
    yield f"- Run from {min(run.started for run in runs)} to {max(run.ended for run in runs)}"
    searching = f", and {searched:.0f} for the search" if searched else ""
    yield (
        f"- {sum(run.cpu_s for run in runs):.0f} CPU seconds in all{searching}, of the processes that train: "
        "evaluation, warm-up and training. A warm-up that several runs share is counted in each. Programs "
        "that tools start are not included."
    )
    if lost := sum(run.no_verdict for run in runs):
        yield f"- {lost} training episodes had no verdict and were left out."


def _repeat(summary: Summary) -> Iterator[str]:
    name = summary.study.name
    yield "\n".join(
        (
            "```sh",
            f"gem-gym baseline baselines/{name}.toml             # runs what has not run",
            f"gem-gym baseline baselines/{name}.toml --report    # writes this page",
            "```",
        )
    )
    yield _prose(
        f"""
        The figures are in `baselines/{name}/`: a file per environment and variant, with the whole config
        and the curve of every run. If these files are deleted, everything runs again. The same seed gives
        the same run on the same machine with the same versions. On another machine rounding differs, so
        results differ too.
        """
    )


def _prose(text: str) -> str:
    return " ".join(text.split())


def _points(*texts: str) -> str:
    return "\n".join(f"- {_prose(text)}" for text in texts)


def _count(values: Sequence[object], what: str) -> str:
    return f"{len(values)} {what}{'s' * (len(values) != 1)}"


def _fold(title: str, text: str) -> str:
    """Return text that a reader opens by its title."""
    return f'<details markdown="1">\n<summary>{title}</summary>\n\n{text}\n\n</details>'


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name} = {_value(value)}`" for name, value in values.items()) or "defaults"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, default=str).replace("|", "\\|").replace("`", "'")


def _machine(machine: Mapping[str, str | int]) -> str:
    processor, cores, system = (machine.get(name, "?") for name in ("processor", "cores", "system"))
    return f"{processor}, {cores} cores, {system}" + (
        f", in {machine['dtype']}" if "dtype" in machine else ""
    )


def _code(text: str) -> str:
    """Return text of an error as code, on one line and short."""
    return "`" + printable(" ".join(text.split())).replace("`", "'")[:300] + "`"


def _p(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"
