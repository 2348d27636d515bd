"""The mean and the covariance of a learn step's gradient over batches of episodes.

Where the batches can be listed, each is given to the real learn step and weighted by its probability, and the
figures are exact. Where there are too many, batches are drawn, and the figures have standard errors.

D: histories. V: tokens that can be sampled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from random import Random

import torch
from torch import Tensor

from gem.record import Episode
from gem.train.learn.learner import Learner
from gem.train.oracle.envs import World
from gem.train.oracle.exact import Outcome

LearnStep = Callable[[Sequence[Episode]], Tensor]
"""A function from a batch to the direction, (V, D), in which a learn step would move the table."""

Group = tuple[float, tuple[Outcome, ...], int | None]
"""Episodes that are played together: their probability, the episodes, and the turn where they branch."""


class Probe(Learner):
    """A learner that stores the gradient of each step and does not change its weights.

    `step_gradients`: the negative gradients of the loss, before they are scaled down to a norm.
    """

    step_gradients: list[Tensor]
    moved = True  # its policy differs from the reference from the start

    def step(self) -> float:
        """Store the gradient instead of taking a step."""
        gradient = self.gradients[0]
        assert gradient is not None
        self.step_gradients.append(-gradient.clone())
        self.optimiser.zero_grad()
        return float(gradient.norm())


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean of a learn step's direction, (V, D), and the trace of its covariance, over batches.

    `error` is the root mean square error of `mean`: 0 where all batches were listed.
    """

    mean: Tensor
    trace: float
    error: float
    batches: int


def groups(outcomes: Sequence[Outcome], law: dict[World, float], size: int) -> list[Group]:
    """Return every group of `size` episodes of one world, regardless of their order."""
    groups: list[Group] = []
    for world, share in law.items():
        in_world = [outcome for outcome in outcomes if outcome.world == world]
        for chosen in combinations_with_replacement(range(len(in_world)), size):
            chance = float(_orders(chosen))
            for i in chosen:
                chance *= in_world[i].probability / share
            groups.append((share * chance, tuple(in_world[i] for i in chosen), None))
    return groups


def branches(outcomes: Sequence[Outcome], size: int) -> list[Group]:
    """Return every group of turn-level GRPO: an episode, one of its turns, and others from that turn on."""
    groups: list[Group] = []
    for first in outcomes:
        turns = len(first.episode.turns)
        for turn in range(turns):
            start = _answers(first, turn)
            peers = [o for o in outcomes if o.world == first.world and _answers(o, turn) == start]
            total = math.fsum(peer.probability for peer in peers)
            for chosen in combinations_with_replacement(range(len(peers)), size - 1):
                chance = first.probability / turns * _orders(chosen)
                for i in chosen:
                    chance *= peers[i].probability / total
                groups.append((chance, (first, *(peers[i] for i in chosen)), turn))
    return groups


def batches(
    choices: Sequence[Group], count: int, *, ordered: bool = False
) -> Iterator[tuple[float, list[Episode]]]:
    """Return every batch of `count` groups with its probability.

    With `ordered` each order of the groups is a separate batch, for learn steps whose minibatches depend on
    it.
    """
    places = range(len(choices))
    every = product(places, repeat=count) if ordered else combinations_with_replacement(places, count)
    for chosen in every:
        chance = 1.0 if ordered else float(_orders(chosen))
        for i in chosen:
            chance *= choices[i][0]
        yield chance, _episodes([choices[i] for i in chosen])


def draw_batches(
    choices: Sequence[Group], count: int, samples: int, seed: int
) -> Iterator[tuple[float, list[Episode]]]:
    """Return `samples` batches of `count` groups, drawn by their probability, with equal weights."""
    rng = Random(seed)
    weights = [chance for chance, _, _ in choices]
    for _ in range(samples):
        yield 1 / samples, _episodes(rng.choices(choices, weights, k=count))


def number(choices: int, count: int, *, ordered: bool = False) -> int:
    """Return the number of batches of `count` groups."""
    return choices**count if ordered else math.comb(choices + count - 1, count)


def measure(step: LearnStep, weighed: Iterator[tuple[float, list[Episode]]], *, listed: bool) -> Estimate:
    """Return the mean and the covariance of a learn step's direction over weighted batches."""
    total, square, count = torch.zeros(()), 0.0, 0
    for weight, episodes in weighed:
        direction = step(episodes)
        total = total + weight * direction
        square += weight * float(direction.square().sum())
        count += 1
    trace = square - float(total.square().sum())
    if listed:
        return Estimate(total, trace, 0.0, count)
    trace *= count / (count - 1)
    return Estimate(total, trace, math.sqrt(trace / count), count)


def _episodes(chosen: Sequence[Group]) -> list[Episode]:
    """Return a batch's episodes with the names that a run gives: groups by number, samples of each."""
    named: list[list[Episode]] = []
    for number, (_, members, turn) in enumerate(chosen):
        key = f"0-{number}" if turn is None else f"0-{number}@{turn}"
        named.append(
            [
                replace(outcome.episode, group=str(number), sample=sample, job=key)
                for sample, outcome in enumerate(members)
            ]
        )
    return [episode for group in named for episode in group]


def _orders(chosen: Sequence[int]) -> int:
    """Return the number of orders that a choice can have."""
    ways = math.factorial(len(chosen))
    for times in Counter(chosen).values():
        ways //= math.factorial(times)
    return ways


def _answers(outcome: Outcome, turns: int) -> list[tuple[int, ...]]:
    """Return the tokens of an episode's first turns."""
    return [tuple(turn.token_ids) for turn in outcome.episode.turns[:turns]]
