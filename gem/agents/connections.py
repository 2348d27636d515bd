"""HTTP connections of an agent to its server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from gem.errors import AgentUnavailable, needs_extra

with needs_extra("an agent that asks a server", "httpx", "openai"):
    import httpx

EACH = 8
"""Number of connections per client."""


def _keep_no_cookies() -> CookieJar:
    """Return a jar that takes no cookie: one would connect requests of different episodes."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


class Tail:
    """The trace of a request, which closes the connection if bytes stand behind the answer.

    httpx would take a second answer for that of the next request on the connection, which may be of another
    episode. Set `response` before its body is read.
    """

    response: httpx.Response | None = None

    async def __call__(self, name: str, info: Mapping[str, Any]) -> None:
        """Take an event of httpcore."""
        if name == "http11.response_closed.started" and self.response is not None and self._is_there():
            await self.response.extensions["network_stream"].aclose()  # not used again: it has expired

    def _is_there(self) -> bool:
        stream: Any = self.response and self.response.stream
        try:  # httpx has no public way to its connection
            connection = stream._stream._httpcore_stream._stream._connection
            return bool(connection._h11_state.trailing_data[0])
        except AttributeError:
            return False


class Clients:
    """A pool of httpx clients with few connections each; it adds a client when all others are in use.

    At the start and end of each request, httpx checks all pairs of connections of its client. With a thousand
    connections in one client, a request costs a hundred times more than with few.
    """

    def __init__(self, timeout: httpx.Timeout) -> None:
        """Set up the pool; no connection is opened yet."""
        self._timeout, self._pid = timeout, os.getpid()
        self._context = httpx.create_ssl_context()  # read once: it takes longer than a request
        self._all: list[httpx.AsyncClient] = []
        self._free: list[
            httpx.AsyncClient
        ] = []  # a client as often as it has connections that are not in use

    @property
    def own(self) -> bool:
        """Whether the connections are of this process; a forked one must not use them."""
        return self._pid == os.getpid()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Yield a client for one request: the one used last, as its connection is still open.

        Raises:
            AgentUnavailable: for a proxy that cannot be used.
        """
        if not self._free:
            limits = httpx.Limits(max_connections=EACH, max_keepalive_connections=EACH)
            try:
                client = httpx.AsyncClient(
                    verify=self._context, timeout=self._timeout, limits=limits, cookies=_keep_no_cookies()
                )
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                raise AgentUnavailable(
                    f"the proxy that HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names cannot be used: {error}"
                ) from error
            self._all.append(client)
            self._free += [client] * EACH
        client = self._free.pop()
        try:
            yield client
        finally:
            self._free.append(client)

    async def aclose(self) -> None:
        """Close all connections."""
        clients, self._all, self._free = self._all, [], []
        for client in clients:
            await client.aclose()
