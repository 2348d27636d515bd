"""SeatedGame: what text games with several seats share, so that a game's file holds its rules alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gem.envs.seats.seated_env import Mode, MultiStart, MultiStep, SeatedEnv, SeatSelector
from gem.errors import BadArgument
from gem.record import StopReason

UNREADABLE_ANSWER = "Your answer could not be read."


class SeatedGame(SeatedEnv):
    """A text game of several seats.

    Subclasses define `deal` and `play`, and `random_action` and `expert_action`. In both they tell seats the
    news (`tell`, `announce`), pay them (`pay`) and end the game (`finish`). A seat reads all its news when it
    is to act. Whose turn it is, `selector` says, which `play` moves on.
    """

    mode: Mode = "sequential"

    def __init__(self, max_turns: int) -> None:
        """Set the budget that the task states, in steps of the game."""
        if max_turns < 1:
            raise BadArgument(f"max_turns is {max_turns}; accepted: 1 or more.")
        self.max_turns = max_turns
        self.turn = 0
        self.selector = SeatSelector(self.seats, self.mode)

    # -- a game defines

    def deal(self) -> None:
        """Draw an instance from `self.rng` and tell each seat the rules and what it can see."""
        raise NotImplementedError

    def play(self, moves: dict[str, str]) -> None:
        """Take the answers of the seats whose turn it is: text that may be anything."""
        raise NotImplementedError

    # -- a game uses

    def tell(self, seat: str, text: str) -> None:
        """Say something to one seat."""
        self._news[seat].append(text)

    def announce(self, text: str) -> None:
        """Say something to every seat."""
        for seat in self.seats:
            self.tell(seat, text)

    def pay(self, seat: str, amount: float) -> None:
        """Add to what this step pays a seat."""
        self._pay[seat] += amount

    def note(self, seat: str, **info: Any) -> None:
        """Add to a seat's info."""
        self._infos[seat].update(info)

    def finish(self, stops: Mapping[str, StopReason]) -> None:
        """End the game, for each seat in its own way."""
        self._over = True
        for seat in self.seats:
            stop = stops[seat]
            self.note(seat, success=stop is StopReason.SOLVED, stop=stop.value)

    def forfeit(self, seat: str, loss: float) -> None:
        """End the game because a seat's answer could not be read: it pays `loss`, shared by the others."""
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
        over = self._over
        readers = self.seats if over else self.selector.acting
        return MultiStep(
            {seat: self._read(seat) for seat in readers},
            self._pay,
            dict.fromkeys(self.seats, over),
            dict.fromkeys(self.seats, False),
            self._infos,
        )

    def _clear(self) -> None:
        self._pay = dict.fromkeys(self.seats, 0.0)
        self._infos: dict[str, dict[str, Any]] = {seat: {} for seat in self.seats}
        self._over = False

    def _read(self, seat: str) -> str:
        news = "\n".join(self._news[seat])
        self._news[seat] = []
        return news
