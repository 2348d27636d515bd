"""A chat completions server on loopback, with scripted answers and faults on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, ClassVar, Self, TypeAlias

Body: TypeAlias = dict[str, Any]
Answer: TypeAlias = "str | Mapping[str, Any]"
"""An answer's text, or a whole response body."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a server does instead of answering one request.

    `status` with `headers` and `body`: that response. `drop`: the connection is closed without one. `stall`:
    no response comes before the event is set, and then the connection is closed; the server's end sets it.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    drop: bool = False
    stall: Event | None = None

    @classmethod
    def error(cls, status: int, message: str = "", retry_after: str | None = None) -> Fault:
        """A refusal as such servers word it."""
        body = json.dumps({"error": {"message": message, "code": status}}).encode()
        return cls(status, {} if retry_after is None else {"Retry-After": retry_after}, body)


class StubServer:
    """A real HTTP server for ``/v1/chat/completions``; leaving the ``with`` block stops it.

    `answer` is what every request gets, or a function of its body. `faults` come first, one per request.
    Requests are kept in `requests` (the bodies) and `headers`.
    """

    def __init__(self, answer: Answer | Callable[[Body], Answer] = "", faults: Iterable[Fault] = ()) -> None:
        """Bind a free port on 127.0.0.1 and begin to serve."""
        self.answer = answer
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = Lock()
        self._faults = list(faults)
        self._stalled = [fault.stall for fault in self._faults if fault.stall is not None]
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """What an agent takes as its `base_url`."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        """Stop serving."""
        for event in self._stalled:
            event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return self; leaving the block stops the server."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop serving."""
        self.close()

    def arrived(self, body: Body, headers: Mapping[str, str]) -> Fault | None:
        """Take note of a request and return the fault that it gets, if any is left."""
        with self._lock:
            self.requests.append(body)
            self.headers.append(dict(headers))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self._faults.pop(0) if self._faults else None

    def left(self) -> None:
        """Take note that a request has been dealt with."""
        with self._lock:
            self._at_once -= 1

    def completion(self, body: Body) -> Body:
        """Return the response to a request."""
        answer = self.answer(body) if callable(self.answer) else self.answer
        if not isinstance(answer, str):
            return dict(answer)
        return {
            "object": "chat.completion",
            "model": body.get("model"),
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}
            ],
        }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, the default, a batch's connections wait for one another


class _Handler(BaseHTTPRequestHandler):
    stub: ClassVar[StubServer]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.stub.arrived(body, dict(self.headers.items()))
        try:
            if fault is None and self.path == "/v1/chat/completions":
                self._send(200, {}, json.dumps(self.stub.completion(body)).encode())
            elif fault is None:
                self._send(404, {}, b"{}")
            elif fault.drop or fault.stall:
                if fault.stall:
                    fault.stall.wait()
                self.close_connection = True
            else:
                self._send(fault.status, fault.headers, fault.body)
        except ConnectionError:
            self.close_connection = True  # the client did not wait, or the answer was to break off
        finally:
            self.stub.left()

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
