"""One episode, as a generator: the logic of playing, without I/O, threads or waiting.

`play` yields what it needs, a `Call` of its environment or a tuple of `Ask`, one per seat that acts now,
and is sent the answer: what the call returned, or a tuple of `Reply`. What fails is thrown in. Who waits, and
where environments live, is the drivers' business; how an episode ends is decided here and nowhere else.

========================================================  ========================  ========  =========
what happened                                             terminated / truncated    verdict   bootstrap
========================================================  ========================  ========  =========
the task ended: solved, failed, unreadable, turn budget   T / -                     scored    no
a limit from outside: turns, tokens, context, time        - / T                     scored    yes
environment, host or agent raised                         - / T                     none      no
cancelled                                                 - / T                     none      no
========================================================  ========================  ========  =========
"""

from __future__ import annotations

import math
from asyncio import CancelledError
from collections.abc import Callable, Generator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from gem import seeding
from gem.content import Message, check_obs
from gem.errors import BadArgument, ContractBroken, NoVerdict, WorkerDied
from gem.history import CHAT, LAST, HistoryPolicy, messages
from gem.record import SEAT, Ask, Call, Episode, Failure, Limits, Reply, StopReason, Turn, Verdict

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


class OutOfTime(Exception):
    """Thrown in by a driver that stopped waiting for the agent: its `policy_s` is spent."""


def play(
    env: Any,
    seed: int,
    limits: Limits = NO_LIMITS,
    *,
    history: HistoryPolicy | None = None,
    episode: str = "",
    group: str = "",
    sample: int = 0,
    actor: str | None = None,
    policy_clock: Callable[[], float] = perf_counter,
) -> Playing:
    """Play one episode of `env` and return its record.

    Turns hold the actions that were taken; what the agent saw last but did not answer is the episode's
    `final_observation`. When a step breaks, its turn stays, with reward None. `policy_version` is the lowest
    of those that answered.

    Args:
        env: the environment, or whatever stands for it where calls are carried out; it goes into each
            `Call` untouched. Its `spec` and `assembles_history` are read when reset has returned.
        seed: the episode's seed.
        limits: limits from outside; `context` and `turn_tokens` are passed on for the agent to keep.
        history: which past turns the agent sees; None: all, as a chat, or the observation alone where a
            wrapper of `env` assembles the history already.
        episode: the id, by which agents keep caches; made from seed and sample when empty.
        group: names the task that several samples share.
        sample: numbers the samples of one group; each draws its tokens, or its random actions, from seeds of
            its own.
        actor: a verb of the environment, `sample_random_action` or `solve`, called for every action instead
            of asking an agent.
        policy_clock: seconds; runs while the agent is at work. A driver that asks in batches gives its own.
    """
    record = Episode(episode or f"{seed:x}-{sample}", "", seed, group=group, sample=sample)
    turns = record.turns
    shown: tuple[Message, ...] = ()
    held: tuple[int, ...] = ()
    generated = 0
    reset_s = policy_s = env_s = 0.0
    began = perf_counter()
    boundary = "env"
    try:
        obs, info = yield Call(env, "reset", (seed,))
        obs, info = check_obs(obs), dict(info)
        reset_s = perf_counter() - began
        record.initial_info = record.final_info = info
        record.final_observation = obs
        if actor is not None and sample:  # sample 0 is what a loop over the environment alone would see
            yield Call(env, "seed_actor", (seeding.derive(seed, "sample", sample),))
        policy = history or (LAST if getattr(env, "assembles_history", False) else CHAT)
        while True:
            if limits.turns is not None and len(turns) >= limits.turns:
                record.stop = StopReason.TURN_LIMIT
                break
            if limits.tokens is not None and generated >= limits.tokens:
                record.stop = StopReason.TOKEN_LIMIT
                break
            boundary = "driver"
            turn = Turn(SEAT, obs, info=info)  # history reads the prefix and suffix of the latest info
            turns.append(turn)
            if actor is None:
                shown, extends = _show(turns, policy, shown)
                if not extends:
                    held = ()
                ask = Ask(
                    record.id,
                    SEAT,
                    len(turns) - 1,
                    shown,
                    held,
                    1 if held else len(shown),
                    seeding.derive(seed, "sample", sample, SEAT, len(turns) - 1),
                    _least(limits.turn_tokens, limits.tokens and limits.tokens - generated),
                    limits.context,
                )
                boundary = "agent"
                before = policy_clock()
                (reply,) = yield (ask,)
                took = policy_clock() - before
                policy_s += took
                if limits.policy_s is not None and policy_s > limits.policy_s:
                    raise OutOfTime
                _check(reply)
                if reply.policy_version is not None:
                    known = record.policy_version
                    record.policy_version = _least(known, reply.policy_version)
                if reply.finish == "context":
                    turns.pop()
                    record.stop = StopReason.CONTEXT_LIMIT
                    break
                generated += len(reply.token_ids) or reply.info.get("completion_tokens", 0)
                turn.prompt_ids, turn.token_ids, turn.logprobs = (
                    reply.prompt_ids,
                    reply.token_ids,
                    reply.logprobs,
                )
                turn.mask = (1,) * len(reply.token_ids)
                turn.finish = reply.finish
                turn.timing["policy_s"] = took
                held = reply.prompt_ids + reply.token_ids
                action = reply.text
            else:
                boundary = "env"
                action = yield Call(env, actor)
            turn.action, turn.info = action, {}
            boundary = "env"
            before = perf_counter()
            obs, reward, terminated, truncated, info = yield Call(env, "step", (action,))
            took = perf_counter() - before
            env_s += took
            turn.timing["env_s"] = took
            obs, info = check_obs(obs), dict(info)
            turn.reward, turn.info = _reward(reward), info
            record.final_observation, record.final_info = obs, info
            if terminated:
                record.stop = _end_of_task(info)
                record.terminated = True
                break
            if truncated:
                record.stop = _cut_off(info)
                break
    except OutOfTime:
        record.stop = StopReason.TIME_LIMIT
    except CancelledError:  # Ctrl-C is none: it ends the whole rollout
        record.stop = StopReason.CANCELLED
    except Exception as error:
        if boundary == "env" and isinstance(error, WorkerDied):
            boundary = "host"
        record.error = Failure(boundary, type(error).__name__, str(error))
    if turns and turns[-1].action is None:
        turns.pop()  # shown but not answered
    if record.stop in TASK_ENDS or record.stop in LIMITS_FROM_OUTSIDE:
        record.verdict = Verdict.SCORED
    record.truncated = not record.terminated
    record.spec, kwargs = identity(env)
    record.kwargs = dict(kwargs)
    record.timing = {
        "reset_s": reset_s,
        "policy_s": policy_s,
        "env_s": env_s,
        "wall_s": perf_counter() - began,
    }
    return record


def _show(
    turns: Sequence[Turn], policy: HistoryPolicy, before: tuple[Message, ...]
) -> tuple[tuple[Message, ...], bool]:
    """Return ``messages(turns, policy)``, and whether the prompt `before` and its answer begin it.

    An append-only prompt grows by its tail, so that a long episode costs no more per turn than a short one.
    It stops being append-only where the last observation was shown with text around it that is gone now.
    """
    if not policy.append_only or not before:
        return messages(turns, policy), False
    tail = messages(turns[-2:])
    return before[:-1] + tail, before[-1] == tail[0]


def _check(reply: Reply) -> None:
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise BadArgument(f"the agent answered {reply!r:.80}; an answer is a Reply whose text is a str.")
    if reply.logprobs and len(reply.logprobs) != len(reply.token_ids):
        raise BadArgument(
            f"the agent's reply has {len(reply.token_ids)} token_ids and {len(reply.logprobs)} logprobs; "
            "one logprob per sampled token, or none at all."
        )
    if not all(map(math.isfinite, reply.logprobs)):
        raise BadArgument(
            "the agent's reply has logprobs that are not finite; a sampled token has a finite one."
        )


def _reward(reward: Any) -> float:
    number = float(reward)
    if not math.isfinite(number):
        raise ContractBroken(f"the environment's reward is {number}; a reward is a finite number.")
    return number


def _end_of_task(info: Mapping[str, Any]) -> StopReason:
    reason = _reason(info, TASK_ENDS)
    if reason is not None:
        return reason
    for key in ("success", "correct"):
        if info.get(key) is not None:
            return StopReason.SOLVED if info[key] else StopReason.FAILED
    return StopReason.ENDED


def _cut_off(info: Mapping[str, Any]) -> StopReason:
    """Return why an environment cut its episode off.

    Raises:
        NoVerdict: when it says that something broke: what was earned by then is no score.
    """
    if info.get("stop") == StopReason.ERROR.value:
        raise NoVerdict(str(info.get("error") or "the environment cut the episode off with stop 'error'."))
    return _reason(info, LIMITS_FROM_OUTSIDE | {StopReason.CANCELLED}) or StopReason.TURN_LIMIT


def _reason(info: Mapping[str, Any], accepted: frozenset[StopReason]) -> StopReason | None:
    said = info.get("stop")
    return next((reason for reason in accepted if reason.value == said), None)


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


class Identity(NamedTuple):
    """The id and keywords that make an environment again."""

    id: str
    kwargs: Mapping[str, Any]


def identity(env: Any) -> Identity:
    """Return what makes `env` again; an environment that is not registered is named ``module:Class``."""
    spec = getattr(env, "spec", None)
    if spec is not None:
        return Identity(spec.id, spec.kwargs)
    made = type(getattr(env, "unwrapped", env))
    return Identity(f"{made.__module__}:{made.__qualname__}", {})
