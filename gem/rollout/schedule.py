"""Schedule: which job is played next, which are in flight, which are played again, and their results.

It has no I/O, no threads and no waiting. A driver asks for the `next` trial while there is one, plays it,
reports its `end`, and passes the `results` on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from gem.errors import BadArgument, EnvClosed
from gem.record import Episode
from gem.rollout.jobs import Job, Trial
from gem.rollout.options import RunOptions
from gem.rollout.trials import Trials

Numbered: TypeAlias = tuple[int, Episode]
"""An episode, and the number of its job among those of the runner."""


class Schedule:
    """The jobs of a runner. Each has one result: the episode of its last attempt, or its stored one."""

    def __init__(self, source: Trials, options: RunOptions, most: int | None = None) -> None:
        """Start without jobs.

        Args:
            source: makes the trials of jobs.
            options: its `concurrency` is the most results that are kept; then no trial starts.
            most: the most trials in flight; None: `concurrency`.
        """
        self._source, self._options = source, options
        self._most = options.concurrency if most is None else most
        self._streaming = self._closed = False
        self._begun = 0
        self._submitted: deque[Job] = deque()
        self._jobs: Iterator[Job] = iter(())
        self._again: deque[Trial] = deque()
        self._put_off: deque[Trial] = deque()  # until they are admitted
        self._in_flight: dict[int, Trial] = {}
        self._results: deque[Numbered] = deque()

    # -- jobs

    @property
    def submitted(self) -> Sequence[Job]:
        """The jobs that were submitted, or taken ahead, and have not started."""
        return self._submitted

    def submit(self, jobs: Iterable[Job]) -> None:
        """Add jobs, which come before those of the stream.

        Raises:
            GemError: for a job that cannot be played; then none is added.
        """
        jobs = list(jobs)
        for job in jobs:
            self._source.check(job)
        self._submitted.extend(jobs)

    def open(self, jobs: Iterable[Job]) -> None:
        """Begin a stream. `jobs` may be endless: they are taken one by one when they can start.

        Raises:
            EnvClosed: after close(). BadArgument: while another stream is open.
        """
        self.check_open()
        if self._streaming:
            raise BadArgument("a stream of this runner is open; finish or close it, or submit() the jobs.")
        self._jobs, self._streaming = iter(jobs), True

    def take_ahead(self) -> None:
        """Submit the first `concurrency` jobs of the stream.

        Raises:
            GemError: for a job that cannot be played.
        """
        self.submit(islice(self._jobs, self._options.concurrency))

    def leave(self) -> None:
        """End the stream, and drop all jobs, trials in flight and results."""
        self._streaming = False
        self._jobs = iter(())
        for each in (self._submitted, self._again, self._put_off, self._in_flight, self._results):
            each.clear()

    def close(self) -> None:
        """Let no trial start or end any more."""
        self._closed = True

    def check_open(self) -> None:
        """Check that the runner is not closed.

        Raises:
            EnvClosed: after close().
        """
        if self._closed:
            raise EnvClosed("the runner is closed; make a new one.")

    # -- trials

    @property
    def idle(self) -> bool:
        """Whether no trial is in flight and no result is left."""
        return not self._in_flight and not self._results

    @property
    def has_results(self) -> bool:
        """Whether a result is left."""
        return bool(self._results)

    @property
    def in_flight(self) -> int:
        """The number of trials in flight."""
        return len(self._in_flight)

    def next(self, *, alone: bool = True) -> Trial | None:
        """Return the next trial to play, or None if none may start now.

        None may start while enough are in flight or enough results are left, if none is admitted, or if there
        is none. `alone`: whether a trial that needs a separate worker may start.

        Raises:
            EnvClosed: after close(). SchemaMismatch: for a job stored with other settings.
        """
        self.check_open()
        trial = self._choose(alone) if len(self._in_flight) < self._most else None
        if trial is not None:
            self._in_flight[trial.number] = trial
        return trial

    def _choose(self, alone: bool) -> Trial | None:
        while len(self._results) < self._options.concurrency:
            if self._again and (alone or not self._again[0].alone):
                if self._admits():
                    return self._again.popleft()
            elif self._put_off and self._admits():
                return self._put_off.popleft()
            if self._put_off and (self._results or not self._source.remembers):
                return None  # until it is admitted; no stored episode could be a result before
            job = self._submitted.popleft() if self._submitted else next(self._jobs, None)
            if job is None:
                return None
            trial = self._first_trial(job)
            if trial is None:
                continue
            if trial.alone:
                self._again.append(trial)
            elif self._put_off or not self._admits():
                self._put_off.append(trial)
            else:
                return trial
        return None

    def _first_trial(self, job: Job) -> Trial | None:
        """Return the trial to play for a job; None if its stored episode is the result."""
        trial, episode = self._source.recall(self._source.make(job, self._begun))
        self._begun += 1
        if episode is None or (self._options.retry_failed and episode.error is not None):
            return trial
        again = replace(trial, attempt=episode.attempt).retry(episode, self._options.retries)
        if again is None:
            self._results.append((trial.number, episode))
            return None
        return replace(again, attempt=trial.attempt)

    def _admits(self) -> bool:
        """Return whether an episode may start now; earlier results are passed on before."""
        admit = self._options.admit
        return admit is None or (not self._results and admit(len(self._in_flight)))

    def end(self, trial: Trial, episode: Episode, *, alone: bool = True) -> None:
        """Record the episode of a trial in flight: its job is played again, or this is its result.

        `alone`: after the loss of its worker it is played in a separate one.
        """
        del self._in_flight[trial.number]
        again = trial.retry(episode, self._options.retries)
        if again is None:
            self._results.append((trial.number, episode))
        else:
            self._again.append(again if alone else replace(again, alone=False))

    def results(self) -> Iterator[Numbered]:
        """Yield the results and forget them, in the order in which their episodes ended."""
        while self._results:
            number, episode = self._results.popleft()
            if self._options.on_episode is not None:
                self._options.on_episode(episode)
            yield number, episode


def in_order(results: Iterable[Numbered]) -> list[Episode]:
    """Return the episodes in the order of their jobs."""
    return [episode for _, episode in sorted(results, key=lambda numbered: numbered[0])]
