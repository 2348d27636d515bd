"""Places: assign episodes to the environments of a host, which are reused by later episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from gem.core import Env
from gem.errors import GemError, NoVerdict
from gem.hosts import Host
from gem.hosts.verbs import Description
from gem.registry import Maker, task_of
from gem.specs import EnvSpec, TaskRef, written_arguments

Recipe: TypeAlias = str | TaskRef | Maker | Callable[[], Env]
"""Makes an environment: an id, a task, a Maker, or any callable (picklable for processes)."""


class Place:
    """One index of a host. `play` is given it as the environment."""

    __slots__ = ("alone", "assembles_history", "described", "index", "key", "maker", "task")

    def __init__(self, index: int, recipe: Recipe, alone: bool = False) -> None:
        """Use `index` of the host, for an environment of `recipe` that is not made yet."""
        self.index, self.alone = index, alone
        self.assign(recipe)

    def assign(self, recipe: Recipe) -> None:
        """Use this place for environments of `recipe`."""
        self.key, self.maker = pool_key(recipe), maker(recipe)
        self.vacate()

    def vacate(self) -> None:
        """Record that the environment is gone, and that another of the same recipe will be made."""
        self.described, self.assembles_history = False, False
        self.task = expected_task(self.maker)

    def task_with(self, seed: int) -> TaskRef:
        """Return the task of an episode; written out, because episodes are many."""
        task = self.task
        return TaskRef(
            task.spec, task.kwargs, task.wrappers, seed, task.entry_point, task.opaque, task.foreign
        )

    def occupy(self, description: Description) -> None:
        """Record the description of the new environment."""
        self.described = True
        self.task, self.assembles_history = description


class Places:
    """The places of a host: at most `size`, not counting those in separate workers.

    An episode gets a free place that already has its environment; else a new place; else the place that has
    been free for longest, whose environment is closed.
    """

    def __init__(self, host: Host, size: int) -> None:
        """Start without places."""
        self.alone = 0
        """The number of places in use in separate workers."""
        self._host, self._size = host, size
        self._count = 0
        self._free: dict[Any, list[Place]] = {}  # by recipe, the longest free first

    def take(self, recipe: Recipe, alone: bool = False) -> Place:
        """Return a place for an environment of `recipe`; with `alone`, in a separate worker."""
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
        """Free a place for other episodes."""
        if place.alone:
            self.alone -= 1
            self._host.remove(place.index)
            return
        same = self._free.pop(place.key, [])
        same.append(place)
        self._free[place.key] = same  # the last to be thrown away

    def abandon(self, places: list[Place]) -> None:
        """Free the places of cancelled episodes, and empty the list.

        It waits for their running calls and drops the results.
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
    """Return the key of a recipe: environments with equal keys can replace each other."""
    if isinstance(recipe, str):
        return recipe
    if isinstance(recipe, Maker):
        wrappers = [id(each) if callable(each) else each for each in recipe.wrappers]
        plain, _ = written_arguments(type(recipe), recipe.kwargs)
        # Values that cannot be stored are compared by identity: different data may have equal reprs.
        others = sorted((name, id(value)) for name, value in recipe.kwargs.items() if name not in plain)
        return repr((pool_key(recipe.env_id), sorted(plain.items()), others, wrappers))
    if isinstance(recipe, TaskRef):
        return repr(replace(recipe, seed=None))
    return repr(recipe) if isinstance(recipe, EnvSpec) else id(recipe)


def maker(recipe: Recipe) -> Callable[[], Env]:
    """Return a recipe as a callable."""
    return Maker(recipe) if isinstance(recipe, str | TaskRef) else recipe


def expected_task(recipe: Callable[[], Env]) -> TaskRef:
    """Return the task of an environment that is not made yet, for an episode that never starts."""
    if isinstance(recipe, Maker):
        task = recipe.env_id if isinstance(recipe.env_id, TaskRef) else TaskRef(recipe.spec.id)
        kwargs, opaque = written_arguments(type(recipe), recipe.kwargs)
        return replace(task, kwargs={**task.kwargs, **kwargs}, opaque=(*task.opaque, *opaque))
    named: Any = getattr(recipe, "func", recipe)  # what a functools.partial calls
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return TaskRef(f"{named.__module__}:{named.__qualname__}")


def is_plain(recipe: Recipe) -> bool:
    """Return whether the expected task of a recipe has all that makes its environment."""
    if not isinstance(recipe, Maker):
        return isinstance(recipe, str | TaskRef)
    return not (
        recipe.wrappers or isinstance(recipe.env_id, EnvSpec) or written_arguments(Maker, recipe.kwargs)[1]
    )


def task_made_by(recipe: Recipe) -> TaskRef:
    """Return the task of the environment that a recipe makes here; the expected one if it cannot be made.

    Raises:
        GemError: when it cannot be made because of the caller: an unknown keyword, a missing package.
    """
    try:
        with maker(recipe)() as env:
            return task_of(env)
    except Exception as error:
        if isinstance(error, GemError) and not isinstance(error, NoVerdict):
            raise
        return expected_task(maker(recipe))
