"""A seat's side of an episode: its turns, what it is shown next, and the tokens it holds.

`gem.rollout.play` keeps one per seat; the wrapper that plays the other seats of a game keeps one for each
of those. So there is one way from observations to an Ask, and from a Reply to a Turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gem import seeding
from gem.content import Message, Obs
from gem.errors import BadArgument
from gem.history import CHAT, HistoryPolicy, messages
from gem.record import Ask, Reply, Turn


class Dialogue:
    """What one seat was shown and answered, from its first turn on."""

    __slots__ = ("_held", "_shown", "agent", "episode", "policy", "sample", "seed", "turns")

    def __init__(
        self,
        agent: str,
        episode: str,
        seed: int,
        sample: int = 0,
        policy: HistoryPolicy = CHAT,
        turns: list[Turn] | None = None,
    ) -> None:
        """Begin a dialogue.

        Args:
            agent: the seat.
            episode: the id by which agents keep caches.
            seed: the episode's.
            sample: numbers the samples of one seed; each has seeds of its own for its answers.
            policy: which past turns are shown.
            turns: the list that turns are kept in; a new one when left out.
        """
        self.agent, self.episode, self.seed, self.sample, self.policy = agent, episode, seed, sample, policy
        self.turns: list[Turn] = [] if turns is None else turns
        self._shown: tuple[Message, ...] = ()
        self._held: tuple[int, ...] = ()

    def open(self, obs: Obs, info: dict[str, Any]) -> Turn:
        """Begin a turn: `info` is what came with the observation; its prefix and suffix stand around it."""
        turn = Turn(self.agent, obs, info=info)
        self.turns.append(turn)
        return turn

    def ask(self, max_tokens: int | None = None, context: int | None = None) -> Ask:
        """Return the question that the open turn puts to its agent."""
        self._shown, extends = _show(self.turns, self.policy, self._shown)
        if not extends:
            self._held = ()
        held, number = self._held, len(self.turns) - 1
        return Ask(
            self.episode,
            self.agent,
            number,
            self._shown,
            held,
            1 if held else len(self._shown),
            seeding.derive(self.seed, "sample", self.sample, self.agent, number),
            max_tokens,
            context,
        )

    def answer(self, reply: Reply) -> int:
        """Enter a reply's tokens into the open turn, and return how many were generated.

        The turn's action is the caller's to set.

        Raises:
            BadArgument: for anything but a Reply whose tokens and log probabilities fit.
        """
        _check(reply)
        turn = self.turns[-1]
        turn.prompt_ids, turn.token_ids, turn.logprobs = reply.prompt_ids, reply.token_ids, reply.logprobs
        turn.mask = (1,) * len(reply.token_ids)
        turn.finish = reply.finish
        self._held = reply.prompt_ids + reply.token_ids
        return len(reply.token_ids) or reply.info.get("completion_tokens", 0)


def _check(reply: Reply) -> None:
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise BadArgument(f"the agent answered {reply!r:.80}; an answer is a Reply whose text is a str.")
    if reply.logprobs and len(reply.logprobs) != len(reply.token_ids):
        raise BadArgument(
            f"the agent's reply has {len(reply.token_ids)} token_ids and {len(reply.logprobs)} logprobs; "
            "one logprob per sampled token, or none at all."
        )
    if not all(map(math.isfinite, reply.logprobs)):
        raise BadArgument(
            "the agent's reply has logprobs that are not finite; a sampled token has a finite one."
        )


def _show(
    turns: Sequence[Turn], policy: HistoryPolicy, before: tuple[Message, ...]
) -> tuple[tuple[Message, ...], bool]:
    """Return ``messages(turns, policy)``, and whether the prompt `before` and its answer begin it.

    An append-only prompt grows by its tail, so that a long episode costs no more per turn than a short one.
    It stops being append-only where the last observation was shown with text around it that is gone now.
    """
    if not policy.append_only or not before:
        return messages(turns, policy), False
    tail = messages(turns[-2:])
    return before[:-1] + tail, before[-1] == tail[0]
