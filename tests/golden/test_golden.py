"""Prompts are behaviour: what our own environments say is kept, a file per id, and compared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gem
from gem.registry import FAMILIES
from gem.sandbox import SandboxFailed
from gem.testing import golden

OWN_IDS = [
    i
    for i in gem.ids()
    if i.partition(":")[0] not in FAMILIES and gem.spec(i).data is None and gem.spec(i).deterministic
    if not i.startswith("db:")
    or "Library" in i  # one world for the prompts; the others differ in their tasks
]
WORLD_IDS = [
    *("agentdojo:banking", "babyai:GoToLocal-v0", "bfcl:live_multiple", "bfcl:multi_turn_base"),
    *("miniwob:login-user", "tau2:telecom-solo", "textworld:coin_collector"),
]
"""One id of each fetched world, and of each entry point of BFCL."""
FOLDER = Path(__file__).parent


@pytest.mark.parametrize("env_id", OWN_IDS)
def test_an_environment_says_what_it_said(env_id):
    try:
        changed = golden.compare(env_id, FOLDER)
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    assert not changed, (
        f"{changed}\n\nIf that is wanted: `gem-gym check {env_id} --record`, and look at the diff."
    )


@pytest.mark.system
@pytest.mark.parametrize("env_id", WORLD_IDS)
def test_a_fetched_world_says_what_it_said(env_id):
    if not FAMILIES[env_id.partition(":")[0]].is_here():
        pytest.skip("needs a world: gem-gym worlds --fetch all")
    assert not golden.compare(env_id, FOLDER), f"if that is wanted: `gem-gym check {env_id} --record`"


WITHOUT_DOCSTRINGS = """
import sys
from gem.testing import golden
from pathlib import Path
from gem.tools import FunctionTool

def greet(name: str):
    "Greet somebody."

changed = FunctionTool(greet).description if greet.__doc__ is None else "docstrings are kept"
for env_id in sys.argv[2:]:
    changed += golden.compare(env_id, Path(sys.argv[1]))
print(changed)
"""


@pytest.mark.system
def test_prompts_that_are_made_of_docstrings_survive_an_interpreter_that_drops_them(tmp_path):
    asked = [i for i in OWN_IDS if i.startswith(("code:Basics", "multi:ServiceDesk"))]
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_DOCSTRINGS)
    done = subprocess.run(
        [sys.executable, "-OO", str(program), str(FOLDER), *asked],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(gem.__file__).parents[1])},
    )
    assert len(asked) > 5
    assert (done.stdout, done.returncode) == ("Greet somebody.\n", 0), done.stderr


def test_every_file_belongs_to_an_id():
    assert sorted(path.stem for path in FOLDER.glob("*.jsonl")) == sorted(
        i.replace(":", ".") for i in (*OWN_IDS, *WORLD_IDS)
    )


def test_recording_twice_gives_the_same_file_and_a_change_is_shown(tmp_path):
    env_id = "game:GuessTheNumber-v0-easy"
    path = golden.record(env_id, tmp_path)
    first = path.read_bytes()
    assert golden.record(env_id, tmp_path).read_bytes() == first
    assert golden.compare(env_id, tmp_path) == ""
    path.write_bytes(first.replace(b"secret", b"hidden", 1))
    assert "hidden" in golden.compare(env_id, tmp_path)
    with pytest.raises(FileNotFoundError):
        golden.compare(env_id, tmp_path / "nowhere")
