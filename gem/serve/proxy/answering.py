"""Async access to an agent of any kind, and to servers whose answers may have token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, ClassVar

from gem.agents.base import Answer, BaseAgent, batch_answers
from gem.agents.openai import LIMIT_FIELDS, OpenAIAgent
from gem.agents.token_server import TokenServerAgent
from gem.record import Agent, Ask, Reply
from gem.serve.proxy import responses
from gem.serve.proxy.request import Refused, Request


class Answering:
    """An async interface to an agent, which may be called at any time.

    An agent that answers batches, such as a local model, runs in a thread; requests that arrive meanwhile are
    the next batch. `lock` is held while it runs, so that its weights can be changed between two batches.
    """

    def __init__(self, agent: Agent) -> None:
        """Ask `agent`."""
        self.agent = agent
        self.lock = Lock()
        self._ended: list[str] = []  # episodes that the agent is yet to forget
        self._thread = ThreadPoolExecutor(1, "model")
        self._in_batches = isinstance(agent, BaseAgent) and type(agent).ask is BaseAgent.ask
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._work: asyncio.Task[None] | None = None

    @property
    def passes(self) -> bool:
        """Whether sampling settings are passed on to a server; a model called with token ids has its own."""
        return isinstance(self.agent, OpenAIAgent) and not isinstance(self.agent, TokenServerAgent)

    def sampling(self, request: Request) -> Mapping[str, Any]:
        """Return the sampling settings of a request that the model uses, in the form of its server.

        Raises:
            Refused: for a setting that the server's protocol lacks.
        """
        agent = self.agent
        if isinstance(agent, TokenServerAgent):
            return {}
        kept: dict[str, Any] = {"stop": list(request.stop)} if request.stop else {}
        if not isinstance(agent, OpenAIAgent):
            return kept
        asked = dict(request.asked)
        if agent.temperature is not None:  # it is the proxy's own
            asked.pop("temperature", None)
        if agent.api == "completions" or agent.tools == "text":  # no tools are sent
            if asked.pop("tool_choice", "auto") != "auto":
                raise Refused("tool_choice is not passed on: the model writes calls as text; leave it out.")
            asked.pop("parallel_tool_calls", None)
        if agent.api == "responses":  # which lacks `stop`: the recording cuts the answer
            asked, kept = responses.write_settings(asked), {}
        if not agent.model and request.model:
            asked["model"] = request.model
        return asked | kept

    async def ask(self, ask: Ask) -> Reply:
        """Answer one request.

        Raises:
            Exception: whatever the agent raises for it.
        """
        if not self._in_batches:
            return await self.agent.ask(ask)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((ask, future))
        if self._work is None:
            self._work = asyncio.create_task(self._answer_waiting())
        return await future

    async def ask_plainly(self, ask: Ask) -> Mapping[str, int]:
        """Ask a plain question in place of a request that was refused, and return what the answer cost.

        Raises:
            Exception: where the agent does not answer that either.
        """
        if not isinstance(self.agent, OpenAIAgent):
            return {}
        return (await self.ask(self.agent.ask_instead(ask))).usage

    async def _answer_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # what is asked at the same time is one batch
                batch, self._waiting = self._waiting, []
                loop, asks = asyncio.get_running_loop(), [ask for ask, _ in batch]
                answers = await loop.run_in_executor(self._thread, self._answers, asks)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():
                        continue
                    if isinstance(answer, BaseException):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._work = None

    def _answers(self, asks: Sequence[Ask]) -> list[Answer]:
        with self.lock:
            while self._ended:
                self.agent.forget(self._ended.pop())
            return batch_answers(self.agent, asks)

    def forget(self, episode: str) -> None:
        """Make the agent drop its data of an episode; with batches, this happens before the next one."""
        if self._in_batches:
            self._ended.append(episode)
        else:
            self.agent.forget(episode)

    def close(self) -> None:
        """End the thread; the agent is not closed."""
        self._thread.shutdown(wait=False)

    def publish(self, version: int, weights: Any = None) -> None:
        """Answer as policy `version` from now on, with these weights if given."""
        with self.lock:
            self.agent.publish(version, weights)  # type: ignore[attr-defined]  # where it cannot, it says so


class Upstream(OpenAIAgent):
    """A chat completions server that is asked for token ids, and may return none."""

    callers: ClassVar[Mapping[str, str]] = {"temperature": OpenAIAgent.callers["temperature"]}
    harmless: ClassVar[tuple[str, ...]] = (*OpenAIAgent.harmless, "return_token_ids", "logprobs")
    askers: ClassVar[frozenset[str]] = frozenset(("tools", *LIMIT_FIELDS))
