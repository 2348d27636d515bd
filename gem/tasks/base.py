"""Task, one problem, and TaskSet, a sequence of problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from gem.content import Obs


@dataclass(frozen=True, slots=True)
class Task:
    """One problem: the question for the agent, and the reference for the grader.

    `id` identifies it within its set and stays the same when the set is shuffled or sharded; `info` holds the
    other columns of the row.
    """

    id: str
    question: Obs
    reference: Any
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class TaskSet(Protocol):
    """A sequence of tasks with random access, the same in any thread and after pickling.

    A set whose questions take time to make may also have ``reference(index)``, which makes only the answer.
    """

    @property
    def name(self) -> str:
        """The name of the set in messages."""

    def __len__(self) -> int:
        """Return the number of tasks."""

    def __getitem__(self, index: int) -> Task:
        """Return one task."""

    def order(self, seed: int, epoch: int = 0) -> Sequence[int]:
        """Return a permutation of the indices: a pure function of its arguments."""
