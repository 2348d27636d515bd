"""GuessTheNumber: find a secret number from higher/lower answers."""

from __future__ import annotations

from math import log

from gem.envs.games.base import Play, Range, Reward, TextGame, integer
from gem.errors import BadArgument


class GuessTheNumber(TextGame):
    r"""Find a secret number from higher/lower answers.

    Task:
        The secret is a whole number between `min_number` and `max_number`, all equally likely. `max_number`
        may be a range (low, high) from which each episode draws. Without `max_turns` the budget is what
        bisection needs at worst.
    Action:
        A guess in a box, as ``\boxed{7}``. A guess outside the range is a wasted turn; anything but a whole
        number is unreadable.
    Observation:
        The rules; then whether the secret is higher or lower than the guess.
    Reward:
        Progress is the share of the range's bits that the answers have revealed, so a guess that tells
        nothing new earns nothing. A won game returns 1.
    End:
        The secret is guessed, the turns are used up, or an answer is unreadable.
    Source:
        Folklore; ids and parameters follow GEM (arXiv 2510.01051).
    """

    def __init__(
        self,
        min_number: int = 1,
        max_number: Range = 50,
        max_turns: int | None = None,
        reward: Reward = "dense",
    ) -> None:
        """Set the range and the budget."""
        self.min_number = min_number
        self.max_numbers = (max_number, max_number) if isinstance(max_number, int) else tuple(max_number)
        low, high = self.max_numbers
        if not min_number < low <= high:
            raise BadArgument(
                f"GuessTheNumber got {min_number=}, {max_number=}; a range holds at least two numbers."
            )
        self._budget = max_turns
        super().__init__((high - min_number + 1).bit_length() if max_turns is None else max_turns, reward)

    def deal(self) -> str:
        """Draw the range where it is not fixed, and the secret."""
        low, high = self.max_numbers
        self.max_number = low if low == high else self.rng.randint(low, high)
        size = self.max_number - self.min_number + 1
        if self._budget is None:
            self.max_turns = size.bit_length()
        self.secret = self.rng.randint(self.min_number, self.max_number)
        self.low, self.high = self.min_number, self.max_number  # what the answers leave possible
        self._log_size = log(size)
        return (
            f"I have a secret whole number between {self.min_number} and {self.max_number}. Find it in "
            f"at most {self.max_turns} guesses. After each guess I tell you whether the secret is higher or lower. "
            "Give your guess inside \\boxed{}."
        )

    def parse(self, move: str) -> int:
        """Read a whole number."""
        return integer(move)

    def play(self, move: int) -> Play:
        """Compare a guess with the secret."""
        if move == self.secret:
            return Play.win(f"{move} is right.")
        if not self.min_number <= move <= self.max_number:
            shown = move if abs(move) < 10**9 else "That"
            return Play(f"{shown} is not between {self.min_number} and {self.max_number}.")
        if move < self.secret:
            if move >= self.low:
                self.low = move + 1
            return Play(f"The secret is higher than {move}.")
        if move <= self.high:
            self.high = move - 1
        return Play(f"The secret is lower than {move}.")

    def progress(self) -> float:
        """Return the share of the range's bits that are known."""
        return 1.0 - log(self.high - self.low + 1) / self._log_size

    def epilogue(self) -> str:
        """Tell the secret."""
        return f"No guesses are left. The secret was {self.secret}."

    def answer_form(self) -> str:
        """Say what a guess looks like."""
        return "A guess is a whole number inside \\boxed{}."

    def random_move(self) -> str:
        """Guess anywhere in the range."""
        return str(self.actor_rng.randint(self.min_number, self.max_number))

    def expert_move(self) -> str:
        """Bisect what is left."""
        return str((self.low + self.high) // 2)
