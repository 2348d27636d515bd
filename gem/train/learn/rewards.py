"""A reward of one's own: what a run learns from, instead of the rewards that its environments pay.

Figures stay those of the environment, so that runs with different rewards can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gem.errors import BadArgument
from gem.estimators.algorithms import check_turns
from gem.naming import find_named
from gem.plugins import call_foreign, check_parameters
from gem.record import Episode, Turn

Reward = Callable[[Episode, Sequence[Turn]], Sequence[float]]
"""A function of an episode with a verdict and the turns of the seat that learns. It returns the reward of
each of these turns. ``turn.reward or 0.0`` is what the environment paid: it may change it or add to it."""


def find_reward(name: str) -> Reward:
    """Return the reward of a name, ``package.module:NAME`` or ``path/file.py:NAME``.

    Raises:
        BadArgument: where there is none, or it is no function.
    """
    reward: Reward = find_named(name, "reward")
    if not callable(reward):
        raise BadArgument(
            f"reward is {name!r}, {reward!r:.80}; accepted: a function of an episode and its turns."
        )
    check_parameters(f"reward {name}", reward, ("episode", "turns"))
    return reward


def compute_rewards(name: str, episodes: Sequence[Episode], seat: str) -> list[list[float]]:
    """Return the rewards of a seat's turns by the reward of a name.

    Raises:
        BadArgument: where it fails, or returns anything but a finite number for each turn.
    """
    reward, what = find_reward(name), f"reward {name}"
    turns = [episode.turns_of(seat) for episode in episodes]
    given = [
        call_foreign(f"{what} (episode {episode.id})", reward, episode, seat_turns)
        for episode, seat_turns in zip(episodes, turns, strict=True)
    ]
    return check_turns(what, given, [[0.0] * len(seat_turns) for seat_turns in turns])
