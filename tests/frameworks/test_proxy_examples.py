"""The examples with smolagents: its agent asks a model over HTTP and acts."""

import os
import runpy
import subprocess
import sys

import pytest

pytest.importorskip("smolagents")

from launched import EXAMPLES

from gem.testing.stub_server import StubServer, completion

pytestmark = pytest.mark.system


def answer(code):
    """Return a completion with code as smolagents wants it, which needs counts of tokens."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {**completion(f"<code>\n{code}\n</code>"), "usage": usage}


def test_the_trained_program_computes_what_its_model_writes():
    pytest.importorskip("torch")
    example = runpy.run_path(str(EXAMPLES / "researcher/proxy_smolagents.py"))
    with StubServer(answer("final_answer(6 * 7)")) as server:
        assert str(example["program"]("What is 6 times 7?", server.base_url, "none")) == "42"


def test_the_program_of_the_shell_tasks_runs_the_command_that_its_model_writes(tmp_path):
    with StubServer(answer('final_answer(bash("echo salt > found.txt"))')) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
        command = [sys.executable, EXAMPLES / "evaluation/program_smolagents.py", "Write salt."]
        subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=120)
    assert (tmp_path / "found.txt").read_text() == "salt\n"
