"""Play one episode as a generator, without I/O, threads or waiting.

`play` yields what it needs: a `Call` of its environment, or a tuple of `Ask`, one per seat that acts now. The
driver sends back the result of the call, or a tuple of `Reply`, and throws errors in. The driver decides how
to wait and where environments run; this module decides how an episode ends.

An environment with several seats returns dicts by seat (`gem.envs.seats`): all seats that get an observation
act next, at the same time. A reward that a seat gets between its turns is added to its turn before. An
environment for one agent is one with a single seat. If the info of its reset has a ``stop``, the episode is
over before its first turn (`gem.seats.SeatEnv`): a step with an empty action gives the end, and no agent is
asked.

========================================================  ========================  ========  =========
what happened                                             terminated / truncated    verdict   bootstrap
========================================================  ========================  ========  =========
the task ended: solved, failed, unreadable, turn budget   T / -                     scored    no
a limit from outside: turns, tokens, context              - / T                     scored    yes
the environment truncated it itself, solved or not        - / T                     scored    yes
the agent's time is used up                               - / T                     none      no
the same, with ``on_time="scored"``                       - / T                     scored    yes
environment, host or agent raised, or said stop 'error'   - / T                     none      no
cancelled                                                 - / T                     none      no
========================================================  ========================  ========  =========

The agent's time is the sum of `Reply.policy_s`, or of the driver's measurements.
"""

from __future__ import annotations

import platform
from asyncio import CancelledError
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from time import perf_counter
from typing import Any, TypeAlias

from gem import seeding
from gem.content import check_obs, tools_in
from gem.core import check_flag, check_reward, copy_info
from gem.dialogue import Dialogue, warn_uncounted
from gem.errors import (
    BadArgument,
    ContractBroken,
    GemError,
    NoVerdict,
    OutOfTime,
    WorkerDied,
    describe_place,
)
from gem.history import CHAT, LAST, HistoryPolicy
from gem.record import (
    SEAT,
    Ask,
    Call,
    Episode,
    Failure,
    Limits,
    Origin,
    Reply,
    SeatEnd,
    StopReason,
    Turn,
    Verdict,
)
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
BRANCH_END = "the end of the branch"
"""What the error of a branch that begins in the middle of a step says."""
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
        """Refuse a number of turns that the episode does not have, and the episode of a program."""
        refuse_program(self.episode)
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

    def check_seed(self, seed: int) -> None:
        """Refuse another seed than the episode's where its actions are replayed."""
        if self.state is None and self.episode.seed != seed:
            raise BadArgument(
                f"the seed is {seed}, but the branch's episode has seed {self.episode.seed}; pass that seed, "
                "as the recorded actions are replayed."
            )


def is_left(episode: Episode) -> bool:
    """Return whether an agent program ended, without a limit, before the episode that it played by MCP."""
    infos = [end.info for end in episode.ends.values() if end.stop is StopReason.TIME_LIMIT]
    return any(
        isinstance(about := info.get("program"), Mapping) and "actions" in info and not about.get("ended")
        for info in infos
    )


def refuse_program(episode: Episode) -> None:
    """Refuse the episode of an agent program, whose turns are calls of its model.

    Raises:
        BadArgument: for one; what the program did in the workspace is not in its record.
    """
    if any("program" in end.info for end in episode.ends.values()):
        raise BadArgument(
            f"episode {episode.id!r} cannot be played again: a program played it, and its turns are calls of "
            "the program's model, not actions."
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
    if start is not None:
        start.check_seed(seed)
    record = record or Episode(replace(task_of(env), seed=seed))
    progress = _Progress(env, seed, limits, record, start, perf_counter())
    try:
        progress.open((yield Call(env, "reset", (seed,))), history)
        if progress.is_over():
            progress.enter_step((yield progress.step()))
            if progress.waiting:
                raise ContractBroken(
                    "the info of reset has a stop, but the next step did not end the episode."
                )
        if start is not None:
            record.origin = Origin(start.episode.id, start.turns)
            if start.state is not None:
                yield Call(env, "set_state", (start.state,))
                progress.restore(start)
        if actor is not None:
            progress.assign_actor(actor)
            if record.sample or record.salt:  # sample 0 is the same as in a plain loop over the environment
                yield progress.seed_actor()  # after set_state: a state has the actor's stream of its episode
        while progress.waiting:
            progress.check_limits()
            if asks := progress.begin_turns():
                progress.enter_replies(asks, (yield asks))
            for seat, call in progress.actor_calls:
                progress.actions[seat] = yield call
            progress.enter_step((yield progress.step()))
        progress.end()
    except _LimitReached as limit:
        record.stop = limit.args[0]
    except CancelledError:  # Ctrl-C is not one: it ends the whole rollout
        record.stop = StopReason.CANCELLED
    except Exception as error:
        progress.fail(error)
    return progress.close()


class _LimitReached(Exception):
    """A limit from outside ends the episode; the argument is its StopReason."""


@dataclass(slots=True)
class _Progress:
    """An episode while it is played: `play` calls one method for each event, which writes the record.

    `waiting` are the seats that act next. In a step, `turns` has the open turn and `actions` the action of
    each seat that acts. `verbs` has the method of each seat that the environment's own actor plays, and
    `actor_calls` those of this step. `boundary` is the part that is responsible for an error now.
    """

    env: Any
    seed: int
    limits: Limits
    record: Episode
    start: Branch | None
    began: float
    several: bool = False
    dialogues: dict[str, Dialogue] = field(default_factory=dict)
    verbs: dict[str, str] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    turns: dict[str, Turn] = field(default_factory=dict)
    actions: dict[str, str] = field(default_factory=dict)
    actor_calls: list[tuple[str, Call]] = field(default_factory=list)
    boundary: str = "env"
    tokens: int = 0
    steps: int = 0
    timing: dict[str, float] = field(default_factory=lambda: {"reset_s": 0.0, "policy_s": 0.0, "env_s": 0.0})
    requested: float = 0.0

    def open(self, result: Any, history: HistoryPolicy | None) -> None:
        """Enter the result of reset, and begin the dialogue of each seat.

        Raises:
            ContractBroken, BadArgument: for a result of a wrong form.
        """
        obs, infos = result
        self.several = type(obs) is dict
        if not self.several:
            obs, infos = {SEAT: obs}, {SEAT: infos}
        elif not isinstance(infos, Mapping) or not obs.keys() <= infos.keys():
            raise ContractBroken(
                f"the first observation is a dict, {obs!r:.80}; an observation is text, or a list of Text and"
                " Image parts. Only an environment of several seats returns dicts: observations and infos, by"
                " seat."
            )
        record = self.record
        for seat, info in infos.items():
            record.starts[seat] = copy_info(info)
            record.ends[seat] = SeatEnd(info=copy_info(info))
        for seat, end in record.ends.items():
            if seat in obs:
                end.observation = check_obs(obs[seat])
                self.waiting.append(seat)
        self.timing["reset_s"] = perf_counter() - self.began
        policy = history or (LAST if getattr(self.env, "assembles_history", False) else CHAT)
        for seat, info in record.starts.items():
            self.dialogues[seat] = Dialogue(
                seat, record.id, self.seed, record.sample, policy, record.salt, tools_in(info)
            )

    def is_over(self) -> bool:
        """Return whether the one seat's episode was over when it began: a step with no turn tells its end."""
        self.actions = {SEAT: ""}
        return not self.several and _find_stop(self.record.starts[SEAT], frozenset(StopReason)) is not None

    def restore(self, start: Branch) -> None:
        """Enter the recorded turns of a branch whose state was set."""
        ((seat, dialogue),) = self.dialogues.items()
        exchanges, end = start.episode.exchanges(seat), self.record.ends[seat]
        for exchange, recorded in zip(exchanges[: start.turns], start.episode.turns, strict=False):
            turn = dialogue.open(exchange.observation, exchange.info)
            self.tokens += dialogue.recall(recorded)
            turn.action, turn.reward = recorded.action, recorded.reward
            turn.info, turn.rewards = dict(recorded.info), recorded.rewards
            self.record.turns.append(turn)
        following = exchanges[start.turns]
        end.observation, end.info = following.observation, dict(following.info)
        self.waiting, self.steps = [seat], len(self.record.turns)

    def assign_actor(self, actor: str | Mapping[str, str]) -> None:
        """Let the environment's own actor play all seats, or the seats of a mapping."""
        by_seat = actor if isinstance(actor, Mapping) else dict.fromkeys(self.record.ends, actor)
        self.verbs = {seat: SEAT_VERBS[verb] if self.several else verb for seat, verb in by_seat.items()}

    def seed_actor(self) -> Call:
        """Return the call that gives the actor the random stream of this sample."""
        record = self.record
        salt = ("salt", record.salt) if record.salt else ()
        return Call(self.env, "seed_actor", (seeding.derive(self.seed, "sample", record.sample, *salt),))

    def check_limits(self) -> None:
        """Raise _LimitReached when no step or no token is left."""
        limits = self.limits
        if limits.turns is not None and self.steps >= limits.turns:
            raise _LimitReached(StopReason.TURN_LIMIT)
        if limits.tokens is not None and self.tokens >= limits.tokens:
            raise _LimitReached(StopReason.TOKEN_LIMIT)

    def begin_turns(self) -> tuple[Ask, ...]:
        """Begin a turn of each seat that acts now; return the asks of those that an agent plays."""
        self.boundary = "driver"
        self.turns, self.actions, self.actor_calls = {}, {}, []
        limits, record, start = self.limits, self.record, self.start
        recorded = [] if start is None else start.episode.turns[len(record.turns) : start.turns]
        max_tokens = limits.turn_tokens
        if limits.tokens is not None:  # the seats share the remaining ones
            share = max(1, (limits.tokens - self.tokens) // len(self.waiting))
            max_tokens = share if max_tokens is None else min(share, max_tokens)
        left_s = None if limits.policy_s is None else max(0.0, limits.policy_s - self.timing["policy_s"])
        asks: list[Ask] = []
        for number, seat in enumerate(self.waiting):
            dialogue, end = self.dialogues[seat], record.ends[seat]
            turn = self.turns[seat] = dialogue.open(end.observation, end.info)
            record.turns.append(turn)
            self.actions[seat] = ""  # keeps the order of the seats, in whatever order they answer
            if recorded:
                past = _check_recorded(recorded, number, seat)
                self.tokens += dialogue.recall(past)
                self.actions[seat] = past.action or ""
            elif seat in self.verbs:
                call = Call(self.env, self.verbs[seat], (seat,) if self.several else ())
                self.actor_calls.append((seat, call))
            else:
                asks.append(dialogue.ask(max_tokens, limits.context, left_s))
        self.boundary = "agent" if asks else "env"
        self.requested = perf_counter()
        return tuple(asks)

    def enter_replies(self, asks: Sequence[Ask], replies: Iterable[Reply]) -> None:
        """Enter the replies to this step's asks; raise OutOfTime or _LimitReached when one came too late."""
        each_s = (perf_counter() - self.requested) / len(asks)
        full, run = False, self.record.run
        for ask, reply in zip(asks, replies, strict=True):
            count = self.dialogues[ask.seat].answer(reply)
            self.tokens += count
            if run.seats.get(ask.seat, run).model is not None:
                warn_uncounted(self.limits, reply, count)
            policy_s = each_s if reply.policy_s is None else reply.policy_s
            self.timing["policy_s"] += policy_s
            self.turns[ask.seat].timing["policy_s"] = policy_s
            text = calls.write(reply.text, reply.tool_calls) if reply.tool_calls else reply.text
            # of a subclass, which may not pickle, the plain text
            self.actions[ask.seat] = text if type(text) is str else str.__str__(text)
            full = full or reply.finish == "context"
        limit_s, spent_s = self.limits.policy_s, self.timing["policy_s"]
        if limit_s is not None and spent_s > limit_s:
            raise OutOfTime(f"the agent took {spent_s:.3g} s; its limit is {limit_s:g} s.")
        if full:
            raise _LimitReached(StopReason.CONTEXT_LIMIT)
        self.boundary = "env"

    def step(self) -> Call:
        """Enter the actions into their turns, and return the call of step."""
        for seat, turn in self.turns.items():
            turn.action, turn.info = self.actions[seat], {}
        self.requested = perf_counter()
        return Call(self.env, "step", (self.actions if self.several else self.actions[SEAT],))

    def enter_step(self, result: Any) -> None:
        """Enter the result of step: rewards, ends, and the seats that act next.

        Raises:
            ContractBroken, BadArgument: for a result of a wrong form. NoVerdict: when the environment broke.
        """
        step_s = perf_counter() - self.requested
        self.timing["env_s"] += step_s
        self.steps += 1
        self.waiting = []
        if not self.several:
            obs, reward, terminated, truncated, info = result
            self._enter_result(SEAT, obs, reward, terminated, truncated, info, step_s)
            return
        observations, rewards, terminations, truncations, infos = result
        for seat, reward in rewards.items():
            obs, ends = observations.get(seat), (terminations[seat], truncations[seat])
            self._enter_result(seat, obs, reward, *ends, infos[seat], step_s)

    def _enter_result(
        self, seat: str, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any, step_s: float
    ) -> None:
        """Enter the result of one seat; in an environment of several, `obs` is None where it does not act."""
        info, end = copy_info(info), self.record.ends[seat]
        reward = check_reward(reward)
        terminated, truncated = check_flag(terminated), check_flag(truncated)
        if obs is not None or not self.several:
            obs = check_obs(obs)
        self._enter_reward(seat, reward, info, step_s)
        end.info = info
        if obs is not None:
            end.observation = obs
        if info.get("stop") == "error":
            raise NoVerdict(str(info.get("error") or "the environment said stop 'error'."))
        if terminated:
            end.terminated, end.stop = True, find_task_stop(info)
        elif truncated:
            end.truncated, end.stop = True, find_truncation_stop(info)
        elif obs is not None:
            self.waiting.append(seat)

    def _enter_reward(self, seat: str, reward: float, info: dict[str, Any], step_s: float) -> None:
        """Enter the reward of a seat into its last turn, or into its end before its first turn."""
        turns = self.dialogues[seat].turns
        if seat in self.turns:
            turn = self.turns[seat]
            turn.reward, turn.info = reward, info
            turn.timing["env_s"] = step_s
        elif turns:  # a reward for the actions of others
            turn = turns[-1]
            turn.reward = (turn.reward or 0.0) + reward
            turn.info = {**turn.info, **info}
        else:
            self.record.ends[seat].unearned += reward
            self.record.starts[seat].update(info)
        if "rewards" in info and turns:
            turns[-1].rewards = _add_parts(turns[-1].rewards or {}, info["rewards"])

    def end(self) -> None:
        """Set how the episode ended, when no seat acts any more.

        Raises:
            ContractBroken: when a seat's task did not end.
        """
        ends = self.record.ends
        if (seats := self._unended_seats()) or not ends:
            raise ContractBroken(
                f"the environment gave no seat an observation, but did not end for {seats or 'any'}."
            )
        stops = list(dict.fromkeys(end.stop for end in ends.values()))
        limits = [stop for stop in stops if stop not in TASK_ENDS]
        self.record.stop = limits[0] if limits else stops[0] if len(stops) == 1 else StopReason.ENDED

    def fail(self, error: Exception) -> None:
        """Set how the episode ended, when an error broke it."""
        late = self.boundary == "agent" and isinstance(error, OutOfTime)
        if late:
            self.record.stop = StopReason.TIME_LIMIT
        if not late or self.limits.on_time == "none":
            died = self.boundary == "env" and isinstance(error, WorkerDied)
            boundary = "host" if died else self.boundary
            self.record.error = Failure.from_error(boundary, error)
            own = boundary == "agent" and not isinstance(error, GemError)
            if own or (boundary == "env" and not isinstance(error, NoVerdict)):
                self.record.error.message += describe_place(error)

    def close(self) -> Episode:
        """Complete the record: drop turns without action, end the other seats, set verdict and timing."""
        record = self.record
        while record.turns and record.turns[-1].action is None:
            record.turns.pop()
        for seat in self._unended_seats():
            record.ends[seat].stop, record.ends[seat].truncated = record.stop, True
        if record.error is None and (record.stop in TASK_ENDS or record.stop in LIMITS_FROM_OUTSIDE):
            record.verdict = Verdict.SCORED
        record.timing = {**self.timing, "wall_s": perf_counter() - self.began}
        return record

    def _unended_seats(self) -> list[str]:
        """Return the seats that did not end."""
        return [seat for seat, end in self.record.ends.items() if not (end.terminated or end.truncated)]


def _check_recorded(turns: Sequence[Turn], number: int, seat: str) -> Turn:
    """Return a seat's turn among the recorded turns that follow; it must be the one with this number."""
    recorded = turns[number].seat if number < len(turns) else BRANCH_END
    if recorded != seat:
        raise ContractBroken(
            f"seat {seat!r} acts where the record has {recorded!r}; a branch begins "
            "between two steps, and its environment must be determined by its seed."
        )
    return turns[number]


def _add_parts(before: dict[str, float], parts: Any) -> dict[str, float] | None:
    """Add the named reward parts of one more step to a turn's; ignore info of another form."""
    if isinstance(parts, Mapping) and all(isinstance(part, Real) for part in parts.values()):
        before = before | {name: before.get(name, 0.0) + float(part) for name, part in parts.items()}
    return before or None


def find_task_stop(info: Mapping[str, Any]) -> StopReason:
    """Return how a task ended, from the info of the last step."""
    reason = _find_stop(info, TASK_ENDS)
    if reason is not None:
        return reason
    success = _find_success(info)
    return StopReason.ENDED if success is None else StopReason.SOLVED if success else StopReason.FAILED


def _find_success(info: Mapping[str, Any]) -> bool | None:
    """Return the success that an info reports, or None."""
    known = (_check_success(key, info[key]) for key in ("success", "correct") if info.get(key) is not None)
    return next(known, None)


def _check_success(key: str, value: Any) -> bool:
    """Return a success as a bool; numpy's bool, 0 and 1 are accepted: the text 'false' would be a success."""
    if not (str(getattr(value, "dtype", "")) == "bool" or (isinstance(value, Real) and value in (0, 1))):
        raise ContractBroken(f"info[{key!r}] is {value!r:.40}; the environment must return True or False.")
    return bool(value)


def find_truncation_stop(info: Mapping[str, Any]) -> StopReason:
    """Return why an environment truncated its episode.

    With a success the task is solved: it was to last until the limit. With no word about it the task counts
    as not solved, unless ``stop`` is "ended".
    """
    accepted = LIMITS_FROM_OUTSIDE | {StopReason.CANCELLED, StopReason.SOLVED, StopReason.ENDED}
    return _find_stop(info, accepted) or (StopReason.SOLVED if _find_success(info) else StopReason.TURN_LIMIT)


def _find_stop(info: Mapping[str, Any], accepted: frozenset[StopReason]) -> StopReason | None:
    """Return the accepted reason that an info names as its ``stop``, or None."""
    return next((reason for reason in accepted if reason.value == info.get("stop")), None)


def versions() -> dict[str, str]:
    """Return the versions of gem and Python, for the record of a run."""
    import gem  # here: the package is complete when episodes are played

    return {"gem": gem.__version__, "python": platform.python_version()}
