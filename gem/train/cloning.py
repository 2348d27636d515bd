"""Cloning demonstrations: which are kept apart, and the loss on these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from gem import seeding
from gem.errors import BadArgument
from gem.evals.outcomes import task_key
from gem.record import Episode
from gem.rollout import EpisodeStore
from gem.train.config import WarmupOn
from gem.train.learner import Learner
from gem.train.warmup import demonstrations

HELD_OUT = 64
"""Demonstrations that a held-out loss is taken of, at most."""


class Chosen(Sequence[Episode]):
    """Some of a store's episodes, read as they are asked for."""

    def __init__(self, store: EpisodeStore, numbers: Sequence[int]) -> None:
        """Choose by number in the store."""
        self.store, self.numbers = store, numbers

    def __len__(self) -> int:
        """Return how many."""
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Episode: ...
    @overload
    def __getitem__(self, at: slice) -> Chosen: ...
    def __getitem__(self, at: int | slice) -> Episode | Chosen:
        """Return an episode, or some of them."""
        if isinstance(at, slice):
            return Chosen(self.store, self.numbers[at])
        return self.store[self.numbers[at]]


def split(store: EpisodeStore, share: float, seed: int) -> tuple[Chosen, Chosen]:
    """Return the demonstrations to clone, and those kept apart: a share of the tasks, all episodes of each.

    Raises:
        BadArgument: where too few tasks are there to be on both sides.
    """
    tasks = [task_key(store.task(number)) for number in range(len(store))]
    ranked = sorted(set(tasks), key=lambda task: seeding.derive(seed, "held-out demonstrations", task))
    kept = set(ranked[: max(1, round(share * len(ranked)))])
    if len(kept) >= len(ranked):
        raise BadArgument(
            f"demos_held_out is {share}; the store has demonstrations of {len(ranked)} task"
            f"{'s' * (len(ranked) != 1)}, of which that leaves none to clone. Take fewer, or add some."
        )
    apart = [number for number, task in enumerate(tasks) if task in kept]
    cloned = [number for number, task in enumerate(tasks) if task not in kept]
    return Chosen(store, cloned), Chosen(store, apart)


def loss_on(learner: Learner, episodes: Sequence[Episode], on: WarmupOn) -> float:
    """Return the mean negative log probability per token of up to HELD_OUT demonstrations, in nats."""
    rows = demonstrations(learner.policy, episodes[:HELD_OUT], on)
    learner.note(rows)
    logprobs = [value for row in rows for value in row.noted["present"].tolist()]
    return -sum(logprobs) / len(logprobs) if logprobs else float("nan")
