"""GuessTheNumber: find a secret number from higher/lower answers."""

from __future__ import annotations

from math import log

from gem.envs.kit.drawing import GREEN, GREY, RULE, Canvas
from gem.envs.kit.text_game import Play, RenderMode, Reward, TextGame, integer
from gem.errors import IllegalMove
from gem.tasks.procedural import Range, interval

MAX = 10**9
"""The largest possible number."""


class GuessTheNumber(TextGame):
    r"""Find a secret number from higher/lower answers.

    Task:
        The secret is a whole number between `min_number` and `max_number`, all equally likely. `max_number`
        may be a range (low, high) from which each episode draws. Without `max_turns` the budget is the number
        of turns that bisection needs at worst.
    Action:
        A guess in a box, as ``\boxed{7}``. A guess outside the range wastes the turn; anything but a whole
        number is unreadable.
    Observation:
        The rules; then whether the secret is higher or lower than the guess.
    Reward:
        Progress is the share of the secret's bits that the answers have revealed, so a guess without new
        information earns nothing. A won game returns 1.
    End:
        The secret is guessed, the turns are used up, or an answer is unreadable.
    Source:
        Folklore; ids and parameters follow GEM (arXiv 2510.01051).
    """

    ANSWER_FORM = "A guess is a whole number inside \\boxed{}."

    def __init__(
        self,
        min_number: int = 1,
        max_number: Range = 50,
        max_turns: int | None = None,
        reward: Reward = "dense",
        render_mode: RenderMode = "text",
    ) -> None:
        """Set the range and the budget."""
        self.min_number, _ = interval("min_number", min_number, -MAX, MAX - 1)
        self.max_numbers = interval("max_number", max_number, self.min_number + 1, MAX)
        self._budget = max_turns
        size = self.max_numbers[1] - self.min_number + 1
        super().__init__(size.bit_length() if max_turns is None else max_turns, reward, render_mode)

    def deal(self) -> str:
        """Draw the range if it is not fixed, and the secret."""
        self.max_number = self.draw(self.max_numbers)
        size = self.max_number - self.min_number + 1
        if self._budget is None:
            self.max_turns = size.bit_length()
        self.secret = self.draw((self.min_number, self.max_number))
        self.low, self.high = self.min_number, self.max_number  # what the answers leave possible
        self._log_size = log(size)
        return (
            f"I have a secret whole number between {self.min_number} and {self.max_number}. Find it in "
            f"at most {self.max_turns} guesses. After each guess I tell you whether the secret is higher or "
            "lower. Give your guess inside \\boxed{}."
        )

    def instance(self) -> tuple[int, int]:
        """Return the end of the range and the secret."""
        return self.max_number, self.secret

    def parse(self, move: str) -> int:
        """Read a whole number."""
        return integer(move)

    def play(self, move: int) -> Play | str:
        """Compare a guess with the secret."""
        if move == self.secret:
            return Play.win(f"{move} is right.")
        if not self.min_number <= move <= self.max_number:
            raise IllegalMove(f"The secret is between {self.min_number} and {self.max_number}.")
        if move < self.secret:
            self.low = max(self.low, move + 1)
            return f"The secret is higher than {move}."
        self.high = min(self.high, move - 1)
        return f"The secret is lower than {move}."

    def draw_board(self) -> Canvas:
        """Draw the range as a line, and on it the numbers that are still possible."""
        canvas = Canvas(560, 120)
        left, y, length = 60, 68, 440
        share = length / (self.max_number - self.min_number)
        low, high = (left + (number - self.min_number) * share for number in (self.low, self.high))
        canvas.line([(left, y), (left + length, y)], RULE, 4)
        canvas.line([(low, y), (high, y)], GREEN, 10)
        for x, number in ((left, self.min_number), (left + length, self.max_number)):
            canvas.line([(x, y - 10), (x, y + 10)], RULE, 3)
            canvas.text((x, y + 28), str(number), 18, GREY)
        for end in (low, high):
            canvas.disk((end, y), 7, GREEN)
        possible = f"{self.low} to {self.high}" if self.low < self.high else str(self.low)
        canvas.text((280, 26), f"possible: {possible}", 20, bold=True)
        return canvas

    def progress(self) -> float:
        """Return the share of the secret's bits that are known."""
        return 1.0 - log(self.high - self.low + 1) / self._log_size

    def epilogue(self) -> str:
        """Return the text that reveals the secret."""
        return f"No guesses are left. The secret was {self.secret}."

    def random_move(self) -> str:
        """Guess any number in the range."""
        return str(self.actor_rng.randint(self.min_number, self.max_number))

    def expert_move(self) -> str:
        """Guess the middle of the numbers that are still possible."""
        return str((self.low + self.high) // 2)
