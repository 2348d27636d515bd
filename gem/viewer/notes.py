"""Flags, notes and labels on episodes, in a file beside the store: ``<name>.notes.jsonl``.

A line is a JSON object: an episode's id, whether it is flagged, the note, and what its reader
calls it. The last line of an episode counts. Lines are only appended, so two viewers of one store do not
overwrite each other's notes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from gem.errors import BadArgument, check_argument
from gem.statistics import Interval, cohen_kappa, rate_interval
from gem.viewer.json_files import JsonLines, append_line

LONGEST = 4000
"""The most characters of a note."""
LABELS = {"": None, "right": True, "wrong": False}
"""What a reader may call an episode, and the success that it means."""


class Note(NamedTuple):
    """A flag, a text and a label (one of LABELS) that a reader stored on an episode."""

    flagged: bool
    text: str
    label: str = ""


NOTHING = Note(False, "")


class Agreement(NamedTuple):
    """How far labels agree with verdicts.

    `labelled` and `judged`: how many episodes have a label, and how many of these a success or failure too.
    `share`: of the latter, how many agree, with its 95% interval; `kappa`: Cohen's, the agreement beyond
    chance.
    """

    labelled: int
    judged: int
    share: Interval | None
    kappa: Interval | None


def measure_agreement(pairs: Iterable[tuple[str, bool | None]]) -> Agreement:
    """Return the agreement of labels with successes; a success is None where the episode has none."""
    known = [(LABELS[label], success) for label, success in pairs if label]
    both = [(label, success) for label, success in known if success is not None]
    if not both:
        return Agreement(len(known), 0, None, None)
    counts = [both.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))]
    share = rate_interval([float(label == success) for label, success in both])
    return Agreement(len(known), len(both), share, cohen_kappa(*counts))


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
        notes = {str(line["episode"]): _read_note(line) for line in lines}
        return {id: note for id, note in notes.items() if note != NOTHING}

    def of(self, episode: str) -> Note:
        """Return the note on an episode; an empty one if there is none."""
        return self.all().get(episode, NOTHING)

    def set(self, episode: str, flagged: bool, text: str, label: str = "") -> None:
        """Write a note; an empty text without a flag and a label removes it.

        Raises:
            BadArgument: for a note that is too long, or an unknown label. StoreError: when it cannot be
                written.
        """
        if len(text) > LONGEST:
            raise BadArgument(f"the note has {len(text):,} characters; accepted: {LONGEST:,} at most.")
        check_argument("label", label[:40], label in LABELS, "right, wrong, or nothing")
        append_line(self.path, {"episode": episode, "flagged": flagged, "note": text, "label": label})


def _read_note(line: Mapping[str, object]) -> Note:
    label = line.get("label", "")
    text = str(line["note"])[:LONGEST]  # of another hand
    return Note(bool(line["flagged"]), text, str(label) if label in ("right", "wrong") else "")
