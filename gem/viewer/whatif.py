"""What if: a stored episode up to a turn, then other actions, by hand or by the environment's own player.

Nothing is kept between two requests: the beginning is played again from the episode's seed each time, then
what was typed. The environment lives in a process of its own, in which a call that takes too long is ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from gem import registry
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument
from gem.hosts import Host
from gem.record import Agent, Ask, Episode, Limits, Reply, StopReason
from gem.rollout.episode import Branch
from gem.rollout.replay import check_known
from gem.rollout.runner import Job, rollout

AGENTS = {"": "nobody: stop there", "random": "random legal actions", "solver": "the environment's solver"}
"""Who goes on behind what was typed."""
TYPED = 50
"""Actions that can be typed in a row."""
LONGEST = 10_000
"""Characters of a typed action."""
MORE_TURNS = 100
"""Turns that are played behind the stored ones at most."""
CALL_S = 3.0
"""Seconds that one call of the environment may take."""

_one_at_a_time = Lock()


def check_what_if(episode: Episode) -> None:
    """Refuse an episode that is not played on from the middle.

    Raises:
        BadArgument: with the reason.
    """
    if episode.task.opaque or episode.task.seed is None:
        raise BadArgument("The episode's task was not written down in full, so it cannot be played again.")
    check_known(episode.task)
    spec = registry.spec(episode.task.spec)
    if spec.waits or not spec.deterministic:
        raise BadArgument(
            f"{spec.id} works with what stands outside of it, or does not follow from its seed: its episodes "
            "are not played again here."
        )


def what_if(
    episode: Episode,
    turn: int,
    typed: Sequence[str],
    agent: str = "",
    *,
    host: str | Host = "process",
) -> Episode:
    """Return an episode that begins with the first turns of another one and goes on with other actions.

    Args:
        episode: the stored one.
        turn: how many of its turns stay.
        typed: the actions that follow.
        agent: who goes on behind them until the end: ``random``, ``solver``, or "" for nobody.
        host: where the environment lives.

    Raises:
        BadArgument: for what cannot be played on, or too much of it.
    """
    check_what_if(episode)
    if not 0 <= turn <= len(episode.turns):
        raise BadArgument(f"turn is {turn}; accepted: 0 to {len(episode.turns)}, the turns of the episode.")
    if agent not in AGENTS:
        raise BadArgument(f"agent is {agent!r:.40}; accepted: random, solver, or nobody.")
    if len(typed) > TYPED or any(len(action) > LONGEST for action in typed):
        raise BadArgument(f"accepted: {TYPED} actions of {LONGEST:,} characters at most.")
    if not typed and not agent:
        raise BadArgument("There is nothing to play: type an action, or name somebody who goes on.")
    if agent == "solver" and registry.spec(episode.task.spec).solver == "none":
        raise BadArgument(f"{episode.task.spec} has no solver.")
    if not _one_at_a_time.acquire(timeout=CALL_S):
        raise BadArgument("Another what-if is being played; try again when it has ended.")
    try:
        actions = list(typed)
        forked = episode
        if actions:
            script = ScriptedAgent(lambda ask: _next(ask, actions))
            forked = _played(forked, turn, script, turn + len(typed), host)
            turn = len(forked.turns)
        if agent and (forked is episode or forked.stop is StopReason.TURN_LIMIT):
            player: Agent = RandomAgent() if agent == "random" else SolverAgent()
            forked = _played(forked, turn, player, turn + MORE_TURNS, host)
        return forked
    finally:
        _one_at_a_time.release()


def _next(ask: Ask, actions: list[str]) -> Reply:
    if not actions:
        raise BadArgument(f"{ask.seat} is to act too at this moment; type an action for each.")
    return Reply(actions.pop(0))


def _played(episode: Episode, turn: int, agent: Agent, turns: int, host: str | Host) -> Episode:
    # Limits of the agent's own do not bind the hand that types; the environment's are part of it.
    start = Branch(replace(episode, error=None), turn)
    job = Job(
        episode.task, episode.seed, key="what-if", start=start, limits=Limits(turns=turns, call_s=CALL_S)
    )
    (played,) = rollout([job], agent, host=host, retries=0, limits=Limits(call_s=CALL_S))
    return played
