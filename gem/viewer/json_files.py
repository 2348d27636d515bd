"""JSON files of runs and notes, whose content is not trusted: what cannot be read is left out."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gem.files import open_file, read_text


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_text(path, "replace"))
        if isinstance(values, dict):
            return values
    return {}


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
