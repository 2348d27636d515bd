"""The sandboxes that everything in a process shares."""

from __future__ import annotations

import os
import threading

from gem.sandbox.base import Sandbox

_lock = threading.Lock()
_shared: dict[str | None, Sandbox] = {}


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it


os.register_at_fork(after_in_child=_after_fork)


def default_sandbox(backend: str | Sandbox | None = None) -> Sandbox:
    """Return the process's sandbox, opening the best backend, or the named one, at the first call.

    A sandbox is returned as it is: whoever takes a name takes one of yours too, and never closes it.

    It may be used from any thread, is begun anew in a forked process, and is closed at exit.

    Raises:
        SandboxFailed: where no backend isolates, or the named one cannot be had; the way round is
            `open_sandbox(allow_unsafe=True)`.
        BadArgument: for a name that nobody offers.
    """
    if isinstance(backend, Sandbox):
        return backend
    from gem.sandbox.choice import open_sandbox

    with _lock:
        if backend not in _shared:
            _shared[backend] = open_sandbox(backend)
        return _shared[backend]
