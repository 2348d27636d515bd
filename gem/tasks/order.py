"""The order of tasks: permutations that need no memory, and the walk of one of several workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from operator import index
from typing import overload

from gem import seeding
from gem.errors import BadArgument
from gem.tasks.base import Task, TaskSet

_ROUNDS = 6
_MASK = (1 << 64) - 1


class Ordered:
    """Base class of task sets with a random order for each seed and epoch."""

    def order(self: Sized, seed: int, epoch: int = 0) -> Order:
        """Return a permutation of the indices: a pure function of its arguments."""
        return Order(len(self), seed, epoch)


class Order(Sequence[int]):
    """A permutation of 0 to n - 1, drawn by `seed` and `epoch`, whose entries are computed one by one.

    No list of n numbers is made, so a worker can start anywhere at once in a set of any size. It is a Feistel
    network over the smallest even number of bits that holds n, applied until the result is below n. Source:
    Black and Rogaway, "Ciphers with arbitrary finite domains" (CT-RSA 2002).

    >>> sorted(Order(5, seed=1)) == [0, 1, 2, 3, 4]
    True
    """

    __slots__ = ("_half", "_keys", "_n")

    def __init__(self, n: int, seed: int, epoch: int = 0) -> None:
        """Draw the permutation."""
        self._n = n
        self._half = max(1, (max(n - 1, 1).bit_length() + 1) // 2)
        draw = seeding.stream(seed, "order", epoch)
        self._keys = tuple(draw.getrandbits(64) for _ in range(_ROUNDS))

    def __len__(self) -> int:
        """Return n."""
        return self._n

    @overload
    def __getitem__(self, position: int) -> int: ...
    @overload
    def __getitem__(self, position: slice) -> list[int]: ...
    def __getitem__(self, position: int | slice) -> int | list[int]:
        """Return the entry at `position`, or those of a slice."""
        if isinstance(position, slice):
            return [self[each] for each in range(*position.indices(self._n))]
        at = index(position)
        if not -self._n <= at < self._n:
            raise IndexError(f"position {at} of an order of {self._n}")
        at %= self._n
        half, low = self._half, (1 << self._half) - 1
        while True:
            left, right = at >> half, at & low
            for key in self._keys:
                mixed = (right ^ key) * 0xBF58476D1CE4E5B9 & _MASK
                mixed = (mixed ^ mixed >> 29) * 0x94D049BB133111EB & _MASK
                left, right = right, left ^ (mixed >> 32 & low)
            at = left << half | right
            if at < self._n:
                return at

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """Return the position of an entry; it is computed, not searched for.

        Raises:
            ValueError: when it is not there.
        """
        if not 0 <= value < self._n:
            raise ValueError(f"{value} is not in an order of {self._n}")
        at, half, low = value, self._half, (1 << self._half) - 1
        while True:
            left, right = at >> half, at & low
            for key in reversed(self._keys):
                left, right = right ^ (_mix(left, key) >> 32 & low), left
            at = left << half | right
            if at < self._n:
                break
        if not start <= at < (self._n if stop is None else stop):
            raise ValueError(f"{value} is not in this part of an order of {self._n}")
        return at


def _mix(half: int, key: int) -> int:
    """Return a hash of one half and a key; its upper 32 bits count."""
    mixed = (half ^ key) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed ^ mixed >> 29) * 0x94D049BB133111EB & _MASK


def index_at(tasks: TaskSet, seed: int, position: int) -> int:
    """Return the index of the task at a position of the endless walk through the epochs of `tasks`."""
    epoch, at = divmod(position, len(tasks))
    return tasks.order(seed, epoch)[at]


class Walk(Iterator[Task]):
    """An iterator over the tasks of one of `of` workers, epoch after epoch.

    Worker `rank` takes positions rank, rank + of, rank + 2 of, ... of one endless walk that all workers
    share. Together they see every task exactly once per epoch, for any `of`. `position` is this worker's
    position; a walk made with it continues from there.

    Args:
        tasks: the task set.
        seed: the seed of the order; the same for all workers.
        rank: this worker's number, from 0.
        of: the number of workers.
        position: the position to continue from; None starts from the beginning.
        epochs: the number of epochs; None never ends.

    Raises:
        BadArgument: for an invalid rank, position or number of workers, or an empty set.
    """

    def __init__(
        self,
        tasks: TaskSet,
        seed: int = 0,
        rank: int = 0,
        of: int = 1,
        position: int | None = None,
        epochs: int | None = None,
    ) -> None:
        if not 0 <= rank < of:
            raise BadArgument(f"rank is {rank} of {of} workers; accepted: a rank from 0 to {of - 1}.")
        if position is not None and (position < 0 or position % of != rank):
            raise BadArgument(
                f"position is {position}; worker {rank} of {of} is only ever at {rank}, {rank + of}, ..."
            )
        if not len(tasks):
            raise BadArgument(f"the task set {tasks.name} is empty; a walk needs one task or more.")
        self.tasks = tasks
        self.seed = seeding.check(seed)
        self.of = of
        self.position = rank if position is None else position
        self.epochs = epochs

    def __next__(self) -> Task:
        """Return the next task."""
        if self.epochs is not None and self.position >= self.epochs * len(self.tasks):
            raise StopIteration
        task = self.tasks[index_at(self.tasks, self.seed, self.position)]
        self.position += self.of
        return task
