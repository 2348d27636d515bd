"""The sockets that servers listen on, and the time that a request may take to arrive."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import Any

from gem.errors import BadArgument, reason


def is_local(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def bounded_http(request_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP, which closes connections whose request does not arrive whole in `request_s`.

    uvicorn itself waits for ever: a client could keep any number of connections, each with half a request.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class BoundedHTTP(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # h11 or httptools
        _timer: asyncio.TimerHandle | None = None

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
