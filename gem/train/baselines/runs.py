"""Execution of a study: each run in a process of its own, several at once, none twice, none lost.

A file beside a run's folder locks the run, from before it begins until its result is recorded. The process of
the run holds the lock too, so it remains if the command is killed and the run continues. Any number of
commands may work on a study at once; each continues what another left undone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from gem.errors import StoreError
from gem.files import explain_errors, lock_file
from gem.train.baselines import rows
from gem.train.baselines.rows import Bounds, Figures, Row, Run, Searched, Tried
from gem.train.baselines.study import Cell, Study
from gem.train.baselines.worker import JOB, LOG, MACHINE_FAILED, RESULT, Job, now, record_failure, write_job
from gem.train.config import TrainConfig
from gem.train.report.run_folder import RunFolder
from gem.waiting import name_wait, report_news

POLL_S = 0.2
"""Seconds between checks of the processes."""

PATIENCE_S = 20.0
"""Seconds that a process has to stop before it is killed."""

State = Literal["finished", "failed", "changed", "begun", "open"]
"""The state of a run: finished; failed; run under other settings; interrupted; not begun."""


@dataclass(frozen=True)
class Task:
    """One run of a study: of a seed, or of the point `point` of the search with a seed of the search.

    `share`: the share of the episodes that this run of a search has.
    """

    cell: Cell
    seed: int
    config: TrainConfig
    transfer: dict[str, TrainConfig] = field(default_factory=dict)
    point: int | None = None
    share: float = 1.0

    @property
    def name(self) -> str:
        """The run's name in messages."""
        part = "" if self.share == 1 else f" with {self.share:g} of the episodes"
        searched = "" if self.point is None else f"search {self.point + 1}{part}, "
        return f"{self.cell.name}, {searched}seed {self.seed}"

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.config.out

    @property
    def lock(self) -> Path:
        """The file that locks the run, beside its folder."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    @property
    def recorded(self) -> Run | None:
        """The result in the folder, if it is of this config; else None."""
        job = rows.read_record(self.folder / JOB, Job)
        run = rows.read_record(self.folder / RESULT, Run)
        if job is None or run is None or rows.find_changes(job.config, self.config):
            return None
        return run if run.error is not None or self.is_transferred(run) else None

    def is_transferred(self, run: Run) -> bool:
        """Return whether a run was evaluated on exactly the other environments that are wanted."""
        wanted = {name: rows.task_of(config) for name, config in self.transfer.items()}
        return {name: part.task for name, part in run.transfer.items()} == wanted


@dataclass
class Outcome:
    """The outcome of a command: how many runs finished, and the names of what failed or was not recorded."""

    finished: int = 0
    failed: list[str] = field(default_factory=list)


@dataclass
class Plan:
    """The selected runs of a study: their states, and how their results are recorded.

    A run, or row, that is older than some settings is continued if `keep_older` is set.
    """

    study: Study
    runs: Path
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    keep_older: bool = False

    def __post_init__(self) -> None:
        """Keep the study's runs in a folder of its name."""
        self.runs = self.runs / self.study.name

    # -- what there is to do

    def tasks(self, cell: Cell) -> list[Task]:
        """Return the runs of a cell that can begin now: first those of the search, then those of seeds."""
        point: dict[str, Any] = {}
        if self.study.search is not None:
            searched = self.find_search(cell)
            if searched is None or searched.chosen is None:
                return self.searches(cell)
            point = dict(self.study.search.points[searched.chosen])
        config = self.study.config(cell, point)
        return [self._task(cell, seed, config) for seed in self.seeds]

    def searches(self, cell: Cell) -> list[Task]:
        """Return the runs of a cell's search that are known: those of all rounds up to the first open one."""
        return [task for tasks in self._rounds(cell) for own in tasks.values() for task in own]

    def _rounds(self, cell: Cell) -> Iterator[dict[int, list[Task]]]:
        """Yield the runs of each known round of a cell's search, by their points."""
        search = self.study.search
        if search is None:
            return
        points = list(range(len(search.points)))
        for turn, share in enumerate(search.shares):
            tasks = {}
            for number in points:
                config = self.study.config(cell, search.points[number], share)
                tasks[number] = [self._task(cell, seed, config, number, share) for seed in search.seeds]
            yield tasks
            if share == 1 or any(task.recorded is None for own in tasks.values() for task in own):
                return
            worth = {number: self._worth_of(self._summarise_runs(own)) for number, own in tasks.items()}
            best = sorted(points, key=lambda number: -worth[number])
            points = sorted(best[: search.count(len(points), turn + 1)])

    def _worth_of(self, tried: Tried) -> float:
        """Return the mean score of a point, so that higher is better; minus infinity where a run failed."""
        return -tried.mean if self.study.score == "turns" and tried.mean > float("-inf") else tried.mean

    def _summarise_runs(self, tasks: Sequence[Task]) -> Tried:
        """Return what runs of one point say, all of which are recorded."""
        runs = [run for task in tasks if (run := task.recorded) is not None]
        scores = [score_of(run.figures, self.study.score) for run in runs]
        search, number = self.study.search, tasks[0].point
        assert search is not None
        assert number is not None
        settings = dict(search.points[number])
        return Tried(
            settings, scores, [run.error for run in runs], [run.cpu_s for run in runs], tasks[0].share
        )

    def _task(
        self, cell: Cell, seed: int, config: TrainConfig, point: int | None = None, share: float = 1.0
    ) -> Task:
        part = "" if share == 1 else f"-share-{share:g}"
        name = f"seed-{seed}" if point is None else f"search-{point + 1}{part}-seed-{seed}"
        own = replace(config, seed=seed, out=self.runs / cell.slug / name)
        transfers = self.study.transfers(cell, own) if point is None else {}
        return Task(cell, seed, own, transfers, point, share)

    def find_search(self, cell: Cell) -> Searched | None:
        """Return the result of a cell's search, if its row holds it and it is of this study; else None."""
        row = rows.read_row(self.study.row_of(cell))
        return row.search if row is not None and not search_changes(self.study, cell, row) else None

    def state(self, task: Task) -> tuple[State, str]:
        """Return the state of a run, and a note: its error, or the settings that have changed."""
        row = rows.read_row(self.study.row_of(task.cell))
        if row is not None and task.point is None:
            if changed := rows.find_changes(row.config, task.config):
                return "changed", ", ".join(changed)
            run = row.runs.get(str(task.seed))
            newer = ", ".join(rows.absent(row.config))
            if run is not None and run.error is None and task.is_transferred(run):
                return "finished", f"before there was {newer}" if newer else ""
            if row.runs and newer and not self.keep_older:
                return "changed", f"{newer} (newer than its row)"
            if run is not None and run.error is not None:
                return "failed", run.error
        run = task.recorded
        if run is not None and run.error is not None:
            return "failed", run.error
        if run is not None:
            return ("finished", "") if task.point is not None else ("begun", "")
        job = rows.read_record(task.folder / JOB, Job)
        if job is not None and (changed := rows.find_changes(job.config, task.config)):
            return "changed", ", ".join(changed)
        if job is not None and not self.keep_older and (newer := ", ".join(rows.absent(job.config))):
            return "changed", f"{newer} (newer than its run)"
        return ("begun", "") if job is not None else ("open", "")

    def count_left(self) -> int:
        """Return the number of runs of the study's own seeds that have not finished."""
        waiting = sum(len(self.seeds) for cell in self.cells if self.waits(cell))
        ready = [task for cell in self.cells if not self.waits(cell) for task in self.tasks(cell)]
        return waiting + sum(self.state(task)[0] != "finished" for task in ready)

    def waits(self, cell: Cell) -> bool:
        """Return whether the seeds of a cell wait for its search."""
        return any(task.point is not None for task in self.tasks(cell))

    def find_changes(self) -> dict[str, str]:
        """Return the settings that changed since a run, by the runs' names; of searches, by the cells'."""
        changes = {}
        for cell in self.cells:
            row = rows.read_row(self.study.row_of(cell))
            if row is not None and (changed := search_changes(self.study, cell, row)):
                changes[cell.name] = ", ".join(changed)
                continue
            for task in self.tasks(cell):
                state, names = self.state(task)
                if state == "changed":
                    changes[task.name] = names
        return changes

    # -- writing down

    @contextlib.contextmanager
    def _row_held(self, cell: Cell) -> Iterator[None]:
        file = _open_file(self.runs / cell.slug / "row.lock")
        try:
            lock_file(file, wait=True)
            yield
        finally:
            os.close(file)

    def record(self, task: Task, run: Run, overwrite: bool = False) -> None:
        """Write a seed's run into its row; a row with another config begins anew.

        The row holds the settings that existed when its runs were made. A newer setting may have a default
        that changes the result. So runs from before and after it are put into one row only if `keep_older` is
        set; the row then holds the settings that all of them had. A failed run does not replace one that
        finished and was only evaluated again.

        Raises:
            StoreError: when the row cannot be written, or changed meanwhile.
        """
        path = self.study.row_of(task.cell)
        job = rows.read_record(task.folder / JOB, Job)
        absent = [] if job is None else rows.absent(job.config)
        config = {name: value for name, value in rows.common(task.config).items() if name not in absent}
        with self._row_held(task.cell):
            row = rows.read_row(path)
            changed = [] if row is None else rows.find_changes(row.config, task.config)
            if row is not None and row.runs and self.keep_older:
                config = {name: value for name, value in config.items() if name in row.config}
            elif row is not None and row.runs:
                changed += sorted({*row.config} ^ {*config})
            if row is not None and changed:
                if not overwrite and row.runs:
                    raise StoreError(f"{path} changed meanwhile in {', '.join(changed)}; run it again.")
                row = replace(row, config={}, runs={})
            row = row or self._empty(task.cell)
            if self.study.search is None:
                row = replace(row, search=None)
            stands = row.runs.get(str(task.seed))
            if run.error is not None and stands is not None and stands.error is None:
                return
            ordered = {**row.runs, str(task.seed): run}
            ordered = {seed: ordered[seed] for seed in sorted(ordered, key=int)}
            rows.write(path, replace(row, config=config, runs=ordered))

    def conclude(self, cell: Cell) -> Searched | None:
        """Choose a cell's settings once its search is complete, and record the search.

        The point with the best mean score is chosen, the first of equal ones. A point with a failed run is
        not. Returns None where the search is not complete, or was recorded before.

        Raises:
            StoreError: when the row cannot be written.
        """
        search = self.study.search
        rounds = list(self._rounds(cell))
        if search is None or len(rounds) < len(search.shares):
            return None
        points: dict[int, Tried] = {}
        for tasks in rounds:
            for number, own in tasks.items():
                if any(task.recorded is None for task in own):
                    return None
                tried, before = self._summarise_runs(own), points.get(number)
                spent = before.cpu_s if before else [0.0] * len(own)
                cpu_s = [one + other for one, other in zip(spent, tried.cpu_s, strict=True)]
                points[number] = replace(tried, cpu_s=cpu_s)
        sound = [number for number in rounds[-1] if points[number].mean > float("-inf")]
        chosen = max(sound, key=lambda number: self._worth_of(points[number])) if sound else None
        best = chosen or 0
        common = rows.common(self.study.config(cell))
        tried_points = [points[number] for number in sorted(points)]
        conclusion = Searched(common, list(search.seeds), tried_points, chosen, list(search.shares))
        with self._row_held(cell):
            path = self.study.row_of(cell)
            row = rows.read_row(path) or self._empty(cell)
            if row.search == conclusion:
                return None
            config = rows.common(self.study.config(cell, search.points[best]))
            rows.write(
                path, replace(row, search=conclusion, runs={}, config=config)
            )  # runs had another choice
        return conclusion

    def _empty(self, cell: Cell) -> Row:
        return Row(self.study.name, cell.environment.name, cell.variant.name, {})


def search_changes(study: Study, cell: Cell, row: Row) -> list[str]:
    """Return how the search of a row differs from the study's; empty where neither has one."""
    search, stored = study.search, row.search
    if search is None or stored is None:
        return [] if search is None and stored is None else ["[search]"]
    changed = rows.find_changes(stored.config, study.config(cell))
    if stored.seeds != list(search.seeds):
        changed.append("seeds of [search]")
    if stored.shares != list(search.shares):
        changed.append("shares of [search]")
    if [point.settings for point in stored.points] != [dict(point) for point in search.points]:
        changed.append("grid of [search]")
    return changed


def row_changes(study: Study, cell: Cell, row: Row) -> list[str]:
    """Return the settings in which a row differs from the present study."""
    if changed := search_changes(study, cell, row):
        return changed
    if study.search is None or row.search is None or row.search.chosen is None:
        return rows.find_changes(row.config, study.config(cell))
    return rows.find_changes(row.config, study.config(cell, study.search.points[row.search.chosen]))


def bounds_of(figures: Mapping[str, Figures], score: str, policy: str = "after") -> Bounds | None:
    """Return the score of a policy and its interval; None where there is no such figure.

    `score`: see `gem.train.baselines.study.Score`.
    """
    own = figures.get(policy)
    if own is None:
        return None
    bounds = {"turns": own.turns_to_success, "return": own.reward}.get(score, own.success)
    return own.reward if bounds is None and score == "auto" else bounds


def score_of(figures: Mapping[str, Figures], score: str, policy: str = "after") -> float | None:
    """Return the score of a policy; see bounds_of()."""
    bounds = bounds_of(figures, score, policy)
    return None if bounds is None else bounds.mean


def scores_of(results: Sequence[Mapping[str, Figures]], score: str, policy: str) -> list[float]:
    """Return the scores of a policy in several results; none at all where one of them lacks it."""
    scores = [score_of(figures, score, policy) for figures in results]
    known = [each for each in scores if each is not None]
    return known if len(known) == len(scores) else []


def _open_file(path: Path) -> int:
    with explain_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def _try_lock(path: Path) -> int | None:
    """Return a locked file, which is unlocked by closing it; None where another process holds the lock."""
    file = _open_file(path)
    if lock_file(file):
        return file
    os.close(file)
    return None


@dataclass
class Working:
    """A run in progress, its process and its lock."""

    task: Task
    process: subprocess.Popen[bytes]
    lock: int


def describe_place(task: Task) -> str:
    """Return how far a run is, by the files in its folder."""
    folder = RunFolder(task.folder)
    with contextlib.suppress(StoreError):
        if folder.metrics.exists() and (done := folder.history()):
            return f"iteration {done[-1].iteration} of {task.config.iterations}"
        if warmed := folder.warmed():
            return f"warm-up step {len(warmed)} of {task.config.warmup_steps}"
    return "at its start"


class Carrier:
    """The execution of a plan with several processes at once."""

    def __init__(self, plan: Plan, *, workers: int, overwrite: bool, tell: Callable[[str], None]) -> None:
        """Report events with `tell`, a line each."""
        self.plan, self.workers, self.overwrite, self._tell = plan, workers, overwrite, tell
        self.working: list[Working] = []
        self.outcome = Outcome()
        self._began = now()
        self._tried: set[Path] = set()
        self._waiting = False
        self._left = plan.count_left()

    def carry_out(self) -> Outcome:
        """Run what is left to run, and return the outcome.

        Raises:
            KeyboardInterrupt: on Ctrl-C, when all processes have stopped.
        """
        try:
            with name_wait(self.describe):
                return self._run_all()
        except BaseException:
            self._stop()
            raise

    def tell(self, text: str) -> None:
        """Report an event, which is news."""
        self._tell(text)
        report_news()

    def describe(self) -> str:
        """Return which runs are in progress, and how far each is; at most three of them."""
        names = [f"{each.task.name} ({describe_place(each.task)})" for each in self.working.copy()]
        return "; ".join([*names[:3], *([f"{len(names) - 3} more"] * (len(names) > 3))])

    def _run_all(self) -> Outcome:
        while True:
            self._reap()
            elsewhere = self._fill()
            if not self.working and not elsewhere:
                return self.outcome
            if elsewhere and not self.working and not self._waiting:
                self._waiting = True
                self.tell(f"waiting for {elsewhere}, which another process is running")
            time.sleep(POLL_S if self.working else 5 * POLL_S)

    def _fill(self) -> str:
        """Begin the runs that can begin; return the name of one that another process is running, if any."""
        elsewhere = ""
        for cell in self.plan.cells:
            if len(self.working) >= self.workers:
                break
            for task in self.plan.tasks(cell):
                at_work = any(working.task.folder == task.folder for working in self.working)
                if at_work or task.folder in self._tried:
                    continue
                if len(self.working) >= self.workers:
                    break
                if (lock := _try_lock(task.lock)) is None:
                    elsewhere = elsewhere or task.name
                elif not self._take_up(task, lock):
                    self._tried.add(task.folder)
                    os.close(lock)
        return elsewhere

    def _take_up(self, task: Task, lock: int) -> bool:
        """Begin or continue a run that is locked; False where there is nothing to do."""
        state, names = self.plan.state(task)
        if state == "finished":
            if task.point is not None:
                self._conclude_search(task.cell)
            return False
        recorded = task.recorded
        if recorded is not None and (recorded.error is None or recorded.ended > self._began):
            self._write_down(task, recorded)
            return False
        if state == "changed" and not self.overwrite:
            self._fail(task, f"it was run with another {names}; --overwrite runs it again")
            return False
        try:
            self._prepare(task, anew=self.overwrite and state == "failed")
            self._start(task, lock)
        except (StoreError, OSError) as error:
            self._fail(task, str(error))
            return False
        return True

    def _prepare(self, task: Task, anew: bool) -> None:
        """Make the folder ready: empty for a run that begins anew, else as it stands."""
        job, folder = rows.read_record(task.folder / JOB, Job), task.folder
        config = task.config.to_json()
        if job is not None:
            older = not self.plan.keep_older and rows.absent(job.config)
            if anew or older or rows.find_changes(job.config, task.config):
                RunFolder(folder).clear()
                job = None
            else:
                config = {name: value for name, value in config.items() if name in job.config}
        (folder / RESULT).unlink(missing_ok=True)
        transfer = {name: other.to_json() for name, other in task.transfer.items()}
        job = replace(job or Job({}, started=now()), config=config, transfer=transfer)
        write_job(folder, job)

    def _start(self, task: Task, lock: int) -> None:
        command = [sys.executable, "-m", "gem.train.baselines.worker", str(task.folder), str(os.getpid())]
        threads = {"OMP_NUM_THREADS": str(task.config.threads)} if task.config.threads else {}
        with (task.folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads},
                pass_fds=(lock,),  # which holds the run as long as the process lives
                start_new_session=True,  # Ctrl-C is passed on in _stop()
            )
        self.working.append(Working(task, process, lock))
        begun = RunFolder(task.folder).checkpoint.exists()
        self.tell(f"{'going on with' if begun else 'begun'}: {task.name}")

    def _reap(self) -> None:
        """Record the runs that have ended."""
        for working in [each for each in self.working if each.process.poll() is not None]:
            self.working.remove(working)
            self._tried.add(working.task.folder)
            try:
                self._finish_task(working.task, working.process.returncode)
            finally:
                os.close(working.lock)

    def _finish_task(self, task: Task, code: int) -> None:
        run = task.recorded
        if code == 0 and run is not None:
            self._write_down(task, run)
            return
        error = _last_line(task.folder / LOG) or f"exit code {code}"
        if code < 0:
            error = f"ended by signal {-code} ({signal.Signals(-code).name})"
        job = rows.read_record(task.folder / JOB, Job)
        run = record_failure(job.started if job else now(), error)
        if task.point is not None and (code < 0 or code == MACHINE_FAILED):
            self._fail(task, error)  # which says nothing about the point: it is not written down
            return
        with contextlib.suppress(StoreError):
            rows.write(task.folder / RESULT, run)
        self._write_down(task, run)

    def _write_down(self, task: Task, run: Run) -> None:
        """Write a run into its row; after the last run of a search, record the search."""
        if run.error is not None:
            self._fail(task, run.error)
        if task.point is not None:
            if run.error is None:
                self._succeed(task, run)
            self._conclude_search(task.cell)
            return
        try:
            self.plan.record(task, run, self.overwrite)
        except StoreError as error:
            kept = f" Its result is in {task.folder / RESULT}." if task.recorded else ""
            self._fail(task, f"{error}{kept}")
        else:
            if run.error is None:
                self._succeed(task, run)

    def _conclude_search(self, cell: Cell) -> None:
        try:
            conclusion = self.plan.conclude(cell)
        except StoreError as error:
            self.outcome.failed.append(cell.name)
            self.tell(f"failed: {cell.name}: {error}")
            return
        if conclusion is not None and conclusion.chosen is None:
            self.tell(f"failed: {cell.name}: every point of its search failed, so nothing was chosen")
        elif conclusion is not None and conclusion.chosen is not None:
            chosen = conclusion.points[conclusion.chosen]
            settings = ", ".join(f"{name} = {value}" for name, value in chosen.settings.items())
            self.tell(f"chosen: {cell.name}: {settings} (score {chosen.mean:.3f})")

    def _succeed(self, task: Task, run: Run) -> None:
        self.outcome.finished += 1
        score = score_of(run.figures, self.plan.study.score)
        score_text = "" if score is None else f"score {score:.3f}, "
        self._left -= task.point is None
        left = f"; {self._left} left" if task.point is None else ""
        self.tell(f"finished: {task.name}: {score_text}{run.cpu_s:.0f} CPU seconds{left}")

    def _fail(self, task: Task, error: str) -> None:
        if task.name not in self.outcome.failed:
            self.outcome.failed.append(task.name)
        self.tell(f"failed: {task.name}: {error}")

    def _stop(self) -> None:
        """Stop all processes: a run goes on from its last checkpoint."""
        for working in self.working:
            with contextlib.suppress(ProcessLookupError):
                working.process.send_signal(signal.SIGINT)
        until = time.monotonic() + PATIENCE_S
        for working in self.working:
            try:
                working.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                working.process.kill()
                working.process.wait()
            os.close(working.lock)
        self.working.clear()


def _last_line(path: Path) -> str:
    """Return the last line of a log."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:500]
