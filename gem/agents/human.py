"""HumanAgent: a person at a terminal, for `gem-gym play`."""

from __future__ import annotations

import re
import sys
from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Sequence
from typing import TextIO

from gem.agents.base import BaseAgent
from gem.content import printable
from gem.parsing import fences
from gem.record import Ask, Reply

PROMPT, CONTINUED = "> ", "... "
_OPENING = re.compile(r"\s*(?:<(\w+)>|(?:```|~~~)[^`\n]*\n)")
_CLOSED_TAG = re.compile(r"</\w+>|<\w+ ?/>")


class HumanAgent(BaseAgent):
    r"""An agent that prints each observation and reads a line as the answer; after an empty one, the next.

    An answer that begins with a fence of code, or with a tag that the environment's messages close, goes on
    to where that is closed. If the messages mention ``\boxed{}``, an answer without a box is put into one, so
    that typing ``5`` is enough; what stands in or before tags and fences stays outside. The end of the input
    cancels the episode.
    """

    def __init__(self, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        """Use these streams; by default the terminal."""
        self._in, self._out = stdin or sys.stdin, stdout or sys.stdout
        self._prompts: defaultdict[str, str] = defaultdict(str)  # by episode: what its messages said

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer the asks one after another."""
        return [Reply(self._answer(ask)) for ask in asks]

    def forget(self, episode: str) -> None:
        """Drop the data kept for `episode`."""
        self._prompts.pop(episode, None)

    def say(self, text: str) -> None:
        """Write a line."""
        self._out.write(f"{text}\n")

    def _answer(self, ask: Ask) -> str:
        new = ask.messages if ask.turn == 0 else ask.messages[-1:]  # the rest is on the screen already
        for message in new:
            self.say(printable(message.content))
            self._prompts[ask.episode] += message.text
        prompts = self._prompts[ask.episode]
        answer = ""
        while not answer.strip():
            answer = self._read_line(PROMPT)
        while _is_open(answer, prompts):
            answer += self._read_line(CONTINUED)
        answer = answer.strip()
        ends = [*map(re.Match.end, _CLOSED_TAG.finditer(answer)), *(end for _, end, *_ in fences(answer))]
        outside = answer[: max(ends, default=0)]
        move = answer[len(outside) :].strip()
        if "\\boxed" in prompts and move and "\\boxed" not in answer:
            return f"{outside} \\boxed{{{move}}}".lstrip()
        return answer

    def _read_line(self, prompt: str) -> str:
        self._out.write(prompt)
        self._out.flush()
        line = self._in.readline()
        if not line:
            raise CancelledError("the input ended")
        return line


def _is_open(answer: str, prompts: str) -> bool:
    """Return whether an answer begins with a fence, or a tag with an end in `prompts`, that is not closed."""
    opening = _OPENING.match(answer)
    if opening is None:
        return False
    end = f"</{opening[1]}>"
    return end in prompts and end not in answer if opening[1] else not any(fences(answer))
