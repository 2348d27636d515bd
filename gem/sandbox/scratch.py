"""Folders in the temporary folder that do not outlive their owner for long.

Each is locked while it is in use. The kernel drops the lock with the last process that has it, however that
ends, and then whoever makes the next folder removes this one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

PREFIX = "gem-scratch-"


class Scratch:
    """A new folder, in use until `remove`; whoever inherits the descriptor `lock` keeps it in use too.

    Raises:
        OSError: when it cannot be made.
    """

    def __init__(self) -> None:
        sweep()
        while True:
            self.path = tempfile.mkdtemp(prefix=PREFIX)
            with contextlib.suppress(OSError):  # another process swept it in between, or is about to
                self.lock = _lock(self.path)
                if os.path.exists(self.path):
                    return
                os.close(self.lock)

    def remove(self) -> None:
        """Remove it with all that is in it, as far as that is allowed."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.release()

    def release(self) -> None:
        """Have no more to do with it; it stays for those who inherited the lock."""
        if self.lock >= 0:
            os.close(self.lock)
        self.lock = -1


def sweep() -> None:
    """Remove what processes that were killed have left."""
    if os.name != "posix":
        return
    with os.scandir(tempfile.gettempdir()) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in found:
        with contextlib.suppress(OSError):  # in use, another user's, or another process was faster
            lock = _lock(path)
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: str) -> int:
    """Return a descriptor of a folder of ours, locked. Raises OSError."""
    if os.name != "posix":
        return os.open(os.devnull, os.O_RDONLY)  # no locks of this kind there
    import fcntl

    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(folder).st_uid != os.geteuid():
            raise PermissionError(path)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise
    return folder
