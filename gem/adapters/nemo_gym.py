"""Serve gem's environments to NeMo Gym: a resources server for its ``gymnasium_agent``.

::

    from gem.adapters.nemo_gym import GemServer

    if __name__ == "__main__":
        GemServer.run_webserver()

These lines are the server's ``app.py`` (`examples/researcher/nemo_gym_app.py`). A row of NeMo Gym's data set
(`write_rows`) is an environment and a seed; each rollout has a fresh environment. The environment's native
tools are functions of the row. The agent adds up the rewards of the steps; how the episode ended is in the
last step's ``info``. An episode without a verdict is an error of the step: the rollout fails, and is not
trained on. Pictures
appear as their `alt`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gem.adapters.engine import run_call
from gem.adapters.prompts import check_question, news, read_task, seeded_tasks, task_text
from gem.adapters.records import describe_failure, whole_file
from gem.agents.outcomes import Verdict, judge, reply
from gem.agents.responses import Responses
from gem.errors import BadArgument, NoVerdict, needs_extra
from gem.history import CHAT
from gem.record import Ask, Limits
from gem.registry import Maker
from gem.rollout.conversation import Conversation
from gem.specs import TaskRef

with needs_extra("NeMo Gym's resources server", "nemo-gym", "nemo"):
    from fastapi import FastAPI, Request
    from nemo_gym.openai_utils import NeMoGymResponse
    from nemo_gym.server_utils import SESSION_ID_KEY
    from resources_servers.gymnasium import GymnasiumServer

Stepped = tuple[str | None, float, bool, bool, dict[str, Any]]


def write_rows(
    path: str | Path,
    envs: str | TaskRef | Iterable[str | TaskRef],
    seeds: Iterable[int],
    *,
    agent: str = "gem_agent",
    turns: int | None = None,
) -> None:
    """Write NeMo Gym's data set as JSON lines: each environment with each seed.

    Args:
        path: the file.
        envs: ids of environments; tasks to give keywords or wrappers.
        seeds: the seeds of the episodes.
        agent: the name of the ``gymnasium_agent`` in NeMo Gym's configuration.
        turns: truncate each episode after this many turns; the agent's `max_steps` is to be no less.

    Raises:
        BadArgument: when the file already exists; see `gem.adapters.prompts.seeded_tasks`.
    """
    with whole_file(Path(path)) as part, part.open("w", encoding="utf-8") as file:
        for task in seeded_tasks(envs, seeds):
            row = {
                "responses_create_params": {"input": [], "tools": _tools(task)},
                "agent_ref": {"type": "responses_api_agents", "name": agent},
                "task": task_text(task),
                "turns": turns,
            }
            file.write(json.dumps(row) + "\n")


def _tools(task: TaskRef) -> list[dict[str, Any]]:
    with Conversation(task, task.seed or 0) as talk:
        tools = talk.asks[0].tools if talk.asks else ()
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.schema),
            "strict": False,
        }
        for tool in tools
    ]


@dataclass
class Session:
    """The episode of a session; `step` is the answer to its last request, which a client may repeat."""

    talk: Conversation
    waits: bool
    earned: float = 0.0
    request: object = None
    step: asyncio.Task[Stepped] | None = None

    async def answer(self, action: NeMoGymResponse) -> Stepped:
        """Play the model's answer.

        Raises:
            NoVerdict: when the model's server gave no usable answer, or the episode broke.
        """
        talk, ask = self.talk, self.talk.asks[0]
        output = Responses().read(action.model_dump(mode="json"), ask)
        if judge(output).verdict is not Verdict.SCORED:
            raise NoVerdict(f"the model's server {output.why}")
        await run_call(self.waits, partial(talk.answer, reply(output)))
        episode, reward = talk.episode, talk.reward - self.earned
        self.earned = talk.reward
        if talk.asks:
            text, outputs = _read_news(talk.asks[0])
            return text, reward, False, False, {"tool_outputs": outputs}
        if not episode.scored:
            raise NoVerdict(f"the episode has no verdict: {describe_failure(episode, str(episode.stop))}")
        info = {"stop": str(episode.stop), "success": episode.success}
        return None, reward, not episode.truncated, episode.truncated, info


class GemServer(GymnasiumServer):
    """A resources server whose sessions are episodes of gem's environments."""

    ray_enabled = False

    def setup_webserver(self) -> FastAPI:
        """Return the application, with `/close` beside NeMo Gym's own paths."""
        app = super().setup_webserver()
        app.post("/close")(self._close_endpoint)
        return app

    async def _close_endpoint(self, request: Request) -> dict[str, Any]:
        session = request.session.get(SESSION_ID_KEY)
        await self.close_session(session)
        self._cleanup_session(session)
        return {}

    async def reset(
        self, metadata: dict[str, Any], session_id: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the episode of a row.

        Raises:
            BadArgument: for a row that `write_rows` did not write. NoVerdict: when the environment broke.
        """
        await self.close_session(session_id)
        task = read_task(metadata.get("task"))
        limits, waits = Limits(turns=metadata.get("turns")), Maker(task).spec.waits
        begin = partial(Conversation, task, task.seed or 0, limits, history=CHAT)
        session = Session(await run_call(waits, begin), waits)
        self.session_state[session_id] = session
        if not session.talk.asks:
            raise NoVerdict(f"the episode ended before a turn: {session.talk.episode.stop}")
        check_question(session.talk.asks[0], "a model of NeMo Gym")
        return _read_news(session.talk.asks[0])[0], {
            "supports_explicit_close": True,
            "supports_step_idempotency": True,
        }

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str | None = None
    ) -> Stepped:
        """Play the model's answer; the same request twice gets the same step.

        Raises:
            BadArgument: without an open episode. NoVerdict: see `Session.answer`.
        """
        session, request = self.session_state.get(session_id), metadata.get("_ng_step_request_id")
        if session is None:
            raise BadArgument("this session has no episode; call /reset first.")
        if session.step is None or request is None or request != session.request:
            if session.talk.done:
                raise BadArgument("the episode is over; call /reset first.")
            session.request, session.step = request, asyncio.create_task(session.answer(action))
        return await asyncio.shield(session.step)

    async def close_session(self, session_id: str | None) -> None:
        """Close the session's environment; its last step can still be asked for until `/close`."""
        if session := self.session_state.get(session_id):
            session.talk.cancel()
            await run_call(session.waits, session.talk.close)


def _read_news(ask: Ask) -> tuple[str, list[dict[str, Any]]]:
    """Return what the environment says since the last answer: its text, and the results of tools."""
    messages = news(ask)
    results = [
        {"call_id": each.tool_call_id, "output": each.text} for each in messages if each.role == "tool"
    ]
    return "\n\n".join(each.text for each in messages if each.role != "tool"), results
