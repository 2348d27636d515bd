"""The global random generators of Python and numpy, for packages that draw from them and seed them."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

NUMPY_SEEDS = 2**32

_LOCK = threading.RLock()


class GlobalGenerators:
    """A state of the global generators for one user of such a package; a deep copy copies it."""

    def __init__(self) -> None:
        """Begin without a state; the first block is seeded."""
        self._state: tuple[Any, Any] | None = None

    @contextlib.contextmanager
    def active(self, seed: int = 0) -> Iterator[None]:
        """Give the global generators this state in a block, and put back theirs; one block runs at a time."""
        with _LOCK:
            kept = random.getstate(), np.random.get_state()  # noqa: NPY002  the guard itself
            if self._state is None:
                random.seed(seed)  # noqa: TID251  the guard itself
                np.random.seed(seed % NUMPY_SEEDS)  # noqa: NPY002, TID251  the guard itself
            else:
                _set_states(*self._state)
            try:
                yield
            finally:
                self._state = random.getstate(), np.random.get_state()  # noqa: NPY002  the guard itself
                _set_states(*kept)


def _set_states(python: Any, numpy: Any) -> None:
    random.setstate(python)
    np.random.set_state(numpy)  # noqa: NPY002  the guard itself
