"""Objects that a ``with`` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """A base class of objects with a `close()`: leaving a ``with`` block calls it."""

    __slots__ = ()

    def close(self) -> None:
        """Release what the object holds. Calling it twice is harmless."""

    def __enter__(self) -> Self:
        """Return self; the object is closed at the end of the block."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close."""
        self.close()
