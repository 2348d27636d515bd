"""A server that does what servers should not; a program of test_mcp_tool.py, not a test."""

import asyncio
import os
import sys
import time

from gem.tools.mcp_server import serve, server

app = server("odd", "Misbehaves when asked to.")
pid = os.getpid()
calls = 0


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
async def freeze() -> str:
    """Stop the whole server."""
    time.sleep(600)
    return ""


@app.tool()
async def die() -> str:
    """End the server without an answer, having noted the call in the file that the server was given."""
    with open(os.environ["GEM_TEST_CALLS"], "a") as file:
        file.write("die\n")
    sys.stderr.write("these are my last words\n")
    sys.stderr.flush()
    os._exit(3)


@app.tool()
async def flood(size: int) -> str:
    """Say a great deal."""
    return "x" * size


@app.tool()
async def environment() -> str:
    """Tell the names of the variables that the server has."""
    return " ".join(os.environ)


if __name__ == "__main__":
    serve(app)
