"""RunOptions: the settings with which a runner plays jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

from gem.errors import BadArgument, UnknownArgument, check_argument, check_least, did_you_mean
from gem.history import HistoryPolicy
from gem.hosts import Host
from gem.record import Episode, Limits
from gem.rollout.episode import NO_LIMITS
from gem.rollout.store import EpisodeStore


class Store(Protocol):
    """The interface of a store to which a runner writes episodes, such as `gem.rollout.EpisodeStore`."""

    def append(self, episode: Episode) -> None:
        """Write one episode."""
        ...


@dataclass(frozen=True)
class RunOptions:
    """The settings of `Runner`, `rollout`, `rollout_async`, `evaluate` and `RayRunner`.

    Each of them takes these fields as keywords, or a RunOptions as ``options=``; with both, the keywords
    replace fields of the options.

    Args:
        host: the host for environments: ``serial``, in this thread; ``thread``, for those that wait (tools,
            networks); ``process``, for those that compute; another name that a package registers; a host,
            which the caller closes; or ``auto``: ``thread`` if one of the first jobs has an environment that
            waits, else ``serial``.
        limits: limits from outside the task; see Limits.
        history: which past turns the agent sees; see `play`.
        concurrency: episodes in flight; this is also the largest batch.
        retries: how often an episode that infrastructure broke is played again.
        store: every episode is written there when it ends, including those that are played again.
        resume: continue from the episodes in `store`, an EpisodeStore. A job that has ended there is not
            played again; its stored episode is yielded instead. One that infrastructure broke is tried again
            while `retries` last, with the next attempt number. New episodes join the stored run with the same
            agent, model and settings; a job stored with other settings raises. To compare the environments,
            one of each recipe is made in this process, unless the recipe is an id, a task, or a Maker of
            plain data without wrappers. Where an argument cannot be stored, a function of a module or a job's
            `key` has to tell.
        retry_failed: with `resume`, play every stored job again that broke, for any reason.
        admit: called before an episode starts, with the number of episodes in flight; returns whether one
            more may start. After False it is called again when an episode has ended. False while none is in
            flight ends the stream; jobs that have not started stay unplayed. Stored episodes are yielded in
            any case.
        on_episode: called with the last attempt of each job when it ends.

    Raises:
        BadArgument: for invalid numbers, or `resume` without an EpisodeStore.
    """

    host: str | Host = "auto"
    limits: Limits = NO_LIMITS
    history: HistoryPolicy | None = None
    concurrency: int = 128
    retries: int = 1
    store: Store | None = None
    resume: bool = False
    retry_failed: bool = False
    admit: Callable[[int], bool] | None = None
    on_episode: Callable[[Episode], None] | None = None

    def __post_init__(self) -> None:
        """Refuse settings with which nothing can be played."""
        check_argument("concurrency", self.concurrency, self.concurrency >= 1, "1 or more episodes in flight")
        check_least("retries", self.retries, 0)
        if self.resume and not isinstance(self.store, EpisodeStore):
            raise BadArgument(f"resume needs an EpisodeStore; store is {self.store!r:.80}.")
        if self.retry_failed and not self.resume:
            raise BadArgument("retry_failed plays stored episodes again; it needs resume=True.")

    @classmethod
    def merge(cls, options: RunOptions | None, keywords: Mapping[str, Any]) -> RunOptions:
        """Return the options with some fields replaced; without options, of the defaults.

        Raises:
            UnknownArgument: for a keyword that is no field; the message lists the fields.
            BadArgument: for `options` that are no RunOptions, or invalid values.
        """
        if options is not None and not isinstance(options, cls):
            raise BadArgument(f"options is {options!r:.80}; accepted: a gem.rollout.RunOptions.")
        check_names(keywords)
        if keywords.get("limits", NO_LIMITS) is None:
            keywords = {**keywords, "limits": NO_LIMITS}
        return cls(**keywords) if options is None else replace(options, **keywords)


def check_names(keywords: Iterable[str]) -> None:
    """Check that keywords are fields of RunOptions.

    Raises:
        UnknownArgument: for another one; the message lists the fields.
    """
    names = [each.name for each in fields(RunOptions)]
    for name in keywords:
        if name not in names:
            raise UnknownArgument(
                f"there is no option {name!r}.{did_you_mean(name, names)} Accepted: {', '.join(names)}."
            )
