"""Who may ask, how much, and how a server ends."""

import json
import os
import signal
import subprocess
import sys
import threading

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import gem
from gem.errors import BadArgument, GemError
from gem.hosts.remote import Remote
from gem.registry import Maker

TOKEN = "0123456789abcdef"


def status_of(connected, server, path="/ws", **headers):
    with pytest.raises(InvalidStatus) as refused:
        connected(server, path, **headers)
    return refused.value.response.status_code


def test_a_token_is_wanted_of_everybody(serving, connected):
    server = serving(token=TOKEN)
    for path in ("/ws", "/mcp", "/gem", "/served:Obeying/ws"):
        assert status_of(connected, server, path) == 401
        assert status_of(connected, server, path, Authorization=f"Bearer {TOKEN}x") == 401
    for path in ("/metrics", "/schema", "/state", "/list_environments"):
        assert httpx.get(server.url + path).status_code == 401
    assert httpx.post(server.url + "/reset", json={}).status_code == 401
    assert httpx.get(server.url + "/health").status_code == 200
    assert connected(server, Authorization=f"Bearer {TOKEN}").reset(seed=1)["done"] is False
    assert server.application.metrics["requests_refused_total"] == 13


def test_pages_of_other_sites_and_other_names_are_refused(serving, connected):
    server = serving(origins=["https://mine.example"])
    assert status_of(connected, server, Origin="https://evil.example") == 403
    assert connected(server, Origin="https://mine.example").reset(seed=1)
    assert connected(server, Origin=server.url).reset(seed=1)
    rebound = httpx.get(server.url + "/health", headers={"Host": f"evil.example:{server.port}"})
    assert rebound.status_code == 421
    assert httpx.post(server.url + "/reset", json={}, headers={"Origin": "null"}).status_code == 403


ORIGINS = [
    "https://evil.example",
    "null",
    "",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "http://localhost.evil.example",
]


@pytest.mark.parametrize(
    "origin",
    ["foo", "https://mine.example/", "https://Mine.example", "https://mine.example:443", "null", "*", ""],
)
def test_an_origin_that_no_page_has_is_refused(serving, origin):
    with pytest.raises(BadArgument, match="which no page has"):
        serving(origins=["https://mine.example:8443", "http://[::1]:8000", origin])


@pytest.mark.parametrize("token", [None, TOKEN])
def test_web_sockets_of_pages_of_other_sites_are_refused_as_requests_are(serving, connected, token):
    server = serving(token=token)
    own = {} if token is None else {"Authorization": f"Bearer {token}"}
    for origin in ORIGINS:
        headers = {**own, "Origin": origin}
        for path in ("/ws", "/mcp", "/gem", "/served:Obeying/ws", "/served:Obeying/mcp"):
            assert status_of(connected, server, path, **headers) == 403, (origin, path)
        assert httpx.get(server.url + "/schema", headers=headers).status_code == 403
    assert connected(server, "/gem", **own, Origin=server.url)
    if token is None:  # by a name of theirs that points here
        host = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert httpx.get(server.url + "/schema", headers=host).status_code == 421


def test_a_full_server_says_so_and_has_room_again(serving, connected, until):
    server = serving(limits={"sessions": 2})
    first, second = connected(server), connected(server)
    first.reset(seed=1), second.reset(seed=1)
    third = connected(server)
    assert third.error({"type": "reset"})["code"] == "CAPACITY_REACHED"
    assert httpx.post(server.url + "/reset", json={}).status_code == 503
    with Remote(address=server.url) as host:
        host.add(Maker("served:Obeying"))
        _, errors = host.map([0], "reset", [1])
        assert type(errors[0]).__name__ == "Full"
        first.socket.send(json.dumps({"type": "close"}))
        until(lambda: len(server.application.sessions) == 1, "the session stayed")
        _, errors = host.map([0], "reset", [1])
        assert not errors
    assert server.application.metrics["sessions_refused_total"] == 3


def test_a_session_that_nobody_holds_makes_room(serving, connected, monkeypatch):
    monkeypatch.setattr("gem.serve.environments.sessions.FORSAKEN_S", 0.0)
    server = serving(limits={"sessions": 2})
    held = connected(server)
    held.reset(seed=1)
    for _ in range(3):  # over HTTP, without a goodbye
        assert httpx.post(server.url + "/reset", json={}).status_code == 200
    assert held.step("x")["reward"] == 1 / 8
    assert len(server.application.sessions) == 2


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "localhost"])
def test_every_name_of_this_machine_will_do(serving, host):
    try:
        server = serving(host=host)
    except BadArgument as absent:
        pytest.skip(str(absent))
    assert httpx.get(server.url + "/health").status_code == 200
    with gem.make(f"remote:{server.url}/served:Obeying") as env:
        assert env.reset(seed=1).obs.startswith("start ")


def test_a_message_that_is_too_long_ends_the_connection_alone(serving, connected):
    server = serving(limits={"message_bytes": 1000})
    client, neighbour = connected(server), connected(server)
    neighbour.reset(seed=1)
    with pytest.raises(ConnectionClosed):
        client.ask({"type": "step", "data": {"text": "x" * 2000}})
    assert neighbour.step("x")["reward"] == 1 / 8
    assert httpx.post(server.url + "/reset", json={"episode_id": "x" * 2000}).status_code == 413


def test_who_asks_too_fast_waits(serving, connected):
    server = serving(limits={"rate": 50.0})
    client = connected(server)
    for _ in range(60):
        client.reset(seed=1)
    assert server.application.metrics["calls_slowed_total"] > 0


def test_a_session_that_nobody_uses_is_closed(serving, connected, until):
    server = serving(limits={"lease_s": 0.2})
    client = connected(server)
    client.reset(seed=1)
    over_http = httpx.post(server.url + "/reset", json={}).json()["metadata"]["session_id"]
    with Remote(address=server.url) as host:
        host.add(Maker("served:Obeying"))
        host.map([0], "reset", [1])
        until(lambda: len(server.application.sessions) == 0, "a session stayed")
        _, errors = host.map([0], "step", ["x"])
        assert type(errors[0]).__name__ == "WorkerDied"
    with pytest.raises(ConnectionClosed):
        client.socket.recv(20)
    body = {"action": {"text": "x"}, "session_id": over_http}
    assert "its lease expired" in httpx.post(server.url + "/step", json=body).json()["detail"]
    assert server.application.metrics["sessions_expired_total"] == 3


def test_a_call_that_hangs_is_no_verdict_and_holds_up_nobody(serving, connected):
    from served_envs import Obeying

    Obeying.gate.clear()
    server = serving("served:Waiting", limits={"call_s": 0.5})
    client, neighbour = connected(server), connected(server)
    client.reset(seed=1), neighbour.reset(seed=1)
    client.socket.send(json.dumps({"type": "step", "data": {"text": "wait"}}))
    assert neighbour.step("x")["reward"] == 1 / 8
    end = json.loads(client.socket.recv(20))["data"]
    assert (end["reward"], end["done"], end["metadata"]["error"]["type"]) == (None, True, "WorkerDied")
    Obeying.gate.set()
    assert client.reset(seed=1)["done"] is False


def test_a_worker_that_dies_is_no_verdict(serving, connected):
    client = connected(serving(backend="process"))
    client.reset(seed=1)
    end = client.step("die")
    assert (end["reward"], end["done"], end["metadata"]["error"]["type"]) == (None, True, "WorkerDied")
    client.reset(seed=1)
    assert client.step("x")["reward"] == 1 / 8


def test_every_verb_of_a_host_can_be_asked_for_and_no_other():
    from gem.hosts.verbs import VERBS
    from gem.serve.environments.native import PLAIN_VERBS

    states = {"get_state", "set_state", "fork_state"}
    assert {*PLAIN_VERBS, "reset", "step", "advance", *states} == {*VERBS} - {"run_program"}


def test_clients_name_no_code(serving):
    server = serving(keywords=["length"], wrappers=["concat"])
    from websockets.sync.client import connect

    hostile = [
        {"spec": "served:Obeying", "kwargs": {"length": {"$make": "os:system", "args": ["true"]}}},
        {"spec": "served:Obeying", "wrappers": [{"name": "os:system"}]},
        {
            "spec": "served:Obeying",
            "wrappers": [{"name": "concat", "kwargs": {"x": [{"$callable": "os:system"}]}}],
        },
        {"spec": "os:system", "entry_point": "os:system"},
        {"spec": "game:GuessTheNumber-v0-easy", "entry_point": "gem.envs.games:GuessTheNumber"},
    ]
    with connect(server.url.replace("http", "ws") + "/gem") as socket:
        for number, task in enumerate(hostile):
            asked = {"id": number, "session": f"{number:020}", "verb": "reset", "args": [1], "open": task}
            socket.send(json.dumps([asked]))
            (answer,) = json.loads(socket.recv(20))
            assert answer["error"]["type"] in ("BadArgument", "UnknownArgument", "UnknownEnv"), answer
        for verb, args in [("__class__", []), ("close_all", []), ("step", []), ("set_state", [{"a": 1}])]:
            asked = {
                "id": 99,
                "session": "s" * 20,
                "verb": verb,
                "args": args,
                "open": {"spec": "served:Obeying"},
            }
            socket.send(json.dumps([asked]))
            assert json.loads(socket.recv(20))[0]["error"]["type"] == "BadArgument"
            socket.send(json.dumps([{"id": 0, "session": "s" * 20, "verb": "close"}]))
            socket.recv(20)
        socket.send(json.dumps([{"id": 1, "session": "short", "verb": "reset", "open": {"spec": "x"}}]))
        assert "characters" in json.loads(socket.recv(20))[0]["error"]["message"]
        socket.send("nonsense")
        with pytest.raises(ConnectionClosed):
            socket.recv(20)
    assert len(server.application.sessions) == 0


WRAPPERS = """
from gem.core import Env, EnvWrapper

class Plain(EnvWrapper):
    pass

class Times(EnvWrapper):
    def __init__(self, env, factor):
        super().__init__(env)

class Broken(EnvWrapper):
    def __init__(self, env):
        raise OSError("no such table")

def nothing(env) -> Env:
    pass

def untyped(env):
    return env
"""


def test_a_wrapper_that_cannot_be_had_is_told_when_the_server_starts(serving, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.py").write_text(WRAPPERS)
    for name, told in {
        "w.py:Broken": r"wrapper w\.py:Broken cannot be put around served:Obeying: OSError: no such table",
        "w.py:nothing": r"w\.py:nothing cannot be put around served:Obeying: .* made None, which",
        "w.py:untyped": "returns a wrapped environment and says so",
        "w.py:Plane": "there is no 'Plane' in it. Did you mean 'Plain'",
        "away.py:Plain": "away.py",
        "no_such:Plain": "no module 'no_such'",
        "concta": "Did you mean 'concat'",
        "concat_chat": "cannot be put around served:Obeying",  # no client can send a tokenizer
    }.items():
        with pytest.raises(GemError, match=told):
            serving(wrappers=[name])
    serving(wrappers=["w.py:Plain", "w.py:Times"])  # its factor comes from clients
    serving("served:Obeying", "multi:KuhnPoker-v0", wrappers=["concat"])  # the first takes it


def test_a_client_asks_for_a_wrapper_by_its_file(serving, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.py").write_text(WRAPPERS)
    server = serving(wrappers=["w.py:Plain"])
    with Remote(address=server.url) as host:
        host.add(Maker("served:Obeying", wrappers=("w.py:Plain",)))
        assert host.map([0], "reset", [1])[1] == {}


def test_a_server_that_is_to_end_lets_episodes_finish(serving, connected):
    server = serving()
    client, idle = connected(server), connected(server)
    client.reset(seed=1)
    client.step("x")
    server.drain()
    assert httpx.get(server.url + "/health").status_code == 503
    assert idle.error({"type": "reset"})["code"] == "CAPACITY_REACHED"
    assert client.step("x")["done"] is False
    assert client.step("x")["done"] is True
    server.thread.join(20)
    assert not server.thread.is_alive()
    with pytest.raises(ConnectionClosed):
        client.ask({"type": "state"})


def test_a_server_that_is_to_end_waits_no_longer_than_it_was_told(serving, connected):
    server = serving(limits={"drain_s": 0.3})
    client = connected(server)
    client.reset(seed=1)
    server.drain()
    server.thread.join(20)
    assert not server.thread.is_alive()


@pytest.fixture
def command():
    """Return a function that starts ``gem-gym serve`` in a process of its own, and its address."""
    started = []

    def start(*words, **env):
        process = subprocess.Popen(
            [sys.executable, "-m", "gem", "serve", *words, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )
        started.append(process)
        return process, process.stdout.readline().split()[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.system
def test_the_command_serves_and_ends_with_a_signal(command):
    process, url = command("game:GuessTheNumber-v0-easy,game:Sudoku-v0-easy", GEM_SERVE_TOKEN=TOKEN)
    with gem.make(f"remote:{url}/game:Sudoku-v0-easy", token=TOKEN) as env:
        env.reset(seed=1)
        env.step(env.solve())
        process.send_signal(signal.SIGTERM)
        ended = threading.Timer(60, process.kill)
        ended.start()
        while not env.step(env.solve()).done:  # it drains: what has begun may finish
            pass
    out, err = process.communicate()
    ended.cancel()
    assert (process.returncode, out) == (0, "")
    assert err == "1 episodes may finish within 30 s; another signal ends them now.\n"
