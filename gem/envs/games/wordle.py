"""Wordle: find a hidden word from the marks that guessed words get."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TypeAlias

from gem.envs.games import words
from gem.envs.kit.drawing import AMBER, GREEN, GREY, SHADE, WHITE, CellCanvas
from gem.envs.kit.text_game import Play, RenderMode, Reward, choose
from gem.errors import IllegalMove
from gem.tasks.procedural import Range, interval

IN_PLACE, ELSEWHERE, ABSENT = "G", "Y", "X"
COLOURS = {IN_PLACE: GREEN, ELSEWHERE: AMBER, ABSENT: GREY}

WORK = 20_000
"""How many comparisons the expert makes for one guess; above this it considers fewer guesses."""

Marked: TypeAlias = tuple[str, str]
"""A guess and its marks, one letter per mark."""


class Wordle(words.WordGame):
    r"""Find a hidden word from the marks that guessed words get.

    Task:
        The word is a common English one of `word_length` letters, all of `gem.envs.games.words.common`
        equally likely. The length may be a range (low, high) from which each episode draws.
    Action:
        A word in a box, as ``\boxed{house}``; case does not matter. Any word of
        `gem.envs.games.words.guessable` may be guessed. A word of another length, or an unknown
        word, gets no marks and costs the turn.
    Observation:
        The rules; then, for each guess, a mark per letter: G right and in place, Y in the word but
        elsewhere, X not in it. Each letter of the word is matched once, those in place first, then from
        the left.
    Reward:
        Progress is the score of the best guess so far. A letter in place counts twice as much as one
        elsewhere. Repeating a guess earns nothing. A won game returns 1.
    End:
        The word is guessed, the turns are used up, or an answer is unreadable.
    Source:
        J. Wardle, 2021; ids and parameters follow GEM (arXiv 2510.01051). Words come from `wordfreq`.
    """

    PICTURE = f" In the picture {IN_PLACE} is green, {ELSEWHERE} yellow and {ABSENT} grey."

    def __init__(
        self,
        word_length: Range = 5,
        max_turns: int = 25,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
        *,
        only_real_words: bool = True,
    ) -> None:
        """Set the length and the budget; without `only_real_words` a guess may be any letters."""
        self.only_real_words = only_real_words
        self.word_lengths = interval("word_length", word_length, words.SHORTEST, words.LONGEST)
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the length if it is not fixed, and the word."""
        self.length = self.draw(self.word_lengths)
        self.secret = words.pick(self.length, self.rng)
        self.marked: list[Marked] = []
        self._best = 0
        any_letters = "A guess may be any letters."
        kind = "Each guess must be an English word." if self.only_real_words else any_letters
        return (
            f"Wordle: I have a secret English word of {self.length} letters. Find it in at most "
            f"{self.max_turns} guesses. {kind} After it I mark each of its "
            f"letters: {IN_PLACE} is right and in place, {ELSEWHERE} is in the word but elsewhere, {ABSENT} "
            f"is not in the word.{self.legend} Give your guess inside \\boxed{{}}."
        )

    def play(self, move: str) -> Play | str:
        """Mark a guess."""
        if len(move) != self.length:
            raise IllegalMove(f"The word has {self.length} letters.")
        if self.only_real_words and move not in words.guessable(self.length):
            raise IllegalMove(f"{move} is not in the list of English words.")
        given = marks(move, self.secret)
        self.marked.append((move, given))
        self._best = max(self._best, 2 * given.count(IN_PLACE) + given.count(ELSEWHERE))
        if move == self.secret:
            return Play.win(f"{move} is the word.")
        return f"{' '.join(move)}\n{' '.join(given)}"

    def draw_board(self) -> CellCanvas:
        """Draw each guess as a row of tiles in the colours of its marks, and a row for the next guess."""
        solved = bool(self.marked) and self.marked[-1][0] == self.secret
        grid = CellCanvas(len(self.marked) + (not solved), self.length, 52)
        for row, (guess, given) in enumerate(self.marked):
            for column, (letter, mark) in enumerate(zip(guess.upper(), given, strict=True)):
                grid.block(row, column, letter, COLOURS[mark], WHITE)
        if not solved:
            for column in range(self.length):
                grid.block(len(self.marked), column, "", SHADE)
        return grid

    def progress(self) -> float:
        """Return the share of the word in the best guess; a letter elsewhere counts half."""
        return self._best / (2 * self.length)

    def epilogue(self) -> str:
        """Return the text that reveals the word."""
        return f"No guesses are left. The word was {self.secret}."

    def answer_form(self) -> str:
        """Return the sentence that describes a guess."""
        return f"A guess is a word of {self.length} letters inside \\boxed{{}}."

    def random_move(self) -> str:
        """Guess any common word."""
        return choose(self.actor_rng, words.common(self.length))

    def expert_move(self) -> str:
        """Guess the most informative word."""
        return best_guess(self.length, tuple(self.marked))


@lru_cache(maxsize=1 << 16)
def marks(guess: str, secret: str) -> str:
    """Return the marks of `guess`, one per letter; every letter of `secret` is matched once."""
    unmatched = [own for own, letter in zip(secret, guess, strict=True) if own != letter]
    given = ""
    for own, letter in zip(secret, guess, strict=True):
        if own == letter:
            given += IN_PLACE
        elif letter in unmatched:
            unmatched.remove(letter)
            given += ELSEWHERE
        else:
            given += ABSENT
    return given


@lru_cache(maxsize=4096)
def candidates(length: int, marked: tuple[Marked, ...]) -> tuple[str, ...]:
    """Return the common words that fit all marks so far, most frequent first."""
    if not marked:
        return words.common(length)
    *earlier, (guess, given) = marked
    return tuple(word for word in candidates(length, tuple(earlier)) if marks(guess, word) == given)


@lru_cache(maxsize=4096)
def best_guess(length: int, marked: tuple[Marked, ...]) -> str:
    """Return the guess whose marks leave the fewest candidates on average; of equal ones, a candidate.

    The mean number left is the sum of squared class sizes over their sum. It ranks guesses much as the
    entropy of the classes does, but in whole numbers, so that rounding is the same on every platform.
    """
    left = candidates(length, marked)
    if len(left) <= 2:
        return left[0]
    possible = frozenset(left)
    holding = Counter(letter for word in left for letter in set(word))

    def promise(word: str) -> int:
        return -sum(min(holding[letter], len(left) - holding[letter]) for letter in set(word))

    def cost(guess: str) -> tuple[int, bool]:
        classes = Counter(marks(guess, word) for word in left)
        return sum(count * count for count in classes.values()), guess not in possible

    guesses = sorted(words.common(length), key=promise)[: max(1, WORK // len(left))]
    return min(guesses, key=cost)
