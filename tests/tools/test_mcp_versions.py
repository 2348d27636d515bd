"""Both versions of the protocol: with a handshake, and of single requests (2026-07-28)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from gem.errors import NoVerdict, ToolError
from gem.tools.mcp_tool import MCPTool

MODERN = "2026-07-28"
SERVER = str(Path(__file__).with_name("mcp_modern_server.py"))
MODULES = "gem.tools.mcp_server.notes_mcp", "gem.tools.mcp_server.time_mcp"


class Listening:
    """A program that prints its address."""

    def __init__(self, *command):
        self.process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def listening():
    started = []

    def start(*command):
        started.append(Listening(*command))
        return started[-1].url

    yield start
    for each in started:
        each.end()


@pytest.mark.system
@pytest.mark.parametrize("how", ["unsupported", "unknown", "bare"])
def test_a_server_without_handshake_is_spoken_to(listening, how):
    tool = MCPTool(listening(SERVER, how), timeout=2.0)
    try:
        assert [each.name for each in tool.offered()] == ["add", "wait_forever", "ask_back", "die"]
        assert tool.call("add", {"a": 2, "b": 3}).text == "5"
        with pytest.raises(ToolError, match="asks for more input"):
            tool.call_tool("server", "ask_back", {})
        if how == "bare":
            with pytest.raises(ToolError, match="no answer within"):  # and the server is found to be well
                tool.call_tool("server", "wait_forever", {})
            assert tool.call("add", {"a": 2, "b": 3}).text == "5"
            with pytest.raises(NoVerdict):
                tool.call_tool("server", "die", {})
    finally:
        tool.close()


def test_the_handshake_comes_first_where_a_server_knows_both(listening):
    notes = MCPTool(listening("-m", MODULES[0], "--http", "0"))
    try:
        for _ in range(2):
            assert notes.call("count", {}).text == "1"
            notes.reset(0)
    finally:
        notes.close()


async def use(target, mode, calls):
    async with Client(target, mode=mode) as client:
        await client.list_tools()
        said = [await client.call_tool(name, arguments) for name, arguments in calls]
        return client.session.protocol_version, [each.content[0].text for each in said]


DAYS = [("days_in_month", {"date": "2024-02-10"})]
NOTE = [("write_note", {"text": "mine"}), ("read_notes", {})]


@pytest.mark.system
def test_our_servers_answer_over_http_in_both(listening):
    time, notes = (listening("-m", module, "--http", "0") for module in MODULES[::-1])
    assert asyncio.run(use(time, "legacy", DAYS))[1] == ["29"]
    assert asyncio.run(use(time, "auto", DAYS)) == (MODERN, ["29"])
    for mode in ("legacy", "auto", "auto"):  # none reads what the one before wrote
        version, said = asyncio.run(use(notes, mode, NOTE))
        assert version < MODERN
        assert said == ["Note 1 is written.", "mine"]
    _, said = asyncio.run(use(notes, MODERN, NOTE))
    assert all("begin with the initialize handshake" in each for each in said)


@pytest.mark.system
@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
def test_our_servers_answer_over_stdio_in_both(mode):
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    parameters = StdioServerParameters(command=sys.executable, args=["-m", MODULES[0]], env=env)
    version, said = asyncio.run(use(stdio_client(parameters), mode, NOTE))
    assert (version == MODERN) == (mode != "legacy")
    assert said == ["Note 1 is written.", "mine"]
