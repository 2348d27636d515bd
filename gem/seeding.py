"""Seeding: hashed child seeds and private random streams. Nothing here touches a global generator.

A child seed is a hash of the whole path, never ``seed + i``: with addition, run 0 / env 1 would play the
same episodes as run 1 / env 0.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from operator import index
from typing import Any

from gem.errors import BadArgument

SEED_BITS = 63
"""Upper bound of seeds: they fit a signed 64-bit integer, which every store and framework can hold."""

_MASK = (1 << 64) - 1
_EXACT = frozenset((int, str))


def derive(seed: int, *path: str | int) -> int:
    """Return the child seed of `seed` at `path`, a 63-bit integer.

    The same arguments give the same child in every process and on every platform. An int and the same
    digits as text are different path elements.

    >>> derive(0, "env", 3) == derive(0, "env", 3) != derive(0, "env", "3")
    True
    """
    # numpy's integers are hashed like Python's: their repr differs, and changes with numpy's version
    exact = [part if type(part) in _EXACT else _exactly(part) for part in (seed, *path)]
    text = repr(tuple(exact) if path else exact[0])
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def children(seed: int, *path: str | int) -> Callable[[int], int]:
    """Return ``lambda number: derive(seed, *path, number)``, for many children of one path.

    >>> children(0, "env")(3) == derive(0, "env", 3)
    True
    """
    exact = tuple(part if type(part) in _EXACT else _exactly(part) for part in (seed, *path))
    head = (repr(exact)[:-1] + (", " if path else " ")).encode("utf-8", "surrogatepass")
    return partial(_child, head)


def _child(head: bytes, number: int) -> int:
    digest = blake2b(b"%b%d)" % (head, number), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _exactly(part: str | int) -> str | int:
    return str(part) if isinstance(part, str) else index(part)


def _hash_seed(seed: Any) -> int:
    if seed is None:
        return fresh()
    if not isinstance(seed, str | bytes | bytearray | float):
        return index(seed)
    digest = blake2b(repr(seed).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


class Stream(random.Random):
    """A private random generator whose whole state is one 64-bit number: SplitMix64.

    The generator of the standard library keeps 625 words: seeding it takes longer than setting up a small
    game, and copying it takes most of the time of a fork. Every method of random.Random works. Source:
    Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
    """

    _state: int

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Start the stream of seed `a`, or of a fresh seed; of what is no int, the stream of its hash."""
        self._state = a if type(a) is int else _hash_seed(a)
        self.gauss_next = None

    def getrandbits(self, k: int, /) -> int:
        """Return an integer of `k` random bits."""
        if k > 64:
            first = self.getrandbits(k % 64)
            if k < 1024:  # shifts are quicker for few words
                for _ in range(k // 64):
                    first = first << 64 | self.getrandbits(64)
                return first
            words = [first, *(self.getrandbits(64) for _ in range(k // 64))]
            return int.from_bytes(b"".join([word.to_bytes(8, "big") for word in words]), "big")
        self._state = z = self._state + 0x9E3779B97F4A7C15 & _MASK
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
        return (z ^ z >> 31) >> 64 - k

    def random(self) -> float:
        """Return a number in [0, 1), a multiple of 2**-53."""
        return self.getrandbits(53) * 2.0**-53

    def getstate(self) -> tuple[Any, ...]:
        """Return the state, for setstate()."""
        return self._state, self.gauss_next

    def setstate(self, state: tuple[Any, ...]) -> None:
        """Restore a state that getstate() returned."""
        self._state, self.gauss_next = state


def stream(seed: int, *path: str | int) -> Stream:
    """Return a private generator seeded with ``derive(seed, *path)``."""
    return Stream(derive(seed, *path))


def fresh() -> int:
    """Return a seed drawn from the operating system's entropy."""
    return random.SystemRandom().getrandbits(SEED_BITS)


def check(seed: object) -> int:
    """Return `seed` as an int.

    Raises:
        BadArgument: for anything but a non-negative integer (numpy integers are accepted).
    """
    if type(seed) is int and seed >= 0:
        return seed
    try:
        if isinstance(seed, bool):
            raise TypeError
        number = int(seed.__index__())  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise BadArgument(f"seed is {seed!r}; a seed is a non-negative integer or None.") from None
    if number < 0:
        raise BadArgument(f"seed is {number}; a seed is a non-negative integer or None.")
    return number
