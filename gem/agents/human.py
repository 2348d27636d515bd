"""HumanAgent: a person at a terminal, for `gem-gym play`."""

from __future__ import annotations

import sys
from asyncio import CancelledError
from collections.abc import Sequence
from typing import TextIO

from gem.agents.base import BaseAgent
from gem.content import printable
from gem.record import Ask, Reply

PROMPT = "> "


class HumanAgent(BaseAgent):
    r"""An agent that prints each observation and reads one line as the answer.

    If the environment's messages mention ``\boxed{}``, an answer without a box is put into one, so that
    typing ``5`` is enough. The end of the input cancels the episode.
    """

    def __init__(self, stdin: TextIO | None = None, stdout: TextIO | None = None) -> None:
        """Use these streams; by default the terminal."""
        self._in, self._out = stdin or sys.stdin, stdout or sys.stdout
        self._boxed: set[str] = set()  # episodes whose answers go into a box

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer the asks one after another."""
        return [Reply(self._answer(ask)) for ask in asks]

    def forget(self, episode: str) -> None:
        """Drop the data kept for `episode`."""
        self._boxed.discard(episode)

    def say(self, text: str) -> None:
        """Write a line."""
        self._out.write(f"{text}\n")

    def _answer(self, ask: Ask) -> str:
        new = ask.messages if ask.turn == 0 else ask.messages[-1:]  # the rest is on the screen already
        for message in new:
            self.say(printable(message.content))
        if any("\\boxed" in message.text for message in new):
            self._boxed.add(ask.episode)
        self._out.write(PROMPT)
        self._out.flush()
        line = self._in.readline()
        if not line:
            raise CancelledError("the input ended")
        answer = line.strip()
        return f"\\boxed{{{answer}}}" if ask.episode in self._boxed and "\\boxed" not in answer else answer
