"""What a process holds: open files, threads and processes, to see whether something was left behind."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """What this process holds: open files, threads, and processes that it started and theirs."""

    files: int
    threads: int
    processes: int

    def within(self, other: Held) -> bool:
        """Return whether none of them is more than in `other`."""
        return (
            self.files <= other.files and self.threads <= other.threads and self.processes <= other.processes
        )


def held() -> Held:
    """Return what this process holds now."""
    return Held(len(os.listdir("/proc/self/fd")) - 1, threading.active_count(), len(descendants()))


def held_after(before: Held, patience_s: float = 10.0) -> Held:
    """Return what is held once that is no more than `before`, or when patience is over."""
    until = monotonic() + patience_s
    while not (now := held()).within(before) and monotonic() < until:
        sleep(0.02)
    return now


def descendants() -> list[int]:
    """Return the ids of the processes that this one started, and theirs.

    The tracker that multiprocessing starts once and keeps is left out.
    """
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    found, new = set[int](), {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return sorted(pid for pid in found if not _is_tracker(pid))


def _is_tracker(pid: int) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
