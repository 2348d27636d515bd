"""The files of examples/: a folder for each kind of user, and a test for each file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem.testing.stub_server import StubServer

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOT_RUN = {"oat_actor"}
"""Its engine needs a GPU; the functions that it calls are tested in tests/frameworks/test_oat.py."""


def test_each_user_has_a_folder_and_each_file_a_test():
    files = {path.stem: path.parent.name for path in EXAMPLES.rglob("*.py")}
    assert set(files.values()) == {"researcher", "evaluation", "author"}
    tests = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    text = "\n".join(tests).replace("verifiers-gem", "verifiers_gem")
    assert {name for name in files if name not in text} == set()
    assert {*files} >= NOT_RUN


def test_examples_are_valid_python():
    for path in EXAMPLES.rglob("*.py"):
        compile(path.read_text("utf-8"), str(path), "exec")


@pytest.mark.system
def test_the_shell_program_runs_the_commands_that_its_model_writes(tmp_path):
    answers = ["```bash\necho salt > found.txt; cat found.txt\n```", "DONE"]
    left = iter(answers)
    with StubServer(lambda request: next(left)) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "none"}
        command = [sys.executable, EXAMPLES / "evaluation/program_shell.py", "Write salt into found.txt."]
        subprocess.run(command, cwd=tmp_path, env=env, check=True, timeout=120)
        first, second = server.requests
    assert "Write salt into found.txt." in first["messages"][0]["content"]
    assert second["messages"][-1] == {"role": "user", "content": "salt\n"}
    assert (tmp_path / "found.txt").read_text() == "salt\n"
