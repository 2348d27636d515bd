"""Self-play: does one policy in both seats find Kuhn poker's equilibrium? `python -m bench.self_play`.

The tiny model plays both seats of Kuhn poker in digits and is trained by ReBN on each seat's own turns, with
a KL penalty towards its policy after warm-up. Exploitability is exact: the sum of the gains of both seats'
best responses against the strategy as played, averaged over the newest iterations; an equilibrium has 0.

Prints a table and writes bench/out/self_play.json. About two CPU minutes.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import permutations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tyro

from bench.common import choose_size, table, write_json
from bench.train import begin
from gem.envs.seats.kuhn_poker import GAME_VALUE, KuhnPoker
from gem.parsing import boxed
from gem.record import Episode
from gem.registry import EnvSpec, register
from gem.train.config import TrainConfig
from gem.train.learn.trainer import Trainer

TERSE = "bench:TerseKuhn-v0"
DIGITS = ("0", "1")
PAID = {"00": (1, 1), "010": (None, -1), "011": (1, 2), "10": (None, 1), "11": (1, 2)}
"""How a hand ends: whether cards are compared, and the chips of player_0, or of the higher card where so."""

SPOTS = (("", "01"), ("0", "1"))
"""Where each seat acts, by the digits said before."""


class TerseKuhn(KuhnPoker):
    """Kuhn poker for a tiny model: the card as a digit; 0 is to check or fold, 1 to bet or call."""

    def tell(self, agent: str, text: str) -> None:
        """Say the card first, and then only whether the other was bold."""
        word = str(self.cards[agent]) if text.startswith("You are") else None
        if text.startswith("player_"):
            word = "1" if "bets" in text else "0" if "checks" in text else None
        if word:
            super().tell(agent, word)

    def play(self, moves: dict[str, str]) -> None:
        """Take a digit for the word that it stands for."""
        ((player, text),) = moves.items()
        said = boxed(text)
        super().play({player: f"\\boxed{{{self.allowed[int(said)] if said in DIGITS else '?'}}}"})

    def random_action(self, agent: str) -> str:
        """Return either digit."""
        return f"\\boxed{{{self.actor_rng_of(agent).randrange(2)}}}"


@dataclass(frozen=True)
class Args:
    """What is run."""

    iterations: int = choose_size(100, 1)
    """Batches of games, an update after each."""

    batch: int = choose_size(256, 8)
    """Games of a batch."""

    kl: float = 0.2
    """Weight of the divergence from the policy after warm-up; 0 holds to nothing."""

    average: int = 40
    """Newest iterations over which the strategy is averaged."""

    seed: int = 0

    smallest: bool = False
    """The smallest sizes, which give no figures."""


Spot = tuple[int, str]
"""A card, and the digits said before."""


def main(args: Args) -> None:
    register(EnvSpec(TERSE, TerseKuhn, max_turns=3, seats=KuhnPoker.seats))
    began = time.process_time()
    newest: deque[Counter[tuple[Spot, str]]] = deque(maxlen=args.average)
    results = []
    with TemporaryDirectory() as folder:
        run = trainer(
            out=Path(folder),
            episodes=args.iterations * args.batch,
            batch=args.batch,
            minibatch=128,
            lr=3e-3,
            kl=args.kl,
            seed=args.seed,
        )
        for iteration in range(1, args.iterations + 1):
            episodes = run.sample()
            newest.append(said(episodes))
            if iteration == 1 or iteration % 10 == 0:
                gain, value = exploitability(sum(newest, Counter()))
                results.append({"iteration": iteration, "exploitability": gain, "value": value})
            run.learn(episodes)
            run.iteration = iteration
            run.learner.publish(iteration)
    cpu = time.process_time() - began
    table(
        f"Kuhn poker, self-play, kl {args.kl:g}, seed {args.seed}, {args.iterations * args.batch:,} games, "
        f"{cpu:.0f} CPU-seconds",
        ("iteration", "exploitability", "player_0 wins a hand"),
        [(r["iteration"], f"{r['exploitability']:.3f}", f"{r['value']:+.3f}") for r in results]
        + [("equilibrium", "0", f"{float(GAME_VALUE):+.3f}")],
    )
    write_json("self_play", results)


def trainer(env: str = TERSE, **changes: Any) -> Trainer:
    """Return a trainer of a tiny model, warmed up on the form of answers and with its reference held."""
    config = TrainConfig(
        env=env,
        width=24,
        layers=1,
        heads=1,
        gamma=1.0,
        store="none",
        max_tokens=4,
        warmup_steps=choose_size(25, 1),
        warmup_batch=16,
        warmup_lr=1e-2,
        threads=1,
        **changes,
    )
    return begin(config)


def said(episodes: Iterable[Episode]) -> Counter[tuple[Spot, str]]:
    """Count what was said where; a hand counts up to its first unreadable answer."""
    counts: Counter[tuple[Spot, str]] = Counter()
    for episode in episodes:
        before = ""
        cards: dict[str, int] = {}
        for turn in episode.turns:
            card = cards.setdefault(turn.seat, int(str(turn.observation).split("\n")[0]))
            word = boxed(str(turn.action))
            if word not in DIGITS:
                break
            counts[(card, before), word] += 1
            before += word
    return counts


def exploitability(counts: Counter[tuple[Spot, str]]) -> tuple[float, float]:
    """Return what the best answers of both seats gain together, and what player_0 wins without them."""

    def own(spot: Spot) -> float:
        timid, bold = counts[spot, "0"], counts[spot, "1"]
        return bold / (timid + bold) if timid + bold else 0.5

    best = [-4.0, -4.0]
    for seat, spots in enumerate(SPOTS):
        places = list(product(range(3), spots))
        for choice in product((0.0, 1.0), repeat=len(places)):
            answer = dict(zip(places, choice, strict=True)).__getitem__
            seats = (answer, own) if seat == 0 else (own, answer)
            best[seat] = max(best[seat], (1 - 2 * seat) * worth(*seats))
    return sum(best), worth(own, own)


def worth(*chances: Callable[[Spot], float]) -> float:
    """Return the chips that player_0 wins a hand, from each seat's chance of the bold action."""

    def from_here(cards: tuple[int, ...], before: str) -> float:
        if before in PAID:
            compared, chips = PAID[before]
            return chips if not compared or cards[0] > cards[1] else -chips
        seat = len(before) % 2
        bold = chances[seat]((cards[seat], before))
        return (1 - bold) * from_here(cards, before + "0") + bold * from_here(cards, before + "1")

    deals = list(permutations(range(3), 2))
    return sum(from_here(deal, "") for deal in deals) / len(deals)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
