"""One episode, as a generator: the logic of playing, without I/O, threads or waiting.

`play` yields what it needs, a `Call` of its environment or a tuple of `Ask`, one per seat that acts now,
and is sent the answer: what the call returned, or a tuple of `Reply`. What fails is thrown in. Who waits, and
where environments live, is the drivers' business; how an episode ends is decided here and nowhere else.

An environment with several seats returns dicts by seat (`gem.envs.multiagent`): whoever it shows an
observation acts next, all of them at once. What a seat is paid between its turns is added to the turn before.

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
from collections.abc import Callable, Generator, Mapping
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from gem import seeding
from gem.content import Obs, check_obs
from gem.dialogue import Dialogue
from gem.errors import ContractBroken, NoVerdict, WorkerDied
from gem.history import CHAT, LAST, HistoryPolicy
from gem.record import SEAT, Ask, Call, Episode, Failure, Limits, SeatEnd, StopReason, Turn, Verdict

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
    actor: str | Mapping[str, str] | None = None,
    policy_clock: Callable[[], float] = perf_counter,
) -> Playing:
    """Play one episode of `env` and return its record.

    Turns hold the actions that were taken; what the agent saw last but did not answer is the episode's
    `final_observation`. When a step breaks, its turn stays, with reward None. `policy_version` is the lowest
    of those that answered. `limits.turns` counts steps of the environment; the tokens that are left are
    shared by the seats that act at the same time.

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
            of asking an agent; or a mapping from seats to such verbs, for those that it holds.
        policy_clock: seconds; runs while the agent is at work. A driver that asks in batches gives its own.
    """
    record = Episode(episode or f"{seed:x}-{sample}", "", seed, group=group, sample=sample)
    turns = record.turns
    table: _Table | None = None
    generated = 0
    reset_s = policy_s = env_s = 0.0
    began = perf_counter()
    boundary = "env"
    try:
        obs, info = yield Call(env, "reset", (seed,))
        if type(obs) is dict:
            table = _Table(env, record, limits, sample, actor, policy_clock)
            table.begin(obs, info)
        else:
            obs, info = check_obs(obs), dict(info)
            record.initial_info = record.final_info = info
            record.final_observation = obs
        reset_s = perf_counter() - began
        if actor is not None and sample:  # sample 0 is what a loop over the environment alone would see
            yield Call(env, "seed_actor", (seeding.derive(seed, "sample", sample),))
        policy = history or (LAST if getattr(env, "assembles_history", False) else CHAT)
        if table is not None:
            yield from table.play(policy)
        else:
            dialogue = Dialogue(SEAT, record.id, seed, sample, policy, turns)
            verb = actor if actor is None or isinstance(actor, str) else actor.get(SEAT)
        while table is None:
            if limits.turns is not None and len(turns) >= limits.turns:
                record.stop = StopReason.TURN_LIMIT
                break
            if limits.tokens is not None and generated >= limits.tokens:
                record.stop = StopReason.TOKEN_LIMIT
                break
            boundary = "driver"
            turn = dialogue.open(obs, info)
            if verb is None:
                left = limits.tokens and limits.tokens - generated
                ask = dialogue.ask(_least(limits.turn_tokens, left), limits.context)
                boundary = "agent"
                before = policy_clock()
                (reply,) = yield (ask,)
                took = policy_clock() - before
                policy_s += took
                if limits.policy_s is not None and policy_s > limits.policy_s:
                    raise OutOfTime
                sampled = dialogue.answer(reply)
                if reply.policy_version is not None:
                    record.policy_version = _least(record.policy_version, reply.policy_version)
                if reply.finish == "context":
                    record.stop = StopReason.CONTEXT_LIMIT
                    break
                generated += sampled
                turn.timing["policy_s"] = took
                action = reply.text
            else:
                boundary = "env"
                action = yield Call(env, verb)
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
        boundary = boundary if table is None else table.boundary
        if boundary == "env" and isinstance(error, WorkerDied):
            boundary = "host"
        record.error = Failure(boundary, type(error).__name__, str(error))
    while turns and turns[-1].action is None:
        turns.pop()  # shown but not answered
    if table is not None:
        policy_s, env_s = table.policy_s, table.env_s
        table.cut_off()
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


class _Table:
    """The seats of a multi-agent episode: who acts next, and what each is shown, pays and is paid.

    The loop of `play` for a single agent is written out there: it is the one that has to be fast.
    """

    def __init__(
        self,
        env: Any,
        record: Episode,
        limits: Limits,
        sample: int,
        actor: str | Mapping[str, str] | None,
        policy_clock: Callable[[], float],
    ) -> None:
        self.env, self.record, self.limits, self.sample = env, record, limits, sample
        self.actor, self.policy_clock = actor, policy_clock
        self.dialogues: dict[str, Dialogue] = {}
        self.waiting: dict[str, tuple[Obs, dict[str, Any]]] = {}  # who acts next, and what each is shown
        self.boundary = "env"
        self.policy_s = self.env_s = 0.0

    def begin(self, obs: Mapping[str, Any], infos: Mapping[str, Any]) -> None:
        """Take in what reset returned: an info for each seat, an observation for those that act first."""
        record = self.record
        record.initial_info = {seat: dict(info) for seat, info in infos.items()}
        record.final_info = {seat: dict(info) for seat, info in infos.items()}
        record.ends = {seat: SeatEnd() for seat in infos}
        self.waiting = {
            seat: (check_obs(obs[seat]), dict(infos[seat])) for seat in record.ends if seat in obs
        }

    def play(self, policy: HistoryPolicy) -> Generator[Call | tuple[Ask, ...], Any, None]:
        """Play until every seat has ended, or a limit is met."""
        record, limits = self.record, self.limits
        generated = steps = 0
        while self.waiting:
            if limits.turns is not None and steps >= limits.turns:
                record.stop = StopReason.TURN_LIMIT
                return
            if limits.tokens is not None and generated >= limits.tokens:
                record.stop = StopReason.TOKEN_LIMIT
                return
            self.boundary = "driver"
            left = limits.tokens and max(1, (limits.tokens - generated) // len(self.waiting))
            acting: dict[str, Turn] = {}
            actions = dict.fromkeys(self.waiting, "")  # the order of the seats, whoever answers first
            asks: list[Ask] = []
            verbs: dict[str, str] = {}
            for seat, shown in self.waiting.items():
                if seat not in self.dialogues:
                    self.dialogues[seat] = Dialogue(seat, record.id, record.seed, self.sample, policy)
                acting[seat] = self.dialogues[seat].open(*shown)
                record.turns.append(acting[seat])
                verb = self.actor.get(seat) if isinstance(self.actor, Mapping) else self.actor
                if verb is None:
                    most = _least(limits.turn_tokens, left)
                    asks.append(self.dialogues[seat].ask(most, limits.context))
                else:
                    verbs[seat] = verb
            if asks:
                self.boundary = "agent"
                before = self.policy_clock()
                replies = yield tuple(asks)
                took = self.policy_clock() - before
                self.policy_s += took
                if limits.policy_s is not None and self.policy_s > limits.policy_s:
                    raise OutOfTime
                for ask, reply in zip(asks, replies, strict=True):
                    generated += self.dialogues[ask.agent].answer(reply)
                    if reply.policy_version is not None:
                        record.policy_version = _least(record.policy_version, reply.policy_version)
                    acting[ask.agent].timing["policy_s"] = took
                    actions[ask.agent] = reply.text
                if any(reply.finish == "context" for reply in replies):
                    record.stop = StopReason.CONTEXT_LIMIT
                    return
            self.boundary = "env"
            for seat, verb in verbs.items():
                actions[seat] = yield Call(self.env, SEAT_VERBS[verb], (seat,))
            for seat, turn in acting.items():
                turn.action, turn.info = actions[seat], {}
            before = perf_counter()
            result = yield Call(self.env, "step", (actions,))
            took = perf_counter() - before
            self.env_s += took
            steps += 1
            for turn in acting.values():
                turn.timing["env_s"] = took
            self.share_out(result)
        stops = list(dict.fromkeys(end.stop for end in record.ends.values()))
        cut = [stop for stop in stops if stop not in TASK_ENDS]
        record.stop = cut[0] if cut else stops[0] if len(stops) == 1 else StopReason.ENDED
        record.terminated = all(end.terminated for end in record.ends.values())

    def share_out(self, result: Any) -> None:
        """Take in what a step brought to each seat."""
        obs, rewards, terminations, truncations, infos = result
        self.waiting = {}
        for seat, reward in rewards.items():
            info, end = dict(infos[seat]), self.record.ends[seat]
            if seat in self.dialogues:
                turn = self.dialogues[seat].turns[-1]
                turn.reward = (turn.reward or 0.0) + _reward(reward)
                turn.info.update(info)
            else:
                end.unearned += _reward(reward)
                self.record.initial_info[seat].update(info)
            self.record.final_info[seat] = end.info = info
            if seat in obs:
                end.observation = check_obs(obs[seat])
            if terminations[seat]:
                end.terminated, end.stop = True, _end_of_task(info)
            elif truncations[seat]:
                end.truncated, end.stop = True, _cut_off(info)
            elif seat in obs:
                self.waiting[seat] = end.observation, info

    def cut_off(self) -> None:
        """Give the seats that are still playing the end that the episode came to."""
        for seat, end in self.record.ends.items():
            if not end.terminated and not end.truncated:
                end.stop, end.truncated = self.record.stop, True
                if seat in self.waiting:
                    end.observation = self.waiting[seat][0]


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
