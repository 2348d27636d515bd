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
from gem.rollout.forks import TurnValue, turn_values
from gem.rollout.jobs import Job, spec_of
from gem.rollout.runner import Runner, rollout

AGENTS = {"": "nobody: stop there", "random": "random legal actions", "solver": "the environment's solver"}
"""Who plays on after the typed actions."""
TYPED = 50
"""The most actions that can be typed one after another."""
LONGEST = 10_000
"""The most characters of a typed action."""
MORE_TURNS = 100
"""The most turns played after the stored ones."""
VALUED_TURNS = 20
"""The most turns of an episode of which the page computes values."""
SAMPLES = 16
"""How often an agent plays on from each turn for its value."""
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
            forked = _play_on(forked, turn, make_player(agent), turn + MORE_TURNS, host)
        return forked
    finally:
        _one_at_a_time.release()


def value_turns(episode: Episode, agent: str, *, host: str | Host = "process") -> list[TurnValue]:
    """Return the value of each turn of an episode, if an agent plays on from there `SAMPLES` times.

    Args:
        episode: the stored episode.
        agent: ``random`` or ``solver``.
        host: where the environment runs.

    Raises:
        BadArgument: when the episode cannot be continued, has several seats, or too many turns.
    """
    spec = check_what_if(episode)
    check_argument("agent", agent[:40], agent in ("random", "solver"), "random or solver")
    refuse_first(
        (
            not 0 < len(episode.turns) <= VALUED_TURNS,
            f"The episode has {len(episode.turns)} turns; accepted here: 1 to {VALUED_TURNS}. "
            "`gem-gym value RUN EPISODE --keep` computes the values of longer ones.",
        ),
        (agent == "solver" and spec.solver == "none", f"{episode.task.spec} has no solver."),
    )
    if not _one_at_a_time.acquire(timeout=CALL_S):
        raise BadArgument("Another what-if is running; try again when it has ended.")
    try:
        limits = Limits(turns=len(episode.turns) + MORE_TURNS, call_s=CALL_S)
        with Runner(make_player(agent), host=host, retries=0, limits=limits) as runner:
            return turn_values(episode, runner, SAMPLES)
    finally:
        _one_at_a_time.release()


def make_player(agent: str) -> Agent:
    """Return who plays on: ``random`` or ``solver``."""
    return RandomAgent() if agent == "random" else SolverAgent()


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
