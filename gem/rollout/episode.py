"""One episode, as a generator: the logic of playing, without I/O, threads or waiting.

`play` yields what it needs, a `Call` of its environment or a tuple of `Ask`, one per seat that acts now,
and is sent the answer: what the call returned, or a tuple of `Reply`. What fails is thrown in. Who waits, and
where environments live, is the driver's business; how an episode ends is decided here and nowhere else.

An environment with several seats returns dicts by seat (`gem.envs.seats`): whoever it shows an
observation acts next, all of them at once. What a seat is paid between its turns is added to the turn before.
An environment for one agent is one with a single seat.

========================================================  ========================  ========  =========
what happened                                             terminated / truncated    verdict   bootstrap
========================================================  ========================  ========  =========
the task ended: solved, failed, unreadable, turn budget   T / -                     scored    no
a limit from outside: turns, tokens, context              - / T                     scored    yes
the agent's time is spent                                 - / T                     none      no
the same, with ``on_time="scored"``                       - / T                     scored    yes
environment, host or agent raised, or said stop 'error'   - / T                     none      no
cancelled                                                 - / T                     none      no
========================================================  ========================  ========  =========

The agent's time is the sum of what its replies say (`Reply.policy_s`), or of what the driver measured.
"""

from __future__ import annotations

import math
import platform
from asyncio import CancelledError
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from time import perf_counter
from typing import Any, TypeAlias

from gem import seeding
from gem.content import Obs, check_obs, tools_in
from gem.dialogue import Dialogue
from gem.errors import BadArgument, ContractBroken, NoVerdict, OutOfTime, WorkerDied, text_of_error
from gem.history import CHAT, LAST, HistoryPolicy
from gem.record import SEAT, Ask, Call, Episode, Failure, Limits, Origin, SeatEnd, StopReason, Turn, Verdict
from gem.registry import task_of
from gem.tools import calls

Playing: TypeAlias = "Generator[Call | tuple[Ask, ...], Any, Episode]"
"""An episode being played."""

TASK_ENDS = frozenset(
    (
        StopReason.SOLVED,
        StopReason.FAILED,
        StopReason.UNREADABLE,
        StopReason.TURN_BUDGET,
        StopReason.ENDED,
    )
)
LIMITS_FROM_OUTSIDE = frozenset(
    (StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.CONTEXT_LIMIT, StopReason.TIME_LIMIT)
)
NO_LIMITS = Limits()
SEAT_VERBS = {"sample_random_action": "random_action", "solve": "expert_action"}
"""What an actor's verb is called where it is asked for one of several seats."""


@dataclass(frozen=True, slots=True)
class Branch:
    """Where an episode begins: behind the first `turns` turns of one that was played before.

    Their actions are taken again from the same seed, and what the environment shows is compared with the
    record; or, where `state` is given (its `get_state()` of that moment, one seat alone), it is restored.
    """

    episode: Episode
    turns: int
    state: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a beginning that the episode does not have."""
        if not 0 <= self.turns <= len(self.episode.turns):
            raise BadArgument(
                f"a branch begins behind turn {self.turns}; accepted: 0 to {len(self.episode.turns)}, the "
                f"turns of episode {self.episode.id!r}."
            )
        if self.state is not None and (self.episode.several or self.turns == len(self.episode.turns)):
            raise BadArgument(
                "a branch with a state begins in the middle of an episode of one seat; leave the state out, "
                "and the actions are replayed."
            )


def play(
    env: Any,
    seed: int,
    limits: Limits = NO_LIMITS,
    *,
    history: HistoryPolicy | None = None,
    record: Episode | None = None,
    actor: str | Mapping[str, str] | None = None,
    start: Branch | None = None,
) -> Playing:
    """Play one episode of `env` and return its record.

    Turns hold the actions that were taken; what a seat saw last but did not answer stands in its end. When a
    step breaks, its turn stays, with reward None. `limits.turns` counts steps of the environment; the tokens
    that are left are shared by the seats that act at the same time.

    Args:
        env: the environment, or whatever stands for it where calls are carried out; it goes into each
            `Call` untouched. Its `assembles_history` is read when reset has returned.
        seed: the episode's seed.
        limits: limits from outside; `context` and `turn_tokens` are passed on for the agent to keep.
        history: which past turns the agent sees; None: all, as a chat, or the observation alone where a
            wrapper of `env` assembles the history already.
        record: the episode to write, whose run, job, sample and salt are set; a new one by default.
        actor: a verb of the environment, `sample_random_action` or `solve`, called for every action instead
            of asking an agent; or a mapping from seats to such verbs, for those that it holds.
        start: begin behind the first turns of another episode of the same task and seed.

    Raises:
        BadArgument: for a branch of another seed. Whatever else breaks stands in the record.
    """
    if start is not None and start.state is None and start.episode.seed != seed:
        raise BadArgument(
            f"the seed is {seed} and the branch's episode has {start.episode.seed}; its actions are replayed "
            "from its own seed."
        )
    if record is None:
        record = Episode(replace(task_of(env), seed=seed))
    turns, ends = record.turns, record.ends
    dialogues: dict[str, Dialogue] = {}
    verbs: dict[str, str] = {}  # of the seats that the environment's own actor plays
    waiting: dict[str, tuple[Obs, dict[str, Any]]] = {}  # who acts next, and what each is shown
    generated = steps = 0
    reset_s = policy_s = env_s = 0.0
    began = perf_counter()
    boundary = "env"
    try:
        obs, infos = yield Call(env, "reset", (seed,))
        several = type(obs) is dict
        if not several:
            obs, infos = {SEAT: obs}, {SEAT: infos}
        for seat, info in infos.items():
            record.starts[seat] = _info(info)
            ends[seat] = SeatEnd(info=_info(info))
        for seat in ends:
            if seat in obs:
                ends[seat].observation = check_obs(obs[seat])
                waiting[seat] = ends[seat].observation, record.starts[seat]
        reset_s = perf_counter() - began
        policy = history or (LAST if getattr(env, "assembles_history", False) else CHAT)
        for seat in ends:
            tools = tools_in(record.starts[seat])
            dialogues[seat] = Dialogue(seat, record.id, seed, record.sample, policy, record.salt, tools)
        if actor is not None:
            held = actor if isinstance(actor, Mapping) else dict.fromkeys(ends, actor)
            verbs = {seat: SEAT_VERBS[verb] if several else verb for seat, verb in held.items()}
        if start is not None:
            record.origin = Origin(start.episode.id, start.turns)
            if start.state is not None:
                yield Call(env, "set_state", (start.state,))
                waiting, generated = _restored(record, dialogues[SEAT], start)
                steps = len(turns)
        if actor is not None and (record.sample or record.salt):
            # Sample 0 is what a loop over the environment alone would see. A state that was restored has the
            # actor's stream of whoever played before, so this comes behind it.
            salted = ("salt", record.salt) if record.salt else ()
            yield Call(env, "seed_actor", (seeding.derive(seed, "sample", record.sample, *salted),))
        while waiting:
            if limits.turns is not None and steps >= limits.turns:
                record.stop = StopReason.TURN_LIMIT
                break
            if limits.tokens is not None and generated >= limits.tokens:
                record.stop = StopReason.TOKEN_LIMIT
                break
            boundary = "driver"
            recorded = () if start is None else start.episode.turns[len(turns) : start.turns]
            left = limits.tokens and max(1, (limits.tokens - generated) // len(waiting))
            left_s = None if limits.policy_s is None else max(0.0, limits.policy_s - policy_s)
            acting: dict[str, Turn] = {}
            actions: dict[str, str] = {}
            asks: list[Ask] = []
            for seat, (last, info) in waiting.items():
                dialogue = dialogues[seat]
                turn = acting[seat] = dialogue.open(last, info)
                turns.append(turn)
                actions[seat] = ""  # the order of the seats, whoever answers first
                if recorded:
                    again = _recorded(recorded, len(acting) - 1, seat)
                    generated += dialogue.recall(again)
                    actions[seat] = again.action or ""
                elif seat not in verbs:
                    asks.append(dialogue.ask(_least(limits.turn_tokens, left), limits.context, left_s))
            if asks:
                boundary = "agent"
                before = perf_counter()
                replies = yield tuple(asks)
                took = (perf_counter() - before) / len(asks)
                full = False
                for ask, reply in zip(asks, replies, strict=True):
                    seat = ask.seat
                    generated += dialogues[seat].answer(reply)
                    mine_s = took if reply.policy_s is None else reply.policy_s
                    policy_s += mine_s
                    acting[seat].timing["policy_s"] = mine_s
                    text = reply.text
                    if reply.tool_calls:
                        text = calls.write(text, reply.tool_calls)
                    # of a subclass, which may not pickle, the plain text
                    actions[seat] = text if type(text) is str else str.__str__(text)
                    full = full or reply.finish == "context"
                if limits.policy_s is not None and policy_s > limits.policy_s:
                    raise OutOfTime(f"the agent took {policy_s:.3g} s of {limits.policy_s:g} s.")
                if full:
                    record.stop = StopReason.CONTEXT_LIMIT
                    break
            boundary = "env"
            if verbs and not recorded:
                for seat in acting:
                    if seat in verbs:
                        actions[seat] = yield Call(env, verbs[seat], (seat,) if several else ())
            for seat, turn in acting.items():
                turn.action, turn.info = actions[seat], {}
            before = perf_counter()
            result = yield Call(env, "step", (actions if several else actions[SEAT],))
            took = perf_counter() - before
            env_s += took
            steps += 1
            waiting = {}
            by_seat = _by_seat(result) if several else ((SEAT, *result),)
            for seat, seen, reward, terminated, truncated, info in by_seat:
                info, end = _info(info), ends[seat]
                paid = finite_reward(reward)
                if type(terminated) is not bool or type(truncated) is not bool:
                    terminated, truncated = _truth(terminated), _truth(truncated)
                lacking = seen is None and (several or not (terminated or truncated))  # told below
                shown = None if lacking else check_obs(seen)
                if seat in acting:
                    turn = acting[seat]
                    turn.reward, turn.info = paid, info
                    turn.timing["env_s"] = took
                elif dialogues[seat].turns:  # paid for what others did
                    turn = dialogues[seat].turns[-1]
                    turn.reward = (turn.reward or 0.0) + paid
                    turn.info = {**turn.info, **info}
                else:
                    end.unearned += paid
                    record.starts[seat].update(info)
                if "rewards" in info and (mine := dialogues[seat].turns):
                    mine[-1].rewards = _parts(mine[-1].rewards or {}, info["rewards"])
                end.info = info
                if shown is not None:
                    end.observation = shown
                if info.get("stop") == "error":
                    raise NoVerdict(str(info.get("error") or "the environment said stop 'error'."))
                if terminated:
                    end.terminated, end.stop = True, end_of_task(info)
                elif truncated:
                    end.truncated, end.stop = True, cut_off(info)
                elif shown is not None:
                    waiting[seat] = shown, info
        else:
            going_on = [seat for seat, end in ends.items() if not end.terminated and not end.truncated]
            if going_on or not ends:
                raise ContractBroken(
                    f"the environment shows nobody an observation, and did not end for {going_on or 'any'}."
                )
            stops = list(dict.fromkeys(end.stop for end in ends.values()))
            cut = [stop for stop in stops if stop not in TASK_ENDS]
            record.stop = cut[0] if cut else stops[0] if len(stops) == 1 else StopReason.ENDED
    except CancelledError:  # Ctrl-C is none: it ends the whole rollout
        record.stop = StopReason.CANCELLED
    except Exception as error:
        late = boundary == "agent" and isinstance(error, OutOfTime)
        if late:
            record.stop = StopReason.TIME_LIMIT
        if not late or limits.on_time == "none":
            if boundary == "env" and isinstance(error, WorkerDied):
                boundary = "host"
            record.error = Failure(boundary, type(error).__name__, text_of_error(error))
    while turns and turns[-1].action is None:
        turns.pop()  # shown but not answered
    for seat, end in ends.items():  # those that were still playing
        if not end.terminated and not end.truncated:
            end.stop, end.truncated = record.stop, True
            if seat in waiting:
                end.observation = waiting[seat][0]
    if record.error is None and (record.stop in TASK_ENDS or record.stop in LIMITS_FROM_OUTSIDE):
        record.verdict = Verdict.SCORED
    record.timing = {
        "reset_s": reset_s,
        "policy_s": policy_s,
        "env_s": env_s,
        "wall_s": perf_counter() - began,
    }
    return record


def _by_seat(result: Any) -> Iterable[tuple[str, Any, Any, Any, Any, Any]]:
    """Return what a step brought to each of several seats: observation (None: none), reward, ends, info."""
    obs, rewards, terminations, truncations, infos = result
    return [
        (seat, obs.get(seat), reward, terminations[seat], truncations[seat], infos[seat])
        for seat, reward in rewards.items()
    ]


def _recorded(turns: list[Turn], place: int, seat: str) -> Turn:
    """Return the recorded turn of a seat among those that were taken at the same time."""
    if place >= len(turns) or turns[place].seat != seat:
        raise ContractBroken(
            f"seat {seat!r} is to act where the record has "
            f"{turns[place].seat if place < len(turns) else 'the end of the branch'!r}; a branch begins "
            "between the steps of an environment that follows from its seed."
        )
    return turns[place]


def _restored(
    record: Episode, dialogue: Dialogue, start: Branch
) -> tuple[dict[str, tuple[Obs, dict[str, Any]]], int]:
    """Enter a branch's turns as they were recorded; return what the agent is shown next, and their tokens."""
    exchanges = start.episode.exchanges()
    generated = 0
    for turn, recorded in zip(exchanges[: start.turns], start.episode.turns, strict=False):
        mine = dialogue.open(turn.observation, turn.info)
        generated += dialogue.recall(recorded)
        mine.action, mine.reward = recorded.action, recorded.reward
        mine.info, mine.rewards = dict(recorded.info), recorded.rewards
        record.turns.append(mine)
    shown = exchanges[start.turns]
    record.ends[SEAT].observation, record.ends[SEAT].info = shown.observation, dict(shown.info)
    return {SEAT: (shown.observation, dict(shown.info))}, generated


def _own(value: Any) -> Any:
    """Return a copy as far as lists, dicts and sets go: an environment may go on to change what it gave."""
    if not value:
        return type(value)()
    kind = type(value)
    if kind is dict:
        return {key: _own(each) if type(each) in _CHANGE else each for key, each in value.items()}
    if kind is list:
        return [_own(each) if type(each) in _CHANGE else each for each in value]
    return set(value)


_CHANGE = frozenset((dict, list, set))


def _info(info: Any) -> dict[str, Any]:
    """Return a copy of what an environment says beside its observation."""
    if type(info) is not dict and not isinstance(info, Mapping):
        raise ContractBroken(f"the environment's info is a {type(info).__name__}; info is a dict.")
    own: dict[str, Any] = _own(info if type(info) is dict else dict(info))
    return own


def _truth(value: Any) -> bool:
    """Return whether an episode ended; numpy has a type of its own for that."""
    if not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "bool":
        raise ContractBroken(f"the environment ended an episode with {value!r:.40}, which is no bool.")
    return bool(value)


def finite_reward(reward: Any) -> float:
    """Return a reward as a finite number.

    Raises:
        ContractBroken: when it is none.
    """
    if isinstance(reward, str | bytes | bytearray):  # which float() would read
        raise ContractBroken(f"the environment's reward is {reward!r:.40}; a reward is a finite number.")
    number = float(reward)
    if not math.isfinite(number):
        raise ContractBroken(f"the environment's reward is {number}; a reward is a finite number.")
    return number


def _parts(before: dict[str, float], parts: Any) -> dict[str, float] | None:
    """Return the named parts of a turn's reward with those of one more step; info may mean something else."""
    if isinstance(parts, Mapping) and all(isinstance(part, Real) for part in parts.values()):
        before = before | {name: before.get(name, 0.0) + float(part) for name, part in parts.items()}
    return before or None


def end_of_task(info: Mapping[str, Any]) -> StopReason:
    """Return how a task ended, by what its environment says with the last step."""
    reason = _reason(info, TASK_ENDS)
    if reason is not None:
        return reason
    for key in ("success", "correct"):
        if info.get(key) is not None:
            return StopReason.SOLVED if info[key] else StopReason.FAILED
    return StopReason.ENDED


def cut_off(info: Mapping[str, Any]) -> StopReason:
    """Return why an environment cut its episode off."""
    return _reason(info, LIMITS_FROM_OUTSIDE | {StopReason.CANCELLED}) or StopReason.TURN_LIMIT


def _reason(info: Mapping[str, Any], accepted: frozenset[StopReason]) -> StopReason | None:
    said = info.get("stop")
    return next((reason for reason in accepted if reason.value == said), None)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def versions() -> dict[str, str]:
    """Return the versions of what episodes are played with."""
    import gem  # here: the package is complete when episodes are played

    return {"gem": gem.__version__, "python": platform.python_version()}
