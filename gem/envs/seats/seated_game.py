"""SeatedGame: the base class of multi-agent text games, so that a game's own file holds only its rules."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from gem.envs.seats.seated_env import Mode, MultiStart, MultiStep, SeatedEnv, SeatSelector
from gem.errors import check_argument, check_count
from gem.record import StopReason

UNREADABLE_ANSWER = "Your answer could not be read."


class SeatedGame(SeatedEnv):
    """A text game of several seats.

    Subclasses define `deal` and `play`, and `random_action` and `expert_action`. `deal` and `play` send texts
    to seats (`tell`, `announce`), pay them (`pay`) and end the game (`finish`). A seat reads all its texts
    when it acts next. `selector` holds the turn order, and `play` advances it. A game that `play` did not
    finish in `max_turns` steps ends there, with the stop ``turn_budget`` for every seat.
    """

    mode: Mode = "sequential"

    def __init__(self, max_turns: int) -> None:
        """Set the turn budget that the task states, in steps of the game, after which it ends."""
        check_count("max_turns", max_turns)
        self.max_turns = max_turns
        self.selector = SeatSelector(self.seats, self.mode)

    # -- a game defines

    def deal(self) -> None:
        """Draw an instance from `self.rng`, and give each seat the rules and its view of the game."""
        raise NotImplementedError

    def play(self, moves: dict[str, str]) -> None:
        """Take the answers of the seats whose turn it is; the text may be anything."""
        raise NotImplementedError

    # -- a game uses

    def tell(self, seat: str, text: str) -> None:
        """Send text to one seat."""
        self._check_seat(seat)
        self._news[seat].append(text)

    def announce(self, text: str) -> None:
        """Send text to every seat."""
        for seat in self.seats:
            self.tell(seat, text)

    def pay(self, seat: str, amount: float) -> None:
        """Add to a seat's reward for this step."""
        self._check_seat(seat)
        self._pay[seat] += amount

    def note(self, seat: str, **info: Any) -> None:
        """Add to a seat's info for this step."""
        self._check_seat(seat)
        self._infos[seat].update(info)

    def finish(self, stops: Mapping[str, StopReason]) -> None:
        """End the game, with a stop reason for each seat."""
        reasons = {}
        if isinstance(stops, Mapping) and set(stops) <= set(self.seats):
            with suppress(KeyError):  # a defaultdict has what it does not list
                reasons = {seat: stops[seat] for seat in self.seats}
        right = bool(reasons) and all(isinstance(stop, StopReason) for stop in reasons.values())
        check_argument("stops", stops, right, f"a StopReason for each of {', '.join(self.seats)}")
        self._over = True
        for seat, stop in reasons.items():
            self.note(seat, success=stop is StopReason.SOLVED, stop=stop.value)

    def forfeit(self, seat: str, loss: float) -> None:
        """End the game because a seat's answer is unreadable; it pays `loss`, which the others share."""
        others = [other for other in self.seats if other != seat]
        self.tell(seat, f"{UNREADABLE_ANSWER} You forfeit the game.")
        self.pay(seat, -loss)
        self.note(seat, legal=False)
        for other in others:
            self.tell(other, f"The answer of {seat} could not be read: it forfeits the game.")
            self.pay(other, loss / len(others))
        stops = dict.fromkeys(others, StopReason.SOLVED) | {seat: StopReason.UNREADABLE}
        self.finish(stops)

    # -- the contract

    def reset(self, seed: int | None = None) -> MultiStart:  # type: ignore[override]
        """Deal an instance; see SeatedEnv."""
        super().reset(seed)
        self.turn = 0
        self.selector.reset()
        self._news: dict[str, list[str]] = {seat: [] for seat in self.seats}
        self._clear()
        self.deal()
        return MultiStart({seat: self._read(seat) for seat in self.selector.acting}, self._infos)

    def step(self, actions: dict[str, str]) -> MultiStep:  # type: ignore[override]
        """Play the answers; see SeatedEnv."""
        self.turn += 1
        self._clear()
        self.play(actions)
        if not self._over and self.turn >= self.max_turns:
            self.announce(f"The game is over after {self.turn} turns.")
            self.finish(dict.fromkeys(self.seats, StopReason.TURN_BUDGET))
        over = self._over
        readers = self.seats if over else self.selector.acting
        return MultiStep(
            {seat: self._read(seat) for seat in readers},
            self._pay,
            dict.fromkeys(self.seats, over),
            dict.fromkeys(self.seats, False),
            self._infos,
        )

    def _check_seat(self, seat: str) -> None:
        check_argument("seat", seat, seat in self.seats, ", ".join(self.seats))

    def _clear(self) -> None:
        self._pay = dict.fromkeys(self.seats, 0.0)
        self._infos: dict[str, dict[str, Any]] = {seat: {} for seat in self.seats}
        self._over = False

    def _read(self, seat: str) -> str:
        news = "\n".join(self._news[seat])
        self._news[seat] = []
        return news
