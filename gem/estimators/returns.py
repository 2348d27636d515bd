"""Discounted returns and generalised advantage estimates of one episode, per turn."""

from __future__ import annotations

from collections.abc import Sequence

from gem.errors import BadArgument, check_argument


def discounted_returns(rewards: Sequence[float], gamma: float, bootstrap: float = 0.0) -> list[float]:
    """Return ``G_t = r_t + gamma * G_{t+1}`` for every turn, with ``G_T = bootstrap``.

    Source: Sutton and Barto, Reinforcement Learning (2nd ed., 2018), equation 3.9.

    Args:
        rewards: the reward of each turn.
        gamma: the discount per turn, in [0, 1].
        bootstrap: the value of the state where the episode was truncated; 0 where the task itself ended.

    Raises:
        BadArgument: for a discount outside [0, 1].
    """
    _check_share("gamma", gamma)
    returns, following = [], bootstrap
    for reward in reversed(rewards):
        following = reward + gamma * following
        returns.append(following)
    return returns[::-1]


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float, lam: float, bootstrap: float = 0.0
) -> list[float]:
    """Return the generalised advantage estimate of every turn.

    ``A_t = delta_t + gamma * lam * A_{t+1}`` with ``delta_t = r_t + gamma * V_{t+1} - V_t`` and
    ``V_T = bootstrap``. Source: Schulman et al., arXiv 1506.02438, equations 11 and 16.

    Args:
        rewards: the reward of each turn.
        values: a critic's value of the state before each turn.
        gamma: the discount per turn, in [0, 1].
        lam: from 0 (one-step differences) to 1 (return minus value).
        bootstrap: the critic's value of the state where the episode was truncated; 0 where the task ended.

    Raises:
        BadArgument: for unequal lengths, or `gamma` or `lam` outside [0, 1].
    """
    _check_share("gamma", gamma)
    _check_share("lam", lam)
    if len(rewards) != len(values):
        raise BadArgument(f"gae got {len(rewards)} rewards and {len(values)} values; one value per turn.")
    advantages, following, value_after = [], 0.0, bootstrap
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * value_after - value + gamma * lam * following
        value_after = value
        advantages.append(following)
    return advantages[::-1]


def _check_share(name: str, value: float) -> None:
    check_argument(name, value, 0 <= value <= 1, "0 to 1")
