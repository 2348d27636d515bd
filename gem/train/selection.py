"""What follows from the held-out evaluations of a run: which weights were best."""

from __future__ import annotations

from collections.abc import Sequence

from gem.train.run import Evaluation


def best(evaluations: Sequence[Evaluation]) -> Evaluation | None:
    """Return the evaluation with the highest score, of equal ones the earliest; None where none has one."""
    known = [(each.score.mean, each) for each in evaluations if each.score is not None]
    return max(known, key=lambda pair: pair[0])[1] if known else None
