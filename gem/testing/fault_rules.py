"""The rules about faults: what an environment must do when something in it, or around it, breaks.

`check_env(faults=True)` and ``gem-gym check ID --faults`` run them. Faults are injected outside the author's
code (the host's process, the agent) and inside it (the environment, its tools, its sandbox).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from tempfile import TemporaryDirectory
from time import perf_counter
from types import FrameType
from typing import Any, cast

from gem import errors, registry
from gem.agents.base import BaseAgent
from gem.core import Env, EnvWrapper
from gem.record import SEAT, Ask, Episode, Limits, Reply, Verdict
from gem.rollout import Job, rollout
from gem.sandbox import shared
from gem.sandbox.base import Sandbox
from gem.testing.faults import (
    Boundary,
    Fault,
    Faults,
    FaultyAgent,
    FaultySandbox,
    FaultyTool,
    FaultyWrapper,
    Fell,
    Kind,
    release,
)
from gem.testing.leaks import count_held, held_after
from gem.testing.rules import Broken, Rule, Skip, Subject, _elsewhere, make_arguments, write_call
from gem.testing.transcripts import Transcript, act, difference, everybody, transcript
from gem.tools.base_tool import BaseTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper

FAULT_RULES: dict[str, Rule] = {}
"""Every rule about faults by name, in the order in which they run."""

EVER = 1 << 30
TURNS = 8
"""The turns of an episode that are played; faults in the first ones are enough."""

INSIDE = 6
"""The number of calls within the author's code at which a step is interrupted, one at a time."""

AGAIN = 8
"""The number of episodes that break before leaks are counted."""

LEAST_CALL_S = 0.5
"""The least seconds before a call counts as hanging."""

SLACK = 20
"""The most time for the whole rule, closing included, as a multiple of one call's limit."""


def fault_rule(check: Rule) -> Rule:
    """Add a function to FAULT_RULES under its own name, with hyphens."""
    FAULT_RULES[check.__name__.replace("_", "-")] = check
    return check


# -- what several rules need


def _player(env: Env) -> Any:
    """Return the expert's action, which gets further, or else a random action."""
    try:
        return env.solve()
    except errors.NoSolver:
        return act(env)


def _record(case: Subject, seed: int) -> Transcript:
    return transcript(case.make(), seed, min(TURNS, case.turns), _player)


class _Recorded(BaseAgent):
    """An agent that repeats the actions of recorded transcripts, by the job's key."""

    def __init__(self, played: dict[str, Transcript]) -> None:
        self._actions: dict[tuple[str, str], list[str]] = {}
        for key, turns in played.items():
            for action, *_ in turns[1:]:
                for seat, text in (action if isinstance(action, dict) else {SEAT: action}).items():
                    self._actions.setdefault((key, seat), []).append(text)

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        return [Reply(self._answer(ask)) for ask in asks]

    def _answer(self, ask: Ask) -> str:
        key = ask.episode.partition("-")[2].rsplit("-", 2)[0]
        actions = self._actions.get((key, ask.seat), [])
        return actions[ask.turn] if ask.turn < len(actions) else ""


def _broken_env(maker: Callable[[], Env], plan: Faults) -> Env:
    return FaultyWrapper(maker(), plan)


def _play(case: Subject, plan: Faults, agent: BaseAgent, **options: Any) -> list[Episode]:
    """Play the case's seeds under a plan."""
    made = options.pop("made", partial(_broken_env, case.maker, plan))
    jobs = [Job(made, seed, key=str(seed)) for seed in case.seeds]
    limits = Limits(turns=min(TURNS, case.turns), call_s=options.pop("call_s", None))
    return rollout(jobs, agent, limits=limits, **{"host": "serial", **options})


def _free(case: Subject) -> tuple[_Recorded, dict[int, str]]:
    """Return an agent that plays the recorded actions, and the hashes of episodes without faults."""
    agent = _Recorded({str(seed): _record(case, seed) for seed in case.seeds})
    return agent, {e.seed: e.transcript_hash() for e in _play(case, Faults(), agent)}


def _judge(episode: Episode, free: dict[int, str], boundary: str, what: str, case: Subject) -> None:
    """Raise Broken if an episode with a fault has a score that it does not have without the fault."""
    change = "let errors go on to the caller, NoVerdict or what was raised: never a reward in their place"
    if episode.verdict is Verdict.SCORED:
        deterministic = case.claims is None or case.claims.deterministic
        if deterministic and episode.transcript_hash() != free[episode.seed]:
            raise Broken(f"{what}: seed {episode.seed} was scored {episode.reward():g} all the same", change)
    elif episode.error is not None and episode.error.boundary != boundary:
        raise Broken(f"{what}: the record says {episode.error}", change)


class _Watched:
    """A plan that counts its faults."""

    def __init__(self, plan: Faults) -> None:
        self.plan = plan
        self.struck = 0

    def attempt(self, boundary: Boundary, key: object) -> int:
        return self.plan.attempt(boundary, key)

    def find(self, boundary: Boundary, key: object, attempt: int, moment: int) -> Fault | None:
        fault = self.plan.find(boundary, key, attempt, moment)
        self.struck += fault is not None
        return fault


class _FaultyShared(dict[Any, Sandbox]):
    """The process's sandboxes, as faulty ones."""

    def __init__(self, given: dict[Any, Sandbox], plan: _Watched) -> None:
        super().__init__(given)
        self.given, self.plan = given, plan

    def __getitem__(self, key: Any) -> Sandbox:
        return cast(Sandbox, FaultySandbox(super().__getitem__(key), cast(Faults, self.plan)))

    def __setitem__(self, key: Any, value: Sandbox) -> None:
        self.given[key] = value  # it stays open for later
        super().__setitem__(key, value)


@contextmanager
def faulty_sandboxes(plan: _Watched) -> Iterator[None]:
    """Replace the process's shared sandbox within the block by one that breaks according to a plan."""
    with shared._lock:
        given = shared._shared
        shared._shared = _FaultyShared(given, plan)
    try:
        yield
    finally:
        with shared._lock:
            shared._shared = given


def _tool_wrappers(env: Env) -> list[ToolEnvWrapper]:
    wrappers: list[ToolEnvWrapper] = []
    while isinstance(env, EnvWrapper):
        if isinstance(env, ToolEnvWrapper):
            wrappers.append(env)
        env = env.env
    return wrappers


def _call_of(tool: BaseTool) -> str:
    """Return an action that calls a tool, with arguments of the types it asks for."""
    return write_call(tool.name, make_arguments(tool.arguments))


# -- the rules


@fault_rule
def no_false_zero(case: Subject) -> None:
    """If the environment or the agent breaks, an episode has no verdict, or the same as without the fault."""
    agent, free = _free(case)
    kinds: Sequence[tuple[Boundary, Kind]] = [
        ("env", "fail"),
        ("env", "raise"),
        ("env", "garbage"),
        ("agent", "fail"),
        ("agent", "raise"),
        ("agent", "garbage"),
    ]
    for boundary, kind in kinds:
        for at in (0, 1):
            plan = Faults((Fault(boundary, kind, at=at, form=at),))
            breaks = FaultyAgent(agent, plan) if boundary == "agent" else agent
            for episode in _play(case, plan if boundary == "env" else Faults(), breaks):
                _judge(episode, free, boundary, f"{kind} at {boundary}, moment {at}", case)
            breaks.close()


@fault_rule
def broken_off(case: Subject) -> None:
    """After a step was interrupted in the author's own code, the environment can be reset and closed."""
    case.deterministic()
    change = "let reset() set everything anew, and close() take an instance in any state"
    for seed in case.seeds:
        wanted = transcript(case.make(), seed, min(TURNS, case.turns), _player)
        for number in range(1, INSIDE + 1):
            env = case.make()
            env.reset(seed=seed)
            try:
                with _falling_inside(env, number):
                    env.step(wanted[1][0] if len(wanted) > 1 else everybody(env, ""))
            except Fell:
                pass
            except Exception as error:
                if not isinstance(error, errors.GemError):
                    what = f"seed {seed}: cut off at its inner call {number}, step() raised {error!r:.200}"
                    raise Broken(what, "do not turn an error into another one") from error
            else:
                break  # it makes fewer calls
            try:
                again = transcript(env, seed, min(TURNS, case.turns), _player)
                env.close()
                env.close()
            except Exception as error:
                what = f"seed {seed}: cut off at its inner call {number}, then {error!r:.200} was raised"
                raise Broken(what, change) from error
            if first_difference := difference(wanted, again):
                raise Broken(
                    f"seed {seed}: after a step that was cut off, reset gave {first_difference}", change
                )


@contextmanager
def _falling_inside(env: Env, number: int) -> Iterator[None]:
    """Within the block, raise Fell at the n-th call of a function of the environment's own modules."""
    kinds = [kind for kind in type(env.unwrapped).__mro__ if issubclass(kind, Env) and kind is not Env]
    files = {getattr(sys.modules.get(kind.__module__), "__file__", None) for kind in kinds} - {None}
    left, before = number, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal left
        if event == "call" and frame.f_code.co_filename in files:
            left -= 1
            if not left:
                raise Fell(f"cut off on purpose in {frame.f_code.co_name}()")

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@fault_rule
def broken_tools(case: Subject) -> None:
    """A failed tool gives no verdict, whatever it raises or returns; afterwards reset and close work."""
    if not _tool_wrappers(case.make()):
        raise Skip("it carries no tools (ToolEnvWrapper)")
    change = "let the tool's failure go on to the caller; ToolError is for what the agent did wrong"
    for kind, form in (("fail", 0), ("raise", 0), *(("garbage", form) for form in range(4))):
        env = case.make()
        plan = _Watched(Faults((Fault("tool", cast(Kind, kind), times=EVER, form=form),)))
        for wrapper in _tool_wrappers(env):
            wrapper.tools = [FaultyTool(tool, cast(Faults, plan)) for tool in wrapper.tools]
        for tool in [each for wrapper in _tool_wrappers(env) for each in wrapper.tools]:
            env.reset(seed=case.seeds[0])
            struck, step = plan.struck, None
            with suppress(errors.NoVerdict, Fell):
                step = env.step(_call_of(tool))
            if step is not None and plan.struck > struck:
                what = f"{kind} of the tool {tool.name!r}: step() went on, reward {step.reward}"
                raise Broken(what, change)
        env.reset(seed=case.seeds[0])
        env.close()


@fault_rule
def broken_sandbox(case: Subject) -> None:
    """A failed sandbox gives no verdict, whatever it raises or returns; afterwards reset and close work."""
    change = (
        "let SandboxFailed go on to the caller; check a Result (gem.sandbox.base.check_result) before scoring"
    )
    used = False
    wanted = {seed: _record(case, seed) for seed in case.seeds}
    kinds = [("fail", 0), ("raise", 0), *(("garbage", form) for form in range(8))]
    for seed in case.seeds:
        for kind, form in kinds:
            for at in (None, 1):
                fault = Fault("sandbox", cast(Kind, kind), at=at, times=EVER, form=form)
                plan = _Watched(Faults((fault,)))
                with faulty_sandboxes(plan):
                    came = _came_to(case, seed, wanted[seed])
                used = used or plan.struck > 0
                what = f"{kind} of the sandbox (form {form}), seed {seed}"
                if plan.struck and not isinstance(came, Exception):
                    raise Broken(f"{what}: the episode went on and earned {came:g}", change)
                if plan.struck and kind == "fail" and not isinstance(came, errors.NoVerdict):
                    raise Broken(f"{what}: it became {came!r:.200}", change)
        if not used:
            raise Skip("it runs nothing in the shared sandbox")
    for seed in case.seeds:
        if first_difference := difference(wanted[seed], _record(case, seed)):
            raise Broken(f"after the sandbox had failed, seed {seed}: {first_difference}", change)


def _came_to(case: Subject, seed: int, played: Transcript) -> float | Exception:
    """Return what tool calls and recorded actions earn, or the error that they end in."""
    total = 0.0
    try:
        env = case.make()
        env.reset(seed=seed)
        tools = [tool for wrapper in _tool_wrappers(env) for each in wrapper.tools for tool in each.offered()]
        for action in (*map(_call_of, tools), *(turn[0] for turn in played[1:])):
            step: tuple[Any, ...] = env.step(action)
            total += sum(step[1].values()) if isinstance(step[1], dict) else step[1]
            if step[2] is True or step[3] is True:
                break
    except Exception as error:  # NoVerdict, or what the sandbox raised: no verdict either way
        return error
    return total


@fault_rule
def hangs_are_cut_off(case: Subject) -> None:
    """A call that hangs is abandoned after `call_s`, and its episode has no verdict."""
    if case.claims and not case.claims.thread_safe:
        raise Skip("it does not claim to be thread-safe")
    began = perf_counter()
    agent, _ = _free(case)
    call_s = LEAST_CALL_S + perf_counter() - began  # more than any of its calls takes
    plan = Faults((Fault("env", "hang", at=1, times=EVER, seconds=60 * call_s),))
    try:
        began = perf_counter()
        episodes = _play(case, plan, agent, host="thread", call_s=call_s, retries=0)
        took = perf_counter() - began
    finally:
        release()
    for episode in episodes:
        if episode.scored or episode.error is None or episode.error.boundary != "host":
            raise Broken(f"seed {episode.seed} hung and came to {episode.error or episode.stop}", "")
    if took > SLACK * call_s:
        raise Broken(f"it took {took:.1f} s with call_s={call_s:.1f}", "do not wait in close() for a call")


@fault_rule
def dying_workers(case: Subject) -> None:
    """An episode whose process is killed is played again, with the same result."""
    claims = _elsewhere(case)
    agent, free = _free(case)
    with TemporaryDirectory() as folder:
        plan = Faults((Fault("worker", "die", at=1),), folder=folder)
        made = partial(_broken_env, registry.Maker(claims), plan)
        for episode in _play(case, plan, agent, host="process", made=made):
            if not episode.scored:
                change = "let an environment be made twice at a time: nothing of it is locked for others"
                raise Broken(f"seed {episode.seed}, its process killed once: {episode.error}", change)
            _judge(episode, free, "host", "its process killed once", case)


@fault_rule
def nothing_left_behind(case: Subject) -> None:
    """Episodes, broken or whole, leave no open file, thread or process after their environment is closed."""
    agent, _ = _free(case)
    plans = [Faults((Fault("env", "raise", at=at, times=EVER),)) for at in (1, 2, EVER)]

    def break_and_close() -> None:
        for plan in plans:
            _play(case, plan, agent)

    for _ in range(2):  # what is shared in the process is there by then
        break_and_close()
    before = count_held()
    for _ in range(AGAIN):
        break_and_close()
    after = held_after(before, 3.0)
    one, other = asdict(before), asdict(after)
    left = [f"{other[what] - one[what]} {what}" for what in one if other[what] - one[what] >= AGAIN]
    if left:
        leaks = ", ".join(left)
        raise Broken(
            f"{AGAIN * len(plans) * len(case.seeds)} episodes left {leaks}", "release them in close()"
        )
