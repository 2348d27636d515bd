"""Streamable HTTP: one request to an episode, and its answer. The address is the key of the episode."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response

from gem.serve.mcp.messages import INVALID_REQUEST, PARSE_ERROR, VERSIONS, Endpoint, Wrong, encode, pack_error

VERSION_HEADER, SESSION_HEADER = "mcp-protocol-version", "mcp-session-id"
ERRORS = tuple(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":%d' % code for code in (PARSE_ERROR, INVALID_REQUEST)
)


async def answer_post(endpoint: Endpoint, headers: Headers, body: bytes) -> Response:
    """Return the answer to a POST: a JSON-RPC answer, or 202 without a body where there is none."""
    version = headers.get(VERSION_HEADER)
    if version is not None and version not in VERSIONS:
        return refuse(f"{VERSION_HEADER} is {version!r:.40}; accepted: {', '.join(VERSIONS)}.")
    answer = await endpoint.answer(body, version)
    if answer is None:
        return Response(status_code=202)
    return Response(answer, 400 if answer.startswith(ERRORS) else 200, media_type="application/json")


def refuse(why: str, status: int = 400) -> Response:
    """Return an answer that refuses a request."""
    return Response(
        encode(pack_error(None, Wrong(INVALID_REQUEST, why))), status, media_type="application/json"
    )
