"""JSON files of runs and notes, whose content is not trusted: what cannot be read is left out."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem.files import explain_errors, lock_file, open_file, read_text


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(path, "replace"))
        if isinstance(values, dict):
            return values
    return {}


def append_line(path: Path, values: Mapping[str, Any]) -> None:
    """Append an object to a JSON Lines file, which is made if there is none; several processes may append.

    Raises:
        StoreError: when it cannot be written.
    """
    line = json.dumps(values) + "\n"
    with explain_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            lock_file(fd, wait=True)
            if not stat.S_ISREG(os.fstat(fd).st_mode):  # it would keep nothing
                raise OSError(errno.EINVAL, "it is a pipe or a device, not a file")
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            os.write(fd, b"\n" * torn + line.encode())
        finally:
            os.close(fd)


@dataclass
class JsonLines:
    """The objects of a JSON Lines file that may grow; each complete line is read once."""

    path: Path
    values: list[dict[str, Any]] = field(default_factory=list)
    position: int = 0

    def read(self) -> list[dict[str, Any]]:
        """Read what was added, and return the objects of all complete lines."""
        with suppress(OSError), open_file(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self.position:  # begun anew
                self.values, self.position = [], 0
            file.seek(self.position)
            data = file.read(size - self.position)
            whole = data.rfind(b"\n") + 1
            self.position += whole
            for line in data[:whole].splitlines():
                with suppress(ValueError, RecursionError):
                    values = json.loads(line)
                    if isinstance(values, dict):
                        self.values.append(values)
        return self.values
