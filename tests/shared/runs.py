"""Training runs for tests: a small one, what watches it, and whether two runs are the same."""

import contextlib
import json
from dataclasses import asdict

import pytest
import torch

from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.trainer import Trainer
from gem.train.report.run_folder import RunFolder
from gem.train.report.watcher import Watcher

QUICK = TrainConfig(
    env_kwargs={"max_number": 4, "max_turns": 3},
    width=16,
    layers=1,
    heads=2,
    episodes=64,
    batch=16,
    minibatch=8,
    group=4,
    warmup_steps=16,
    warmup_on="answers",
    warmup_batch=8,
    warmup_lr=2e-2,
    eval_episodes=8,
)
TIMES = {"sample_s", "update_s", "save_s", "cpu_s"}


class Log(Watcher):
    """Keeps what it is told; at iteration `stop` it is Ctrl-C."""

    def __init__(self, stop=None):
        self.stop = stop
        self.iterations, self.warnings, self.stages, self.losses = [], [], [], []

    def stage(self, name):
        self.stages.append(name)

    def warmed(self, step, steps, loss):
        self.losses.append(loss)

    def warned(self, text):
        self.warnings.append(text)

    def iterated(self, metrics, config):
        self.iterations.append(metrics.iteration)
        if metrics.iteration == self.stop:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interrupt_before_checkpoint(iteration):
    """Be Ctrl-C where a trainer would save this iteration; None: nowhere."""
    save = Trainer.save

    def interrupt(trainer):
        if trainer.iteration == iteration:
            raise KeyboardInterrupt
        save(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "save", interrupt)
        yield


def weights(out):
    return checkpoint.load(RunFolder(out).checkpoint)["model"]


def same_weights(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def figures(out):
    """The metrics of a run without its times, as text, where NaN equals NaN."""
    history = (asdict(metrics) for metrics in RunFolder(out).history())
    return [repr({name: value for name, value in m.items() if name not in TIMES}) for m in history]


def assert_same_run(one, other):
    assert figures(one) == figures(other)
    assert same_weights(weights(one), weights(other))
    summaries = [without_times(json.loads(RunFolder(out).summary.read_text())) for out in (one, other)]
    assert summaries[0] == summaries[1]


def without_times(value):
    """A summary or a result as read from JSON, without what clocks measured."""
    if isinstance(value, dict):
        clocks = ("cpu_s", "wall_s", "seconds_per_success")
        return {name: without_times(each) for name, each in value.items() if name not in clocks}
    return [*map(without_times, value)] if isinstance(value, list) else value


def kept(out):
    """The episode that counts of each job and sample, and how many the store holds in all."""
    with EpisodeStore(RunFolder(out).episodes, read_only=True) as store:
        return {(each.job, each.sample): store[each.number] for each in store.latest()}, len(store)


def hashes(out):
    return {job: episode.transcript_hash() for job, episode in kept(out)[0].items()}
