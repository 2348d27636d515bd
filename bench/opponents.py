"""Kuhn poker against opponents: does training find the best response, and does a pool make play hard to beat?

``python -m bench.opponents``. The tiny model plays Kuhn poker in digits, alternating between the two seats,
and learns only from its own turns, by ReBN. Two runs:

against random play: its value, the chips per hand over both seats, and the most that any strategy wins;
against a pool of its own past copies: how much the best responses of both seats gain against it. An
equilibrium has 0.

Both are exact for the strategy as it was played: the actions at each of the twelve decision points are
counted over the newest iterations in the run's own store; then the game is enumerated. Prints two tables and
writes bench/out/opponents.json. About four CPU minutes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tyro

from bench.common import choose_size, table, write_json
from bench.self_play import SPOTS, TERSE, Spot, TerseKuhn, exploitability, said, worth
from gem.envs.seats.kuhn_poker import KuhnPoker
from gem.record import Episode
from gem.registry import EnvSpec, register
from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder

Strategy = Counter[tuple[Spot, str]]
"""How often each digit was said at each spot."""


@dataclass(frozen=True)
class Args:
    """What is run."""

    iterations: int = choose_size(40, 1)
    """Batches of games against random play, an update after each."""

    pool_iterations: int = choose_size(70, 2)
    """Batches of games against the pool."""

    batch: int = choose_size(256, 8)
    """Games of a batch."""

    pool: int = 12
    """Past copies in the pool."""

    pool_every: int = choose_size(3, 1)
    """Iterations between copies."""

    seed: int = 0

    smallest: bool = False
    """The smallest sizes, which give no figures."""


def main(args: Args) -> None:
    register(EnvSpec(TERSE, TerseKuhn, max_turns=3, seats=KuhnPoker.seats))
    began = time.process_time()
    with TemporaryDirectory() as folder:
        fixed = against(
            Path(folder) / "random", args.iterations, args.batch, args.seed, kl=0.2, opponent=("random",)
        )
        pool = {"pool": args.pool, "pool_every": args.pool_every, "kl": 0.3, "epochs": 4}
        copies = against(Path(folder) / "pool", args.pool_iterations, args.batch, args.seed, **pool)
    best = best_answer(evenly)
    won = [value(own(counts), evenly) for counts in fixed]
    gains = [exploitability(sum(copies[max(0, i - 39) : i + 1], Counter()))[0] for i in range(len(copies))]
    shown = sorted({0, *range(9, len(won), 10), len(won) - 1})
    table(
        f"against random play, {args.iterations * args.batch:,} games, seed {args.seed}",
        ("iteration", "chips per hand"),
        [(i + 1, f"{won[i]:+.3f}") for i in shown] + [("best answer", f"{best:+.3f}")],
    )
    shown = sorted({0, *range(19, len(gains), 20), len(gains) - 1})
    table(
        f"against a pool of {args.pool}, {args.pool_iterations * args.batch:,} games, seed {args.seed}; "
        f"{time.process_time() - began:.0f} CPU-seconds in all",
        ("iteration", "exploitability, over 40"),
        [(i + 1, f"{gains[i]:.3f}") for i in shown] + [("equilibrium", "0")],
    )
    write_json("opponents", {"value": won, "best": best, "exploitability": gains})


def against(out: Path, iterations: int, batch: int, seed: int, **changes: Any) -> list[Strategy]:
    """Train against opponents and return the learner's strategy as it was played, by iteration."""
    settings: dict[str, Any] = {
        **{"width": 24, "layers": 1, "heads": 1, "max_tokens": 4, "gamma": 1.0, "minibatch": 128, "lr": 3e-3},
        **{"warmup_steps": choose_size(25, 1), "warmup_batch": 16, "warmup_lr": 1e-2, "warmup_on": "answers"},
        **{
            "batch": batch,
            "episodes": iterations * batch,
            "eval_episodes": choose_size(96, 4),
            "save_every": 10,
            "watch": 0,
        },
    }
    train(TrainConfig(env=TERSE, seed=seed, out=out, **{**settings, **changes}))
    with EpisodeStore(RunFolder(out).episodes, read_only=True) as store:
        return strategies(store, iterations)


def strategies(episodes: Iterable[Episode], iterations: int) -> list[Strategy]:
    """Return what the learner said, by iteration: as each episode's record says who held which seat."""
    found = [Strategy() for _ in range(iterations)]
    for episode in episodes:
        mine = [seat for seat, about in enumerate(episode.run.seats.values()) if about.agent == "TinyAgent"]
        for (spot, word), count in said([episode]).items():
            if len(spot[1]) % 2 in mine:
                found[int(episode.job.partition("-")[0])][spot, word] += count
    return found


def own(counts: Strategy) -> Callable[[Spot], float]:
    """Return a strategy as the chance of the bold action at each spot; even where it never was."""

    def bold(spot: Spot) -> float:
        timid, bold = counts[spot, "0"], counts[spot, "1"]
        return bold / (timid + bold) if timid + bold else 0.5

    return bold


def evenly(spot: Spot) -> float:
    """Play as the random actor does."""
    return 0.5


def value(mine: Callable[[Spot], float], other: Callable[[Spot], float]) -> float:
    """Return the chips that a strategy wins a hand against another, over both seats."""
    return (worth(mine, other) - worth(other, mine)) / 2


def best_answer(other: Callable[[Spot], float]) -> float:
    """Return the most chips that any strategy wins a hand against `other`, over both seats."""
    best = [-4.0, -4.0]
    for seat, spots in enumerate(SPOTS):
        places = list(product(range(3), spots))
        for choice in product((0.0, 1.0), repeat=len(places)):
            answer = dict(zip(places, choice, strict=True)).__getitem__
            seats = (answer, other) if seat == 0 else (other, answer)
            best[seat] = max(best[seat], (1 - 2 * seat) * worth(*seats))
    return sum(best) / 2


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
