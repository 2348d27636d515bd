"""Terminal tasks written as task folders of Harbor, and played again from there."""

import tomllib

import pytest
from harbor_folders import write_task as write_folder

import gem
from gem.cli import main
from gem.envs.terminal.dockerfile import read_dockerfile
from gem.envs.terminal.tasks import FAMILIES
from gem.envs.terminal.writing import write_task
from gem.errors import BadArgument, NoVerdict


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", "no-engine-of-this-name")


def verdicts(env, seed):
    """Return the rewards of the solution, of nothing, and of the solution with a file gone or changed."""
    newest = (
        "find . -type f -not -path '*/.git/*' -printf '%T@ %p\\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-"
    )
    damage = f"cd ~/*-[0-9]*/; {newest} | xargs -d '\\n' "
    plays = ("{}", "", "{}" + damage + "rm", "{}" + damage + "sed -i '1s/^/x/'")
    rewards = []
    for play in plays:
        env.reset(seed=seed)
        solution = env.solve().removeprefix("<bash>\n").removesuffix("\n</bash>")
        env.step(f"<bash>\n{play.format(solution + chr(10))}\n</bash>")
        rewards.append(env.step("<submit/>").reward)
    return rewards


@pytest.mark.system
@pytest.mark.parametrize("name", FAMILIES)
def test_a_written_task_has_the_verdicts_of_the_task(shell, tmp_path, name):
    level = ("easy", "hard")[[*FAMILIES].index(name) % 2]
    with gem.make(f"terminal:{name}-v0-{level}", command_s=30) as env:
        write_task(env, 7, tmp_path / "task")
        own = verdicts(env, 7)
    with gem.make(f"harbor:{tmp_path / 'task'}") as env:
        assert verdicts(env, 0) == own
    assert own[:2] == [1.0, 0.0]
    assert own[2] == 0.0


def test_the_command_writes_a_folder_of_tasks(shell, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["export", "terminal:Permissions-v0-hard", str(out), "--format", "harbor"]
    assert main([*words, "--seed", "3", "--tasks", "2"]) == 0
    assert "wrote 2 task folders" in capsys.readouterr().out
    assert main(["eval", f"harbor:{out}", "--agent", "solver"]) == 0
    assert "2/2" in capsys.readouterr().out
    toml = tomllib.loads((out / "permissions-v0-hard-3/task.toml").read_text())
    assert toml["task"]["name"] == "gem/permissions-v0-hard-3"
    assert toml["metadata"] == {"difficulty": "hard", "env": "terminal:Permissions-v0-hard", "seed": 3}
    with gem.make(f"harbor:{out}") as env:
        info = env.reset(seed=1).info
        assert (info["task"], info["difficulty"]) == ("gem/permissions-v0-hard-4", "hard")
    assert main([*words, "--seed", "3"]) == 2
    assert "exists; name another folder" in capsys.readouterr().err


def test_a_test_that_draws_another_task_gives_no_verdict(shell, tmp_path):
    with gem.make("terminal:Rename-v0-easy") as env:
        write_task(env, 0, tmp_path / "task")
    test = tmp_path / "task/tests/test.sh"
    test.write_text(test.read_text().replace("easy 0", "easy 1"))
    with gem.make(f"harbor:{tmp_path / 'task'}") as env:
        env.reset(seed=0)
        with pytest.raises(NoVerdict, match="draws another task of the seed"):
            env.step("<submit/>")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["game:Sudoku-v0-easy", "OUT", "--format", "harbor"], "no id of terminal tasks"),
        (["terminal:Rename-v0-easy", "OUT", "--format", "harbor", "--tasks", "0"], "tasks is 0"),
        (["terminal:Rename-v0-easy", "OUT", "--format", "harbor", "--per", "turn"], "not for tasks"),
        (["runs/x", "OUT", "--format", "sft", "--seed", "1"], "for terminal tasks"),
    ],
)
def test_what_cannot_be_written_is_refused(shell, tmp_path, capsys, words, why):
    assert main(["export", *(str(tmp_path / "out") if word == "OUT" else word for word in words)]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_add_of_a_tar_is_the_first_state(shell, tmp_path):
    with gem.make("terminal:Symlinks-v0-easy") as env:
        write_task(env, 0, tmp_path / "task")
    ground = tmp_path / "task/environment"
    assert read_dockerfile(ground).image == (ground / "files.tar").read_bytes()
    for line in ("ADD files.tar /app/below", "ADD files.tar files.tar /app", "ADD other.tar /app"):
        (ground / "Dockerfile").write_text(f"FROM x\nWORKDIR /app\n{line}\n")
        with pytest.raises(BadArgument, match="Dockerfile has the line"):
            read_dockerfile(ground)


def test_a_folder_is_no_id_to_write(shell, tmp_path):
    with gem.make(f"harbor:{write_folder(tmp_path / 'a')}") as env, pytest.raises(BadArgument, match="no id"):
        write_task(env, 0, tmp_path / "b")
