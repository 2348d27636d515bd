"""The sandboxes that tools and graders share within a process."""

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
    """Return this process's shared sandbox; the first call opens the strongest backend, or the named one.

    A sandbox is returned unchanged, so an argument may be a name or a sandbox of yours; gem never closes
    yours.

    The shared sandbox may be used from any thread, is restarted in a forked process, and is closed at exit.

    Raises:
        SandboxFailed: when no backend with isolation works, or the named one does not; the alternative is
            `open_sandbox(allow_unsafe=True)`.
        BadArgument: for an unknown backend.
    """
    if isinstance(backend, Sandbox):
        return backend
    from gem.sandbox.choice import open_sandbox

    with _lock:
        if backend not in _shared:
            _shared[backend] = open_sandbox(backend)
        return _shared[backend]
