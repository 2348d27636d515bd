"""What the SDK's transports of MCP lack: bounds, and errors in place of waiting.

Its client of programs bounds no message, joins a long one anew with each piece, and drops an answer that it
cannot read, whose request then waits for ever. Its client over HTTP bounds events, but no answers in JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, jsonrpc_message_adapter

_PATIENCE_S = 2.0
"""Seconds that a program has to end once its input is closed, and it and what it started after SIGTERM."""

_GONE = anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError

_HALVES = re.compile(rb"(?<!\\)((?:\\\\)*)(?:(\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)|\\u[dD][89a-fA-F]\w\w)")

_MEMBER = re.compile(r'"(method|result|error)"\s*:')

_COMPRESSIONS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})

Receiving = MemoryObjectReceiveStream[SessionMessage]
Sending = MemoryObjectSendStream[SessionMessage]


def without_halves(text: bytes) -> bytes:
    """Return JSON with a question mark for each half of a surrogate pair, as of an emoji that was cut."""
    return _HALVES.sub(lambda match: match[0] if match[2] else match[1] + b"?", text)


@contextlib.asynccontextmanager
async def run_program(
    command: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    max_bytes: int,
    hear: Callable[[str], None],
) -> AsyncIterator[tuple[Receiving, Sending]]:
    """Start a program, give the streams of messages from it and to it, and end it at the end.

    `hear` is told what it writes that is no message. An answer that breaks the protocol ends all.
    """
    program = _Program(max_bytes, hear)
    transport, _ = await asyncio.get_running_loop().subprocess_exec(
        lambda: program, *command, env={**get_default_environment(), **env}, cwd=cwd, start_new_session=True
    )
    arrived, read = anyio.create_memory_object_stream[SessionMessage](0)
    write, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(program.receive, arrived)
        tasks.start_soon(program.send, to_send, arrived)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                for stream in (read, write, to_send):
                    stream.close()
                await _end(transport)
            tasks.cancel_scope.cancel()


class _Program(SubprocessStreamProtocol):
    """The pipes of a program, and the messages on them."""

    def __init__(self, max_bytes: int, hear: Callable[[str], None]) -> None:
        super().__init__(max_bytes, asyncio.get_running_loop())
        self.max_bytes, self.hear = max_bytes, hear
        self.asked: set[str] = set()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == 2 and isinstance(data, bytes):
            self.hear(data[-1000:].decode("utf-8", "replace"))
        else:
            super().pipe_data_received(fd, data)

    async def receive(self, arrived: Sending) -> None:
        """Pass the program's messages on, until it ends or breaks the protocol."""
        assert self.stdout is not None
        with contextlib.suppress(*_GONE):
            async with arrived:
                while line := await self._read_line(self.stdout):
                    if message := self._read(line):
                        await arrived.send(SessionMessage(message))
                    await asyncio.sleep(0)  # other sessions come between the lines of a flood
        while await self.stdout.read(2**16):
            pass  # nobody listens any more, but a program that cannot write does not end

    async def send(self, to_send: Receiving, arrived: Sending) -> None:
        """Pass messages on to the program."""
        assert self.stdin is not None
        try:
            async with to_send:
                async for each in to_send:
                    if isinstance(each.message, JSONRPCRequest):
                        self.asked.add(str(each.message.id))
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self.stdin.write(text.encode() + b"\n")
                    await self.stdin.drain()
        except _GONE:
            await arrived.aclose()  # it takes no messages, so that no answer will come

    async def _read_line(self, stdout: asyncio.StreamReader) -> bytes:
        try:
            return await stdout.readline()
        except ValueError:
            raise self._name_breach(f"a message of more than {self.max_bytes:,} bytes") from None

    def _read(self, line: bytes) -> JSONRPCMessage | None:
        """Return the message of a line, and None for a line that is none, as a banner."""
        try:
            message = _parse(line)
        except ValueError as error:
            if _is_meant_as_answer(line):
                why = " ".join(str(error).split())
                raise self._name_breach(f"an answer that cannot be read: {why:.160}") from error
            if text := line[:200].decode("utf-8", "replace").strip():
                self.hear(f"a line that is no message of JSON-RPC: {text}\n")
            return None
        number = message.id if isinstance(message, JSONRPCResponse | JSONRPCError) else None
        if number is not None and str(number) not in self.asked:
            raise self._name_breach(f"an answer to no request, with the id {number!r:.60}")
        return message

    def _name_breach(self, what: str) -> ValueError:
        """Return the error to raise, having told it first: what waits for an answer fails at once."""
        self.hear(f"{what}.\n")
        return ValueError(what)


async def check_answer(response: httpx2.Response, max_bytes: int) -> None:
    """Bound an answer over HTTP, replace halves of surrogate pairs, and let JSON answer its own request.

    A hook of a client that asks for no compression: a compressed answer fails, as it may grow at will.
    """
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Answer(response, response.stream, max_bytes)


class _Answer(httpx2.AsyncByteStream):
    """The body of an answer, given on line by line if it is a stream of events, else as a whole."""

    def __init__(self, response: httpx2.Response, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self.body, self.max_bytes, self.request = body, max_bytes, response.request
        self.has_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        codings = response.headers.pop("content-encoding", "").lower().split(",")  # so nothing is decoded
        self.codings = _COMPRESSIONS.intersection(map(str.strip, codings))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces: list[bytes] = []
        size = 0
        if self.codings:
            what = f"an answer encoded as {' and '.join(sorted(self.codings))}, which was not asked for"
            raise self._name_failure(what)
        async for piece in self.body:
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1 if self.has_events else 0
            if end:
                yield without_halves(b"".join([*pieces, piece[:end]]))
                pieces, size = [], 0
            pieces.append(piece[end:])
            size += len(piece) - end
            if size > self.max_bytes:
                raise self._name_failure(f"an answer of more than {self.max_bytes:,} bytes")
        rest = b"".join(pieces)
        yield without_halves(rest if self.has_events else _number_as_asked(rest, self.request.content))

    async def aclose(self) -> None:
        await self.body.aclose()

    def _name_failure(self, what: str) -> Exception:
        """Return the error by which the SDK's client fails the request."""
        return httpx2.SSEError(what) if self.has_events else httpx2.StreamError(what)


def _number_as_asked(answer: bytes, request: bytes) -> bytes:
    """Return an answer with the id of its request, whose only answer it is; the SDK does so for events."""
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError):
        message, number = json.loads(answer), json.loads(request)["id"]
        if "method" not in message and message.get("id") != number:
            return json.dumps({**message, "id": number}).encode()
    return answer


def _parse(line: bytes) -> JSONRPCMessage:
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:  # once more without what is no text
        text = without_halves(line.decode("utf-8", "replace").encode())
        return jsonrpc_message_adapter.validate_json(text, by_name=False)


def _is_meant_as_answer(line: bytes) -> bool:
    """Return whether a line that cannot be read was to be an answer, and is no log that mentions one."""
    text = line.decode("utf-8-sig", "replace").lstrip(" \t[")
    if not text.startswith("{") or '"jsonrpc"' not in text:
        return False
    try:
        members = json.JSONDecoder().raw_decode(text)[0].keys()
    except (ValueError, RecursionError):  # broken off or too large, so that its first member has to tell
        member = _MEMBER.search(text)
        return member is None or member[1] != "method"
    if members <= {"jsonrpc", "id", "result"}:
        return True
    return "id" in members and "method" not in members and not members.isdisjoint({"result", "error"})


async def _end(transport: asyncio.SubprocessTransport) -> None:
    """Close the input of a program, which should end it, and then end it and what it started."""
    group = transport.get_pid()
    if stdin := transport.get_pipe_transport(0):
        stdin.close()
    await _wait_while(lambda: transport.get_returncode() is None)
    if _signal(group, signal.SIGTERM):
        await _wait_while(lambda: _signal(group, 0))
        _signal(group, signal.SIGKILL)
    await _wait_while(lambda: transport.get_returncode() is None)
    transport.close()


async def _wait_while(is_so: Callable[[], bool]) -> None:
    """Wait while something is so, at most _PATIENCE_S."""
    with anyio.move_on_after(_PATIENCE_S):
        while is_so():
            await anyio.sleep(0.01)


def _signal(group: int, signum: int) -> bool:
    """Return whether there was a process in the group to signal."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # of another user, or not yet reaped
    return True
