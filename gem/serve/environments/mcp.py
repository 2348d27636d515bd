"""The path ``/mcp``: an environment's tools over JSON-RPC, for clients of OpenEnv and of MCP.

A tool call is a step of the session's episode, with the text that a text agent would have written. If no
episode has started, one is started; if it has ended, the caller gets an error. Sessions are opened and closed
by ``openenv/session/create`` and ``openenv/session/close``; a call without one gets its own environment.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

import gem
from gem.errors import BadAction, BadArgument, EpisodeOver, replace_surrogates
from gem.serve.environments import openenv
from gem.serve.environments.sessions import Offer, Session, Sessions

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
SERVER_ERROR = -32000
PROTOCOL = "2025-06-18"
"""The MCP version implemented here; a client that asks for another one must decide whether to go on."""


class Request(Struct):
    """A JSON-RPC request; without an id it is a notification, which gets no answer."""

    method: str
    jsonrpc: str = "2.0"
    params: dict[str, Any] = {}
    id: str | int | float | UnsetType | None = UNSET


class _Wrong(Exception):
    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


_REQUEST = msgspec.json.Decoder(Request)


class Tools:
    """The tools of one served environment."""

    def __init__(self, sessions: Sessions, offer: Offer) -> None:
        """Answer for `offer`."""
        self.sessions, self.offer = sessions, offer

    async def answer(self, text: str | bytes, session: Session | None = None) -> dict[str, Any] | None:
        """Return the answer to one request; None for a notification.

        Args:
            text: the request.
            session: the session whose tools are called; None: the one that the request names, or a new one.
        """
        try:
            request = _REQUEST.decode(text)
        except msgspec.ValidationError as error:
            return _error(None, INVALID_REQUEST, f"Invalid request: {error}")
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "Parse error")
        number = None if request.id is UNSET else request.id
        if request.jsonrpc != "2.0":
            return _error(number, INVALID_REQUEST, "jsonrpc is to be '2.0'.")
        try:
            result = await self._result(request, session)
        except _Wrong as wrong:
            return _error(number, wrong.code, str(wrong))
        except openenv.CALLERS_FAULT as error:
            wrong_params = isinstance(error, BadArgument | BadAction | EpisodeOver)
            return _error(
                number, INVALID_PARAMS if wrong_params else SERVER_ERROR, openenv.describe_error(error)
            )
        except Exception as error:
            return _error(number, SERVER_ERROR, openenv.describe_error(error))
        return None if request.id is UNSET else {"jsonrpc": "2.0", "id": number, "result": result}

    async def _result(self, request: Request, session: Session | None) -> dict[str, Any]:
        params = request.params
        match request.method:
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
                    raise _Wrong(INVALID_REQUEST, "this session ends with its web socket.")
                if named.owner is not None:
                    named.ends_with_its_owner = True
                    return {"session_id": named.id, "closed": False, "closing": True}
                await self.sessions.close(named)
                return {"session_id": named.id, "closed": True}
        raise _Wrong(NO_METHOD, f"Method not found: {replace_surrogates(request.method):.80}")

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


def _error(number: str | int | float | None, code: int, why: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}}
