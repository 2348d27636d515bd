"""The path ``/mcp``: an environment's tools over JSON-RPC, for clients of MCP and of OpenEnv.

A client of MCP begins with a handshake, which opens an episode; the session's id in its answer is the key. Or
whoever runs the server opens an episode and hands out its address, which ends with the key. Nobody can start
such an episode again. Its key is no name of a session in the other protocols, whose clients may reset.

Clients of OpenEnv make no handshake. A tool call is a step of the session's episode, with the text that a
text agent would have written. If no episode has started, one is started; if it has ended, the caller gets an
error. Sessions are opened and closed by ``openenv/session/create`` and ``openenv/session/close``; a call
without one gets its own environment.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from time import monotonic
from types import NoneType
from typing import Any

import msgspec

import gem
from gem import seeding
from gem.errors import BadAction, BadArgument, EpisodeOver, replace_surrogates
from gem.record import Call, Limits, RunInfo
from gem.rollout.episode import versions
from gem.rollout.store import EpisodeStore
from gem.serve.environments import openenv
from gem.serve.environments.sessions import Offer, Session, Sessions
from gem.serve.json_messages import decode_json
from gem.serve.mcp.episode import EpisodeServer
from gem.serve.mcp.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_METHOD,
    PARSE_ERROR,
    Endpoint,
    Id,
    Wrong,
    answer_with,
    pack_error,
)

SERVER_ERROR = -32000
PROTOCOL = "2025-06-18"
"""The MCP version implemented here; a client that asks for another one must decide whether to go on."""

_ANY = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Opened:
    """An episode with a key: its session, and what answers its clients."""

    session: Session
    endpoint: Endpoint

    @property
    def offer(self) -> Offer:
        """The environment."""
        return self.session.offer

    async def leave(self) -> None:
        """End the episode because its agent has left."""
        async with self.endpoint.episode.lock:
            self.endpoint.episode.leave()


def is_handshake(body: bytes) -> bool:
    """Return whether a request is the handshake of a client of MCP."""
    try:
        message = decode_json(_ANY, body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return (
        isinstance(message, dict)
        and (message.get("method"), message.get("jsonrpc")) == ("initialize", "2.0")
        and type(message.get("id")) in (str, int)
        and isinstance(message.get("params"), dict | None)
    )


class Episodes:
    """The episodes with keys: each can be played once, by whoever has its key."""

    def __init__(
        self, sessions: Sessions, store: EpisodeStore | None = None, show_reward: bool = False
    ) -> None:
        """Write episodes that are over to `store`; `show_reward`: their agents are told the reward."""
        self.sessions, self._store, self._show_reward = sessions, store, show_reward
        self._opened: dict[str, Opened] = {}
        limits = Limits(turns=sessions.limits.steps, on_time="scored")
        self._run = RunInfo(agent="mcp", limits=limits, versions=versions())
        self._count = 0

    def find(self, key: str) -> Opened | None:
        """Return the episode of a key, and keep it from expiring; None for any other text."""
        opened = self._opened.get(key)
        if opened is not None:
            opened.session.touched = monotonic()
        return opened

    def has_key(self, path: str) -> bool:
        """Return whether an address is that of an episode."""
        return path.rpartition("/mcp/")[2] in self._opened

    async def open(self, offer: Offer, seed: int | None = None) -> tuple[str, Opened]:
        """Open an episode; return its key.

        Raises:
            BadArgument: for a wrong seed, or an environment of several seats. Full, Draining: see Sessions.
        """
        seed = seeding.fresh() if seed is None else seeding.check(seed)
        session = openenv.open_session(self.sessions, offer)
        key = secrets.token_urlsafe(24)

        async def call(call: Call) -> Any:
            async with session.lock:
                return await self.sessions.call(session, call.verb, call.args, call.kwargs)

        def end() -> None:
            session.running = False
            if server.episode.error is not None:
                self.sessions.metrics.count("no_verdict_total")
            if server.unwritten is not None:
                self.sessions.metrics.count("records_lost_total")

        server = EpisodeServer(
            offer.recipe(),
            seed,
            self._run.limits,
            store=self._store,
            run=self._run,
            job=f"{offer.id}#{seed}#{self._count}",
            show_reward=self._show_reward,
            call=call,
            on_end=end,
        )
        self._count += 1

        def close(expired: bool) -> None:
            del self._opened[key]
            if expired:
                server.leave()
            else:
                server.cancel()

        session.on_close = close
        session.seed, session.running = seed, True
        opened = self._opened[key] = Opened(session, Endpoint(server))
        await server.start()
        return key, opened


class Tools:
    """The tools of one served environment."""

    def __init__(self, sessions: Sessions, offer: Offer) -> None:
        """Answer for `offer`."""
        self.sessions, self.offer = sessions, offer

    async def answer(self, text: str | bytes, session: Session | None = None) -> bytes | None:
        """Return the answer to one request; None for a notification.

        Args:
            text: the request.
            session: the session whose tools are called; None: the one that the request names, or a new one.
        """

        async def respond(method: str, params: dict[str, Any], number: Id, asks: bool) -> Any:
            result = await self._result(method, params, session)
            return result if asks else None

        try:
            message = decode_json(_ANY, text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return pack_error(None, Wrong(PARSE_ERROR, "Parse error: this is no JSON."))
        if isinstance(message, dict):
            message.setdefault("jsonrpc", "2.0")
        return await answer_with(message, respond, _describe, (str, int, float, NoneType))

    async def _result(self, method: str, params: dict[str, Any], session: Session | None) -> dict[str, Any]:
        match method:
            case "initialize":
                about = {"name": self.offer.id, "version": gem.__version__}
                return {"protocolVersion": PROTOCOL, "capabilities": {"tools": {}}, "serverInfo": about}
            case "ping" | "notifications/initialized":
                return {}
            case "tools/list":
                return {"tools": openenv.tools_of(self.offer.tools, "inputSchema")}
            case "tools/call":
                return await self._call(params, session)
            case "openenv/session/create":
                if session is None:
                    session = openenv.open_session(self.sessions, self.offer)
                return {"session_id": session.id}
            case "openenv/session/close":
                named = self.sessions.of(self.offer, params.get("session_id"))
                if named is session:
                    raise Wrong(INVALID_REQUEST, "this session ends with its web socket.")
                if named.owner is not None:
                    named.ends_with_its_owner = True
                    return {"session_id": named.id, "closed": False, "closing": True}
                await self.sessions.close(named)
                return {"session_id": named.id, "closed": True}
        raise Wrong(NO_METHOD, f"Method not found: {replace_surrogates(method):.80}")

    async def _call(self, params: dict[str, Any], session: Session | None) -> dict[str, Any]:
        action = {
            "type": "call_tool",
            "tool_name": params.get("name"),
            "arguments": params.get("arguments") or {},
        }
        openenv.action_of(action, self.offer.tools)  # before a session is opened for it
        if session is None and "session_id" in params:
            session = self.sessions.of(self.offer, params["session_id"])
        if session is not None:
            return await self._step(action, session)
        session = openenv.open_session(self.sessions, self.offer, asyncio.current_task())
        try:
            return await self._step(action, session)
        finally:
            await self.sessions.close(session)

    async def _step(self, action: dict[str, Any], session: Session) -> dict[str, Any]:
        async with session.lock:
            if session.seed is None:
                start = await openenv.reset(self.sessions, session, {})
                if start["done"]:  # it has no verdict
                    return _pack_result(start)
            return _pack_result(await openenv.step(self.sessions, session, action))


def _pack_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a step's result in MCP's form of a tool result; `data` is what OpenEnv's client passes on."""
    broken = result["reward"] is None
    text = result["metadata"]["error"]["message"] if broken else result["observation"]["text"]
    parts = [{"type": "text", "text": text}]
    for part in result["observation"].get("parts", ()):
        if part["type"] == "image":
            parts.append({"type": "image", "data": part["data"], "mimeType": part["mime"]})
    return {
        "content": parts,
        "isError": broken,
        "data": text,
        "structuredContent": {key: result.get(key) for key in ("reward", "done", "metadata")},
    }


def _describe(error: Exception) -> Wrong:
    wrong_params = isinstance(error, BadArgument | BadAction | EpisodeOver)
    return Wrong(INVALID_PARAMS if wrong_params else SERVER_ERROR, openenv.describe_error(error))
