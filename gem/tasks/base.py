"""Task and TaskSet: what to solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gem.content import Obs


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: what the agent is shown, what the grader compares with.

    `id` names it within its set and stays the same when the set is shuffled or sharded; `info` holds whatever
    else the row said.
    """

    id: str
    question: Obs
    reference: Any
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class TaskSet(Protocol):
    """A sequence of tasks with random access, the same from any thread and after pickling.

    A set whose questions take time to make may also have ``reference(index)``, which makes the answer alone.
    """

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __getitem__(self, index: int) -> Task:
        """Return one task."""
        ...

    def order(self, seed: int, epoch: int = 0) -> Sequence[int]:
        """Return a permutation of the indices: a pure function of its arguments."""
        ...
