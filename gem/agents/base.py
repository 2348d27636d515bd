"""BaseAgent: a subclass defines one of the two calls of `gem.record.Agent` and gets the other one."""

from __future__ import annotations

import asyncio
import os
import traceback
import types
from collections.abc import Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Lock, Thread
from time import perf_counter
from typing import Any, ClassVar, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from gem.closing import Closing
from gem.errors import AgentUnavailable, BadArgument, NoVerdict, OutOfTime
from gem.record import Agent, AgentInfo, Ask, Reply

Answer: TypeAlias = Reply | BaseException
Waiting: TypeAlias = "list[tuple[Ask, asyncio.Future[Reply]]]"
T = TypeVar("T")
_starting = Lock()  # two threads may need an agent's loop at once


class BatchBroken(NoVerdict):
    """Some asks of a batch failed. `answers` has a Reply or an error for each ask, in order.

    Drivers pass each answer to its episode; the episodes whose asks were answered continue.
    """

    def __init__(self, answers: Sequence[Answer]) -> None:
        """Keep the reply or error of each ask."""
        super().__init__(list(answers))
        self.answers = list(answers)

    def __str__(self) -> str:
        """The number of failed asks, and the first error."""
        errors = [answer for answer in self.answers if isinstance(answer, BaseException)]
        first = f": {type(errors[0]).__name__}: {errors[0]}" if errors else ""
        return f"{len(errors)} of {len(self.answers)} asks failed{first}"


class BaseAgent(Closing):
    """An agent. Subclasses define ``__call__(asks)`` or ``async ask(ask)``.

    The derived ``ask`` collects the asks that arrive in one turn of the event loop and answers them as one
    batch. The derived ``__call__`` sends all asks at once, in its own event loop, so that it works inside a
    running loop too. Agents that keep data per episode drop it in `forget`.

    An exception of an agent breaks the episodes whose asks it was answering. AgentUnavailable means that no
    ask can be answered any more: the run stops, and the remaining episodes are not played. A batch that
    raised an exception is asked again in halves, until the failing asks are isolated: at most 2n - 1 calls,
    if all n asks fail. An agent that knows which asks failed raises BatchBroken, and is not asked again.
    """

    verb: ClassVar[str | None] = None
    """The method of the environment, such as ``solve``, that a driver calls for every action instead of
    asking the agent; None for all agents that are not part of the environment."""

    keeps_time: bool = False
    """Whether `ask` itself enforces `Ask.policy_s` and sets `Reply.policy_s`. If not, the caller measures the
    time from the ask to the reply, which includes waiting in a queue."""

    splits_batches: bool = True
    """Whether a batch that raised an exception may be asked again in halves. Set False where calls cost
    money, or where a second ask may change the result."""

    policy_version: int | None = None
    """The version of the current weights; None where versions are not counted."""

    weights: str = ""
    """A digest of the weights of a model from a folder or by name, until others are published."""

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
        """Answer one ask, in a batch with the asks that arrive at the same time."""
        if type(self).__call__ is BaseAgent.__call__:
            raise NotImplementedError(f"{type(self).__name__} must define __call__(asks) or async ask(ask).")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        waiting = self._waiting
        if waiting is not None and waiting[0][1].get_loop() is loop:
            waiting.append((ask, future))
        else:  # no ask waits in this loop; those of another loop are not answered here
            self._waiting = waiting = [(ask, future)]
            loop.call_soon(self._answer_waiting, waiting)
        return await future

    @property
    def info(self) -> AgentInfo:
        """The name, model and settings of the agent, for the record of a run."""
        return AgentInfo(type(self).__name__)

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy version of all later replies; an agent with a model also loads `weights`.

        Raises:
            BadArgument: for weights, when the agent has no model.
        """
        if weights is not None:
            raise BadArgument(f"{type(self).__name__} holds no model to load weights into; leave them out.")
        self.policy_version = version

    def forget(self, episode: str) -> None:
        """Drop the data kept for `episode`."""

    def close(self) -> None:
        """Release the agent's resources. Calling it twice is harmless."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.close()

    @property
    def loop(self) -> LoopThread:
        """The agent's own event loop, started when it is first needed."""
        with _starting:
            if self._loop is None or not self._loop.lives:
                self._loop = LoopThread()
            return self._loop

    async def _ask_each(self, asks: Sequence[Ask]) -> list[Answer]:
        """Ask all at the same time; after AgentUnavailable, cancel the asks that still wait."""
        gone: list[AgentUnavailable] = []

        async def ask_one(ask: Ask) -> Reply:
            try:
                return await ask_in_time(self, ask)
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
    """Return whether an agent, or one of several, answers each ask separately, as an endpoint does."""
    each = agent.values() if isinstance(agent, Mapping) else (agent,)
    return any(
        isinstance(one, BaseAgent) and one.verb is None and type(one).__call__ is BaseAgent.__call__
        for one in each
    )


def settle(answers: Sequence[Answer]) -> list[Reply]:
    """Return the replies, if every ask was answered.

    Raises:
        BatchBroken: with all answers, if some ask was not answered.
    """
    replies = [answer for answer in answers if not isinstance(answer, BaseException)]
    if len(replies) < len(answers):
        raise BatchBroken(answers)
    return replies


class _Meter:
    """The seconds for which an event loop was blocked: by environments, batches, or asks that compute."""

    __slots__ = ("__weakref__", "held_s")

    def __init__(self) -> None:
        self.held_s = 0.0


_meters: WeakKeyDictionary[asyncio.AbstractEventLoop, _Meter] = WeakKeyDictionary()


def _meter() -> _Meter:
    loop = asyncio.get_running_loop()
    meter = _meters.get(loop)
    if meter is None:
        meter = _meters[loop] = _Meter()
    return meter


def hold_up(seconds: float) -> None:
    """Record that the running event loop was blocked for `seconds`; waiting asks do not count that time."""
    _meter().held_s += seconds


class _Clock:
    """The time that one ask takes, without the time for which other work blocked its event loop."""

    __slots__ = ("before", "began", "meter", "own_s")

    def __init__(self) -> None:
        self.meter = _meter()
        self.began, self.before, self.own_s = perf_counter(), self.meter.held_s, 0.0

    @property
    def spent(self) -> float:
        return perf_counter() - self.began - (self.meter.held_s - self.before) + self.own_s

    @types.coroutine
    def ask(self, agent: Any, ask: Ask) -> Generator[Any, Any, Reply]:
        """Ask, and record how long the agent computes between two waits: this blocks the loop for others."""
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


async def ask_in_time(agent: Any, ask: Ask) -> Reply:
    """Ask once, with the time limit `ask.policy_s`, and set the reply's `policy_s` to the time it took.

    Other work of the event loop does not count, as far as it is known: calls of environments in the same
    loop, batches, and other asks that compute.

    Raises:
        OutOfTime: when the time is used up.
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
    """Ask, and stop when the time is used up."""

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
                task.exception()  # retrieved, so that asyncio does not warn about it
    raise OutOfTime(f"the agent took longer than the {policy_s:.3g} s left of its time limit.")


def _in_batches(agent: Any) -> bool:
    """Return whether an agent only answers batches, which cannot be stopped for a single ask."""
    return isinstance(agent, BaseAgent) and type(agent).ask is BaseAgent.ask


def _took(reply: Reply, policy_s: float) -> Reply:
    """Return the reply with `policy_s` set, unless the agent set it."""
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
    """Ask for a whole batch and return a reply or an error for each ask.

    A batch that raises an exception, or gets a wrong number of replies, is asked again in halves until the
    failing asks are isolated, unless `BaseAgent.splits_batches` is False. Each reply has `policy_s`:
    where the agent does not set it, an equal share of the call's time.
    """
    answers, separate = _batch(agent, asks)
    if separate or len(asks) == 1 or not getattr(agent, "splits_batches", True):
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
    """Free the memory that the frames of errors hold; too little memory may have been the error."""
    errors = {id(answer): answer for answer in answers if isinstance(answer, BaseException)}
    for first in errors.values():
        error: BaseException | None = first
        visited: set[int] = set()
        while error is not None and id(error) not in visited:
            visited.add(id(error))
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def _batch(agent: Any, asks: Sequence[Ask]) -> tuple[list[Answer], bool]:
    """Ask once; return the answers, and whether each belongs to its own ask (else to the whole batch)."""
    began = perf_counter()
    separate = True
    try:
        answers: list[Answer] = list(agent(asks))
        separate = len(answers) == len(asks)
    except BatchBroken as broken:
        answers = broken.answers
    except (AgentUnavailable, asyncio.CancelledError, GeneratorExit) as error:
        answers = [error] * len(asks)
    except Exception as error:
        answers, separate = [error] * len(asks), False
    if len(answers) != len(asks):
        wrong = NoVerdict(f"the agent answered {len(asks)} asks with {len(answers)} replies.")
        return [wrong] * len(asks), separate
    share = (perf_counter() - began) / len(asks)
    return [
        make_raisable(answer) if isinstance(answer, BaseException) else _took(answer, share)
        for answer in answers
    ], separate


def unavailable(answers: Sequence[Any]) -> AgentUnavailable | None:
    """Return the first AgentUnavailable among the answers, or None."""
    return next((answer for answer in answers if isinstance(answer, AgentUnavailable)), None)


def make_raisable(error: BaseException) -> BaseException:
    """Return an error that a generator or future can raise; StopIteration would look like its own end."""
    if isinstance(error, StopIteration | GeneratorExit):  # an exhausted script
        return RuntimeError(f"the agent raised {type(error).__name__}: {error}")
    return error


class LoopThread:
    """An event loop in its own thread, for callers that cannot await."""

    def __init__(self) -> None:
        """Start the thread and its event loop."""
        self._loop = asyncio.new_event_loop()
        self._ended, self._pid = False, os.getpid()
        self._thread = Thread(target=self._run, name="gem-agent-loop", daemon=True)
        self._thread.start()

    @property
    def lives(self) -> bool:
        """Whether the thread is of this process; a forked process has no other threads than its own."""
        return self._pid == os.getpid()

    def _run(self) -> None:
        while not self._ended:
            with suppress(BaseException):  # exit() or Ctrl-C in a task reaches the code that waits for it
                self._loop.run_forever()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` in the loop, and return its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and wait for its result; interrupting the wait cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel running work and end the thread. Calling it twice is harmless."""
        if self._loop.is_closed() or not self.lives:
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
