"""The interface for multi-agent environments: SeatedEnv, MultiStart, MultiStep, SeatSelector.

A SeatedEnv is an Env whose values are dicts by seat. Seeding, saving, forking, hosts, the registry and
the order of calls are as in Env. This module adds which seats act, and checks that only they do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

from gem import core, seeding
from gem.content import Obs, ToolSpec, written_tools
from gem.core import Env
from gem.errors import BadAction, BadArgument, ContractBroken, NoSolver, check_argument


class MultiStart(NamedTuple):
    """The result of reset(): observations for the seats that act first, and an info for every seat."""

    obs: dict[str, Obs]
    infos: dict[str, dict[str, Any]]


class MultiStep(NamedTuple):
    """The result of step(): five dicts by seat.

    `obs` has the seats that act next, and the seats that ended in this step, for which it is the last
    observation. The other four have every seat that was in the game when the step began.
    """

    obs: dict[str, Obs]
    rewards: dict[str, float]
    terminations: dict[str, bool]
    truncations: dict[str, bool]
    infos: dict[str, dict[str, Any]]

    @property
    def done(self) -> bool:
        """Whether no seat is left in the game."""
        return all(self.terminations[seat] or self.truncations[seat] for seat in self.terminations)


def _guard_reset(guard: Callable[..., Any], reset: Callable[..., Any]) -> Callable[..., MultiStart]:
    """Add the check of a MultiStart to Env's guard."""

    @functools.wraps(reset)
    def begin_seats(self: SeatedEnv, seed: int | None = None, **options: Any) -> MultiStart:
        self._actor_seed, self._actor_rngs = None, {}
        return self._begin(core.name_values(self, MultiStart, reset(self, seed=seed, **options)))

    guarded_reset = guard(begin_seats)

    @functools.wraps(reset)
    def whole(self: SeatedEnv, seed: int | None = None, **options: Any) -> MultiStart:
        return MultiStart(*guarded_reset(self, seed, **options))

    return whole


def _guard_step(step: Callable[..., Any]) -> Callable[..., MultiStep]:
    @functools.wraps(step)
    def step_seats(self: SeatedEnv, actions: Mapping[str, str]) -> MultiStep:
        if self._phase != core._RUNNING:
            raise core.not_running(self)
        result = self._settle(core.name_values(self, MultiStep, step(self, self._check(actions))))
        self._phase = core._RUNNING if self._live else core._OVER
        return result

    return step_seats


class SeatedEnv(Env):
    """An environment for several seats that read and write text.

    Subclasses set `seats` and define ``reset(self, seed=None)``, which begins with
    ``super().reset(seed=seed)`` and returns a MultiStart, and ``step(self, actions)``, which returns a
    MultiStep. Every seat that gets an observation and has not ended acts next: one seat in a turn-taking game
    (`SeatSelector` keeps the order), all seats in a simultaneous game, or any number. Text games are shorter
    to write with `SeatedGame`.

    The checks of Env apply, and these: an action comes from each seat of `acting` and from no other seat;
    actions reach the subclass in the order of `seats`; a step that omits a seat, or leaves no seat to act,
    is an error of the environment.

    Info keys are as in Env: `tools` at a seat's start, `prefix`, `suffix`, and at a seat's end `success` and
    `stop`.
    """

    several_seats: ClassVar[bool] = True

    seats: tuple[str, ...] = ()

    seat_tools: Mapping[str, Sequence[ToolSpec]] = MappingProxyType({})
    """The tools that the model of each seat may call natively; see `Env.tool_specs`."""

    _live: tuple[str, ...] = ()
    _acting: tuple[str, ...] = ()
    _actor_seed: int | None = None
    _actor_rngs: dict[str, Random]

    if TYPE_CHECKING:

        def reset(self, seed: int | None = None) -> MultiStart:  # type: ignore[override]
            """Begin an episode; see Env.reset."""

        def step(self, actions: Mapping[str, str]) -> MultiStep:  # type: ignore[override]
            """Take one action of each seat in `acting`, and return the MultiStep; see Env.step."""

    @classmethod
    def _guards(cls) -> tuple[tuple[str, Callable[..., Any]], ...]:
        reset, _, close = super()._guards()
        return ("reset", functools.partial(_guard_reset, reset[1])), ("step", _guard_step), close

    # -- seats

    @property
    def live(self) -> tuple[str, ...]:
        """The seats that are still in the game."""
        return self._live

    @property
    def acting(self) -> tuple[str, ...]:
        """The seats whose actions the next step takes."""
        return self._acting

    # -- acting

    def random_action(self, seat: str) -> str:
        """Return a legal action for a seat whose turn it is, drawn from ``actor_rng_of(seat)``.

        Raises:
            NoSolver: if the environment has no random actor.
        """
        raise NoSolver(f"{self} has no random actor: {type(self).__name__} lacks random_action(seat).")

    def expert_action(self, seat: str) -> str:
        """Return the expert's action for a seat whose turn it is, based on what that seat was shown.

        A randomized expert draws from ``actor_rng_of(seat)``.

        Raises:
            NoSolver: if the environment has no solver.
        """
        raise NoSolver(f"{self} has no solver: {type(self).__name__} lacks expert_action(seat).")

    def sample_random_action(self) -> dict[str, str]:  # type: ignore[override]
        """Return a random action for each seat whose turn it is."""
        return {seat: self.random_action(seat) for seat in self.acting}

    def solve(self) -> dict[str, str]:  # type: ignore[override]
        """Return the expert's action for each seat whose turn it is."""
        return {seat: self.expert_action(seat) for seat in self.acting}

    def actor_rng_of(self, seat: str) -> Random:
        """Return a seat's own random stream, so that the draws of seats do not affect each other.

        Raises:
            ResetNeeded: before reset().
        """
        seed = self._need_seed()
        if seat not in self._actor_rngs:
            seed = seed if self._actor_seed is None else self._actor_seed
            self._actor_rngs[seat] = seeding.stream(seed, "actor", seat)
        return self._actor_rngs[seat]

    def seed_actor(self, seed: int, seat: str | None = None) -> None:
        """Start new random streams for this episode, for every seat or only for `seat`.

        Raises:
            BadArgument: for a seed that is not a non-negative integer. ResetNeeded: before reset().
        """
        self._need_seed()
        if seat is None:
            self._actor_seed, self._actor_rngs = seeding.check(seed), {}
        else:
            self._actor_rngs[seat] = seeding.stream(seeding.check(seed), "actor", seat)

    def fork(self, seed: int | None = None) -> Self:
        """Return a copy in the same state; see Env.fork."""
        twin = super().fork(seed)
        if seed is not None:
            twin._actor_seed, twin._actor_rngs = None, {}
        return twin

    # -- checks

    def _begin(self, start: MultiStart) -> MultiStart:
        """Record the seats that act first."""
        self._check_mapping("reset", "obs", start.obs)
        self._check_mapping("reset", "infos", start.infos)
        if set(start.infos) != set(self.seats):
            raise ContractBroken(
                f"{self}: reset() returned infos for {sorted(start.infos)}; accepted: one for each of "
                f"{self.seats}."
            )
        for seat, tools in self.seat_tools.items():
            start.infos[seat].setdefault("tools", written_tools(tools))
        self._live = self.seats
        self._look(start.obs, self._live)
        return start

    def _check(self, actions: Mapping[str, str]) -> dict[str, str]:
        """Return the actions in the order of the seats.

        Raises:
            BadAction: unless they are texts, one for each seat whose turn it is.
        """
        if not isinstance(actions, Mapping):
            raise BadAction(
                f"actions are {type(actions).__name__} {actions!r:.80}; {self} takes a dict of texts."
            )
        if set(actions) != set(self._acting):
            raise BadAction(
                f"actions come from {sorted(map(str, actions))}; in {self} it is the turn of "
                f"{', '.join(self._acting)}."
            )
        for seat, action in actions.items():
            if not isinstance(action, str):
                raise BadAction(
                    f"the action of {seat} is {type(action).__name__} {action!r:.80}; {self} takes text."
                )
        return {seat: actions[seat] for seat in self._acting}

    def _settle(self, step: MultiStep) -> MultiStep:
        """Record the seats that are left, and those that act next."""
        for name in ("rewards", "terminations", "truncations", "infos"):
            self._check_mapping("step", name, getattr(step, name))
            if set(getattr(step, name)) != set(self._live):
                raise ContractBroken(
                    f"{self}: step() returned {name} for {sorted(getattr(step, name))}; accepted: "
                    f"one for each of {self._live}."
                )
        self._check_mapping("step", "obs", step.obs)
        left = tuple(a for a in self._live if not (step.terminations[a] or step.truncations[a]))
        ended = set(self._live) - set(left)
        self._live = left
        self._look({seat: obs for seat, obs in step.obs.items() if seat not in ended}, left)
        return step

    def _check_mapping(self, method: str, name: str, given: object) -> None:
        if not isinstance(given, Mapping):
            raise ContractBroken(
                f"{self}: {method}() returned {given!r:.80} as {name}; accepted: a dict from seats."
            )

    def _look(self, obs: Mapping[str, Obs], live: tuple[str, ...]) -> None:
        if strangers := set(obs) - set(live):
            raise ContractBroken(f"{self} showed {sorted(strangers)} an observation; in the game are {live}.")
        self._acting = tuple(seat for seat in live if seat in obs)
        if live and not self._acting:
            raise ContractBroken(f"{self} left nobody to act: give an observation to whoever acts next.")


Mode = Literal["sequential", "parallel"]


class SeatSelector:
    """The turn order of seats: one after another in a cycle, or all at once.

    >>> turns = SeatSelector(["north", "east", "south"])
    >>> turns.acting, turns.next(), turns.is_last()
    (('north',), 'east', False)
    """

    def __init__(self, seats: Iterable[str], mode: Mode = "sequential") -> None:
        """Begin with the first of `seats`.

        Args:
            seats: in the order of play.
            mode: ``sequential``: seats take turns; ``parallel``: all act in every step.

        Raises:
            BadArgument: for no seats, a repeated seat, or another mode.
        """
        self.mode: Mode = mode
        check_argument("mode", mode, mode in ("sequential", "parallel"), "'sequential', 'parallel'")
        self.reinit(seats)

    def reinit(self, seats: Iterable[str]) -> None:
        """Start again with other seats."""
        self._all = tuple(seats)
        if not self._all or len(set(self._all)) < len(self._all):
            raise BadArgument(f"seats are {self._all}; accepted: one or more, each once.")
        self.reset()

    def reset(self) -> str:
        """Start again with all seats, and return the first."""
        self.seats = self._all
        self._at = 0
        return self.seats[0]

    def __len__(self) -> int:
        """Return the number of seats that are left."""
        return len(self.seats)

    @property
    def selected(self) -> str:
        """The seat whose turn it is; in parallel mode, the first."""
        if not self.seats:
            raise BadArgument("no seat is left to select; reset() starts again with all seats.")
        return self.seats[self._at]

    @property
    def acting(self) -> tuple[str, ...]:
        """The seats whose turn it is."""
        return self.seats if self.mode == "parallel" or not self.seats else (self.selected,)

    def next(self) -> str:
        """Go on to the next seat and return it; in parallel mode it is every seat's turn again."""
        if self.mode == "sequential" and self.seats:
            self._at = (self._at + 1) % len(self.seats)
        return self.selected

    def remove(self, seat: str) -> None:
        """Remove a seat from the order; if it was its turn, it is the next seat's turn.

        Raises:
            BadArgument: when the seat is not in the order.
        """
        if seat not in self.seats:
            raise BadArgument(f"seat {seat!r} is not in the round; there are {self.seats}.")
        place = self.seats.index(seat)
        self.seats = tuple(a for a in self.seats if a != seat)
        if place < self._at:
            self._at -= 1
        if self._at >= len(self.seats):
            self._at = 0

    def is_first(self) -> bool:
        """Return whether it is the first seat's turn."""
        return self._at == 0

    def is_last(self) -> bool:
        """Return whether it is the last seat's turn, or every seat's."""
        return self.mode == "parallel" or self._at == len(self.seats) - 1
