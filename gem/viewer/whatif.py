"""What-if episodes: replay a stored episode up to a turn, then play typed actions or let an agent go on.

Nothing is kept between two requests: each time, the first turns are replayed from the episode's seed, then
the typed actions are played. The environment runs in its own process, where a call that takes too long is
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from gem import registry
from gem.agents.random import RandomAgent
from gem.agents.scripted import ScriptedAgent
from gem.agents.solver import SolverAgent
from gem.errors import BadArgument, UnknownEnv, check_argument, refuse_first
from gem.hosts import Host
from gem.record import Agent, Ask, Episode, Limits, Reply, StopReason
from gem.rollout.episode import Branch
from gem.rollout.jobs import Job, spec_of
from gem.rollout.runner import rollout

AGENTS = {"": "nobody: stop there", "random": "random legal actions", "solver": "the environment's solver"}
"""Who plays on after the typed actions."""
TYPED = 50
"""The most actions that can be typed one after another."""
LONGEST = 10_000
"""The most characters of a typed action."""
MORE_TURNS = 100
"""The most turns played after the stored ones."""
CALL_S = 3.0
"""The most seconds of one environment call."""

_one_at_a_time = Lock()


def check_what_if(episode: Episode) -> registry.EnvSpec:
    """Check that an episode can be continued from one of its turns; return its environment's spec.

    Raises:
        BadArgument: when it cannot, with the reason.
    """
    if episode.task.opaque or episode.task.seed is None:
        raise BadArgument("The episode's task was not stored in full, so it cannot be played again.")
    try:
        spec = spec_of(registry.accept_task(episode.task))
    except UnknownEnv as unknown:
        raise BadArgument(str(unknown)) from None
    assert spec is not None
    if spec.waits or not spec.deterministic:
        raise BadArgument(
            f"{spec.id} uses outside resources, or is not determined by its seed: its episodes cannot be "
            "played again here."
        )
    return spec


def what_if(
    episode: Episode,
    turn: int,
    typed: Sequence[str],
    agent: str = "",
    *,
    host: str | Host = "process",
) -> Episode:
    """Return a new episode: the first turns of a stored one, then other actions.

    Args:
        episode: the stored episode.
        turn: how many of its turns to keep.
        typed: the actions that follow.
        agent: who plays on after them to the end: ``random``, ``solver``, or "" for nobody.
        host: where the environment runs.

    Raises:
        BadArgument: when the episode cannot be continued, or there are too many or too long actions.
    """
    spec = check_what_if(episode)
    count = len(episode.turns)
    check_argument("turn", turn, 0 <= turn <= count, f"0 to {count}, the turns of the episode")
    check_argument("agent", agent[:40], agent in AGENTS, "random, solver, or nobody")
    refuse_first(
        (
            len(typed) > TYPED or any(len(action) > LONGEST for action in typed),
            f"accepted: {TYPED} actions of {LONGEST:,} characters at most.",
        ),
        (
            not typed and not agent,
            "There is nothing to play: type an action, or choose who plays on.",
        ),
        (agent == "solver" and spec.solver == "none", f"{episode.task.spec} has no solver."),
    )
    if not _one_at_a_time.acquire(timeout=CALL_S):
        raise BadArgument("Another what-if is running; try again when it has ended.")
    try:
        actions = list(typed)
        forked = episode
        if actions:
            script = ScriptedAgent(lambda ask: _next(ask, actions))
            forked = _play_on(forked, turn, script, turn + len(typed), host)
            turn = len(forked.turns)
        if agent and (forked is episode or forked.stop is StopReason.TURN_LIMIT):
            player: Agent = RandomAgent() if agent == "random" else SolverAgent()
            forked = _play_on(forked, turn, player, turn + MORE_TURNS, host)
        return forked
    finally:
        _one_at_a_time.release()


def _next(ask: Ask, actions: list[str]) -> Reply:
    if not actions:
        raise BadArgument(f"{ask.seat} must act at this moment too; type an action for each seat.")
    return Reply(actions.pop(0))


def _play_on(episode: Episode, turn: int, agent: Agent, turns: int, host: str | Host) -> Episode:
    # The stored agent's limits do not apply to typed actions; the environment's own limits do.
    start = Branch(replace(episode, error=None), turn)
    job = Job(
        episode.task, episode.seed, key="what-if", start=start, limits=Limits(turns=turns, call_s=CALL_S)
    )
    (played,) = rollout([job], agent, host=host, retries=0, limits=Limits(call_s=CALL_S))
    return played
