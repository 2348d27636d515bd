"""Places: in which environment of the host an episode is played; each is kept for the next episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from gem.core import Env
from gem.hosts import Host
from gem.hosts.verbs import Description
from gem.registry import Maker
from gem.specs import EnvSpec, TaskRef, written_arguments

Recipe: TypeAlias = str | TaskRef | Maker | Callable[[], Env]
"""What makes an environment: an id, a task, a Maker, or any callable (picklable for processes)."""


class Place:
    """One index of a host. `play` is given it as the environment."""

    __slots__ = ("alone", "assembles_history", "described", "index", "key", "maker", "task")

    def __init__(self, index: int, recipe: Recipe, alone: bool = False) -> None:
        """Stand at `index`, for an environment of `recipe` that is not made yet."""
        self.index, self.alone = index, alone
        self.assign(recipe)

    def assign(self, recipe: Recipe) -> None:
        """Be for environments of `recipe`."""
        self.key, self.maker = pool_key(recipe), maker(recipe)
        self.vacate()

    def vacate(self) -> None:
        """Note that the environment is gone, and another of the same recipe will be made."""
        self.described, self.assembles_history = False, False
        self.task = expected(self.maker)

    def occupy(self, description: Description) -> None:
        """Note what was made."""
        self.described = True
        self.task, self.assembles_history = description


class Places:
    """The places of a host, at most `size` of them beside those in workers of their own.

    An episode gets one where its environment stands already, if one is free; else a new one; else the one
    that has been free for longest, whose environment is thrown away.
    """

    def __init__(self, host: Host, size: int) -> None:
        """Make no place yet."""
        self.alone = 0
        """How many are in use in workers of their own."""
        self._host, self._size = host, size
        self._count = 0
        self._free: dict[Any, list[Place]] = {}  # by what they are for, the longest free first

    def take(self, recipe: Recipe, alone: bool = False) -> Place:
        """Return a place for an environment of `recipe`; `alone` in a worker of its own."""
        if alone:
            place = Place(self._host.add(maker(recipe), alone=True), recipe, alone=True)
            self.alone += 1
            return place
        wanted = pool_key(recipe)
        if wanted in self._free:
            return self._pop(wanted)
        if self._count < self._size:
            place = Place(self._host.add(maker(recipe)), recipe)
            self._count += 1
            return place
        longest = next(iter(self._free))
        self._host.renew(self._free[longest][-1].index, maker(recipe))  # where that fails, it stays free
        place = self._pop(longest)
        place.assign(recipe)
        return place

    def give_back(self, place: Place) -> None:
        """Take a place back."""
        if place.alone:
            self.alone -= 1
            self._host.remove(place.index)
            return
        mine = self._free.pop(place.key, [])
        mine.append(place)
        self._free[place.key] = mine  # the last to be thrown away

    def abandon(self, places: list[Place]) -> None:
        """Take back the places of episodes that were cut off, and empty the list.

        What is in flight there is waited for and dropped.
        """
        if places and self._host.busy:
            self._host.ready(len(self._host.busy))
        while places:
            place = places.pop()
            if not place.alone:
                place.vacate()
                self._host.renew(place.index)
            self.give_back(place)

    def clear(self) -> None:
        """Remove every free environment from the host."""
        for places in self._free.values():
            for place in places:
                self._host.remove(place.index)
                self._count -= 1
        self._free.clear()

    def _pop(self, key: Any) -> Place:
        place = self._free[key].pop()
        if not self._free[key]:
            del self._free[key]
        return place


def pool_key(recipe: Recipe | EnvSpec) -> Any:
    """Return what tells the environments of recipes apart: those of equal keys stand in for one another."""
    if isinstance(recipe, str):
        return recipe
    if isinstance(recipe, Maker):
        wrappers = [id(each) if callable(each) else each for each in recipe.wrappers]
        plain, _ = written_arguments(type(recipe), recipe.kwargs)
        # What cannot be written down is told apart as an object: data may look alike when it is shown.
        others = sorted((name, id(value)) for name, value in recipe.kwargs.items() if name not in plain)
        return repr((pool_key(recipe.env_id), sorted(plain.items()), others, wrappers))
    if isinstance(recipe, TaskRef):
        return repr(replace(recipe, seed=None))
    return repr(recipe) if isinstance(recipe, EnvSpec) else id(recipe)


def maker(recipe: Recipe) -> Callable[[], Env]:
    """Return a recipe as a callable."""
    return Maker(recipe) if isinstance(recipe, str | TaskRef) else recipe


def expected(recipe: Callable[[], Env]) -> TaskRef:
    """Return what an environment is to be, for the record of an episode that never began."""
    if isinstance(recipe, Maker):
        task = recipe.env_id if isinstance(recipe.env_id, TaskRef) else TaskRef(recipe.spec.id)
        kwargs, opaque = written_arguments(type(recipe), recipe.kwargs)
        return replace(task, kwargs={**task.kwargs, **kwargs}, opaque=(*task.opaque, *opaque))
    named: Any = getattr(recipe, "func", recipe)  # what a functools.partial calls
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return TaskRef(f"{named.__module__}:{named.__qualname__}")
