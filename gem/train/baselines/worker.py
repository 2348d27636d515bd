"""The process of one run of a study: it trains, evaluates on other environments, and writes the result.

``python -m gem.train.baselines.worker FOLDER PARENT`` reads ``job.json`` in FOLDER and writes ``result.json``
there. It resumes a run that was interrupted. When the process PARENT has ended, it stops after an iteration,
because nobody would record its result.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

import gem
from gem.errors import GemError, StoreError
from gem.files import replace_file
from gem.train.baselines.rows import Run, Transferred, figures_of, task_of, thin_curve, write
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights
from gem.train.learn.warmup_cache import WarmUps
from gem.train.report.run_folder import RunFolder, processor
from gem.train.report.watcher import Watcher
from gem.trust import note_addresses

JOB, RESULT, LOG = "job.json", "result.json", "log.txt"
"""Files in a run's folder, beside those of the run itself."""

MACHINE_FAILED = 75
"""Exit code of a run that failed for reasons that are not its own: a full disk, too little memory."""


@dataclass(frozen=True)
class Job:
    """The task of a process; `commits` are those of gem that have worked on it."""

    config: dict[str, Any]
    transfer: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: str = ""
    commits: list[str] = field(default_factory=list)


def write_job(folder: Path, job: Job) -> None:
    """Write a job into its folder, atomically.

    Raises:
        StoreError: when it cannot be written.
    """
    with replace_file(folder / JOB, parents=True) as partial:
        partial.write_text(json.dumps(asdict(job)))


def now() -> str:
    """Return the present time, in the format of rows."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Leash(Watcher):
    """A watcher that stops a run whose parent process `parent` has ended."""

    parent: int

    def _stop_orphan(self, *event: Any, **named: Any) -> None:
        """Stop the run where the parent process has ended; hooks of Watcher do this."""
        if os.getppid() != self.parent:
            raise KeyboardInterrupt

    warmed = measured = iterated = _stop_orphan

    def warned(self, text: str) -> None:
        """See Watcher.warned."""
        sys.stderr.write(f"{text}\n")  # which is the log


def work(folder: Path, parent: int) -> None:
    """Run the job in a folder, and write its result there."""
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    if (commit := gem_commit()) not in job.commits:
        job.commits.append(commit)
        write_job(folder, job)
    note_addresses([job.config, job.transfer])  # a study named them
    write(folder / RESULT, _result(job, TrainConfig.from_json(job.config), Leash(parent)))


def _result(job: Job, config: TrainConfig, watcher: Watcher) -> Run:
    from gem.train.learn.training import train

    run = RunFolder(config.out)
    resume = run.checkpoint.exists()
    if not resume:
        run.clear()  # what was killed before it had a checkpoint
    summary = train(config, resume=resume, watcher=watcher, warm_ups=_warm_ups(config))
    history = run.history()
    names = ("random", "before", "before_greedy", "after", "greedy", "best", "best_greedy", "optimum")
    return Run(
        started=job.started,
        ended=now(),
        cpu_s=round(summary["cpu_s"], 2),
        wall_s=round(summary["wall_s"], 2),
        episodes=summary["episodes"],
        no_verdict=sum(metrics.no_verdict for metrics in history),
        figures={name: figures_of(summary[name]) for name in names if name in summary},
        transfer={
            name: _elsewhere(config, TrainConfig.from_json(other)) for name, other in job.transfer.items()
        },
        versions=versions(job.commits),
        machine=machine() | ({} if config.model == "tiny" else {"dtype": run.read_config(trust=True).dtype}),
        curve=thin_curve(history),
    )


def _warm_ups(config: TrainConfig) -> WarmUps | None:
    """Return the warm-ups that runs of the study share at this commit; None where gem has local changes."""
    commit = gem_commit()
    return None if commit.endswith("+") else WarmUps(config.out.parents[1] / "warm-ups" / commit)


def _elsewhere(trained: TrainConfig, other: TrainConfig) -> Transferred:
    """Return the results of a run's policies on another environment.

    The policy before RL exists where training needs it as a reference (with kl above 0).
    """
    from gem.agents.random import RandomAgent
    from gem.train.learn.training import make_trainer
    from gem.train.report.figures import take_figures

    run = RunFolder(trained.out)
    trainer = make_trainer(replace(other, out=trained.out, seed=trained.seed))
    with closing(trainer.player):
        take_figures(trainer, "random", RandomAgent(), other.eval_episodes)
        for name, file in (("before", run.reference), ("after", run.checkpoint)):
            if file.exists():
                load_weights(trainer.policy, checkpoint.load(file), str(file))
                trainer.learner.publish(0)  # an agent may keep what the weights before have computed
                take_figures(trainer, name, trainer.player, other.eval_episodes)
    return Transferred(task_of(other), {name: figures_of(each) for name, each in trainer.figures.items()})


def versions(commits: list[str]) -> dict[str, str]:
    """Return the versions of gem, PyTorch and Python; several commits where another one resumed the run."""
    import torch

    return {
        "gem": gem.__version__,
        "commit": ", then ".join(commits),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


@functools.cache
def gem_commit() -> str:
    """Return the commit of gem's source, with a ``+`` where files differ; unknown outside a repository."""
    source = Path(gem.__file__).parent

    def git(*words: str) -> str:
        command = ("git", "-C", str(source), *words)
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True).strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # it is not some other repository's
        return git("rev-parse", "--short=12", "HEAD") + "+" * bool(git("status", "--porcelain", "--", "."))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, str | int]:
    """Return a description of the machine: processor, cores, system."""
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 0,
        "system": f"{platform.system()} {platform.machine()}",
    }


def record_failure(started: str, error: str) -> Run:
    """Return the record of a run that failed with this error."""
    return Run(
        started=started, ended=now(), error=error, machine=machine(), versions={"commit": gem_commit()}
    )


def main() -> int:
    """Run the job in the folder of the first argument; return the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with contextlib.suppress(OSError):  # Linux shares time among sessions, and this process leads its own
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    try:
        work(folder, parent)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        import traceback

        traceback.print_exc()
        text = f"{type(error).__name__}: {error}" if isinstance(error, GemError) else repr(error)
        sys.stderr.write(f"{' '.join(text.split())}\n")  # the log's last line
        return MACHINE_FAILED if isinstance(error, StoreError | OSError | MemoryError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
