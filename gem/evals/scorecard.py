"""Scorecards: an agent's figures over the environments of a suite, in total and by category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gem.evals.environments import name_tasks
from gem.evals.latency import Latency
from gem.evals.results import EnvResult, bounds
from gem.evals.suite import Entry
from gem.evals.usage import Prices, Usage, count_uncounted, together, tokens_of
from gem.statistics import Interval, combine
from gem.statistics.combining import count_clusters, group_shared

REFERENCES = ("random", "solver")
"""The agents whose returns are 0 and 1 on the normalised scale."""


MIN_COVERAGE = 0.95
"""Share of episodes with a verdict, or of pairs with both values, that a gate and a comparison need."""


@dataclass(frozen=True, slots=True)
class Scored:
    """An environment of the suite: its figures, or in `missing` the reason why it could not be made.

    `note`: a remark on the figures. `normalised`: the return on a scale where random play is 0 and the solver
    is 1; None if these were not played, or are not shown to differ. `seeds`: those of its tasks.
    """

    entry: Entry
    result: EnvResult | None = None
    missing: str = ""
    note: str = ""
    normalised: Interval | None = None
    seeds: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Mean:
    """Means over several environments, weighted by the environments' weights, not by their episodes.

    `left_out` environments could not be made and are in no figure. `withheld` is the reason for no headline,
    as one of these; `withheld_known` is that of return and turns, which may be known where success is not.
    `gaps` has the figures that not every environment has, and why: a mean over the others
    would look better.
    """

    name: str
    environments: int
    left_out: int
    episodes: int
    scored: int
    success: Interval | None
    reward: Interval | None
    turns: float | None
    passes: dict[str, Interval]
    usage: dict[str, Usage]
    withheld: str = ""
    normalised: Interval | None = None
    doubtful: int = 0
    tokens_per_success: Interval | None = None
    seconds_per_success: Interval | None = field(default=None, compare=False)
    tasks: int = 0
    gaps: dict[str, str] = field(default_factory=dict)
    withheld_known: str = ""

    @property
    def coverage(self) -> float:
        """The share of requested episodes that have a verdict; NaN if there were none."""
        return self.scored / self.episodes if self.episodes else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "environments": self.environments,
            "left_out": self.left_out,
            "episodes": self.episodes,
            "scored": self.scored,
            "coverage": self.coverage if self.episodes else None,
            "success": bounds(self.success),
            "reward": bounds(self.reward),
            "normalised": bounds(self.normalised),
            "turns": self.turns,
            "passes": {name: bounds(each) for name, each in self.passes.items()},
            "tokens": tokens_of(self.usage),
            "tokens_per_success": bounds(self.tokens_per_success),
            "seconds_per_success": bounds(self.seconds_per_success),
            "withheld": self.withheld or None,
            "gaps": self.gaps,
        }


@dataclass
class Scorecard:
    """The results of an agent: its environments in the order of the suite, and the latency of its answers."""

    agent: str
    min_coverage: float = 0.0
    prices: Prices | None = None
    rows: list[Scored] = field(default_factory=list)
    latency: Latency = field(default_factory=Latency)

    @property
    def has_model(self) -> bool:
        """Whether a model answered, so that its latency is of interest."""
        usage = self.overall.usage
        return bool(tokens_of(usage) or count_uncounted(usage))

    @property
    def has_own_agent(self) -> bool:
        """Whether the agent is none of the environments' own, which use no tokens."""
        return self.agent not in REFERENCES

    @property
    def results(self) -> list[EnvResult]:
        """The figures of the environments that could be made."""
        return [row.result for row in self.rows if row.result is not None]

    def withheld(self, figures: EnvResult) -> str:
        """Return why an environment's figures give no headline; empty if they give one."""
        share = (figures.scored - figures.unclear) / figures.episodes if figures.episodes else math.nan
        if not share < self.min_coverage:
            return ""
        lost = [f"{figures.unscored} without verdict"] * bool(figures.unscored)
        lost += [f"{figures.unplayed} not played"] * bool(figures.unplayed)
        lost += [f"{figures.unclear} without word of success"] * bool(figures.unclear)
        under = f"coverage {share:.1%} is under {self.min_coverage:.1%}"
        return f"{under}: of {figures.episodes} episodes {' and '.join(lost)}"

    def withheld_passes(self, figures: EnvResult) -> dict[str, str]:
        """Return which of an environment's pass@k and pass^k are over too few of its tasks, and why."""
        return {
            name: f"{each.clusters} of {figures.tasks} tasks have the verdicts for {name}, "
            f"under {self.min_coverage:.1%}"
            for name, each in figures.passes.items()
            if each.clusters < self.min_coverage * figures.tasks
        }

    def find_normalised(self, figures: EnvResult | Mean) -> Interval | None:
        """Return the normalised return of figures of this card."""
        if isinstance(figures, Mean):
            return figures.normalised
        return next((row.normalised for row in self.rows if row.result is figures), None)

    @property
    def overall(self) -> Mean:
        """The mean over all environments."""
        return self._mean("overall", self.rows)

    @property
    def categories(self) -> list[Mean]:
        """The mean over each category, in the order of the suite; empty if there is only one category."""
        means = self.by_category()
        return means if len(means) > 1 else []

    def by_category(self) -> list[Mean]:
        """Return the mean over each category."""
        names = dict.fromkeys(row.entry.category for row in self.rows)
        return [
            self._mean(name or "other", [row for row in self.rows if row.entry.category == name])
            for name in names
        ]

    def cost(self, usage: dict[str, Usage]) -> float | None:
        """Return the cost of tokens in dollars; None without prices, or if not all tokens were counted."""
        return None if self.prices is None or count_uncounted(usage) else self.prices.cost(usage)

    def _mean(self, name: str, rows: Sequence[Scored]) -> Mean:
        here = [(row.result, row.entry) for row in rows if row.result is not None]
        results, weights = [result for result, _ in here], [entry.weight for _, entry in here]
        groups = _group([row for row in rows if row.result is not None])

        def over_all(figures: Sequence[Interval | None]) -> Interval | None:
            """Return None where one is unknown: the others alone would look cheap, or easy."""
            known = [each for each in figures if each is not None]
            return combine(known, weights, groups) if known and len(known) == len(figures) else None

        own_figures: dict[str, list[Interval | None]] = {
            "success": [result.success for result in results],
            "return": [result.reward for result in results],
            "normalised": [row.normalised for row in rows if row.result is not None],
        }
        gaps = {
            name: f"{results[figures.index(None)].env} has none"
            for name, figures in own_figures.items()
            if None in figures and any(figures)
        }
        short = {result.env: self.withheld_passes(result) for result in results}
        passes = {}
        for key in dict.fromkeys(key for result in results for key in result.passes):
            own = [None if key in short[each.env] else each.passes.get(key) for each in results]
            if (mean := over_all(own)) is not None:
                passes[key] = mean
            else:
                lacking = results[own.index(None)].env
                gaps[key] = f"{lacking}: {short[lacking].get(key, 'it has none')}"
        turns = [(result.turns, entry.weight) for result, entry in here if result.turns is not None]
        return Mean(
            name,
            len(results),
            len(rows) - len(results),
            sum(result.episodes for result in results),
            sum(result.scored for result in results),
            over_all(own_figures["success"]),
            over_all(own_figures["return"]),
            sum(t * w for t, w in turns) / sum(w for _, w in turns)
            if turns and len(turns) == len(here)
            else None,
            passes,
            together(result.usage for result in results),
            self._why_none(rows),
            over_all(own_figures["normalised"]),
            sum(result.doubtful for result in results),
            over_all([result.tokens_per_success for result in results]),
            over_all([result.seconds_per_success for result in results]),
            count_clusters([result.tasks for result in results], groups)
            if all(result.tasks for result in results)
            else 0,
            gaps,
            self._why_none(
                [replace(row, result=row.result and replace(row.result, unclear=0)) for row in rows]
            ),
        )

    def _why_none(self, rows: Sequence[Scored]) -> str:
        """Return why a mean over these environments is no headline; empty if it is one."""
        absent = [row.entry.label for row in rows if row.result is None]
        short = [row.result.env for row in rows if row.result is not None and self.withheld(row.result)]
        if not (absent or short):
            return ""
        if len(absent) == len(rows):
            return "no environment of it is here"
        first, *more = absent or short
        named = f"{first}{f' and {len(more)} more' if more else ''}"
        if absent:
            return f"without {named}, which {'are' if more else 'is'} not here"
        clear = not any(row.result.unclear for row in rows if row.result is not None)
        what = "coverage" if clear else "share of episodes with word of success"
        return f"the {what} of {named} is under {self.min_coverage:.1%}"

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            about: dict[str, Any] = {
                "name": self.agent,
                "env": row.entry.label,
                "category": row.entry.category,
            }
            if row.result is None:
                rows.append({**about, "missing": row.missing})
                continue
            about["tokens"], about["cost"] = tokens_of(row.result.usage), self.cost(row.result.usage)
            about["withheld"], about["note"] = self.withheld(row.result) or None, row.note or None
            about["withheld_passes"] = self.withheld_passes(row.result)
            about["normalised"] = bounds(row.normalised)
            rows.append({**row.result.to_json(), **about})
        overall = self.overall
        return {
            "agent": self.agent,
            "latency": self.latency.to_json(),
            "overall": {**overall.to_json(), "cost": self.cost(overall.usage)},
            "categories": [{**each.to_json(), "cost": self.cost(each.usage)} for each in self.categories],
            "results": rows,
        }


def _group(rows: Sequence[Scored]) -> list[int]:
    """Return a number for each environment, equal for those that share tasks."""
    names = [name_tasks(row.entry.env, row.entry.kwargs) for row in rows]
    return group_shared([{(name, seed) for seed in row.seeds} for name, row in zip(names, rows, strict=True)])
