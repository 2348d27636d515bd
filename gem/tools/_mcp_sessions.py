"""Sessions with MCP servers, all run by one thread with one event loop per process.

The protocol's clients are asynchronous, and each must be entered and left by the same task. So a session is a
task on the loop, which opens it, waits and closes it. Threads pass their requests to it and wait with a
deadline.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from gem.errors import needs_extra
from gem.hiding import hide_credentials, hide_secrets, plain_address

if TYPE_CHECKING:
    from mcp import ClientSession, types

T = TypeVar("T")

CLOSE_S = 5.0
"""Seconds that close() waits for a server to end its session."""

MAX_MESSAGE_BYTES = 16 * 2**20
"""The most bytes of one message of a server."""

_GRACE_S = 10.0  # what handing a request to a busy loop may take beyond the request's own limit
_SLICES = 20  # of a limit: what keeps the loop from its work for a while costs a request one of them
_MAX_PAGES = 50  # of a server's list of tools, which may not end
_HEARD_CHARS = 500


@dataclass(frozen=True)
class Server:
    """The way to reach a server: `url` over streamable HTTP, or a `command` to start and its stdio."""

    name: str
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None

    def __str__(self) -> str:
        return f"the MCP server {self.name!r} ({plain_address(self.url) or self.command})"

    def hide(self, text: str) -> str:
        """Return an error without the secrets of the headers and of all addresses."""
        return hide_secrets(hide_credentials(text), self.headers, self.url)


class _Loop:
    """The event loop of this process, in its own thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.sessions: set[McpSession] = set()
        self.ssl: Any = None  # loading certificates takes longer than a session
        self.thread = threading.Thread(target=self._run, name="gem-mcp", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self) -> None:
        """End every session, waiting CLOSE_S in total, and then the thread."""
        ended = asyncio.run_coroutine_threadsafe(self._end_all(), self.loop)
        with contextlib.suppress(TimeoutError):
            ended.result(CLOSE_S + _GRACE_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(_GRACE_S)

    async def _end_all(self) -> None:
        tasks = [session.task for session in self.sessions]
        for session in self.sessions:
            session.closing.set()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)


_logging: ContextVar[McpSession | None] = ContextVar("_logging", default=None)
"""The session whose task logs."""


class _Log(logging.Handler):
    """Takes what the package mcp logs of a session to its last words; else it is printed with a traceback.

    So a banner that a server prints, where messages are expected, is told once something fails.
    """

    def emit(self, record: logging.LogRecord) -> None:
        session, error = _logging.get(), record.exc_info and record.exc_info[1]
        if session is not None:
            line = f"{record.getMessage()}: {error}" if error else record.getMessage()
            session.hear(f"{' '.join(line.split()):.{_HEARD_CHARS}}\n")


logging.getLogger("mcp").addHandler(_Log())
_lock = threading.Lock()
_current: _Loop | None = None
_inherited: list[_Loop] = []  # of the parent, in a forked child: kept, so that nothing of it is finalized


def _loop() -> _Loop:
    global _current
    with _lock:
        if _current is None:
            _current = _Loop()
        return _current


def _after_fork() -> None:
    """Forget the parent's loop, whose thread does not exist in a forked child."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _inherited.append(_current)
        _current = None


@atexit.register
def _at_exit() -> None:
    global _current
    if _current is not None:
        _current.stop()
        _current = None


os.register_at_fork(after_in_child=_after_fork)


class McpSession:
    """One session with one server. Any thread may use it, but not a forked child."""

    def __init__(self, server: Server, connect_s: float, handlers: Mapping[str, Any] | None = None) -> None:
        """Open the session and wait for the handshake; `handlers` are keywords of mcp.ClientSession.

        Raises:
            MissingExtra: without the mcp package.
            TimeoutError: when there is no handshake within `connect_s`.
            ConnectionError: when the server cannot be started or reached.
        """
        with needs_extra("MCPTool", "mcp", "mcp"):
            from gem.tools import _mcp_transports  # noqa: F401  (in the loop's thread it would hold up all)
        self.server = server
        self.handlers: dict[str, Any] = dict(handlers or {})
        self.pid = os.getpid()
        self.task: asyncio.Task[None]
        self.closing: asyncio.Event
        self._client: ClientSession
        self._heard = ""
        self._home = _loop()
        try:
            self._wait(self._open(connect_s), connect_s + CLOSE_S)
        except TimeoutError as error:
            raise TimeoutError(f"no handshake within {connect_s:g} s.{self.last_words}") from error
        except Exception as error:
            why = f"{type(error).__name__}: {error!s:.300}.{self.last_words}"
            raise ConnectionError(why) from error

    # -- from any thread

    def tools(self, limit_s: float) -> list[types.Tool]:
        """Return the tools of the server."""
        return self._ask(_tools, limit_s)

    def call(self, name: str, arguments: Mapping[str, Any], limit_s: float) -> Any:
        """Send one call, once, and return its result; see `MCPTool.call_tool` for errors."""
        return self._ask(lambda client: _call(client, name, arguments), limit_s)

    def answers(self, limit_s: float) -> bool:
        """Return whether the server answers a ping, or without pings, a request to describe itself."""
        try:
            self._ask(_ping, limit_s)
        except Exception:
            return False
        return True

    def end(self) -> None:
        """Start closing the session, without waiting."""
        if self.pid == os.getpid() and not self._home.loop.is_closed():
            self._home.loop.call_soon_threadsafe(self.closing.set)

    def close(self) -> None:
        """Close the session, and wait at most CLOSE_S; calling it twice is harmless."""
        if self.pid == os.getpid() and self._home.thread.is_alive():
            self.end()
            with contextlib.suppress(TimeoutError):
                self._wait(asyncio.wait({self.task}, timeout=CLOSE_S), CLOSE_S + _GRACE_S)

    @property
    def last_words(self) -> str:
        """The end of what `hear` was told, for error messages."""
        heard = self._heard.strip()
        return f" It wrote: {heard}" if heard else ""

    # -- on the loop

    def hear(self, text: str) -> None:
        """Keep the end of what a server writes beside its messages, and of what is wrong with these."""
        self._heard = (self._heard + text)[-_HEARD_CHARS:]

    def _ask(self, request: Callable[[ClientSession], Awaitable[T]], limit_s: float) -> T:
        return self._wait(self._within(request, limit_s), limit_s + _GRACE_S)

    def _wait(self, doing: Coroutine[Any, Any, T], limit_s: float) -> T:
        if self.pid != os.getpid():
            doing.close()
            raise ConnectionError("the session belongs to the process that this one was forked from")
        future = asyncio.run_coroutine_threadsafe(doing, self._home.loop)
        try:
            return future.result(limit_s)
        except BaseException:
            future.cancel()
            raise

    async def _within(self, request: Callable[[ClientSession], Awaitable[T]], limit_s: float) -> T:
        answer = asyncio.ensure_future(request(self._client))
        try:
            for _ in range(_SLICES):
                await asyncio.wait(
                    {answer, self.task}, timeout=limit_s / _SLICES, return_when=asyncio.FIRST_COMPLETED
                )
                if answer.done():
                    return answer.result()
                if self.task.done():
                    raise ConnectionError("the session has ended")
            raise TimeoutError(f"no answer within {limit_s:g} s")
        finally:
            answer.cancel()

    async def _open(self, connect_s: float) -> None:
        opened: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self.closing = asyncio.Event()
        self.task = asyncio.create_task(self._keep(opened, connect_s))
        self._home.sessions.add(self)
        self.task.add_done_callback(lambda _: self._home.sessions.discard(self))
        self._client = await opened

    async def _keep(self, opened: asyncio.Future[ClientSession], connect_s: float) -> None:
        """Keep the session open from handshake to close; pass errors to the waiting threads."""
        import anyio
        from mcp import ClientSession

        _logging.set(self)
        try:
            async with (
                self._streams() as (read, write),
                ClientSession(read, write, **self.handlers) as client,
            ):
                with anyio.fail_after(connect_s):
                    await _begin(client)
                if not opened.cancelled():
                    opened.set_result(client)
                    await self.closing.wait()
        except Exception as error:
            if not opened.done():
                opened.set_exception(_first(error))
        finally:
            if not opened.done():
                opened.cancel()

    @contextlib.asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        from gem.tools._mcp_transports import check_answer, run_program

        server = self.server
        if server.command:
            command = [server.command, *server.args]
            async with run_program(
                command, server.env, server.cwd, MAX_MESSAGE_BYTES, self.hear
            ) as program_streams:
                yield program_streams
            return
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        if self._home.ssl is None:
            self._home.ssl = httpx2.create_ssl_context()
        headers = httpx2.Headers(dict(server.headers))
        headers["Accept-Encoding"] = "identity"
        # A client of its own: cookies, too, are state.
        http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(30.0, read=None),
            verify=self._home.ssl,
            event_hooks={"response": [partial(check_answer, max_bytes=MAX_MESSAGE_BYTES)]},
        )
        async with (
            http,
            streamable_http_client(
                server.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams


async def _begin(client: ClientSession) -> None:
    """Do the handshake, without which there is no session with a state.

    A server that supports only single requests (from the protocol of 2026-07-28 on) refuses it, each in its
    own way, and describes itself on request.
    """
    from mcp.shared.exceptions import MCPError

    try:
        await client.initialize()
    except MCPError as refused:
        try:
            await client.discover()
        except (MCPError, RuntimeError, ValueError):
            raise refused from None


async def _ping(client: ClientSession) -> None:
    if client.discover_result is None:
        await client.send_ping()
    else:
        await client.send_discover(str(client.protocol_version))


async def _tools(client: ClientSession) -> list[types.Tool]:
    from mcp import types

    tools: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return tools


async def _call(
    client: ClientSession, name: str, arguments: Mapping[str, Any]
) -> types.CallToolResult | types.InputRequiredResult:
    from mcp import types
    from pydantic import TypeAdapter

    # Not client.call_tool: that may list the tools again after the call, and fail a call that has happened.
    parameters = types.CallToolRequestParams(name=name, arguments=dict(arguments))
    results: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
        types.CallToolResult | types.InputRequiredResult
    )
    return await client.send_request(types.CallToolRequest(params=parameters), results)


def _first(error: BaseException) -> BaseException:
    """Return the error inside the exception groups of task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
