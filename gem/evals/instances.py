"""The distinct instances of an environment: which seeds deal which, where they are few enough to be told."""

from __future__ import annotations

from typing import NamedTuple

from gem import seeding
from gem.registry import Maker

FEW = 64
"""An environment with at most this many distinct instances is enumerated."""

SCAN = 4000
"""Seeds that are looked through for distinct instances."""


class Instances(NamedTuple):
    """For each distinct instance the seeds that deal it, and whether these are all the instances there are.

    Several seeds of one instance differ in the chance that is not the instance's: the random actor's.
    """

    seeds: tuple[tuple[int, ...], ...]
    complete: bool


def find_instances(maker: Maker, seed: int, wanted: int = 256) -> Instances:
    """Return the distinct instances where they are few, else `wanted` seeds as they come.

    Instances are told apart by what the environment says of them (`instance`). Where they are too many, or
    it does not say, every seed counts as one, so that an instance comes up as often as it is dealt.
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
