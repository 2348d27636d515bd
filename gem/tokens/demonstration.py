"""Demonstrations: token ids for episodes that were played as text, by a random actor, a solver or a human."""

from __future__ import annotations

from dataclasses import replace

from gem.history import messages
from gem.record import SEAT, Episode, Turn
from gem.tokens.renderer import Renderer


def tokenise(episode: Episode, renderer: Renderer, seat: str = SEAT) -> Episode:
    """Return the episode with the tokens of a seat's turns, as `renderer` would show and write them.

    The episode must have been played with the whole history as a chat. Log probabilities are 0: nobody
    sampled these tokens.
    """
    turns: list[Turn] = []
    held: tuple[int, ...] = ()
    mine: list[Turn] = []
    for turn in episode.turns:
        if turn.agent != seat:
            turns.append(turn)
            continue
        # What a turn's info holds was said after it; the text around its observation is not recorded.
        mine.append(replace(turn, info={}))
        shown = messages(mine)
        prompt = (*held, *renderer.delta(held, shown[-1:])) if held else renderer.prompt(shown)
        answer = renderer.answer(turn.action or "")
        turns.append(
            replace(
                turn,
                prompt_ids=prompt,
                token_ids=answer,
                logprobs=(0.0,) * len(answer),
                mask=(1,) * len(answer),
            )
        )
        held = prompt + answer
    return replace(episode, turns=turns)
