"""The host's end of the channel to a child: sends requests, reads replies of a possibly hostile child.

Nothing that arrives is trusted: lengths are bounded and the head is JSON with known keys. Anything else
raises `Garbled`, which is the program's fault and ends the child.
"""

from __future__ import annotations

import json
import marshal
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

from gem.sandbox.pool import Child

LONGEST_HEAD = 4 << 20

Message = dict[str, Any]


class Garbled(Exception):
    """The child sent something that is not in its protocol."""


class Wire:
    """Requests and replies over a child's stream socket."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self.end.setblocking(False)
        self._left = memoryview(b"")
        self._sending = threading.Lock()
        self._came = bytearray()
        self._head: tuple[Message, list[int], int] | None = None
        self._blobs = 0

    def ask(self, request: Mapping[str, Any], *, blobs: int = 0) -> None:
        """Queue a request whose reply may have up to `blobs` bytes of blobs; `push` sends it."""
        self._blobs = blobs
        self.interject(request)

    def interject(self, message: Mapping[str, Any]) -> None:
        """Queue a message behind what is being sent; from another thread it must be one without a reply."""
        body = marshal.dumps(dict(message))
        with self._sending:
            self._left = memoryview(bytes(self._left) + struct.pack("!I", len(body)) + body)
        self.push()

    @property
    def wants(self) -> int:
        """Return the poll events to wait for."""
        return select.POLLIN | (select.POLLOUT if self._left else 0)

    def push(self) -> None:
        """Send as much of the request as the socket accepts."""
        with self._sending:
            try:
                while self._left:
                    self._left = self._left[self.end.send(self._left) :]
            except BlockingIOError:
                pass
            except OSError:
                self._left = memoryview(b"")  # the child is gone; its fork server says how

    def pull(self) -> bool:
        """Read what has arrived; return False at the end of the stream."""
        try:
            piece = self.end.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._came += piece
        return bool(piece)

    def reply(self) -> tuple[Message, list[bytes]] | None:
        """Return the reply and its blobs once it is complete, else None. Raises Garbled."""
        self._head = self._head or self._read_head()
        if self._head is None:
            return None
        head, lengths, at = self._head
        if len(self._came) < at + sum(lengths):
            return None
        self._head = None
        blobs = []
        for n in lengths:
            blobs.append(bytes(self._came[at : at + n]))
            at += n
        del self._came[:at]
        return head, blobs

    def _read_head(self) -> tuple[Message, list[int], int] | None:
        """Return the complete head, the lengths of its blobs, and where they begin. Raises Garbled."""
        if len(self._came) < 4:
            return None
        (length,) = struct.unpack_from("!I", self._came)
        if length > LONGEST_HEAD:
            raise Garbled
        if len(self._came) < 4 + length:
            return None
        try:
            head = json.loads(bytes(self._came[4 : 4 + length]))
            lengths = head.pop("blobs")
            if not all(type(n) is int and n >= 0 for n in lengths) or sum(lengths) > self._blobs:
                raise Garbled
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Garbled from error
        return head, lengths, 4 + length


class Timetable:
    """The steps against a request that takes long: each happens once, at its time after the begin."""

    def __init__(self, *steps: tuple[float, str]) -> None:
        begun = time.monotonic()
        self.steps = sorted((begun + after, name) for after, name in steps)

    def due(self) -> str | None:
        """Return the next step that is due, or None."""
        if self.steps and time.monotonic() >= self.steps[0][0]:
            return self.steps.pop(0)[1]
        return None

    def insert(self, after: float, name: str) -> None:
        """Add a step, `after` seconds from now."""
        self.steps = sorted([*self.steps, (time.monotonic() + after, name)])

    def wait_s(self) -> float | None:
        """Return the seconds until the next step."""
        return self.steps[0][0] - time.monotonic() if self.steps else None


class Channels:
    """All channels of a child: its two streams, its fork server's reports, and its wire if it has one."""

    def __init__(self, child: Child, wire: Wire | None = None) -> None:
        self._wire = wire
        self.listening = wire is not None  # the end of the wire has not come yet
        self._streams = {child.out.fd: child.out, child.err.fd: child.err}
        self._names = {child.out.fd: "out", child.err.fd: "err", child.status: "status"}
        if wire is not None:
            self._names[wire.end.fileno()] = "wire"
        self._poll = select.poll()
        for fd in self._names:
            self._poll.register(fd, select.POLLIN)

    def wait(self, seconds: float | None) -> set[str]:
        """Wait at most so long, read what the child has written, and return the names of what was ready."""
        wire = self._wire
        if wire is not None and self.listening:
            self._poll.modify(wire.end, wire.wants)
        ready = {fd for fd, _ in self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)}
        for fd in ready & self._streams.keys():
            if not self._streams[fd].read():
                self._poll.unregister(fd)
        names = {self._names[fd] for fd in ready}
        if wire is not None and "wire" in names:
            wire.push()
            if not wire.pull():
                self._poll.unregister(wire.end)
                self.listening = False
        return names
