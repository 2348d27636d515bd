"""Upstream's name of exact match, which is defined in `gem.graders.text`."""

from collections.abc import Sequence

from gem.graders.text import exact_match

__all__ = ["em_check"]


def em_check(prediction: str, golden_answers: str | Sequence[str]) -> bool:
    """Return whether a prediction matches a right answer, ignoring case, articles and punctuation."""
    golds = [golden_answers] if isinstance(golden_answers, str) else golden_answers
    return any(exact_match(prediction, gold) for gold in golds)
