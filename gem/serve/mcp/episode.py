"""An episode that is played by tool calls: ``observe``, ``act``, and the environment's own tools.

There is no tool to reset. When the episode is over, every further action is an error, for all clients and
after every reconnection. The reward is not told unless asked for: it is the verdict, for whoever runs the
episode, and the record has it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias

from gem import seeding
from gem.agents.base import make_raisable
from gem.content import Image, Message, Obs, Text, ToolCall, ToolSpec, printable, tools_in
from gem.core import Env
from gem.errors import BadArgument, ContractBroken, GemError, OutOfTime, replace_surrogates
from gem.hosts.base import make_host
from gem.record import SEAT, Ask, Call, Episode, Limits, Reply, RunInfo
from gem.rollout.episode import NO_LIMITS, Playing, play, versions
from gem.rollout.jobs import spec_of
from gem.rollout.places import Place, Recipe, maker
from gem.rollout.store import EpisodeStore
from gem.serve.environments.carriers import OnHost

LOG = logging.getLogger("gem.serve")

Result: TypeAlias = dict[str, Any]
"""The result of a tool call in MCP's form."""

OBSERVE = {
    "name": "observe",
    "description": "Read the task and the latest observation. This changes nothing.",
    "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    "annotations": {"readOnlyHint": True},
}
ACT = {
    "name": "act",
    "description": "Take one action, in the form that the task asks for, and read the next observation. "
    "An action cannot be taken back.",
    "inputSchema": {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "the text of the action"}},
        "required": ["action"],
        "additionalProperties": False,
    },
}
TEXT_AT_MOST = 16 << 20
"""The most characters of all actions of an episode, which stay in memory until it is over."""

OVER = "The episode is over. It cannot be played again here."
BROKEN = "The environment broke, and the episode is over without a verdict. It cannot be played again here."
LOST = "The record of the episode could not be written. Tell whoever runs this server."
INSTRUCTIONS = (
    "This server is one episode of a task. Call `observe` to read it, and `act` or the other tools to play. "
    "Actions cannot be taken back, and the episode cannot be started again."
)


class Journal(Protocol):
    """What keeps the answers of an episode, so that another process can go on with it."""

    def read(self) -> Sequence[tuple[str, Reply]]:
        """Return the answers so far, each with the digest of what it answered."""

    def append(self, digest: str, reply: Reply) -> None:
        """Write an answer, before its step."""


class EpisodeServer:
    """One episode of an environment for one seat; `call_tool` plays it, `episode` is its record.

    ::

        server = EpisodeServer("game:GuessTheNumber-v0-easy", seed=3, store=store)
        await server.start()
        result = await server.call_tool("act", {"action": "..."})
        ...
        await server.close()

    All methods belong to one event loop. `Endpoint` answers MCP's messages with it; `stdio.serve_stdio`
    and `http.answer_request` bring these.
    """

    def __init__(
        self,
        env: Env | Recipe,
        seed: int,
        limits: Limits = NO_LIMITS,
        *,
        store: EpisodeStore | None = None,
        run: RunInfo | None = None,
        job: str = "",
        sample: int = 0,
        show_reward: bool = False,
        host: str = "thread",
        call: Callable[[Call], Awaitable[Any]] | None = None,
        journal: Journal | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Prepare the episode; `start` begins it.

        Args:
            env: an environment (on the host ``thread``), or what makes one: an id, a task, a Maker. It is
                closed with the server.
            seed: the episode's seed; clients are not told.
            limits: limits from outside the task. An agent that leaves is always scored, as if `on_time` was
                ``scored``.
            store: where the episode is written when it is over.
            run: the run's settings, for the record.
            job: the name of the job, for the record.
            sample: the number of this sample among those of one job.
            show_reward: tell the agent the reward at the end.
            host: the host on which the environment runs, see `gem.hosts`; with `limits.call_s`.
            call: runs a call of the environment instead, which then is the caller's.
            journal: keeps the agent's answers; those that it has are played again at the start.
            on_end: called once, when the episode is over and written.

        Raises:
            BadArgument: for a wrong seed, or an environment of several seats.
        """
        self._limits = replace(limits, on_time="scored")  # else an agent that is losing would leave
        recipe: Callable[[], Env]
        if isinstance(env, Env):
            several, recipe = env.several_seats, partial(_identity, env)
        else:
            spec, recipe = spec_of(env), maker(env)
            several, env = (False, "") if spec is None else (spec.seats != (SEAT,), spec.id)
        if several:
            raise BadArgument(f"{env} has several seats; accepted: an environment for one agent.")
        self._seed, self._place = seeding.check(seed), Place(0, recipe)
        run = run or RunInfo(agent="mcp", limits=self._limits, versions=versions())
        self.episode = Episode(self._place.task_with(seed), run, job, sample)
        """The record; complete when `over`."""
        self.unwritten: GemError | None = None
        """Why the record could not be written to the store."""
        self.lock = asyncio.Lock()
        """Held during an action: they are taken one after another."""
        self._asks: tuple[Ask, ...] = ()
        self._own_tools: tuple[ToolSpec, ...] = ()
        self._store, self._show_reward = store, show_reward
        self._carrier: OnHost | None = None
        if call is None:
            self._carrier = OnHost(make_host(host, call_s=limits.call_s))
            self._handle = self._carrier.add(recipe)
        self._call = call or self._call_on_host
        self._journal, self._on_end = journal, on_end
        self._playing: Playing | None = play(self._place, seed, self._limits, record=self.episode)
        self._begun = self._ready = False
        self._characters = 0

    @classmethod
    def of_ended(cls, episode: Episode, show_reward: bool = False) -> EpisodeServer:
        """Return a server of an episode that is over: it can be observed, and no more."""
        server = cls.__new__(cls)
        server.episode, server.lock, server._show_reward = episode, asyncio.Lock(), show_reward
        server._playing, server._carrier, server._asks, server._ready = None, None, (), True
        server.unwritten = None
        server._own_tools = tools_in(episode.initial_info)
        return server

    @property
    def actions(self) -> int:
        """The number of actions so far."""
        return sum(turn.action is not None for turn in self.episode.turns)

    # -- what clients can do

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return self._playing is None

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools in MCP's form, once the episode has begun."""
        return [OBSERVE, ACT, *(_pack_tool(name, tool) for name, tool in self._named_tools().items())]

    async def start(self) -> None:
        """Begin the episode, and play the journal's answers; calling it twice is harmless."""
        if self._ready:
            return
        async with self.lock:
            if self._begun:
                return
            self._begun = True
            assert self._playing is not None, "only an ended episode has none"
            with suppress(Exception):  # where it cannot be made, reset says so too, and the record has it
                self._place.occupy(await self._call(Call(self._place, "describe")))
                self.episode.task = self._place.task_with(self._seed)
            await self._advance(self._playing.send, None)
            for digest, reply in self._journal.read() if self._journal else ():
                if self.over:
                    break
                if digest != self._digest():
                    why = "the environment showed something else when the episode was played again."
                    await self._advance(self._playing.throw, ContractBroken(why))
                else:
                    await self._take(reply)
            self._ready = True

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Result:
        """Return the result of a tool call, which is a step of the episode unless it is ``observe``.

        The caller holds `lock`.

        Raises:
            BadArgument: for an unknown tool or wrong arguments; nothing has happened then.
        """
        reply = self._read_call(name, arguments)
        if reply is None:
            return self._pack(self._observation(), error=False)
        if self._playing is None:
            return self._pack((), error=True)
        left = TEXT_AT_MOST - self._characters
        if _count_characters(reply) > left:
            raise BadArgument(
                f"the actions of an episode have {TEXT_AT_MOST:,} characters at most, all together; "
                f"{left:,} are left."
            )
        if self._journal is not None:
            self._journal.append(self._digest(), reply)
        await self._take(reply)
        return self._pack(self._news(), error=False)

    # -- its end

    def leave(self) -> None:
        """End the episode because its agent has left: it is truncated, and scored as it is."""
        if self._playing is not None and not self._begun:
            self.cancel()
        elif self._playing is not None:
            self._throw(OutOfTime("the agent has left."))

    def cancel(self) -> None:
        """End the episode without verdict."""
        if self._playing is not None:
            self._throw(CancelledError())

    async def close(self) -> None:
        """Close the environment; an unfinished episode is not written."""
        playing, self._playing = self._playing, None
        if playing is not None:
            playing.close()
        if self._carrier is not None:
            await asyncio.to_thread(self._carrier.close)

    # -- the rest

    def _named_tools(self) -> dict[str, ToolSpec]:
        """Return the environment's tools by the names that clients use."""
        names = {tool.name for tool in self._own_tools}
        named = {}
        for tool in self._own_tools:
            name = tool.name
            while name in (OBSERVE["name"], ACT["name"]) or (name != tool.name and name in names):
                name = f"env_{name}"
            named[name] = tool
        return named

    def _read_call(self, name: str, arguments: Mapping[str, Any]) -> Reply | None:
        """Return a tool call as an answer of the agent; None for ``observe``."""
        if name == OBSERVE["name"]:
            if arguments:
                raise BadArgument("observe takes no arguments.")
            return None
        if name == ACT["name"]:
            action = arguments.get("action")
            if set(arguments) != {"action"} or not isinstance(action, str):
                raise BadArgument('act takes {"action": "..."}, a text, and nothing else.')
            return Reply(action)
        named = self._named_tools()
        if name not in named:
            known = ", ".join(tool["name"] for tool in self.tools)
            raise BadArgument(f"there is no tool {replace_surrogates(name)!r:.80}; there are: {known}.")
        try:
            written = json.dumps(arguments)
        except RecursionError:
            raise BadArgument("the arguments are nested too deep.") from None
        return Reply("", tool_calls=(ToolCall(f"call_{len(self.episode.turns)}", named[name].name, written),))

    def _observation(self) -> Sequence[Message]:
        """Return the messages of the task, then those since the last action."""
        if not self._asks:
            return [Message("user", self.episode.final_observation)]
        messages = self._asks[0].messages
        first = next((at for at, each in enumerate(messages) if each.role == "assistant"), None)
        return messages if first is None else [*messages[:first], *self._news()]

    def _news(self) -> Sequence[Message]:
        """Return the messages since the last action."""
        if not self._asks:
            return [Message("user", self.episode.final_observation)]
        messages = self._asks[0].messages
        count = next(
            (n for n, each in enumerate(reversed(messages)) if each.role == "assistant"), len(messages)
        )
        return messages[len(messages) - count :]

    def _pack(self, messages: Sequence[Message], error: bool) -> Result:
        """Return messages as a tool result, with a line about the end if the episode is over."""
        content = [part for message in messages for part in _pack_obs(message.content)]
        if self.over:
            broken = self.episode.error is not None
            line = BROKEN if broken else OVER
            if self._show_reward and self.episode.scored:
                line += f" Reward: {self.episode.reward():g}."
            if self.unwritten is not None:
                line += f" {LOST}"
            content = [*content, {"type": "text", "text": line}]
            error = error or broken
        if not content:
            content = [{"type": "text", "text": ""}]
        return {"content": content, "isError": error}

    async def _take(self, reply: Reply) -> None:
        """Take an action of the agent."""
        assert self._playing is not None
        self._characters += _count_characters(reply)
        await self._advance(self._playing.send, (reply,))

    async def _advance(self, resume: Callable[[Any], Any], value: Any) -> None:
        """Run the episode until it needs an answer, or is over."""
        playing = self._playing
        self._asks = ()
        while playing is not None and playing is self._playing:
            try:
                request = resume(value)
            except StopIteration:
                self._finish()
                return
            if type(request) is tuple:
                self._asks, self._own_tools = request, request[0].tools
                return
            try:
                resume, value = playing.send, await self._call(request)
            except Exception as error:
                resume, value = playing.throw, make_raisable(error)

    def _throw(self, error: BaseException) -> None:
        """End the episode by an error; a call in flight is given up."""
        playing, self._asks = self._playing, ()
        assert playing is not None
        try:
            playing.throw(error)
        except StopIteration:
            self._finish()
        except BaseException:  # it never began
            self._playing = None

    def _finish(self) -> None:
        """Write the record."""
        self._playing = None
        if self.episode.error is not None:
            failure = self.episode.error
            why = printable(failure.message)  # it may hold text of the agent
            LOG.error("an episode of %s broke: %s: %s", self.episode.spec, failure.type, why)
        if self._store is not None:
            try:
                self._store.append(self.episode)
            except GemError as error:  # the agent cannot help it
                LOG.error("the record of an episode of %s is lost: %s", self.episode.spec, error)
                self.unwritten = error
        if self._on_end is not None:
            self._on_end()

    async def _call_on_host(self, call: Call) -> Any:
        assert self._carrier is not None
        outcome = await self._carrier.call(self._handle, call.verb, call.args, call.kwargs)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _digest(self) -> str:
        """Return a digest of what the agent was shown last."""
        digest = blake2b(digest_size=16)
        for message in self._news():
            parts = (Text(message.content),) if isinstance(message.content, str) else message.content
            for part in parts:
                data = part.data if isinstance(part, Image) else part.text.encode(errors="surrogatepass")
                digest.update(b"%d:%d:" % (isinstance(part, Image), len(data)) + data)
        return digest.hexdigest()


def _count_characters(reply: Reply) -> int:
    return len(reply.text) + sum(len(call.arguments) for call in reply.tool_calls)


def _identity(env: Env) -> Env:
    return env


def _pack_tool(name: str, tool: ToolSpec) -> dict[str, Any]:
    schema = {**tool.schema, "type": "object"}
    return {"name": name, "description": replace_surrogates(tool.description), "inputSchema": schema}


def _pack_obs(obs: Obs) -> list[dict[str, Any]]:
    """Return an observation as parts of a tool result."""
    parts = (Text(obs),) if isinstance(obs, str) else obs
    packed = []
    for part in parts:
        if isinstance(part, Image):
            data = base64.b64encode(part.data).decode()
            packed.append({"type": "image", "data": data, "mimeType": replace_surrogates(part.mime)})
        elif part.text:
            packed.append({"type": "text", "text": replace_surrogates(part.text)})
    return packed
