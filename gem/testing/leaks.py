"""Detect leaks: count the open files, threads and child processes of this process."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """The numbers of open files, threads, and descendant processes of this process."""

    files: int
    threads: int
    processes: int

    def within(self, other: Held) -> bool:
        """Return whether no number is larger than in `other`."""
        return (
            self.files <= other.files and self.threads <= other.threads and self.processes <= other.processes
        )


def count_held() -> Held:
    """Return the current numbers of this process."""
    return Held(len(os.listdir("/proc/self/fd")) - 1, threading.active_count(), len(descendants()))


def held_after(before: Held, patience_s: float = 10.0) -> Held:
    """Wait until no number is larger than `before`, at most `patience_s` seconds, and return the numbers."""
    until = monotonic() + patience_s
    while not (now := count_held()).within(before) and monotonic() < until:
        sleep(0.02)
    return now


def descendants() -> list[int]:
    """Return the ids of all descendant processes of this one.

    The resource tracker, which multiprocessing starts once and keeps, is left out.
    """
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    family, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - family
        family |= new
    return sorted(pid for pid in family if not _is_tracker(pid))


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
