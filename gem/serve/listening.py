"""The sockets that servers listen on, who may ask, and the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Collection
from ipaddress import ip_address
from typing import Any

from gem.errors import BadArgument, reason

NAME = re.compile(r"\[?([0-9a-zA-Z.:-]*?)\]?(?::[0-9]{1,5})?")


def is_local(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_local_name(host: str) -> bool:
    """Return whether a Host header, a name or an address and the port, names this machine."""
    asked = NAME.fullmatch(host)
    return asked is not None and is_local(asked[1])


def refuse_sender(
    host: str, origin: str | None, *, loopback: bool, origins: Collection[str] = ()
) -> tuple[int, str] | None:
    """Return the status and the sentence that refuse a request; None if its sender may ask.

    Browsers send the origin of the requesting page. Pages of other sites must not reach a server: neither
    under their own origin nor by a name of theirs that points to this machine (DNS rebinding).

    Args:
        host: the request's Host header; empty if it has none.
        origin: its Origin header.
        loopback: whether only this machine may ask, so that `host` must name it.
        origins: origins of other pages that may ask.
    """
    if loopback and not is_local_name(host):
        return 421, "This server answers to local names alone, as 127.0.0.1 and localhost."
    if origin is None or origin in origins or origin.partition("://")[2] == host:
        return None
    return 403, "A page of another site asked."


def listen(host: str, port: int, backlog: int, hint: str = "--port 0 takes a free one") -> socket.socket:
    """Return a socket that listens: from now on whoever connects is answered, as soon as the server runs.

    Raises:
        BadArgument: for an address or a port that cannot be had; the message ends with `hint`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # TCP is named, or asyncio would not set TCP_NODELAY: 40 ms for each answer over HTTP
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(backlog)
    except (OSError, OverflowError) as error:
        listening.close()
        raise BadArgument(f"cannot listen on {host}:{port}: {reason(error)}; {hint}.") from error
    return listening


def _refuse_two_lengths(app: Any) -> Any:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        names = {name for name, _ in scope.get("headers", ())}
        if names >= {b"content-length", b"transfer-encoding"}:
            text = b"A request has Content-Length or Transfer-Encoding, not both.\n"
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": text})
        else:
            await app(scope, receive, send)

    return answer


def bounded_http(request_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP, which closes connections whose request does not arrive whole in `request_s`.

    uvicorn itself waits for ever: a client could keep any number of connections, each with half a request.
    A request with two lengths (Content-Length and Transfer-Encoding) is refused, and its connection closed:
    a server in front may take the other length, and pass on a part of the body as another client's request
    (RFC 9112, 6.1).
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class BoundedHTTP(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # h11 or httptools
        _timer: asyncio.TimerHandle | None = None
        app: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.app = _refuse_two_lengths(self.app)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._begin()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            cycle: Any = self.cycle  # of the newest request whose head has arrived
            if cycle is None or cycle.more_body or cycle.response_complete:
                self._begin()
            else:
                self._end()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end()
            super().connection_lost(exc)

        def _begin(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(request_s, self._close)

        def _end(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close(self) -> None:
            if self.transport.get_protocol() is self:  # else it is a web socket by now
                self.transport.close()

    return BoundedHTTP


def limit_connections(http: Any, most: int) -> Any:
    """Return a protocol of which `most` connections are open at a time; further ones are closed at once."""
    connected: set[object] = set()

    class Limited(http):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            if len(connected) < most:
                connected.add(self)
                super().connection_made(transport)
            else:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            if self in connected:
                connected.remove(self)
                super().connection_lost(exc)

    return Limited
