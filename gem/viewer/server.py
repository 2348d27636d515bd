"""The viewer's server: on this machine only, on a free port, with a secret token in its address."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import uvicorn

from gem.serve.listening import bounded_http, listen
from gem.viewer.app import Viewer
from gem.viewer.sources import Source

HOST = "127.0.0.1"

REQUEST_S = 20.0
"""Seconds within which a request must have arrived whole."""


class Server:
    """The server of the viewer's pages; its `url` is set before it starts."""

    def __init__(self, sources: Sequence[Source], port: int = 0, token: str | None = None) -> None:
        """Open the port; 0 takes a free one.

        Raises:
            BadArgument: for a port that is not free.
        """
        self.token = token or secrets.token_urlsafe(16)
        self._socket = listen(HOST, port, 512, "accepted: a free port, or 0 for any")
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/{self.token}/"
        self.viewer = Viewer(sources, self.token)
        settings = uvicorn.Config(
            self.viewer.app,
            http=bounded_http(REQUEST_S),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
        )
        self._server = uvicorn.Server(settings)

    def serve(self) -> None:
        """Serve until `stop`, or Ctrl-C."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Make `serve` return soon."""
        self._server.should_exit = True
