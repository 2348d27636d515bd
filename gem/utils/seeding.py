"""Upstream's `set_seed`. Environments here do not need it: each has streams of its own, see `gem.seeding`."""

import random
import sys

__all__ = ["set_seed"]


def set_seed(seed: int) -> None:
    """Seed the process's global generators, of random and, where they are loaded, of numpy and torch.

    For scripts that draw from them on their own; gem never does.
    """
    random.seed(seed)  # noqa: TID251  the caller's own, as asked
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(seed)
