"""An agent on environments: success, return and turns, and how many episodes have a verdict at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gem import seeding
from gem.errors import BadArgument, NoSolver
from gem.record import Agent, Episode, Limits, StopReason
from gem.rollout import Job, rollout
from gem.statistics import Interval, mean_interval, wilson


@dataclass(frozen=True, slots=True)
class SeatResult:
    """The figures of one seat of a game: as in Result; `turns` are the seat's own."""

    success: Interval | None
    reward: Interval
    turns: float


@dataclass(frozen=True, slots=True)
class Result:
    """An agent's figures on one environment.

    `episodes` were played, `scored` of them have a verdict; the others enter no figure but `at_least`.
    Cancelled episodes are in none of these.
    `success` is None where the environment does not say what success is. `at_least` is the rate of success
    with every episode that has no verdict counted as lost: the truth lies between the two. `errors` counts
    what broke, by boundary and type. `seats` has the figures of each seat of a multi-agent environment, where
    `reward` is the mean over the seats.
    """

    env: str
    episodes: int
    scored: int
    success: Interval | None
    at_least: float | None
    reward: Interval | None
    turns: float | None
    errors: dict[str, int]
    seats: dict[str, SeatResult] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """The share of episodes that have a verdict; NaN where all were cancelled."""
        return self.scored / self.episodes if self.episodes else float("nan")


def evaluate(
    agent: Agent | Mapping[str, Agent],
    env_id: str,
    *,
    episodes: int = 200,
    seed: int = 0,
    limits: Limits | None = None,
    concurrency: int = 128,
    on_episode: Callable[[Episode], None] | None = None,
) -> Result:
    """Play `episodes` episodes of an environment, each from a seed of its own, and return the figures.

    Success has a Wilson interval, the return a Student-t interval; both at 95%. The agent holds every seat of
    a multi-agent environment, or a mapping says who holds which.

    Raises:
        BadArgument: for no episodes. UnknownEnv, MissingExtra: for what cannot be made. NoSolver: where the
            environment has no solver, or no random actor, for an agent that is one.
    """
    if episodes < 1:
        raise BadArgument(f"episodes is {episodes}; accepted: 1 or more.")
    jobs = [Job(env_id, seeding.derive(seed, "eval", i), group=str(i)) for i in range(episodes)]
    played = rollout(jobs, agent, limits=limits or Limits(), concurrency=concurrency, on_episode=on_episode)
    failed = [episode.error for episode in played if episode.error is not None]
    if len(failed) == len(played) and {error.type for error in failed} == {NoSolver.__name__}:
        raise NoSolver(failed[0].message)
    return summarise(env_id, played)


def summarise(env_id: str, episodes: Sequence[Episode]) -> Result:
    """Return the figures of episodes that have been played."""
    episodes = [episode for episode in episodes if episode.stop is not StopReason.CANCELLED]
    scored = [episode for episode in episodes if episode.scored]
    told = [episode.success for episode in scored if episode.success is not None]
    if len(told) < len(scored) and any(episode.ends for episode in scored):
        told = []  # where seats fare differently, only a seat succeeds or fails
    errors: dict[str, int] = {}
    for episode in episodes:
        if episode.error is not None:
            name = f"{episode.error.boundary}: {episode.error.type}"
            errors[name] = errors.get(name, 0) + 1
    broken = len(episodes) - len(scored)
    return Result(
        env=env_id,
        episodes=len(episodes),
        scored=len(scored),
        success=wilson(sum(told), len(told)) if told else None,
        at_least=sum(told) / (len(told) + broken) if told else None,
        reward=mean_interval([episode.reward() for episode in scored]) if scored else None,
        turns=sum(len(episode.turns) for episode in scored) / len(scored) if scored else None,
        errors=errors,
        seats={seat: _seat(scored, seat) for seat in dict.fromkeys(s for e in scored for s in e.ends)},
    )


def _seat(scored: Sequence[Episode], seat: str) -> SeatResult:
    told = [success for episode in scored if (success := episode.succeeded(seat)) is not None]
    return SeatResult(
        success=wilson(sum(told), len(told)) if told else None,
        reward=mean_interval([episode.reward(seat) for episode in scored]),
        turns=sum(len(episode.turns_of(seat)) for episode in scored) / len(scored),
    )
