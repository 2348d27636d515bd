"""Upstream's name of the mathematics grader, which is defined in `gem.graders.math`."""

from gem.graders.math import boxed_reward_fn, check_correct

__all__ = ["boxed_reward_fn", "check_correct"]
