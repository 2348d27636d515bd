"""Fault injection: wrappers that make environments, tools, agents and other parts break on purpose.

A plan, `Faults`, defines what breaks, where and when. One wrapper per boundary injects it into a real
environment, tool, sandbox, grader, agent, endpoint or store. A plan's decisions depend only on its seed, the
episode, the attempt and the turn, so a run with faults is reproducible on every host.
"""

from __future__ import annotations

import asyncio
import errno
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import count
from os import PathLike
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast

from gem import seeding
from gem.agents.base import BaseAgent, settle
from gem.core import Env, EnvWrapper, Start, Step
from gem.errors import BadArgument, NoVerdict, StoreError, check_argument
from gem.graders.base import Grader, Score, grade_with
from gem.record import Agent, AgentInfo, Ask, Episode, Reply
from gem.sandbox.base import Budget, Case, Result, Sandbox, SandboxFailed, Session
from gem.specs import Rebuildable
from gem.testing import garbage, stub_server
from gem.testing.stub_server import StubServer
from gem.tools.base_tool import BaseTool, ToolResult

Boundary = Literal["env", "worker", "tool", "sandbox", "grader", "agent", "endpoint", "store"]
Kind = Literal["fail", "raise", "hang", "slow", "garbage", "die", "full-disk", "half-written"]

KINDS: Mapping[Boundary, tuple[Kind, ...]] = MappingProxyType(
    {
        "env": ("fail", "raise", "hang", "slow", "garbage", "full-disk"),
        "worker": ("die", "hang", "garbage"),
        "tool": ("fail", "raise", "hang", "slow", "garbage", "full-disk"),
        "sandbox": ("fail", "raise", "hang", "slow", "garbage", "die", "full-disk"),
        "grader": ("fail", "raise", "hang", "slow", "garbage"),
        "agent": ("fail", "raise", "hang", "slow", "garbage"),
        "endpoint": ("fail", "die", "hang", "slow", "garbage", "half-written"),
        "store": ("fail", "raise", "slow", "full-disk", "half-written"),
    }
)
"""What can happen at each boundary."""

HANG_S = 60.0
"""Seconds for which a fault hangs if it is not released."""

SLOW_S = 0.05
"""Seconds by which a slow fault is late."""


class Fell(RuntimeError):
    """An unexpected error, raised by the kind ``raise``."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that breaks.

    `kind`: ``fail`` raises the boundary's own error (NoVerdict, SandboxFailed, StoreError, status 500),
    ``raise`` an unexpected one; ``hang`` waits until `release` or for `seconds`; ``slow`` is `seconds` late;
    ``garbage`` returns a value of a wrong type or shape, chosen by `form`; ``die`` kills the process;
    ``full-disk`` raises ENOSPC, in a store after `form` bytes are written; ``half-written`` kills the process
    in the middle of a line.

    `at`: the moment; None: every moment. For an environment, 0 is the reset and 1 the first step; for an
    agent, it is the turn; for a tool or a sandbox session, the number of the call in the episode. `times`:
    how many attempts of an episode it affects, from the first. `of`: the affected episodes, () for all: their
    seeds; for an agent or a store, the keys of their jobs; for a sandbox, a grader or an endpoint, words in
    its input.
    """

    boundary: Boundary
    kind: Kind
    at: int | None = None
    times: int = 1
    of: Sequence[int | str] = ()
    seconds: float | None = None
    form: int = 0

    def __post_init__(self) -> None:
        """Refuse a fault that can never happen."""
        check_argument("boundary", self.boundary, self.boundary in KINDS, ", ".join(KINDS))
        if self.kind not in KINDS[self.boundary]:
            accepted = ", ".join(KINDS[self.boundary])
            raise BadArgument(f"kind is {self.kind!r} at {self.boundary!r}; accepted: {accepted}.")
        if (self.at is not None and self.at < 0) or self.times < 1:
            raise BadArgument(f"got at={self.at}, times={self.times}; accepted: 0 or more, 1 or more.")

    def hits(self, key: str, attempt: int, moment: int) -> bool:
        """Return whether the fault happens to `key` at a moment of an attempt; see Faults.find."""
        if attempt >= self.times or self.at not in (None, moment):
            return False
        return not self.of or any(self._means(each, key) for each in self.of)

    def _means(self, each: int | str, key: str) -> bool:
        if self.boundary in ("sandbox", "grader", "endpoint"):
            return str(each) in key
        if self.boundary == "tool":  # a tool is told a seed that follows from the episode's
            return any(str(seeding.derive(int(each), "tool", number)) == key for number in range(8))
        return str(each) == key


class _Counts:
    """Counters by name; a copy, also in another process, starts at 0."""

    def __init__(self) -> None:
        self._counts: dict[str, Iterator[int]] = {}

    def next(self, name: str) -> int:
        return next(self._counts.setdefault(name, count()))

    def __reduce__(self) -> tuple[type[_Counts], tuple[()]]:
        return _Counts, ()


@dataclass(frozen=True, slots=True)
class Faults:
    """A plan of faults: the listed `faults`, and random ones.

    `rate`: the share of an episode's attempts with a random fault, at every boundary or by boundary. It
    happens at one of the first `within` moments (a number, or by boundary), if the episode gets that far.
    `kinds`: the random kinds by boundary; by default all that do not stop a run (not a hang, a death, or a
    full disk). Attempts are counted in this process, or in a `folder` if several processes share a plan:
    retries on the process host are attempts of other processes. Give each job its own seed: two jobs with the
    same seed count as two attempts.
    """

    faults: tuple[Fault, ...] = ()
    rate: float | Mapping[str, float] = 0.0
    kinds: Mapping[str, Sequence[Kind]] = field(default_factory=dict)
    seed: int = 0
    within: int | Mapping[str, int] = 4
    folder: str = ""
    _counts: _Counts = field(default_factory=_Counts, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse invalid rates, kinds and moments."""
        object.__setattr__(self, "faults", tuple(self.faults))
        rates = self.rate if isinstance(self.rate, Mapping) else {"env": self.rate}
        for boundary, rate in rates.items():
            if boundary not in KINDS or not 0 <= rate <= 1:
                raise BadArgument(f"rate is {rate} at {boundary!r}; accepted: 0 to 1 at {', '.join(KINDS)}.")
        for boundary, kinds in self.kinds.items():
            for kind in kinds:
                Fault(cast(Boundary, boundary), kind)
        if any(self._within(boundary) < 1 for boundary in KINDS):
            raise BadArgument(f"within is {self.within}; accepted: 1 or more moments.")

    def _within(self, boundary: Boundary) -> int:
        return self.within.get(boundary, 4) if isinstance(self.within, Mapping) else self.within

    def attempt(self, boundary: Boundary, key: object) -> int:
        """Count one more attempt of `key` at a boundary, and return its number, from 0."""
        name = f"{boundary}-{_digest(str(key)).hex()}"
        if not self.folder:
            return self._counts.next(name)
        fd = os.open(Path(self.folder) / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b".")
            return os.lseek(fd, 0, os.SEEK_CUR) - 1  # an append ends where its own byte stands
        finally:
            os.close(fd)

    def find(self, boundary: Boundary, key: object, attempt: int, moment: int) -> Fault | None:
        """Return the fault at a boundary for `key` (an episode) at a moment of an attempt, or None."""
        for fault in self.faults:
            if fault.boundary == boundary and fault.hits(str(key), attempt, moment):
                return fault
        rate = self.rate.get(boundary, 0.0) if isinstance(self.rate, Mapping) else self.rate
        if not rate:
            return None
        drawn = _digest(f"{self.seed}/{boundary}/{key}/{attempt}")
        if int.from_bytes(drawn[:8], "big") >= rate * 2**64 or drawn[8] % self._within(boundary) != moment:
            return None
        kinds = self.kinds.get(boundary) or [kind for kind in KINDS[boundary] if kind not in _STOPPING]
        return Fault(boundary, kinds[drawn[9] % len(kinds)], form=drawn[10])


_STOPPING = ("hang", "die", "full-disk", "half-written")


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class _Hanging:
    """The event for which all hanging calls of this process wait."""

    event = Event()


def release() -> None:
    """Release everything that hangs in this process."""
    _Hanging.event.set()
    _Hanging.event = Event()


def _strike(fault: Fault | None, own: type[Exception] = NoVerdict) -> Fault | None:
    """Make a fault happen; garbage is returned instead, for the caller to make."""
    if fault is None or fault.kind == "garbage":
        return fault
    what = f"broken on purpose: {fault.kind} at {fault.boundary}"
    if fault.kind == "fail":
        raise own(what)
    if fault.kind == "raise":
        raise Fell(what)
    if fault.kind == "full-disk":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if fault.kind == "die":
        kill_process()
    elif fault.kind == "hang":
        _Hanging.event.wait(fault.seconds or HANG_S)
    else:
        sleep(fault.seconds or SLOW_S)
    return None


def kill_process(how: int = signal.SIGKILL) -> None:
    """Send this process a signal that ends or stops it.

    Raises:
        BadArgument: in the main process, because that would end the whole run.
    """
    if multiprocessing.parent_process() is None:
        raise BadArgument("this fault would end the main process; it is for a process host.")
    os.kill(os.getpid(), how)


# -- environments and their workers


class FaultyWrapper(EnvWrapper):
    """A real environment that breaks by a plan: itself (``env``), or its process (``worker``).

    It is importable, so a task can name it and use it on every host::

        Maker("game:GuessTheNumber-v0-easy", wrappers=(partial(FaultyWrapper, plan=plan),))

    A fault replaces the call that it affects; a slow one comes before the call.
    """

    shared: ClassVar[tuple[str, ...]] = ("plan",)

    wraps_seats: ClassVar[bool] = True

    def __init__(self, env: Env, plan: Faults) -> None:
        """Wrap `env`."""
        super().__init__(env)
        self.plan = plan
        self._attempt = self._moment = 0

    def reset(self, seed: int | None = None, **options: Any) -> Start:
        """Begin an episode, or break."""
        start = self.env.reset(seed=seed, **options)
        self._attempt = self.plan.attempt("env", self.env.seed)
        self._moment = 0
        given = self._break(garbage.STARTS)
        return start if given is _NOTHING else given

    def step(self, action: str) -> Step:
        """Take a step, or break."""
        self._moment += 1
        given = self._break(garbage.STEPS)
        return self.env.step(action) if given is _NOTHING else given

    def _break(self, forms: Sequence[Any]) -> Any:
        """Let happen what the plan says; return what stands in place of a result, if anything does."""
        key, attempt, moment = self.env.seed, self._attempt, self._moment
        if (fault := self.plan.find("worker", key, attempt, moment)) is not None:
            if fault.kind == "garbage":
                return Step(garbage.Unloadable(), 0.0, True, False, {})
            kill_process(signal.SIGKILL if fault.kind == "die" else signal.SIGSTOP)
        fault = _strike(self.plan.find("env", key, attempt, moment))
        return _NOTHING if fault is None else forms[fault.form % len(forms)]


_NOTHING = object()


# -- tools and graders


class FaultyTool(BaseTool):
    """A real tool whose calls break by a plan.

    It counts the calls of its episode, so every environment needs its own, and cannot be forked. It does not
    support tools that parse actions with their own method, as upstream's do.
    """

    live = True

    def __init__(self, tool: BaseTool, plan: Faults) -> None:
        """Wrap `tool`."""
        super().__init__()
        self.tool, self.plan = tool, plan
        self.name, self.tag, self.fences = tool.name, tool.tag, tool.fences
        self.result_tag, self.parallel_safe = tool.result_tag, tool.parallel_safe
        self._key, self._attempt, self._calls = "", 0, count()
        self._inside: dict[str, FaultyTool] = {}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The JSON Schema of the wrapped tool's arguments."""
        return self.tool.arguments

    def schema(self) -> dict[str, Any]:
        """Return the schema of the wrapped tool."""
        return self.tool.schema()

    def instruction_string(self) -> str:
        """Return the instruction of the wrapped tool."""
        return self.tool.instruction_string()

    def call(self, **arguments: Any) -> ToolResult:
        """Call the wrapped tool, or break."""
        fault = _strike(self.plan.find("tool", self._key, self._attempt, next(self._calls)))
        if fault is not None:
            return cast(ToolResult, garbage.RESULTS[fault.form % len(garbage.RESULTS)])
        return self.tool.call(**arguments)

    def offered(self) -> Sequence[BaseTool]:
        """Return the tools that may be called: itself, or each tool of a toolbox, with the same faults."""
        return [self if each is self.tool else self._around(each) for each in self.tool.offered()]

    def _around(self, tool: BaseTool) -> FaultyTool:
        faulty = self._inside.setdefault(tool.name, FaultyTool(tool, self.plan))
        faulty._key, faulty._attempt, faulty._calls = self._key, self._attempt, self._calls
        return faulty

    def reset(self, seed: int) -> None:
        """Begin an episode."""
        self._key, self._calls = str(seed), count()
        self._attempt = self.plan.attempt("tool", seed)
        self.tool.reset(seed)

    def spawn(self) -> Self:
        """Return a new wrapper around what the wrapped tool spawns."""
        return type(self)(self.tool.spawn(), self.plan)

    def close(self) -> None:
        """Close the wrapped tool if this wrapper owns it."""
        if self.tool.live:
            self.tool.close()


class FaultyGrader(Rebuildable):
    """A real grader that breaks by a plan; a fault's words (`of`) are looked for in the answer."""

    def __init__(self, grader: Grader, plan: Faults) -> None:
        """Wrap `grader`."""
        self.grader, self.plan = grader, plan

    def __call__(self, answer: str, reference: Any, question: str | None = None) -> Score:
        """Score, or break."""
        fault = _strike(self.plan.find("grader", answer, self.plan.attempt("grader", answer), 0))
        if fault is not None:
            return cast(Score, garbage.SCORES[fault.form % len(garbage.SCORES)])
        return grade_with(self.grader, answer, reference, question)


# -- sandboxes


class FaultySandbox:
    """A real sandbox that breaks by a plan; a fault's words (`of`) are looked for in the program.

    ``die`` kills the processes of the sandbox, which it must notice by itself.
    """

    def __init__(self, sandbox: Sandbox, plan: Faults) -> None:
        """Wrap `sandbox`."""
        self.sandbox, self.plan = sandbox, plan
        self.backend = sandbox.backend

    def run(self, code: str, **options: Any) -> Result:
        """Run a program, or break."""
        given = self.breaks(code, self.plan.attempt("sandbox", code), 0, garbage.RUNS)
        return self.sandbox.run(code, **options) if given is _NOTHING else given

    def session(self, **options: Any) -> Session:
        """Open a session whose cells and commands break."""
        return cast(Session, _FaultySession(self, self.sandbox.session(**options)))

    def judge(
        self,
        code: str,
        cases: Sequence[Case],
        *,
        go_on: Callable[[int, Result], bool] | None = None,
        **options: Any,
    ) -> list[Result]:
        """Judge, or break."""
        given = self.breaks(code, self.plan.attempt("sandbox", code), 0, garbage.JUDGEMENTS)
        if given is _NOTHING:
            return self.sandbox.judge(code, cases, go_on=go_on, **options)
        for number, result in enumerate(given if isinstance(given, list) and go_on else ()):
            cast(Any, go_on)(number, result)
        return cast(list[Result], given)

    def report(self) -> Mapping[str, Any]:
        """Return the report of the wrapped sandbox."""
        return self.sandbox.report()

    def close(self) -> None:
        """Close the wrapped sandbox."""
        self.sandbox.close()

    def breaks(self, code: str, attempt: int, moment: int, forms: Sequence[Any]) -> Any:
        """Let happen what the plan says; return what stands in place of a result, if anything does."""
        fault = self.plan.find("sandbox", code, attempt, moment)
        if fault is not None and fault.kind == "die":
            for zygote in getattr(getattr(self.sandbox, "pool", None), "every", tuple)():
                zygote.kill()
            return _NOTHING
        fault = _strike(fault, SandboxFailed)
        return _NOTHING if fault is None else forms[fault.form % len(forms)]


class _FaultySession:
    """A session; its cells and commands are numbered, and its first one identifies it."""

    def __init__(self, sandbox: FaultySandbox, session: Session) -> None:
        self._sandbox, self._session = sandbox, session
        self._first, self._attempt, self._calls = "", 0, 0

    def execute(self, code: str, budget: Budget | None = None) -> Result:
        given = self._breaks(code)
        return self._session.execute(code, budget) if given is _NOTHING else given

    def shell(self, command: str, budget: Budget | None = None, *, clean: bool = False) -> Result:
        given = self._breaks(command)
        return self._session.shell(command, budget, clean=clean) if given is _NOTHING else given

    def fork(self) -> Session:
        twin = _FaultySession(self._sandbox, self._session.fork())
        twin._first, twin._attempt, twin._calls = self._first, self._attempt, self._calls
        return cast(Session, twin)

    def _breaks(self, code: str) -> Any:
        if not self._calls:
            self._first, self._attempt = code, self._sandbox.plan.attempt("sandbox", code)
        self._calls += 1
        return self._sandbox.breaks(self._first, self._attempt, self._calls - 1, garbage.RUNS)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._session, name)


# -- agents and endpoints


class FaultyAgent(BaseAgent):
    """A real agent whose answers break by a plan, called in batches or one by one.

    In a batch, a fault affects only its own request. The garbage of form `gem.testing.garbage.TOO_FEW` leaves
    its answer out, so that the batch must be repeated in parts. A fault finds its episode by its job's key.
    """

    def __init__(self, agent: Agent, plan: Faults) -> None:
        """Wrap `agent`; it must be an agent that gets requests, not a verb of the environment."""
        self.agent, self.plan = agent, plan

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch, or break."""
        answered = [ask for ask in asks if not self._left_out(ask)]
        return settle(self.loop.run(self._ask_each(answered)))

    async def ask(self, ask: Ask) -> Reply:
        """Answer, or break."""
        fault = self._fault(ask)
        waited = 0.0
        if fault is not None and fault.kind in ("hang", "slow"):
            waited = await _wait(fault)
        elif _strike(fault) is not None:
            return cast(Reply, (*garbage.REPLIES, None)[cast(Fault, fault).form % (garbage.TOO_FEW + 1)])
        reply = await self.agent.ask(ask)
        if waited and reply.policy_s is not None:  # an agent that says its time does not know of this
            reply = replace(reply, policy_s=reply.policy_s + waited)
        return reply

    def _fault(self, ask: Ask) -> Fault | None:
        job, attempt = _job_of(ask.episode)
        return self.plan.find("agent", job, attempt, ask.turn)

    def _left_out(self, ask: Ask) -> bool:
        fault = self._fault(ask)
        if fault is None or fault.kind != "garbage":
            return False
        return fault.form % (garbage.TOO_FEW + 1) == garbage.TOO_FEW

    @property
    def info(self) -> AgentInfo:
        """The info of the wrapped agent."""
        return getattr(self.agent, "info", None) or AgentInfo(type(self.agent).__name__)

    def forget(self, episode: str) -> None:
        """Make the wrapped agent drop the data of an episode."""
        self.agent.forget(episode)

    def close(self) -> None:
        """Close both."""
        super().close()
        if hasattr(self.agent, "close"):
            self.agent.close()


async def _wait(fault: Fault) -> float:
    """Be slow, or hang, in an event loop; return the seconds."""
    began, hanging = monotonic(), _Hanging.event
    if fault.kind == "slow":
        await asyncio.sleep(fault.seconds or SLOW_S)
    while fault.kind == "hang" and not hanging.is_set() and monotonic() - began < (fault.seconds or HANG_S):
        await asyncio.sleep(0.01)
    return monotonic() - began


def _job_of(episode: str) -> tuple[str, int]:
    """Return an episode's job and attempt, from its id: run-job-sample-attempt."""
    job, _, attempt = episode.partition("-")[2].rsplit("-", 2)
    return job, int(attempt)


class FaultyServer(StubServer):
    """A StubServer that breaks by a plan; a fault's words (`of`) are looked for in the request."""

    def __init__(self, answer: Any, plan: Faults) -> None:
        """Start to serve `answer`; see StubServer."""
        self.plan = plan
        super().__init__(answer)

    def record_request(
        self, body: stub_server.Body, path: str, headers: Mapping[str, str]
    ) -> stub_server.RawAnswer | None:
        """Record a request and return the fault that replaces its answer, or None."""
        given = super().record_request(body, path, headers)
        text = json.dumps(body, sort_keys=True)
        fault = self.plan.find("endpoint", text, self.plan.attempt("endpoint", text), 0)
        if fault is None:
            return given
        if fault.kind == "slow":
            sleep(fault.seconds or SLOW_S)
            return given
        if fault.kind == "hang":
            stalled = stub_server.RawAnswer(stall=Event())
            self._stalled.append(cast(Event, stalled.stall))
            return stalled
        if fault.kind == "fail":
            return stub_server.RawAnswer.error(500, "broken on purpose")
        if fault.kind == "half-written":
            whole = self.response(body, path)
            chunks = None if whole.chunks is None else [*whole.chunks][:1]
            return replace(whole, body=whole.body[: len(whole.body) // 2], chunks=chunks, cut=True)
        if fault.kind == "garbage":
            return stub_server.RawAnswer(body=garbage.BODIES[fault.form % len(garbage.BODIES)])
        return stub_server.RawAnswer(drop=True)


# -- stores


class FaultyStore:
    """A real episode store whose writes break by a plan; everything else is read from the wrapped store.

    ``full-disk`` lets the append write `form` bytes, then the disk is full. ``half-written`` kills the
    process in the middle of the line, so use it in a separate process.
    """

    def __init__(self, store: Any, plan: Faults) -> None:
        """Wrap `store`."""
        self.store, self.plan = store, plan

    def append(self, episode: Episode) -> None:
        """Write an episode, or break."""
        key = f"{episode.job}-{episode.sample}-{episode.attempt}"
        fault = self.plan.find("store", episode.job, self.plan.attempt("store", key), 0)
        if fault is not None and fault.kind == "full-disk":
            with full_disk(self.store.path, fault.form):
                self.store.append(episode)
        elif fault is not None and fault.kind == "half-written":
            with dying_write(self.store.path, max(1, fault.form)):
                self.store.append(episode)
        else:
            _strike(fault, StoreError)
            self.store.append(episode)

    def __getattr__(self, name: str) -> Any:
        """Read any other attribute from the wrapped store."""
        if name in ("store", "plan"):
            raise AttributeError(name)
        return getattr(self.store, name)

    def __len__(self) -> int:
        """Return the number of episodes."""
        return len(self.store)


@contextmanager
def full_disk(path: str | PathLike[str], after: int = 0) -> Iterator[None]:
    """Make `os.write` to the file at `path` fail with ENOSPC after `after` bytes, within the block.

    As on a real disk, the write that crosses the limit is partial, and the next one fails.
    """

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with _breaking_write(path, after, full):
        yield


@contextmanager
def dying_write(path: str | PathLike[str], after: int = 1) -> Iterator[None]:
    """Kill this process after `os.write` has written `after` bytes to the file at `path`, within the block.

    Raises:
        BadArgument: in the main process.
    """
    with _breaking_write(path, after, kill_process):
        yield


@contextmanager
def _breaking_write(path: str | PathLike[str], after: int, act: Callable[[], None]) -> Iterator[None]:
    real, left = os.write, after
    file = os.stat(path)

    def write(fd: int, data: Any, /) -> int:
        nonlocal left
        if not os.path.samestat(os.fstat(fd), file):
            return real(fd, data)
        part = bytes(data)[:left]
        if len(part) < len(data) and not part:
            act()
        taken = real(fd, part)
        left -= taken
        return taken

    os.write = write
    try:
        yield
    finally:
        os.write = real
