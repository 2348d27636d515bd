"""Read response bodies: decompress them within a size limit, and parse server-sent events."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

LONGEST_BODY = 32 * 2**20
"""The most decompressed bytes that are read of a response."""

LONGEST_STREAM = 128 * 2**20
"""The most bytes that are read of a stream: each token is an event of some hundred bytes."""


MOST_MEMBERS = 10_000
"""The most members of a gzip body: empty ones would add nothing to its length, for ever."""


class BodyTooLong(ValueError):
    """A response of more than LONGEST_BODY bytes."""


class Unpacked:
    """A decompressor of a body, piece by piece. It never unpacks more than the limit."""

    def __init__(self, encoding: str | None, longest: int = LONGEST_BODY) -> None:
        """Expect a body of this Content-Encoding.

        Raises:
            ValueError: for an encoding that was not requested.
        """
        self._left = longest
        self._packed: Any = None
        self._members = 0  # of the gzip body that are whole
        self._begun = False  # whether a further one has begun
        name = (encoding or "identity").strip().lower()
        if name in ("gzip", "x-gzip"):
            self._packed = zlib.decompressobj(zlib.MAX_WBITS | 16)
        elif name not in ("identity", ""):
            raise ValueError(f"the body has the encoding {name[:40]!r}; accepted: gzip.")

    def feed(self, piece: bytes) -> bytes:
        """Return the decompressed bytes of `piece`.

        Raises:
            ValueError: for a damaged body (BodyTooLong: for one that is too long).
        """
        if self._packed is not None:
            return b"".join(self._unpack(piece))
        self._count(piece)
        return piece

    def end(self) -> None:
        """Check that the body was whole.

        Raises:
            ValueError: for a gzip body that was cut.
        """
        if self._packed is not None and self._begun:
            raise ValueError("the gzip body was cut.")

    def _unpack(self, piece: bytes) -> Iterator[bytes]:
        """Yield what is in `piece`: a gzip body is one member after another (RFC 1952, 2.2)."""
        while piece:
            self._begun = True
            try:
                text = self._packed.decompress(piece, self._left + 1)
            except zlib.error as error:
                raise ValueError(str(error)) from error
            self._count(text)
            yield text
            piece = self._packed.unused_data
            if self._packed.eof:
                self._packed, self._begun = zlib.decompressobj(zlib.MAX_WBITS | 16), False
                self._members += 1
                if self._members > MOST_MEMBERS:
                    raise ValueError("the gzip body has too many members.")

    def _count(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise BodyTooLong("the body is longer than any valid answer.")


class Events:
    """A parser that yields the name and the data of server-sent events, from pieces of any size.

    It skips comments and fields other than ``event`` and ``data``; lines end with LF, CRLF or CR.
    """

    def __init__(self) -> None:
        """Start with an empty buffer."""
        self._rest: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._first = True

    def feed(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the name, mostly empty, and the data of each event that `piece` completes."""
        if b"\n" not in piece and b"\r" not in piece:  # of a long line
            self._rest.append(piece)
            return
        text = b"".join((*self._rest, piece))
        tail = b""
        if text.endswith(b"\r"):  # perhaps the half of CRLF
            text, tail = text[:-1], b"\r"
        *lines, rest = _LINE_END.split(text)
        self._rest = [rest + tail]
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the last event, if the stream ended without an empty line after it."""
        for line in _LINE_END.split(b"".join(self._rest)):
            yield from self._line(line)
        yield from self._line(b"")

    def _line(self, line: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if self._data:
                yield self._name, b"\n".join(self._data)
            self._name, self._data = b"", []
        elif line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self._name = line[6:].removeprefix(b" ")


_LINE_END = re.compile(b"\r\n|\n|\r")
