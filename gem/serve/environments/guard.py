"""Access control of the environment server: a token, and no requests from pages of other sites."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from secrets import compare_digest

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gem.errors import BadArgument
from gem.serve.environments.metrics import Metrics
from gem.serve.listening import refuse_sender

ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(0|[1-9][0-9]{0,4}))?")
PORTS = {"http": "80", "https": "443"}
"""The ports that browsers leave out of an origin."""

OPEN_PATHS = ("/health",)
"""The paths that load balancers may request without a token."""


def check_origins(origins: Collection[str]) -> None:
    """Check that a browser can send each of these origins (RFC 6454, 6.2).

    Raises:
        BadArgument: for one that no page has.
    """
    for origin in origins:
        parts = ORIGIN.fullmatch(origin)
        if parts is None or (parts[3] is not None and parts[3] == PORTS.get(parts[1])):
            raise BadArgument(
                f"origins has {origin!r:.80}, which no page has. Accepted: a scheme and a host in lower "
                "case, as https://example.org, with the port where it is not the scheme's own, and no path."
            )


class Guard:
    """Middleware that checks the token; without one, it accepts only requests to this machine's own names.

    Pages of other sites are refused for WebSockets too, which browsers open to any address.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        origins: Collection[str],
        metrics: Metrics,
        has_key: Callable[[str], bool],
    ) -> None:
        """Protect `app`; without a token, only requests to local names are answered.

        `has_key`: whether a path ends with the key of an episode; such a path needs no token.
        """
        self.app, self.origins, self.metrics, self.has_key = app, frozenset(origins), metrics, has_key
        self._wanted = None if token is None else b"Bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        why = None if scope["type"] == "lifespan" else self._refusal(scope)
        if why is None:
            await self.app(scope, receive, send)
            return
        self.metrics.count("requests_refused_total")
        status, text = why[0], f"{why[1]}\n"
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.http.response.start", "status": status, "headers": []})
            await send({"type": "websocket.http.response.body", "body": text.encode()})
        else:
            await PlainTextResponse(text, status)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = dict(scope["headers"])
        host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
        page = None if origin is None else origin.decode("latin-1")
        refusal = refuse_sender(host, page, loopback=self._wanted is None, origins=self.origins)
        if refusal is not None or self._wanted is None:
            return refusal
        if scope["path"] in OPEN_PATHS or self.has_key(scope["path"]):
            return None
        if compare_digest(headers.get(b"authorization", b""), self._wanted):
            return None
        return 401, "The token is missing or wrong; send it as `Authorization: Bearer ...`."
