"""Episodes to training rows: the tokens as the model saw and sampled them, never made again from text."""

from __future__ import annotations

from dataclasses import dataclass

from gem.errors import BadArgument
from gem.record import SEAT, Episode, Turn


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence to train on; the four run in parallel, one entry per token.

    `mask`: 1 on sampled tokens that a trainer learns on, else 0. `logprobs`: of sampled tokens under the
    policy that sampled them, else 0. `turn`: the number of the turn, among its seat's, that sampled the
    token, else -1.
    """

    ids: tuple[int, ...] = ()
    mask: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    turn: tuple[int, ...] = ()

    def first(self, tokens: int | None) -> Row:
        """Return the row's first `tokens` tokens; None: all."""
        return Row(self.ids[:tokens], self.mask[:tokens], self.logprobs[:tokens], self.turn[:tokens])


def rows(episode: Episode, seat: str = SEAT) -> list[Row]:
    """Return the training rows of a seat's turns.

    A turn whose prompt begins with all that the row holds extends it; any other turn starts a new row. So
    an append-only conversation is one row, and each sampled token stands in one row, once, behind exactly
    the tokens it was sampled behind. Rows without a token to learn on are left out.

    Raises:
        BadArgument: for a turn without tokens, or with a number of log probabilities or mask entries that
            is not the number of its tokens.
    """
    made = [Row()]
    for number, turn in enumerate(episode.turns_of(seat)):
        _check(episode, number, turn)
        row = made.pop()
        if turn.prompt_ids[: len(row.ids)] != row.ids:
            made.append(row)
            row = Row()
        fresh = turn.prompt_ids[len(row.ids) :]
        made.append(
            Row(
                ids=row.ids + fresh + turn.token_ids,
                mask=row.mask + (0,) * len(fresh) + turn.mask,
                logprobs=row.logprobs + (0.0,) * len(fresh) + turn.logprobs,
                turn=row.turn + (-1,) * len(fresh) + (number,) * len(turn.token_ids),
            )
        )
    return [row for row in made if any(row.mask)]


def _check(episode: Episode, number: int, turn: Turn) -> None:
    where = f"episode {episode.id!r}, turn {number} of {turn.agent!r}"
    if not turn.prompt_ids:
        raise BadArgument(
            f"{where} has no prompt_ids; training rows need an agent that returns its tokens, "
            "such as a local model."
        )
    if not len(turn.token_ids) == len(turn.logprobs) == len(turn.mask):
        raise BadArgument(
            f"{where} has {len(turn.token_ids)} token_ids, {len(turn.logprobs)} logprobs and "
            f"{len(turn.mask)} mask entries; each sampled token needs one of each."
        )
