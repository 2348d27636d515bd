"""No client of gem follows a redirect: what it sends, token included, is for the address it was given."""

import asyncio
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

for package in ("httpx", "websockets"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'gem-gym[serve]'")

import gem
from gem.agents.openai import OpenAIAgent
from gem.agents.token_server import TokenServerAgent
from gem.envs.bridges.openenv import OpenEnvEnv
from gem.errors import GemError
from gem.hosts.remote import Remote
from gem.record import Ask, Message
from gem.registry import Maker
from gem.sandbox.remote import RemoteSandbox
from gem.tokens.tiny import TinyRenderer
from gem.tools.search.remote import RetrieveEngine

CODES = [301, 302, 303, 307, 308]
ASK = Ask("e", "agent", 0, (Message("user", "hello"),))
CLIENT = re.compile(r"httpx2?\.(Async)?Client\(|httpx2?\.(get|post|stream|request)\(|[^.\w]connect\(|urlopen")


class Handler(BaseHTTPRequestHandler):
    """Record a request; redirect it if there is a target."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.server.requests.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        code = self.server.code if self.server.target else 200
        self.send_response(code)
        if self.server.target:
            scheme = "ws" if "Upgrade" in self.headers else "http"
            self.send_header("Location", scheme + self.server.target.removeprefix("http") + self.path)
        self.send_header("Content-Length", "2")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = answer

    def log_message(self, *args):
        pass


@contextmanager
def listening(target=None, code=200):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests, server.target, server.code = [], target, code
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask_agent(url):
    with OpenAIAgent("tiny", base_url=f"{url}/v1", retries=0) as agent:
        asyncio.run(agent.ask(ASK))


def ask_token_server(url):
    with TokenServerAgent(url, TinyRenderer(), "vllm", retries=0) as agent:
        asyncio.run(agent.ask(ASK))


def load_weights(url):
    with TokenServerAgent(url, TinyRenderer(), "vllm", retries=0) as agent:
        agent.publish(1, "weights")


def run_program(url):
    with RemoteSandbox(url, headers={"X-Key": "secret"}) as sandbox:
        sandbox.run("print(1)")


def search(url):
    RetrieveEngine(url, retries=0).search("x")


def reset_on_host(url):
    with Remote(address=url, token="secret-secret-secret", patience_s=2.0) as host:
        host.add(Maker("game:GuessTheNumber-v0-easy"))
        _, errors = host.map([0], "reset", [1])
        raise errors[0]


def make_remote(url):
    gem.make(f"remote:{url}/game:GuessTheNumber-v0-easy").reset(seed=1)


def reset_openenv(url):
    OpenEnvEnv(url, headers={"X-Key": "secret"}, call_s=5.0).reset(seed=1)


def read_schema(url):
    OpenEnvEnv(url, headers={"X-Key": "secret"}, call_s=5.0)._schema()


def open_mcp_session(url):
    pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")
    from gem.tools._mcp_sessions import McpSession, Server

    McpSession(Server("m", f"{url}/mcp", {"X-Key": "secret"}), 5.0).tools(5.0)


CLIENTS = {
    "agents/connections.py": [ask_agent, ask_token_server, load_weights],
    "sandbox/remote.py": [run_program],
    "tools/search/remote.py": [search],
    "hosts/web_sockets.py": [reset_on_host, make_remote, reset_openenv],
    "envs/bridges/openenv.py": [read_schema],
    "tools/_mcp_sessions.py": [open_mcp_session],
}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", [call for calls in CLIENTS.values() for call in calls])
def test_no_client_follows_a_redirect(call, code):
    with listening() as other, listening(other.url, code) as server:
        with pytest.raises((GemError, ConnectionError)) as refused:
            call(server.url)
        assert server.requests
        assert not other.requests
        assert other.url[4:] in str(refused.value)  # where to, in words
        if call in CLIENTS["hosts/web_sockets.py"]:
            assert f"answers {code}: a redirect to 'ws{other.url[4:]}/" in str(refused.value)


def test_every_client_is_in_the_table():
    root = Path(gem.__file__).parent
    sources = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in root.rglob("*.py")}
    assert {name for name, source in sources.items() if CLIENT.search(source)} == set(CLIENTS)
    assert not [name for name, source in sources.items() if "follow_redirects=" in source]
