"""Connect to a server by a web socket, at its own address alone."""

from __future__ import annotations

from typing import Any

from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect


class ConnectionRefused(WebSocketException):
    """A server's answer other than a web socket: its `status`, and `answer`, which is the status in words."""

    def __init__(self, refusal: InvalidStatus) -> None:
        super().__init__(str(refusal))
        self.status = refusal.response.status_code
        self.answer = str(self.status)
        place = refusal.response.headers.get("Location")
        if place is not None and 300 <= self.status < 400:
            self.answer += (
                f": a redirect to {place[:120]!r}, which is not followed; give that address instead"
            )


class _Connection(ClientConnection):
    """A connection that follows no redirect, as websockets from 17 on would do: also to another origin.

    A redirect would take the headers, and with them a token or key, to whatever address the server names.
    """

    def handshake(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().handshake(*args, **kwargs)
        except InvalidStatus as refusal:
            raise ConnectionRefused(refusal) from refusal


def open_web_socket(url: str, **settings: Any) -> ClientConnection:
    """Open a web socket to `url`, without a proxy, and follow no redirect.

    Args:
        url: the address; its scheme is http or https.
        **settings: of `websockets.sync.client.connect`.

    Raises:
        ConnectionRefused: the server refuses, or redirects.
        OSError, EOFError, WebSocketException: there is no connection.
    """
    connection: ClientConnection = connect(
        url.replace("http", "ws", 1),
        compression=None,
        proxy=None,
        create_connection=_Connection,
        **settings,
    )
    return connection
