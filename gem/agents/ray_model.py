"""ModelActor: one model in its own Ray actor, shared by all players of a cluster."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from gem.agents.base import Answer, BaseAgent, settle
from gem.agents.named import AgentByName
from gem.errors import AgentUnavailable, BadArgument
from gem.hosts.ray_cluster import added_folders, look_last_in, own_error, ray_module
from gem.record import Agent, AgentInfo, Ask, Reply
from gem.source_files import with_sources


class RemoteModel(BaseAgent):
    """The players' side of a ModelActor: it sends each batch of asks to the actor as one call."""

    def __init__(self, actor: Any, info: AgentInfo) -> None:
        """Send asks to `actor`, a handle of a Ray actor."""
        self._actor, self._info = actor, info
        self._ray = ray_module()
        self._forgotten: list[str] = []

    @property
    def info(self) -> AgentInfo:
        """The info of the agent in the actor."""
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
        answers: list[Answer] = self._get(self._actor.answer.remote(list(asks), forgotten))
        return settle(answers)

    def forget(self, episode: str) -> None:
        """Tell the actor with the next call; without another call, the data stays until the actor ends."""
        self._forgotten.append(episode)

    def publish(self, version: int, weights: Any = None) -> None:
        """Do nothing: ModelActor.publish is called once for all players."""

    def _get(self, call: Any) -> Any:
        """Return the result of a call.

        Raises:
            AgentUnavailable: when the actor is gone. Or the error of the call itself.
        """
        try:
            return self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise own_error(error) from error
        except self._ray.exceptions.RayError as error:
            raise AgentUnavailable(f"the actor of the model is gone: {type(error).__name__}.") from error


class ModelActor(RemoteModel):
    """An agent with a model, in an actor of the Ray cluster that this process is connected to.

    The players of a RayRunner share it: asks that arrive while the model is busy form its next batch.
    `publish`, here or of a RayRunner, loads the weights there once.
    """

    def __init__(self, agent: str | AgentByName | Agent, *, cores: float = 1.0, gpus: float = 0.0) -> None:
        """Start the actor on a node with enough free resources.

        Args:
            agent: an agent's name, to make it in the actor; or an agent, which is pickled and sent there.
            cores: processor cores that it reserves on its node.
            gpus: GPUs that it reserves on its node.

        Raises:
            BadArgument: when this process is not connected to a cluster, or the agent cannot be sent.
                GemError: when it cannot be made there.
        """
        ray = ray_module()
        if not ray.is_initialized():
            raise BadArgument(
                "a model's actor runs in a Ray cluster: connect first, with ray.init() or "
                "gem.hosts.ray_cluster.Cluster."
            )
        given = AgentByName(agent) if isinstance(agent, str) else agent
        try:
            packed = with_sources(ray.cloudpickle.dumps(given))
        except Exception as error:
            raise BadArgument(f"the agent cannot be sent to an actor: {error!r:.300}") from error
        actor = ray.remote(_Model).options(num_cpus=cores, num_gpus=gpus, max_restarts=0).remote()
        super().__init__(actor, AgentInfo())
        self._info = self._get(actor.begin.remote(packed, added_folders()))

    def publish(self, version: int, weights: Any = None) -> None:
        """Set the policy version of all later replies, and load `weights` if given."""
        self._get(self._actor.publish.remote(version, weights))
        self.policy_version = version

    def close(self) -> None:
        """End the actor. Calling it twice is harmless."""
        actor, self._actor = self._actor, None
        if actor is not None and self._ray.is_initialized():
            self._ray.kill(actor)
        super().close()


class _Model:
    """The class of the actor: one event loop for the asks of all players."""

    _agent: Any = None

    async def begin(self, packed: bytes, last: tuple[str, ...]) -> AgentInfo:
        look_last_in(last)
        given = pickle.loads(packed)
        self._agent = given.make() if isinstance(given, AgentByName) else given
        info: AgentInfo | None = getattr(self._agent, "info", None)
        return info or AgentInfo(type(self._agent).__name__)

    async def answer(self, asks: list[Ask], forgotten: list[str]) -> list[Answer]:
        for episode in forgotten:
            self._agent.forget(episode)
        asked: list[Answer] = await asyncio.gather(*map(self._agent.ask, asks), return_exceptions=True)
        return asked

    async def publish(self, version: int, weights: Any) -> None:
        self._agent.publish(version, weights)
