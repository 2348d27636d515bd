"""Temporary folders that are removed soon after their owner ends.

Each is locked while it is in use. The kernel drops the lock when the last process that holds it ends. Whoever
makes the next folder then removes this one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile

from gem.sandbox.files import remove_folder

PREFIX = "gem-scratch-"


class Scratch:
    """A new temporary folder, kept until `close`, or while a process holds the inherited descriptor `lock`.

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

    def close(self) -> None:
        """Remove the folder and its content, as far as permissions allow, unless it was released."""
        if self.lock >= 0:
            remove_folder(self.path)
        self.release()

    def release(self) -> None:
        """Release the lock without removing the folder; it stays for processes that inherited the lock."""
        if self.lock >= 0:
            os.close(self.lock)
        self.lock = -1


def sweep() -> None:
    """Remove folders that killed processes have left."""
    if os.name != "posix":
        return
    with os.scandir(tempfile.gettempdir()) as entries:
        paths = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in paths:
        with contextlib.suppress(OSError):  # in use, another user's, or another process was faster
            lock = _lock(path)
            remove_folder(path)
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
