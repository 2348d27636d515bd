"""A reward of one's own: what a run learns from, instead of the rewards that its environments pay.

Figures stay those of the environment, so that runs with different rewards can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gem.errors import BadArgument
from gem.estimators.algorithms import check_turns
from gem.naming import find_named
from gem.plugins import call_foreign, check_parameters, declares
from gem.record import Episode

Reward = Callable[..., Sequence[float]]
"""A function of an episode with a verdict and the turns of the seat that learns. It returns the reward of
each of these turns. ``turn.reward or 0.0`` is what the environment paid: it may change it or add to it.

One with a third parameter `group` also gets all episodes with a verdict that are samples of the same task,
its own among them: rewards that compare, such as of the shorter of two right answers."""


def find_reward(name: str, grouped: bool = True) -> Reward:
    """Return the reward of a name, ``package.module:NAME`` or ``path/file.py:NAME``.

    `grouped`: whether the run plays several samples of a task.

    Raises:
        BadArgument: where there is none, or it is no function; or where it compares samples of a task, and
            the run plays one of each.
    """
    reward: Reward = find_named(name, "reward")
    if not callable(reward):
        raise BadArgument(
            f"reward is {name!r}, {reward!r:.80}; accepted: a function of an episode and its turns."
        )
    group = ("group",) if declares(reward, "group") else ()
    check_parameters(f"reward {name}", reward, ("episode", "turns", *group))
    if group and not grouped:
        raise BadArgument(
            f"reward {name} compares the samples of a task, and the algorithm plays one of each; accepted: "
            "an algorithm with groups, such as --algorithm grpo."
        )
    return reward


def compute_rewards(name: str, episodes: Sequence[Episode], seat: str) -> list[list[float]]:
    """Return the rewards of a seat's turns by the reward of a name.

    Raises:
        BadArgument: where it fails, or returns anything but a finite number for each turn.
    """
    reward, what = find_reward(name), f"reward {name}"
    turns = [episode.turns_of(seat) for episode in episodes]
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    compares = declares(reward, "group")
    given = [
        call_foreign(
            f"{what} (episode {episode.id})",
            reward,
            episode,
            seat_turns,
            *([groups[episode.group]] if compares else ()),
        )
        for episode, seat_turns in zip(episodes, turns, strict=True)
    ]
    return check_turns(what, given, [[0.0] * len(seat_turns) for seat_turns in turns])
