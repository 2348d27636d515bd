"""Answers leave at once: a socket that waits for the client's word holds each of them for 40 ms."""

import asyncio
import socket

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("websockets")

from gem.agents.scripted import ScriptedAgent
from gem.serve.environments.server import EnvironmentServer
from gem.serve.proxy.server import Server as ProxyServer
from gem.viewer.server import Server as ViewerServer


@pytest.mark.parametrize(
    "start",
    [
        lambda: ProxyServer(ScriptedAgent(["x"])),
        lambda: EnvironmentServer(["served:Obeying"], port=0),
        lambda: ViewerServer([]),
    ],
    ids=["proxy", "environments", "viewer"],
)
def test_no_answer_waits_for_an_acknowledgement(start):
    async def held_back(listening):
        met = asyncio.get_running_loop().create_future()

        def meet(reader, writer):
            met.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(meet, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await met == 0

    server = start()
    assert not asyncio.run(held_back(server._socket))
