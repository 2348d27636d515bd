"""Callbacks: watchers of one's own that may stop a run.

A logger only writes: its errors are reported and the run goes on (`gem.train.report.loggers`). A callback
takes part: it sees the episodes, may end the run, and an error in it ends the run too. Neither changes what
is learnt.

A checkpoint holds no state of a callback. A resumed run makes it anew and calls `begun` with the metrics of
all iterations that the checkpoint holds; the iterations after it are played again, and so are their calls. A
callback that decides by these metrics therefore decides the same. An end that it gave stays an end.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from gem.errors import BadArgument
from gem.naming import find_named
from gem.plugins import call_foreign, check_parameters
from gem.record import Episode
from gem.specs import parameters_of
from gem.train.report.run_folder import Evaluation, Metrics
from gem.train.report.watcher import Watcher


class Callback(Watcher):
    """The base class of callbacks; in it, they do nothing. Every hook of Watcher is called too.

    Your own is a subclass: ``--callback path/file.py:Mine``, or ``TrainConfig(callback=(Mine(),))``.
    """

    def on_episodes(self, episodes: Sequence[Episode], iteration: int) -> None:
        """Called with the episodes of an iteration, counted from 1, before it learns from them."""

    def on_iteration(self, metrics: Metrics) -> str | None:
        """Called after an iteration; a text that it returns is the reason to end the run there."""

    def on_evaluation(self, evaluation: Evaluation) -> str | None:
        """Called after an evaluation on held-out instances; a text ends the run there, as above."""


def make_callbacks(names: Sequence[str]) -> dict[str, Callback]:
    """Return the callbacks with these names: a subclass of Callback, which is made, or an object of one.

    Raises:
        BadArgument: where there is none, or it is something else.
    """
    made = {}
    for name in names:
        callback = find_named(name, "callback")
        if isinstance(callback, type) and issubclass(callback, Callback):
            callback = call_foreign(f"--callback {name}", callback)
        if not isinstance(callback, Callback):
            raise BadArgument(
                f"callback is {name!r}, {callback!r:.80}; accepted: a subclass of gem.train.Callback."
            )
        for hook, wanted in inspect.getmembers(Callback, inspect.isfunction):
            needed = [each.name for each in parameters_of(wanted).values() if each.default is each.empty]
            check_parameters(f"--callback {name}: {hook}", getattr(callback, hook), needed[1:])
        made[name] = callback
    return made


def ask_callbacks(callbacks: Mapping[str, Callback], hook: str, *args: Any) -> str | None:
    """Call a hook of every callback; return the first reason to end the run, None: it goes on.

    Raises:
        BadArgument: where one fails, or returns anything but a text or None.
    """
    reasons = []
    for name, callback in callbacks.items():
        what = f"--callback {name}: {hook}"
        reason = call_foreign(what, getattr(callback, hook), *args)
        if reason is not None and not isinstance(reason, str):
            raise BadArgument(
                f"{what} returned {reason!r:.80}; accepted: None, or a reason to stop, as text."
            )
        if reason:
            reasons.append(f"{reason} (--callback {name})")
    return reasons[0] if reasons else None
