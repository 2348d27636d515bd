"""Stages: where the environments of a rollout stand, and which of them is reused for which episode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from gem.core import Env, Start
from gem.errors import GemError, NoVerdict, ResetNeeded
from gem.record import Call
from gem.registry import Maker, make
from gem.rollout.play import Identity, identity

Recipe: TypeAlias = str | Maker | Callable[[], Env]
"""What makes an environment: an id, a Maker, or any callable (picklable where processes are the host)."""


class Begun(NamedTuple):
    """What `Stage.begin` returns; the last two only when the environment is new."""

    start: Start
    identity: Identity | None = None
    assembles_history: bool = False


class Stage:
    """Holds one environment at a time, wherever the host has put the stage.

    The environment is kept from episode to episode while the same recipe is wanted, and thrown away when one
    of its calls fails.
    """

    def __init__(self) -> None:
        """Stand empty."""
        self.env: Env | None = None

    def begin(self, recipe: Recipe | None, seed: int) -> Begun | GemError:
        """Begin an episode: of a new environment, or, without `recipe`, of the one that stands here.

        An environment that cannot be made through the caller's fault (unknown id or keyword, missing
        package) is returned as the error, apart from all that fails by itself.
        """
        if recipe is None:
            return Begun(self.call("reset", (seed,)))
        self.close()
        try:
            self.env = make(recipe) if isinstance(recipe, str) else recipe()
        except NoVerdict:
            raise
        except GemError as error:
            return error
        start = self.call("reset", (seed,))
        return Begun(start, identity(self.env), getattr(self.env, "assembles_history", False))

    def call(self, verb: str, args: tuple[Any, ...]) -> Any:
        """Call the environment that stands here."""
        if self.env is None:
            raise ResetNeeded(f"{verb}: no environment stands here; begin() makes one.")
        try:
            return getattr(self.env, verb)(*args)
        except Exception:
            with suppress(Exception):  # broken already: closing it may fail as well
                self.close()
            self.env = None
            raise

    def close(self) -> None:
        """Close the environment that stands here, if any."""
        env, self.env = self.env, None
        if env is not None:
            env.close()


@dataclass(slots=True, eq=False)
class Place:
    """A driver's side of a stage: `play` gets it as the environment."""

    index: int
    stands: Any = None  # key of the recipe whose environment is there
    recipe: Recipe = ""
    spec: Identity | None = None
    assembles_history: bool = False
    stage: Stage = field(default_factory=Stage)

    def request(self, call: Call) -> tuple[str, tuple[Any, ...]]:
        """Return the verb and the arguments that carry out `call` on the stage."""
        if call.verb != "reset":
            return "call", (call.verb, call.args)
        return "begin", (None if self.stands == key(self.recipe) else self.recipe, *call.args)

    def receive(self, call: Call, result: Any) -> Any:
        """Return the result of `call`, out of what the stage returned.

        Raises:
            GemError: when the environment cannot be made through the caller's fault.
        """
        if call.verb != "reset":
            return result
        if isinstance(result, GemError):
            raise result
        if result.identity is not None:
            self.spec, self.assembles_history = result.identity, result.assembles_history
            self.stands = key(self.recipe)
        return result.start

    def empty(self) -> None:
        """Note that the environment is gone."""
        self.stands = None


class Places:
    """At most `size` places. An episode gets one where its environment stands already, if there is one."""

    def __init__(self, size: int) -> None:
        """Begin with none."""
        self.size = size
        self.all: list[Place] = []
        self._free: dict[Any, list[Place]] = {}

    def take(self, recipe: Recipe) -> Place:
        """Return a free place for an episode of `recipe`."""
        wanted = key(recipe)
        if wanted in self._free or len(self.all) == self.size:
            stands = wanted if wanted in self._free else next(iter(self._free))
            place = self._free[stands].pop()
            if not self._free[stands]:
                del self._free[stands]
        else:
            place = Place(len(self.all))
            self.all.append(place)
        if place.stands is None or place.stands != wanted:
            place.recipe, place.spec = recipe, expected_identity(recipe)
        return place

    def give_back(self, place: Place) -> None:
        """Take a place back."""
        self._free.setdefault(place.stands, []).append(place)


def key(recipe: Recipe) -> Any:
    """Return what tells recipes apart; a Maker may hold what cannot be hashed, so each is its own."""
    return recipe if isinstance(recipe, str) else id(recipe)


def expected_identity(recipe: Recipe) -> Identity:
    """Return what an environment is to be, for the record of an episode that never began."""
    if isinstance(recipe, str):
        return Identity(recipe, {})
    if isinstance(recipe, Maker):
        return Identity(recipe.env_id, dict(recipe.kwargs))
    return Identity(f"{recipe.__module__}:{getattr(recipe, '__qualname__', type(recipe).__qualname__)}", {})
