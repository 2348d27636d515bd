"""Seeds: hashed child seeds and private streams. Nothing here touches a global generator.

Children are derived by hashing the whole path, never by ``seed + i``: with addition, run 0 / env 1
plays the episodes of run 1 / env 0.
"""

from __future__ import annotations

import random
import secrets
from hashlib import blake2b

from gem.errors import BadArgument

SEED_BITS = 63
"""Seeds fit a signed 64-bit integer, which every store and framework can hold."""


def derive(seed: int, *path: str | int) -> int:
    """Return the child seed at `path` below `seed`, a 63-bit integer.

    The same arguments give the same child in every process and on every platform; an int and the
    string that looks like it are different path elements.

    >>> derive(0, "env", 3) == derive(0, "env", 3) != derive(0, "env", "3")
    True
    """
    text = repr((seed, *path)) if path else repr(seed)
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def stream(seed: int, *path: str | int) -> random.Random:
    """Return a private generator seeded with ``derive(seed, *path)``."""
    return random.Random(derive(seed, *path))


def fresh() -> int:
    """Return a seed drawn from the operating system's entropy."""
    return secrets.randbits(SEED_BITS)


def check(seed: object) -> int:
    """Return `seed` as an int.

    Raises:
        BadArgument: for anything but a non-negative integer (numpy integers are accepted).
    """
    try:
        if isinstance(seed, bool):
            raise TypeError
        number = int(seed.__index__())  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise BadArgument(f"seed is {seed!r}; a seed is a non-negative integer or None.") from None
    if number < 0:
        raise BadArgument(f"seed is {number}; a seed is a non-negative integer or None.")
    return number
