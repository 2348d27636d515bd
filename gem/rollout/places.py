"""Places: which environment of the host an episode is played in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from gem.core import Env
from gem.hosts.verbs import Description
from gem.registry import Maker
from gem.rollout.play import Identity

Recipe: TypeAlias = str | Maker | Callable[[], Env]
"""What makes an environment: an id, a Maker, or any callable (picklable where processes are the host)."""


class Place:
    """One index of a host. `play` is given it as the environment."""

    def __init__(self, index: int, recipe: Recipe) -> None:
        """Stand at `index`, for an environment of `recipe` that is not made yet."""
        self.index = index
        self.described = False
        self.assign(recipe)

    def assign(self, recipe: Recipe) -> None:
        """Be for environments of `recipe`."""
        self.key = key(recipe)
        self.maker = maker(recipe)
        self.vacate()

    def vacate(self) -> None:
        """Note that the environment is gone, and another of the same recipe will be made."""
        self.described = False
        self.spec, self.assembles_history = _expected(self.maker), False

    def occupy(self, description: Description) -> None:
        """Note what was made."""
        self.described = True
        task, self.assembles_history = description
        self.spec = Identity(task.spec, task.kwargs)


class Places:
    """The places of a host. An episode gets one where its environment stands already, if one is free."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        """Make one place per recipe, all of them free."""
        self._free: dict[Any, list[Place]] = {}
        for index in reversed(range(len(recipes))):
            self.give_back(Place(index, recipes[index]))

    def take(self, recipe: Recipe) -> tuple[Place, bool]:
        """Return a free place, and whether another recipe's environment is in the way there."""
        wanted = key(recipe)
        other = wanted not in self._free
        found = next(iter(self._free)) if other else wanted
        place = self._free[found].pop()
        if not self._free[found]:
            del self._free[found]
        if other:
            place.assign(recipe)
        return place, other

    def give_back(self, place: Place) -> None:
        """Take a place back."""
        self._free.setdefault(place.key, []).append(place)


def key(recipe: Recipe) -> Any:
    """Return what tells recipes apart; a Maker may hold what cannot be hashed, so each is its own."""
    return recipe if isinstance(recipe, str) else id(recipe)


def maker(recipe: Recipe) -> Callable[[], Env]:
    """Return a recipe as a callable."""
    return Maker(recipe) if isinstance(recipe, str) else recipe


def _expected(recipe: Callable[[], Env]) -> Identity:
    """Return what an environment is to be, for the record of an episode that never began."""
    if isinstance(recipe, Maker):
        return Identity(recipe.spec.id, recipe.kwargs)
    named: Any = getattr(recipe, "func", recipe)  # what a functools.partial calls
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return Identity(f"{named.__module__}:{named.__qualname__}", {})
