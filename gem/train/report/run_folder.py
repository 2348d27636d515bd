"""The folder of a run: its files, and how they are written and read.

::

    config.json       the settings
    machine.json      the machine that began it: versions, processor, accelerator, digests of named files
    metrics.jsonl     a line per iteration
    checkpoint.pt     the newest finished iteration
    reference.pt      the weights before RL, which a KL term needs
    summary.json      the final figures
    curve.png         the learning curve
    episodes.jsonl    the training episodes, an episode store
    pool/             past copies of the policy's weights, where they are its opponents
    watched.jsonl     the watched seeds' episodes at checkpoints, with tokens, an episode store
    evaluations.jsonl a line per evaluation on held-out instances
    best.pt           the weights of the best of these evaluations; best.pt.next until the next checkpoint
    warmup.jsonl      a line per step of the warm-up
    report.html       the report of the run on one page (`gem-gym report`)
    phases/           a folder like this one for each later phase, with phase.json: its first iteration
    tensorboard/      event files, with `--log tensorboard`
    wandb/            what W&B writes, with `--log wandb`; wandb.json has the run's id
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypeVar

from gem.errors import BadArgument, SchemaMismatch, StoreError, reason
from gem.evals import EnvResult
from gem.files import explain_errors, lock_file, read_json, read_text, replace_file, replace_nan
from gem.naming import fix_name, is_path
from gem.registry import accept_settings
from gem.rollout.episode import versions
from gem.source_files import named_before, remember_name
from gem.statistics import Interval
from gem.train.config import TrainConfig
from gem.train.config.toml_file import PROSE


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one iteration; a figure that does not exist is NaN here and null in the file.

    `success`, `reward`, `turns` and `unreadable` are means over the episodes with a verdict, `loss` and the
    four after it over the steps: entropy, share of clipped tokens, divergence of the steps and divergence
    from the reference, per token. `logprob_gap`: the mean absolute difference between the learner's and the
    sampler's log probability of a token, before the first step. `value_error`: a critic's mean squared error.
    `grad_norm`: the norm of the gradient before it is scaled down, the mean over the steps. `reward_std`: the
    standard deviation of the returns that are learnt from, discounted and with the run's own reward, around
    the mean of their environment and seat. `flat_groups`: the share of groups of samples where these are all
    equal, so that they teach nothing; for algorithms that compare samples. `answer_tokens`, `episode_tokens`:
    the sampled tokens of a turn and of an episode. `explained_variance`: the share of the variance of its
    targets that a critic explains before the steps: 1 is perfect, 0 no better than a constant. `selected`:
    the share of turns that the algorithm's `select` chose; NaN where it has none.

    `tokens_trained` counts every pass, and padding. Times are in seconds; `save_s` is that of the checkpoint
    before.

    With several environments, or opponents, `environments` and `opponents` have the figures of each, by name
    (`gem.train.tasks.schedule.figures_of`). With a curriculum `stage` is the name of the iteration's stage.
    In a later phase of the run `phase` is its name. Otherwise the line has no such field.
    """

    iteration: int
    episodes: int
    success: float
    reward: float
    turns: float
    unreadable: float
    no_verdict: int
    loss: float
    entropy: float
    clipped: float
    step_kl: float
    kl: float
    logprob_gap: float
    value_error: float
    lr: float
    tokens_sampled: int
    tokens_trained: int
    sample_s: float
    update_s: float
    save_s: float
    cpu_s: float
    grad_norm: float = math.nan  # not in runs of version 0.2.0, nor are the next ones
    reward_std: float = math.nan
    flat_groups: float = math.nan
    answer_tokens: float = math.nan
    episode_tokens: float = math.nan
    explained_variance: float = math.nan
    selected: float = math.nan
    environments: dict[str, dict[str, float | int | None]] = field(default_factory=dict)
    opponents: dict[str, dict[str, float | int | None]] = field(default_factory=dict)
    stage: str = ""
    phase: str = ""


OTHER_OUT = "; choose another --out."
"""The cure where a run's folder cannot be written."""

SOMETIMES = ("environments", "opponents", "stage", "phase")
"""Fields that a line has only where they are not empty."""


@dataclass(frozen=True, slots=True)
class WarmupStep:
    """A step of the warm-up: losses are mean negative log probabilities per token, in nats.

    `held_out_loss`: on held-out demonstrations, after the step. `readable`, `random_readable`: the shares of
    readable episodes, of the policy then and of random play. None where they were not measured.
    """

    step: int
    loss: float
    held_out_loss: float | None = None
    readable: float | None = None
    random_readable: float | None = None


HeldOutKind = Literal["unseen", "all", "seen", "seeds"]
"""How the instances of an evaluation relate to those of training. ``unseen``: neither training nor the final
table draws them. ``all``: all instances of the environment, which training draws too. ``seen``: other seeds,
but training draws about all of their instances. ``seeds``: other seeds; whether training draws their
instances is not known."""

HELD_OUT: dict[str, str] = {
    "unseen": "{n} instances that training never draws",
    "all": "all {n} instances of the environment, which training plays too, with other random draws",
    "seen": "{n} seeds that training never draws, but it draws most of their instances",
    "seeds": "{n} seeds that training never draws; whether it draws their instances is not known",
}
"""These kinds in words."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation on held-out instances, with the weights of an iteration.

    `episodes`: how many it had trained on. `instances`: how many were played, `held_out` their kind.
    `scores`: for each episode its success where the environment reports it, else its return; None without
    verdict. The score at an index is always of the same instance with the same randomness, and the instances
    take turns. `parts`: where the run has several environments, the evaluation of each, by name. `result` is
    then their mean, in which each environment has the same weight, and `scores` is empty.
    """

    iteration: int
    episodes: int
    held_out: HeldOutKind
    instances: int
    temperature: float
    result: EnvResult
    scores: tuple[float | None, ...]
    wall_s: float
    parts: dict[str, Evaluation] = field(default_factory=dict)

    @property
    def score(self) -> Interval | None:
        """The success where the environment reports it, else the return; None without verdict."""
        return self.result.success or self.result.reward

    @property
    def metric(self) -> str:
        """The name of the score: success or return."""
        return "return" if self.result.success is None else "success"

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as plain JSON values, the score first."""
        score = None if self.score is None else self.score.mean
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        del plain["parts"]
        if self.parts:
            plain["parts"] = {name: part.to_json() for name, part in self.parts.items()}
        return {"iteration": self.iteration, "score": score, **plain, "result": self.result.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation of values that to_json() returned."""
        plain = {f.name: values[f.name] for f in fields(cls) if f.name != "parts"}
        parts = {name: cls.from_json(part) for name, part in values.get("parts", {}).items()}
        scores, result = tuple(plain["scores"]), EnvResult.from_json(plain["result"])
        return cls(**{**plain, "scores": scores, "result": result, "parts": parts})


class RunFolder:
    """The folder of a run, whose files it reads and writes."""

    def __init__(self, path: Path) -> None:
        """Set the paths; no file is created or changed yet."""
        self.path = path = path.absolute()  # environments may change the working directory
        self.config = path / "config.json"
        self.machine = path / "machine.json"
        self.metrics = path / "metrics.jsonl"
        self.checkpoint = path / "checkpoint.pt"
        self.reference = path / "reference.pt"
        self.summary = path / "summary.json"
        self.curve = path / "curve.png"
        self.episodes = path / "episodes.jsonl"
        self.watched = path / "watched.jsonl"
        self.pool = path / "pool"
        self.evaluations = path / "evaluations.jsonl"
        self.best, self.next_best = path / "best.pt", path / "best.pt.next"
        self.warmup = path / "warmup.jsonl"
        self.report = path / "report.html"
        self.phases, self.phase = path / "phases", path / "phase.json"

    @functools.cached_property
    def first_iteration(self) -> int:
        """The number of iterations before this folder's phase of the run; 0 in the first."""
        try:
            return int(read_json(self.phase)["after_iteration"])
        except FileNotFoundError:
            return 0
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self.phase} cannot be read: {error!r}") from error

    @property
    def phase_name(self) -> str:
        """The name of this folder's phase of the run; empty in the first."""
        return self.path.name if self.phase.exists() else ""

    @property
    def later_phases(self) -> list[RunFolder]:
        """The folders of the later phases of this run, in order."""
        files = self.phases.glob(f"*/{self.phase.name}")
        return sorted((RunFolder(file.parent) for file in files), key=lambda each: each.first_iteration)

    @property
    def newest_phase(self) -> RunFolder:
        """The folder of the run's newest phase that has a checkpoint; this folder, if it has no later one."""
        return next((each for each in reversed(self.later_phases) if each.checkpoint.exists()), self)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the folder and lock it against other trainers, until the block or the process ends.

        Raises:
            StoreError: when another trainer uses it, or it cannot be created.
        """
        with explain_errors(self.path, OTHER_OUT):
            self.path.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.path, os.O_RDONLY)
        try:
            if not lock_file(folder):
                raise StoreError(
                    f"another trainer is using {self.path}; wait until it ends, or choose another --out."
                )
            yield
        finally:
            os.close(folder)

    def check_free(self) -> None:
        """Check that the folder holds no run, and no other episodes.

        Raises:
            StoreError: when it does.
        """
        self._check_own()
        if self.checkpoint.exists():
            raise StoreError(
                f"{self.path} holds a run already; go on with it (--resume), choose another --out, or "
                "replace it (--overwrite). In Python: resume=True, out or overwrite=True."
            )

    def _check_own(self) -> None:
        if self.episodes.exists() and not self.config.exists():
            raise StoreError(
                f"{self.path} holds episodes of no training run ({self.episodes.name}); choose another --out."
            )

    def begin(self, config: TrainConfig) -> None:
        """Begin a new run in the folder.

        Raises:
            StoreError: when the folder holds a run already, or cannot be written.
        """
        self.check_free()
        with explain_errors(self.path, OTHER_OUT):
            self.path.mkdir(parents=True, exist_ok=True)
            self.metrics.write_text("")
            for file in (self.evaluations, self.best, self.next_best, self.warmup):
                file.unlink(missing_ok=True)
        files = fix_names(config)
        self.write(self.machine, machine(config.device) | ({"sources": files} if files else {}))
        self.write(self.config, config.to_json())
        remember_name("config", self.config.read_text(encoding="utf-8"))

    def clear(self) -> None:
        """Remove the files of the run in the folder, and nothing else.

        Raises:
            StoreError: when another trainer uses the folder, it holds other episodes, or the files cannot be
                removed.
        """
        self._check_own()
        for later in self.later_phases:
            later.clear()
        with self.lock():
            files = [
                *(self.config, self.machine, self.metrics, self.checkpoint, self.reference, self.summary),
                *(self.curve, self.evaluations, self.best, self.next_best, self.warmup, self.report),
                *(self.phase, self.path / "wandb.json", *self.path.glob("tensorboard/*.tfevents.gem")),
                *self.path.glob(f"{self.episodes.stem}*.jsonl*"),  # with its index, as the next one
                *self.path.glob(f"{self.watched.name}*"),
                *self.pool.glob("*.pt*"),
            ]
            try:
                for file in files:
                    file.unlink(missing_ok=True)
                if self.pool.is_dir() and not any(self.pool.iterdir()):
                    self.pool.rmdir()
            except OSError as error:
                raise StoreError(f"{self.path} cannot be cleared: {error}; choose another --out.") from error

    def read_config(self, trust: bool = False) -> TrainConfig:
        """Return the config of the run in the folder.

        Without `trust`, one that this user did not write on this machine is checked: it is to be played.

        Raises:
            StoreError: when there is none. BadArgument: when it names what a file may not name.
            SchemaMismatch: when it belongs to another version.
        """
        try:
            text = read_text(self.config)
            values = json.loads(text)
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.path} holds no run (it has no {self.config.name}); name a folder that "
                "`gem-gym train --out` wrote."
            ) from error
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.config} cannot be read: {reason(error)}.") from error
        trust = trust or named_before("config", text)
        accept_settings(values, f"the run in {self.path}", PROSE, trust=trust)
        try:
            return TrainConfig.from_json(values)
        except (BadArgument, SchemaMismatch) as error:
            raise type(error)(f"{self.config}: {error}") from error

    def changed_sources(self, config: TrainConfig) -> list[str]:
        """Return the names in a config whose file changed since the run began."""
        try:
            before = read_json(self.machine).get("sources", {})
        except (OSError, ValueError, AttributeError):
            return []
        now = fix_names(config)
        return [name for name, fixed in now.items() if before.get(name, fixed) != fixed]

    def write(self, file: Path, values: Mapping[str, Any]) -> None:
        """Write a JSON file atomically: a crash leaves the old one or the new one."""
        self._replace(file, json.dumps(replace_nan(values), indent=2, allow_nan=False) + "\n")

    def append(self, metrics: Metrics) -> None:
        """Add an iteration's line."""
        self._append(self.metrics, _metrics_to_json(metrics))

    def append_evaluation(self, evaluation: Evaluation) -> None:
        """Add an evaluation's line."""
        self._append(self.evaluations, evaluation.to_json())

    def append_warmup(self, step: WarmupStep) -> None:
        """Add a warm-up step's line."""
        self._append(self.warmup, asdict(step))

    def _append(self, path: Path, values: Mapping[str, Any]) -> None:
        with explain_errors(path), path.open("a") as file:
            file.write(_line(values))

    def history(self) -> list[Metrics]:
        """Return the iterations in the metrics file; an incomplete last line is left out.

        Raises:
            StoreError: when there are no metrics.
        """
        return _read(self.metrics, metrics_from_json)

    def evaluated(self) -> list[Evaluation]:
        """Return the evaluations on held-out instances; none where the run has none.

        Raises:
            StoreError: when the file exists and cannot be read.
        """
        return _read(self.evaluations, Evaluation.from_json) if self.evaluations.exists() else []

    def warmed(self) -> list[WarmupStep]:
        """Return the steps of the warm-up; none where the run has none.

        Raises:
            StoreError: when the file exists and cannot be read.
        """
        return _read(self.warmup, lambda values: WarmupStep(**values)) if self.warmup.exists() else []

    def read_figures(self) -> dict[str, dict[str, EnvResult]]:
        """Return the final figures by policy, as far as the run has come; what cannot be read is left out.

        Those of the whole run have an empty label; those of each of several environments have its name.
        """
        values: Any = {}
        with suppress(OSError, ValueError, RecursionError):
            values = json.loads(read_text(self.summary, "replace"))
        if not values:
            with suppress(Exception):  # no torch, no checkpoint, or a damaged one; its weights are not read
                from gem.train.learn import checkpoint

                values = checkpoint.load(self.checkpoint, mmap=True)["figures"]
        tables: dict[str, dict[str, EnvResult]] = {}
        for label, results in {"": values, **_mapping(_mapping(values).get("environments"))}.items():
            for name, each in _mapping(results).items():
                with suppress(KeyError, TypeError, ValueError, AttributeError):
                    tables.setdefault(label, {})[name] = EnvResult.from_json(each)
        return tables

    def keep_best(self) -> None:
        """Let the weights of the newest best evaluation replace the earlier ones, if there are any."""
        with suppress(FileNotFoundError):
            self.next_best.replace(self.best)

    def rewind(self, iteration: int) -> None:
        """Drop the lines of iterations after `iteration`, which the checkpoint does not hold."""
        kept = [_metrics_to_json(metrics) for metrics in self.history() if metrics.iteration <= iteration]
        self._replace(self.metrics, "".join(map(_line, kept)))
        if self.evaluations.exists():
            lines = [each.to_json() for each in self.evaluated() if each.iteration <= iteration]
            self._replace(self.evaluations, "".join(map(_line, lines)))

    def _replace(self, file: Path, text: str) -> None:
        with replace_file(file) as partial:
            partial.write_text(text)


PACKAGES = ("torch", "transformers", "numpy")
"""Packages whose versions a run records, beside those of gem and Python."""


def fix_names(config: TrainConfig) -> dict[str, str]:
    """Return each name of a file in a config, and that name with the file's digest; see gem.naming."""
    names = [config.algorithm, config.reward, *config.callback, *config.log]
    for part in config.parts:
        names += [part.id, *(part.wrappers or ())]
    return {name: fix_name(name, "setting") for name in names if is_path(name)}


def machine(device: str) -> dict[str, Any]:
    """Return the machine of a run: versions, system, processor, cores, memory in GiB, accelerator."""
    packages = versions()
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    facts: dict[str, Any] = {
        "versions": packages,
        "system": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_GiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }
    if device.startswith("cuda"):
        import torch

        facts["accelerator"] = torch.cuda.get_device_name(device)
    return facts


def processor() -> str:
    """Return the name of the processor, or of its architecture where it has none."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


Line = TypeVar("Line")


def _read(path: Path, parse: Callable[[dict[str, Any]], Line]) -> list[Line]:
    """Return the lines of a file, parsed, up to the first that is incomplete."""
    try:
        lines = read_text(path, "replace").splitlines()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    entries: list[Line] = []
    for line in lines:
        try:
            entries.append(parse(json.loads(line)))
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            break
    return entries


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def metrics_from_json(values: Mapping[str, Any]) -> Metrics:
    """Return the metrics of a line of the metrics file, where null stands for NaN."""
    known: dict[str, Any] = {name: math.nan if value is None else value for name, value in values.items()}
    return Metrics(**known)


def _metrics_to_json(metrics: Metrics) -> dict[str, Any]:
    return {name: value for name, value in asdict(metrics).items() if value or name not in SOMETIMES}


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(replace_nan(values), allow_nan=False) + "\n"
