"""Registry entries of multi-agent games, and of single seats of them as environments."""

from __future__ import annotations

from typing import Any

from gem.specs import Chance, EnvSpec, Solver, solver_claims


def _game(
    name: str, entry_point: str, max_turns: int, seats: tuple[str, ...] = ("player_0", "player_1")
) -> EnvSpec:
    return EnvSpec(f"multi:{name}", f"gem.envs.seats.{entry_point}", max_turns=max_turns, seats=seats)


def _seat(
    game: str,
    variant: str,
    max_turns: int,
    solver: Solver | float,
    seat: str = "player_0",
    chance: Chance | None = None,
    **kwargs: Any,
) -> EnvSpec:
    """Return the entry of one seat; a number as `solver` is its success rate over seeds 0 to 499.

    `others` plays the other seats. `max_turns` counts the turns of this seat.
    """
    return EnvSpec(
        f"multi:{game}-{variant}",
        "gem.envs.seats.seat_env:one_seat",
        {"game": f"multi:{game}", "seat": seat, **kwargs},
        max_turns=max_turns,
        chance=chance,
        source=f"multi:{game}",
        **solver_claims(solver),
    )


_BETS = (0.7, "who always bets wins what a random player folds, and half of the rest")
_FOLDS = (0.65, "who always bets wins the small pots that the solver folds, and loses the large ones")
_COLUMN = (0.75, "random play seldom blocks a column that is filled again and again")

SPECS = (
    _game("KuhnPoker-v0", "kuhn_poker:KuhnPoker", 3),
    _game("ConnectFour-v0", "connect_four:ConnectFour", 38),
    _game("MatrixGame-v0", "matrix_game:MatrixGame", 5),
    _game("Negotiation-v0", "negotiation:Negotiation", 8),
    _game("ServiceDesk-v0", "service_desk:ServiceDesk", 30, ("agent", "customer")),
    # None for MatrixGame: against tit for tat, one constant answer is as good as any play.
    _seat("KuhnPoker-v0", "vs-random", 2, 0.744, chance=_BETS, others="random", expert="exploiter"),
    _seat("KuhnPoker-v0", "vs-solver", 2, 0.52, chance=_FOLDS, others="solver"),
    _seat("ConnectFour-v0", "vs-random", 19, 1.0, chance=_COLUMN, others="random", depth=3),
    _seat("ConnectFour-v0", "vs-solver", 19, 0.492, others="solver", depth=3),
    _seat("Negotiation-v0", "vs-solver", 4, 0.968, others="solver"),
    _seat("ServiceDesk-v0", "scripted", 29, "oracle", "agent", others="solver"),
)
