"""Opponents: who holds the other seats of a game, and how often each; agents by name, and past copies.

A policy that plays itself alone may go round in circles: what beats the present copy may lose to the one
before. Past copies among the opponents keep it from that; all of them with equal chances is fictitious
self-play (Heinrich, Lanctot and Silver, ICML 2015), by results it is the prioritised one of AlphaStar
(Vinyals et al., Nature 575, 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from gem.agents.base import BaseAgent
from gem.errors import StoreError
from gem.record import Agent, AgentInfo, Ask, Episode, Reply
from gem.train import checkpoint
from gem.train.config import TrainConfig
from gem.train.config_types import PoolBy
from gem.train.learner import load_weights, weights
from gem.train.policy import Policy, observing_agent, twin

MEMORY = 0.9
"""What the results of an iteration still weigh one iteration later."""

SNAPSHOT = "snapshot@"
"""What the name of a past copy begins with; its number of iterations follows."""

PRIORITY: dict[str, Callable[[float], float]] = {
    "uniform": lambda won: 1.0,
    "hard": lambda won: (1 - won) ** 2,
    "even": lambda won: won * (1 - won),
}
"""The weight of an opponent, of the rate at which the policy beats it: `f_hard` with p = 2 and `f_var` of
Vinyals et al. (2019), Methods, "Prioritized fictitious self-play"."""


class League:
    """The opponents of a run, and the policy's results against each.

    The rate at which it beats one is ``(won + 1) / (games + 2)``, a tie being half a win; both are sums over
    complete iterations, where each weighs `MEMORY` times as much as the one after it. Whoever earned more
    than the other seats did on average has won.
    """

    def __init__(self, fixed: Sequence[str] = (), size: int = 0, priority: PoolBy = "uniform") -> None:
        """Begin with the agents of these names, and room for so many past copies."""
        self.fixed, self.size, self.priority = tuple(fixed), size, priority
        self.snapshots: list[int] = []
        self.results: dict[str, tuple[float, float]] = {}

    @property
    def members(self) -> list[str]:
        """The names of all opponents."""
        return [*self.fixed, *(f"{SNAPSHOT}{number}" for number in self.snapshots)]

    @property
    def weights(self) -> dict[str, float]:
        """How often each opponent is met, relative to the others."""
        return {name: PRIORITY[self.priority](self.rate(name)) for name in self.members}

    def rate(self, name: str) -> float:
        """Return the rate at which the policy beats an opponent; 1/2 where they have not met."""
        won, games = self.results.get(name, (0.0, 0.0))
        return (won + 1) / (games + 2)

    def add(self, iteration: int) -> None:
        """Take in the policy as it is after so many iterations; the oldest copy makes room."""
        self.snapshots = sorted({*self.snapshots, iteration})[-self.size :]
        self.results = {name: each for name, each in self.results.items() if name in self.members}

    def take_in(self, played: Iterable[tuple[str, Episode, str]]) -> None:
        """Take in a complete iteration: each episode with its opponent and the learner's seat."""
        self.results = {name: (MEMORY * won, MEMORY * n) for name, (won, n) in self.results.items()}
        for name, episode, seat in played:
            if not episode.scored or name not in self.members:
                continue
            others = [episode.reward(each) for each in episode.seats if each != seat]
            ahead = episode.reward(seat) - sum(others) / len(others)
            won, games = self.results.get(name, (0.0, 0.0))
            self.results[name] = won + (1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0), games + 1

    def state(self) -> dict[str, Any]:
        """Return what load() takes."""
        return {"snapshots": self.snapshots, "results": self.results}

    def load(self, state: Mapping[str, Any]) -> None:
        """Become what state() told."""
        self.snapshots = list(state["snapshots"])
        self.results = {name: (won, games) for name, (won, games) in state["results"].items()}


class Opponent(BaseAgent):
    """An agent under the name that episodes remember it by."""

    def __init__(self, agent: Agent, name: str) -> None:
        """Answer as `agent`."""
        self.agent, self.name = agent, name
        self.splits_batches = getattr(agent, "splits_batches", True)

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Ask the agent."""
        return self.agent(asks)

    @property
    def info(self) -> AgentInfo:
        """The agent's, with the name."""
        return replace(getattr(self.agent, "info", AgentInfo()), agent=self.name)

    def forget(self, episode: str) -> None:
        """Tell the agent."""
        self.agent.forget(episode)

    def close(self) -> None:
        """Close the agent."""
        if isinstance(self.agent, BaseAgent):
            self.agent.close()
        super().close()


class Opponents:
    """The agents of a league: those that have a name, and past copies of a policy from a folder's files."""

    def __init__(self, fixed: Mapping[str, Agent], policy: Policy, config: TrainConfig, folder: Path) -> None:
        """Have the agents `fixed`, and copies of `policy` that are kept in `folder`."""
        self.policy, self.config, self.folder = policy, config, folder
        self.agents: dict[str, Agent] = {
            name: agent if getattr(agent, "verb", None) else Opponent(agent, name)
            for name, agent in fixed.items()
        }

    def agent(self, name: str) -> Agent:
        """Return the agent of a name; a past copy is read from its file.

        Raises:
            StoreError: where that cannot be read.
        """
        if name not in self.agents:
            path = self._file(name)
            copied = twin(self.policy)
            load_weights(copied, checkpoint.load(path), str(path))
            agent = observing_agent(copied, self.config, entropy=False)
            agent.publish(int(name.removeprefix(SNAPSHOT)))
            self.agents[name] = Opponent(agent, name)
        return self.agents[name]

    def seated(self, seats: Sequence[str], seat: str, learner: Agent, opponent: str) -> dict[str, Agent]:
        """Return who holds which seat: the learner `seat`, the opponent the others."""
        other = self.agent(opponent)
        return {each: learner if each == seat else other for each in seats}

    def keep(self, iteration: int) -> None:
        """Write the policy's weights of now, as the copy of that number."""
        checkpoint.save(self._file(f"{SNAPSHOT}{iteration}"), weights(self.policy))

    def prune(self, wanted: set[str]) -> None:
        """Forget the past copies that are not among the names, and remove their files."""
        for name in [name for name in self.agents if name.startswith(SNAPSHOT) and name not in wanted]:
            agent = self.agents.pop(name)
            if isinstance(agent, Opponent):
                agent.close()
        kept = {self._file(name) for name in wanted if name.startswith(SNAPSHOT)}
        for file in self.folder.glob("*.pt"):
            if file not in kept:
                with suppress(OSError):
                    file.unlink()

    def close(self) -> None:
        """Close the agents."""
        for agent in self.agents.values():
            if isinstance(agent, BaseAgent):
                agent.close()

    def _file(self, name: str) -> Path:
        if not name.startswith(SNAPSHOT):
            raise StoreError(f"there is no opponent {name!r} in this run.")
        return self.folder / f"{int(name.removeprefix(SNAPSHOT)):06d}.pt"
