"""An environment that an agent program plays through the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gem import registry
from gem.content import Obs, ToolSpec
from gem.record import SEAT, Episode, Reply, Turn
from gem.rollout.conversation import Conversation
from gem.serve.proxy.request import NotNow, Refused

T = TypeVar("T")
_POOLS = {False: ThreadPoolExecutor(1, "environments"), True: ThreadPoolExecutor(32, "environments")}
"""The executors of environment calls, by whether the environments are thread-safe."""


class Played:
    """An environment of one seat; its calls run outside the event loop, one after another."""

    def __init__(self, env_id: str, seed: int) -> None:
        """Take a registered id.

        Raises:
            UnknownEnv: for an id that is not registered. Refused: for a game of several seats.
        """
        self.spec = registry.spec(env_id)
        if self.spec.seats != (SEAT,):
            raise Refused(
                f"{env_id} has the seats {', '.join(self.spec.seats)}; accepted: games of one seat."
            )
        self._seed = seed
        self._talk: Conversation | None = None
        self._lock = asyncio.Lock()

    async def begin(self) -> None:
        """Make the environment and start the episode.

        Raises:
            GemError: when it cannot be made.
        """

        def make() -> None:
            self._talk = Conversation(self.spec.id, seed=self._seed)

        await self._carry_out(make)

    @property
    def talk(self) -> Conversation:
        """The episode."""
        assert self._talk is not None
        return self._talk

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.talk.done

    @property
    def observation(self) -> Obs:
        """The environment's latest observation."""
        asks = self.talk.asks
        return asks[0].messages[-1].content if asks else self.talk.episode.final_observation

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The environment's tools."""
        return self.talk.asks[0].tools if self.talk.asks else ()

    @property
    def episode(self) -> Episode:
        """The environment's own record."""
        return self.talk.episode

    async def step(self, action: str) -> Turn:
        """Take a step, and return its turn.

        Raises:
            NotNow: when the episode is over.
        """

        def answer() -> Turn:
            if self.talk.done:
                raise NotNow("the episode is over.")
            self.talk.answer(Reply(action))
            return [turn for turn in self.talk.episode.turns if turn.action is not None][-1]

        return await self._carry_out(answer)

    async def close(self) -> None:
        """Close the environment; an unfinished episode is cancelled."""
        talk = self._talk
        if talk is not None:
            await self._carry_out(talk.close)

    async def _carry_out(self, what: Callable[[], T]) -> T:
        async with self._lock:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_POOLS[self.spec.thread_safe], what)
