"""Use gem's environments in verifiers (v1), for ``vf-eval`` and prime-rl: a taskset, and its env.

::

    from gem.adapters.verifiers import GemEnv, GemTaskset

    __all__ = ["GemEnv", "GemTaskset"]

verifiers finds a taskset by the name of a top-level module, such as one with these lines
(`examples/researcher/verifiers_gem.py`). A task is an environment and a seed; each of its rollouts has a
fresh environment. The environment takes the user's part in verifiers' interaction: an observation is a user
turn. verifiers has one reward per trace, here the return; the rewards of the turns are in
``trace.info["gem"]``, with success and the kind of end. An episode without a verdict has the reward None and
fails the rollout, which ``--env.retries`` plays again. Pictures appear as their `alt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from gem import registry, seeding
from gem.adapters.engine import run_call
from gem.adapters.prompts import check_question, news
from gem.errors import BadArgument, NoVerdict, needs_extra
from gem.history import HistoryPolicy
from gem.record import Episode, Limits, Reply
from gem.rollout.conversation import Conversation
from gem.specs import TaskRef

with needs_extra("verifiers' taskset", "verifiers", "verifiers"):
    import verifiers.v1 as vf
    from pydantic import Field

__all__ = ["GemEnv", "GemTaskset"]  # verifiers looks for one of each


class GemTasksetConfig(vf.TasksetConfig):
    """The environment of a taskset, its keywords, and the number of episodes."""

    env: str = "game:GuessTheNumber-v0-easy"
    n: int = 100
    seed: int = 0
    kwargs: dict[str, Any] = Field(default_factory=dict)
    turns: int | None = None
    """Truncate each episode after this many turns; it keeps the rewards so far."""


class GemData(vf.TaskData):
    """The data from which the episode can be made again."""

    env: str
    seed: int
    kwargs: dict[str, Any] = Field(default_factory=dict)
    turns: int | None = None


class GemTask(vf.Task[GemData, vf.State, vf.TaskConfig]):
    """One episode; the environment's first observation starts the conversation."""


class GemTaskset(vf.Taskset[GemTask, GemTasksetConfig]):
    """Episodes of one environment."""

    def load(self) -> Iterator[GemTask]:
        """Yield the tasks; the same seed gives the same ones.

        Raises:
            UnknownEnv: for an id that is not registered.
        """
        config = self.config
        registry.spec_named(config.env)
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
    """An env that plays a task's episode with verifiers' player as the agent."""

    async def run(self, task: GemTask, agents: Any) -> None:
        """Play the episode and record its return.

        Raises:
            NoVerdict: when the episode has none.
        """
        data = task.data
        ref = TaskRef(data.env, data.kwargs, foreign=True)  # of a data set
        waits = registry.Maker(ref).spec.waits
        history = HistoryPolicy("chat")  # verifiers keeps the conversation: the past is not rewritten
        talk = await run_call(
            waits, lambda: Conversation(ref, data.seed, Limits(turns=data.turns), history=history)
        )
        try:
            if talk.episode.several:
                raise BadArgument(f"{data.env} has several seats; accepted: an environment of one seat.")
            async with agents.player.interaction(task) as chat:
                trace = chat.trace
                trace.rewards["return"] = None
                while talk.asks:
                    check_question(talk.asks[0], "a model of verifiers")
                    segment = await chat.turn("\n\n".join(each.text for each in news(talk.asks[0])))
                    reply = Reply(segment.last_reply, finish="context" if segment.terminated else "stop")
                    if segment.terminated and trace.errors:
                        talk.fail(NoVerdict(f"the player broke: {trace.errors[-1].message}"))
                    else:
                        await run_call(waits, partial(talk.answer, reply))
        finally:
            talk.cancel()
            await run_call(waits, talk.close)
        _note(trace, talk.episode)


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
