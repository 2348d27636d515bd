"""Play one episode with a human at a terminal, for `gem-gym play`."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any, TextIO

from gem.agents.human import HumanAgent
from gem.content import printable
from gem.core import Step
from gem.envs.seats.seated_env import MultiStep
from gem.record import Agent, Ask, Call, Episode, Limits, Reply
from gem.registry import make
from gem.rollout.conversation import carry_out, drive, verbs_of
from gem.rollout.episode import NO_LIMITS, is_left, play


def play_session(
    env_id: str,
    seed: int,
    *,
    limits: Limits = NO_LIMITS,
    others: Mapping[str, Agent] | None = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    **kwargs: Any,
) -> Episode:
    """Play one episode with a human: print observations and rewards, read answers, print the result.

    The end of the input and Ctrl-C cancel the episode.

    Args:
        env_id: the id of the environment.
        seed: the seed of the episode.
        limits: limits from outside the task.
        others: the agents of the other seats, by seat; the human plays the rest.
        stdin: the stream to read answers from; the terminal by default.
        stdout: the stream to print to; the terminal by default.
        **kwargs: change the environment's keywords.

    Raises:
        GemError: when the environment cannot be made.
    """
    human = HumanAgent(stdin, stdout)
    others = others or {}

    def answer(ask: Ask) -> Reply:
        agent = others.get(ask.seat, human)
        if agent is human and several:
            human.say(f"[{ask.seat}]")
        return agent([ask])[0]

    def answers(asks: tuple[Ask, ...]) -> tuple[Reply, ...]:
        try:
            return tuple(map(answer, asks))
        except KeyboardInterrupt:
            raise CancelledError from None

    def call(request: Call) -> Any:
        try:
            value = carry_out(request)
        except KeyboardInterrupt:
            raise CancelledError from None
        if isinstance(value, Step | MultiStep):
            human.say(_write_rewards(value))
        return value

    with make(env_id, **kwargs) as env:
        several = len(env.spec.seats) > 1 if env.spec else False
        episode = drive(play(env, seed, limits, actor=verbs_of(others) or None), call, answers)
    if episode.scored:  # else it is on the screen already
        for seat, end in episode.ends.items():
            if seat not in others:
                title = f"[{seat}]\n" if episode.several else ""
                human.say(f"{title}{printable(end.observation)}\n")
    human.say(describe_end(episode))
    return episode


def _write_rewards(step: Step | MultiStep) -> str:
    """Return the rewards of a step as lines."""
    if isinstance(step, Step):
        return f"[reward {step.reward:g}]\n"
    return "".join(f"[reward {reward:g} of {seat}]\n" for seat, reward in step.rewards.items())


def describe_end(episode: Episode) -> str:
    """Return how an episode ended, in one line for all and one for each of several seats."""
    turns = f"after {len(episode.turns)} turn{'s' * (len(episode.turns) != 1)}"
    if (error := episode.error) is not None:
        return f"No verdict {turns}: {error.type} in {error.boundary}: {printable(error.message)}"
    if not episode.scored:
        return f"Stopped {turns}."
    if episode.several:
        each = (
            f"{seat}: {end.stop.value}, return {episode.reward(seat):g}" for seat, end in episode.ends.items()
        )
        return "\n".join((f"{episode.stop.value} {turns}", *each))
    if is_left(episode):
        return f"Left unfinished by the program {turns}, return {episode.reward():g}"
    return f"{episode.stop.value} {turns}, return {episode.reward():g}"
