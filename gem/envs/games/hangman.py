"""Hangman: find a hidden word, letter by letter or at once."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from string import ascii_lowercase

from gem.envs.games import words
from gem.envs.kit.drawing import GREY, INK, RED, Canvas
from gem.envs.kit.text_game import Play, RenderMode, Reward, choose
from gem.errors import IllegalMove
from gem.tasks.procedural import Range, interval

HIDDEN = "_"

FIGURE: tuple[tuple[tuple[int, int], ...], ...] = (
    (),  # the head
    ((118, 84), (118, 140)),
    ((118, 98), (94, 122)),
    ((118, 98), (142, 122)),
    ((118, 140), (98, 178)),
    ((118, 140), (138, 178)),
)
"""The parts of the figure in drawing order: lines in pixels of the picture."""


class Hangman(words.WordGame):
    r"""Find a hidden word, letter by letter or at once.

    Task:
        The word is a common English one of `word_length` letters, all of `gem.envs.games.words.common`
        equally likely. The length may be a range (low, high) from which each episode draws.
    Action:
        A letter or a whole word in a box: ``\boxed{e}``, ``\boxed{house}``. Case does not matter. Each guess
        costs a turn, right or wrong. A letter or word that was guessed before, or a word of another length,
        is against the rules.
    Observation:
        The rules; then the word with the letters found so far, and the letters that are not in it.
    Reward:
        Progress is the share of the word that is shown. A won game returns 1.
    End:
        All letters are found or the word is guessed, the turns are used up, or an answer is unreadable.
    Source:
        Folklore; ids and parameters follow GEM (arXiv 2510.01051), whose levels are not in order: ``easy``,
        of 3 letters and 10 turns, is harder than ``hard``, of 7 letters and 20 turns, for the solver (88%
        and 100% won) and for random play (5% and 20%). Words come from `wordfreq`.
    """

    def __init__(
        self,
        word_length: Range = 5,
        max_turns: int = 15,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
        *,
        hardcore: bool = False,
        only_real_words: bool = False,
    ) -> None:
        """Set the length and the budget.

        With `hardcore` the words are rare: known, but not common. With `only_real_words` guessing an unknown
        word is against the rules.
        """
        self.hardcore = hardcore
        self.only_real_words = only_real_words
        self.word_lengths = interval("word_length", word_length, words.SHORTEST, words.LONGEST)
        super().__init__(max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the length if it is not fixed, and the word."""
        self.length = self.draw(self.word_lengths)
        self.secret = words.pick(self.length, self.rng, self.hardcore)
        self.pattern = HIDDEN * self.length
        self.absent = ""  # letters guessed that the word lacks
        self.tried: tuple[str, ...] = ()  # words guessed
        return (
            f"Hangman: I have a secret English word of {self.length} letters. Find it in at most "
            f"{self.max_turns} turns. Guess one letter, and I show you every place where it stands, or guess "
            "the whole word. Give the letter or the word inside \\boxed{}.\n"
            f"{self.board()}"
        )

    def play(self, move: str) -> Play | str:
        """Look for a letter, or compare a word."""
        return self._letter(move) if len(move) == 1 else self._word(move)

    def _letter(self, letter: str) -> Play | str:
        if letter in self.pattern or letter in self.absent:
            raise IllegalMove(f"You have guessed the letter {letter} before.\n{self.board()}")
        if letter not in self.secret:
            self.absent += letter
            return f"There is no {letter}.\n{self.board()}"
        self.pattern = "".join(
            own if own == letter else sign for own, sign in zip(self.secret, self.pattern, strict=True)
        )
        if HIDDEN not in self.pattern:
            return Play.win(f"That was the last letter: the word is {self.secret}.")
        return f"There is {letter}.\n{self.board()}"

    def _word(self, word: str) -> Play | str:
        if len(word) != self.length:
            raise IllegalMove(f"The word has {self.length} letters.\n{self.board()}")
        if self.only_real_words and word not in words.guessable(self.length):
            raise IllegalMove(f"{word} is not in the list of English words.\n{self.board()}")
        if word in self.tried:
            raise IllegalMove(f"You have guessed {word} before.\n{self.board()}")
        if word == self.secret:
            return Play.win(f"{word} is the word.")
        self.tried = (*self.tried, word)
        return f"{word} is not the word.\n{self.board()}"

    def board(self) -> str:
        """Return the word with the letters found so far, and the guessed letters that it lacks."""
        return f"Word: {' '.join(self.pattern)}\nNot in it: {' '.join(self.absent) or '-'}"

    def draw_board(self) -> Canvas:
        """Draw the letters found so far, the wrong guesses, and a figure that grows with the turns."""
        canvas = Canvas(max(440, 220 + 46 * self.length), 240)
        canvas.line([(24, 216), (150, 216)], INK, 5)
        canvas.line([(48, 216), (48, 24), (118, 24), (118, 48)], INK, 5)
        canvas.line([(48, 56), (80, 24)], INK, 4)
        drawn = len(FIGURE) * self.turn // self.max_turns
        if drawn:
            canvas.disk((118, 66), 18, outline=INK, line=4)
        for limb in FIGURE[1:drawn]:
            canvas.line(limb, INK, 4)
        for k, letter in enumerate(self.pattern.upper()):
            x = 190 + 46 * k
            canvas.line([(x, 92), (x + 36, 92)], INK, 3)
            if letter != HIDDEN:
                canvas.text((x + 18, 66), letter, 34, bold=True)
        wrong = "  ".join(self.absent.upper()) or "-"
        canvas.text((190, 128), f"not in it:  {wrong}", 18, RED if self.absent else GREY, "lm")
        for k, word in enumerate(self.tried[-4:]):
            canvas.text((190, 156 + 22 * k), f"not {word}", 16, RED, "lm")
        canvas.text((canvas.width - 14, 226), f"turn {self.turn} of {self.max_turns}", 14, GREY, "rm")
        return canvas

    def progress(self) -> float:
        """Return the share of the word that is shown."""
        return 1.0 - self.pattern.count(HIDDEN) / self.length

    def epilogue(self) -> str:
        """Return the text that reveals the word."""
        return f"No turns are left. The word was {self.secret}."

    def answer_form(self) -> str:
        """Return the sentence that describes a guess."""
        return f"A guess is a letter or a word of {self.length} letters, inside \\boxed{{}}."

    def random_move(self) -> str:
        """Guess any new letter."""
        tried = self.pattern + self.absent
        return choose(self.actor_rng, [letter for letter in ascii_lowercase if letter not in tried])

    def expert_move(self) -> str:
        """Guess the most informative letter; guess a word if at most two are left, or on the last turn."""
        left = [w for w in candidates(self.pattern, self.absent, self.hardcore) if w not in self.tried]
        if len(left) <= 2 or self.turn == self.max_turns - 1:
            return left[0]
        return best_letter(self.pattern, self.absent, self.hardcore)


@lru_cache(maxsize=4096)
def candidates(pattern: str, absent: str, hardcore: bool = False) -> tuple[str, ...]:
    """Return the common (with `hardcore`, the rare) words that fit what is shown, most frequent first."""
    open_letters = frozenset(pattern)
    return tuple(
        word
        for word in (words.rare if hardcore else words.common)(len(pattern))
        if not any(letter in absent for letter in word)
        and all(
            own == sign if sign != HIDDEN else own not in open_letters
            for own, sign in zip(word, pattern, strict=True)
        )
    )


@lru_cache(maxsize=4096)
def best_letter(pattern: str, absent: str, hardcore: bool = False) -> str:
    """Return the letter whose answer leaves the fewest candidates on average; of equal ones, the first."""
    left = candidates(pattern, absent, hardcore)

    def cost(letter: str) -> int:
        answers = Counter(tuple(own == letter for own in word) for word in left)
        return sum(count * count for count in answers.values())

    return min((letter for letter in ascii_lowercase if letter not in pattern + absent), key=cost)
