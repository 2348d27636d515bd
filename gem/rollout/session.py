"""A session at a terminal: one episode, played by a human, for `gem-gym play`."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from gem.agents.human import HumanAgent
from gem.content import printable
from gem.core import Step
from gem.envs.multiagent import MultiStep
from gem.record import Agent, Ask, Call, Episode, Limits, Reply
from gem.registry import make
from gem.rollout.play import NO_LIMITS, play


def session(
    env_id: str,
    seed: int,
    *,
    limits: Limits = NO_LIMITS,
    others: Mapping[str, Agent] | None = None,
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
        others: who holds the seats that the human does not, by seat; the human holds the rest.
        stdin: where answers come from; the terminal by default.
        stdout: where everything is shown; the terminal by default.
        **kwargs: change the environment's keywords.

    Raises:
        GemError: when the environment cannot be made.
    """
    human = HumanAgent(stdin, stdout)
    others = others or {}
    verbs = {seat: verb for seat, agent in others.items() if (verb := getattr(agent, "verb", None))}

    def answer(ask: Ask) -> Reply:
        holder = others.get(ask.agent, human)
        if holder is human and several:
            human.say(f"[{ask.agent}]")
        return holder([ask])[0]

    with make(env_id, **kwargs) as env:
        several = len(env.spec.seats) > 1 if env.spec else False
        playing = play(env, seed, limits, actor=verbs or None)
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
                    elif isinstance(value, MultiStep):
                        for seat, reward in value.rewards.items():
                            human.say(f"[reward {reward:g} of {seat}]")
                        human.say("")
                else:
                    value = tuple(map(answer, wanted))
            except KeyboardInterrupt:
                resume, value = playing.throw, CancelledError()
            except (Exception, CancelledError) as error:
                resume, value = playing.throw, error
    if episode.scored:  # else it stands on the screen already
        for seat, last in episode.ends.items():
            if seat not in others:
                human.say(f"[{seat}]\n{printable(last.observation)}\n")
        if not episode.ends:
            human.say(f"{printable(episode.final_observation)}\n")
    human.say(_summary(episode))
    return episode


def _summary(episode: Episode) -> str:
    turns = f"after {len(episode.turns)} turn{'s' * (len(episode.turns) != 1)}"
    if episode.error is not None:
        return f"No verdict {turns}: {episode.error.type}: {printable(episode.error.message)}"
    if not episode.scored:
        return f"Stopped {turns}."
    if episode.ends:
        each = (
            f"{seat}: {end.stop.value}, return {episode.reward(seat):g}" for seat, end in episode.ends.items()
        )
        return "\n".join((f"{episode.stop.value} {turns}", *each))
    return f"{episode.stop.value} {turns}, return {episode.reward():g}"
