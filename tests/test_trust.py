"""What a file of somebody else may name: each way to run code, through each loader."""

import sys
from dataclasses import replace

import pytest

import gem
from gem import codec
from gem.agents.random import RandomAgent
from gem.cli import main
from gem.errors import BadArgument
from gem.rollout import EpisodeStore, Job, rollout
from gem.specs import TaskRef, WrapperRef

GUESS = "game:GuessTheNumber-v0-easy"
TOUCH = "import pathlib; pathlib.Path('ran').touch()"
TOOLS = "gem.tools.tool_env_wrapper:ToolEnvWrapper"
MCP = {
    "$make": "gem.tools.mcp_tool:MCPTool",
    "kwargs": {"config": {"command": sys.executable, "args": ["-c", TOUCH]}, "validate_on_init": True},
}
ACTION = "gem.wrappers.transform:TransformAction"


def called(name):
    """Return a task whose wrapper calls a function with every action."""
    return TaskRef(GUESS, {}, (WrapperRef(ACTION, {"fn": {"$callable": name}}),))


WAYS = {
    "a tool's constructor starts a command": TaskRef(GUESS, {}, (WrapperRef(TOOLS, {"tools": [MCP]}),)),
    "a function of a package evaluates actions": called("sympy:sympify"),
    "a function of a package unpickles actions": called("pandas:read_pickle"),
    "a module that runs when it is imported": called("ran_at_import:shout"),
    "an environment of another package": TaskRef("x:Y-v0", entry_point="ran_at_import:Evil"),
    "a name that is no id": TaskRef("ran_at_import:Evil"),
    "a file": TaskRef("ran_at_import.py:Evil"),
    "a wrapper of another package": TaskRef(GUESS, {}, (WrapperRef("ran_at_import:Around"),)),
    "a wrapper in a file": TaskRef(GUESS, {}, (WrapperRef("ran_at_import.py:Around"),)),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder with a module that leaves a mark when it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "ran_at_import.py").write_text(
        f"{TOUCH}\nfrom gem.testing import EchoEnv as Evil\nfrom gem.core import EnvWrapper as Around\n"
        "shout = str.upper\n"
    )
    yield tmp_path
    sys.modules.pop("ran_at_import", None)


def stored(folder, task, **info):
    """Write a store with one episode whose task was changed by somebody else."""
    (played,) = rollout([Job(GUESS, 3, key="a")], RandomAgent())
    path = folder / "episodes.jsonl"
    for end in played.ends.values():
        end.info.update(info)
    with EpisodeStore(path) as store:
        store.append(replace(played, task=replace(task, seed=3)))
    return path


def of_file(task):
    return codec.unpack(codec.pack(task), TaskRef)


way = pytest.mark.parametrize("task", WAYS.values(), ids=WAYS)


@way
def test_what_a_task_of_a_file_names_is_not_run(task, folder):
    with pytest.raises(BadArgument, match="--trust"):
        gem.make(of_file(task))
    assert not (folder / "ran").exists()


@way
@pytest.mark.parametrize(
    "command",
    [
        ["regrade", "episodes.jsonl", "--grader", "text"],
        ["replay", "episodes.jsonl", "0"],
        ["value", "episodes.jsonl", "0", "--agent", "random", "-n", "2"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_on_a_store_of_somebody_else_runs_nothing(command, task, folder, capsys):
    stored(folder, task)
    assert main(command) != 0
    out, err = capsys.readouterr()
    assert "--trust" in out + err
    assert not (folder / "ran").exists()
