"""Training rows as tensors: batches whose rows share the computation of common prefixes.

Rows of a batch have much in common: the rules at their beginning, the first turns of a game, whole
conversations. `collate` arranges them as prefix trees. A token with the same history is computed once,
however many rows contain it, and gets the gradient of all of them.

Axes: B packs, T places of a pack, P tokens of the shared prefix, U places whose next token was sampled, N
sampled tokens of the batch, M turns that they belong to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from gem import record
from gem.errors import BadArgument
from gem.record import Episode
from gem.tokens.rows import Row, rows


@dataclass(frozen=True, slots=True)
class Target:
    """Training targets of a turn: its advantage, and for a critic its return and its old value."""

    advantage: float = 0.0
    returns: float = 0.0
    value: float = 0.0


NOTHING = Target()


REFERENCE_LOGPROB = "reference_logprob"
"""The name of the reference's log probabilities of the sampled tokens, each (n,)."""
REFERENCE_STATES = "reference_states"
"""The name of the reference's hidden states where the sampled tokens are predicted, each (n, D)."""


@dataclass(frozen=True, slots=True)
class Weighted:
    """A training row and the target of each of its turns; a turn that is not listed has advantage 0.

    `source`: the index of its episode in the batch. `stored_outputs`: tensors over the row's n sampled
    tokens, by name, each (n, ...): `present`, their log probabilities under the policy before the update,
    `value`, and outputs of the reference (`REFERENCE_LOGPROB` or `REFERENCE_STATES`).
    """

    row: Row
    targets: Mapping[int, Target] = field(default_factory=dict)
    source: int = 0
    stored_outputs: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one forward pass.

    `prefix` (P,): the tokens that all rows begin with. `ids` (B, T): the tokens after it, in packs, padded on
    the right. `position` (B, T): the position of each token in its row, from 0. `sees` (B, T, T): the places
    of its pack that a token attends to, itself included; it also attends to the whole prefix. None where each
    pack is a single chain: a token then attends to all places up to itself.

    `place` (U,): the places, of B times T, whose next token was sampled. `of` (N,): the index, of U, of the
    place before each sampled token, in ascending order. `target`, `old_logprob` (N,): the token, and its log
    probability when it was sampled. `turn` (N,): the index of its turn, of M; `row` (N,): the index of its
    row. `first` (M,): the index of each turn's first token, of N. `advantage`, `returns`, `value` (M,): see
    Target. `stored_outputs`: see Weighted, each (N, ...).
    """

    prefix: Tensor
    ids: Tensor
    position: Tensor
    sees: Tensor | None
    place: Tensor
    of: Tensor
    target: Tensor
    old_logprob: Tensor
    turn: Tensor
    row: Tensor
    first: Tensor
    advantage: Tensor
    returns: Tensor
    value: Tensor
    stored_outputs: dict[str, Tensor]

    @property
    def turns(self) -> int:
        """The number of turns in the batch."""
        return len(self.first)

    @property
    def positions(self) -> int:
        """The number of positions that a forward pass computes, padding included."""
        return len(self.prefix) + self.ids.numel()


def weigh(episodes: Sequence[Episode], seat: str) -> list[Weighted]:
    """Return the training rows of the episodes that have a verdict, without targets yet."""
    weighted: list[Weighted] = []
    for source, episode in enumerate(episodes):
        if episode.scored:
            if any(turn.logprobs is None for turn in episode.turns_of(seat) if turn.token_ids):
                raise BadArgument(
                    f"episode {episode.id!r} has turns without log probabilities; a policy gradient needs "
                    "those of every sampled token, as a local model gives them."
                )
            weighted += [Weighted(row, source=source) for row in rows(episode, seat)]
    return weighted


def collate(weighted: Sequence[Weighted], pad: int, capacity: int | None = 0) -> Batch:
    """Return rows as one batch.

    Args:
        weighted: the rows, each with a token to learn on.
        pad: the token id for padding.
        capacity: tokens of a pack, up to twice as many where that leaves less padding, and at least those of
            the longest row. None: for models that take no mask of what a token attends to. Then no prefix is
            shared, and a pack is one row and rows that are a prefix of it.
    """
    order = sorted(range(len(weighted)), key=lambda b: tuple(weighted[b].row.ids))
    all_ids = [weighted[b].row.ids for b in order]
    # The token before the first sampled one must stay outside the prefix: its hidden state is wanted.
    first_sampled = min(item.row.mask.index(1) for item in weighted)
    shared = 0 if capacity is None else min(common_prefix(all_ids), first_sampled - 1)
    packs, longest = _pack([ids[shared:] for ids in all_ids], capacity)
    ids_BT = torch.full((len(packs), longest), pad)
    position_BT = torch.zeros((len(packs), longest), dtype=torch.long)
    chains = all(pack.chain for pack in packs)
    sees_BTT = None if chains else torch.eye(longest, dtype=torch.bool).repeat(len(packs), 1, 1)
    for b, pack in enumerate(packs):
        size = len(pack.ids)
        ids_BT[b, :size] = torch.tensor(pack.ids)
        position_BT[b, :size] = shared + torch.tensor(pack.depth)
        if chains:
            position_BT[b, size:] = shared + size
        if sees_BTT is not None:
            pack.look(sees_BTT[b])

    flat_N: list[int] = []
    target_N: list[int] = []
    old_N: list[float] = []
    turn_N: list[int] = []
    row_N: list[int] = []
    first_M: list[int] = []
    targets_M: list[Target] = []
    paths = [(b, path) for b, pack in enumerate(packs) for path in pack.paths]
    for place, (b, path) in zip(order, paths, strict=True):
        item = weighted[place]
        row = item.row
        before = None
        for t in row.learnt:
            if row.turn[t] != before:
                before = row.turn[t]
                first_M.append(len(flat_N))
                targets_M.append(item.targets.get(before, NOTHING))
            flat_N.append(b * longest + path[t - 1 - shared])
            target_N.append(row.ids[t])
            old_N.append(row.logprobs[t])
            turn_N.append(len(first_M) - 1)
            row_N.append(place)
    place_U, of_N = torch.tensor(flat_N).unique(return_inverse=True)  # type: ignore[no-untyped-call]
    of_N, by_place = of_N.sort(stable=True)
    where = by_place.argsort()
    return Batch(
        prefix=torch.tensor(all_ids[0][:shared], dtype=torch.long),
        ids=ids_BT,
        position=position_BT,
        sees=sees_BTT,
        place=place_U,
        of=of_N,
        target=torch.tensor(target_N)[by_place],
        old_logprob=torch.tensor(old_N)[by_place],
        turn=torch.tensor(turn_N)[by_place],
        row=torch.tensor(row_N)[by_place],
        first=where[torch.tensor(first_M)],
        advantage=torch.tensor([target.advantage for target in targets_M]),
        returns=torch.tensor([target.returns for target in targets_M]),
        value=torch.tensor([target.value for target in targets_M]),
        stored_outputs={
            name: torch.cat([weighted[b].stored_outputs[name] for b in order])[by_place]
            for name in weighted[0].stored_outputs
        },
    )


_LIMITS = 8
"""How many larger sizes of packs are tried; more of them save under 1% of the places."""


class _Pack:
    """Rows in lexicographic order as one sequence: each adds what it does not share with the one before."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.depth: list[int] = []
        self.paths: list[list[int]] = []  # of each row, the place of each of its tokens
        self.chain = True
        self._added: list[tuple[int, list[int]]] = []  # where a row's own tokens begin, and the path to them

    def shares(self, ids: Sequence[int]) -> int:
        """Return how many of a row's tokens are already in the pack."""
        if not self.paths:
            return 0
        path = self.paths[-1]
        limit = min(len(path), len(ids))
        return next((t for t in range(limit) if self.ids[path[t]] != ids[t]), limit)

    def add(self, ids: Sequence[int]) -> None:
        """Add a row."""
        known = self.shares(ids)
        path = self.paths[-1][:known] if known else []
        start, new = len(self.ids), ids[known:]
        self.chain = self.chain and (not new or known == start)
        if new:
            self._added.append((start, path))
        self.ids.extend(new)
        self.depth.extend(range(known, len(ids)))
        self.paths.append([*path, *range(start, len(self.ids))])

    def look(self, sees_TT: Tensor) -> None:
        """Mark in `sees_TT` which places each place attends to."""
        ends = [start for start, _ in self._added[1:]]
        for (start, path), end in zip(self._added, (*ends, len(self.ids)), strict=True):
            sees_TT[start:end, path] = True
            sees_TT[start:end, start:end] = torch.ones(end - start, end - start, dtype=torch.bool).tril()


def _pack(all_ids: Sequence[Sequence[int]], capacity: int | None) -> tuple[list[_Pack], int]:
    """Return sorted rows in the packs that need the fewest places, and the tokens of the longest."""
    longest = 0 if capacity is None else max(map(len, all_ids))
    limits = {max(longest, (capacity or 0) * (_LIMITS + i) // _LIMITS) for i in range(_LIMITS + 1)}
    return min(
        (_fill(all_ids, limit) for limit in sorted(limits)), key=lambda filled: len(filled[0]) * filled[1]
    )


def _fill(all_ids: Sequence[Sequence[int]], limit: int) -> tuple[list[_Pack], int]:
    """Return sorted rows in packs of at most `limit` tokens, and the tokens of the longest."""
    packs: list[_Pack] = []
    for ids in all_ids:
        pack = packs[-1] if packs else None
        if pack is not None:
            known = pack.shares(ids)
            goes_on = known == len(ids) or known == len(pack.ids)  # a chain stays one
            if goes_on or len(pack.ids) + len(ids) - known <= limit:
                pack.add(ids)
                continue
        packs.append(_Pack())
        packs[-1].add(ids)
    return packs, max(len(pack.ids) for pack in packs)


def common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    """Return how many leading elements all sequences share."""
    return min(record.common_prefix(sequences[0], each) for each in sequences)


def minibatches(weighted: Sequence[Weighted], size: int, generator: torch.Generator) -> list[list[Weighted]]:
    """Return the rows in random minibatches of at most `size` rows, of nearly equal size.

    Otherwise a small remainder would get a full optimiser step on a few rows.
    """
    order = torch.randperm(len(weighted), generator=generator).tolist()
    count = -(-len(order) // size)
    edges = [i * len(order) // count for i in range(count + 1)]
    return [[weighted[i] for i in order[start:end]] for start, end in pairwise(edges)]


def microbatches(weighted: Sequence[Weighted], tokens: int | None) -> list[list[Weighted]]:
    """Split the rows of one step into parts of about `tokens` distinct tokens; None: one part.

    Rows that share the most are neighbours. A row of more tokens is a part of its own.
    """
    if tokens is None:
        return [list(weighted)]
    parts: list[list[Weighted]] = []
    room = 0
    for item in sorted(weighted, key=lambda item: tuple(item.row.ids)):
        new = len(item.row.ids)
        if parts:
            new -= record.common_prefix(parts[-1][-1].row.ids, item.row.ids)
        if not parts or new > room:
            parts.append([])
            new, room = len(item.row.ids), tokens
        parts[-1].append(item)
        room -= new
    return parts
