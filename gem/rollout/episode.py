"""Play one episode as a generator, without I/O, threads or waiting.

`play` yields what it needs: a `Call` of its environment, or a tuple of `Ask`, one per seat that acts now. The
driver sends back the result of the call, or a tuple of `Reply`, and throws errors in. The driver decides how
to wait and where environments run; this module decides how an episode ends.

An environment with several seats returns dicts by seat (`gem.envs.seats`): all seats that get an observation
act next, at the same time. A reward that a seat gets between its turns is added to its turn before. An
environment for one agent is one with a single seat.

========================================================  ========================  ========  =========
what happened                                             terminated / truncated    verdict   bootstrap
========================================================  ========================  ========  =========
the task ended: solved, failed, unreadable, turn budget   T / -                     scored    no
a limit from outside: turns, tokens, context              - / T                     scored    yes
the agent's time is used up                               - / T                     none      no
the same, with ``on_time="scored"``                       - / T                     scored    yes
environment, host or agent raised, or said stop 'error'   - / T                     none      no
cancelled                                                 - / T                     none      no
========================================================  ========================  ========  =========

The agent's time is the sum of `Reply.policy_s`, or of the driver's measurements.
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
"""The method to call for one of several seats, for each method of a single-agent environment."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A start for an episode: after the first `turns` turns of an earlier one.

    Their actions are played again from the same seed, and the observations are compared with the record. If
    `state` is given (its `get_state()` at that turn, for one seat only), it is restored instead.
    """

    episode: Episode
    turns: int
    state: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a number of turns that the episode does not have."""
        if not 0 <= self.turns <= len(self.episode.turns):
            raise BadArgument(
                f"a branch begins after turn {self.turns}; accepted: 0 to {len(self.episode.turns)}, the "
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

    Turns have the actions that were taken; a seat's last, unanswered observation is in its end. When a step
    breaks, its turn is kept, with reward None. `limits.turns` counts steps of the environment; seats that act
    at the same time share the remaining tokens.

    Args:
        env: the environment, or an object that represents it for the driver; it goes into each `Call`
            unchanged. Its `assembles_history` is read after reset.
        seed: the episode's seed.
        limits: limits from outside the task; the agent has to enforce `context` and `turn_tokens`.
        history: which past turns the agent sees; None: all, as a chat, or the observation alone where a
            wrapper of `env` assembles the history already.
        record: the episode to write, with run, job, sample and salt already set; a new one by default.
        actor: a method of the environment, `sample_random_action` or `solve`, to call for every action
            instead of asking an agent; or a mapping from seats to such methods.
        start: start after the first turns of another episode of the same task and seed.

    Raises:
        BadArgument: for a branch with another seed. Every other error is stored in the record.
    """
    if start is not None and start.state is None and start.episode.seed != seed:
        raise BadArgument(
            f"the seed is {seed}, but the branch's episode has seed {start.episode.seed}; pass that seed, as "
            "the recorded actions are replayed."
        )
    if record is None:
        record = Episode(replace(task_of(env), seed=seed))
    turns, ends = record.turns, record.ends
    dialogues: dict[str, Dialogue] = {}
    verbs: dict[str, str] = {}  # of the seats that the environment's own actor plays
    waiting: dict[str, tuple[Obs, dict[str, Any]]] = {}  # the seats that act next, and what each sees
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
            # Sample 0 is the same as in a plain loop over the environment. A restored state has the actor's
            # stream of the earlier episode, so this comes after it.
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
                actions[seat] = ""  # keeps the order of the seats, in whatever order they answer
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
                    raise OutOfTime(f"the agent took {policy_s:.3g} s; its limit is {limits.policy_s:g} s.")
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
                lacking = seen is None and (several or not (terminated or truncated))  # raised below
                shown = None if lacking else check_obs(seen)
                if seat in acting:
                    turn = acting[seat]
                    turn.reward, turn.info = paid, info
                    turn.timing["env_s"] = took
                elif dialogues[seat].turns:  # a reward for the actions of others
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
                    f"the environment gave no seat an observation, but did not end for {going_on or 'any'}."
                )
            stops = list(dict.fromkeys(end.stop for end in ends.values()))
            cut = [stop for stop in stops if stop not in TASK_ENDS]
            record.stop = cut[0] if cut else stops[0] if len(stops) == 1 else StopReason.ENDED
    except CancelledError:  # Ctrl-C is not one: it ends the whole rollout
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
    """Return a step's results by seat: observation (or None), reward, terminated, truncated, info."""
    obs, rewards, terminations, truncations, infos = result
    return [
        (seat, obs.get(seat), reward, terminations[seat], truncations[seat], infos[seat])
        for seat, reward in rewards.items()
    ]


def _recorded(turns: list[Turn], place: int, seat: str) -> Turn:
    """Return the recorded turn of a seat among simultaneous turns."""
    if place >= len(turns) or turns[place].seat != seat:
        raise ContractBroken(
            f"seat {seat!r} acts where the record has "
            f"{turns[place].seat if place < len(turns) else 'the end of the branch'!r}; a branch begins "
            "between two steps, and its environment must be determined by its seed."
        )
    return turns[place]


def _restored(
    record: Episode, dialogue: Dialogue, start: Branch
) -> tuple[dict[str, tuple[Obs, dict[str, Any]]], int]:
    """Enter the recorded turns of a branch; return the next observation by seat, and their token count."""
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
    """Copy nested lists, dicts and sets: an environment may later change the objects that it returned."""
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
    """Return a copy of an environment's info."""
    if type(info) is not dict and not isinstance(info, Mapping):
        raise ContractBroken(f"the environment's info is a {type(info).__name__}; it must be a dict.")
    own: dict[str, Any] = _own(info if type(info) is dict else dict(info))
    return own


def _truth(value: Any) -> bool:
    """Return a flag of step as a bool; numpy's bool is accepted."""
    if not isinstance(value, bool) and str(getattr(value, "dtype", "")) != "bool":
        raise ContractBroken(f"terminated or truncated is {value!r:.40}; the environment must return a bool.")
    return bool(value)


def finite_reward(reward: Any) -> float:
    """Return a reward as a finite float.

    Raises:
        ContractBroken: when it is not a finite number.
    """
    if isinstance(reward, str | bytes | bytearray):  # which float() would read
        raise ContractBroken(f"the environment's reward is {reward!r:.40}; a reward is a finite number.")
    number = float(reward)
    if not math.isfinite(number):
        raise ContractBroken(f"the environment's reward is {number}; a reward is a finite number.")
    return number


def _parts(before: dict[str, float], parts: Any) -> dict[str, float] | None:
    """Add the named reward parts of one more step to a turn's; ignore info of another form."""
    if isinstance(parts, Mapping) and all(isinstance(part, Real) for part in parts.values()):
        before = before | {name: before.get(name, 0.0) + float(part) for name, part in parts.items()}
    return before or None


def end_of_task(info: Mapping[str, Any]) -> StopReason:
    """Return how a task ended, from the info of the last step."""
    reason = _reason(info, TASK_ENDS)
    if reason is not None:
        return reason
    for key in ("success", "correct"):
        if info.get(key) is not None:
            return StopReason.SOLVED if info[key] else StopReason.FAILED
    return StopReason.ENDED


def cut_off(info: Mapping[str, Any]) -> StopReason:
    """Return why an environment truncated its episode."""
    return _reason(info, LIMITS_FROM_OUTSIDE | {StopReason.CANCELLED}) or StopReason.TURN_LIMIT


def _reason(info: Mapping[str, Any], accepted: frozenset[StopReason]) -> StopReason | None:
    said = info.get("stop")
    return next((reason for reason in accepted if reason.value == said), None)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def versions() -> dict[str, str]:
    """Return the versions of gem and Python, for the record of a run."""
    import gem  # here: the package is complete when episodes are played

    return {"gem": gem.__version__, "python": platform.python_version()}
