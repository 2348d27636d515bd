"""A session at a terminal: one episode, played by a human, for `gem-gym play`."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from typing import Any, TextIO

from gem.agents.human import HumanAgent
from gem.content import printable
from gem.core import Step
from gem.record import Call, Episode, Limits
from gem.registry import make
from gem.rollout.play import NO_LIMITS, play


def session(
    env_id: str,
    seed: int,
    *,
    limits: Limits = NO_LIMITS,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    **kwargs: Any,
) -> Episode:
    """Play one episode with a human: show each observation and reward, read the answers, say how it ended.

    The end of the input and Ctrl-C cancel the episode.

    Args:
        env_id: the environment.
        seed: the episode.
        limits: limits from outside.
        stdin: where answers come from; the terminal by default.
        stdout: where everything is shown; the terminal by default.
        **kwargs: change the environment's keywords.

    Raises:
        GemError: when the environment cannot be made.
    """
    human = HumanAgent(stdin, stdout)
    with make(env_id, **kwargs) as env:
        playing = play(env, seed, limits)
        resume: Callable[[Any], Any] = playing.send
        value: Any = None
        while True:
            try:
                wanted = resume(value)
            except StopIteration as end:
                episode: Episode = end.value
                break
            resume = playing.send
            try:
                if isinstance(wanted, Call):
                    value = getattr(env, wanted.verb)(*wanted.args)
                    if isinstance(value, Step):
                        human.say(f"[reward {value.reward:g}]\n")
                else:
                    value = tuple(human(wanted))
            except KeyboardInterrupt:
                resume, value = playing.throw, CancelledError()
            except (Exception, CancelledError) as error:
                resume, value = playing.throw, error
    if episode.scored:  # else it stands on the screen already
        human.say(f"{printable(episode.final_observation)}\n")
    human.say(_summary(episode))
    return episode


def _summary(episode: Episode) -> str:
    turns = f"after {len(episode.turns)} turn{'s' * (len(episode.turns) != 1)}"
    if episode.error is not None:
        return f"No verdict {turns}: {episode.error.type}: {printable(episode.error.message)}"
    if not episode.scored:
        return f"Stopped {turns}."
    return f"{episode.stop.value} {turns}, return {episode.reward():g}"
