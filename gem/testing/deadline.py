"""A deadline for every call of an environment, kept by a timer in the thread that makes the calls."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from types import FrameType

from gem.errors import check_seconds
from gem.testing.places import env_of, is_authors, method_name, place

CALL_S = 30.0
"""Seconds that one call of an environment may take by default."""

LOOKS = 10
"""How often within a deadline the running call is looked at, and at least once a second."""


class CallHung(BaseException):
    """A call of an environment that did not return in time; no `except Exception` of an author stops it.

    `place`: where in the author's code it was.
    """

    def __init__(self, call: str, call_s: float, place: str) -> None:
        """Name the call, its deadline and the place."""
        super().__init__(f"{call} has not returned after {call_s:g} s")
        self.place = place


class Deadline:
    """Watches which call of an environment runs, and raises CallHung in it once it has run too long.

    `threads`: idents of other threads whose calls are watched too; CallHung is raised in the main thread.
    """

    def __init__(self, call_s: float, base: FrameType, end_process: bool) -> None:
        """Watch the calls that are made from the function of `base`."""
        self.call_s = call_s
        self.every = min(1.0, call_s / LOOKS)
        self.threads: Sequence[int] = ()
        self._base = base
        self._end_process = end_process
        self._calls: dict[int | None, tuple[FrameType, float]] = {}

    def put_off_end(self) -> None:
        """End the process unless this is called again in time: C code that looks at no signal is stuck."""
        if self._end_process:
            stuck_s = 2 * self.call_s + self.every
            faulthandler.dump_traceback_later(stuck_s, exit=True, file=sys.__stderr__ or sys.stderr)

    def look(self, _number: int, frame: FrameType | None) -> None:
        """Raise CallHung if a call that ran at the last look has run for `call_s`; a signal handler."""
        self.put_off_end()
        running: dict[int | None, FrameType | None] = {None: frame}
        if self.threads:
            frames = sys._current_frames()
            running |= {ident: frames.get(ident) for ident in self.threads}
        before, self._calls = self._calls, {}
        for ident, innermost in running.items():
            call = _outermost_call(innermost, self._base)
            if call is None:
                continue
            known, since = before.get(ident, (None, 0.0))
            self._calls[ident] = call, since if call is known else monotonic()
            if call is known and monotonic() - since >= self.call_s:
                raise CallHung(_describe(call), self.call_s, place(_stack(innermost, self._base)))


@contextmanager
def call_deadline(call_s: float | None, *, end_process: bool = False) -> Iterator[Deadline | None]:
    """Within the block, raise CallHung in a call of an environment that has run for `call_s` seconds.

    Only a main thread can be interrupted, and only where the system has SIGALRM; elsewhere, and with None,
    nothing is watched. With `end_process`, code in C that cannot be interrupted ends the process after twice
    the time, with a traceback on stderr.

    Raises:
        BadArgument: for a number that is not above 0.
    """
    check_seconds("call_s", call_s)
    main = threading.current_thread() is threading.main_thread()
    if call_s is None or not main or not hasattr(signal, "SIGALRM"):
        yield None
        return
    deadline = Deadline(call_s, sys._getframe(2), end_process)
    handler = signal.signal(signal.SIGALRM, deadline.look)
    deadline.put_off_end()
    timer = signal.setitimer(signal.ITIMER_REAL, deadline.every, deadline.every)
    try:
        yield deadline
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
        if end_process:
            faulthandler.cancel_dump_traceback_later()


def _outermost_call(frame: FrameType | None, base: FrameType) -> FrameType | None:
    """Return the outermost frame above `base` that is an environment's: its method, or the author's code."""
    for each in _stack(frame, base):
        if env_of(each) is not None or is_authors(each.f_code.co_filename):
            return each
    return None


def _stack(frame: FrameType | None, base: FrameType) -> list[FrameType]:
    """Return the frames above `base`, from the outermost to the innermost."""
    frames = []
    while frame is not None and frame is not base:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _describe(call: FrameType) -> str:
    """Return a call as it was written, with the seed of its episode and what its environment `waits_for`."""
    code = call.f_code
    env = env_of(call)
    names = code.co_varnames[env is not None : code.co_argcount]
    values = [f"{name}={call.f_locals.get(name)!r:.80}" for name in names]
    text = f"{method_name(call)}({', '.join(values)})"
    seed = getattr(env, "_seed", None)
    if seed is not None and "seed" not in names:
        text += f" in the episode of seed {seed}"
    waits_for = getattr(env, "waits_for", "")
    return f"{text}, which waits for {waits_for}," if isinstance(waits_for, str) and waits_for else text
