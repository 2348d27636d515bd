"""A server that writes what a call asks for; a program of test_mcp_tool.py, not a test.

In the lines of a call, ID stands for the number of its request, and MANY for as many letters as `many` says.
The argument `json` or `events` lets it listen over HTTP, print its address and answer so. There, the address
may end in `?coding=X`, which is sent as Content-Encoding.
"""

import gzip
import http.server
import json
import os
import signal
import subprocess
import sys
import urllib.parse

ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "r", "version": "1"},
}
TOOLS = {"tools": [{"name": "write", "description": "Write.", "inputSchema": {"type": "object"}}]}


def answer(message):
    if "id" not in message:
        return b""
    if message["method"] == "tools/call":
        return written(message["id"], **message["params"]["arguments"])
    result = {"initialize": ABOUT, "tools/list": TOOLS}.get(message["method"], {})
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"


def written(number, lines=(), many=0, errors=0, stay=False, start=False):
    if start:
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
        lines = [lines[0].replace("PID", str(child.pid))]
    sys.stderr.write("e" * errors + " last words\n")
    sys.stderr.flush()
    if stay:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        content = [{"type": "text", "text": str(os.getpid())}]
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": content}}), flush=True)
        while True:
            signal.pause()
    text = "".join(f"{line}\n" for line in lines)
    return text.replace("ID", str(number)).replace("MANY", "x" * many).encode("latin-1")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        kind = "text/event-stream" if sys.argv[1] == "events" else "application/json"
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", kind)
        _, asked, coding = urllib.parse.unquote(self.path).partition("?coding=")
        if asked:
            self.send_header("Content-Encoding", coding)
            body = gzip.compress(body) if "gzip" in coding.lower() else body
        self.end_headers()
        if body and sys.argv[1] == "events":
            body = b"".join(b"data: %s\n\n" % line for line in body.splitlines())
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if sys.argv[1:]:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            print(f"http://127.0.0.1:{server.server_port}/", flush=True)
            server.serve_forever()
    for line in sys.stdin:
        sys.stdout.buffer.write(answer(json.loads(line)))
        sys.stdout.buffer.flush()
