"""Upstream's multi-agent interface: MultiAgentEnv and AgentSelector, as its environments know them.

It supports environments that were written for upstream. gem's own multi-agent environments, rollouts and
training use `gem.seats.SeatedEnv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gem import core
from gem.content import Obs
from gem.core import Env
from gem.errors import BadArgument

MultiAgentStep: TypeAlias = tuple[
    dict[str, Obs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""Observations, rewards, terminations, truncations and infos, each by agent."""

AgentState: TypeAlias = tuple[Obs, float, bool, bool, dict[str, Any]]
"""What an agent reads, the sum of its rewards, whether it terminated or was truncated, and its info."""


class AgentSelector:
    """The turn order of agents: one after another, or with mode ``parallel`` all at once.

    >>> turns = AgentSelector(["north", "south"])
    >>> turns.get_active_agents(), turns.next(), turns.is_last()
    (['north'], 'south', True)
    """

    def __init__(self, agents: Iterable[str], mode: str = "sequential") -> None:
        """Begin with the first of `agents`."""
        self.mode = mode
        self.reinit(agents)

    def reinit(self, agents: Iterable[str]) -> None:
        """Start again with other agents."""
        self._agents = list(agents)
        self._select(0)

    def _select(self, index: int) -> None:
        self._current_idx = index
        self.selected = self._agents[index] if self._agents else None

    def __len__(self) -> int:
        """Return the number of agents that take turns."""
        return len(self._agents)

    def get_active_agents(self) -> list[str]:
        """Return the agents whose turn it is.

        Raises:
            BadArgument: for another mode than ``sequential`` and ``parallel``.
        """
        if self.mode == "parallel":
            return list(self._agents)
        if self.mode != "sequential":
            raise BadArgument(f"mode is {self.mode!r}; accepted: sequential, parallel.")
        return [] if self.selected is None else [self.selected]

    def next(self) -> str | None:
        """Go on to the next agent, where they act one after another, and return the selected one."""
        if self.mode == "sequential" and self._agents:
            self._select((self._current_idx + 1) % len(self._agents))
        return self.selected

    def is_first(self) -> bool:
        """Return whether the first agent is selected."""
        return self._current_idx == 0

    def is_last(self) -> bool:
        """Return whether the last agent is selected."""
        return self._current_idx == len(self._agents) - 1

    def add_agent(self, agent: str) -> None:
        """Add an agent at the end of the order; an agent that is already in it changes nothing."""
        if agent not in self._agents:
            self._agents.append(agent)
            self._select(self._current_idx)

    def remove_agent(self, agent: str) -> None:
        """Remove an agent from the order; one that is not in it changes nothing.

        If it comes before the selected agent, or is it, the selection steps back by one place, but not
        before the first, so that `next` goes on with the agent after it.
        """
        if agent in self._agents:
            place = self._agents.index(agent)
            del self._agents[place]
            index = max(0, self._current_idx - (place <= self._current_idx))
            self._select(index % len(self._agents) if self._agents else 0)


class MultiAgentEnv(Env):
    """A multi-agent environment with upstream's interface; a subclass defines two hooks.

    A subclass sets `possible_agents`, and `agent_selector` if agents take turns; without one all act in every
    step. The hooks are `observe` (what an agent reads) and `_process_actions` (what a step does, as five
    dicts by agent). An agent leaves after a step when its own entry of `terminations` or `truncations` is
    true. The episode is over when no agent is left.

    `agents`: the present ones. `terminations`, `truncations`, `rewards`, `infos`, `_cumulative_rewards`: by
    present agent. `shared_memory`: the messages, each ``{"from", "to", "message"}``. `global_context`: text.
    """

    def __init__(self) -> None:
        """Begin without agents."""
        self.possible_agents: list[str] = []
        self.agents: list[str] = []
        self.agent_selector: AgentSelector | None = None
        self.global_context = ""
        self._clear()

    def _clear(self) -> None:
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.rewards: dict[str, float] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.shared_memory: list[dict[str, str]] = []

    @classmethod
    def _guards(cls) -> tuple[tuple[str, Callable[..., Any]], ...]:
        reset, _, close = super()._guards()
        return reset, close

    # -- the hooks

    def observe(self, agent: str) -> Obs:
        """Return what an agent reads."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(self, agent).")

    def _process_actions(self, actions: dict[str, str]) -> MultiAgentStep:
        """Take the actions of the agents whose turn it is, and return the results by agent."""
        raise NotImplementedError(f"{type(self).__name__} must define _process_actions(self, actions).")

    # -- the contract

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode with all possible agents, and return observations and infos by agent."""
        super().reset(seed)
        self._clear()
        self.agents = []
        for agent in self.possible_agents:
            self._join(agent)
        if self.agent_selector is not None:
            self.agent_selector.reinit(self.agents)
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, str]) -> Any:  # type: ignore[override]
        """Take an action of each agent whose turn it is, and return five dicts by agent.

        Raises:
            ResetNeeded, EpisodeOver, EnvClosed: when no episode is running.
            BadArgument: unless the actions are a dict with one of exactly these agents.
        """
        if self._phase == core._RUNNING and not self.agents:
            self._phase = core._OVER
        if self._phase != core._RUNNING:
            raise core.not_running(self)
        if not isinstance(actions, dict):
            raise BadArgument(f"actions are {actions!r:.80}; accepted: a dict from agent to action.")
        active = self.get_active_agents()
        for agent in active:
            if agent not in actions and not (self.terminations.get(agent) or self.truncations.get(agent)):
                raise BadArgument(f"actions are {actions!r:.80}; the action of {agent!r} is missing.")
        for agent in actions:
            if agent not in active:
                raise BadArgument(f"{agent!r} acts, but it is the turn of {', '.join(active) or 'nobody'}.")
        result = self._process_actions(actions)
        for agent, reward in result[1].items():
            if agent in self._cumulative_rewards:
                self._cumulative_rewards[agent] += reward
        for agent in list(self.agents):
            if self.terminations.get(agent) or self.truncations.get(agent):
                self.remove_agent(agent)
        if self.agent_selector is not None:
            self.agent_selector.next()
        if not self.agents:
            self._phase = core._OVER
        return result

    def get_state(self, agent: str | None = None) -> Any:
        """Return what an agent is in, as `AgentState`; without `agent` the environment's state, as `Env`.

        Raises:
            BadArgument: for an agent that is not present.
        """
        if agent is None:
            return super().get_state()
        self._check_present("agent", agent)
        return (
            self.observe(agent),
            self._cumulative_rewards[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def get_active_states(self) -> dict[str, AgentState]:
        """Return the state of each present agent whose turn it is."""
        return {agent: self.get_state(agent) for agent in self.get_active_agents() if agent in self.agents}

    # -- who plays

    def get_active_agents(self) -> list[str]:
        """Return the agents whose actions the next step takes."""
        return list(self.agents) if self.agent_selector is None else self.agent_selector.get_active_agents()

    def add_agent(self, agent: str) -> None:
        """Add an agent, from the next step on and in later episodes."""
        if agent not in self.possible_agents:
            self.possible_agents.append(agent)
        self._join(agent)
        if self.agent_selector is not None:
            self.agent_selector.add_agent(agent)

    def _join(self, agent: str) -> None:
        if agent not in self.agents:
            self.agents.append(agent)
            self.terminations[agent] = self.truncations[agent] = False
            self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
            self.infos[agent] = {}

    def remove_agent(self, agent: str) -> None:
        """Remove an agent from the running episode; an agent that is not in it changes nothing."""
        if agent in self.agents:
            self.agents.remove(agent)
        tables: tuple[dict[str, Any], ...] = (self.terminations, self.truncations, self.rewards, self.infos)
        for table in (*tables, self._cumulative_rewards):
            table.pop(agent, None)
        if self.agent_selector is not None:
            self.agent_selector.remove_agent(agent)

    # -- messages

    def send_message(self, from_agent: str, to_agent: str, message: str) -> None:
        """Write a message from one agent to another into `shared_memory`.

        Raises:
            BadArgument: for a sender or a receiver that is not present.
        """
        self._check_present("from_agent", from_agent)
        self._check_present("to_agent", to_agent)
        self.shared_memory.append({"from": from_agent, "to": to_agent, "message": message})

    def broadcast_message(self, from_agent: str, message: str) -> None:
        """Send a message from one agent to each other one.

        Raises:
            BadArgument: for a sender that is not present.
        """
        self._check_present("from_agent", from_agent)
        for agent in self.agents:
            if agent != from_agent:
                self.send_message(from_agent, agent, message)

    def _check_present(self, name: str, agent: str) -> None:
        if agent not in self.agents:
            raise BadArgument(f"{name} is {agent!r}; accepted: {', '.join(self.agents) or 'nobody, yet'}.")

    def sample_random_action(self) -> Any:
        """Return an action of each agent whose turn it is; see `random_action`."""
        return {agent: self.random_action(agent) for agent in self.get_active_agents()}

    def random_action(self, agent: str) -> str:
        """Return a legal action of one agent.

        Raises:
            NoSolver: if the environment has no random actor.
        """
        return super().sample_random_action()
