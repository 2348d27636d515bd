"""What this process waits for, and since when nothing has happened; a command that is silent can say it.

Code that may take long names what it waits for (`name_wait`), in any thread. Where something ends, it reports
news. `gem.cli.silence` prints a line when there has been no news for a while, and each trouble at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter

_NUMBERS = count()
_named: dict[int, Callable[[], str]] = {}
_sources: list[Callable[[], str]] = []
_listeners: list[Callable[[str], None]] = []
_news_at = perf_counter()


@contextmanager
def name_wait(what: str | Callable[[], str]) -> Iterator[None]:
    """Name what the block waits for; its beginning and its end are news. Blocks may be nested.

    A function returns what it is when it is asked, in any thread, and "" for nothing.
    """
    number = next(_NUMBERS)
    _named[number] = what if callable(what) else lambda: what
    report_news()
    try:
        yield
    finally:
        del _named[number]
        report_news()


def report_news() -> None:
    """Report that something has happened: the seconds of silence are counted anew."""
    global _news_at
    _news_at = perf_counter()


def news_at() -> float:
    """Return when something happened last, in the seconds of `time.perf_counter`."""
    return _news_at


def add_source(describe: Callable[[], str], last: bool = False) -> None:
    """Let `describe` say what else is waited for; it is called in any thread and returns "" for nothing.

    `last`: it says why, and comes after what waits.
    """
    _sources.insert(len(_sources) if last else 0, describe)


def report_trouble(what: str) -> None:
    """Report what keeps this process waiting, such as a server that is not there; in any thread."""
    for listen in _listeners.copy():
        listen(what)


@contextmanager
def hear_trouble(listen: Callable[[str], None]) -> Iterator[None]:
    """Call `listen` with each trouble that is reported in the block, in the thread that reports it."""
    _listeners.append(listen)
    try:
        yield
    finally:
        _listeners.remove(listen)


def describe_waits() -> str:
    """Return what this process waits for, the widest first; empty if nothing is named."""
    named = [describe() for describe in (*_named.copy().values(), *_sources)]
    return ": ".join(what for what in named if what)
