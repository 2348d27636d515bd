r"""TextGame: what every text game shares, so that a game's file holds its rules alone.

A game says how an instance is dealt (`deal`), how a move is read (`parse`) and what it does (`play`).
Answers come in ``\boxed{}``; turns, rewards, unreadable answers and the end are kept here.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

from gem.content import Image, Obs, Text
from gem.core import _NEW, Env, Start, Step
from gem.envs.kit.drawing import Canvas, pillow
from gem.errors import BadArgument, IllegalMove, NoSolver
from gem.parsing import boxed
from gem.record import StopReason

Reward = Literal["dense", "sparse"]
RenderMode = Literal["text", "image"]

DIRECTIONS = ("up", "down", "left", "right")
_NAMED = {text: name for name in DIRECTIONS for text in (name, name[0])}

PROGRESS_WEIGHT = 0.5
"""The share of the full reward that progress without success can earn."""

UNREADABLE_REWARD = -0.1
"""What an unreadable answer earns, as the episode's last reward."""

_step = partial(tuple.__new__, Step)  # from its five values; Step(...) takes twice as long

_SOLVED, _FAILED = StopReason.SOLVED.value, StopReason.FAILED.value
_UNREADABLE, _TURN_BUDGET = StopReason.UNREADABLE.value, StopReason.TURN_BUDGET.value


class Play(NamedTuple):
    """What a move led to: the text the agent reads next, and whether the game is over.

    A move after which the game goes on may give its text alone.
    """

    text: str
    over: bool = False
    success: bool = False

    @classmethod
    def win(cls, text: str = "Well done, that solves it.") -> Play:
        """The task is done."""
        return cls(text, True, True)

    @classmethod
    def lose(cls, text: str) -> Play:
        """The task can no longer be done."""
        return cls(text, True, False)


class TextGame(Env):
    r"""A turn-based text game for one player.

    Subclasses define `deal`, `parse` and `play`; `progress`, `random_move` and `expert_move` where the
    game has them; `board`, `draw_board` and `instance`; and the six headings of an environment's docstring.

    With ``render_mode="image"`` a picture stands where an observation shows the board, or behind the text of
    a game that shows none. As text the observation reads as it does without pictures, but that the first
    one says what the picture shows (`PICTURE`) in the place of what the signs of the board mean (`SIGNS`),
    which stands with the board.

    Rewards. The return of a won game is exactly 1, in both modes. ``sparse``: 1 on the winning move,
    else 0. ``dense``: each turn earns ``0.5 * (progress after - progress before)`` and the winning move
    the rest of 1, so a lost game returns half its progress. Progress is a potential: undoing and
    repeating earns nothing. An unreadable answer ends the game and earns -0.1.
    """

    SIGNS: ClassVar[str] = ""
    """What the signs of the board as text mean, where the rules say so."""

    PICTURE: ClassVar[str] = ""
    """The same of the board as a picture."""

    max_turns: int

    def __init__(self, max_turns: int, reward: Reward = "dense", render_mode: RenderMode = "text") -> None:
        """Set the budget that the task states, how turns are paid, and whether boards are pictures.

        Raises:
            BadArgument: for another value. MissingExtra: for pictures without Pillow.
        """
        if max_turns < 1:
            raise BadArgument(f"max_turns is {max_turns}; accepted: 1 or more.")
        if reward not in ("dense", "sparse"):
            raise BadArgument(f"reward is {reward!r}; accepted: 'dense', 'sparse'.")
        if render_mode not in ("text", "image"):
            raise BadArgument(f"render_mode is {render_mode!r}; accepted: 'text', 'image'.")
        if render_mode == "image":
            pillow()  # absent, it is better missed now than at the first board
        self.max_turns = max_turns
        self.reward: Reward = reward
        self.render_mode: RenderMode = render_mode
        self.turn = 0
        self._paid = 0.0

    @staticmethod
    def too_few_turns(max_turns: int, why: str) -> None:
        """Warn of a budget in which an episode may not be won; a short trial may want one."""
        if max_turns >= 1:  # less is refused
            warnings.warn(f"{why} With fewer, some episodes cannot be won.", stacklevel=4)

    def draw(self, bounds: tuple[int, int]) -> int:
        """Return a number of an inclusive range; of a range that holds one, without drawing."""
        low, high = bounds
        return low if low == high else low + int(self.rng.random() * (high - low + 1))

    # -- a game defines

    def deal(self) -> str:
        """Draw an instance from `self.rng` and return the first observation: rules, board, answer form."""
        raise NotImplementedError

    def parse(self, move: str) -> Any:
        r"""Return the move that the text inside ``\boxed{}`` means; ValueError when it means none."""
        raise NotImplementedError

    def play(self, move: Any) -> Play | str:
        """Make a move and return what the agent reads next, as a Play where the game is over.

        Raises:
            IllegalMove: when the rules forbid it: the agent reads why, and the turn is gone.
        """
        raise NotImplementedError

    def progress(self) -> float:
        """Return how far the game is, from 0 at the deal to at most 1: a function of the position alone."""
        return 0.0

    def random_move(self) -> str:
        r"""Return a legal move drawn from `self.actor_rng`, as it stands inside ``\boxed{}``."""
        raise NoSolver(f"{self} has no random actor: {type(self).__name__} lacks random_move().")

    def expert_move(self) -> str:
        r"""Return the expert's move, as it stands inside ``\boxed{}``."""
        raise NoSolver(f"{self} has no solver: {type(self).__name__} lacks expert_move().")

    def instance(self) -> Hashable:
        """Return what was dealt, the hidden part too: equal for equal deals, whatever was played since."""
        raise NotImplementedError(f"{type(self).__name__} must define instance().")

    def board(self) -> str:
        """Return the board as observations show it; empty where they show none."""
        return ""

    def draw_board(self) -> Canvas:
        """Draw what the agent may know of the state, and nothing that is hidden."""
        raise NotImplementedError(f"{type(self).__name__} must define draw_board() to be shown as a picture.")

    # -- pictures

    @property
    def legend(self) -> str:
        """What the signs of the board mean, in the form in which it is shown."""
        return self.SIGNS if self.render_mode == "text" else self.PICTURE

    def picture(self, alt: str = "") -> Image:
        """Return the state as a PNG; `alt` is what it stands for.

        Raises:
            MissingExtra: without Pillow.
        """
        return Image(self.draw_board().png(), "image/png", alt)

    def _illustrated(self, text: str, signs: str = "") -> Obs:
        """Return an observation with a picture in the place of the board, or at its end.

        The picture stands for the board, and for what its `signs` mean.
        """
        board = self.board()
        before, found, after = text.partition(board) if board else (text, "", "")
        parts = (
            Text(before.removesuffix("\n")),
            self.picture(f"{signs}\n{found}" if signs else found),
            Text(after.removeprefix("\n")),
        )
        return tuple(part for part in parts if isinstance(part, Image) or part.text)

    # -- the contract

    def reset(self, seed: int | None = None) -> Start:
        """Deal an instance; see Env.reset."""
        super().reset(seed)
        self.turn = 0
        self._paid = 0.0
        text = self.deal()
        return Start(text if self.render_mode == "text" else self._illustrated(text, self.SIGNS), {})

    def step(self, action: str) -> Step:
        """Read the answer, make the move, pay the turn; see Env.step."""
        self.turn += 1
        text = boxed(action)
        try:
            if text is None:
                raise ValueError
            move = self.parse(text)
        except ValueError:
            return self._unreadable()
        info: dict[str, Any] = {}
        try:
            played = self.play(move)
        except IllegalMove as error:
            played = str(error)
            info["legal"] = False
        text, over, success = (played, False, False) if isinstance(played, str) else played
        if over:
            info["success"] = success
            info["stop"] = _SOLVED if success else _FAILED
        elif self.turn >= self.max_turns:
            over = True
            info["success"] = False
            info["stop"] = _TURN_BUDGET
            text = f"{text}\n{self.epilogue()}"
        if success:
            reward = 1.0 - self._paid
        elif self.reward == "sparse":
            reward = 0.0
        else:
            reward = PROGRESS_WEIGHT * self.progress() - self._paid
            self._paid += reward
        obs = text if self.render_mode == "text" else self._illustrated(text)
        return _step((obs, reward, over, False, info))

    def epilogue(self) -> str:
        """Return what the last observation adds when the turns are used up."""
        return "No turns are left."

    def sample_random_action(self) -> str:
        """Return a legal answer, before the first reset one of any episode; see Env.sample_random_action."""
        if self._phase == _NEW:
            other = self.spawn()
            other.reset(self.seed)
            return other.sample_random_action()
        return f"\\boxed{{{self.random_move()}}}"

    def solve(self) -> str:
        """Return the expert's answer; see Env.solve."""
        return f"\\boxed{{{self.expert_move()}}}"

    def _unreadable(self) -> Step:
        info = {"success": False, "stop": _UNREADABLE, "legal": False}
        text = f"Your answer could not be read. {self.answer_form()}"
        obs = text if self.render_mode == "text" else self._illustrated(text)
        return Step(obs, UNREADABLE_REWARD, True, False, info)

    def answer_form(self) -> str:
        r"""Return the sentence that says what an answer looks like."""
        return "Give your move inside \\boxed{}."


def integer(text: str) -> int:
    """Return the integer that `text` plainly is: ASCII digits with an optional sign.

    Raises:
        ValueError: for anything else, ``1_0`` and other scripts' digits included.
    """
    if not text.isascii() or "_" in text:
        raise ValueError
    return int(text)


def numerals(text: str) -> list[str]:
    """Return the numerals in `text`: set apart by spaces or commas, or else a digit each.

    >>> numerals("1 2 3") == numerals("1, 2, 3") == numerals("123")
    True

    Raises:
        ValueError: for anything else.
    """
    found = text.replace(",", " ").split()
    if not text.isascii() or not "".join(found).isdigit():
        raise ValueError
    return found if len(found) > 1 else list(found[0])


def direction(text: str) -> str:
    """Return the one of DIRECTIONS that `text` names; its first letter will do.

    Raises:
        ValueError: for anything else.
    """
    found = _NAMED.get(text.lower())
    if found is None:
        raise ValueError
    return found
