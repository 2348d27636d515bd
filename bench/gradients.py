"""Signal and noise of each algorithm's gradient, for the tiny model after its warm-up.

``python -m bench.gradients [--run FOLDER]``. One policy, which does not learn, plays batches of 128 episodes
of ``game:GuessTheNumber-v0-easy``, and each algorithm computes its gradient on each batch. The signal is the
norm of the mean gradient, less the part that is due to few batches; the noise is the root of the trace of the
covariance of a batch's gradient. The interval of their ratio, at 95%, is from a jackknife over the batches.
Algorithms with equally many samples of a task get the same batches.
``--run`` takes the weights of a run instead of those after a warm-up.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bench.common import choose_size, parse_args, table, write_json
from gem.record import Episode
from gem.statistics import mean_interval
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint, policy_gradient
from gem.train.learn.learner import load_weights
from gem.train.learn.steps import Progress
from gem.train.learn.trainer import Trainer
from gem.train.learn.training import begin, make_trainer

BATCHES = choose_size(24, 2)
WARMUP = choose_size(250, 1)
BATCH = choose_size(128, 8)
SAMPLES = {
    1: tuple(product(("reinforce", "rebn", "turn_rebn"), (0.3, 0.9, 1.0))),
    2: tuple(product(("reinforce", "rebn", "rloo", "grpo"), (1.0,))),
    8: tuple(product(("reinforce", "rebn", "rloo", "grpo"), (0.3, 1.0))),
}
"""The algorithms and discounts that are compared, by the number of samples of a task in a batch."""


def gradients(trainer: Trainer, batches: Sequence[Sequence[Episode]], config: TrainConfig) -> torch.Tensor:
    """Return the gradient of each batch as a row; the weights stay."""
    learner = trainer.learner
    nothing = torch.zeros(sum(each.numel() for each in learner.parameters))
    rows: list[torch.Tensor] = []

    def keep() -> float:
        rows.append(torch.cat([each.flatten().clone() for each in learner.gradients if each is not None]))
        learner.optimiser.zero_grad()
        return 0.0

    learner.step = keep  # type: ignore[method-assign]
    for batch in batches:
        if not policy_gradient.learn(learner, batch, config, Progress(0, 1)).positions:
            rows.append(nothing)
    return torch.stack(rows)


def signal_over_noise(gram: torch.Tensor) -> float:
    """Return the ratio from the products of n batches' gradients with each other, (n, n)."""
    n = len(gram)
    mean = float(gram.sum()) / n**2
    noise = (float(gram.trace()) - n * mean) / (n - 1)
    return (max(0.0, mean - noise / n) / noise) ** 0.5 if noise > 0 else 0.0


def jackknife(gram: torch.Tensor) -> tuple[float, float]:
    """Return the interval of `signal_over_noise` at 95%, by leaving out each batch once; it begins at 0."""
    n = len(gram)
    whole, every = signal_over_noise(gram), range(n)
    left = [[i for i in every if i != out] for out in every] if n > 2 else []
    pseudo = [n * whole - (n - 1) * signal_over_noise(gram[each][:, each]) for each in left]
    if not pseudo:
        return 0.0, float("inf")
    interval = mean_interval(pseudo)
    return max(0.0, interval.low), interval.high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, help="the folder of a run whose weights play")
    run = parse_args(parser).run
    torch.set_num_threads(1)
    lines = []
    with TemporaryDirectory() as folder:
        weights = None if run is None else checkpoint.load(run / "checkpoint.pt")
        for samples, compared in SAMPLES.items():
            config = TrainConfig.fit(
                algorithm="reinforce" if samples == 1 else "rloo",
                group=samples,
                batch=BATCH,
                **{"kl": 0.0, "epochs": 1, "minibatch": 0, "warmup_steps": WARMUP, "eval_episodes": 8},
                **{"store": "none", "watch": 0, "episodes": BATCH, "out": Path(folder) / str(samples)},
            )
            trainer = make_trainer(config)
            with closing(trainer.policy.agent):
                if weights is None:
                    begin(trainer, config)
                    weights = checkpoint.load(trainer.folder.checkpoint)
                load_weights(trainer.policy, weights, "the weights")
                trainer.learner.publish(0)
                batches = [trainer.sample(number) for number in range(BATCHES)]
                for name, gamma in compared:
                    rows = gradients(trainer, batches, replace(config, algorithm=name, gamma=gamma))
                    gram = rows.double() @ rows.double().T
                    low, high = jackknife(gram)
                    share = f"{signal_over_noise(gram):.2f} ({low:.2f} to {high:.2f})"
                    norm = float(rows.norm(dim=1).mean())
                    lines.append((f"{name}, gamma {gamma:g}", BATCH // samples, samples, norm, share))
    heads = ("algorithm", "tasks", "samples of each", "norm", "signal / noise")
    table(f"gradients of {BATCHES} batches of {BATCH} episodes", heads, lines)
    write_json("gradients", [dict(zip(heads, line, strict=True)) for line in lines])


if __name__ == "__main__":
    main()
