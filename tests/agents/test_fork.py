"""An agent that was used before a fork answers in the child too, and in the parent after it."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("httpx")

PROGRAM = """
import asyncio, os, sys
from gem.agents.openai import OpenAIAgent
from gem.record import Ask
from gem.testing.stub_server import StubServer

def ask(agent):
    return agent([Ask("e", "agent", 0, (), seed=1)])[0].text

with StubServer("yes") as server:
    agent = OpenAIAgent("tiny", base_url=server.base_url, retries=0)
    assert ask(agent) == "yes"
    child = os.fork()
    if not child:
        text = ask(agent)
        agent.close()
        os._exit(0 if text == "yes" else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert ask(agent) == "yes"
    agent.close()
"""


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_an_agent_answers_after_a_fork():
    environment = {**os.environ, "NO_PROXY": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
