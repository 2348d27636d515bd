"""A server that writes what a call asks for; a program of test_mcp_tool.py, not a test.

In the lines of a call, ID stands for the number of its request, and MANY for as many letters as `many` says.
"""

import json
import os
import signal
import sys

ABOUT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "r", "version": "1"},
}
TOOLS = {"tools": [{"name": "write", "description": "Write.", "inputSchema": {"type": "object"}}]}


def main():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            write(message["id"], **message["params"]["arguments"])
        elif "id" in message:
            result = {"initialize": ABOUT, "tools/list": TOOLS}.get(message["method"], {})
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            print(json.dumps(answer), flush=True)


def write(number, lines=(), many=0, errors=0, stay=False):
    sys.stderr.write("e" * errors + " last words\n")
    sys.stderr.flush()
    text = "".join(f"{line}\n" for line in lines).replace("ID", str(number)).replace("MANY", "x" * many)
    sys.stdout.buffer.write(text.encode("latin-1"))
    sys.stdout.buffer.flush()
    if stay:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        answer = {"content": [{"type": "text", "text": str(os.getpid())}]}
        print(json.dumps({"jsonrpc": "2.0", "id": number, "result": answer}), flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
