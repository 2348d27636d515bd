"""ScriptedAgent: answers from a list, or from a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gem.agents.base import Answer, BaseAgent, settle
from gem.errors import BadArgument
from gem.record import Ask, Reply


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
