"""Training rows as tensors: what one forward pass needs, and nothing twice.

Axes: B rows, T positions behind the shared prefix, N sampled tokens of the batch, in row order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gem import record
from gem.errors import BadArgument
from gem.record import Episode
from gem.tokens.rows import Row, rows


@dataclass(frozen=True, slots=True)
class Weighted:
    """A training row and the advantage of each of its turns; 0 for a turn that is not listed."""

    row: Row
    advantages: dict[int, float]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one optimiser step.

    `prefix` (P,): the tokens that all rows begin with, computed once for all of them. `ids` (B, T): the
    rest, padded on the right. `row`, `column` (N,): where in `ids` each sampled token stands; the one
    before it predicts it. `target`, `old_logprob`, `advantage` (N,): the token, its log probability when
    it was sampled, and the advantage of its turn. `turns`: how many turns the batch holds.
    """

    prefix: Tensor
    ids: Tensor
    row: Tensor
    column: Tensor
    target: Tensor
    old_logprob: Tensor
    advantage: Tensor
    turns: int


def weigh(
    episodes: Sequence[Episode], advantages: Sequence[Sequence[float] | None], seat: str
) -> list[Weighted]:
    """Return the training rows of the episodes that have a verdict, with the advantage of each turn."""
    weighted: list[Weighted] = []
    for episode, values in zip(episodes, advantages, strict=True):
        if values is not None:
            if any(turn.logprobs is None for turn in episode.turns_of(seat) if turn.token_ids):
                raise BadArgument(
                    f"episode {episode.id!r} has turns without log probabilities; a policy gradient needs "
                    "those of every sampled token, as a local model gives them."
                )
            by_turn = dict(enumerate(values))
            weighted += [Weighted(row, by_turn) for row in rows(episode, seat)]
    return weighted


def collate(weighted: Sequence[Weighted], pad: int) -> Batch:
    """Return rows as one batch."""
    all_ids = [item.row.ids for item in weighted]
    # The token before the first sampled one must stay outside the prefix: its hidden state is wanted.
    first_sampled = min(item.row.mask.index(1) for item in weighted)
    shared = min(common_prefix(all_ids), first_sampled - 1)
    longest = max(map(len, all_ids)) - shared
    ids_BT = torch.full((len(all_ids), longest), pad)
    row_N: list[int] = []
    column_N: list[int] = []
    target_N: list[int] = []
    old_N: list[float] = []
    advantage_N: list[float] = []
    turns = 0
    for b, item in enumerate(weighted):
        ids = item.row.ids
        ids_BT[b, : len(ids) - shared] = torch.tensor(ids[shared:])
        turns += len({turn for turn, learn in zip(item.row.turn, item.row.mask, strict=True) if learn})
        for t, learn in enumerate(item.row.mask):
            if learn:
                row_N.append(b)
                column_N.append(t - shared)
                target_N.append(ids[t])
                old_N.append(item.row.logprobs[t])
                advantage_N.append(item.advantages.get(item.row.turn[t], 0.0))
    return Batch(
        prefix=torch.tensor(all_ids[0][:shared], dtype=torch.long),
        ids=ids_BT,
        row=torch.tensor(row_N),
        column=torch.tensor(column_N),
        target=torch.tensor(target_N),
        old_logprob=torch.tensor(old_N),
        advantage=torch.tensor(advantage_N),
        turns=turns,
    )


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Return how many leading elements all sequences share."""
    return min(record.common_prefix(sequences[0], each) for each in sequences)


def minibatches(weighted: Sequence[Weighted], size: int, generator: torch.Generator) -> list[list[Weighted]]:
    """Return the rows in random minibatches of at most `size`, as equal as can be.

    A remainder of its own would take a step of full length on a handful of rows.
    """
    order = torch.randperm(len(weighted), generator=generator).tolist()
    count = -(-len(order) // size)
    edges = [i * len(order) // count for i in range(count + 1)]
    return [[weighted[i] for i in order[start:end]] for start, end in pairwise(edges)]
