"""What the tests of servers share."""

import contextlib
import json
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import waiting

from gem.errors import StoreError

sys.path.insert(0, str(Path(__file__).parent))  # served_envs is imported by worker processes as well

DEADLINE_S = 20.0


@pytest.fixture(autouse=True, scope="module")
def light_main():
    """Keep workers from importing pytest, which a spawned process does with its parent's main module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        yield


@pytest.fixture(autouse=True, scope="module")
def registered():
    from gem.registry import ENV_REGISTRY, register
    from gem.specs import EnvSpec

    ids = {
        "served:Obeying": {},
        "served:Waiting": {"waits": True},
        "served:Reusing": {"entry_point": "served_envs:Reusing"},
        "served:Divided": {"splits": ("train", "test")},
    }
    for env_id, claims in ids.items():
        register(EnvSpec(env_id, **{"entry_point": "served_envs:Obeying", **claims}))
    yield
    for env_id in ids:
        del ENV_REGISTRY[env_id]


@pytest.fixture
def serving():
    """Return a function that starts a server in a thread; all of them end with the test."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    pytest.importorskip("websockets")
    from gem.serve.environments import ServeLimits
    from gem.serve.environments.server import EnvironmentServer

    started = []

    def start(*ids, limits=None, **options):
        server = EnvironmentServer(
            ids or ["served:Obeying"], port=0, limits=ServeLimits(**(limits or {})), **options
        )
        server.failure = None

        def serve():
            try:
                server.serve()
            except StoreError as error:
                server.failure = error

        thread = threading.Thread(target=serve)
        thread.start()
        server.thread = thread
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


class Socket:
    """A client that speaks OpenEnv's protocol by hand."""

    def __init__(self, socket):
        self.socket = socket

    def ask(self, message):
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):  # what was sent before it closed can still be read
            self.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
        return json.loads(self.socket.recv(DEADLINE_S))

    def reset(self, **data):
        return self.data({"type": "reset", "data": data})

    def step(self, text):
        return self.data({"type": "step", "data": {"text": text}})

    def data(self, message):
        answer = self.ask(message)
        assert answer["type"] != "error", answer
        return answer["data"]

    def error(self, message):
        answer = self.ask(message)
        assert answer["type"] == "error", answer
        return answer["data"]


@pytest.fixture
def connected():
    """Return a function that connects a Socket; all of them are closed with the test."""
    from websockets.sync.client import connect

    with contextlib.ExitStack() as stack:

        def connected(server, path="/ws", **headers):
            url = (server.url + path).replace("http", "ws", 1)
            return Socket(stack.enter_context(connect(url, additional_headers=headers, max_size=None)))

        yield connected


@pytest.fixture
def until():
    """Return a function that polls for what another thread does."""
    return waiting.until
