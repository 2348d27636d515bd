"""A tiny agent program that plays an environment without a workspace, by MCP.

    gem-gym eval game:GuessTheNumber-v0-easy -n 5 --model smollm2 \
        --agent 'program:python examples/evaluation/program_mcp.py {mcp_url}'

It uses the standard library only: MCP is JSON-RPC over HTTP. Any MCP client can take its place.
"""

import json
import os
import sys
import urllib.request
from typing import Any


def post(url: str, body: dict[str, Any]) -> Any:
    """Return the JSON that a server answers."""
    headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def call_tool(url: str, name: str, **arguments: str) -> str:
    """Return the text of a tool's result."""
    params = {"name": name, "arguments": arguments}
    answer = post(url, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return "\n".join(part.get("text", "") for part in answer["result"]["content"])


def main(url: str) -> None:
    """Play the episode, for at most twenty actions."""
    messages = [{"role": "user", "content": call_tool(url, "observe")}]
    for _ in range(20):
        body = {"model": "any", "messages": messages}
        action = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]
        seen = call_tool(url, "act", action=action["content"])
        if "The episode is over." in seen:
            return
        messages += [{"role": "assistant", "content": action["content"]}, {"role": "user", "content": seen}]


if __name__ == "__main__":
    main(sys.argv[1])
