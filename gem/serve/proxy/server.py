"""The server of a proxy: by default on this machine only, in the calling thread or in its own."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import contextmanager
from functools import partial
from socket import socket
from threading import Event, Thread
from typing import Any, NamedTuple, Self, TypeVar

from gem.errors import AgentUnavailable, BadArgument, needs_extra
from gem.record import Agent, Episode
from gem.rollout.store import EpisodeStore
from gem.serve.listening import bounded_http, is_local, limit_connections, listen

with needs_extra("The proxy", "starlette", "serve"):
    import uvicorn

    from gem.serve.proxy.app import ONLY_KEY, Proxy, Session

T = TypeVar("T")

LOOK_S = 1.0
"""Seconds between two looks whether the server that is to do something has ended."""

MOST_CONNECTIONS = 64
"""The connections of one program at a time: each is a descriptor of this process, of which all programs
have 1024 on many machines, and may hold a request."""


class Opened(NamedTuple):
    """An episode that a program can play: its name, and the API key and base URL for the program."""

    id: str
    api_key: str
    base_url: str


class Server:
    """A server of a Proxy; its `url` is set before it starts. As a context manager it serves in a thread.

    ::

        with Server(agent) as server:
            episode = server.open()
            run_program(base_url=episode.base_url, api_key=episode.api_key)
            server.reward(episode.id, 1.0)
            trained_on = server.take()
    """

    def __init__(
        self,
        agent: Agent,
        store: EpisodeStore | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        **settings: Any,
    ) -> None:
        """Open the port; 0 takes a free one.

        Args:
            agent: the agent that answers.
            store: episodes are written there when they end.
            host: the address to listen on; programs on other machines need one other than 127.0.0.1, and a
                token.
            port: the port to listen on.
            **settings: see Proxy.

        Raises:
            BadArgument: for a port that is not free, or a public host without a token or with `any_key`.
        """
        local = is_local(host)
        if not local and not settings.get("token"):
            raise BadArgument(
                f"host is {host!r}, which other machines can reach; set a token, or use 127.0.0.1."
            )
        if not local and settings.get("any_key"):
            raise BadArgument(
                f"host is {host!r}, which other machines can reach: any_key would let all open episodes; "
                "leave it out, and open episodes with the token."
            )
        self._episodes: deque[Episode] = deque()
        self.proxy = Proxy(agent, store, loopback=local, **settings)
        self.token = self.proxy.token
        self._socket = listen(host, port, 512, "accepted: a free port, or 0")
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        self._ready = Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._server = _Server(
            uvicorn.Config(
                self._app,
                http=bounded_http(self.proxy.allowed.request_s),
                interface="asgi3",
                log_level="error",
                access_log=False,
                server_header=False,
                lifespan="on",
                ws="none",
                timeout_keep_alive=600,  # longer than a program thinks between two calls
                timeout_graceful_shutdown=5,
            )
        )

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            self._loop = asyncio.get_running_loop()
            self._loop.call_later(0, self._ready.set)
        await self.proxy.app(scope, receive, send)

    def serve(self) -> None:
        """Serve until `stop`, or Ctrl-C. Episodes that are still open then end without a verdict."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self._ready.set()

    def stop(self) -> None:
        """Make `serve` return soon."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Serve in a thread; leaving the block stops it."""
        if self.proxy.ended is None:
            self.proxy.ended = self._episodes.append  # for `take`; nobody else would ever empty it
        self._thread = Thread(target=self.serve, name="proxy", daemon=True)
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop serving."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    # -- called from the training thread

    def open(self, name: str | None = None, **fields: Any) -> Opened:
        """Open an episode; see Proxy.open."""
        session = self.open_session(name, **fields)
        return Opened(session.name, session.key, f"{self.url}/v1")

    def open_session(self, name: str | None = None, **fields: Any) -> Session:
        """Open an episode, and return its session; see Proxy.open."""

        async def open_episode() -> Session:
            return self.proxy.open(name, **fields)

        return self.run(open_episode())

    @contextmanager
    def serve_too(self, listener: socket, key: str) -> Iterator[None]:
        """Serve one more listening socket, that of a program's own network, within the block.

        There no other key than `key` is accepted. It has `MOST_CONNECTIONS` at a time; more are closed.
        """

        async def begin() -> asyncio.Server:
            server = self._server
            http: Any = server.config.http_protocol_class
            protocol = partial(
                limit_connections(http, MOST_CONNECTIONS),
                config=server.config,
                server_state=server.server_state,
                app_state={**server.lifespan.state, ONLY_KEY: key},
            )
            served = await asyncio.get_running_loop().create_server(protocol, sock=copy)
            server.servers.append(served)
            return served

        async def end() -> None:
            self._server.servers.remove(served)
            served.close()

        with listener.dup() as copy:
            served = self.run(begin())
            try:
                yield
            finally:
                self.run(end())

    def reward(self, name: str, value: float | None = None, *, success: bool | None = None) -> Episode:
        """Give an episode its reward, end it, and return its record; see Proxy.reward."""

        async def give_reward() -> Episode:
            return (await self.proxy.reward(name, value, success=success)).recording.episode

        return self.run(give_reward())

    def take(self) -> list[Episode]:
        """Return the episodes that ended since the last call."""
        taken = []
        while self._episodes:
            taken.append(self._episodes.popleft())
        return taken

    def publish(self, version: int, weights: Any = None) -> None:
        """Answer as policy `version` from now on, after the current answers. See Agent.publish."""
        self.proxy.answering.publish(version, weights)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out work of the proxy in its event loop, from another thread, and return the result.

        Raises:
            AgentUnavailable: when the server has ended, or ends meanwhile.
        """
        if self._loop is None:
            work.close()
            raise BadArgument("the proxy is not serving; use it as a context manager.")
        try:
            result = asyncio.run_coroutine_threadsafe(work, self._loop)
            while not wait([result], LOOK_S).done:
                if self._loop.is_closed():
                    raise RuntimeError
            return result.result()
        except (RuntimeError, CancelledError) as error:
            if not self._loop.is_closed():
                raise
            work.close()
            raise AgentUnavailable("the proxy has ended; what it printed before says why.") from error


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves nothing open when its event loop ends before it was told to stop."""

    async def serve(self, sockets: list[socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            for listener in getattr(self, "servers", ()):  # uvicorn has none before it has started
                listener.close()
            for connection in list(self.server_state.connections):
                connection.transport.abort()
