"""Training rows of episodes: the tokens that the model saw and sampled, never made again from text."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from gem.errors import BadArgument
from gem.record import SEAT, Episode, Turn


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence to train on: four parallel sequences, with one entry per token.

    `mask`: 1 on sampled tokens that a trainer learns from, else 0. `logprobs`: of sampled tokens under the
    policy that sampled them, NaN where they are not known; else 0. `turn`: the number of the turn, among its
    seat's, that sampled the token, else -1. A row without tokens only fills a batch that must have a certain
    size.
    """

    ids: Sequence[int] = ()
    mask: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    turn: Sequence[int] = ()

    @property
    def learnt(self) -> list[int]:
        """The positions of the tokens that a trainer learns from."""
        return [at for at, learn in enumerate(self.mask) if learn]

    @property
    def ends(self) -> dict[int, int]:
        """The position of the last token that each turn sampled, by the turn's number."""
        return {turn: at for at, turn in enumerate(self.turn) if turn >= 0}

    def first(self, tokens: int | None) -> Row:
        """Return the row's first `tokens` tokens; None: all."""
        return Row(self.ids[:tokens], self.mask[:tokens], self.logprobs[:tokens], self.turn[:tokens])

    def split(self) -> tuple[Row, Row]:
        """Return prompt and completion: the tokens before the first sampled one, and the rest."""
        at = next((i for i, turn in enumerate(self.turn) if turn >= 0), len(self.ids))
        rest = Row(self.ids[at:], self.mask[at:], self.logprobs[at:], self.turn[at:])
        return self.first(at), rest


BLANK = Row()
"""A row without tokens: nothing is learnt from it."""


def rows(episode: Episode, seat: str = SEAT) -> list[Row]:
    """Return the training rows of a seat's turns, in the order in which they begin.

    A turn whose prompt extends its parent's prompt and answer continues the parent's row. Any other turn
    begins a new row, as does a second turn after the same parent. So an append-only conversation is one row,
    and each branch of several conversations is one. Each sampled token is learnt in one row, once, after
    exactly the tokens it was sampled after. Rows without a token to learn from are left out. Time and memory
    are linear in the tokens of the rows.

    Raises:
        BadArgument: for a turn without tokens.
    """
    made: list[_Growing] = []
    ending: dict[int, _Growing] = {}  # by the turn that a row ends with
    for number, turn in enumerate(episode.turns_of(seat)):
        if not turn.prompt_length:
            raise BadArgument(
                f"episode {episode.id!r}, turn {number} of {turn.seat!r} has no prompt_ids; training rows "
                "need an agent that returns its tokens, such as a local model."
            )
        parent = turn.parent
        row = None
        if parent is not None and turn.kept == parent.prompt_length + len(parent.token_ids):
            row = ending.pop(id(parent), None)
        if row is None:
            row = _Growing()
            made.append(row)
            row.show(turn.prompt_ids)
        else:
            row.show(turn.new_ids)
        row.sample(turn, number)
        ending[id(turn)] = row
    return [Row(row.ids, row.mask, row.logprobs, row.turn) for row in made if 1 in row.mask]


class _Growing:
    """A row in the making."""

    __slots__ = ("ids", "logprobs", "mask", "turn")

    def __init__(self) -> None:
        self.ids, self.mask, self.logprobs, self.turn = array("i"), array("b"), array("f"), array("i")

    def show(self, ids: Sequence[int]) -> None:
        """Add tokens that the model was shown."""
        count = len(ids)
        self.ids.extend(ids)
        self.mask.frombytes(bytes(count))
        self.logprobs.frombytes(bytes(4 * count))
        self.turn.extend(_NONE * count)

    def sample(self, turn: Turn, number: int) -> None:
        """Add the tokens that the model sampled."""
        count = len(turn.token_ids)
        self.ids.extend(turn.token_ids)
        self.mask.frombytes(turn.mask)
        self.logprobs.extend(_UNKNOWN * count if turn.logprobs is None else turn.logprobs)
        self.turn.extend(array("i", (number,)) * count)


_NONE = array("i", (-1,))
_UNKNOWN = array("f", (nan,))
