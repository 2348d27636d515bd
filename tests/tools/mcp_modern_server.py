"""A server of the protocol without handshake alone; a program of test_mcp_versions.py, not a test."""

import asyncio
import json
import os
import sys

import uvicorn
from mcp.types import InputRequiredResult

from gem.tools.mcp_server import server

app = server("modern", "Speaks single requests alone.")
REFUSED = {
    "code": -32022,
    "message": "Unsupported protocol version",
    "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"},
}
HOW = {
    "unsupported": (400, REFUSED),
    "unknown": (200, {"code": -32601, "message": "Method not found"}),
    "bare": (400, None),
}


@app.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
async def wait_forever() -> str:
    """Never answer, but answer all else."""
    await asyncio.Event().wait()
    return ""


@app.tool()
async def ask_back() -> InputRequiredResult:
    """Want to know more before going on."""
    return InputRequiredResult(request_state="half done")


@app.tool()
async def die() -> str:
    """End the server without an answer."""
    os._exit(3)


def without_handshake(inner, how):
    """Refuse the handshake, in one of the ways in which servers do."""

    async def asgi(scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            return await inner(scope, receive, send)
        message = await receive()
        body = message["body"]
        while message.get("more_body"):
            message = await receive()
            body += message["body"]
        asked = json.loads(body)
        if asked.get("method") == "initialize":
            status, error = HOW[how]
            said = (
                json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode() if error else b""
            )
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            return await send({"type": "http.response.body", "body": said})
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return whole.pop() if whole else await receive()

        return await inner(scope, again, send)

    return asgi


if __name__ == "__main__":
    import socket

    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp\n")
    sys.stdout.flush()
    served = without_handshake(app.streamable_http_app(), sys.argv[1])
    uvicorn.Server(uvicorn.Config(served, log_level="warning")).run(sockets=[listening])
