"""A fake endpoint in a separate process: chat completions over local HTTP/1.1, with faults by rule.

``python -m bench.endpoint`` prints its port and serves until its standard input closes. The name of the model
selects its behaviour: `MODES`. Its answer is the number that the last message names (``Say 123.``).

It is a hand-written asyncio protocol, so that the server itself costs little: `bench.evaluation` prints its
own cost per request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
from itertools import count
from time import monotonic, process_time
from typing import Any

import msgspec

MODES = ("plain", "stream", "tools", "limits", "slow", "cut", "malformed", "html", "mixed")
EVERY = 4
"""An answer is cut, no JSON or HTML for one request in so many."""
PER_S = 400.0
"""Requests per second that `limits` allows, in bursts of a tenth of that."""
SLOW_S = 2.0
PAGE = b"<!doctype html><html><body><h1>502 Bad Gateway</h1><script>alert(1)</script></body></html>"
NUMBER = re.compile(r"Say (\d+)")


class Served:
    """What was served."""

    def __init__(self) -> None:
        self.numbers = count()
        self.left, self.filled = 0.0, monotonic()
        self.requests = self.at_once = self.most_at_once = self.connections = self.faults = 0

    def allowed(self) -> bool:
        """Take one of the requests that are allowed by now, if there is one left."""
        now = monotonic()
        self.left, self.filled = min(PER_S / 10, self.left + (now - self.filled) * PER_S), now
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def stats(self) -> dict[str, Any]:
        """Return what was served until now."""
        return {
            "requests": self.requests,
            "most_at_once": self.most_at_once,
            "connections": self.connections,
            "faults": self.faults,
            "cpu_s": process_time(),
        }


class Endpoint(asyncio.Protocol):
    """One connection."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.held = b""

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self.transport = transport
        self.served.connections += 1

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        self.held += data
        while True:
            head, end, rest = self.held.partition(b"\r\n\r\n")
            if not end:
                return
            lower = head.lower()
            at = lower.find(b"content-length:")
            size = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(rest) < size:
                return
            self.held = rest[size:]
            if head.startswith(b"GET"):
                self.send(json.dumps(self.served.stats()).encode())
            else:
                self.answer(msgspec.json.decode(rest[:size]))

    def answer(self, body: dict[str, Any]) -> None:
        """Answer a request, in the way that its model's name asks for."""
        served = self.served
        served.requests += 1
        served.at_once += 1
        served.most_at_once = max(served.most_at_once, served.at_once)
        number = next(served.numbers)
        mode = body["model"].rpartition("/")[2]
        if mode == "mixed":
            mode = MODES[number // EVERY % (len(MODES) - 1)]
        if mode == "slow":
            asyncio.get_running_loop().call_later(SLOW_S, self.answered, body, mode)
        elif (mode == "limits" and not served.allowed()) or (
            mode in ("cut", "malformed", "html") and number % EVERY == 0
        ):
            served.faults += 1
            served.at_once -= 1
            self.fault(mode)
        else:
            self.answered(body, mode)

    def fault(self, mode: str) -> None:
        """Send what is no answer."""
        if mode == "limits":
            told = b'{"error": {"message": "Rate limit reached", "type": "requests", "code": 429}}'
            self.send(told, b"429 Too Many Requests", b"Retry-After: 0.05\r\n")
        elif mode == "html":
            self.send(PAGE, b"502 Bad Gateway", kind=b"text/html")
        elif mode == "malformed":
            self.send(b'{"choices": [{"message": {"content": "4')
        else:
            self.transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
            )
            self.transport.close()

    def answered(self, body: dict[str, Any], mode: str) -> None:
        """Send the answer."""
        self.served.at_once -= 1
        if self.transport.is_closing():
            return
        content = body["messages"][-1]["content"]
        text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)
        found = NUMBER.search(text)
        number = found[1] if found else "0"
        message: dict[str, Any] = {"role": "assistant", "content": number}
        finish = "stop"
        if body.get("tools"):
            call = {"name": body["tools"][0]["function"]["name"], "arguments": f'{{"number": {number}}}'}
            message["content"] = None
            message["tool_calls"] = [
                {"id": f"call_{self.served.requests}", "type": "function", "function": call}
            ]
            finish = "tool_calls"
        usage = {"prompt_tokens": 20 * len(body["messages"]), "completion_tokens": 3, "total_tokens": 0}
        usage["total_tokens"] = usage["prompt_tokens"] + 3
        whole = {"id": "x", "object": "chat.completion", "created": 1, "model": body["model"], "usage": usage}
        if body.get("stream"):
            self.stream(whole, message, finish)
            return
        choice = {"index": 0, "message": message, "finish_reason": finish}
        self.send(msgspec.json.encode({**whole, "choices": [choice]}))

    def stream(self, whole: dict[str, Any], message: dict[str, Any], finish: str) -> None:
        """Send the answer as a stream."""
        usage = whole.pop("usage")
        whole["object"] = "chat.completion.chunk"
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in message["content"] or ""]
        if "tool_calls" in message:
            deltas.append({"tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        events = [{**whole, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events.append({**whole, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        events.append({**whole, "choices": [], "usage": usage})
        pieces = [b"data: " + msgspec.json.encode(event) + b"\n\n" for event in events]
        chunks = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b"data: [DONE]\n\n")]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.transport.write(head + chunks[0])
        for chunk in chunks[1:]:  # pieces of their own, as far as the kernel keeps them apart
            self.transport.write(chunk)
        self.transport.write(b"0\r\n\r\n")

    def send(
        self, body: bytes, status: bytes = b"200 OK", more: bytes = b"", kind: bytes = b"application/json"
    ) -> None:
        """Send a response."""
        head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n%b\r\n" % (
            status,
            kind,
            len(body),
            more,
        )
        self.transport.write(head + body)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    served = Served()
    server = await loop.create_server(lambda: Endpoint(served), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_known_args()
    asyncio.run(serve())
