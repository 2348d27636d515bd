"""Adapters that turn a SeatedEnv into a PettingZoo AECEnv or ParallelEnv."""

from __future__ import annotations

from typing import Any

from gem.content import Obs, text_of
from gem.envs.seats.seated_env import SeatedEnv
from gem.errors import BadArgument, NoSolver, needs_extra

with needs_extra("the PettingZoo view", "pettingzoo", "multiagent"):
    from gymnasium import spaces
    from pettingzoo import AECEnv, ParallelEnv


class AnyText(spaces.Space[str]):
    """The space of all texts, without the alphabet and length that Gymnasium's Text space requires."""

    def __init__(self, seed: int | None = None) -> None:
        """Make the space; `seed` seeds its samples."""
        super().__init__(None, str, seed)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is text."""
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        r"""Return a random digit in ``\boxed{}``, which most games read; `legal_action` gives legal play."""
        return f"\\boxed{{{self.np_random.integers(10)}}}"


class _View:
    """Base of both adapters: spaces, the game, and each agent's last observation."""

    render_mode: str | None = None

    def __init__(self, env: SeatedEnv) -> None:
        """Wrap `env`, the game."""
        if not isinstance(env, SeatedEnv):
            raise BadArgument(f"env is {env}; accepted: a SeatedEnv.")
        self.game = env
        self.possible_agents = list(env.seats)
        self.agents: list[str] = []
        self.metadata = {"name": str(env), "render_modes": [], "is_parallelizable": True}
        self._observed: dict[str, str] = {}
        self._spaces = {agent: spaces.Dict({"text": AnyText()}) for agent in env.seats}
        self._actions = {agent: AnyText() for agent in env.seats}

    def observation_space(self, agent: str) -> Any:
        """Return ``Dict(text=...)``; PettingZoo's tests require an array or a dict."""
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        """Return the space of all texts."""
        return self._actions[agent]

    def legal_action(self, agent: str) -> str:
        """Return a legal action for an agent whose turn it is, from the game's random actor."""
        return self.game.random_action(agent)

    def expert_action(self, agent: str) -> str:
        """Return the action of the game's expert for an agent whose turn it is."""
        return self.game.expert_action(agent)

    def observe(self, agent: str) -> dict[str, str]:
        """Return an agent's last observation; the text is empty before the first one."""
        return {"text": self._observed.get(agent, "")}

    def render(self) -> None:
        """Raise NoSolver: there is no picture, and the observations show everything."""
        raise NoSolver(f"{self.game} has no picture; its observations are its display.")

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _look(self, obs: dict[str, Obs]) -> None:
        self._observed.update({agent: text_of(observation) for agent, observation in obs.items()})


class PettingZooAEC(_View, AECEnv):  # type: ignore[misc]
    """An AECEnv over a SeatedEnv: agents act one after another.

    If several agents act in the same step of the game, their actions are collected first. Rewards, ends and
    infos are set when that step is complete.
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode; `options` is part of PettingZoo's interface and is ignored."""
        obs, infos = self.game.reset(seed)
        self.agents = list(self.game.live)
        self._observed = {}
        self._collected: dict[str, Any] = {}
        self._look(obs)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: dict(infos[agent]) for agent in self.agents}
        self.agent_selection = self.game.acting[0]

    def step(self, action: str | None) -> None:
        """Take the selected agent's action; it must be None if that agent has ended."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self._collected[agent] = action
        waiting = [other for other in self.game.acting if other not in self._collected]
        if waiting:
            self.agent_selection = waiting[0]
            return
        actions, self._collected = self._collected, {}
        obs, rewards, terminations, truncations, infos = self.game.step(actions)
        self._look(obs)
        for each in terminations:
            self.rewards[each] = rewards[each]
            self.terminations[each], self.truncations[each] = terminations[each], truncations[each]
            self.infos[each] = dict(infos[each])
        self._accumulate_rewards()
        if self.game.acting:
            self.agent_selection = self.game.acting[0]
        self._deads_step_first()


class PettingZooParallel(_View, ParallelEnv):  # type: ignore[misc]
    """A ParallelEnv over a SeatedEnv: all agents act at once; actions out of turn are ignored."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
        """Begin an episode; `options` is part of PettingZoo's interface and is ignored."""
        obs, infos = self.game.reset(seed)
        self.agents = list(self.game.live)
        self._observed = {}
        self._look(obs)
        return {agent: self.observe(agent) for agent in self.agents}, dict(infos)

    def step(self, actions: dict[str, str]) -> tuple[dict[str, Any], ...]:
        """Step the game with the actions of the agents to act; ``to_act`` in `infos` says who acts next.

        Raises:
            BadAction: without the action of an agent to act.
        """
        before = self.agents
        acting = self.game.acting
        step = self.game.step({agent: action for agent, action in actions.items() if agent in acting})
        self._look(step.obs)
        self.agents = list(self.game.live)
        infos = {a: {**step.infos[a], "to_act": a in self.game.acting} for a in before}
        obs = {agent: self.observe(agent) for agent in before}
        return obs, step.rewards, step.terminations, step.truncations, infos
