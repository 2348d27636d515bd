"""Silence: a line that says what a command waits for, when there has been no news for a while, or at once."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from threading import Event, Thread
from time import perf_counter
from typing import Self

from gem.content import printable
from gem.waiting import describe_waits, hear_trouble, news_at, report_news

AFTER_S = 5.0
"""Seconds without news after which the line comes; the next one comes after twice as many, and so on."""

MOST_S = 300.0
"""Seconds after which the next line comes at the latest."""


class Silence:
    """A watch over a command, from a thread; it also prints the troubles that are reported."""

    def __init__(self, otherwise: str = "", after_s: float | None = None) -> None:
        """Print the first line after these seconds without news; AFTER_S by default.

        `otherwise` is said to be waited for where nothing is named; empty: then there is no line.
        """
        self._otherwise, self._after_s = otherwise, after_s or AFTER_S
        self._over, self._last = Event(), ExitStack()
        self._thread = Thread(target=self._watch, name="gem-silence", daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        report_news()
        self._last.enter_context(hear_trouble(lambda what: show_line(what)))  # as it is then
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """End the watch."""
        self._last.close()
        self._over.set()

    def _watch(self) -> None:
        wait_s, since = self._after_s, news_at()
        while not self._over.wait(max(0.01, since + wait_s - perf_counter())):
            if news_at() != since:
                wait_s, since = self._after_s, news_at()
            silent_s = perf_counter() - since
            if silent_s >= wait_s:
                wait_s = silent_s + min(silent_s, MOST_S)
                if waits := describe_waits() or self._otherwise:
                    show_line(f"no news for {silent_s:.0f} s; waiting for {waits}")


def show_line(text: str) -> None:
    """Print a line on stderr, which may be replaced meanwhile: above a live picture of the progress."""
    print(printable(text), file=sys.stderr, flush=True)
