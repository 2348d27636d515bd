"""Small MCP servers to try and test MCPTool with.

Each module is a program: ``python -m gem.tools.mcp_server.NAME`` speaks over stdio, and with ``--http PORT``
over streamable HTTP. The time server is found over HTTP unless ``--transport stdio`` is given.
"""

from __future__ import annotations

import argparse
import inspect
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gem.errors import needs_extra

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer
    from mcp.types import CallToolResult


def server(name: str, instructions: str) -> MCPServer:
    """Return an empty server.

    Raises:
        MissingExtra: without the mcp package.
    """
    with needs_extra(f"the MCP server {name!r}", "mcp", "mcp"):
        from mcp.server.mcpserver import MCPServer

    class Server(MCPServer):
        async def get_tool(self, name: str) -> OfferedTool:
            """Return a tool by name, to be called without a client. Raises KeyError if there is none."""
            tool = self._tool_manager.get_tool(name)
            if tool is None:
                raise KeyError(name)
            return OfferedTool(name, tool.description, tool.parameters, tool.fn)

    return Server(name, instructions=instructions, log_level="WARNING")


@dataclass(frozen=True)
class OfferedTool:
    """A tool of a server in this process: `fn` is the function, `parameters` the schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    fn: Callable[..., Any]

    async def run(self, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call the function and return what a client would get; its exceptions are raised."""
        from mcp.types import CallToolResult, TextContent

        value = self.fn(**arguments)
        value = await value if inspect.isawaitable(value) else value
        text = TextContent(type="text", text=str(value))
        return CallToolResult(content=[text], structured_content={"result": value})


def serve(
    app: MCPServer,
    argv: Sequence[str] | None = None,
    *,
    sessions: bool = False,
    path: str = "/mcp",
    port: int | None = None,
) -> None:
    """Run a server until it is stopped: over stdio, or over HTTP at `path`, printing its address.

    Without arguments it speaks stdio, or HTTP on `port` where that is given. Set `sessions` for a server with
    a state. Clients over HTTP that ask for its protocol versions then get only those with a handshake,
    because the newer one has no sessions.
    """
    parser = argparse.ArgumentParser(description=app.instructions)
    parser.add_argument(
        "--transport",
        choices=("stdio", "http"),
        default="stdio" if port is None else "http",
        help="default: %(default)s",
    )
    parser.add_argument("--http", type=int, metavar="PORT", help="listen on 127.0.0.1; 0 takes a free port")
    given = parser.parse_args(argv)
    if given.http is None and given.transport == "stdio":
        app.run("stdio")
        return
    port = given.http if given.http is not None else port or 0
    import uvicorn

    if not 0 <= port < 1 << 16:
        parser.error(f"cannot listen on port {port}; accepted: 0, which takes a free one, to 65535.")
    try:
        listening = socket.create_server(("127.0.0.1", port), backlog=1024)
    except OSError as error:
        parser.error(f"cannot listen on port {port}: {error}; --http 0 takes a free one.")
    if sessions:
        _tell_of_sessions(app)
    with listening:
        sys.stdout.write(f"http://127.0.0.1:{listening.getsockname()[1]}{path}\n")
        sys.stdout.flush()
        config = uvicorn.Config(app.streamable_http_app(streamable_http_path=path), log_level="warning")
        uvicorn.Server(config).run(sockets=[listening])


def _tell_of_sessions(app: MCPServer) -> None:
    from mcp import types
    from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

    inner = app._lowlevel_server

    async def discover(context: Any, params: types.RequestParams) -> types.DiscoverResult:
        return types.DiscoverResult(
            supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS),
            capabilities=inner.get_capabilities(),
            instructions=inner.instructions,
        )

    inner.add_request_handler("server/discover", types.RequestParams, discover)
