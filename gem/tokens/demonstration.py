"""Demonstrations: token ids for episodes that were played as text, by a random actor, a solver or a human."""

from __future__ import annotations

from dataclasses import replace

from gem.content import Message, ToolSpec, check_pictures, tools_in
from gem.history import messages
from gem.record import SEAT, Episode, Turn
from gem.tokens.renderer import READER, Renderer, knows_tools


def tokenise(episode: Episode, renderer: Renderer, seat: str = SEAT) -> Episode:
    """Return the episode with the tokens of a seat's turns, as `renderer` renders them.

    The episode must have been played with the whole history as a chat. Log probabilities are 0, because no
    model sampled these tokens. Native calls are written as the renderer writes them; where it knows no tools,
    they are text.

    Raises:
        BadArgument: for a first observation with a picture that no text describes.
    """
    turns = list(episode.turns)
    exchanges = episode.exchanges(seat)
    check_pictures((each.observation for each in exchanges[:1]), READER)
    offered: tuple[tuple[ToolSpec, ...], ...] = ()
    history: tuple[Message, ...] = ()
    ids: tuple[int, ...] = ()
    last: list[Turn] = []
    places = [place for place, turn in enumerate(turns) if turn.seat == seat]
    for number, place in enumerate(places):
        before, history = history, messages(exchanges[: number + 1])
        if knows_tools(renderer) and (tools := tools_in(exchanges[number].info)) and (tools,) != offered:
            offered, ids = (tools,), ()
        if ids and history[: len(before)] == before:
            prompt = (*ids, *renderer.delta(ids, history[len(before) + 1 :], *offered))
        else:  # the first turn, or one behind other tools or text that stood around the last observation
            prompt = renderer.prompt(history, *offered)
        reply = turns[place].reply
        if offered and reply is not None and reply.tool_calls:
            answer = renderer.answer(reply.text, reply.tool_calls)
        else:
            answer = renderer.answer(turns[place].action or "")
        turns[place] = replace(turns[place])
        turns[place].hold(prompt, answer, (0.0,) * len(answer), after=last)
        last, ids = [turns[place]], prompt + answer
    return replace(episode, turns=turns)
