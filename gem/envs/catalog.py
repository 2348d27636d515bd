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
    (
        "Mastermind-v0-easy",
        "mastermind:Mastermind",
        {"code_length": 2, "num_numbers": 6, "max_turns": 10},
        10,
        "exact",
    ),
    (
        "Mastermind-v0-hard",
        "mastermind:Mastermind",
        {"code_length": 4, "num_numbers": 8, "max_turns": 30},
        30,
        "exact",
    ),
    (
        "Mastermind-v0-random",
        "mastermind:Mastermind",
        {"code_length": (2, 4), "num_numbers": (5, 8), "max_turns": 20},
        20,
        "exact",
    ),
    ("Sudoku-v0-easy", "sudoku:Sudoku", {"clues": 10, "max_turns": 15, "scale": 4}, 15, "exact"),
    ("Sudoku-v0-hard", "sudoku:Sudoku", {"clues": 50, "max_turns": 50}, 50, "exact"),
    ("Sudoku-v0-random", "sudoku:Sudoku", {"clues": (30, 60), "max_turns": 75}, 75, "exact"),
    ("TowerofHanoi-v0-easy", "tower_of_hanoi:TowerOfHanoi", {"num_disks": 3, "max_turns": 10}, 10, "exact"),
    ("TowerofHanoi-v0-hard", "tower_of_hanoi:TowerOfHanoi", {"num_disks": 5, "max_turns": 35}, 35, "exact"),
    (
        "TowerofHanoi-v0-random",
        "tower_of_hanoi:TowerOfHanoi",
        {"num_disks": (3, 5), "max_turns": 35, "start": "scattered"},
        35,
        "exact",
    ),
)


def register_all() -> None:
    """Register the whole catalogue; doing it twice is harmless."""
    for name, entry_point, kwargs, max_turns, solver in GAMES:
        register(
            EnvSpec(
                f"game:{name}", f"gem.envs.games.{entry_point}", kwargs, max_turns=max_turns, solver=solver
            )
        )
