"""Killed clients and servers, cut connections, slow readers: nothing is lost, or twice, and nothing leaks."""

import asyncio
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from waiting import until_async
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from gem.agents.scripted import ScriptedAgent
from gem.hosts.remote import Remote
from gem.record import Verdict
from gem.registry import Maker
from gem.rollout import Job, Runner
from gem.testing.leaks import count_held, held_after

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def cut(host):
    host._connection.socket.shutdown(socket.SHUT_RDWR)


def test_a_thousand_cut_connections_lose_nothing_and_leak_nothing(serving, until):
    server = serving("served:Waiting", "served:Obeying", keywords=["length"])
    chance = random.Random(5)
    ids = ("served:Waiting", "served:Obeying") * 4
    recipes = [Maker(env_id, {"length": 10**6}) for env_id in ids]
    with Remote(address=server.url) as host:  # the server's threads start when they are first needed
        host.map([host.add(recipe) for recipe in recipes], "reset", range(len(ids)))
    until(lambda: len(server.application.sessions) == 0, "a session stayed")
    before = count_held()
    with Remote(address=server.url) as host:
        envs = [host.add(recipe) for recipe in recipes]
        host.map(envs, "reset", range(len(envs)))
        turns = dict.fromkeys(envs, 0)
        for number in range(1000):
            host.submit_all([(index, "step", (f"x{number}",), {}) for index in envs])
            if chance.random() < 0.5:
                host.ready(1, timeout=0.001)  # some answers were read before
                cut(host)
                for index in envs:
                    turns[index] += 1
                if host.busy:
                    host.ready(len(host.busy))
            else:
                cut(host)
                for outcome in host.ready(len(envs)):
                    turns[outcome.index] += 1
                    assert outcome.error is None
                    assert outcome.value.info["turn"] == turns[outcome.index] == number + 1
        values, errors = host.map(envs, "step", ["last"] * len(envs))
        assert not errors
        assert {value.info["turn"] for value in values} == {1001}, "a step was lost, or carried out twice"
        assert len(server.application.sessions) == len(envs)
    until(lambda: len(server.application.sessions) == 0, "a session stayed")
    assert held_after(before).within(before)


CLIENT = """
import json, sys, threading
from websockets.sync.client import connect
with connect(sys.argv[1]) as one, connect(sys.argv[1]) as two:
    for client in (one, two):
        client.send(json.dumps({"type": "reset", "data": {"seed": 1}}))
        client.recv()
    print("ready", flush=True)
    while True:
        one.send(json.dumps({"type": "step", "data": {"text": "x"}}))
        one.recv()
        two.send(json.dumps({"type": "step", "data": {"text": "x"}}))
        two.recv()
"""


def test_killed_clients_leave_nothing_behind(serving, until):
    server = serving(keywords=["length"])
    httpx.get(server.url + "/health")  # it serves: its loop has the files that it holds
    before = count_held()
    url = server.url.replace("http", "ws") + "/ws"
    for _ in range(5):
        clients = [
            subprocess.Popen([sys.executable, "-c", CLIENT, url], stdout=subprocess.PIPE) for _ in range(3)
        ]
        for client in clients:
            client.stdout.readline()
        for client in clients:
            client.kill()
            client.communicate()
        until(lambda: len(server.application.sessions) == 0, "a session stayed")
    assert server.application.metrics["sessions_closed_total"] == 30
    assert held_after(before).within(before)


def start(port):
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from gem.registry import register\n"
        "from gem.specs import EnvSpec\n"
        "from gem.serve.environments.server import EnvironmentServer\n"
        "register(EnvSpec('served:Obeying', 'served_envs:Obeying', {'length': 20}))\n"
        "EnvironmentServer(['served:Obeying'], port=int(sys.argv[1])).serve()\n"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(port), str(HERE)])


def test_killed_servers_make_episodes_without_verdict_and_no_other(until):
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port = tried.getsockname()[1]
    server = [start(port)]
    over = threading.Event()

    def reachable():
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    def kill():
        while not over.wait(1.5):
            server[0].send_signal(signal.SIGKILL)
            server[0].wait()
            server[0] = start(port)

    until(reachable, "the server did not come up")
    killer = threading.Thread(target=kill)

    def slow(ask):
        time.sleep(0.002)
        return "x"

    try:
        killer.start()
        host = Remote(address=f"http://127.0.0.1:{port}", patience_s=20.0)
        with host, Runner(ScriptedAgent(slow), host=host, retries=0, concurrency=16) as runner:
            played = list(runner.stream(Job("served:Obeying", seed=seed) for seed in range(300)))
    finally:
        over.set()
        killer.join()
        server[0].kill()
        server[0].wait()
    assert sorted(episode.seed for episode in played) == list(range(300))
    broken = [episode for episode in played if episode.verdict is Verdict.NONE]
    assert broken, "no server was killed in the middle of an episode"
    for episode in played:
        if episode.verdict is Verdict.NONE:
            assert episode.error.type == "WorkerDied"
        else:
            assert [turn.reward for turn in episode.turns] == [turn / 8 for turn in range(1, 21)]


def test_who_reads_nothing_is_cut_off_and_holds_up_nobody(serving, connected, until):
    server = serving(limits={"unread_s": 1.0, "message_bytes": 1 << 24}, keywords=["length"])
    httpx.get(server.url + "/health")
    before = count_held()
    deaf = []
    for _ in range(4):
        raw = socket.create_connection(("127.0.0.1", server.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
        raw.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\n{key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert raw.recv(12) == b"HTTP/1.1 101"
        deaf.append(raw)
    until(lambda: len(server.application.sessions) == 4, "the sessions were not opened")

    def flood(raw):
        body = json.dumps({"type": "reset", "data": {"length": 10**9}}).encode()
        step = json.dumps({"type": "step", "data": {"text": "x" * (1 << 16)}}).encode()
        try:
            for message in [body, *[step] * 500]:
                size = len(message)
                long = b"\xff" + size.to_bytes(8, "big")
                head = b"\x81" + (bytes([0x80 | size]) if size < 126 else long)
                raw.sendall(head + b"\0\0\0\0" + message)
        except OSError:
            pass

    flooding = [threading.Thread(target=flood, args=(raw,)) for raw in deaf]
    for thread in flooding:
        thread.start()
    client = connected(server)
    client.reset(seed=1, length=10**6)
    assert client.step("x")["reward"] == 1 / 8
    until(lambda: len(server.application.sessions) == 1, "who reads nothing was not cut off")
    for thread, raw in zip(flooding, deaf, strict=True):
        thread.join(20)
        raw.close()
    client.socket.close()
    assert held_after(before).within(before)


def test_a_signal_under_load_ends_a_server_quietly(until):
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port = tried.getsockname()[1]
    code = (
        "import sys\n"
        "from gem.serve.environments import ServeLimits\n"
        "from gem.serve.environments.server import EnvironmentServer\n"
        "limits = ServeLimits(drain_s=0.5)\n"
        "EnvironmentServer(['game:GuessTheNumber-v0-hard'], port=int(sys.argv[1]), limits=limits).serve()\n"
    )
    server = subprocess.Popen([sys.executable, "-c", code, str(port)], stderr=subprocess.PIPE, text=True)
    url = f"ws://127.0.0.1:{port}/ws"
    ends = []

    async def step():
        async with connect(url, compression=None, open_timeout=60) as client:
            begun.append(1)
            try:
                while True:
                    await client.send('{"type": "reset", "data": {"seed": 1}}')
                    answer = json.loads(await client.recv())
                    while not (answer["type"] == "error" or answer["data"]["done"]):
                        await client.send('{"type": "step", "data": {"text": "\\\\boxed{7}"}}')
                        answer = json.loads(await client.recv())
            except ConnectionClosed as end:
                ends.append(end.rcvd is not None)

    async def load():
        tasks = [asyncio.create_task(step()) for _ in range(300)]
        await until_async(lambda: len(begun) == len(tasks))
        server.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)

    def reachable():
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    begun: list[int] = []
    try:
        until(reachable, "the server did not come up")
        asyncio.run(load())
        _, err = server.communicate(timeout=60)
    finally:
        server.kill()
        server.communicate()
    assert server.returncode == 0
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 1, err
    assert len(ends) == 300


HOSTILE = (
    *(
        None,
        True,
        -1,
        3,
        2**80,
        1e308,
        "",
        "x",
        "\ud800",
        [],
        ["x"],
        {},
        {"text": "x"},
        {"text": 3},
        {"seed": 2**70},
    ),
    *({"$int": "zz"}, {"$float": "nan"}, {"$image": [1, 2]}, {"$dict": [[{"a": 1}, 1]]}, {"$repr": 3}),
    *({"snapshot": "x/1"}, {"type": "call_tool"}, {"index": 2.5}, {"spec": 3}, {"spec": "served:Obeying"}),
    {"spec": "served:Obeying", "kwargs": {"length": {"$make": "os:system"}}},
    {"spec": "served:Obeying", "wrappers": [{"name": "os:system"}]},
)
VERBS = [
    "reset",
    "step",
    "advance",
    "get_state",
    "set_state",
    "seed_actor",
    "solve",
    "describe",
    "introduce",
    "about",
    "fork",
    "close",
    "__init__",
]


def test_whatever_is_sent_is_answered_in_words(serving, connected, caplog):
    server = serving(keywords=["length"])
    chance = random.Random(7)
    pick = lambda *extra: chance.choice((*HOSTILE, *extra))  # noqa: E731

    def openenv():
        return {"type": chance.choice(["reset", "step", "state", "x"]), "data": pick(), "request_id": pick()}

    def native():
        asked = {"id": chance.randrange(3), "session": chance.choice(["s", "t"]) * 20}
        asked |= {"verb": chance.choice(VERBS), "args": [pick() for _ in range(chance.randrange(3))]}
        asked |= {chance.choice(["open", "kwargs", "origin"]): pick("s" * 20)}
        return [asked]

    def rpc():
        return {
            "jsonrpc": "2.0",
            "id": 1,
            "method": chance.choice(["tools/call", "tools/list"]),
            "params": pick(),
        }

    for path, message in (("/ws", openenv), ("/gem", native), ("/mcp", rpc)):
        client = connected(server, path)
        for _ in range(1000):
            try:
                said = client.ask(message())
            except ConnectionClosed:  # gem's verbs are for gem's clients: nonsense ends the connection
                assert path == "/gem"
                client = connected(server, path)
                continue
            assert "Traceback" not in json.dumps(said)
    for record in caplog.records:
        assert record.name != "gem.serve", record.exc_info
    assert connected(server).reset(seed=1)["done"] is False
