"""Waiting for what another thread or process does, where no event tells of it."""

import asyncio
import time
from pathlib import Path

DEADLINE_S = 60.0


def until(condition, what="what was waited for did not come", seconds=DEADLINE_S):
    """Poll until the condition holds, and return its value; fail with `what` after so many seconds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.01)
    return value


async def until_async(condition, what="what was waited for did not come", seconds=DEADLINE_S):
    """Do the same in an event loop, where others go on meanwhile."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, what
        await asyncio.sleep(0.01)
    return value


def has_ended(pid):
    """Whether a process has ended and closed what it had open, also where nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
