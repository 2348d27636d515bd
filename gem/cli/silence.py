"""Silence: a line that says what a command waits for, when nothing has happened for a while."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from time import perf_counter
from typing import Self

from gem.content import printable
from gem.rollout.flights import describe_waits

AFTER_S = 10.0
"""Seconds without news after which the line comes; the next one comes after twice as many, and so on."""


class Silence:
    """A watch over a command; `break_it` says that something has happened."""

    def __init__(self, show: Callable[[str], None], after_s: float | None = None) -> None:
        """Call `show`, from a thread, with each line."""
        self._show, self._after_s = show, after_s or AFTER_S
        self._over = Event()
        self.break_it()

    def break_it(self) -> None:
        """Begin to count the seconds anew."""
        self._since, self._wait_s = perf_counter(), self._after_s

    def __enter__(self) -> Self:
        """Begin to watch."""
        Thread(target=self._watch, name="gem-silence", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the watch."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(max(0.01, self._since + self._wait_s - perf_counter())):
            silent_s = perf_counter() - self._since
            if silent_s >= self._wait_s:
                self._wait_s *= 2
                if waits := describe_waits():
                    self._show(printable(f"no episode has ended for {silent_s:.0f} s; waiting for {waits}"))
