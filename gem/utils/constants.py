"""Upstream's constants, for environments that were written against them."""

from gem.envs.kit.text_game import UNREADABLE_REWARD

TERMINAL_STATE = "The episode is over."
"""An observation for the end of an episode; upstream's environments return one like it."""


class LanguageGameReward:
    """What upstream's games pay. Ours pay as `gem.envs.kit.text_game.TextGame` says."""

    success_reward = 1.0
    internal_step_reward = 0.0
    fail_reward = 0.0
    invalid_action_reward = 0.0
    format_error_reward = UNREADABLE_REWARD
