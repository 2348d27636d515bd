"""Access control of the viewer: a secret token in the address, and strict response headers.

The first part of the address is a random token. No cookie is needed, which the browser would send to every
other server of this machine. The host name must be this machine's own, because another site can point its
own name to 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from secrets import compare_digest

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gem.serve.listening import refuse_sender

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
"""The most bytes of a request's body."""


@dataclass
class Guard:
    """Middleware that lets requests to `app` with the token through, and adds HEADERS to every response."""

    app: ASGIApp
    token: str = field(repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # a web socket: there are none here
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_guarded(message: Message) -> None:
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
            await refusal(scope, receive, send_guarded)
            return
        rest = "/" + scope["path"].split("/", 2)[2]
        await self.app({**scope, "path": rest, "raw_path": rest.encode()}, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if misdirected := refuse_sender(host, None, loopback=True):
            return PlainTextResponse(f"{misdirected[1]}\n", misdirected[0])
        parts = scope["path"].split("/", 2)
        if len(parts) < 3 or not compare_digest(parts[1].encode(), self.token.encode()):
            return PlainTextResponse("The address has no valid token; open the printed address.\n", 403)
        if scope["method"] not in SAFE:
            origin = headers.get("origin")
            if origin is not None and origin != f"http://{host}":
                return PlainTextResponse("Requests from pages of another site are refused.\n", 403)
            length = headers.get("content-length", "")
            if not length.isdigit() or int(length) > BODY_AT_MOST:
                return PlainTextResponse(f"A request may have {BODY_AT_MOST:,} bytes at most.\n", 413)
        return None
