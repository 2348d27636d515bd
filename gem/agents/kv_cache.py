"""A key/value cache for transformers models: kept between turns, and for the batch being sampled.

`PrefixTree` keeps keys and values of one set of weights by token ids. `Rows` are the sequences of a batch, in
buffers that grow. `CachedForward` copies from the tree to the rows, so that only new tokens are processed.

Axes: L layers, B rows, H key/value heads, S columns of the buffers, T new positions, K width of a head,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer

KeysValues: TypeAlias = "tuple[Tensor, Tensor]"
"""Keys (L, H, T, K) and values (L, H, T, K'); the two widths may differ."""

Forward: TypeAlias = "Callable[[Tensor, Tensor, Tensor, Any], tuple[Tensor, Any]]"
"""A function of (ids, mask, positions, cache); returns the last column's logits, (B, V), and the cache."""

_WORTH = 32
"""Number of positions that sharing must save before a shared prefix is processed separately."""


class Node:
    """The keys and values of consecutive ids, which follow those of its parents.

    `owner`: the only episode that has used it; None when several have.
    """

    __slots__ = ("children", "ids", "keys", "owner", "parent", "values")

    def __init__(
        self, parent: Node | None, ids: tuple[int, ...], made: KeysValues | None, owner: str | None
    ) -> None:
        self.parent = parent
        self.ids = ids
        self.owner = owner
        self.children: dict[int, Node] = {}
        if made is not None:
            self.keys, self.values = made

    @property
    def bytes(self) -> int:
        """The size of its tensors in bytes."""
        return self.keys.nbytes + self.values.nbytes


class PrefixTree:
    """A cache of keys and values by token ids, where a common prefix is stored once.

    A radix tree (as in SGLang, arXiv 2312.07104). When it is larger than `limit` bytes, it drops the least
    recently used node. Using a node also uses its parents, so the dropped node is always a leaf.
    """

    def __init__(self, limit: int) -> None:
        """Keep at most `limit` bytes."""
        self.limit = limit
        self.bytes = 0
        self._root = Node(None, (), None, None)
        self._nodes: dict[Node, None] = {}  # the oldest first
        self._owned: dict[str, set[Node]] = {}

    def find(self, ids: Sequence[int]) -> list[tuple[Node, int]]:
        """Return the nodes of the longest cached prefix of `ids`, and how many ids of each match."""
        path = self._path(ids)
        self._use([node for node, _ in path])
        return path

    def keep(self, ids: tuple[int, ...], owner: str | None, piece: Callable[[int, int], KeysValues]) -> None:
        """Store the keys and values of `ids`; ``piece(first, last)`` copies those of new positions."""
        nodes, known = [], 0
        for node, matched in self._path(ids):
            known += matched
            if matched < len(node.ids) and known < len(ids):
                node = self._split(node, matched)
            nodes.append(node)
            if node.owner != owner:
                self._own(node, None)
        if known < len(ids):
            parent = nodes[-1] if nodes else self._root
            node = Node(parent, ids[known:], piece(known, len(ids)), None)
            self._add(node, owner)
            nodes.append(node)
        self._use(nodes)
        while self.bytes > self.limit:
            self._remove(next(iter(self._nodes)))

    def forget(self, episode: str) -> None:
        """Drop the nodes that no other episode has used."""
        for node in list(self._owned.get(episode, ())):
            self._remove(node)

    def _path(self, ids: Sequence[int]) -> list[tuple[Node, int]]:
        path: list[tuple[Node, int]] = []
        node, at = self._root, 0
        while at < len(ids) and (child := node.children.get(ids[at])) is not None:
            matched = common(child.ids, ids[at : at + len(child.ids)])
            path.append((child, matched))
            if matched < len(child.ids):
                break
            node, at = child, at + matched
        return path

    def _use(self, path: Sequence[Node]) -> None:
        """Mark the nodes of a path as used last, parents after their children."""
        for node in reversed(path):
            del self._nodes[node]
            self._nodes[node] = None

    def _split(self, node: Node, at: int) -> Node:
        """Split a node in two; return the first part."""
        assert node.parent is not None
        first = Node(
            node.parent, node.ids[:at], (node.keys[:, :, :at].clone(), node.values[:, :, :at].clone()), None
        )
        self.bytes -= node.bytes
        node.keys, node.values = node.keys[:, :, at:].clone(), node.values[:, :, at:].clone()
        node.ids, node.parent = node.ids[at:], first
        self.bytes += node.bytes
        first.children[node.ids[0]] = node
        self._add(first, node.owner)
        return first

    def _add(self, node: Node, owner: str | None) -> None:
        assert node.parent is not None
        node.parent.children[node.ids[0]] = node
        self._nodes[node] = None
        self.bytes += node.bytes
        self._own(node, owner)

    def _own(self, node: Node, owner: str | None) -> None:
        if node.owner is not None:
            nodes = self._owned[node.owner]
            nodes.discard(node)
            if not nodes:
                del self._owned[node.owner]
        node.owner = owner
        if owner is not None:
            self._owned.setdefault(owner, set()).add(node)

    def _remove(self, node: Node) -> None:
        assert node.parent is not None
        node.parent.children.pop(node.ids[0])
        del self._nodes[node]
        self.bytes -= node.bytes
        self._own(node, None)


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    if one == other:
        return len(one)
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@dataclass(frozen=True)
class Shape:
    """The shape of a model's keys and values, the same in every layer."""

    layers: int
    heads: int
    keys: int
    values: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes(self) -> int:
        """The size of one position in bytes."""
        return self.layers * self.heads * (self.keys + self.values) * self.dtype.itemsize

    @classmethod
    def of(cls, cache: Any) -> Shape | None:
        """Return the shape of a model's own cache; None where it is not plain keys and values per layer."""
        layers = getattr(cache, "layers", None)
        if not layers or any(type(layer) is not DynamicLayer for layer in layers):
            return None
        made = {
            cls(len(layers), k.shape[1], k.shape[3], v.shape[3], k.dtype, k.device)
            for k, v in ((layer.keys, layer.values) for layer in layers)
        }
        return made.pop() if len(made) == 1 else None


class Rows:
    """The sequences of a batch, right-aligned: the newest token of every row is in the last column.

    Position p of a row is in column ``start + p`` of the buffers, keys (L, B, H, S, K) and values alike.
    Both axes grow by more than needed, so a new token is one write, not a copy of all earlier ones. Buffers
    start as zeros: masked values are multiplied by 0, which would not remove a NaN.
    """

    def __init__(self, shape: Shape, lengths: Sequence[int], room: int = 0) -> None:
        """Make one row for each number of positions in `lengths`, with columns for `room` more."""
        self.shape = shape
        self.end = max(lengths)
        self.start = [self.end - length for length in lengths]
        self.keys, self.values = self._buffers(len(lengths), self.end + room)
        self._starts: dict[tuple[int, int], tuple[int, Tensor]] = {}
        self.aim(0, len(lengths), 0)

    def _buffers(self, rows: int, columns: int) -> KeysValues:
        shape = self.shape
        of = (shape.layers, rows, shape.heads, columns)
        keys = torch.zeros((*of, shape.keys), dtype=shape.dtype, device=shape.device)
        return keys, torch.zeros((*of, shape.values), dtype=shape.dtype, device=shape.device)

    def load(self, row: int, pieces: Sequence[tuple[Node, int]], positions: int) -> None:
        """Copy the first `positions` positions of a row from nodes of the tree."""
        at, last = self.start[row], self.start[row] + positions
        for node, matched in pieces:
            count = min(matched, last - at)
            self.keys[:, row, :, at : at + count] = node.keys[:, :, :count]
            self.values[:, row, :, at : at + count] = node.values[:, :, :count]
            at += count

    def piece(self, row: int, first: int, last: int) -> KeysValues:
        """Return a copy of a row's positions from `first` to before `last`."""
        columns = slice(self.start[row] + first, self.start[row] + last)
        return self.keys[:, row, :, columns].clone(), self.values[:, row, :, columns].clone()

    def aim(self, first: int, last: int, new: int) -> tuple[Tensor, Tensor]:
        """Choose the rows of the next forward pass, with `new` columns; return mask (B, S), position (B, T).

        Columns before the start of all these rows are left out.
        """
        self._rows, self.new = slice(first, last), new
        self._real: Tensor | None = None
        device = self.shape.device
        if (first, last) not in self._starts:  # a copy to the device for each new token would wait for it
            start = self.start[first:last]
            self._starts[first, last] = min(start), torch.tensor(start, device=device)[:, None]
        self._left, start_B1 = self._starts[first, last]
        mask_BS = torch.arange(self._left, self.end, device=device) >= start_B1
        at_BT = torch.arange(self.end - new, self.end, device=device) - start_B1
        return mask_BS.long(), at_BT.clamp(min=0)

    def pad(self, counts: Sequence[int]) -> None:
        """Set how many of the new columns belong to each row; the others must not be overwritten."""
        if min(counts) < self.new:
            place_T = torch.arange(self.new, device=self.shape.device)
            first_B = self.new - torch.tensor(counts, device=self.shape.device)
            self._real = (place_T >= first_B[:, None])[:, None, :, None]

    @property
    def cache(self) -> Cache:
        """The chosen rows as a transformers cache; made at each access, as a cycle would keep the buffers."""
        return Cache(layers=[_Layer(self, layer) for layer in range(self.shape.layers)])

    @property
    def shown(self) -> int:
        """The number of columns that the model sees next, including the new ones."""
        return self.end - self._left

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> KeysValues:
        """Store a layer's new keys and values, (B, H, T, K); return those of all columns, (B, H, S, K)."""
        stores = self.keys[layer, self._rows], self.values[layer, self._rows]
        for all_BHSK, new_BHTK in zip(stores, (keys, values), strict=True):
            here_BHTK = all_BHSK[:, :, self.end - self.new : self.end]
            if self._real is not None:
                new_BHTK = torch.where(self._real, new_BHTK, here_BHTK)
            here_BHTK.copy_(new_BHTK)
        return stores[0][:, :, self._left : self.end], stores[1][:, :, self._left : self.end]

    def step(self) -> None:
        """Add a column."""
        self.end += 1
        if self.end > self.keys.shape[3]:
            self._grow(self.keys.shape[1], self.end + self.end // 2)

    def arrange(self, origins: Sequence[int]) -> list[int]:
        """Replace the rows by those with the indices `origins`, which may repeat; return their order.

        Row i is then the old row ``origins[order[i]]``. Rows stay in place where possible; others are copied.
        """
        order = [-1] * len(origins)
        waiting = []
        for place, origin in enumerate(origins):
            if origin < len(order) and order[origin] < 0:
                order[origin] = place
            else:
                waiting.append(place)
        if len(origins) > self.keys.shape[1]:
            self._grow(max(len(origins), 3 * self.keys.shape[1] // 2), self.keys.shape[3])
        # A row without a sequence that stays is no row's origin, so nothing is overwritten before it is read.
        free = [row for row, place in enumerate(order) if place < 0]
        for row, place in zip(free, waiting, strict=True):
            order[row] = place
            columns = slice(self.start[origins[place]], self.end)
            for store in (self.keys, self.values):
                store[:, row, :, columns] = store[:, origins[place], :, columns]
        self.start = [self.start[origins[place]] for place in order]
        self._starts.clear()
        return order

    def _grow(self, rows: int, columns: int) -> None:
        old = self.keys, self.values
        self.keys, self.values = self._buffers(rows, columns)
        for before, now in zip(old, (self.keys, self.values), strict=True):
            now[:, : before.shape[1], :, : before.shape[3]] = before


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer of `Rows`, as transformers models take it."""

    is_sliding = False

    def __init__(self, rows: Rows, number: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rows, self.number = rows, number
        self.is_initialized = True

    def lazy_initialization(self, *_: Any, **__: Any) -> None:
        """Do nothing: the buffers exist already."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> KeysValues:
        """Store new keys and values, and return all."""
        return self.rows.extend(self.number, key_states, value_states)

    def get_mask_sizes(self, *_: Any, **__: Any) -> tuple[int, int]:
        """Return the number of columns, and the first column."""
        return self.rows.shown, 0

    def get_seq_length(self, *_: Any, **__: Any) -> int:
        """Return the number of columns before the new ones."""
        return self.rows.shown - self.rows.new

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5


class CachedForward:
    """A model's forward pass over token ids, which reuses cached prefixes."""

    def __init__(self, forward: Forward, shape: Shape, limit: int) -> None:
        """Wrap `forward`, whose keys and values have `shape`; cache at most `limit` bytes of them."""
        self.forward = forward
        self.shape = shape
        self.tree = PrefixTree(limit)
        self.positions = 0
        """Number of positions processed so far, without padding."""

    def share(self, prompts: Iterable[tuple[int, ...]]) -> None:
        """Process the common prefixes of the prompts once, and cache them."""
        waiting = [sorted(prompts)]
        while waiting:
            these = waiting.pop()
            shared = common(these[0], these[-1])  # sorted, those between have it in common too
            if len(these) < 2 or shared * self.shape.bytes > self.tree.limit:
                continue
            ids = these[0][:shared]
            known = sum(matched for _, matched in self.tree.find(ids))
            if (len(these) - 1) * (shared - known) >= _WORTH:
                rows, _, _ = self.start([ids])
                self.keep(ids, None, rows, 0)
            longer = [each for each in these if len(each) > shared]
            waiting += [list(group) for _, group in groupby(longer, key=lambda each: each[shared])]

    def start(self, prompts: Sequence[tuple[int, ...]], room: int = 0) -> tuple[Rows, Tensor, list[int]]:
        """Process the uncached tokens of each prompt, and always its last token, whose logits are needed.

        Returns:
            The rows; the logits after each row, (B, V); the index of the prompt in each row.
        """
        pieces = [self.tree.find(ids[:-1]) for ids in prompts]
        known = [sum(matched for _, matched in piece) for piece in pieces]
        fresh = [len(ids) - count for ids, count in zip(prompts, known, strict=True)]
        order = sorted(range(len(prompts)), key=fresh.__getitem__, reverse=True)
        rows = Rows(self.shape, [len(prompts[i]) for i in order], room)
        for row, i in enumerate(order):
            rows.load(row, pieces[i], known[i])
        logits, first = [], 0
        while first < len(order):
            new = fresh[order[first]]
            # Rows with about the same number of new tokens go together: at most a quarter is padding.
            last = next((r for r in range(first, len(order)) if 4 * fresh[order[r]] < 3 * new), len(order))
            counts = [fresh[i] for i in order[first:last]]
            ids_BT = torch.tensor(
                [[0] * (new - fresh[i]) + list(prompts[i][known[i] :]) for i in order[first:last]],
                device=self.shape.device,
            )
            mask_BS, at_BT = rows.aim(first, last, new)
            rows.pad(counts)
            logits.append(self.forward(ids_BT, mask_BS, at_BT, rows.cache)[0])
            self.positions += sum(counts)
            first = last
        return rows, torch.cat(logits), order

    def step(self, rows: Rows, ids: Sequence[int] | Tensor) -> Tensor:
        """Append one id to each row; return the next logits, (B, V)."""
        rows.step()
        mask_BS, at_B1 = rows.aim(0, len(ids), 1)
        ids_B1 = torch.as_tensor(ids, device=self.shape.device)[:, None]
        self.positions += len(ids)
        return self.forward(ids_B1, mask_BS, at_B1, rows.cache)[0]

    def keep(self, ids: tuple[int, ...], owner: str | None, rows: Rows, row: int) -> None:
        """Cache the positions of `ids`, a prefix of the row, for `owner` (None: for all)."""
        self.tree.keep(ids, owner, lambda first, last: rows.piece(row, first, last))

    def clear(self) -> None:
        """Drop the whole cache; it is valid only for the weights that computed it."""
        self.tree = PrefixTree(self.tree.limit)


def add_cache(forward: Forward, vocabulary: int, limit: int) -> CachedForward | None:
    """Return `forward` with a cache, if that gives the same logits as whole prompts; else None.

    This is tested, not looked up by model name. The model's cache must be keys and values of one shape per
    layer (no sliding windows, no states). Sequences of several lengths that were cut, copied and batched must
    continue with the same logits as alone.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(vocabulary, (2, 24), generator=generator).tolist()
    one, other = tuple(drawn[0]), (*drawn[0][:6], *drawn[1][:11])
    try:
        _, own = _alone(forward, one)
        shape = Shape.of(own)
        if shape is None:
            return None
        probed = CachedForward(forward, shape, limit=1 << 62)
        rows, _, _ = probed.start([one[:10]])
        probed.keep(one[:10], None, rows, 0)
        rows, logits, order = probed.start([one, other])
        made = [logits[order.index(0)], logits[order.index(1)]]
        origins = [order.index(1), order.index(0), order.index(1)]
        after = [7 % vocabulary, 8 % vocabulary, 9 % vocabulary]
        place = rows.arrange(origins)
        logits = probed.step(rows, [after[i] for i in place])
        made += [logits[place.index(i)] for i in range(3)]
        wanted = [one, other, (*other, after[0]), (*one, after[1]), (*other, after[2])]
        for ids, got in zip(wanted, made, strict=True):
            expected = _alone(forward, ids)[0][0]
            # Rounding, relative to the spread of the logits; in half precision it is larger.
            bound = max(1e-3, 32 * torch.finfo(shape.dtype).eps) * expected.float().std()
            if not (got - expected).abs().max() <= bound:
                return None
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a model that does not take this cache may fail in any way
        return None
    return CachedForward(forward, shape, limit)


def _alone(forward: Forward, ids: Sequence[int]) -> tuple[Tensor, Any]:
    """Return the logits after a whole sequence, (1, V), and the model's own cache."""
    ids_1T = torch.tensor([ids])
    return forward(ids_1T, torch.ones_like(ids_1T), torch.arange(len(ids))[None], None)
