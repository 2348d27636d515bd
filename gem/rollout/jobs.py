"""Job and Trial: an episode to play, and one attempt at it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from gem import registry, seeding
from gem.agents.seats import SeatAgents
from gem.errors import BadArgument, NoVerdict
from gem.history import HistoryPolicy
from gem.naming import is_path
from gem.record import Agent, Episode, Limits, RunInfo
from gem.rollout.episode import Branch
from gem.rollout.places import Recipe
from gem.specs import TaskRef

Agents: TypeAlias = "Agent | Mapping[str, Agent]"
"""One agent for every seat, or a mapping from seats to agents."""


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play: an environment and a seed.

    `env`: an id, a TaskRef, a Maker, or any callable that makes an environment. `group`: the name that the
    samples of one task share; `sample`: the number of this sample. `limits`, `history` and `agents` replace
    those of the runner, except `call_s`, which belongs to the host. `salt`: another salt gives other sampling
    seeds for the same seed and sample. `key`: the job's name in its episode's id; by default a hash of the
    other fields and the number among equal jobs of the runner, the same after a restart. `start`: start after
    the first turns of another episode.
    """

    env: Recipe | TaskRef
    seed: int
    group: str = ""
    sample: int = 0
    limits: Limits | None = None
    history: HistoryPolicy | None = None
    agents: Agents | None = None
    salt: int = 0
    key: str = ""
    start: Branch | None = None

    def __post_init__(self) -> None:
        """Refuse values with which no episode can start."""
        object.__setattr__(self, "seed", seeding.check(self.seed))
        if is_path(self.env):  # the file as it is now, in every attempt
            object.__setattr__(self, "env", registry.spec_named(str(self.env)).id)
        if isinstance(self.env, TaskRef):
            object.__setattr__(self, "env", registry.accept_task(self.env))
        if not isinstance(self.env, str | TaskRef) and not callable(self.env):
            raise BadArgument(
                f"env is {self.env!r:.80}; accepted: an id, a TaskRef, a Maker, or a callable that makes an "
                "environment (one environment cannot play two episodes at a time)."
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """One attempt at a job.

    `number`: the job's number among those of its runner. `attempt`: the number of earlier attempts. `alone`:
    play it in a separate worker, as it may have killed the last one. `run`: its run, if the driver on another
    machine has set it.
    """

    job: Job
    agent: Agent
    key: str
    number: int
    attempt: int = 0
    alone: bool = False
    run: RunInfo | None = None

    def retry(self, episode: Episode, retries: int) -> Trial | None:
        """Return the next attempt, if infrastructure broke this one and `retries` last; else None."""
        error = episode.error
        if error is None or self.attempt >= retries:
            return None
        if error.boundary == "host":
            return replace(self, attempt=self.attempt + 1, alone=True)
        no_verdict = error.type in _names_of(NoVerdict) if error.no_verdict is None else error.no_verdict
        if error.boundary == "env" and no_verdict:
            return replace(self, attempt=self.attempt + 1)
        return None


def _names_of(error: type[Exception]) -> set[str]:
    """Return the names of an error class and its subclasses; earlier versions stored only the name."""
    return {error.__name__}.union(*map(_names_of, error.__subclasses__()))


def seat_agents(agent: Agents) -> Agent:
    """Return one agent for all seats.

    Raises:
        BadArgument: for an object that is no agent.
    """
    if isinstance(agent, Mapping):
        return SeatAgents(agent)
    if isinstance(agent, type) or not isinstance(agent, Agent):
        by_name = f" gem.agents.named.make_agent({agent!r:.80}) makes one by its name." * isinstance(
            agent, str
        )
        raise BadArgument(
            f"the agent is {agent!r:.80}; accepted: an Agent, or a mapping from seats to agents.{by_name}"
        )
    return agent


def spec_of(recipe: Recipe) -> registry.EnvSpec | None:
    """Return the spec of a recipe, or None if it is a plain callable.

    Raises:
        UnknownEnv: for an id that is not registered.
    """
    if isinstance(recipe, TaskRef):
        recipe = registry.Maker(recipe)
    if isinstance(recipe, registry.Maker):
        return recipe.spec
    return registry.spec_named(recipe) if isinstance(recipe, str) else None
