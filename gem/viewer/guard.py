"""Who may ask: whoever has the address. And what a page may do: nothing but show itself.

The address holds a random token as its first part, so it needs no cookie, which the browser would send to
every other server of this machine. The name that is asked for has to be this machine's: a page of another
site can let its own name stand for 127.0.0.1.
"""

from __future__ import annotations

import re
from secrets import compare_digest

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

NAME = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
SAFE = ("GET", "HEAD")
BODY_AT_MOST = 1 << 20
"""Bytes that a request may bring."""


class Guard:
    """Lets through what has the token, and gives every answer the headers of HEADERS."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """Stand before `app`."""
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: there are none here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        rest = "/" + scope["path"].split("/", 2)[2]
        await self.app({**scope, "path": rest, "raw_path": rest.encode()}, receive, guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not NAME.fullmatch(host):
            return PlainTextResponse("This server answers to 127.0.0.1 and localhost alone.\n", 421)
        parts = scope["path"].split("/", 2)
        if len(parts) < 3 or not compare_digest(parts[1].encode(), self.token.encode()):
            return PlainTextResponse("The address lacks its token; take the one that was printed.\n", 403)
        if scope["method"] not in SAFE:
            origin = headers.get("origin")
            if origin is not None and origin != f"http://{host}":
                return PlainTextResponse("A page of another site asked.\n", 403)
            length = headers.get("content-length", "")
            if not length.isdigit() or int(length) > BODY_AT_MOST:
                return PlainTextResponse(f"A request has {BODY_AT_MOST:,} bytes at most.\n", 413)
        return None
