"""Replay stored episodes: play the same actions from the same seed, and compare the results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

from gem import registry
from gem.agents.scripted import ScriptedAgent
from gem.content import Image
from gem.errors import BadArgument, GemError
from gem.hosts import Host
from gem.record import Ask, Episode, Limits, Reply, StopReason
from gem.rollout.episode import LIMITS_FROM_OUTSIDE, TASK_ENDS, refuse_program
from gem.rollout.jobs import Job
from gem.rollout.runner import rollout
from gem.specs import TaskRef


class Difference(NamedTuple):
    """The first difference of two episodes: the turn, from 0; the part of it; and the value of each.

    The turn after the last one is the end of the episode.
    """

    turn: int
    what: str
    one: str
    other: str


class Replay(NamedTuple):
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
    for turn, what, *values in _pair_values(one, other, ends):
        first, second = map(_normalize, values)
        if first != second:
            return Difference(turn, what, str(first), str(second))
    return None


def _pair_values(one: Episode, other: Episode, ends: bool) -> Iterator[tuple[Any, ...]]:
    """Yield what is compared: the turn, the name of the value, and both values; stop where they differ."""
    for number, turns in enumerate(zip_longest(one.turns, other.turns)):
        if None in turns:
            yield number, "turn", *("the end" if turn is None else f"a turn of {turn.seat}" for turn in turns)
            return
        for name in ("seat", "observation", "action", "reward"):
            yield number, name, *(getattr(turn, name) for turn in turns)
    if not ends:
        return
    last = len(one.turns)
    yield last, "stop", one.stop, other.stop
    yield last, "verdict", one.verdict, other.verdict
    yield last, "seats", sorted(one.ends), sorted(other.ends)
    for seat, end in one.ends.items():
        for what, name in {
            "final observation": "observation",
            "stop": "stop",
            "terminated": "terminated",
            "truncated": "truncated",
            "reward before its first turn": "unearned",
        }.items():
            yield last, what, getattr(end, name), getattr(other.ends[seat], name)


def _normalize(value: Any) -> Any:
    """Return a value whose equality is that of the transcript: NaN equals NaN, and images have their data."""
    if isinstance(value, float):
        return repr(value)
    if not isinstance(value, tuple):
        return value
    parts = (f"[{part.mime}, {part.data.hex()}]" if isinstance(part, Image) else part.text for part in value)
    return "\n".join(parts)


def replay(episode: Episode, *, host: str | Host = "serial", call_s: float | None = None) -> Replay:
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
    actions = {
        seat: [turn.action for turn in episode.turns_of(seat) if turn.action is not None]
        for seat in episode.seats
    }
    whole = episode.stop not in LIMITS_FROM_OUTSIDE or episode.stop is StopReason.TURN_LIMIT
    # Through a proxy, a step may take several model calls: turns without an action, which count there too.
    record = replace(episode, turns=[turn for turn in episode.turns if turn.action is not None])
    turns = episode.run.limits.turns
    if len(record.turns) < len(episode.turns):
        turns = len(record.turns) if episode.stop is StopReason.TURN_LIMIT else None
    limits = Limits(turns=turns, call_s=call_s)

    def answer(ask: Ask) -> Reply:
        of_seat = actions.get(ask.seat, ())
        if ask.turn >= len(of_seat):
            raise BadArgument(f"the record has no action {ask.turn + 1} of {ask.seat!r}.")
        return Reply(of_seat[ask.turn])

    job = Job(episode.task, episode.seed, key="played", limits=limits)
    (again,) = rollout([job], ScriptedAgent(answer), host=host, retries=0)
    return Replay(again, first_difference(record, again, ends=whole), whole)


def check_replayable(episode: Episode) -> None:
    """Refuse an episode that cannot be played again.

    Raises:
        BadArgument: with the reason.
    """
    refuse_program(episode)
    if episode.task.opaque:
        raise BadArgument(
            f"episode {episode.id!r} cannot be played again: its task has arguments that could not be "
            f"stored: {', '.join(episode.task.opaque)}."
        )
    if episode.task.seed is None:
        raise BadArgument(f"episode {episode.id!r} cannot be played again: its seed was not stored.")
    if episode.stop not in TASK_ENDS | LIMITS_FROM_OUTSIDE:
        why = f": {episode.error.type} in {episode.error.boundary}" if episode.error else ""
        raise BadArgument(
            f"episode {episode.id!r} did not reach its end ({episode.stop}{why}); accepted: one with a "
            "verdict, or one that a limit ended."
        )


def explain_difference(task: TaskRef) -> list[str]:
    """Return the reasons why a replay may differ, from the environment's own claims; empty if none."""
    try:
        spec = registry.spec(task.spec)
    except GemError:
        return []
    reasons = []
    if not spec.deterministic:
        reasons.append(f"{spec.id} does not claim to be deterministic")
    if spec.waits:
        reasons.append(f"{spec.id} depends on something outside it (a sandbox, a server)")
    return reasons
