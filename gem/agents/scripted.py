"""ScriptedAgent: answers from a list, or from a function. FunctionAgent: a user's function, by its name."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from time import perf_counter

from gem.agents.base import Answer, BaseAgent, settle
from gem.errors import BadArgument
from gem.naming import name_in_file
from gem.record import AgentInfo, Ask, Reply

SLOW_S = 1.0
"""Seconds of a call of a function from which on it is worth saying that all others wait for it."""


class ScriptedAgent(BaseAgent):
    """An agent that answers turn `i` of every episode with ``script[i]``, or with ``script(ask)``.

    An answer is text, or a Reply where tokens matter. If the script has no answer, the episode gets no
    verdict.
    """

    def __init__(self, script: Sequence[str | Reply] | Callable[[Ask], str | Reply]) -> None:
        """Keep the script."""
        if isinstance(script, str):
            raise BadArgument(f"script is the text {script!r:.80}; give a list of answers, or a function.")
        self.script = script

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order.

        Raises:
            BatchBroken: when the script has no answer to some of them.
        """
        answers: list[Answer] = []
        for ask in asks:
            try:
                answers.append(self._answer(ask))
            except Exception as error:  # whatever the function raises is that ask's answer, not the batch's
                answers.append(error)
        return settle(answers)

    def _answer(self, ask: Ask) -> Reply:
        if callable(self.script):
            answer = self.script(ask)
        elif ask.turn < len(self.script):
            answer = self.script[ask.turn]
        else:
            raise BadArgument(f"the script has {len(self.script)} answers; turn {ask.turn} asks for another.")
        return Reply(answer) if isinstance(answer, str) else answer


class FunctionAgent(BaseAgent):
    """An agent that answers with ``function(ask)``, which may be async: text, or a Reply.

    A function that is not async is called one at a time, as it may not be safe in several threads.
    """

    splits_batches = False

    def __init__(self, function: Callable[[Ask], str | Reply | Awaitable[str | Reply]]) -> None:
        """Keep the function, whose name is the agent's."""
        self.function, self._hinted = function, False
        name = f"{function.__module__}:{function.__qualname__}"
        self._info = AgentInfo(name_in_file(name))  # another content is another agent

    @property
    def info(self) -> AgentInfo:
        """See BaseAgent.info."""
        return self._info

    async def ask(self, ask: Ask) -> Reply:
        """Answer one ask.

        Raises:
            BadArgument: when the function returns neither text nor a Reply.
        """
        began = perf_counter()
        answer = self.function(ask)
        if isawaitable(answer):
            answer = await answer
        elif not self._hinted and perf_counter() - began > SLOW_S:
            self._hinted = True
            name, code = self.function.__name__, self.function.__code__
            warnings.warn_explicit(
                f"{name} is called one at a time, as it is not async. To ask for several answers at once: "
                f"async def {name}_async(ask): return await asyncio.to_thread({name}, ask)",
                UserWarning,
                code.co_filename,
                code.co_firstlineno,
            )
        if not isinstance(answer, str | Reply):
            raise BadArgument(
                f"{self.info.agent} returned {answer!r:.80}; accepted: text, or a gem.record.Reply."
            )
        return Reply(answer) if isinstance(answer, str) else answer
