"""gem's environments in verifiers (v1), for ``vf-eval`` and prime-rl: a taskset, and the env that plays it.

::

    from gem.adapters.verifiers import GemEnv, GemTaskset

    __all__ = ["GemEnv", "GemTaskset"]

verifiers finds a taskset by the name of a module at the top level, such as one with these lines
(`examples/verifiers_gem.py`). A task is an environment and a seed; its rollouts are fresh environments of
both. The environment plays the user of verifiers' interaction: what it says is a user's turn. verifiers has
one reward for a trace, here the return; the rewards of the turns stand in ``trace.info["gem"]``, with success
and how it ended. An episode without verdict has the reward None and fails the rollout, which
``--env.retries`` plays again. Pictures appear as their `alt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from gem import registry, seeding
from gem.content import Message
from gem.errors import BadArgument, NoVerdict, missing_extra
from gem.history import HistoryPolicy
from gem.record import Ask, Episode, Limits, Reply
from gem.rollout.conversation import Conversation
from gem.specs import TaskRef

try:
    import verifiers.v1 as vf
    from pydantic import Field
except ImportError as error:
    raise missing_extra("verifiers' taskset", "verifiers", "verifiers") from error

T = TypeVar("T")

__all__ = ["GemEnv", "GemTaskset"]  # verifiers looks for one of each


class GemTasksetConfig(vf.TasksetConfig):
    """Which environment, how many episodes of it, and its keywords."""

    env: str = "game:GuessTheNumber-v0-easy"
    n: int = 100
    seed: int = 0
    kwargs: dict[str, Any] = Field(default_factory=dict)
    turns: int | None = None
    """Cut an episode off after so many turns; it counts with what it earned."""


class GemData(vf.TaskData):
    """What makes the episode again."""

    env: str
    seed: int
    kwargs: dict[str, Any] = Field(default_factory=dict)
    turns: int | None = None


class GemTask(vf.Task[GemData, vf.State, vf.TaskConfig]):
    """One episode; the environment opens the conversation."""


class GemTaskset(vf.Taskset[GemTask, GemTasksetConfig]):
    """Episodes of one environment."""

    def load(self) -> Iterator[GemTask]:
        """Yield the tasks; the same seed gives the same ones.

        Raises:
            UnknownEnv: for an id that nobody registered.
        """
        config = self.config
        registry.spec(config.env)
        for number in range(config.n):
            data = GemData(
                name=f"{config.env}#{number}",
                env=config.env,
                seed=seeding.derive(config.seed, "task", number),
                kwargs=config.kwargs,
                turns=config.turns,
            )
            yield GemTask(data, config.task)


class GemEnvConfig(vf.EnvConfig):
    """Who plays."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class GemEnv(vf.Env[GemEnvConfig]):
    """Plays a task's episode with the player as its agent."""

    async def run(self, task: GemTask, agents: Any) -> None:
        """Play the episode and note its return.

        Raises:
            NoVerdict: when the episode has none.
        """
        data = task.data
        ref = TaskRef(data.env, data.kwargs)
        waits = registry.Maker(ref).spec.waits
        history = HistoryPolicy("chat")  # verifiers keeps the conversation: the past is not rewritten
        talk = await _call(
            waits, lambda: Conversation(ref, data.seed, Limits(turns=data.turns), history=history)
        )
        try:
            if talk.episode.several:
                raise BadArgument(f"{data.env} has several seats; accepted: an environment of one seat.")
            async with agents.player.interaction(task) as chat:
                trace = chat.trace
                trace.rewards["return"] = None
                while talk.asks:
                    segment = await chat.turn(_told(talk.asks[0]))
                    reply = Reply(segment.last_reply, finish="context" if segment.terminated else "stop")
                    if segment.terminated and trace.errors:
                        talk.fail(NoVerdict(f"the player broke: {trace.errors[-1].message}"))
                    else:
                        await _call(waits, partial(talk.answer, reply))
        finally:
            talk.cancel()
            await _call(waits, talk.close)
        _note(trace, talk.episode)


async def _call(waits: bool, work: Callable[[], T]) -> T:
    """Do what calls the environment; in a thread where that waits for something."""
    return await asyncio.to_thread(work) if waits else work()


def _told(ask: Ask) -> str:
    """Return what the environment said since the last answer."""
    news: list[Message] = []
    for message in reversed(ask.messages):
        if message.role == "assistant":
            break
        news.insert(0, message)
    return "\n\n".join(message.text for message in news)


def _note(trace: Any, episode: Episode) -> None:
    trace.info["gem"] = {
        "rewards": [turn.reward for turn in episode.turns],
        "stop": str(episode.stop),
        "success": episode.success,
        "truncated": episode.truncated,
    }
    if not episode.scored:
        raise NoVerdict(f"{episode.spec}, seed {episode.seed}: {episode.error or episode.stop}")
    trace.record_reward("return", episode.reward())
    if episode.success is not None:
        trace.record_metric("success", float(episode.success))
