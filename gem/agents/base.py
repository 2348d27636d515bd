"""BaseAgent: an agent defines one of the two calls of `gem.record.Agent`, the other follows."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Lock, Thread
from time import perf_counter
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from gem.errors import BadArgument, NoVerdict, OutOfTime
from gem.record import AgentInfo, Ask, Reply

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
    """

    verb: ClassVar[str | None] = None
    """For an agent that is the environment's own: the verb, such as ``solve``, that a driver calls on the
    environment for every action, wherever it lives. Such an agent is never asked."""

    keeps_time: bool = False
    """Whether `ask` keeps to `Ask.policy_s` itself and sets `Reply.policy_s`. Else whoever asks measures from
    the question to the answer, which counts the wait for a free place too."""

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
        return await asyncio.gather(*(timed(self, ask) for ask in asks), return_exceptions=True)

    def _answer_waiting(self, waiting: Waiting) -> None:
        if self._waiting is waiting:
            self._waiting = None
        waiting = [(ask, future) for ask, future in waiting if not future.done()]  # some were cancelled
        if not waiting:
            return
        answers = batch_answers(self, [ask for ask, _ in waiting])
        for (_, future), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def settle(answers: Sequence[Answer]) -> list[Reply]:
    """Return the replies when every ask was answered.

    Raises:
        BatchBroken: with all the answers, when some ask was not.
    """
    replies = [answer for answer in answers if not isinstance(answer, BaseException)]
    if len(replies) < len(answers):
        raise BatchBroken(answers)
    return replies


async def timed(agent: Any, ask: Ask) -> Reply:
    """Ask once, for no longer than `ask.policy_s`, and say in the reply how long it took.

    Raises:
        OutOfTime: when that time is spent.
    """
    if getattr(agent, "keeps_time", False) or _in_batches(agent):
        reply: Reply = await agent.ask(ask)
        return reply
    began = perf_counter()
    try:
        async with asyncio.timeout(ask.policy_s) as deadline:
            answer: Reply = await agent.ask(ask)
    except TimeoutError as error:
        if deadline.expired():
            raise OutOfTime(f"the agent took more than the {ask.policy_s:.3g} s that were left.") from error
        raise
    return _took(answer, perf_counter() - began)


def _in_batches(agent: Any) -> bool:
    """Tell whether an agent answers batches alone, which cannot be cut short for one of them."""
    return isinstance(agent, BaseAgent) and type(agent).ask is BaseAgent.ask


def _took(reply: Reply, policy_s: float) -> Reply:
    if isinstance(reply, Reply) and reply.policy_s is None:
        return replace(reply, policy_s=policy_s)
    return reply


def batch_answers(agent: Any, asks: Sequence[Ask]) -> list[Answer]:
    """Ask once for a whole batch and return, for each ask, its reply or the error that it met.

    Each reply says how long its answer took: where the agent does not, an equal share of the batch's time.
    """
    began = perf_counter()
    try:
        answers: list[Answer] = list(agent(asks))
    except BatchBroken as broken:
        answers = broken.answers
    except (Exception, asyncio.CancelledError, GeneratorExit) as error:
        answers = [error] * len(asks)
    if len(answers) != len(asks):
        wrong = NoVerdict(f"the agent answered {len(asks)} asks with {len(answers)} replies.")
        return [wrong] * len(asks)
    share = (perf_counter() - began) / len(asks)
    return [
        carried(answer) if isinstance(answer, BaseException) else _took(answer, share) for answer in answers
    ]


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
