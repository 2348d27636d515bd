"""Streamable HTTP: one request to an episode, and its answer. The address is the key of the episode."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from gem.serve.mcp.messages import INVALID_REQUEST, PARSE_ERROR, VERSIONS, Endpoint, Wrong, pack_error

VERSION_HEADER, SESSION_HEADER = "mcp-protocol-version", "mcp-session-id"
ERRORS = tuple(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":%d' % code for code in (PARSE_ERROR, INVALID_REQUEST)
)


async def answer_request(endpoint: Endpoint, request: Request, message_bytes: int = 1 << 20) -> Response:
    """Return the answer to a request to the address of an episode.

    For a server of one's own: ``Route("/mcp", partial(answer_request, endpoint), methods=[...])``. Whoever
    can reach that address can play the episode.
    """
    if request.method != "POST":
        refused = refuse("accepted: POST. The address is that of an episode, and does not end.", 405)
        refused.headers["allow"] = "POST"
        return refused
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > message_bytes:
                return refuse(f"a request has {message_bytes:,} bytes at most.", 413)
    except ClientDisconnect:
        return Response(status_code=400)
    return await answer_post(endpoint, request.headers, bytes(body))


async def answer_post(endpoint: Endpoint, headers: Headers, body: bytes) -> Response:
    """Return the answer to a POST: a JSON-RPC answer, or 202 without a body where there is none."""
    if (refused := refuse_version(headers)) is not None:
        return refused
    answer = await endpoint.answer(body, headers.get(VERSION_HEADER))
    if answer is None:
        return Response(status_code=202)
    return Response(answer, 400 if answer.startswith(ERRORS) else 200, media_type="application/json")


def refuse_version(headers: Headers) -> Response | None:
    """Return the answer to a request with a version of the protocol that is not accepted, else None."""
    version = headers.get(VERSION_HEADER)
    if version is None or version in VERSIONS:
        return None
    return refuse(f"{VERSION_HEADER} is {version!r:.40}; accepted: {', '.join(VERSIONS)}.")


def refuse(why: str, status: int = 400) -> Response:
    """Return an answer that refuses a request."""
    return Response(pack_error(None, Wrong(INVALID_REQUEST, why)), status, media_type="application/json")
