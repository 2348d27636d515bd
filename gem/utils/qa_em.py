"""Upstream's place of exact match; its home is `gem.graders.text`."""

from collections.abc import Sequence

from gem.graders.text import exact_match

__all__ = ["em_check"]


def em_check(prediction: str, golden_answers: str | Sequence[str]) -> bool:
    """Tell whether a prediction matches one of the right answers, but for case, articles and punctuation."""
    golds = [golden_answers] if isinstance(golden_answers, str) else golden_answers
    return any(exact_match(prediction, gold) for gold in golds)
