"""ModelActor: one model for all players of a Ray cluster, in an actor of its own."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from gem.agents.base import Answer, BaseAgent, settle
from gem.agents.named import AgentByName
from gem.errors import AgentUnavailable, BadArgument
from gem.hosts.ray_cluster import own_error, ray_module
from gem.record import Agent, AgentInfo, Ask, Reply


class RemoteModel(BaseAgent):
    """What players have of a ModelActor: it sends their asks there, each batch as one call."""

    def __init__(self, actor: Any, info: AgentInfo) -> None:
        """Send asks to `actor`, an actor's handle."""
        self._actor, self._info = actor, info
        self._ray = ray_module()
        self._forgotten: list[str] = []

    @property
    def info(self) -> AgentInfo:
        """That of the agent in the actor."""
        return self._info

    def __reduce__(self) -> Any:
        """Pickle the handle alone."""
        return RemoteModel, (self._actor, self._info)

    def __call__(self, asks: Sequence[Ask]) -> list[Reply]:
        """Answer a batch of asks, in order.

        Raises:
            AgentUnavailable: when the actor is gone. BatchBroken: when some asks failed.
        """
        forgotten, self._forgotten = self._forgotten, []
        answers: list[Answer] = self._got(self._actor.answer.remote(list(asks), forgotten))
        return settle(answers)

    def forget(self, episode: str) -> None:
        """Let the next call tell the actor; an episode that nobody follows is forgotten with the actor."""
        self._forgotten.append(episode)

    def publish(self, version: int, weights: Any = None) -> None:
        """Do nothing: whoever has the ModelActor publishes, once for all players."""

    def _got(self, call: Any) -> Any:
        """Return what a call came to.

        Raises:
            AgentUnavailable: when the actor is gone. Or what the call met there.
        """
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise own_error(error) from error
        except self._ray.exceptions.RayError as error:
            raise AgentUnavailable(f"the actor of the model is gone: {type(error).__name__}.") from error


class ModelActor(RemoteModel):
    """An agent with a model, in an actor of the Ray cluster that this process is connected to.

    A RayRunner's players share it: what they ask while the model is busy is its next batch. `publish`, and a
    RayRunner's, load weights there once.
    """

    def __init__(self, agent: str | AgentByName | Agent, *, cores: float = 1.0, gpus: float = 0.0) -> None:
        """Start the actor, where the cluster has room for it.

        Args:
            agent: its name, and it is made in the actor; or the agent, which is sent there.
            cores: what it reserves of a node.
            gpus: the same.

        Raises:
            BadArgument: when this process is not connected to a cluster, or the agent cannot be sent.
                GemError: when it cannot be made there.
        """
        ray = ray_module()
        if not ray.is_initialized():
            raise BadArgument(
                "a model's actor lives in a cluster: connect first, with ray.init() or "
                "gem.hosts.ray_cluster.Cluster."
            )
        given = AgentByName(agent) if isinstance(agent, str) else agent
        try:
            packed = ray.cloudpickle.dumps(given)
        except Exception as error:
            raise BadArgument(f"the agent cannot be sent to an actor: {error!r:.300}") from error
        actor = ray.remote(_Model).options(num_cpus=cores, num_gpus=gpus, max_restarts=0).remote()
        super().__init__(actor, AgentInfo())
        self._info = self._got(actor.begin.remote(packed))

    def publish(self, version: int, weights: Any = None) -> None:
        """Let the model answer as policy `version` from now on, with `weights` where they are given."""
        self._got(self._actor.publish.remote(version, weights))
        self.policy_version = version

    def close(self) -> None:
        """End the actor. Twice is harmless."""
        actor, self._actor = self._actor, None
        if actor is not None and self._ray.is_initialized():
            self._ray.kill(actor)
        super().close()


class _Model:
    """In the actor: one event loop, in which the asks of all players meet."""

    _agent: Any = None

    async def begin(self, packed: bytes) -> AgentInfo:
        given = pickle.loads(packed)
        self._agent = given.made() if isinstance(given, AgentByName) else given
        info: AgentInfo | None = getattr(self._agent, "info", None)
        return info or AgentInfo(type(self._agent).__name__)

    async def answer(self, asks: list[Ask], forgotten: list[str]) -> list[Answer]:
        for episode in forgotten:
            self._agent.forget(episode)
        asked: list[Answer] = await asyncio.gather(*map(self._agent.ask, asks), return_exceptions=True)
        return asked

    async def publish(self, version: int, weights: Any) -> None:
        self._agent.publish(version, weights)
