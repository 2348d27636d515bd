"""The distinct instances of an environment: find them, and the seeds that give each, if there are few."""

from __future__ import annotations

from typing import NamedTuple

from gem import seeding
from gem.registry import Maker

FEW = 64
"""An environment with at most this many distinct instances is enumerated."""

SCAN = 4000
"""Number of seeds that are searched for distinct instances."""


class Instances(NamedTuple):
    """The seeds that give each distinct instance, and whether these are all instances.

    Seeds of the same instance differ in other random numbers, such as those of the random actor.
    """

    seeds: tuple[tuple[int, ...], ...]
    complete: bool


def find_instances(maker: Maker, seed: int, wanted: int = 256) -> Instances:
    """Return the distinct instances if there are few, else `wanted` seeds in order.

    The environment's `instance` identifies an instance. If there are too many, or the environment does not
    have it, every seed counts as one instance, so frequent instances are played more often.
    """
    with maker() as env:
        tell = getattr(env, "instance", None)
        seeds = [seeding.derive(seed, "instance", i) for i in range(SCAN)]
        found: dict[str, list[int]] = {}
        for each in seeds:
            if tell is None or len(found) > FEW:
                break
            env.reset(seed=each)
            found.setdefault(tell(), []).append(each)
    if tell is None or len(found) > FEW:
        return Instances(tuple((each,) for each in seeds[:wanted]), False)
    return Instances(tuple(tuple(found[key]) for key in sorted(found)), True)
