"""Demonstrations: token ids for episodes that were played as text, by a random actor, a solver or a human."""

from __future__ import annotations

from dataclasses import replace

from gem.content import Message
from gem.history import messages
from gem.record import SEAT, Episode, Turn
from gem.tokens.renderer import Renderer


def tokenise(episode: Episode, renderer: Renderer, seat: str = SEAT) -> Episode:
    """Return the episode with the tokens of a seat's turns, as `renderer` would show and write them.

    The episode must have been played with the whole history as a chat. Log probabilities are 0: nobody
    sampled these tokens.
    """
    turns = list(episode.turns)
    mine = episode.exchanges(seat)
    shown: tuple[Message, ...] = ()
    held: tuple[int, ...] = ()
    last: list[Turn] = []
    places = [place for place, turn in enumerate(turns) if turn.seat == seat]
    for number, place in enumerate(places):
        before, shown = shown, messages(mine[: number + 1])
        if held and shown[: len(before)] == before:
            prompt = (*held, *renderer.delta(held, shown[-1:]))
        else:  # the first turn, or one behind text that stood around the last observation
            prompt = renderer.prompt(shown)
        answer = renderer.answer(turns[place].action or "")
        turns[place] = replace(turns[place])
        turns[place].hold(prompt, answer, (0.0,) * len(answer), after=last)
        last, held = [turns[place]], prompt + answer
    return replace(episode, turns=turns)
