"""A local test server for every API of OpenAIAgent, with scripted answers and faults on demand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, ClassVar, TypeAlias

from gem.closing import Closing

Body: TypeAlias = dict[str, Any]
Answer: TypeAlias = "str | Mapping[str, Any] | RawAnswer"
"""An answer's text, a whole response body, or a raw answer."""


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A raw response, or a failure, that replaces the normal answer to one request.

    `status` with `headers` and `body`: that response. `chunks`: the body is sent in these pieces instead,
    possibly without end. `cut`: the connection is closed before the end of the body. `drop`: the connection
    is closed without a response. `stall`: no response is sent; when the event is set, the connection is
    closed. Closing the server sets it.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    drop: bool = False
    stall: Event | None = None
    chunks: Iterable[bytes] | None = None
    cut: bool = False

    @classmethod
    def error(cls, status: int, message: str = "", retry_after: str | None = None) -> RawAnswer:
        """Return an error response in the form of such servers."""
        body = json.dumps({"error": {"message": message, "code": status}}).encode()
        return cls(status, {} if retry_after is None else {"Retry-After": retry_after}, body)

    @classmethod
    def stream(cls, *events: Any, done: bool = True, cut: bool = False) -> RawAnswer:
        """Return a stream of these events, one piece each; `done` adds the end mark."""
        chunks = [event if isinstance(event, bytes) else event_of(event) for event in events]
        if done:
            chunks.append(b"data: [DONE]\n\n")
        return cls(headers={"Content-Type": "text/event-stream"}, chunks=chunks, cut=cut)


class StubServer(Closing):
    """A real HTTP server for ``/v1/chat/completions``, ``/v1/responses`` and ``/v1/completions``.

    `answer` is the answer to every request, or a function of its body. `faults` come first, one per request.
    A request that asks for a stream gets the answer as a stream. Requests are kept in `requests` (the
    bodies), `paths` and `headers`.
    """

    def __init__(
        self, answer: Answer | Callable[[Body], Answer] = "", faults: Iterable[RawAnswer] = (), port: int = 0
    ) -> None:
        """Bind a port on 127.0.0.1, by default a free one, and start to serve."""
        self.answer = answer
        self.requests: list[Body] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._at_once = 0
        self._lock = Lock()
        self._faults = list(faults)
        self._stalled = [fault.stall for fault in self._faults if fault.stall is not None]
        handler = type("Handler", (_Handler,), {"stub": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def base_url(self) -> str:
        """The `base_url` for an agent."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        """Stop serving."""
        for event in self._stalled:
            event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def record_request(self, body: Body, path: str, headers: Mapping[str, str]) -> RawAnswer | None:
        """Record a request and return its fault, or None if no fault is left."""
        with self._lock:
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(dict(headers))
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self._faults.pop(0) if self._faults else None

    def record_end(self) -> None:
        """Record that a request is finished."""
        with self._lock:
            self._at_once -= 1

    def response(self, body: Body, path: str) -> RawAnswer:
        """Return the response to a request."""
        path = path.partition("?")[0]
        if path not in _WHOLE:
            return RawAnswer(404)
        answer = self.answer(body) if callable(self.answer) else self.answer
        if isinstance(answer, RawAnswer):
            return answer
        whole = _WHOLE[path](answer, body) if isinstance(answer, str) else dict(answer)
        if body.get("stream"):
            return RawAnswer.stream(*_EVENTS[path](whole), done=path != RESPONSES)
        return RawAnswer(body=json.dumps(whole).encode())


CHAT, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"


def event_of(data: Any) -> bytes:
    """Return a server-sent event."""
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def completion(text: str | None = "", finish_reason: str | None = "stop", **message: Any) -> Body:
    """Return the body of a chat completion; `message` has further fields of its message."""
    answer = {"role": "assistant", "content": text, **message}
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": answer, "finish_reason": finish_reason}],
    }


def completion_events(whole: Body) -> list[Body]:
    """Return the chunks of a completion's stream, with its text and call arguments in two pieces each."""
    events: list[Body] = []
    kept = {key: value for key, value in whole.items() if key not in ("choices", "usage")}
    kept["object"] = "chat.completion.chunk"  # clients pass over chunks that do not say so
    for choice in whole.get("choices", ()):
        message = dict(choice.get("message", {}))
        calls = message.pop("tool_calls", None) or []
        deltas: list[Body] = [{"role": message.pop("role", "assistant")}]
        for key, value in message.items():
            deltas += [{key: piece} for piece in _halves(value)]
        for index, call in enumerate(calls):
            begun, rest = _halves(call["function"].get("arguments"))
            function = {**call["function"], "arguments": begun}
            deltas += [
                {"tool_calls": [{**call, "index": index, "function": function}]},
                {"tool_calls": [{"index": index, "function": {"arguments": rest}}]},
            ]
        events += [{**kept, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        end = {"index": 0, "delta": {}, "finish_reason": choice.get("finish_reason")}
        events.append({**kept, "choices": [end]})
    if "usage" in whole:
        events.append({**kept, "choices": [], "usage": whole["usage"]})
    return events or [whole]


def response(text: str = "", status: str = "completed", output: Iterable[Body] = (), **fields: Any) -> Body:
    """Return the body of a Responses API response: `output`, then a message with `text` if not empty."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    items = [*output, *([message] if text else [])]
    return {"object": "response", "status": status, "output": items, **fields}


def response_events(whole: Body) -> list[Body]:
    """Return the events of a response's stream."""
    events: list[Body] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    ]
    for index, item in enumerate(whole.get("output", ())):
        for part in item.get("content") or ():
            for piece in _halves(part.get("text")):
                events.append({"type": "response.output_text.delta", "output_index": index, "delta": piece})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    return [*events, {"type": f"response.{whole.get('status', 'completed')}", "response": whole}]


def text_completion(text: str | None = "", finish_reason: str | None = "stop", **fields: Any) -> Body:
    """Return the body of a plain completion."""
    choices = [{"index": 0, "text": text, "finish_reason": finish_reason}]
    return {"object": "text_completion", "choices": choices, **fields}


def text_completion_events(whole: Body) -> list[Body]:
    """Return the chunks of a plain completion's stream."""
    kept = {key: value for key, value in whole.items() if key not in ("choices", "usage")}
    events: list[Body] = []
    for choice in whole.get("choices", ()):
        begun, rest = _halves(choice.get("text"))
        pieces = ({"text": begun, "finish_reason": None}, {**choice, "text": rest})
        events += [{**kept, "choices": [{"index": 0, **piece}]} for piece in pieces]
    if "usage" in whole:
        events.append({**kept, "choices": [], "usage": whole["usage"]})
    return events or [whole]


def _halves(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, str):
        return value, None
    return value[: len(value) // 2], value[len(value) // 2 :]


_WHOLE: dict[str, Callable[[str, Body], Body]] = {
    CHAT: lambda text, body: {**completion(text), "model": body.get("model")},
    RESPONSES: lambda text, body: response(text, model=body.get("model")),
    COMPLETIONS: lambda text, body: text_completion(text, model=body.get("model")),
}
_EVENTS: dict[str, Callable[[Body], list[Body]]] = {
    CHAT: completion_events,
    RESPONSES: response_events,
    COMPLETIONS: text_completion_events,
}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, the default, a batch's connections wait for one another

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError | ValueError):  # a client that was killed
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    stub: ClassVar[StubServer]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.stub.record_request(body, self.path, dict(self.headers.items()))
        try:
            fault = fault or self.stub.response(body, self.path)
            if fault.drop or fault.stall:
                if fault.stall:
                    fault.stall.wait()
                self.close_connection = True
            else:
                self._send(fault)
        except ConnectionError:
            self.close_connection = True  # the client did not wait, or the answer was to break off
        finally:
            self.stub.record_end()

    def _send(self, fault: RawAnswer) -> None:
        self.send_response(fault.status)
        for name, value in {"Content-Type": "application/json", **fault.headers}.items():
            self.send_header(name, value)
        if fault.chunks is None:
            self.send_header("Content-Length", str(len(fault.body) + fault.cut))
            self.end_headers()
            self.wfile.write(fault.body)
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in filter(None, fault.chunks):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if not fault.cut:
                self.wfile.write(b"0\r\n\r\n")
        self.close_connection = self.close_connection or fault.cut

    def log_message(self, format: str, *args: Any) -> None:
        pass
