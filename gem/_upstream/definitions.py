"""Small things of upstream that gem itself does not use."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence

from gem.envs.kit.text_game import UNREADABLE_REWARD
from gem.graders.text import exact_match
from gem.parsing import code

TERMINAL_STATE = "The episode is over."
"""The observation at the end of an episode in upstream's environments."""


class LanguageGameReward:
    """The rewards of upstream's games. For gem's games see `gem.envs.kit.text_game.TextGame`."""

    success_reward = 1.0
    internal_step_reward = 0.0
    fail_reward = 0.0
    invalid_action_reward = 0.0
    format_error_reward = UNREADABLE_REWARD


def extract_code_from_model(model_response: str) -> str | None:
    """Return the last fenced block of Python, or else of any label; None if there is none."""
    python = code(model_response, "python")
    return code(model_response) if python is None else python


def em_check(prediction: str, golden_answers: str | Sequence[str]) -> bool:
    """Return whether a prediction matches a right answer, ignoring case, articles and punctuation."""
    golds = [golden_answers] if isinstance(golden_answers, str) else golden_answers
    return any(exact_match(prediction, gold) for gold in golds)


def set_seed(seed: int) -> None:
    """Seed the global generators of random and, if they are loaded, of numpy and torch.

    It is for scripts that use them; gem's environments have their own streams. See `gem.seeding`.
    """
    random.seed(seed)  # noqa: TID251  the caller's own, as asked
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
