"""BaseAgent: an agent defines one of the two calls of `gem.record.Agent`, the other follows."""

from __future__ import annotations

import asyncio
import traceback
import types
from collections.abc import Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Lock, Thread
from time import perf_counter
from typing import Any, ClassVar, Self, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from gem.errors import AgentUnavailable, BadArgument, NoVerdict, OutOfTime
from gem.record import Agent, AgentInfo, Ask, Reply

Answer: TypeAlias = Reply | BaseException
Waiting: TypeAlias = "list[tuple[Ask, asyncio.Future[Reply]]]"
T = TypeVar("T")
_starting = Lock()  # two threads may need an agent's loop at once


class BatchBroken(NoVerdict):
    """Some asks of a batch failed. `answers` holds, in order, a Reply or the error that an ask met.

    Drivers give each episode its own; the episodes of the asks that were answered go on.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        """Keep what each ask came to."""
        super().__init__(list(answers))
        self.answers = list(answers)

    def __str__(self) -> str:
        """How many failed, and the first error."""
        errors = [answer for answer in self.answers if isinstance(answer, BaseException)]
        first = f": {type(errors[0]).__name__}: {errors[0]}" if errors else ""
        return f"{len(errors)} of {len(self.answers)} asks failed{first}"


class BaseAgent:
    """An agent. Subclasses define ``__call__(asks)`` or ``async ask(ask)``.

    The derived ``ask`` collects the asks that arrive in one turn of the event loop and answers them as one
    batch. The derived ``__call__`` asks all at once, in an event loop of its own, so that it works inside a
    running loop too. Agents that keep something per episode drop it in `forget`.

    What an agent raises breaks the episodes that it was asked for. Where that is AgentUnavailable, nobody can
    be answered any more: the run stops, and what was not played stays so. A batch that an exception broke is
    asked again in halves, until those that break it are alone: 2n - 1 calls at most, for n asks that all do.
    An agent that can tell says so with BatchBroken, and is not asked again.
    """

    verb: ClassVar[str | None] = None
    """For an agent that is the environment's own: the verb, such as ``solve``, that a driver calls on the
    environment for every action, wherever it lives. Such an agent is never asked."""

    keeps_time: bool = False
    """Whether `ask` keeps to `Ask.policy_s` itself and sets `Reply.policy_s`. Else whoever asks measures from
    the question to the answer, which counts the wait for a free place too."""

    splits_batches: bool = True
    """Whether a batch that an exception broke may be asked again in halves. Not where a call is paid for, or
    where asking twice is not the same as asking once."""

    policy_version: int | None = None
    """The version of the weights that answer now, where somebody counts them."""

    _waiting: Waiting | None = None
    _loop: LoopThread | None = None

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order.

        Raises:
            BatchBroken: when some of them failed.
        """
        if type(self).ask is BaseAgent.ask:
            raise NotImplementedError(f"{type(self).__name__} must define __call__(asks) or async ask(ask).")
        return settle(self.loop.run(self._ask_each(asks)))

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask, in a batch with the others of this moment."""
        if type(self).__call__ is BaseAgent.__call__:
            raise NotImplementedError(f"{type(self).__name__} must define __call__(asks) or async ask(ask).")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        waiting = self._waiting
        if waiting is not None and waiting[0][1].get_loop() is loop:
            waiting.append((ask, future))
        else:  # nobody waits, or somebody in another loop, whose answers do not come here
            self._waiting = waiting = [(ask, future)]
            loop.call_soon(self._answer_waiting, waiting)
        return await future

    @property
    def info(self) -> AgentInfo:
        """Who answers, with which model and settings, for the record of a run."""
        return AgentInfo(type(self).__name__)

    def publish(self, version: int, weights: Any = None) -> None:
        """Answer as policy `version` from now on; agents that hold a model take its `weights` as well.

        Raises:
            BadArgument: for weights, where the agent holds no model.
        """
        if weights is not None:
            raise BadArgument(f"{type(self).__name__} holds no model to load weights into; leave them out.")
        self.policy_version = version

    def forget(self, episode: str) -> None:
        """Drop what is kept for `episode`."""

    def close(self) -> None:
        """Release what the agent holds. Calling it twice is harmless."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    def __enter__(self) -> Self:
        """Return self; leaving the block closes."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()

    @property
    def loop(self) -> LoopThread:
        """The agent's own event loop, started when it is first needed."""
        with _starting:
            if self._loop is None:
                self._loop = LoopThread()
            return self._loop

    async def _ask_each(self, asks: Sequence[Ask]) -> list[Answer]:
        """Ask all at the same time; once nobody can be answered, the others are not waited for."""
        gone: list[AgentUnavailable] = []

        async def ask_one(ask: Ask) -> Reply:
            try:
                return await timed(self, ask)
            except AgentUnavailable as error:
                if not gone:
                    gone.append(error)
                    for other in tasks:
                        other.cancel()  # this one is at its end, which no cancelling changes
                raise

        tasks = [asyncio.ensure_future(ask_one(ask)) for ask in asks]
        answers: list[Answer] = await asyncio.gather(*tasks, return_exceptions=True)
        if gone:
            return [gone[0] if isinstance(each, asyncio.CancelledError) else each for each in answers]
        return answers

    def _answer_waiting(self, waiting: Waiting) -> None:
        if self._waiting is waiting:
            self._waiting = None
        waiting = [(ask, future) for ask, future in waiting if not future.done()]  # some were cancelled
        if not waiting:
            return
        began = perf_counter()
        answers = batch_answers(self, [ask for ask, _ in waiting])
        hold_up(perf_counter() - began)
        for (_, future), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def answers_one_by_one(agent: Agent | Mapping[str, Agent]) -> bool:
    """Tell whether an agent, or one of several, answers each ask by itself, as an endpoint does."""
    each = agent.values() if isinstance(agent, Mapping) else (agent,)
    return any(
        isinstance(one, BaseAgent) and one.verb is None and type(one).__call__ is BaseAgent.__call__
        for one in each
    )


def settle(answers: Sequence[Answer]) -> list[Reply]:
    """Return the replies when every ask was answered.

    Raises:
        BatchBroken: with all the answers, when some ask was not.
    """
    replies = [answer for answer in answers if not isinstance(answer, BaseException)]
    if len(replies) < len(answers):
        raise BatchBroken(answers)
    return replies


class _Meter:
    """How long an event loop was held up: by environments in it, by batches, by asks that compute."""

    __slots__ = ("__weakref__", "held_s")

    def __init__(self) -> None:
        self.held_s = 0.0


_meters: WeakKeyDictionary[asyncio.AbstractEventLoop, _Meter] = WeakKeyDictionary()


def _meter() -> _Meter:
    loop = asyncio.get_running_loop()
    found = _meters.get(loop)
    if found is None:
        found = _meters[loop] = _Meter()
    return found


def hold_up(seconds: float) -> None:
    """Note that the running event loop was busy for so long; no ask that waits is charged for it."""
    _meter().held_s += seconds


class _Clock:
    """The time that one ask takes, without that in which its event loop was held up by something else."""

    __slots__ = ("before", "began", "meter", "own_s")

    def __init__(self) -> None:
        self.meter = _meter()
        self.began, self.before, self.own_s = perf_counter(), self.meter.held_s, 0.0

    @property
    def spent(self) -> float:
        return perf_counter() - self.began - (self.meter.held_s - self.before) + self.own_s

    @types.coroutine
    def ask(self, agent: Any, ask: Ask) -> Generator[Any, Any, Reply]:
        """Ask, and note how long the agent computes between two waits: that holds the loop up for others."""
        work = agent.ask(ask)
        if not asyncio.iscoroutine(work):
            reply: Reply = yield from work.__await__()
            return reply
        how: Any = work.send
        value: Any = None
        while True:
            began = perf_counter()
            try:
                waits_for = how(value)
            except StopIteration as end:
                reply = end.value
                return reply
            finally:
                took = perf_counter() - began
                self.own_s += took
                self.meter.held_s += took
            try:
                how, value = work.send, (yield waits_for)
            except GeneratorExit:
                work.close()
                raise
            except BaseException as error:
                how, value = work.throw, error


async def timed(agent: Any, ask: Ask) -> Reply:
    """Ask once, for no longer than `ask.policy_s`, and say in the reply how long it took.

    What the event loop does for others meanwhile does not count, as far as it is known: calls of environments
    that live in it, batches, and other asks that compute.

    Raises:
        OutOfTime: when that time is spent.
    """
    if getattr(agent, "keeps_time", False) or _in_batches(agent):
        reply: Reply = await agent.ask(ask)
        return reply
    clock = _Clock()
    if ask.policy_s is None:
        answer = await clock.ask(agent, ask)
    else:
        answer = await _within(ask.policy_s, clock, agent, ask)
    return _took(answer, clock.spent)


async def _within(policy_s: float, clock: _Clock, agent: Any, ask: Ask) -> Reply:
    """Ask, and give up when the clock says so."""

    async def work() -> Reply:
        return await clock.ask(agent, ask)

    task = asyncio.ensure_future(work())
    try:
        while not task.done() and (left := policy_s - clock.spent) > 0:
            await asyncio.wait((task,), timeout=left)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # heard: it comes too late
    raise OutOfTime(f"the agent took more than the {policy_s:.3g} s that were left.")


def _in_batches(agent: Any) -> bool:
    """Tell whether an agent answers batches alone, which cannot be cut short for one of them."""
    return isinstance(agent, BaseAgent) and type(agent).ask is BaseAgent.ask


def _took(reply: Reply, policy_s: float) -> Reply:
    """Return a reply that says how long it took, where it does not yet."""
    if type(reply) is Reply and reply.policy_s is None:  # written out, because turns are many
        return Reply(
            reply.text,
            reply.prompt_ids,
            reply.token_ids,
            reply.logprobs,
            reply.finish,
            reply.policy_version,
            tool_calls=reply.tool_calls,
            reasoning=reply.reasoning,
            usage=reply.usage,
            extra=reply.extra,
            policy_s=policy_s,
        )
    if isinstance(reply, Reply) and reply.policy_s is None:
        return replace(reply, policy_s=policy_s)
    return reply


def batch_answers(agent: Any, asks: Sequence[Ask]) -> list[Answer]:
    """Ask for a whole batch and return, for each ask, its reply or the error that it met.

    A batch that an exception breaks, or that gets another number of replies, is asked again in halves until
    those that break it are alone, unless the agent wants none of it (`BaseAgent.splits_batches`). Each reply
    says how long its answer took: where the agent does not, an equal share of the call that gave it.
    """
    answers, told = _batch(agent, asks)
    if told or len(asks) == 1 or not getattr(agent, "splits_batches", True):
        return answers
    _let_go(answers)
    middle = len(asks) // 2
    first = batch_answers(agent, asks[:middle])
    gone = unavailable(first)
    if gone is not None:
        return [*first, *[gone] * (len(asks) - middle)]
    _let_go(first)
    return first + batch_answers(agent, asks[middle:])


def _let_go(answers: Sequence[Answer]) -> None:
    """Free what the frames of errors hold, which may be the memory that there was too little of."""
    errors = {id(answer): answer for answer in answers if isinstance(answer, BaseException)}
    for first in errors.values():
        error: BaseException | None = first
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def _batch(agent: Any, asks: Sequence[Ask]) -> tuple[list[Answer], bool]:
    """Ask once; return the answers, and whether these are the asks' own: else they stand for the batch."""
    began = perf_counter()
    told = True
    try:
        answers: list[Answer] = list(agent(asks))
        told = len(answers) == len(asks)
    except BatchBroken as broken:
        answers = broken.answers
    except (AgentUnavailable, asyncio.CancelledError, GeneratorExit) as error:
        answers = [error] * len(asks)
    except Exception as error:
        answers, told = [error] * len(asks), False
    if len(answers) != len(asks):
        wrong = NoVerdict(f"the agent answered {len(asks)} asks with {len(answers)} replies.")
        return [wrong] * len(asks), told
    share = (perf_counter() - began) / len(asks)
    return [
        carried(answer) if isinstance(answer, BaseException) else _took(answer, share) for answer in answers
    ], told


def unavailable(answers: Sequence[Any]) -> AgentUnavailable | None:
    """Return what says that nobody can be answered any more, where one of the answers does."""
    return next((answer for answer in answers if isinstance(answer, AgentUnavailable)), None)


def carried(error: BaseException) -> BaseException:
    """Return an error as generators and futures can carry it: some would look like their own end."""
    if isinstance(error, StopIteration | GeneratorExit):  # an exhausted script
        return RuntimeError(f"the agent raised {type(error).__name__}: {error}")
    return error


class LoopThread:
    """An event loop in a thread of its own, for callers that cannot await."""

    def __init__(self) -> None:
        """Start it."""
        self._loop = asyncio.new_event_loop()
        self._ended = False
        self._thread = Thread(target=self._run, name="gem-agent-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended:
            with suppress(BaseException):  # of exit() or Ctrl-C in a task, whoever waits for the task is told
                self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` there and wait for it; when the wait is interrupted, so is the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is still running and end the thread. Calling it twice is harmless."""
        if self._loop.is_closed():
            return
        self.submit(_wind_up()).result()
        self._ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _wind_up() -> None:
    """Cancel the loop's other tasks and close its generators, as asyncio.run() does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
