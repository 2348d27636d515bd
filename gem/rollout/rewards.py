"""A reward of one's own: a function of an episode and, if it wants, of the other samples of its task.

A training run learns from it instead of the rewards that its environments pay; an evaluation measures it
beside them (`measure_reward`). Figures stay those of the environment, so that runs with different rewards
can be compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from gem.agents.base import LoopThread
from gem.errors import BadArgument, GemError, NoVerdict
from gem.estimators.algorithms import check_turns
from gem.naming import find_named, fix_name
from gem.plugins import call_foreign, check_parameters, declares
from gem.record import Episode
from gem.rollout.store import EpisodeStore

MARK = "measured"
"""The key of a last turn's `extra` that says by what its parts were measured, and among how many samples."""

Reward = Callable[..., Any]
"""A function of an episode with a verdict and the turns of the seat that learns. It returns the reward of
each of these turns. ``turn.reward or 0.0`` is what the environment paid: it may change it or add to it. An
``async def`` function is awaited for all episodes at the same time, in one event loop.

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
            f"reward {name} compares the samples of a task, and one of each is played; accepted: in training "
            "an algorithm with groups, such as --algorithm grpo; in an evaluation several samples, as -k 4."
        )
    return reward


def compute_rewards(
    name: str, episodes: Sequence[Episode], seat: str, gaps: dict[str, GemError] | None = None
) -> list[list[float]]:
    """Return the rewards of a seat's turns by the reward of a name.

    Args:
        name: see find_reward.
        episodes: all episodes with a verdict. One without a turn of the seat gets [], and is in no group.
        seat: whose turns.
        gaps: gets the error of the reward for an episode, by the episode's id; its list is then empty. None:
            the error is raised.

    Raises:
        BadArgument: where it fails, or returns anything but a finite number for each turn. NoVerdict: where
            it raises that.
    """
    reward, what = find_reward(name), f"reward {name}"
    played = [episode for episode in episodes if episode.turns_of(seat)]
    groups = _group(played)
    compares = declares(reward, "group")
    given: list[list[float]] = []
    with ExitStack() as last:
        calls: list[Callable[[], Any]] = []
        for episode in played:
            others = (groups[episode.group],) if compares else ()
            calls.append(partial(reward, episode, episode.turns_of(seat), *others))
        if inspect.iscoroutinefunction(reward):
            loop = last.enter_context(closing(LoopThread()))  # its end cancels what is still awaited
            calls = [loop.submit(call()).result for call in calls]
        for episode, call in zip(played, calls, strict=True):
            try:
                paid = [turn.reward for turn in episode.turns]
                row = call_foreign(f"{what} (episode {episode.id})", call)
                if [turn.reward for turn in episode.turns] != paid:
                    raise BadArgument(
                        f"{what} wrote into the rewards of turns, which are the environment's; return one "
                        "number for each turn."
                    )
                if gaps is not None:
                    (row,) = check_turns(what, [row], [[0.0] * len(episode.turns_of(seat))])
                given.append(row)
            except (NoVerdict, BadArgument) as error:
                if gaps is None:
                    raise
                gaps[episode.id] = error
                given.append([])
    if gaps is None:
        given = check_turns(what, given, [[0.0] * len(episode.turns_of(seat)) for episode in played])
    rows = iter(given)
    return [next(rows) if episode.turns_of(seat) else [] for episode in episodes]


def measure_reward(name: str, episodes: Sequence[Episode], store: Any = None) -> list[Episode]:
    """Return played episodes with the reward of a name as one more named part of their turns' `rewards`.

    What they earned stays. The part has the function's name. It is missing in episodes without a verdict,
    which no other one is compared with; where the reward fails; and where it compares and no other sample has
    a verdict. Then the last turn's info has the reason under ``no_verdict``. A task whose samples all have
    the part, by the same function and among as many samples, is not measured again.

    Args:
        name: see find_reward.
        episodes: an episode for each job; those with a verdict are changed.
        store: gets each changed episode as a later attempt, if it is an EpisodeStore.

    Raises:
        BadArgument: see find_reward; and if the environment pays a part of the same name.
    """
    name = fix_name(name, "reward")  # so that it is measured again when the file has changed
    reward = find_reward(name)
    part = getattr(reward, "__name__", type(reward).__name__)
    scored = [episode for episode in episodes if episode.scored and episode.turns]
    changed: dict[str, Episode] = {}
    for group in _group(scored).values():
        mark = f"{name} of {len(group)}"
        marks = [(episode.turns[-1].extra or {}).get(MARK, {}) for episode in group]
        if all(known.get(part) == mark for known in marks):
            continue
        for episode, known in zip(group, marks, strict=True):
            paid = any(part in (turn.rewards or {}) for turn in episode.turns)
            if paid and part not in known:
                raise BadArgument(
                    f"{episode.spec} pays a part {part!r} itself; give the reward another name."
                )
        gaps: dict[str, GemError] = {}
        if declares(reward, "group") and len(group) == 1:
            gaps[group[0].id] = NoVerdict("no other sample of the task has a verdict")
        else:
            for seat in dict.fromkeys(turn.seat for episode in group for turn in episode.turns):
                for episode, row in zip(group, compute_rewards(name, group, seat, gaps), strict=True):
                    for turn, value in zip(episode.turns_of(seat), row, strict=False):  # no row: a gap
                        turn.rewards = {**(turn.rewards or {}), part: value}
        for episode, known in zip(group, marks, strict=True):
            _note(episode, part, str(gaps[episode.id]) if episode.id in gaps else None, {**known, part: mark})
            changed[episode.id] = replace(episode, attempt=episode.attempt + 1)
            if isinstance(store, EpisodeStore):
                EpisodeStore.append(store, changed[episode.id])  # not of a subclass: no budget pays again
    return [changed.get(episode.id, episode) for episode in episodes]


def _note(episode: Episode, part: str, gap: str | None, marks: dict[str, str]) -> None:
    """Note in an episode's last turn that a part was measured, or why it is missing."""
    last = episode.turns[-1]
    missing = {name: why for name, why in last.info.get("no_verdict", {}).items() if name != part}
    info = {name: value for name, value in last.info.items() if name != "no_verdict"}
    if gap is None:
        last.extra = {**(last.extra or {}), MARK: marks}
    else:
        missing[part] = gap
        for turn in episode.turns:
            turn.rewards = {name: value for name, value in (turn.rewards or {}).items() if name != part}
    last.info = {**info, "no_verdict": missing} if missing else info


def _group(episodes: Sequence[Episode]) -> dict[str, list[Episode]]:
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.group, []).append(episode)
    return groups
