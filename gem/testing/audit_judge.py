"""Audit a judge by labelled answers: agreement, kappa, bias by length and by position, and cost.

Each answer is judged twice: after its question and reference, and before them. The first verdict is the one
that is compared with the label. The second shows what the order of the texts does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gem.errors import BadArgument, NoVerdict
from gem.evals.reports import format_interval
from gem.evals.usage import Prices, Usage
from gem.graders.base import Grader, Score
from gem.graders.functions import JudgeByName
from gem.graders.many import grade_many
from gem.graders.rubric import Rubric
from gem.statistics import Interval, cohen_kappa, score_difference, wilson
from gem.statistics.combining import sum_of
from gem.tasks.files import place_of, scan
from gem.tasks.sources import open_rows

WORDS = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "right", "correct"), True),
    **dict.fromkeys(("0", "0.0", "false", "no", "wrong", "incorrect"), False),
}
"""What a label may be."""


@dataclass(frozen=True, slots=True)
class Label:
    """An answer, what it answers, and whether a person found it right."""

    question: str | None
    answer: str
    reference: Any
    right: bool


def read_labels(path: str | Path) -> list[Label]:
    """Return the labels of a file with the columns question, answer, reference and label.

    Question and reference may be missing. A label is one of `WORDS`.

    Raises:
        MissingData, BadArgument: for a file that cannot be read, and bad rows: all are listed.
    """
    rows, name, _ = open_rows(path, None)
    columns = dict.fromkeys(key for row in scan(rows) if isinstance(row, Mapping) for key in row)
    if absent := [column for column in ("answer", "label") if column not in columns]:
        raise BadArgument(
            f"{name} has no column {' or '.join(map(repr, absent))}; accepted: the columns answer and "
            f"label, and if known question and reference. It has: {', '.join(map(repr, columns)) or 'none'}."
        )
    labels, bad = [], []
    for number, row in enumerate(scan(rows)):
        try:
            labels.append(_read_label(row))
        except BadArgument as error:
            bad.append(f"\n  {place_of(rows, number)}: {error}")
    if bad:
        raise BadArgument(f"{name}: {len(bad)} of {len(rows)} rows cannot be used:{''.join(bad)}")
    return labels


def _read_label(row: Any) -> Label:
    if not isinstance(row, Mapping):
        raise BadArgument(f"it is {row!r:.80}; accepted: columns question, answer, reference and label.")
    right = WORDS.get(str(row.get("label")).strip().lower())
    if right is None:
        raise BadArgument(f"the label is {row.get('label')!r:.80}; accepted: {', '.join(WORDS)}.")
    if row.get("answer") is None:
        raise BadArgument("it has no answer.")
    question, reference = row.get("question"), row.get("reference")
    return Label(None if question is None else str(question), str(row["answer"]), reference, right)


@dataclass(frozen=True)
class JudgeReport:
    """What a judge accepted of labelled answers.

    `verdicts`: the answers with a verdict: each with its label, and whether the judge accepted it after
    question and reference, and before them (None: no verdict, or it has no order). `missing`: why others have
    none. `asks`: how often the judge was asked for these verdicts, and `usage` its tokens, by name. `model`:
    the judge's model where there is only one.
    """

    name: str
    verdicts: Sequence[tuple[Label, bool, bool | None]]
    missing: Sequence[str]
    asks: int
    usage: Mapping[str, int]
    model: str | None = None

    @property
    def agreement(self) -> Interval:
        """The rate at which judge and label agree, with its Wilson interval."""
        return wilson(
            sum(accepted == label.right for label, accepted, _ in self.verdicts), len(self.verdicts)
        )

    @property
    def kappa(self) -> Interval:
        """Cohen's kappa of the label and the judge; see `gem.statistics.cohen_kappa`."""
        cells = Counter((label.right, accepted) for label, accepted, _ in self.verdicts)
        return cohen_kappa(cells[True, True], cells[True, False], cells[False, True], cells[False, False])

    @property
    def leniency(self) -> Interval:
        """The rate at which the judge accepts, minus that of right labels."""
        return _difference([(label.right, accepted) for label, accepted, _ in self.verdicts])

    @property
    def length(self) -> tuple[float, float, float] | None:
        """The leniency with longer answers minus that with shorter ones, with bounds; None without both."""
        middle = self.middle
        halves = [
            [
                (label.right, accepted)
                for label, accepted, _ in self.verdicts
                if (len(label.answer) > middle) is long
            ]
            for long in (True, False)
        ]
        if not all(halves):
            return None
        longer, shorter = map(_difference, halves)
        return sum_of((1.0, longer), (-1.0, shorter))

    @property
    def middle(self) -> float:
        """The median length of the answers in characters; those above it are the longer ones."""
        return median(len(label.answer) for label, _, _ in self.verdicts)

    @property
    def position(self) -> Interval | None:
        """The rate of accepted answers when they stand first, minus that when they stand last."""
        pairs = [(accepted, first) for _, accepted, first in self.verdicts if first is not None]
        return _difference(pairs) if pairs else None

    def rate(self, right: bool) -> Interval | None:
        """Return the rate of errors among the answers with this label; None without any."""
        accepted = [accepted for label, accepted, _ in self.verdicts if label.right is right]
        return wilson(sum(each is not right for each in accepted), len(accepted)) if accepted else None

    def describe(self, prices: Prices | None = None) -> str:
        """Return the figures as lines.

        Raises:
            BadArgument: for a model without a price.
        """
        n = len(self.verdicts)
        lines = [f"{self.name}: {n} verdicts on {n + len(self.missing)} labelled answers"]
        if self.missing:
            lines.append(f"  {len(self.missing)} without verdict, as: {self.missing[0]}")
        if not n:
            return "\n".join(lines)
        kappa = "not defined" if math.isnan(self.kappa.mean) else format_interval(self.kappa, "{:.2f}")
        changed = sum(first is not None and accepted != first for _, accepted, first in self.verdicts)
        rows = [
            ("agreement", format_interval(self.agreement)),
            ("Cohen's kappa", kappa),
            ("wrong ones accepted", format_interval(self.rate(False))),
            ("right ones refused", format_interval(self.rate(True))),
            ("leniency", _points(self.leniency[:3])),
            (f"more with answers above {self.middle:g} characters", _points(self.length)),
            ("more where the answer stands first", _points(self.position and self.position[:3])),
            ("verdicts that change with the order", str(changed) if self.position else "-"),
            ("cost", self._describe_cost(prices)),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join([*lines, *(f"  {name:{width}}  {value}" for name, value in rows)])

    def _describe_cost(self, prices: Prices | None) -> str:
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.usage.items())
        cost = f"{self.asks} asks" + (f", {counts}" if counts else "")
        if (
            prices is None
            or self.model is None
            or not {"prompt_tokens", "completion_tokens"} <= {*self.usage}
        ):
            return cost
        cached = self.usage.get("cached_tokens", 0)
        usage = Usage(self.usage["prompt_tokens"], self.usage["completion_tokens"], cached)
        return f"{cost}: ${prices.cost({self.model: usage}):.4f}"


def _difference(pairs: Sequence[tuple[bool, bool]]) -> Interval:
    """Return the rate of the second minus that of the first, with Tango's interval."""
    lost, won = ([int(a is which and b is not which) for a, b in pairs] for which in (True, False))
    return score_difference(lost, won, [1] * len(pairs))


def _points(bounds: tuple[float, float, float] | None) -> str:
    if bounds is None:
        return "-"
    mean, low, high = (f"{100 * each:+.1f}" for each in bounds)
    return f"{mean} points ({low} to {high})"


def audit_judge(grader: Grader, labels: Sequence[Label]) -> JudgeReport:
    """Judge each labelled answer twice, many at the same time; the second time it stands first.

    A `JudgeByName`, and those of a `Rubric`, can show an answer first; of other graders there is no second
    verdict. The grader is left open.
    """
    answers = [(label.answer, label.reference, label.question) for label in labels]
    plain = list(grade_many(grader, answers))
    second: list[Score | NoVerdict | None] = [None] * len(labels)
    twin = _put_answer_first(grader)
    if twin is not grader:
        with closing(twin):  # type: ignore[type-var]
            second = list(grade_many(twin, answers))
    verdicts, missing, asks, usage = [], [], 0, Counter[str]()
    for label, score, other in zip(labels, plain, second, strict=True):
        if isinstance(score, NoVerdict):
            missing.append(str(score))
        else:
            verdicts.append((label, score.correct, other.correct if isinstance(other, Score) else None))
        for each in (score, other):
            for info in _find_infos(each):
                asks += info.get("judge_asks", 0)
                usage.update(info.get("judge_usage", {}))
    judges = [each for each in _parts_of(grader) if isinstance(each, JudgeByName)]
    model = judges[0].model.partition("@")[0].removeprefix("openai:") if len(judges) == 1 else None
    return JudgeReport(getattr(grader, "name", "judge"), verdicts, missing, asks, usage, model)


def _parts_of(grader: Grader) -> list[Grader]:
    return list(grader.graders.values()) if isinstance(grader, Rubric) else [grader]


def _put_answer_first(grader: Grader) -> Grader:
    """Return a grader whose judges read the answer first; the same one if it has no judge by name."""
    if isinstance(grader, JudgeByName):
        return JudgeByName(grader.model, *grader.settings[:3], answer_first=True, at_once=grader.at_once)
    if not isinstance(grader, Rubric) or not any(isinstance(each, JudgeByName) for each in _parts_of(grader)):
        return grader
    parts = {name: _put_answer_first(each) for name, each in grader.graders.items()}
    return Rubric(parts, grader.weights, correct=grader.correct, passing=grader.passing)


def _find_infos(score: Score | NoVerdict | None) -> list[Mapping[str, Any]]:
    if not isinstance(score, Score):
        return []
    return [score.info, *score.info.get("parts", {}).values()]
