"""Upstream's multi-agent interface: MultiAgentEnv and AgentSelector.

It supports environments that were written for upstream. gem's own multi-agent environments, rollouts and
training use `gem.seats.SeatedEnv`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from gem import core
from gem.content import Obs
from gem.core import Env
from gem.errors import BadAction, BadArgument

MODES = ("sequential", "parallel")

MultiAgentStep: TypeAlias = tuple[
    dict[str, Obs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]
"""Observations, rewards, terminations, truncations and infos, each by agent."""


class AgentSelector:
    """The turn order of agents: one after another, or with mode ``parallel`` all at once.

    >>> turns = AgentSelector(["north", "south"])
    >>> turns.get_active_agents(), turns.next(), turns.is_last()
    (['north'], 'south', True)
    """

    def __init__(self, agents: Iterable[str], mode: str = "sequential") -> None:
        """Begin with the first of `agents`.

        Raises:
            BadArgument: for an agent that comes twice, or another mode.
        """
        if mode not in MODES:
            raise BadArgument(f"mode is {mode!r}; accepted: {', '.join(MODES)}.")
        self.mode = mode
        self.reinit(agents)

    def reinit(self, agents: Iterable[str]) -> None:
        """Start again with other agents."""
        self._all = list(agents)
        if len(set(self._all)) < len(self._all):
            raise BadArgument(f"agents are {self._all}; accepted: each once.")
        self.reset()

    def reset(self) -> str | None:
        """Start again with all agents and return the first, or None if there are no agents."""
        self.agents = list(self._all)
        self._at = 0
        return self.selected

    def __len__(self) -> int:
        """Return the number of agents that take turns."""
        return len(self.agents)

    @property
    def selected(self) -> str | None:
        """The agent whose turn it is (in parallel mode the first), or None if no agent is left."""
        return self.agents[self._at] if self.agents else None

    def get_active_agents(self) -> list[str]:
        """Return the agents whose turn it is."""
        return list(self.agents) if self.mode == "parallel" else self.agents[self._at : self._at + 1]

    def next(self) -> str | None:
        """Go on to the next agent and return it; in parallel mode it is every agent's turn again."""
        if self.mode == "sequential" and self.agents:
            self._at = (self._at + 1) % len(self.agents)
        return self.selected

    def is_first(self) -> bool:
        """Return whether it is the first agent's turn, or every agent's."""
        return self.mode == "parallel" or self._at == 0

    def is_last(self) -> bool:
        """Return whether it is the last agent's turn, or every agent's."""
        return self.mode == "parallel" or self._at == len(self.agents) - 1

    def add_agent(self, agent: str) -> None:
        """Add an agent at the end of the order; an agent that is already in it changes nothing."""
        if agent not in self.agents:
            self.agents.append(agent)

    def remove_agent(self, agent: str) -> None:
        """Remove an agent from the order; if it was its turn, it is the next agent's turn."""
        if agent in self.agents:
            place = self.agents.index(agent)
            del self.agents[place]
            self._at -= place < self._at
            self._at %= max(1, len(self.agents))


class MultiAgentEnv(Env):
    """A multi-agent environment with upstream's interface; a subclass defines two hooks.

    A subclass sets `possible_agents`, and `agent_selector` if agents take turns; without one all act in every
    step. The hooks are `observe` (what an agent reads) and `process_actions` (what a step does). Or it
    defines `reset` and `step` itself. An agent that has terminated or was truncated leaves. The episode is
    over when no agent is left.
    """

    possible_agents: list[str]
    agent_selector: AgentSelector | None = None

    def __init__(self, possible_agents: Iterable[str] = (), mode: str = "parallel") -> None:
        """Set the agents, and whether they act at once or take turns (mode ``sequential``)."""
        self.possible_agents = list(possible_agents)
        self.agents: list[str] = []
        self.messages: dict[str, list[dict[str, str]]] = {}
        if self.possible_agents or mode != "parallel":
            self.agent_selector = AgentSelector(self.possible_agents, mode)

    @classmethod
    def _guards(cls) -> tuple[tuple[str, Callable[..., Any]], ...]:
        reset, _, close = super()._guards()
        return reset, close

    # -- the hooks

    def observe(self, agent: str) -> Obs:
        """Return what an agent reads: by default the messages that others sent since its last reading."""
        return "\n".join(f"{each['sender']}: {each['message']}" for each in self.get_messages(agent))

    def process_actions(self, actions: dict[str, str]) -> MultiAgentStep:
        """Take the actions of the agents whose turn it is, and return the results by agent."""
        raise NotImplementedError(f"{type(self).__name__} must define process_actions(self, actions).")

    def _process_actions(self, actions: dict[str, str]) -> MultiAgentStep:
        return self.process_actions(actions)

    # -- the contract

    def reset(self, seed: int | None = None) -> Any:
        """Begin an episode with all agents, and return observations and infos by agent."""
        super().reset(seed)
        self.agents = list(self.possible_agents)
        self.messages = {agent: [] for agent in self.agents}
        if self.agent_selector is not None:
            self.agent_selector.reinit(self.agents)
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, str]) -> Any:  # type: ignore[override]
        """Take an action of each agent whose turn it is, and return five dicts by agent.

        Raises:
            ResetNeeded, EpisodeOver, EnvClosed: when no episode is running.
            BadAction: unless the actions are text and come from exactly these agents.
        """
        if self._phase == core._RUNNING and not self.agents:
            self._phase = core._OVER
        if self._phase != core._RUNNING:
            raise core.not_running(self)
        active = self.get_active_agents()
        if not isinstance(actions, Mapping) or set(actions) != set(active):
            raise BadAction(f"actions are {actions!r:.80}; accepted: a dict with a text of each of {active}.")
        if not all(isinstance(action, str) for action in actions.values()):
            raise BadAction(f"actions are {actions!r:.80}; {self} takes texts.")
        acted = self.agent_selector.selected if self.agent_selector else None
        result = self._process_actions({agent: actions[agent] for agent in active})
        _, _, terminations, truncations, _ = result
        for agent in active + [each for each in self.agents if each not in active]:
            if terminations.get(agent) or truncations.get(agent):
                self.remove_agent(agent)
        if self.agent_selector is not None and self.agent_selector.selected == acted:
            self.agent_selector.next()  # if this agent did not leave, it has acted: go on
        if not self.agents:
            self._phase = core._OVER
        return result

    # -- who plays

    def get_active_agents(self) -> list[str]:
        """Return the agents whose actions the next step takes."""
        if self.agent_selector is None:
            return list(self.agents)
        return [agent for agent in self.agent_selector.get_active_agents() if agent in self.agents]

    def add_agent(self, agent: str) -> None:
        """Add an agent, from the next step on and in later episodes."""
        if agent not in self.possible_agents:
            self.possible_agents.append(agent)
        if agent not in self.agents and self._phase == core._RUNNING:
            self.agents.append(agent)
            self.messages.setdefault(agent, [])
        if self.agent_selector is not None:
            self.agent_selector.add_agent(agent)

    def remove_agent(self, agent: str) -> None:
        """Remove an agent from the running episode; an agent that is not in it changes nothing."""
        if agent in self.agents:
            self.agents.remove(agent)
        if self.agent_selector is not None:
            self.agent_selector.remove_agent(agent)

    # -- messages

    def send_message(self, sender: str, receiver: str, message: str) -> None:
        """Send text from one agent to another, which reads it with its next `get_messages`.

        Raises:
            BadArgument: for a receiver that is not in `possible_agents`.
        """
        if receiver not in self.possible_agents:
            raise BadArgument(f"receiver is {receiver!r}; accepted: {', '.join(self.possible_agents)}.")
        self.messages.setdefault(receiver, []).append({"sender": sender, "message": message})

    def get_messages(self, agent: str) -> list[dict[str, str]]:
        """Return the messages to an agent since the last call, each with sender and message."""
        found, self.messages[agent] = self.messages.get(agent, []), []
        return found

    def sample_random_action(self) -> Any:
        """Return an action of each agent whose turn it is; see `random_action`."""
        return {agent: self.random_action(agent) for agent in self.get_active_agents()}

    def random_action(self, agent: str) -> str:
        """Return a legal action of one agent.

        Raises:
            NoSolver: if the environment has no random actor.
        """
        return super().sample_random_action()
