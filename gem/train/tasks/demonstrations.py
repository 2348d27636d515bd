"""Stored demonstrations for the warm-up: opening them, holding some out, and the loss on those."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import overload

from gem import seeding
from gem.codec import task_key
from gem.errors import BadArgument
from gem.record import Episode
from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.config.value_types import WarmupOn
from gem.train.learn.learner import Learner
from gem.train.learn.warmup import NO_DEMONSTRATIONS, cloned_rows, warm_up_seed

HELD_OUT = 64
"""Maximum number of demonstrations that a held-out loss is measured on."""


@contextmanager
def open_demonstrations(
    config: TrainConfig,
) -> Iterator[tuple[Sequence[Episode] | None, Sequence[Episode]]]:
    """Open the demonstrations to clone (None for random play) and the held-out ones.

    Raises:
        StoreError: where there is no such store. BadArgument: where it is empty, or cannot be divided.
    """
    if config.demos is None:
        yield None, ()
        return
    with EpisodeStore(config.demos, read_only=True) as store:
        if not len(store):
            raise BadArgument(NO_DEMONSTRATIONS)
        yield split(store, config.demos_held_out, config.seed) if config.demos_held_out else (store, ())


@dataclass(eq=False)
class Chosen(Sequence[Episode]):
    """The episodes of a store with these numbers, read when they are accessed."""

    store: EpisodeStore
    numbers: Sequence[int]

    def __len__(self) -> int:
        """Return the number of episodes."""
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
    """Return the demonstrations to clone, and the held-out ones: all episodes of a share of the tasks.

    Raises:
        BadArgument: where there are too few tasks for both parts.
    """
    tasks = [task_key(store.task(number)) for number in range(len(store))]
    ranked = sorted(set(tasks), key=lambda task: seeding.derive(seed, "held-out demonstrations", task))
    kept = set(ranked[: max(1, round(share * len(ranked)))])
    if len(kept) >= len(ranked):
        raise BadArgument(
            f"demos_held_out is {share}; the store has demonstrations of {len(ranked)} task"
            f"{'s' * (len(ranked) != 1)}, which leaves none to clone. Hold out fewer, or add some."
        )
    apart = [number for number, task in enumerate(tasks) if task in kept]
    cloned = [number for number, task in enumerate(tasks) if task not in kept]
    return Chosen(store, cloned), Chosen(store, apart)


def loss_on(learner: Learner, episodes: Sequence[Episode], on: WarmupOn) -> float:
    """Return the mean negative log probability per token of up to HELD_OUT demonstrations, in nats."""
    rows = cloned_rows(learner.policy, episodes[:HELD_OUT], on)
    learner.store_outputs(rows)
    logprobs = [value for row in rows for value in row.stored_outputs["present"].tolist()]
    return -sum(logprobs) / len(logprobs) if logprobs else float("nan")


def cloned_seeds(config: TrainConfig) -> Iterator[int]:
    """Yield the seeds of the episodes that the warm-up clones, or may clone."""
    if config.demos is None:
        steps = config.warmup_most or config.warmup_steps
        for step, i in product(range(steps), range(config.warmup_batch)):
            yield warm_up_seed(config.seed, step, i)
        return
    with EpisodeStore(config.demos, read_only=True) as store:
        for number in range(len(store)):
            if (seed := store.task(number).seed) is not None:
                yield seed
