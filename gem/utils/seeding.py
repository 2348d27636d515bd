"""Upstream's `set_seed`, which gem's environments do not need: each has its own random streams."""

import random
import sys

__all__ = ["set_seed"]


def set_seed(seed: int) -> None:
    """Seed the global generators of random and, if they are loaded, of numpy and torch.

    It is for scripts that use them; gem never does. See `gem.seeding`.
    """
    random.seed(seed)  # noqa: TID251  the caller's own, as asked
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
