"""The thread host, for environments that wait (tools, sandboxes, networks) and for cheap ones.

A future per call would switch threads for every step of a cheap environment. Here all calls are in one queue,
and threads wake in a chain: each woken thread wakes one more if there is more work, then works until the
queue is empty. If calls block, all threads wake quickly and all calls run at the same time. If calls are
cheap, the first thread empties the queue before the second one runs. A caller that waits for all calls runs
some itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple

from gem.core import Env
from gem.errors import NoVerdict, WorkerDied
from gem.hosts.base import (
    NO_KWARGS,
    Command,
    Host,
    Mapped,
    Outcome,
    Recipe,
    Slot,
    await_closing,
    carry_out,
    overdue,
)
from gem.hosts.verbs import VERBS
from gem.registry import Maker
from gem.specs import EnvSpec
from gem.waiting import name_wait

MAX_THREADS = 1024
CLOSE_S = 2.0
"""Seconds that close() waits for running calls; after that it leaves their threads running."""

CLOSES = "close() of an environment, which has no limit of time without call_s"
_NEVER = float("inf")


class Threads(Host):
    """A host with threads in this process; the number of threads limits the parallel calls.

    Threads start when needed, up to one per environment. Environments with ``thread_safe=False`` in their
    spec are serialised by one lock per entry point. With `call_s`, a call or a close() that hangs is
    abandoned in its thread; the time includes waiting for that lock, which such a call keeps: where that may
    happen, the process host loses fewer episodes.
    """

    def __init__(self, call_s: float | None = None) -> None:
        """Start without environments and threads."""
        super().__init__(call_s)
        self._locks: dict[Any, threading.Lock] = {}
        self._slots: dict[int, _Slot] = {}
        self._todo: deque[Command] = deque()
        self._done: deque[Outcome] = deque()
        self._wanted = _NEVER  # number of outcomes at which the caller wakes
        self._enough = _bell()  # for the caller
        self._bell = _bell()  # for one thread
        self._mutex = threading.Lock()  # guards the three below
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._running: dict[int, _Run] = {}  # kept only where calls are timed
        weakref.finalize(self, _ring, self._bell).atexit = False  # ends the threads of one that nobody closed

    # -- environments

    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        self._slots[index] = self._slot(recipe)

    def _remove(self, index: int) -> None:
        self._shut(self._slots.pop(index))

    def _renew(self, index: int, recipe: Recipe | None) -> None:
        slot = self._slots[index]
        self._shut(slot)
        self._slots[index] = self._slot(recipe or slot.recipe)

    def _shut(self, slot: _Slot) -> None:
        """Close an environment; where calls are timed, leave a close() that hangs in its thread, too."""
        if slot.env is None:
            return
        if self.call_s is None:
            with name_wait(CLOSES):
                _close_in_turn(slot, -1)
            return
        await_closing(self.call_s, _close_in_turn, slot, self.call_s)

    def env(self, index: int) -> Env:
        """Return the environment at `index`; see Host.env. Do not use it while a call of it runs."""
        self._check_open()
        self._check_known(index)
        slot = self._slots[index]
        if slot.env is None:
            error = self._carry_out(slot, (index, "introduce", (), NO_KWARGS)).error
            if error is not None:
                raise error
        return slot.make()

    # -- the caller's side

    def _start(self, commands: Sequence[Command]) -> None:
        self._todo.extend(commands)
        self._call_one_more()

    def _collect_outcomes(self, at_least: int, timeout: float | None) -> list[Outcome]:
        done = self._done
        until = perf_counter() + timeout if timeout is not None else _NEVER
        if until == _NEVER and self.call_s is None and at_least == len(self.busy):
            self._work()
        while len(done) < at_least:
            self._enough.acquire(blocking=False)
            self._wanted = at_least
            if len(done) < at_least:
                wake = min(until, self._next_deadline())
                self._enough.acquire(timeout=-1 if wake == _NEVER else max(0.0, wake - perf_counter()))
                self._leave_overdue()
                if perf_counter() >= until:
                    break
        self._wanted = _NEVER
        return [done.popleft() for _ in range(len(done))]

    def _next_deadline(self) -> float:
        if self.call_s is None:
            return _NEVER
        with self._mutex:
            began = [run.began for run in self._running.values()]
        return min(began, default=perf_counter()) + self.call_s

    def _leave_overdue(self) -> None:
        if self.call_s is None:
            return
        with self._mutex:
            late = perf_counter() - self.call_s
            for index, run in list(self._running.items()):
                if run.began <= late:
                    del self._running[index]
                    self._threads.remove(run.thread)
                    slot = self._slots[index]
                    self._slots[index] = self._slot(slot.recipe)
                    self._done.append(Outcome(index, None, _overdue(run.verb, slot, self.call_s)))
        if self._todo:  # the abandoned threads may have been all threads
            self._call_one_more()

    def _close(self) -> None:
        self._todo.clear()
        _ring(self._bell)
        until = perf_counter() + CLOSE_S
        with self._mutex:
            threads = tuple(self._threads)  # none is added any more
        for thread in threads:
            thread.join(max(0.0, until - perf_counter()))
        await_closing(CLOSE_S, self._close_slots)

    def _close_slots(self) -> None:
        for slot in self._slots.values():
            slot.close()

    def map(self, indices: Sequence[int], verb: str, *columns: Sequence[Any]) -> Mapped:
        """Run a single call in this thread, which is faster than waiting for another; see Host.map."""
        alone = len(indices) == 1 and indices[0] in self._slots and verb in VERBS
        if not alone or self._closed or self._is_parents() or self.busy or self.call_s is not None:
            return super().map(indices, verb, *columns)
        row = tuple(column[0] for column in columns)
        _, value, error = self._carry_out(self._slots[indices[0]], (indices[0], verb, row, NO_KWARGS))
        return [value], {} if error is None else {0: error}

    # -- the threads' side

    def _call_one_more(self) -> None:
        """Wake a thread, or start one."""
        with self._mutex:
            if self._idle:
                _ring(self._bell)
                return
            if len(self._threads) >= min(len(self), MAX_THREADS) or self._closed:
                return  # all are working, and return to the queue by themselves
            us = weakref.ref(self), self._bell
            thread = threading.Thread(target=_serve, args=us, name="gem-env", daemon=True)
            thread.start()  # before the lock is free: _close joins what it finds
            self._threads.append(thread)

    def _work_until_idle(self) -> bool:
        """Run calls in one of the threads; return False if the thread is to end."""
        if len(self._todo) > 1:
            self._call_one_more()
        if not self._work():
            return False
        with self._mutex:
            if len(self._threads) > len(self):  # environments were removed
                self._threads.remove(threading.current_thread())
                return False
            self._idle += 1
        if self._todo:  # it was added between the last check and going idle
            _ring(self._bell)
        return True

    def _wake(self) -> bool:
        """Count a thread that was idle as one that works; return False if it is to end."""
        with self._mutex:
            self._idle -= 1
        return not self._closed

    def _work(self) -> bool:
        """Run calls until the queue is empty; return False if the caller abandoned this thread meanwhile."""
        todo, done = self._todo, self._done
        while True:
            try:
                command = todo.popleft()
            except IndexError:
                return True
            index = command[0]
            slot = self._slots[index]
            timed = self.call_s is not None  # for this call: after it is abandoned, call_s may change
            if timed:
                with self._mutex:
                    self._running[index] = _Run(perf_counter(), command[1], threading.current_thread())
            try:
                outcome = self._carry_out(slot, command)
            except BaseException as interrupt:  # Ctrl-C inside a call loses that call, not the others
                outcome = Outcome(index, None, NoVerdict(f"interrupted by {type(interrupt).__name__}."))
                if threading.current_thread() is threading.main_thread():
                    done.append(outcome)
                    raise
                # no signal comes to other threads: the environment raised it, and its thread goes on
            if not timed:
                done.append(outcome)
            elif not self._deliver(slot, outcome):
                slot.close()
                return False
            if len(done) >= self._wanted:
                _ring(self._enough)

    def _deliver(self, slot: _Slot, outcome: Outcome) -> bool:
        """Deliver an outcome, unless the caller has stopped waiting for it."""
        with self._mutex:
            if self._slots.get(outcome.index) is not slot:
                return False
            del self._running[outcome.index]
            self._done.append(outcome)
            return True

    def _carry_out(self, slot: _Slot, command: Command) -> Outcome:
        if slot.lock is None:
            if slot.env is not None:
                return carry_out(slot, command)
            made = carry_out(slot, (command[0], "introduce", (), NO_KWARGS))
            if made.error is not None:
                return made
            slot.lock = self._lock_of(slot.make().spec)
        if slot.lock is None:
            return carry_out(slot, command)
        with slot.lock:
            slot.enters = True
            try:
                return carry_out(slot, command)
            finally:
                slot.enters = False

    def _slot(self, recipe: Recipe) -> _Slot:
        return _Slot(recipe, self._lock_of(recipe.spec if isinstance(recipe, Maker) else None))

    def _lock_of(self, spec: EnvSpec | None) -> threading.Lock | None:
        if spec is None or spec.thread_safe:
            return None
        return self._locks.setdefault(spec.entry_point, threading.Lock())


def _serve(host_of: weakref.ref[Threads], bell: threading.Lock) -> None:
    """Work for a host in a thread of it; idle ones do not keep it, nor its environments."""
    host = host_of()
    while host is not None and host._work_until_idle():
        del host
        bell.acquire()
        host = host_of()
        if host is None or not host._wake():
            _ring(bell)  # pass the end on
            return


def _bell() -> threading.Lock:
    """Return a lock that one thread waits for until another one rings; cheaper than an event."""
    bell = threading.Lock()
    bell.acquire()
    return bell


def _ring(bell: threading.Lock) -> None:
    with suppress(RuntimeError):  # already released, and no thread has taken it yet: one is enough
        bell.release()


class _Run(NamedTuple):
    """A running call, if calls are timed."""

    began: float
    verb: str
    thread: threading.Thread


class _Slot(Slot):
    """A slot with the lock of its entry point, if there is one, and whether a call of it has that lock."""

    __slots__ = ("enters", "lock")

    def __init__(self, recipe: Recipe, lock: threading.Lock | None) -> None:
        super().__init__(recipe)
        self.lock = lock
        self.enters = False


def _close_in_turn(slot: _Slot, lock_s: float) -> None:
    """Close an environment when no other of its entry point runs; not at all if one hangs."""
    if slot.lock is None:
        slot.close()
    elif slot.lock.acquire(timeout=lock_s):
        try:
            slot.close()
        finally:
            slot.lock.release()


def _overdue(verb: str, slot: _Slot, call_s: float) -> WorkerDied:
    """Build the error for a call that took too long, or that another one did not let begin.

    That one keeps the lock although it was given up: it still runs, and its spec says that no other may.
    """
    if slot.lock is None or slot.enters:
        return overdue(verb, call_s)
    return WorkerDied(
        f"{verb} waited {call_s:g} s for another environment of its entry point, whose call hangs; its spec "
        "says thread_safe=False. The process host ends such a call."
    )
