"""Opponents in games of several seats: named agents and past copies of the policy, and how often each plays.

A policy that plays itself alone may go round in circles: what beats the present copy may lose to an earlier
one. Past copies among the opponents prevent this. With equal chances for all of them this is fictitious
self-play (Heinrich, Lanctot and Silver, ICML 2015), with chances by results the prioritised form of AlphaStar
(Vinyals et al., Nature 575, 2019).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gem.agents.base import BaseAgent
from gem.errors import StoreError
from gem.record import Agent, AgentInfo, Ask, Episode, Reply
from gem.train.config import TrainConfig
from gem.train.config.value_types import PoolBy
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights, weights
from gem.train.learn.policy import Policy, observing_agent, twin

MEMORY = 0.9
"""Factor by which the weight of past results falls in each iteration."""

SNAPSHOT = "snapshot@"
"""Prefix of a past copy's name; its number of iterations follows."""

PRIORITY: dict[str, Callable[[float], float]] = {
    "uniform": lambda won: 1.0,
    "hard": lambda won: (1 - won) ** 2,
    "even": lambda won: won * (1 - won),
}
"""The weight of an opponent as a function of the rate at which the policy beats it: `f_hard` with p = 2 and
`f_var` of Vinyals et al. (2019), Methods, "Prioritized fictitious self-play"."""


@dataclass
class League:
    """The opponents of a run, and the policy's results against each: agents by name, and `size` past copies.

    The rate at which the policy beats one is ``(won + 1) / (games + 2)``; a tie is half a win. Both are sums
    over complete iterations, where each weighs `MEMORY` times as much as the one after it. A seat wins when
    it earns more than the other seats do on average.
    """

    fixed: Sequence[str] = ()
    size: int = 0
    priority: PoolBy = "uniform"
    snapshots: list[int] = field(default_factory=list)
    results: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def members(self) -> list[str]:
        """The names of all opponents."""
        return [*self.fixed, *(f"{SNAPSHOT}{number}" for number in self.snapshots)]

    @property
    def weights(self) -> dict[str, float]:
        """How often each opponent is played, relative to the others."""
        return {name: PRIORITY[self.priority](self.rate(name)) for name in self.members}

    def rate(self, name: str) -> float:
        """Return the rate at which the policy beats an opponent; 1/2 where they have not played."""
        won, games = self.results.get(name, (0.0, 0.0))
        return (won + 1) / (games + 2)

    def add(self, iteration: int) -> None:
        """Add the policy's copy of this iteration; drop the oldest copy where there are too many."""
        self.snapshots = sorted({*self.snapshots, iteration})[-self.size :]
        self.results = {name: each for name, each in self.results.items() if name in self.members}

    def take_in(self, played: Iterable[tuple[str, Episode, str]]) -> None:
        """Add a complete iteration: each episode with its opponent and the learner's seat."""
        self.results = {name: (MEMORY * won, MEMORY * n) for name, (won, n) in self.results.items()}
        for name, episode, seat in played:
            if not episode.scored or name not in self.members:
                continue
            others = [episode.reward(each) for each in episode.seats if each != seat]
            ahead = episode.reward(seat) - sum(others) / len(others)
            won, games = self.results.get(name, (0.0, 0.0))
            self.results[name] = won + (1.0 if ahead > 0 else 0.5 if ahead == 0 else 0.0), games + 1

    def state(self) -> dict[str, Any]:
        """Return the state that load() restores."""
        return {"snapshots": self.snapshots, "results": self.results}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state that state() returned."""
        self.snapshots = list(state["snapshots"])
        self.results = {name: (won, games) for name, (won, games) in state["results"].items()}


class Opponent(BaseAgent):
    """An agent with the name that episodes store."""

    def __init__(self, agent: Agent, name: str) -> None:
        """Answer as `agent`, under the name `name`."""
        self.agent, self.name = agent, name
        self.splits_batches = getattr(agent, "splits_batches", True)

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Ask the agent."""
        return self.agent(asks)

    @property
    def info(self) -> AgentInfo:
        """The agent's info, with this name."""
        return replace(getattr(self.agent, "info", AgentInfo()), agent=self.name)

    def forget(self, episode: str) -> None:
        """Pass the call on to the agent."""
        self.agent.forget(episode)

    def close(self) -> None:
        """Close the agent."""
        if isinstance(self.agent, BaseAgent):
            self.agent.close()
        super().close()


class Opponents:
    """The agents of a league: named agents, and past copies of a policy from a folder's files."""

    def __init__(self, fixed: Mapping[str, Agent], policy: Policy, config: TrainConfig, folder: Path) -> None:
        """Use the agents `fixed`, and copies of `policy` that are stored in `folder`."""
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

    def assign_seats(
        self, seats: Sequence[str], seat: str, learner: Agent, opponent: str
    ) -> dict[str, Agent]:
        """Return the agent of each seat: the learner in `seat`, the opponent in the others."""
        other = self.agent(opponent)
        return {each: learner if each == seat else other for each in seats}

    def keep(self, iteration: int) -> None:
        """Write the policy's current weights as the copy of this iteration."""
        checkpoint.save(self._file(f"{SNAPSHOT}{iteration}"), weights(self.policy))

    def prune(self, wanted: set[str]) -> None:
        """Drop the past copies that are not in `wanted`, and remove their files."""
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
