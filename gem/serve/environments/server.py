"""The environment server: it listens, serves, and drains when it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection, Sequence
from contextlib import suppress
from types import FrameType

from gem.errors import BadArgument, StoreError, needs_extra
from gem.rollout.store import EpisodeStore
from gem.serve.environments.app import Application
from gem.serve.environments.limits import ServeLimits
from gem.serve.listening import bounded_http, is_local, listen

with needs_extra("serving environments", "uvicorn and the websockets", "serve"):
    import uvicorn

    # uvicorn finds it by itself, but says less clearly that it is absent, and loads its parts in the server's
    # thread, while a client of the same process loads them too: Python's import locks then end in a deadlock.
    import websockets.exceptions
    import websockets.extensions.permessage_deflate
    import websockets.server  # noqa: F401

LOG = logging.getLogger("gem.serve")

BACKLOG = 4096
TOKEN_AT_LEAST = 16
"""The fewest characters of a token; a shorter one could be guessed."""


class EnvironmentServer:
    """A server of environments for OpenEnv's clients and gem's own; `url` is set before it starts.

    On SIGTERM, or Ctrl-C, it drains: no new episode starts, and running ones may finish within
    `ServeLimits.drain_s`. A second signal stops it at once.

    Args:
        ids: see Application.
        host: the address to listen on; by default only this machine can connect.
        port: the port to listen on; 0 takes a free one.
        token: the token that clients must send; required if other machines can connect.
        origins: as of Application.
        limits: as of Application.
        backend: as of Application.
        keywords: as of Application.
        wrappers: as of Application.
        store: as of Application.
        show_reward: as of Application.

    Raises:
        BadArgument: when it cannot listen there, or needs a token to do so. Others: see Application.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        token: str | None = None,
        origins: Collection[str] = (),
        limits: ServeLimits | None = None,
        backend: str = "auto",
        keywords: Collection[str] = (),
        wrappers: Collection[str] = (),
        store: EpisodeStore | None = None,
        show_reward: bool = False,
    ) -> None:
        if token is not None and (
            len(token) < TOKEN_AT_LEAST or not token.isascii() or not token.isprintable()
        ):
            raise BadArgument(f"the token is to have {TOKEN_AT_LEAST} or more printable ASCII characters.")
        if token is None and not is_local(host):
            raise BadArgument(
                f"host is {host!r}, which others can reach: a token is needed. Set GEM_SERVE_TOKEN, here and "
                "for the clients, or listen on 127.0.0.1."
            )
        self.limits = limits or ServeLimits()
        self.application = Application(
            ids,
            token=token,
            origins=origins,
            limits=self.limits,
            backend=backend,
            keywords=keywords,
            wrappers=wrappers,
            store=store,
            show_reward=show_reward,
        )
        self._socket = listen(host, port, BACKLOG)
        with suppress(AttributeError, OSError):  # Linux's; it cuts off a client that reads nothing
            unread_ms = int(self.limits.unread_s * 1000)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
        name, self.port = self._socket.getsockname()[:2]
        self.url = f"http://[{name}]:{self.port}" if ":" in name else f"http://{name}:{self.port}"
        self._server = _Server(self.application, self.limits)

    def serve(self) -> None:
        """Serve until a signal, or `stop`.

        Raises:
            StoreError: at the end, when records of episodes could not be written.
        """
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
        if lost := self.application.metrics["records_lost_total"]:
            raise StoreError(f"{lost:,} records of episodes could not be written; the log says why.")

    def drain(self) -> None:
        """Start nothing new, and make `serve` return after the last episode; callable from any thread."""
        self._server.drain()

    def stop(self) -> None:
        """Make `serve` return soon; callable from any thread."""
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """uvicorn's server, which drains where uvicorn's own would cut everything off."""

    def __init__(self, application: Application, limits: ServeLimits) -> None:
        self._sessions, self._limits = application.sessions, limits
        self._until = float("inf")
        super().__init__(
            uvicorn.Config(
                application.app,
                http=bounded_http(limits.request_s),
                log_config=None,  # logging is the program's to configure
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on",
                backlog=BACKLOG,
                ws="websockets-sansio",  # of uvicorn's three the one with the least memory per connection
                ws_max_size=limits.message_bytes,
                ws_per_message_deflate=False,  # its windows take more memory than all the rest of a session
                timeout_graceful_shutdown=5,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, end at the second."""
        if self._sessions.draining:
            self.force_exit = self.should_exit = True
        elif self._sessions.running:
            LOG.warning(
                "%d episodes may finish within %g s; another signal ends them now.",
                self._sessions.running,
                self._limits.drain_s,
            )
        self.drain()

    def drain(self) -> None:
        self._sessions.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Look, ten times a second, whether all is over."""
        if self._sessions.draining and not self.should_exit:
            now = asyncio.get_running_loop().time()
            self._until = min(self._until, now + self._limits.drain_s)
            self.should_exit = now >= self._until or not self._sessions.running
        return await super().on_tick(counter)
