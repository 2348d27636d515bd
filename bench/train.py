"""Cost of training the tiny model: tokens per second, the share of each phase, and comparison with a matmul.

``python -m bench.train [--iterations N]``. It runs iterations of the demonstration's config, after its
warm-up, on one thread. All figures are CPU seconds of this process, which hardly depend on other load of the
machine. The floor is the time of one large fp32 matrix product with the same number of floating-point
operations on the same core. It counts only the model's matrix products, padding included.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.common import choose_size, parse_args, table, write_json
from gem.agents.tiny import TinyLM
from gem.record import Episode
from gem.train.config import TrainConfig
from gem.train.learn.preparation import warm
from gem.train.learn.trainer import Trainer
from gem.train.learn.training import make_trainer
from gem.train.report.watcher import Watcher

SETTINGS: dict[str, Any] = choose_size({}, {"batch": 32, "warmup_steps": 25, "warmup_batch": 16})
"""Changes of the demonstration's config."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--iterations", type=int, default=choose_size(5, 1))
    iterations = parse_args(parser).iterations
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(begin(TrainConfig(out=Path(folder), **SETTINGS))) as trainer,
    ):
        results = [iteration(trainer) for _ in range(iterations + 1)][1:]  # the first one warms the caches
    figures = {
        phase: {name: statistics.median(r[phase][name] for r in results) for name in results[0][phase]}
        for phase in results[0]
    }
    whole = sum(figures[phase]["cpu_s"] for phase in ("sample", "update", "checkpoint"))
    floor = matmul_rate()
    rows = []
    for phase, found in figures.items():
        found["share"] = found["cpu_s"] / whole
        if "tokens" in found:
            found["tokens_per_s"] = found["tokens"] / found["cpu_s"]
        if "flop" in found:
            found["over_floor"] = found["cpu_s"] / (found["flop"] / floor)
        wanted = ("tokens", "tokens_per_s", "over_floor")
        rows.append(
            [phase, found["cpu_s"] * 1e3, f"{found['share']:.1%}", *(found.get(name, "-") for name in wanted)]
        )
    config = trainer.config
    table(
        f"{config.env}, {config.batch} episodes per iteration, one core, median of {iterations}; matmul "
        f"{floor / 1e9:.0f} GFLOP/s",
        ["phase", "CPU ms per iteration", "share", "tokens", "tokens/s", "time over matmul's"],
        rows,
    )
    print(
        "sample: tokens generated; of its time, the environments: the same resets and steps by themselves.\n"
        "update: positions of every pass, padding included."
    )
    write_json("train", {"config": config.to_json(), "matmul_flop_per_s": floor, "phases": figures})


def begin(config: TrainConfig) -> Trainer:
    """Return a run as it stands when RL begins; its folder has to be there."""
    trainer = make_trainer(config, Watcher())
    warm(trainer)
    trainer.hold_reference()
    return trainer


def iteration(trainer: Trainer) -> dict[str, dict[str, float]]:
    """Carry out one iteration and return what each phase took."""
    learner = trainer.learner
    models: list[Any] = [p.model for p in (learner.policy, learner.reference) if p is not None]
    counter = Counter(models)
    sample_s, episodes = timed(trainer.sample)
    generated = sum(len(turn.token_ids) for episode in episodes for turn in episode.turns)
    sample_flop = counter.take() + logits_flop(models[0], generated)
    update_s, steps = timed(lambda: trainer.learn(episodes))
    per_pass = logits_flop(models[0], generated) * trainer.config.epochs
    update_flop = counter.take() + per_pass * (3 + (len(models) - 1))
    tokens = steps.positions
    counter.close()
    trainer.iteration += 1
    trainer.learner.publish(trainer.iteration)
    save_s, _ = timed(trainer.save)
    env_s, _ = timed(lambda: replay(trainer, episodes))
    return {
        "sample": {"cpu_s": sample_s, "tokens": generated, "flop": sample_flop},
        "of which environments": {"cpu_s": env_s},
        "update": {"cpu_s": update_s, "tokens": tokens, "flop": update_flop},
        "checkpoint": {"cpu_s": save_s},
    }


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds that some work took, and what came of it."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def replay(trainer: Trainer, episodes: Sequence[Episode]) -> None:
    """Make the environments' moves again, without a model."""
    env = trainer.maker()
    for episode in episodes:
        env.reset(seed=episode.seed)
        for turn in episode.turns:
            env.step(turn.action)


class Counter:
    """Counts the floating-point operations of the blocks of some models; a backward pass counts twice."""

    def __init__(self, models: Sequence[TinyLM]) -> None:
        self.flop = 0.0
        self.hooks = [model.register_forward_pre_hook(self.count) for model in models]

    def count(self, model: TinyLM, args: tuple[Any, ...]) -> None:
        """Add a forward pass that is about to be made."""
        ids_BT, _, _, mask = args
        weights = sum(p.numel() for block in model.blocks for p in block.parameters() if p.dim() == 2)
        attention = 2 * len(model.blocks) * model.config.width * mask.shape[-1]  # scores, and their mixture
        forward = 2.0 * ids_BT.numel() * (weights + attention)
        self.flop += forward * (3 if torch.is_grad_enabled() else 1)

    def take(self) -> float:
        """Return the count, and begin anew."""
        flop, self.flop = self.flop, 0.0
        return flop

    def close(self) -> None:
        """Stop counting."""
        for hook in self.hooks:
            hook.remove()


def logits_flop(model: TinyLM, tokens: int) -> float:
    return 2.0 * tokens * model.embed.numel()


def matmul_rate(size: int = 768, cpu_s: float = choose_size(1.0, 0.1)) -> float:
    """Return the floating-point operations per CPU second of an fp32 matrix product."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator) for _ in range(2))
    rates = []
    deadline = time.process_time() + cpu_s
    while time.process_time() < deadline:
        began = time.process_time()
        for _ in range(10):
            a @ b
        rates.append(10 * 2 * size**3 / (time.process_time() - began))
    return max(rates)


if __name__ == "__main__":
    main()
