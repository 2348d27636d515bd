"""All servers refuse the same senders: pages of other sites, also by a name that points to this machine."""

import threading
from contextlib import closing
from http.client import HTTPConnection

import pytest
from waiting import until

for package in ("starlette", "uvicorn", "websockets", "jinja2"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'gem-gym[serve,viewer]'")

from gem.agents.scripted import ScriptedAgent
from gem.serve.environments.server import EnvironmentServer
from gem.serve.listening import refuse_sender
from gem.serve.proxy.server import Server as ProxyServer
from gem.serve.search import SearchServer
from gem.viewer.server import Server as ViewerServer


class NoEngine:
    def search(self, query, topk=3):
        return []


def start_search():
    server = SearchServer(NoEngine(), port=0)
    server.port, server.serve = server.server_port, lambda: server.serve_forever(0.01)
    server.stop = server.shutdown
    return server


STARTS = {
    "environments": (lambda: EnvironmentServer(["served:Obeying"], port=0), "/reset"),
    "proxy": (lambda: ProxyServer(ScriptedAgent(["x"])), "/v1/chat/completions"),
    "viewer": (lambda: ViewerServer([], token="t"), "/t/nowhere"),
    "search": (start_search, "/retrieve"),
}


@pytest.fixture(scope="module", params=STARTS)
def ask(request):
    """Return what asks a server by POST, with these headers, and returns the status and the body."""
    start, path = STARTS[request.param]
    server = start()
    thread = threading.Thread(target=server.serve)
    thread.start()
    if isinstance(server, ViewerServer):
        until(lambda: server._server.started, "the viewer did not start")

    def ask(host, origin=None):
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as client:
            client.putrequest("POST", path, skip_host=True)
            headers = {"Content-Type": "application/json", "Content-Length": "2", "Host": host} | (
                {} if origin is None else {"Origin": origin.replace("PORT", str(server.port))}
            )
            for name, value in headers.items():
                client.putheader(name, value.replace("PORT", str(server.port)))
            client.endheaders(b"{}")
            answer = client.getresponse()
            return answer.status, answer.read().decode()

    ask.name = request.param
    yield ask
    server.stop()
    thread.join()
    if isinstance(server, SearchServer):
        server.server_close()


HERE = ["127.0.0.1:PORT", "127.0.0.1", "localhost:PORT", "localhost", "127.0.0.2:1", "[::1]:PORT", "[::1]"]
ELSEWHERE = [
    *["site.example", "site.example:PORT", "127.0.0.1.site.example", "localhost.site.example", "localhost."],
    *["127.0.0.1:1@site.example", "site.example/127.0.0.1", "0.0.0.0:PORT", "[::]:PORT", "10.0.0.7"],
    *["127.1", "2130706433", "0x7f000001", "[::1%25lo]", "127.0.0.1:", "127.0.0.1:PORT:PORT", ":PORT", ""],
]
OF_OTHERS = [
    *["https://site.example", "http://site.example:PORT", "null", "", "http://127.0.0.1", "127.0.0.1:PORT"],
    *["http://127.0.0.1:1", "http://localhost:PORT", "http://127.0.0.2:PORT", "http://127.0.0.1:PORT/"],
    *[
        "http://127.0.0.1:PORT.site.example",
        "http://site.example://127.0.0.1:PORT",
        "http://x@127.0.0.1:PORT",
    ],
]


def test_names_of_this_machine_are_answered(ask):
    for host in HERE:
        assert ask(host)[0] not in (403, 421), host
        assert ask(host, f"http://{host}")[0] not in (403, 421), host


def test_other_names_are_refused_before_anything_else(ask):
    for host in ELSEWHERE:
        for origin in (None, f"http://{host}"):
            status, said = ask(host, origin)
            assert (status, "local names alone" in said) == (421, True), host


def test_pages_of_others_are_refused(ask):
    for origin in OF_OTHERS:
        status, said = ask("127.0.0.1:PORT", origin)
        assert (status, "another site" in said) == (403, True), origin
    own = ask("127.0.0.1:PORT", "https://127.0.0.1:PORT")[0]
    assert (own == 403) == (ask.name == "viewer")  # the others may have TLS in front


def test_a_server_for_others_has_any_name_and_its_own_pages():
    assert refuse_sender("site.example", None, loopback=False) is None
    assert refuse_sender("site.example", "https://site.example", loopback=False) is None
    page = "https://page.example"
    assert refuse_sender("site.example", page, loopback=False) == (403, "A page of another site asked.")
    for host in ("site.example", "127.0.0.1"):
        assert refuse_sender(host, page, loopback=False, origins=[page]) is None
    assert refuse_sender("site.example", page, loopback=True, origins=[page])[0] == 421
