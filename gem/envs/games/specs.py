"""Registry entries of the text games; a new game is one file and its entries here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gem.specs import EnvSpec, Solver, solver_claims

_NEED_WORDFREQ = ("hangman", "wordle", "word_search")
"""The modules of games whose words come from the package of the extra `games`."""


def _game(name: str, entry_point: str, solver: Solver | float, **kwargs: Any) -> EnvSpec:
    """Return a registry entry: a class in `gem.envs.games`, its keywords, and how well its solver plays.

    A number as `solver` is its win rate over seeds 0 to 499.
    """
    return EnvSpec(
        f"game:{name}",
        f"gem.envs.games.{entry_point}",
        kwargs,
        extra="games" if entry_point.partition(":")[0] in _NEED_WORDFREQ else None,
        max_turns=kwargs.get("max_turns"),
        **solver_claims(solver),
    )


SPECS = (
    _game("GuessTheNumber-v0-easy", "guess_the_number:GuessTheNumber", "exact", max_number=10, max_turns=4),
    _game("GuessTheNumber-v0-hard", "guess_the_number:GuessTheNumber", "exact", max_number=50, max_turns=7),
    replace(  # what bisection needs: 7 turns at most
        _game("GuessTheNumber-v0-random", "guess_the_number:GuessTheNumber", "exact", max_number=(5, 100)),
        max_turns=7,
    ),
    _game("FifteenPuzzle-v0-easy", "fifteen_puzzle:FifteenPuzzle", "exact", num_rows=2, max_turns=10),
    _game("FifteenPuzzle-v0-hard", "fifteen_puzzle:FifteenPuzzle", "exact", num_rows=4, max_turns=50),
    _game("FifteenPuzzle-v0-random", "fifteen_puzzle:FifteenPuzzle", "exact", num_rows=(2, 4), max_turns=50),
    _game("Game2048-v0-easy", "game_2048:Game2048", 0.986, target=64, max_turns=50),
    _game("Game2048-v0-hard", "game_2048:Game2048", 0.926, target=512, max_turns=350),
    _game("Game2048-v0-extreme-hard", "game_2048:Game2048", 0.512, target=2048, max_turns=1200),
    _game("Game2048-v0-random", "game_2048:Game2048", 0.976, target=(64, 256), max_turns=160),
    _game("Mastermind-v0-easy", "mastermind:Mastermind", "exact", code_length=2, num_numbers=6, max_turns=10),
    _game("Mastermind-v0-hard", "mastermind:Mastermind", "exact", code_length=4, num_numbers=8, max_turns=30),
    _game(
        "Mastermind-v0-random",
        "mastermind:Mastermind",
        "exact",
        code_length=(2, 4),
        num_numbers=(5, 8),
        max_turns=20,
    ),
    _game("Minesweeper-v0-easy", "minesweeper:Minesweeper", 0.788, rows=5, cols=5, num_mines=5, max_turns=25),
    _game(  # GEM's has 12 mines, and is then easier than easy
        "Minesweeper-v0-hard", "minesweeper:Minesweeper", 0.652, rows=8, cols=8, num_mines=14, max_turns=64
    ),
    _game(
        "Minesweeper-v0-random",
        "minesweeper:Minesweeper",
        0.842,
        rows=(5, 8),
        cols=(5, 8),
        num_mines=(4, 10),
        max_turns=64,
    ),
    _game("Sokoban-v0-easy", "sokoban:Sokoban", "exact", height=6, width=6, num_boxes=2, max_turns=20),
    _game("Sokoban-v0-hard", "sokoban:Sokoban", "exact", height=8, width=8, num_boxes=4, max_turns=50),
    _game(
        "Sokoban-v0-random",
        "sokoban:Sokoban",
        "exact",
        height=(6, 8),
        width=(6, 8),
        num_boxes=(2, 3),
        max_turns=50,
    ),
    _game("Sudoku-v0-easy", "sudoku:Sudoku", "exact", clues=6, max_turns=15, scale=4),
    _game("Sudoku-v0-hard", "sudoku:Sudoku", "exact", clues=33, max_turns=50),
    _game("Sudoku-v0-random", "sudoku:Sudoku", "exact", clues=(30, 60), max_turns=75),
    _game("TowerofHanoi-v0-easy", "tower_of_hanoi:TowerOfHanoi", "exact", num_disks=3, max_turns=10),
    _game("TowerofHanoi-v0-hard", "tower_of_hanoi:TowerOfHanoi", "exact", num_disks=5, max_turns=35),
    _game(
        "TowerofHanoi-v0-random",
        "tower_of_hanoi:TowerOfHanoi",
        "exact",
        num_disks=(3, 5),
        max_turns=35,
        start="scattered",
    ),
    # GEM's levels, which are not in order: of 300 games, random play wins 5% of easy, 20% of hard and 28% of
    # random, the solver 88%, 100% and 100%. Three letters leave many words, and easy has half of the turns.
    _game("Hangman-v0-easy", "hangman:Hangman", 0.884, word_length=3, max_turns=10),
    _game("Hangman-v0-hard", "hangman:Hangman", "exact", word_length=7, max_turns=20),
    _game("Hangman-v0-random", "hangman:Hangman", "exact", word_length=(3, 7), max_turns=20),
    _game("Wordle-v0-easy", "wordle:Wordle", "exact", word_length=3, max_turns=15),
    _game("Wordle-v0-hard", "wordle:Wordle", "exact", word_length=5, max_turns=25),
    _game("Wordle-v0-random", "wordle:Wordle", "exact", word_length=(3, 5), max_turns=25),
    _game("WordSearch-v0-easy", "word_search:WordSearch", "exact", num_words=5, max_turns=20),
    _game("WordSearch-v0-hard", "word_search:WordSearch", "exact", num_words=5, hardcore=True, max_turns=20),
    _game("WordSearch-v0-random", "word_search:WordSearch", "exact", num_words=(3, 8), max_turns=20),
    _game("Crosswords-v0-easy", "crosswords:Crosswords", "exact", num_words=3, max_turns=30),
    _game("Crosswords-v0-hard", "crosswords:Crosswords", "exact", num_words=3, hardcore=True, max_turns=40),
    _game("Crosswords-v0-random", "crosswords:Crosswords", "exact", num_words=(3, 6), max_turns=40),
    _game("WikiGame-v0-easy", "wiki_game:WikiGame", "exact", clicks=(2, 3), max_turns=30),
    _game("WikiGame-v0-hard", "wiki_game:WikiGame", "exact", clicks=(4, 6), max_turns=15),
)
