"""Gates: conditions on figures, for continuous integration, such as ``success>=0.8``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gem.errors import BadArgument, did_you_mean
from gem.evals.results import EnvResult
from gem.evals.scorecard import Mean, Scorecard
from gem.evals.usage import count_uncounted, tokens_of
from gem.statistics import Interval

METRICS = ("success", "return", "reward", "turns", "coverage", "tokens", "cost", "doubtful")
"""The metrics of a gate, besides ``pass@K`` and ``pass^K``; return and reward are the same."""

INTERVALS = ("success", "return", "reward", "pass")
"""The metrics with an interval, which accept ``low`` and ``high``."""

RATES = ("success", "coverage", "doubtful")
"""The metrics from 0 to 1, besides ``pass@K`` and ``pass^K``."""

EXAMPLES = "success>=0.8, low(success)>=0.8, success[game:Sudoku-v0-easy]>=80%, success[*]>0, pass@4>=0.9"

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_GATE = re.compile(r"(?P<figure>.+?)\s*(?P<op>>=|<=|>|<)\s*(?P<value>[-+0-9.eE]+)\s*(?P<percent>%)?")
_BOUND = re.compile(r"(low|high)\s*\((.*)\)")
_METRIC = re.compile(r"(?P<metric>[A-Za-z_]+(?:[@^][0-9]+)?)\s*(?:\[(?P<where>.*)\])?")
LONGEST = 500  # characters of a gate
ROUNDING = 1e-9  # figures no further apart are equal


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on a figure.

    `bound` is empty for the figure itself, ``low`` or ``high`` for a bound of its interval. `where` is empty
    for the overall figure, else an environment, a category, a group of tasks (``level=3``), ``*`` for every
    environment, or ``level=*`` for every group of a column.
    """

    text: str
    bound: str
    metric: str
    where: str
    op: str
    value: float

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Parse a gate.

        Raises:
            BadArgument: for a text that is not a gate, or an unknown metric.
        """
        text = text.strip()
        whole = _GATE.fullmatch(text) if len(text) <= LONGEST else None
        bound = _BOUND.fullmatch(whole["figure"]) if whole else None
        match = _METRIC.fullmatch(bound[2].strip() if bound else whole["figure"]) if whole else None
        try:
            value = float(whole["value"]) if whole else math.nan
        except ValueError:
            value = math.nan
        if whole is None or match is None or not math.isfinite(value):
            raise BadArgument(f"gate {text[:100]!r} cannot be read; accepted, for example: {EXAMPLES}.")
        metric = match["metric"]
        if metric not in METRICS and not re.fullmatch(r"pass[@^][1-9][0-9]{0,3}", metric):
            hint = did_you_mean(metric, METRICS)
            raise BadArgument(
                f"gate {text!r} is about {metric!r}.{hint} Accepted: {', '.join(METRICS)}, pass@K, pass^K."
            )
        if bound and not metric.startswith(INTERVALS):
            raise BadArgument(f"gate {text!r}: {metric} has no interval; accepted: {metric} itself.")
        value /= 100 if whole["percent"] else 1
        _check_value(text, metric, whole["op"], value)
        where = (match["where"] or "").strip()
        return cls(text, bound[1] if bound else "", metric, where, whole["op"], value)


def _check_value(text: str, metric: str, op: str, value: float) -> None:
    """Refuse a value that the metric cannot have: such a gate always passes or always fails.

    Raises:
        BadArgument: with the values that are accepted.
    """
    if metric in ("return", "reward"):
        return
    rate = metric.startswith("pass") or metric in RATES
    accepted = "0 to 1, or 0% to 100%" if rate else "0 or more"
    if 0 <= value <= (1 if rate else math.inf):
        if rate and op == ">" and value == 1:
            accepted = "below 1 with >"
        elif op == "<" and value == 0:
            accepted = "above 0 with <"
        else:
            return
    raise BadArgument(f"gate {text!r} has the same result for every {metric}; accepted: {accepted}.")


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a gate for an agent; `said` has the figure, or the reason why there is none."""

    gate: Gate
    agent: str
    passed: bool
    said: str


def refuse_unknown(
    gates: Iterable[Gate], samples: Mapping[str, int], groups: Iterable[str], priced: bool
) -> None:
    """Raise BadArgument for a gate that an evaluation cannot check.

    `samples`: the samples of a task in each environment and each category, the least; under '' in all.
    """
    groups = [*groups, *(f"{name.partition('=')[0]}=*" for name in groups)]
    places = ["*", *filter(None, samples), *groups]
    for gate in gates:
        if gate.where and gate.where not in places:
            hint = did_you_mean(gate.where, places)
            raise BadArgument(f"gate {gate.text!r} is about {gate.where!r}, which is not played.{hint}")
        if gate.metric.startswith("pass"):
            k, there = int(gate.metric[5:]), samples.get(gate.where, samples[""])
            if k > there or there < 2:
                raise BadArgument(
                    f"gate {gate.text!r} needs {max(k, 2)} samples of a task or more; there "
                    f"{'is' if there == 1 else 'are'} {there} (-k, --samples)."
                )
        if gate.metric == "cost" and not priced:
            raise BadArgument(f"gate {gate.text!r} is about money; pass the prices of tokens: --prices FILE.")


def check(gates: Iterable[Gate], card: Scorecard) -> list[Checked]:
    """Check the gates for an agent; a gate without a figure fails."""
    return [_check_gate(gate, card) for gate in gates]


def _check_gate(gate: Gate, card: Scorecard) -> Checked:
    figures: list[EnvResult | Mean]
    parts = []
    if gate.where == "":
        figures = [card.overall]
    elif gate.where == "*":
        figures = [*card.results]
        parts = [f"{row.entry.label}: no figure, it is not here" for row in card.rows if row.result is None]
    else:
        figures = [
            row.result for row in card.rows if row.entry.label == gate.where and row.result is not None
        ]
        figures = figures or [each for each in card.by_category() if each.name == gate.where]
        figures = figures or [
            own
            for result in card.results
            for name, own in result.groups.items()
            if gate.where in (name, f"{name.partition('=')[0]}=*")
        ]
    every = gate.where.endswith("*")
    if not figures:
        return Checked(gate, card.agent, False, "there is no figure: the environment is not here")
    passed = not parts
    for each in figures:
        name = each.name if isinstance(each, Mean) else each.env
        value, why = _figure(gate, each, card)
        holds = value is not None and _holds(gate, value)
        passed = passed and holds
        if not holds or not every:
            parts.append(f"{name}: {f'no figure, {why}' if value is None else _format_value(value)}")
    kind = "environments" if gate.where == "*" else "groups"
    return Checked(gate, card.agent, passed, "; ".join(parts[:5]) or f"{len(figures)} {kind}")


def _holds(gate: Gate, value: float) -> bool:
    """Return whether a figure passes the gate; differences by rounding count as equal.

    For example, the mean of 0.7, 0.8 and 0.9 is slightly less than 0.8 in floating point.
    """
    if math.isclose(value, gate.value, rel_tol=ROUNDING, abs_tol=ROUNDING):
        value = gate.value
    return _COMPARE[gate.op](value, gate.value)


def _format_value(value: float) -> str:
    """Return a figure as text, precise enough to compare it with the gate; counts in full."""
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def _figure(gate: Gate, of: EnvResult | Mean, card: Scorecard) -> tuple[float | None, str]:
    """Return a gate's figure, or None and the reason."""
    if gate.metric in ("tokens", "cost"):
        if turns := count_uncounted(of.usage):
            return None, f"the tokens of {turns} turns were not counted"
        if not of.usage and card.has_own_agent:
            return None, "no tokens were counted"
    name = "return" if gate.metric == "reward" else gate.metric
    if isinstance(of, Mean) and name == "coverage" and of.left_out:
        return None, of.withheld
    if gate.metric == "coverage":
        figure: Any = None if math.isnan(of.coverage) else of.coverage
    elif gate.metric == "doubtful":
        figure = of.doubtful / of.scored if of.scored else None
    elif gate.metric == "tokens":
        figure = float(tokens_of(of.usage))
    elif gate.metric == "cost":
        figure = card.cost(of.usage)
    else:
        known = name in ("return", "turns")  # also where success is not
        if isinstance(of, Mean):
            why = of.withheld_known if known else of.withheld
        else:
            why = card.withheld(replace(of, unclear=0) if known else of)
        if why:
            return None, why
        if isinstance(of, Mean) and name in of.gaps:
            return None, of.gaps[name]
        if gate.metric.startswith("pass"):
            if isinstance(of, EnvResult) and (why := card.withheld_passes(of).get(gate.metric, "")):
                return None, why
            figure = of.passes.get(gate.metric)
        else:
            figure = getattr(of, "reward" if gate.metric == "return" else gate.metric)
    if figure is None:
        return None, "the environment does not say it, or nothing has a verdict"
    if isinstance(figure, Interval):
        return getattr(figure, gate.bound or "mean"), ""
    return figure, ""
