"""The best weights of a run, and when to stop it early, from its held-out evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from gem.statistics import Interval, combined, paired_difference
from gem.train.config import TrainConfig
from gem.train.report.run_folder import Evaluation

LEVEL = 0.9
"""Level of the two-sided interval of a difference; only its lower bound is used, which holds at 95%."""


def best(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the evaluation with the highest score; None where none has one.

    Of equal ones that with the highest return counts, and of these the earliest.
    """
    known = [
        ((each.score.mean, -inf if each.result.reward is None else each.result.reward.mean), each)
        for each in evaluations
        if each.score is not None
    ]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def enough(evaluations: Sequence[Evaluation], config: TrainConfig) -> str | None:
    """Return why a run should stop after its last evaluation, as text; None where it should continue.

    It stops where the lower bound of the score's 95% interval reaches `config.target`, or after
    `config.patience` evaluations in a row without an improvement. The first evaluation counts as an
    improvement, and one without a score is ignored.
    """
    known = [(each.score, each) for each in evaluations if each.score is not None]
    if not known:
        return None
    score, last = known[-1]
    if config.target is not None and score.low >= config.target:
        return (
            f"the target of {config.target:g} is reached: held-out {last.metric} is {score.mean:.3g} "
            f"({score.write_bounds('{:.3g}'.format)})"
        )
    best, waited = last, 0
    for at, (_, each) in enumerate(known):
        best, waited = (each, 0) if at == 0 or is_better(best, each) else (best, waited + 1)
    if not config.patience or waited < config.patience:
        return None
    return (
        f"{waited} held-out evaluations in a row are no improvement beyond noise on that of iteration "
        f"{best.iteration}"
    )


def is_better(earlier: Evaluation, later: Evaluation) -> bool:
    """Return whether a later evaluation is better beyond noise, at 95%.

    Both played the same instances with the same randomness, so they are compared in pairs of episodes
    (`paired_difference`). Several episodes of an instance are one cluster, unless all instances of the
    environment were played. With several environments the mean of their differences counts.
    """
    pairs = [(earlier.parts[name], part) for name, part in later.parts.items()] or [(earlier, later)]
    known = [each for each in (_difference(*pair) for pair in pairs) if each is not None]
    if len(known) < len(pairs):
        return False
    return (combined(known) if len(known) > 1 else known[0]).low > 0


def _difference(earlier: Evaluation, later: Evaluation) -> Interval | None:
    """Return by how much an evaluation of one environment is better; None without pairs to compare."""
    pairs = [
        (number % later.instances, before, after)
        for number, (before, after) in enumerate(zip(earlier.scores, later.scores, strict=True))
        if before is not None and after is not None
    ]
    if not pairs:
        return None
    numbers, first, second = zip(*pairs, strict=True)
    clusters = None if later.held_out == "all" else numbers
    return paired_difference(first, second, clusters, LEVEL)
