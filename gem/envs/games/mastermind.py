"""Mastermind: find a secret code from the marks that guesses get."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from itertools import permutations, product, repeat
from operator import eq
from typing import TypeAlias

from gem.envs.kit.drawing import COLOURS, GREY, INK, RULE, WHITE, Canvas
from gem.envs.kit.text_game import Play, RenderMode, Reward, TextGame, choose, numerals
from gem.errors import BadArgument, IllegalMove
from gem.tasks.procedural import Range, interval

DIGITS = "123456789"

MAX_CODES = 100_000
"""The largest number of possible codes; dealing, random play and the expert enumerate them."""

WORK = 40_000
"""How many comparisons the expert makes for one guess; above this it considers fewer guesses."""

Marked: TypeAlias = tuple[str, int, int]
"""A guess and its marks: how many numbers are in place, how many right but elsewhere."""


class Mastermind(TextGame):
    r"""Find a secret code from the marks that guesses get.

    Task:
        The code is `code_length` numbers from 1 to `num_numbers` in order, all codes equally likely. Only
        with `duplicate_numbers` may a number occur twice in it. Length and numbers may be ranges
        (low, high) from which each episode draws.
    Action:
        The numbers in a box: ``1 2 3 4``, ``1, 2, 3, 4`` and ``1234`` are the same guess. A guess that
        cannot be the code (wrong length, a number out of range, or a forbidden repetition) gets no
        marks and costs the turn.
    Observation:
        The rules; then, for each guess, how many numbers are right and in place, and how many are right
        but elsewhere.
    Reward:
        Progress is the score of the best guess so far. A number in place counts twice as much as one
        elsewhere. Repeating a guess earns nothing. A won game returns 1.
    End:
        The code is guessed, the turns are used up, or an answer is unreadable.
    Source:
        M. Meirowitz, 1970; the expert is Knuth's minimax ("The computer as Master Mind", 1977); ids and
        parameters follow GEM (arXiv 2510.01051).
    """

    def __init__(
        self,
        code_length: Range = 4,
        num_numbers: Range = 6,
        duplicate_numbers: bool = False,
        max_turns: int = 20,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
    ) -> None:
        """Set the codes and the budget."""
        self.code_lengths = interval("code_length", code_length, 1, 9)
        self.num_numbers = interval("num_numbers", num_numbers, 2, 9)
        self.duplicate_numbers = duplicate_numbers
        longest, most = self.code_lengths[1], self.num_numbers[1]
        if not duplicate_numbers and longest > self.num_numbers[0]:
            raise BadArgument(
                f"Mastermind got {code_length=}, {num_numbers=}; without duplicate numbers a code is at most "
                "as long as there are numbers."
            )
        if most**longest > MAX_CODES:
            raise BadArgument(
                f"Mastermind got {code_length=}, {num_numbers=}: {most**longest:,} codes; "
                f"accepted: at most {MAX_CODES:,}."
            )
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the parameters that are not fixed, and the code."""
        self.length, self.highest = self.draw(self.code_lengths), self.draw(self.num_numbers)
        self.secret = choose(self.rng, _codes(self.length, self.highest, self.duplicate_numbers))
        self._allowed = frozenset(DIGITS[: self.highest])
        self.marked: list[Marked] = []
        self._best = 0  # numbers in place count 2, those elsewhere 1
        repeats = "A number may occur more than once" if self.duplicate_numbers else "No number occurs twice"
        return (
            f"I have a secret code: {self.length} numbers in order, each from 1 to {self.highest}. "
            f"{repeats}. Find it in at most {self.max_turns} guesses. After each guess I tell you how "
            "many of its numbers are right and in place, and how many are right but belong elsewhere. "
            f"Give your guess as {self.length} numbers separated by spaces, inside \\boxed{{}}."
        )

    def instance(self) -> tuple[int, str]:
        """Return the highest number and the code."""
        return self.highest, self.secret

    def parse(self, move: str) -> list[str]:
        """Read numbers."""
        return numerals(move)

    def play(self, move: list[str]) -> Play | str:
        """Mark a guess."""
        if len(move) != self.length:
            raise IllegalMove(f"The code has {self.length} numbers; your guess has {len(move)}.")
        distinct = set(move)
        if not distinct <= self._allowed:
            raise IllegalMove(f"The numbers go from 1 to {self.highest}.")
        if len(distinct) < len(move) and not self.duplicate_numbers:
            raise IllegalMove("No number occurs twice in the code, so none may in a guess.")
        guess = "".join(move)
        in_place, elsewhere = marks(guess, self.secret)
        self.marked.append((guess, in_place, elsewhere))
        self._best = max(self._best, 2 * in_place + elsewhere)
        guess_text = " ".join(move)
        if in_place == self.length:
            return Play.win(f"{guess_text} is the code.")
        return f"{guess_text}: {in_place} in place, {elsewhere} right but elsewhere."

    def draw_board(self) -> Canvas:
        """Draw each guess as a row of pegs: a black pin per number in place, a white one elsewhere."""
        solved = bool(self.marked) and self.marked[-1][1] == self.length
        rows = len(self.marked) + (not solved)
        pitch, beside = 48, 60 + 48 * self.length
        canvas = Canvas(max(330, beside + 30 + 26 * self.length), 58 + pitch * rows)
        for row in range(rows):
            y = 32 + pitch * row
            guess, in_place, elsewhere = self.marked[row] if row < len(self.marked) else ("", 0, 0)
            canvas.text((26, y), str(row + 1), 16, GREY)
            for k in range(self.length):
                centre = (70 + pitch * k, y)
                if guess:
                    canvas.disk(centre, 20, COLOURS[int(guess[k]) - 1])
                    canvas.text(centre, guess[k], 22, WHITE, bold=True)
                    pin = INK if k < in_place else WHITE if k < in_place + elsewhere else None
                    at = (beside + 26 * k + 13, y)
                    canvas.disk(at, 9 if pin else 3, pin or RULE, INK if pin else None, 1.5)
                else:
                    canvas.disk(centre, 20, outline=RULE, line=2)
                    canvas.text(centre, "?", 22, RULE)
        canvas.text((14, 36 + pitch * rows), "black: in place, white: right but elsewhere", 14, GREY, "lm")
        return canvas

    def progress(self) -> float:
        """Return the share of the code in the best guess; a number elsewhere counts half."""
        return self._best / (2 * self.length)

    def epilogue(self) -> str:
        """Return the text that reveals the code."""
        return f"No guesses are left. The code was {' '.join(self.secret)}."

    def answer_form(self) -> str:
        """Return the sentence that describes a guess."""
        return f"A guess is {self.length} numbers separated by spaces, inside \\boxed{{}}."

    def random_move(self) -> str:
        """Guess any code."""
        return " ".join(choose(self.actor_rng, _codes(self.length, self.highest, self.duplicate_numbers)))

    def expert_move(self) -> str:
        """Make the guess whose worst answer leaves the fewest codes."""
        return " ".join(_minimax(self.length, self.highest, self.duplicate_numbers, tuple(self.marked)))


def marks(guess: str, code: str) -> tuple[int, int]:
    """Return how many numbers of `guess` are in place, and how many are right but elsewhere."""
    in_place = sum(map(eq, guess, code))
    unmatched = code
    for number in guess:
        unmatched = unmatched.replace(number, "", 1)
    return in_place, len(code) - len(unmatched) - in_place


@lru_cache(maxsize=64)
def _codes(length: int, highest: int, repeats: bool) -> tuple[str, ...]:
    digits = DIGITS[:highest]
    drawn = product(digits, repeat=length) if repeats else permutations(digits, length)
    return tuple(map("".join, drawn))


@lru_cache(maxsize=1024)
def _consistent(length: int, highest: int, repeats: bool, marked: tuple[Marked, ...]) -> tuple[str, ...]:
    """Return the codes that would have given every mark."""
    if not marked:
        return _codes(length, highest, repeats)
    *earlier, (guess, *given) = marked
    before = _consistent(length, highest, repeats, tuple(earlier))
    answer = tuple(given)
    return tuple(code for code in before if marks(guess, code) == answer)


@lru_cache(maxsize=1024)
def _minimax(length: int, highest: int, repeats: bool, marked: tuple[Marked, ...]) -> str:
    """Return the guess whose worst answer leaves the fewest codes; of equal ones, a possible code."""
    left = _consistent(length, highest, repeats, marked)
    if len(left) <= 2:
        return left[0]
    tried = {number for guess, *_ in marked for number in guess}
    untried = [number for number in DIGITS[:highest] if number not in tried]
    guesses = [code for code in _codes(length, highest, repeats) if _in_order(code, untried)]
    if len(guesses) * len(left) > WORK:
        guesses = list(left[:: -(-(len(left) ** 2) // WORK)])
    possible = frozenset(left)

    def cost(guess: str) -> tuple[int, bool]:
        answers = Counter(map(marks, repeat(guess), left))
        return max(answers.values()), guess not in possible

    return min(guesses, key=cost)


def _in_order(code: str, untried: list[str]) -> bool:
    """Return whether `code` uses untried numbers in order; any other order is an equivalent guess."""
    fresh = list(dict.fromkeys(number for number in code if number in untried))
    return fresh == untried[: len(fresh)]
