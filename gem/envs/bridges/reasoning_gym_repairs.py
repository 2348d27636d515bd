"""Repairs of data sets of reasoning-gym whose reference answers are wrong, or not the only right ones.

Each public function takes a data set that has been built, and changes what it makes or how it scores.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from types import SimpleNamespace
from typing import Any

from gem.errors import BadArgument

EITHER_SEX = frozenset({"Kai", "Phoenix", "Rain", "River", "Sage", "Sky", "Winter"})
"""Names of the package that do not tell a man from a woman."""


def judge_rounds(dataset: Any) -> None:
    """Judge each round of ``mahjong_puzzle`` by its rules: the package names what it tried to make."""
    simulate = dataset._simulate_game

    def simulate_and_judge(rng: Any, cards: str, num_rounds: int) -> tuple[str, list[dict[str, str]]]:
        _, rounds = simulate(rng, cards, num_rounds)
        for played in rounds:
            played["result"] = _judge_card(cards, played["add"])
            cards = played["cards"]
        return rounds[-1]["result"], rounds

    dataset._simulate_game = simulate_and_judge


def _judge_card(cards: str, new: str) -> str:
    if cards.count(new) >= 2:
        return "Peng"
    near = [chr(ord(new) + step) in cards for step in (-2, -1, 1, 2)]
    return "Chi" if any(one and next_one for one, next_one in itertools.pairwise(near)) else "Pass"


def check_middle_terms(dataset: Any) -> None:
    """Ask of a valid ``syllogism`` that a premise speaks of all of the middle term, as the package forgets.

    Its other rules take it that no kind is empty ("All A are B" then says that some are), so the questions
    say this.
    """
    generate, judge = dataset._generate_syllogism, dataset._is_valid_syllogism

    def generate_and_say(rng: Any, idx: int) -> dict[str, Any]:
        entry: dict[str, Any] = generate(rng, idx)
        entry["question"] = entry["question"].replace("\n\n", "\nThere is at least one of each kind.\n\n")
        return entry

    def judge_middle_too(first: Any, second: Any, conclusion: Any) -> bool:
        speaks_of_all = first[0] in ("No", "Some ... are not") or second[0] in ("All", "No")
        return speaks_of_all and judge(first, second, conclusion)

    dataset._generate_syllogism, dataset._is_valid_syllogism = generate_and_say, judge_middle_too


def name_younger_relatives(dataset: Any) -> None:
    """Name nieces, nephews and children-in-law of ``family_relationships``; the package names the elder.

    Nothing tells the sex of an unmarried Sky or River, so nothing is asked about them.
    """
    ask, score = dataset._get_relationship_question, dataset.score_answer

    def ask_and_name(rng: Any, family: Any) -> tuple[Any, Any, Any]:
        one, other, relation = ask(rng, family)
        if one.name in EITHER_SEX and not one.spouse:
            return ask_and_name(rng, family)
        if relation.value in ("niece", "nephew"):
            relation = SimpleNamespace(value="niece" if one.gender == "female" else "nephew")
        elif relation.value in ("mother-in-law", "father-in-law"):
            child = "daughter" if one.gender == "female" else "son"
            relation = SimpleNamespace(value=f"{child}-in-law")
        return one, other, relation

    dataset._get_relationship_question = ask_and_name
    dataset.score_answer = lambda answer, entry: score("-".join(answer.split()), entry)


def allow_one_capture(dataset: Any) -> None:
    """Draw boards of ``tsumego`` until the reference captures white stones, and no other move does.

    A stone that stands beside the white group by chance may give it a way out, or be in atari itself.
    """
    generate = dataset._generate_capture_problem

    def generate_until_clear(size: int, rng: Any) -> tuple[list[list[str]], tuple[int, int]]:
        for _ in range(1000):
            with contextlib.suppress(RuntimeError):  # the stones left no room for the white group
                board, move = generate(size, rng)
                points = itertools.product(range(size), repeat=2)
                free = [(row, column) for row, column in points if board[row][column] == "."]
                if [point for point in free if dataset._would_capture(board, *point, "X")] == [move]:
                    return board, move
        raise BadArgument(
            f"rg:tsumego found no puzzle on a board of {size}; give larger boards or fewer stones."
        )

    dataset._generate_capture_problem = generate_until_clear


def accept_other_solutions(dataset: Any) -> None:
    """Accept each right matrix of ``survo``; the package accepts the one that it took the numbers from."""

    def score_any(answer: str, entry: dict[str, Any]) -> float:
        facts, grid = entry["metadata"], dataset._parse_grid(answer)
        if [len(row) for row in grid] != [len(row) for row in facts["puzzle"]]:
            return 0.0
        cells = [
            pair for lines in zip(facts["puzzle"], grid, strict=True) for pair in zip(*lines, strict=True)
        ]
        right = (
            all(given in (0, filled) for given, filled in cells)
            and sorted(filled for given, filled in cells if not given) == sorted(facts["candidate_numbers"])
            and all(sum(line[:-1]) == line[-1] for line in (*grid, *zip(*grid, strict=True)))
        )
        return float(right)

    dataset.score_answer = score_any


def accept_rounded(dataset: Any) -> None:
    """Accept numbers of ``advanced_geometry`` to the three decimals asked for, rounded up or down.

    The package rounds an angle to two decimals once more, and wants a radius letter for letter.
    """
    score = dataset.score_answer

    def score_rounded(answer: str, entry: dict[str, Any]) -> float:
        facts = entry["metadata"]
        exact = facts.get("orthocenter_approx") or [
            facts.get("incircle_radius_approx") or facts["angle_ABC_degrees"]
        ]
        try:
            given = [float(number) for number in re.sub("[()°]", "", answer).split(",")]
        except ValueError:
            given = []
        if len(given) == len(exact) and all(abs(a - b) < 0.0006 for a, b in zip(given, exact, strict=True)):
            answer = entry["answer"]
        return float(score(answer, entry))

    dataset.score_answer = score_rounded
