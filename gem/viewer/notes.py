"""Flags and notes on episodes, in a file beside the store: ``<name>.notes.jsonl``.

A line is a JSON object: an episode's id, whether it is flagged, and the note. The last line of an episode
counts. Lines are only appended, so two viewers of one store do not overwrite each other's notes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gem.errors import BadArgument
from gem.files import explain_errors, lock_file
from gem.viewer.json_files import JsonLines

LONGEST = 4000
"""The most characters of a note."""


class Note(NamedTuple):
    """A flag and a text that a reader stored on an episode."""

    flagged: bool
    text: str


NOTHING = Note(False, "")


class Notes:
    """The notes file of a store."""

    def __init__(self, store: Path) -> None:
        """Set the file's path; the first note creates the file."""
        self.path = store.with_name(store.name + ".notes.jsonl")
        self._lock = Lock()
        self._lines = JsonLines(self.path)

    def all(self) -> dict[str, Note]:
        """Return the notes by episode id."""
        with self._lock:
            lines = [line for line in self._lines.read() if {"episode", "flagged", "note"} <= line.keys()]
        notes = {str(line["episode"]): Note(bool(line["flagged"]), str(line["note"])) for line in lines}
        return {id: note for id, note in notes.items() if note != NOTHING}

    def of(self, episode: str) -> Note:
        """Return the note on an episode; an empty one if there is none."""
        return self.all().get(episode, NOTHING)

    def set(self, episode: str, flagged: bool, text: str) -> None:
        """Write a note; an empty text without a flag removes it.

        Raises:
            BadArgument: for a note that is too long. StoreError: when it cannot be written.
        """
        if len(text) > LONGEST:
            raise BadArgument(f"the note has {len(text):,} characters; accepted: {LONGEST:,} at most.")
        line = json.dumps({"episode": episode, "flagged": flagged, "note": text}) + "\n"
        with explain_errors(self.path):
            fd = os.open(
                self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
            )
            try:
                lock_file(fd, wait=True)
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
                os.write(fd, b"\n" * torn + line.encode())
            finally:
                os.close(fd)
