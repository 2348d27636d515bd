"""Train and test tasks of one environment: the keywords ``split`` and ``exclude``, and a split by digest."""

from __future__ import annotations

import hashlib
from typing import Literal, TypeAlias

from gem.errors import check_argument

Split: TypeAlias = Literal["train", "test"]
Exclude: TypeAlias = Literal["disputed"]

TEST_SHARE = 5
"""One task in this many is a test task, where a digest says so."""


def check_split(split: str | None, exclude: str | None = None) -> None:
    """Refuse values that these keywords do not take.

    Raises:
        BadArgument: for a split other than train, test and None, or an exclude other than disputed and None.
    """
    check_argument("split", split, split in (None, "train", "test"), "train, test or None")
    check_argument("exclude", exclude, exclude in (None, "disputed"), "disputed or None")


def split_of(task: str) -> Split:
    """Return the split of a task by a digest of its text, the same on every machine."""
    digest = hashlib.sha256(task.encode()).digest()
    return "train" if int.from_bytes(digest[:8], "big") % TEST_SHARE else "test"
