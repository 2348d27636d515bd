"""Replay stored episodes: play the same actions from the same seed, and compare the results."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from gem import registry
from gem.agents.scripted import ScriptedAgent
from gem.content import Image, Obs
from gem.errors import BadArgument, GemError
from gem.hosts import Host
from gem.record import Ask, Episode, Limits, Reply, StopReason
from gem.rollout.episode import LIMITS_FROM_OUTSIDE, TASK_ENDS
from gem.rollout.jobs import Job
from gem.rollout.runner import rollout
from gem.specs import TaskRef

PLAYED = "played"
"""The job name of replayed episodes, which is a part of their ids."""


class Difference(NamedTuple):
    """The first difference of two episodes: the turn, from 0; the part of it; and the value of each.

    The turn after the last one is the end of the episode.
    """

    turn: int
    what: str
    one: str
    other: str


class Replayed(NamedTuple):
    """A replay: the new episode, and its first difference from the record (None: no difference).

    `whole`: whether the whole transcript was compared. An end by a limit of tokens, context or time is not
    compared: these limits apply to the agent, which does not play here.
    """

    episode: Episode
    difference: Difference | None
    whole: bool


def first_difference(one: Episode, other: Episode, ends: bool = True) -> Difference | None:
    """Return the first difference of two transcripts, or None; tokens and timings are not compared.

    Args:
        one: an episode.
        other: another one.
        ends: also compare how they ended.
    """
    for number in range(max(len(one.turns), len(other.turns))):
        turns = [each.turns[number] if number < len(each.turns) else None for each in (one, other)]
        mine, theirs = turns
        if mine is None or theirs is None:
            said = ["the end" if turn is None else f"a turn of {turn.seat}" for turn in turns]
            return Difference(number, "turn", *said)
        for what, values in {
            "seat": (mine.seat, theirs.seat),
            "observation": (_plain(mine.observation), _plain(theirs.observation)),
            "action": (mine.action, theirs.action),
            "reward": (repr(mine.reward), repr(theirs.reward)),
        }.items():
            if values[0] != values[1]:
                return Difference(number, what, *map(str, values))
    if not ends:
        return None
    last = len(one.turns)
    for what, pair in {
        "stop": (one.stop, other.stop),
        "verdict": (one.verdict, other.verdict),
        "seats": (sorted(one.ends), sorted(other.ends)),
    }.items():
        if pair[0] != pair[1]:
            return Difference(last, what, *map(str, pair))
    for seat, end in one.ends.items():
        there = other.ends[seat]
        for what, both in {
            "final observation": (_plain(end.observation), _plain(there.observation)),
            "stop": (end.stop, there.stop),
            "terminated": (end.terminated, there.terminated),
            "truncated": (end.truncated, there.truncated),
            "reward before its first turn": (repr(end.unearned), repr(there.unearned)),
        }.items():
            if both[0] != both[1]:
                return Difference(last, what, *map(str, both))
    return None


def _plain(obs: Obs) -> str:
    if isinstance(obs, str):
        return obs
    parts = (f"[{part.mime}, {part.data.hex()}]" if isinstance(part, Image) else part.text for part in obs)
    return "\n".join(parts)


def replay(episode: Episode, *, host: str | Host = "serial", call_s: float | None = None) -> Replayed:
    """Play the actions of an episode again, from its seed, and compare the results.

    The environment is made from the episode's task. That of a stored episode is checked first; see
    `gem.registry.accept_task`.

    Args:
        episode: the episode to replay.
        host: where the environment runs; see Runner.
        call_s: seconds for one call of the environment; for hosts that can end a call.

    Raises:
        BadArgument: for an episode that broke, or whose task cannot be made again, or names what a file may
            not name.
        GemError: when the environment cannot be made.
    """
    check_replayable(episode)
    actions = script(episode)
    whole = episode.stop not in LIMITS_FROM_OUTSIDE or episode.stop is StopReason.TURN_LIMIT
    # Through a proxy, a step may take several model calls: turns without an action, which count there too.
    acted = replace(episode, turns=[turn for turn in episode.turns if turn.action is not None])
    turns = episode.run.limits.turns
    if len(acted.turns) < len(episode.turns):
        turns = len(acted.turns) if episode.stop is StopReason.TURN_LIMIT else None
    limits = Limits(turns=turns, call_s=call_s)

    def answer(ask: Ask) -> Reply:
        mine = actions.get(ask.seat, ())
        if ask.turn >= len(mine):
            raise BadArgument(f"the record has no action {ask.turn + 1} of {ask.seat!r}.")
        return Reply(mine[ask.turn])

    job = Job(episode.task, episode.seed, key=PLAYED, limits=limits)
    (played,) = rollout([job], ScriptedAgent(answer), host=host, retries=0)
    return Replayed(played, first_difference(acted, played, ends=whole), whole)


def check_replayable(episode: Episode) -> None:
    """Refuse an episode that cannot be played again.

    Raises:
        BadArgument: with the reason.
    """
    if episode.task.opaque:
        raise BadArgument(
            f"episode {episode.id!r} cannot be played again: its task has arguments that could not be "
            f"stored: {', '.join(episode.task.opaque)}."
        )
    if episode.task.seed is None:
        raise BadArgument(f"episode {episode.id!r} cannot be played again: its seed was not stored.")
    if episode.stop not in TASK_ENDS | LIMITS_FROM_OUTSIDE:
        said = f": {episode.error.type} in {episode.error.boundary}" if episode.error else ""
        raise BadArgument(
            f"episode {episode.id!r} did not reach its end ({episode.stop}{said}); accepted: one with a "
            "verdict, or one that a limit ended."
        )


def claims(task: TaskRef) -> list[str]:
    """Return the reasons why a replay may differ, from the environment's own claims; empty if none."""
    try:
        spec = registry.spec(task.spec)
    except GemError:
        return []
    found = []
    if not spec.deterministic:
        found.append(f"{spec.id} does not claim to be deterministic")
    if spec.waits:
        found.append(f"{spec.id} depends on something outside it (a sandbox, a server)")
    return found


def script(episode: Episode) -> dict[str, list[str]]:
    """Return the actions of each seat, in order."""
    return {
        seat: [turn.action for turn in episode.turns_of(seat) if turn.action is not None]
        for seat in episode.seats
    }
