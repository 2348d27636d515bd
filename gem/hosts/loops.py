"""Let environments run an event loop of their own, also where their caller is a task of one."""

from __future__ import annotations

import sys
from typing import Any


class OutsideLoop:
    """A block in which no event loop seems to run in this thread, so that another one can run.

    Without it, `asyncio.run` in an environment fails wherever a task steps it: in a notebook, in a server, in
    `rollout_async`, but not on hosts that use other threads.
    """

    __slots__ = ("_loop", "_task")

    def __enter__(self) -> None:
        """Leave the loop, if one runs."""
        asyncio: Any = sys.modules.get("asyncio")  # not imported for this: then no loop runs either
        find_loop = getattr(asyncio, "_get_running_loop", None)  # absent while another thread imports it
        self._loop = find_loop and find_loop()
        if self._loop is not None:
            self._task = asyncio.current_task(self._loop)
            if self._task is not None:  # from Python 3.14 on a thread runs one task, whatever its loop
                asyncio._leave_task(self._loop, self._task)
            asyncio._set_running_loop(None)

    def __exit__(self, *_: object) -> None:
        """Return to it."""
        if self._loop is not None:
            asyncio: Any = sys.modules["asyncio"]
            asyncio._set_running_loop(self._loop)
            if self._task is not None:
                asyncio._enter_task(self._loop, self._task)
