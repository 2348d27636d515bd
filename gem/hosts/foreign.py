"""What surrounds the calls of environments: they see no event loop, and no fork of theirs gets out."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any, NoReturn


class ForeignCode:
    """A block in which code of an environment runs.

    No event loop seems to run in this thread, so that another one can run. Without it, `asyncio.run` in an
    environment fails wherever a task steps it: in a notebook, in a server, in `rollout_async`, but not on
    hosts that use other threads.

    A fork of this process that leaves the block ends. It would go on as a second gem: play the same episodes,
    and write into the same store.
    """

    __slots__ = ("_forks", "_loop", "_task")

    forks = 0
    """How often a fork led from the first process to this one; as cheap to read as getpid() is not."""

    def __enter__(self) -> None:
        """Leave the loop, if one runs."""
        self._forks = ForeignCode.forks
        asyncio: Any = sys.modules.get("asyncio")  # not imported for this: then no loop runs either
        find_loop = getattr(asyncio, "_get_running_loop", None)  # absent while another thread imports it
        self._loop = find_loop and find_loop()
        if self._loop is not None:
            self._task = asyncio.current_task(self._loop)
            if self._task is not None:  # from Python 3.14 on a thread runs one task, whatever its loop
                asyncio._leave_task(self._loop, self._task)
            asyncio._set_running_loop(None)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Return to it; in a fork of the process that entered, end."""
        if self._forks != ForeignCode.forks:
            _end_fork(error)
        if self._loop is not None:
            asyncio: Any = sys.modules["asyncio"]
            asyncio._set_running_loop(self._loop)
            if self._task is not None:
                asyncio._enter_task(self._loop, self._task)


def _count_fork() -> None:
    ForeignCode.forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _end_fork(error: BaseException | None) -> NoReturn:
    """End this process as Python would after `error`, but unwind and flush nothing: its origin does."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        os._exit((error.code or 0) & 255)
    try:
        if error is not None:
            traceback.print_exception(error)
    finally:  # stderr may be closed
        os._exit(error is not None)
