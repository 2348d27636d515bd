"""MCP over standard input and output: a message a line. And the journal, from which a later process goes on.

A client starts its servers as it likes: once for each window, again after a crash. So the answers of an
unfinished episode are kept in a file, and another process with the same episode plays them again first.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gem.closing import Closing
from gem.content import ToolCall
from gem.errors import BadArgument, StoreError, reason
from gem.record import Reply
from gem.serve.mcp.messages import IN_FLIGHT, INVALID_REQUEST, Endpoint, Wrong, encode, pack_error

CLAIM_S = 5.0
"""Seconds to wait for another process that plays the same episode: a client restarts its servers."""

CHUNK = 1 << 16


class Journal(Closing):
    """The answers of an unfinished episode, in a file that one process at a time may use."""

    def __init__(self, path: Path, wait_s: float = CLAIM_S) -> None:
        """Open the file, and claim it.

        Raises:
            BadArgument: when another process plays the episode.
            StoreError: when the file cannot be opened, or is no journal.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {reason(error)}.") from error
        if not stat.S_ISREG(os.fstat(self._file).st_mode):  # reading it would have no end
            os.close(self._file)
            raise StoreError(f"{path} cannot be opened: it is a pipe or a device, not a file.")
        late = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= late:
                    os.close(self._file)
                    why = f"another process plays this episode ({path} is locked); end it first."
                    raise BadArgument(why) from None
            time.sleep(0.05)
        try:
            self._answers = self._read()
        except BaseException:
            self.close()
            raise

    def read(self) -> Sequence[tuple[str, Reply]]:
        """Return the answers of earlier processes, each with the digest of what it answered."""
        return self._answers

    def _read(self) -> Sequence[tuple[str, Reply]]:
        """Read the file; a torn last line is cut off."""
        written = self.path.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.ftruncate(self._file, whole)
        answers = []
        for line in written[:whole].splitlines():
            try:
                digest, text, calls = msgspec.json.decode(
                    line, type=tuple[str, str, list[tuple[str, str, str]]]
                )
            except msgspec.MsgspecError as error:
                raise StoreError(f"{self.path} is no journal of an episode: {error}.") from error
            answers.append((digest, Reply(text, tool_calls=tuple(ToolCall(*call) for call in calls))))
        return answers

    def append(self, digest: str, reply: Reply) -> None:
        """Write an answer, before its step.

        Raises:
            StoreError: when it cannot be written; the step is not taken then.
        """
        calls = [(call.id, call.name, call.arguments) for call in reply.tool_calls]
        size = os.fstat(self._file).st_size
        try:
            _write_all(self._file, encode((digest, reply.text, calls)) + b"\n")
        except OSError as error:
            os.ftruncate(self._file, size)
            raise StoreError(f"{self.path} cannot be written: {reason(error)}.") from error

    def remove(self) -> None:
        """Delete the file: the episode is written elsewhere."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let others use the file."""
        os.close(self._file)


async def serve_stdio(endpoint: Endpoint, source: int, sink: int, message_bytes: int = 1 << 20) -> None:
    """Answer the messages from one file descriptor on another, until its end; then wait for the answers."""
    running: set[asyncio.Task[None]] = set()
    writing = asyncio.Lock()

    async def write(answer: bytes | None) -> None:
        if answer is not None:
            async with writing:
                with suppress(OSError):  # the client is gone
                    await asyncio.to_thread(_write_all, sink, answer + b"\n")

    async def answer(line: bytes, busy: bool = False) -> None:
        await write(await endpoint.answer(line, endpoint.version, busy))

    try:
        async for line in _read_lines(source, message_bytes):
            if line is None:
                why = f"Invalid request: a message has {message_bytes:,} bytes at most."
                await write(pack_error(None, Wrong(INVALID_REQUEST, why)))
            elif not line.strip():
                continue
            elif len(running) >= IN_FLIGHT:
                await answer(line, busy=True)
            else:
                task = asyncio.create_task(answer(line))
                running.add(task)
                task.add_done_callback(running.discard)
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()


def _write_all(sink: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(sink, view) :]


async def _read_lines(source: int, at_most: int) -> AsyncIterator[bytes | None]:
    """Yield lines; None for one that is too long. A thread reads, because a file cannot be waited for."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(1)

    def read() -> None:
        while True:
            try:
                chunk = os.read(source, CHUNK)
            except OSError:
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            except (RuntimeError, asyncio.CancelledError):  # the loop has ended
                return
            if not chunk:
                return

    threading.Thread(target=read, name="gem-mcp-stdin", daemon=True).start()
    line, dropping = bytearray(), False
    while chunk := await chunks.get():
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            line += piece
            if dropping:
                dropping = False
            else:
                yield None if len(line) > at_most else bytes(line)
            line.clear()
        if not dropping:
            line += rest
        if len(line) > at_most:
            dropping = True
            yield None
            line.clear()
    if line and not dropping:
        yield bytes(line)
