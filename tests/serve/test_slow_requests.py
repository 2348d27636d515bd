"""A request that does not arrive holds a connection for a bounded time, and nobody else up."""

import socket
import threading
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest
from waiting import until

for package in ("starlette", "uvicorn", "websockets", "httpx"):
    pytest.importorskip(package, reason=f"needs {package}: pip install 'gem-gym[serve]'")

import httpx

from gem.agents.scripted import ScriptedAgent
from gem.serve.environments import ServeLimits
from gem.serve.environments.server import EnvironmentServer
from gem.serve.proxy.app import Allowed
from gem.serve.proxy.server import Server as ProxyServer
from gem.serve.search import SearchServer
from gem.viewer.server import Server as ViewerServer

SOON_S = 0.3
HEAD = "POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\n"
BODY = HEAD + "Content-Type: application/json\r\nContent-Length: 900\r\n\r\n"
BEGINNINGS = {
    "nothing": "",
    "half a line": "GE",
    "half a head": HEAD,
    "half a body": BODY + '{"a',
    "half a body in chunks": HEAD + "Transfer-Encoding: chunked\r\n\r\n3\r\n{  \r\n",
}


class NoEngine:
    def search(self, query, topk=3):
        return []


def start_environments(monkeypatch):
    return EnvironmentServer(["served:Obeying"], port=0, limits=ServeLimits(request_s=SOON_S))


def start_proxy(monkeypatch):
    return ProxyServer(ScriptedAgent(["x"]), allowed=Allowed(request_s=SOON_S))


def start_viewer(monkeypatch):
    monkeypatch.setattr("gem.viewer.server.REQUEST_S", SOON_S)
    return ViewerServer([])


def start_search(monkeypatch):
    monkeypatch.setattr("gem.serve.search.REQUEST_S", SOON_S)
    server = SearchServer(NoEngine(), port=0)
    server.port, server.serve = server.server_port, lambda: server.serve_forever(0.01)
    server.stop = server.shutdown
    return server


@pytest.fixture(params=[start_environments, start_proxy, start_viewer, start_search])
def server(request, monkeypatch):
    server = request.param(monkeypatch)
    thread = threading.Thread(target=server.serve)
    thread.start()
    if isinstance(server, ViewerServer):
        until(lambda: server._server.started, "the viewer did not start")
    yield server
    server.stop()
    thread.join()
    if isinstance(server, SearchServer):
        server.server_close()


def read_to_end(connection):
    """Return what comes until the server closes; a time limit fails the test."""
    connection.settimeout(20)
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize("beginning", BEGINNINGS.values(), ids=BEGINNINGS)
@pytest.mark.system
def test_a_request_that_does_not_arrive_is_given_up(server, beginning):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(beginning.encode())
        read_to_end(connection)


def test_the_second_request_of_a_connection_is_given_up_as_well(server):
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=20)) as client:
        for _ in range(2):
            client.request("GET", "/nothing")
            answer = client.getresponse()
            assert answer.status in (403, 404)
            answer.read()
        client.sock.sendall(HEAD.encode())
        read_to_end(client.sock)


def test_drop_by_drop_is_not_soon_enough(server):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(BODY.encode())
        connection.settimeout(SOON_S / 10)
        for _ in range(890):
            try:
                connection.sendall(b" ")
                if not connection.recv(1 << 16):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("the server read it all")


def test_many_halves_keep_nobody_out(server):
    with ExitStack() as stack:
        halves = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(100)
        ]
        for half in halves:
            half.sendall(b"GET / HTTP/1.1\r\n")
        assert httpx.get(f"http://127.0.0.1:{server.port}/nothing", timeout=20).status_code in (403, 404)
        for half in halves:
            read_to_end(half)


TWO_LENGTHS = HEAD + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
HIDDEN = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def test_a_request_of_two_lengths_is_refused_and_nothing_after_it_is_read(server):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall((TWO_LENGTHS + HIDDEN).encode())
        answer = read_to_end(connection)
    assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer
    assert answer.count(b"HTTP/1.") == 1


def test_a_client_that_leaves_in_the_middle_of_its_request_is_no_error(caplog, capsys, monkeypatch):
    with start_proxy(monkeypatch) as server:
        key = f"Authorization: Bearer {server.open('try').api_key}\r\n"
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}Content-Length: 9\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall((head + "{").encode())
            connection.shutdown(socket.SHUT_WR)
            read_to_end(connection)
    assert "Traceback" not in caplog.text + "".join(capsys.readouterr())
