"""Upstream's constants, for environments that use them."""

from gem.envs.kit.text_game import UNREADABLE_REWARD

TERMINAL_STATE = "The episode is over."
"""The observation at the end of an episode in upstream's environments."""


class LanguageGameReward:
    """The rewards of upstream's games. For gem's games see `gem.envs.kit.text_game.TextGame`."""

    success_reward = 1.0
    internal_step_reward = 0.0
    fail_reward = 0.0
    invalid_action_reward = 0.0
    format_error_reward = UNREADABLE_REWARD
