"""Graders of one's own: functions, and judges by name."""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import os
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from hashlib import blake2b
from numbers import Real
from typing import Any, ClassVar, cast
from weakref import WeakKeyDictionary

from gem.content import Message
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    GemError,
    NoVerdict,
    check_argument,
    check_least,
    describe_place,
    text_of_error,
)
from gem.graders import MADE
from gem.graders.base import DataGrader, Score, check_score, grade_with, takes_question
from gem.graders.judge import JudgeGrader, check_instructions
from gem.plugins import check_parameters, load
from gem.record import Ask
from gem.specs import Rebuildable

FORMS = ", ".join(
    (*MADE, "judge:MODEL[@URL], package.module:function, path/file.py:function, or rubric.toml")
)
"""The names of graders, for messages."""

RUBRIC = (
    "1: the ANSWER gives the same final answer as the REFERENCE; wording, detail and format make no "
    "difference. Where there is no REFERENCE, the ANSWER is right and answers what was asked. 0: all else."
)
"""What a judge by name is told; a judge with another rubric is a `gem.graders.judge.JudgeGrader`."""


def class_of(kind: str) -> type[DataGrader]:
    """Return the class of a kind of grader; the base class for a judge and a function."""
    if kind not in MADE:
        return DataGrader
    return cast("type[DataGrader]", load(MADE[kind]))


class FunctionGrader(Rebuildable):
    """A grader that calls a function ``(answer, reference)`` and makes its result a Score.

    The function gets the agent's whole reply, and the question too if it has a parameter `question`. It
    returns a Score, whether the answer is right, or a number from 0 to 1, of which 1 is right. A class is
    made without arguments, and its object called. An exception in it is no verdict.

    An ``async def`` function `waits`: many answers are graded at the same time. All are awaited in one event
    loop, so that they may share a client or a semaphore.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        at_once: int | None = None,
        seconds: float | None = None,
        retries: int = 0,
    ) -> None:
        """Set the function.

        Args:
            function: the function.
            at_once: the most calls of an ``async def`` function at the same time in a process; None: all.
            seconds: how long one of its calls may take; None: any time.
            retries: how often a call of it that raises, or takes too long, is repeated.

        Raises:
            BadArgument: when it cannot be called with an answer and a reference, for a limit below 1 (of
                retries, 0), and for limits of a function that is not asynchronous.
        """
        called = function() if isinstance(function, type) else function
        if not callable(called):
            raise BadArgument(
                f"the grader is {function!r:.80}; accepted: {FORMS}, or a function of answer and reference."
            )
        self.function, self._call = function, called
        self.asks_question = takes_question(called)
        method = getattr(type(called), "__call__", None)  # noqa: B004 - of its class
        self.waits = any(map(inspect.iscoroutinefunction, (called, method)))
        name = getattr(function, "__name__", type(function).__name__)
        extra = ("question",) if self.asks_question else ()
        check_parameters(f"the grader {name}", called, ("answer", "reference"), *extra)
        check_least("at_once", at_once)
        check_argument("seconds", seconds, seconds is None or 0 < seconds < math.inf, "more than 0, or None")
        check_least("retries", retries, 0)
        if (at_once, seconds, retries) != (None, None, 0) and not self.waits:
            raise BadArgument(
                f"the grader {name} has at_once, seconds or retries, which only an async def function takes."
            )
        self.at_once, self.seconds, self.retries = at_once, seconds, retries

    @property
    def name(self) -> str:
        """The function's name."""
        return f"function:{getattr(self.function, '__qualname__', type(self.function).__name__)}"

    def __call__(self, answer: str, reference: Any, question: str = "") -> Score:
        """Score `answer`.

        Raises:
            NoVerdict: when the function raises, or returns something else.
        """
        extra = {"question": question} if self.asks_question else {}
        try:
            verdict = self._call(answer, reference, **extra)
            if inspect.iscoroutine(verdict):
                verdict = _loop_owner().loop.run(self._await(verdict, answer, reference, **extra))
            if not isinstance(verdict, Score | Real) and hasattr(verdict, "item"):
                verdict = verdict.item()  # a truth value of numpy, or a tensor of one
        except GemError:
            raise
        except Exception as error:  # the fault of the function, which gets any text, not of the answer
            raise NoVerdict(
                f"the grader {self.name} raised {type(error).__name__}: "
                f"{text_of_error(error)}{describe_place(error)}"
            ) from error
        if isinstance(verdict, bool):
            return Score(float(verdict), verdict, answer[:200])
        if isinstance(verdict, Real):
            return check_score(Score(float(verdict), float(verdict) >= 1, answer[:200]))
        if not isinstance(verdict, Score):
            raise NoVerdict(
                f"the grader {self.name} returned {verdict!r:.80}; accepted: True or False, a number from "
                "0 to 1, or a Score."
            )
        return check_score(verdict)

    async def _await(self, call: Coroutine[Any, Any, Any], *args: Any, **extra: Any) -> Any:
        """Return the result of a call within the limits; a repeated one is a new call."""
        pid, places = _PLACES.get(self, (0, nullcontext()))
        if self.at_once is not None and pid != os.getpid():
            places = asyncio.Semaphore(self.at_once)
            _PLACES[self] = os.getpid(), places
        try:
            async with places:
                for left in range(self.retries, -1, -1):
                    try:
                        async with asyncio.timeout(self.seconds) as limit:
                            return await call
                    except Exception as error:
                        if not left:
                            if limit.expired():
                                raise TimeoutError(f"no answer within {self.seconds:g} s") from error
                            raise
                        call = self._call(*args, **extra)
        finally:
            call.close()  # one that was cancelled before it had a place


_PLACES: WeakKeyDictionary[FunctionGrader, tuple[int, Any]] = WeakKeyDictionary()
"""The semaphore of a grader with `at_once`, and the process that it is of, as the event loop is."""


@functools.cache
def _loop_owner() -> Any:
    """Return an object with the event loop of asynchronous functions, which begins anew after a fork."""
    return load("gem.agents.base:BaseAgent")()  # of a layer above


class JudgeByName(Rebuildable):
    """A JudgeGrader whose agent has a name: ``MODEL[@URL]``, an endpoint, or another of `gem.agents.named`.

    The agent is made at the first answer, in the process that grades.
    """

    waits: ClassVar[bool] = True

    def __init__(
        self,
        model: str,
        rubric: str | None = None,
        prompt: str | None = None,
        passing: float = 1.0,
        answer_first: bool = False,
        at_once: int | None = None,
    ) -> None:
        """Set the judge.

        Args:
            model: its name.
            rubric: the meaning of its scores; None: `RUBRIC`, where a `prompt` does not say it.
            prompt: see JudgeGrader, also for `passing`.
            passing: the lowest score that counts as correct.
            answer_first: see JudgeGrader.
            at_once: the most requests to an endpoint at the same time; None: 64. There are fewer where it is
                busy.

        Raises:
            BadArgument: for an empty name, and for what JudgeGrader refuses.
        """
        if not model.strip("@ "):
            raise BadArgument("the judge has no name; accepted: judge:MODEL[@URL], as judge:gpt-4o.")
        if rubric is None:
            rubric = RUBRIC if prompt is None or "{rubric}" in prompt else ""
        check_instructions(rubric, prompt, passing)
        check_least("at_once", at_once)
        self.at_once = at_once
        self.model, self.settings = model, (rubric, prompt, passing, answer_first)
        self._judge: JudgeGrader | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The judge's model, and a digest of what it is told where that is not `RUBRIC`."""
        if self.settings == (RUBRIC, None, 1.0, False):
            return f"judge:{self.model}"
        digest = blake2b(repr(self.settings).encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
        return f"judge:{self.model}#{digest}"

    def __call__(self, answer: str, reference: Any, question: str = "") -> Score:
        """Score `answer`; see JudgeGrader."""
        return grade_with(self._open_judge(), answer, reference, question or None)

    def ping(self) -> None:
        """Ask the judge one plain question.

        Raises:
            AgentUnavailable: when it does not answer; it would give no verdict on any answer.
        """
        agent = self._open_judge().agent
        try:
            agent([Ask("ping", "judge", 0, (Message("user", "Say yes."),), max_tokens=16)])
        except Exception as error:  # whatever the judge's model or server did
            self.close()
            why = getattr(error, "answers", [error])[0]
            raise AgentUnavailable(
                f"{self.name} does not answer, so nothing would get a verdict: {why}. Start its server, set "
                "its key, or name another judge: judge:MODEL[@URL]."
            ) from error
        finally:
            agent.forget("ping")

    def close(self) -> None:
        """Close the judge's agent; a later answer makes another one."""
        with self._lock:
            judge, self._judge = self._judge, None
        close = getattr(getattr(judge, "agent", None), "close", None)
        if close is not None:
            close()

    def _open_judge(self) -> JudgeGrader:
        with self._lock:
            if self._judge is None:
                settings = load("gem.agents.named:AgentSettings")(temperature=0.0, concurrency=self.at_once)
                named_agent = load("gem.agents.named:named_agent")
                agent = named_agent(self.model, settings) or named_agent(f"openai:{self.model}", settings)
                rubric, prompt, passing, answer_first = self.settings
                self._judge = JudgeGrader(
                    agent, rubric, prompt=prompt, passing=passing, answer_first=answer_first
                )
            return self._judge

    def __reduce__(self) -> tuple[Any, ...]:
        return JudgeByName, (self.model, *self.settings, self.at_once)


def ping_judges(kwargs: Mapping[str, Any]) -> None:
    """Ask each judge among an environment's keywords one plain question, before anything is played.

    Raises:
        AgentUnavailable: see `JudgeByName.ping`.
    """
    for value in kwargs.values():
        if isinstance(value, Rebuildable) and (ping := getattr(value, "ping", None)) is not None:
            ping()
