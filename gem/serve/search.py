"""Serve a search engine over HTTP with Search-R1's ``/retrieve`` protocol, in JSON and in msgpack."""

from __future__ import annotations

import io
import json
import socket
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

import msgspec

from gem.errors import BadArgument, reason
from gem.serve.listening import is_local, refuse_sender
from gem.tools.search import Hit, SearchEngine, SearchFailed
from gem.tools.search.base import check_topk, plain
from gem.tools.search.corpus import contents_of

MAX_BODY = 1 << 20
"""The most bytes of a request."""

MAX_QUERIES = 256
"""The most queries in one request."""

REQUEST_S = 30.0
"""Seconds after which a connection is closed if no whole request has arrived since the last one."""


class SearchServer(ThreadingHTTPServer):
    """A server of a search engine: ``POST /retrieve`` and ``GET /health``.

    `serve_forever` runs it, `shutdown` ends it. A request is JSON or msgpack, and the answer has the same
    format:

    - ``{"queries": [...], "topk": 3, "return_scores": true}`` gives ``{"result": [[...], ...]}``, a list per
      query, of documents, or with `return_scores` of ``{"document": ..., "score": ...}``;
    - ``{"query": "...", "topk": 3}`` gives ``{"result": [{"document": ...}, ...]}``, with scores if wanted.

    A document is ``{"id", "contents", "title", "text"}``. An error is answered with ``{"error": ...}``: 400
    for a wrong body, 403 and 421 for a page of another site, 404 for the path, 405 for the method, 411 and
    413 for the length, 503 for the engine.

    Args:
        engine: the search engine.
        host: the address to listen on; by default only this machine can connect.
        port: the port to listen on; 0 takes a free one, see `server_port`.
        topk: how many documents to return when a request does not say.

    Raises:
        BadArgument: when it cannot listen there.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, engine: SearchEngine, host: str = "127.0.0.1", port: int = 8000, *, topk: int = 3
    ) -> None:
        self.engine = engine
        self.topk = check_topk(topk)
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise BadArgument(
                f"cannot listen on {host}:{port}: {reason(error)}; --port 0 takes a free one."
            ) from error

    def server_bind(self) -> None:
        """Bind without a name server lookup of this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://{self.server_address[0]!s}:{self.server_port}/retrieve"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a broken connection: the client is gone, and a printed traceback helps nobody."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Incoming(io.RawIOBase):
    """What arrives on a connection, until a deadline for all of it, where a socket limits each wait."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.deadline = 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(REQUEST_S)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SearchServer

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._incoming = _Incoming(self.connection)
        self.rfile = io.BufferedReader(self._incoming)

    def handle_one_request(self) -> None:
        self._incoming.deadline = time.monotonic() + REQUEST_S
        super().handle_one_request()

    def do_POST(self) -> None:
        packed = "msgpack" in self.headers.get("Content-Type", "")
        try:
            body = self._body()
            self._check_sender()
            if self.path.partition("?")[0].rstrip("/") != "/retrieve":
                raise _Refused(HTTPStatus.NOT_FOUND, "there are POST /retrieve and GET /health.")
            # A JSON object never begins as a msgpack map does, so that a missing header does no harm.
            packed = packed or bool(body and (body[0] >> 4 == 0x8 or body[0] in (0xDE, 0xDF)))
            answer = self._search(_read(body, packed))
        except _Refused as refused:
            self._answer(refused.status, {"error": str(refused)}, packed)
        except SearchFailed as failed:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": str(failed)}, packed)
        else:
            self._answer(HTTPStatus.OK, answer, packed)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].rstrip("/")
        if path == "/health":
            self._answer(HTTPStatus.OK, {"status": "ok"})
        elif path == "/retrieve":
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "/retrieve is asked by POST."})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there are POST /retrieve and GET /health."})

    def _check_sender(self) -> None:
        """Refuse pages of other sites, where only this machine may ask: also by a name of theirs."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if not is_local(str(self.server.server_address[0])):
            return
        if refusal := refuse_sender(host, origin, loopback=True):
            raise _Refused(HTTPStatus(refusal[0]), refusal[1])

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; for a log, put a proxy in front."""

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the request needs a Content-Length.")
        if len(length) > 9 or int(length) > MAX_BODY:
            self.close_connection = True  # the rest is not read
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {MAX_BODY} bytes.")
        return self.rfile.read(int(length))

    def _search(self, asked: dict[str, Any]) -> dict[str, Any]:
        topk = asked.get("topk")
        try:
            topk = self.server.topk if topk is None else check_topk(topk)
        except BadArgument as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        scores = bool(asked.get("return_scores"))
        if "query" in asked:
            (query,) = _texts([asked["query"]])
            hits = self.server.engine.search(query, topk)
            return {
                "result": [_beside_score(hit) if scores else {"document": _document(hit)} for hit in hits]
            }
        shape = _beside_score if scores else _document
        queries = _texts(asked.get("queries"))
        return {"result": [[shape(hit) for hit in self.server.engine.search(each, topk)] for each in queries]}

    def _answer(self, status: HTTPStatus, answer: dict[str, Any], packed: bool = False) -> None:
        body = msgspec.msgpack.encode(answer) if packed else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/msgpack" if packed else "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _read(body: bytes, packed: bool) -> dict[str, Any]:
    try:
        asked = msgspec.msgpack.decode(body) if packed else json.loads(body)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        kind = "msgpack" if packed else "JSON"
        raise _Refused(HTTPStatus.BAD_REQUEST, f"the body is no {kind}: {error}") from error
    if not isinstance(asked, dict):
        raise _Refused(
            HTTPStatus.BAD_REQUEST, 'the body is no object; wanted: {"queries": [...], "topk": 3}.'
        )
    return asked


def _texts(queries: Any) -> list[str]:
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise _Refused(HTTPStatus.BAD_REQUEST, '"queries" is to be a list of texts, or "query" a text.')
    if len(queries) > MAX_QUERIES:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"got {len(queries)} queries; {MAX_QUERIES} at most.")
    return [plain(query) for query in queries]


def _document(hit: Hit) -> dict[str, str]:
    return {"id": hit.id, "contents": contents_of(hit.title, hit.text), "title": hit.title, "text": hit.text}


def _beside_score(hit: Hit) -> dict[str, Any]:
    return {"document": _document(hit), "score": hit.score}
