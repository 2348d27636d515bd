"""Every id of our own, as plain data. A new game is one file and one row here."""

from __future__ import annotations

from typing import Any

from gem.registry import EnvSpec, Solver, register

GAMES: tuple[tuple[str, str, dict[str, Any], int | None, Solver], ...] = (
    # id after "game:", class in gem.envs.games, keywords, turns that the task states, solver
    (
        "GuessTheNumber-v0-easy",
        "guess_the_number:GuessTheNumber",
        {"max_number": 10, "max_turns": 4},
        4,
        "exact",
    ),
    (
        "GuessTheNumber-v0-hard",
        "guess_the_number:GuessTheNumber",
        {"max_number": 50, "max_turns": 7},
        7,
        "exact",
    ),
    ("GuessTheNumber-v0-random", "guess_the_number:GuessTheNumber", {"max_number": (5, 100)}, 7, "exact"),
)


def register_all() -> None:
    """Register the whole catalogue; doing it twice is harmless."""
    for name, entry_point, kwargs, max_turns, solver in GAMES:
        register(
            EnvSpec(
                f"game:{name}", f"gem.envs.games.{entry_point}", kwargs, max_turns=max_turns, solver=solver
            )
        )
