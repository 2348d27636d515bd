"""Training rows as tensors: batches whose rows share the computation of common prefixes.

Rows of a batch have much in common: the rules at their beginning, the first turns of a game, whole
conversations. `collate` arranges them as prefix trees. A token with the same history is computed once,
however many rows contain it, and gets the gradient of all of them.

Axes: B packs, T places of a pack, P tokens of the shared prefix, U places whose next token was sampled, N
sampled tokens of the batch, M turns that they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf

import torch
from torch import Tensor

from gem import record
from gem.errors import BadArgument
from gem.record import Episode, Ids
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

    @property
    def memory(self) -> int:
        """The memory of a forward pass in positions: each pack has a copy of the prefix's keys and values."""
        return self.positions + len(self.ids) * len(self.prefix) // _PREFIX


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
        capacity: tokens of a pack, at least those of the longest row; more where that saves computation (see
            `_pack`). None: for models that take no mask of what a token attends to. Then no prefix is shared,
            and a pack is one row and rows that are a prefix of it.
    """
    ids_of = [tuple(item.row.ids) for item in weighted]
    order = sorted(range(len(weighted)), key=ids_of.__getitem__)
    # The token before the first sampled one must stay outside the prefix: its hidden state is wanted.
    first_sampled = min(item.row.mask.index(1) for item in weighted)
    first, last = ids_of[order[0]], ids_of[order[-1]]  # what these share, all that lie between them share
    shared = 0 if capacity is None else min(record.common_prefix(first, last), first_sampled - 1)
    packs, longest = _pack([ids_of[b][shared:] for b in order], capacity, shared)
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
        prefix=torch.tensor(first[:shared], dtype=torch.long),
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
_PREFIX = 8
"""Tokens of the prefix whose keys and values, of which each pack has a copy, take the memory of a place."""
_SLACK = 1.1
"""By how much a pass may exceed its tokens with padding and with what its packs compute again."""


class _Pack:
    """Rows in lexicographic order as one sequence: each adds what it does not share with the one before."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.depth: list[int] = []
        self.paths: list[list[int]] = []  # of each row, the place of each of its tokens
        self.chain = True
        self._added: list[tuple[int, list[int]]] = []  # where a row's own tokens begin, and the path to them

    def add(self, ids: Sequence[int], known: int) -> None:
        """Add a row that shares its first `known` tokens with the row before."""
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


def _pack(all_ids: Sequence[Ids], capacity: int | None, prefix: int) -> tuple[list[_Pack], int]:
    """Return sorted rows, which follow `prefix` tokens, in packs, and the tokens of the longest pack.

    Packs have up to twice `capacity` tokens, of these sizes the one with the fewest places. A pack computes
    again what its first row shares with the row before, and holds the keys and values of the prefix again.
    Where the longest row or the prefix has more tokens than `capacity`, that may be most of the cost: packs
    have up to twice as many tokens as these where that halves it.
    """
    known = [0, *(record.common_prefix(*two) for two in pairwise(all_ids))]
    rows = list(zip(map(len, all_ids), known, strict=True))
    longest = 0 if capacity is None else max(map(len, all_ids))

    def divide(size: int) -> list[tuple[list[int], int]]:
        limits = {max(longest, size * (_LIMITS + i) // _LIMITS) for i in range(_LIMITS + 1)}
        return [_divide(rows, limit) for limit in sorted(limits)]

    def cost(division: tuple[list[int], int]) -> int:
        return len(division[0]) * (_PREFIX * division[1] + prefix)

    division = min(divide(capacity or 0), key=lambda division: len(division[0]) * division[1])
    if capacity is not None:
        longer = min(divide(max(capacity, longest, prefix)), key=cost)
        division = longer if 2 * cost(longer) <= cost(division) else division
    packs = []
    for start, end in pairwise([*division[0], len(rows)]):
        packs.append(_Pack())
        for b in range(start, end):
            packs[-1].add(all_ids[b], known[b] if b > start else 0)
    return packs, division[1]


def _divide(rows: Sequence[tuple[int, int]], limit: int) -> tuple[list[int], int]:
    """Divide rows into packs of at most `limit` tokens; return the first row of each, and the most tokens.

    `rows`: of each its tokens, and how many of them it shares with the row before.
    """
    starts: list[int] = []
    size = most = 0
    for b, (tokens, known) in enumerate(rows):
        goes_on = known == tokens or known == size  # a chain stays one
        if starts and (goes_on or size + tokens - known <= limit):
            size += tokens - known
        else:
            starts.append(b)
            size = tokens
        most = max(most, size)
    return starts, most


def minibatches(weighted: Sequence[Weighted], size: int, generator: torch.Generator) -> list[list[Weighted]]:
    """Return the rows in random minibatches of at most `size` rows, of nearly equal size.

    Otherwise a small remainder would get a full optimiser step on a few rows.
    """
    order = torch.randperm(len(weighted), generator=generator).tolist()
    count = -(-len(order) // size)
    edges = [i * len(order) // count for i in range(count + 1)]
    return [[weighted[i] for i in order[start:end]] for start, end in pairwise(edges)]


def make_batches(
    weighted: Sequence[Weighted], pad: int, capacity: int | None, tokens: int | None, *, bare: bool
) -> Iterator[tuple[Batch, list[Weighted]]]:
    """Yield a batch for each pass of about `tokens` tokens (None: all), and its rows; see `collate`.

    `bare`: without the rows' stored outputs, of which some rows may have more than others.
    """
    parts = microbatches(weighted, tokens, capacity)[::-1]
    while parts:
        part = parts.pop()
        longest = max(len(item.row.ids) for item in part)
        most = inf if tokens is None or len(part) == 1 else _SLACK * max(tokens, longest)
        items = [replace(item, stored_outputs={}) for item in part] if bare else part
        batch = collate(items, pad, capacity)
        if batch.memory > most and capacity is not None:
            batch = collate(items, pad, longest)
        if batch.memory > most:
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
        else:
            yield batch, part


def microbatches(
    weighted: Sequence[Weighted], tokens: int | None, capacity: int | None
) -> list[list[Weighted]]:
    """Split the rows of one step into parts that have about `tokens` tokens to compute; None: one part.

    Rows that share the most are neighbours. Where `capacity` is None (see `collate`) nothing is shared, and
    rows of similar length are neighbours. A row of more tokens is a part of its own.
    """
    if tokens is None:
        return [list(weighted)] if weighted else []
    alone = capacity is None
    parts: list[list[Weighted]] = []
    before: Ids = ()
    packs = size = 0
    for item in sorted(weighted, key=lambda item: (len(item.row.ids) * alone, tuple(item.row.ids))):
        ids = tuple(item.row.ids)
        new = len(ids) - record.common_prefix(before, ids)
        packs += new > 0
        size = packs * len(ids) if alone else size + new
        if not parts or (new and size > tokens):
            parts.append([])
            packs, size = 1, len(ids)
        parts[-1].append(item)
        before = ids
    return parts
