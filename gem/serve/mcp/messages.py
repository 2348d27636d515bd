"""MCP's messages: JSON-RPC requests to one episode, and their answers; no I/O.

The versions with a handshake (2024-11-05 to 2025-11-25) and the one of single requests (2026-07-28) are
answered alike, since an episode has its own state. Batches exist in 2025-03-26 alone.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

import msgspec

import gem
from gem.errors import BadArgument, replace_surrogates
from gem.serve.json_messages import decode_json
from gem.serve.mcp.episode import INSTRUCTIONS, EpisodeServer

LOG = logging.getLogger("gem.serve")

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
INTERNAL_ERROR, WRONG_VERSION = -32603, -32022

BATCHING = "2025-03-26"
HANDSHAKES = ("2024-11-05", BATCHING, "2025-06-18", "2025-11-25")
SINGLE = "2026-07-28"
VERSIONS = (*HANDSHAKES, SINGLE)
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

BATCH_AT_MOST = 100
"""The most messages of a batch."""

CACHING = {"ttlMs": 0, "cacheScope": "private"}
"""What version 2026-07-28 wants in the lists of a server: nobody is to keep them."""

IN_FLIGHT = 64
"""The most tool calls at a time, and over stdio the most requests; further ones are refused."""

Id: TypeAlias = str | int | float | None

BUSY = f"Invalid request: {IN_FLIGHT} requests are in progress; wait for their answers."

encode = msgspec.json.Encoder().encode
_ANY = msgspec.json.Decoder()


class Wrong(Exception):
    """A request that cannot be answered: `code` is JSON-RPC's, `data` goes with it."""

    def __init__(self, code: int, why: str, data: Any = None) -> None:
        super().__init__(why)
        self.code, self.data = code, data


class _Flight:
    """A tool call in progress; `cancelled`: its client wants no answer."""

    __slots__ = ("cancelled",)

    def __init__(self) -> None:
        self.cancelled = False


class Endpoint:
    """Answers the messages of clients to one episode; the messages may come at the same time."""

    def __init__(self, episode: EpisodeServer) -> None:
        """Answer for this episode, which begins with the first request that needs it."""
        self.episode = episode
        self.version: str | None = None
        """The version of the last handshake, which a connection keeps."""
        self._flights: dict[Id, _Flight] = {}
        self._waiting = 0

    async def answer(self, text: bytes, version: str | None = None, busy: bool = False) -> bytes | None:
        """Return the answer to a message; None if there is none, as for a notification.

        Args:
            text: a JSON-RPC request, notification or batch.
            version: the protocol version of the connection; None: unknown, so that batches are answered.
            busy: refuse requests, since too many are in progress; notifications are taken all the same.
        """
        try:
            message = decode_json(_ANY, text)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return pack_error(None, Wrong(PARSE_ERROR, "Parse error: this is no JSON."))
        if not isinstance(message, list):
            return await self._answer(message, busy)
        if version not in (None, BATCHING):
            wrong = f"Invalid request: version {version} of the protocol has no batches."
        elif not 0 < len(message) <= BATCH_AT_MOST:
            wrong = f"Invalid request: a batch has 1 to {BATCH_AT_MOST} messages, not {len(message)}."
        else:
            answers = [await self._answer(each, busy) for each in message]
            return b"[%b]" % b",".join(filter(None, answers)) if any(answers) else None
        return pack_error(None, Wrong(INVALID_REQUEST, wrong))

    async def _answer(self, message: Any, busy: bool) -> bytes | None:
        async def respond(method: str, params: dict[str, Any], number: Id, asks: bool) -> Any:
            if not asks:
                self._note(method, params)
                return None
            if busy:
                raise Wrong(INVALID_REQUEST, BUSY)
            return await self._result(method, params, number)

        return await answer_with(message, respond, _describe)

    def _note(self, method: str, params: dict[str, Any]) -> None:
        """Take a notification: a call that is cancelled before its turn does nothing."""
        number = params.get("requestId")
        if method == "notifications/cancelled" and isinstance(number, str | int) and number in self._flights:
            self._flights[number].cancelled = True

    async def _result(self, method: str, params: dict[str, Any], number: Id) -> dict[str, Any] | None:
        meta = params.get("_meta")
        asked = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        if asked is not None and asked not in VERSIONS:
            refused = {"supported": VERSIONS, "requested": replace_surrogates(f"{asked!s:.40}")}
            raise Wrong(WRONG_VERSION, "Unsupported protocol version", refused)
        if method == "ping":
            return {"resultType": "complete"} if asked == SINGLE else {}
        about = {
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "gem", "version": gem.__version__},
            "instructions": INSTRUCTIONS,
        }
        if method == "initialize":
            asked = params.get("protocolVersion")
            self.version = asked if asked in HANDSHAKES else HANDSHAKES[-1]
            return {"protocolVersion": self.version, **about}
        if method == "server/discover":
            return {"supportedVersions": VERSIONS, "resultType": "complete", **CACHING, **about}
        if method == "tools/list":
            await self.episode.start()
            return {"tools": self.episode.tools, "resultType": "complete", **CACHING}
        if method == "tools/call":
            return await self._call(params, number)
        raise Wrong(NO_METHOD, f"Method not found: {replace_surrogates(method):.80}")

    async def _call(self, params: dict[str, Any], number: Id) -> dict[str, Any] | None:
        """Return the result of a tool call; None if it was cancelled."""
        name, arguments = params.get("name"), params.get("arguments")
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise Wrong(INVALID_PARAMS, 'tools/call has "name", a text, and "arguments", an object.')
        if self._waiting >= IN_FLIGHT:
            raise Wrong(INVALID_REQUEST, BUSY)
        flight = self._flights[number] = _Flight()
        self._waiting += 1
        try:
            await self.episode.start()
            async with self.episode.lock:
                if flight.cancelled:
                    return None
                result = await self.episode.call_tool(name, arguments)
        finally:
            self._waiting -= 1
            if self._flights.get(number) is flight:
                del self._flights[number]
        return None if flight.cancelled else {**result, "resultType": "complete"}


async def answer_with(
    message: Any,
    respond: Callable[[str, dict[str, Any], Id, bool], Awaitable[Any]],
    describe: Callable[[Exception], Wrong],
    ids: Collection[type] = (str, int),
) -> bytes | None:
    """Return the answer to a JSON-RPC message; None if there is none.

    Args:
        message: a value of JSON; a batch is none.
        respond: returns the result of a request, or raises Wrong; None: there is no answer. It gets the
            method, the parameters, the id, and whether an answer is asked for: without an id there is none.
        describe: says what the client is told of any other error.
        ids: the types of the ids that are accepted.
    """
    number: Id = None
    try:
        if not isinstance(message, dict):
            raise Wrong(INVALID_REQUEST, "Invalid request: a message is an object.")
        if "method" not in message and ("result" in message or "error" in message):
            return None  # an answer; nothing was asked
        asks = "id" in message
        if type(message.get("id")) in ids:
            number = message.get("id")
        elif asks:
            raise Wrong(INVALID_REQUEST, "Invalid request: an id is a text or a whole number.")
        method, params = message.get("method"), message.get("params")
        params = {} if params is None else params
        if message.get("jsonrpc") != "2.0" or not isinstance(method, str) or not isinstance(params, dict):
            raise Wrong(
                INVALID_REQUEST,
                'Invalid request: it has "jsonrpc": "2.0", "method", a text, and "params", an object.',
            )
        result = await respond(method, params, number, asks)
        return None if result is None else encode({"jsonrpc": "2.0", "id": number, "result": result})
    except Exception as error:
        return pack_error(number, error if isinstance(error, Wrong) else describe(error))


def _describe(error: Exception) -> Wrong:
    if isinstance(error, BadArgument):
        return Wrong(INVALID_PARAMS, replace_surrogates(str(error)))
    name = secrets.token_hex(4)  # the rest is not for clients: it may name paths of this machine
    LOG.error("error %s in an MCP server", name, exc_info=error)
    return Wrong(INTERNAL_ERROR, f"Internal error {name}; the server's log has more.")


def pack_error(number: Id, wrong: Wrong) -> bytes:
    """Return an error as a message."""
    error = {"code": wrong.code, "message": str(wrong)} | ({"data": wrong.data} if wrong.data else {})
    return encode({"jsonrpc": "2.0", "id": number, "error": error})
