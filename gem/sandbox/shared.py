"""The one sandbox that everything in a process shares."""

from __future__ import annotations

import threading

from gem.sandbox.base import Sandbox

_lock = threading.Lock()
_shared: list[Sandbox] = []


def default_sandbox() -> Sandbox:
    """Return the process's sandbox, opening the best rung at the first call.

    It may be used from any thread, is begun anew in a forked process, and is closed at exit.

    Raises:
        SandboxFailed: where no rung isolates; `open_sandbox(allow_unsafe=True)` is the way round.
    """
    from gem.sandbox.ladder import open_sandbox

    with _lock:
        if not _shared:
            _shared.append(open_sandbox())
        return _shared[0]
