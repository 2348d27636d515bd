"""Task folders: gem's scores against Harbor's own verifier, and written tasks against its task model.

Harbor's verifier gets a machine in which /app, /tests and /logs are folders of the test, made by bubblewrap.
"""

import asyncio
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("harbor", reason="`scripts/frameworks.py harbor`, with Python 3.12 or newer")

from harbor.environments.base import ExecResult
from harbor.models.task.config import TaskOS
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths
from harbor.verifier.verifier import Verifier
from harbor_folders import write_task as write_folder

import gem
from gem.envs.terminal.base import choose_reward
from gem.envs.terminal.env import check_shell
from gem.envs.terminal.folder import read_folder
from gem.envs.terminal.tasks import FAMILIES
from gem.envs.terminal.writing import write_task
from gem.errors import NoVerdict
from gem.sandbox import SandboxFailed, bwrap

pytestmark = [pytest.mark.framework, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def machines():
    try:
        check_shell()
        bwrap.find()
    except SandboxFailed as absent:
        pytest.skip(str(absent))


@pytest.fixture(autouse=True)
def no_engine(monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX_ENGINE", "no-engine-of-this-name")


class Machine:
    """What a Verifier asks of an environment: a machine in folders below `root`."""

    os = TaskOS.LINUX

    def __init__(self, root):
        self.root = root
        for name in ("app", "tests", "logs/verifier", "logs/agent"):
            (root / name).mkdir(parents=True)

    def is_path_mounted(self, *paths):
        return False

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        words = [bwrap.find(), "--unshare-all", "--die-with-parent", "--dev", "/dev", "--proc", "/proc"]
        for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives"):
            link = Path(folder).is_symlink()
            if Path(folder).exists():
                words += ["--symlink", os.readlink(folder), folder] if link else ["--ro-bind", folder, folder]
        for name in ("app", "tests", "logs"):
            words += ["--bind", self.root / name, f"/{name}"]
        words += ["--tmpfs", "/tmp", "--dir", "/root", "--chdir", cwd or "/app", "--clearenv"]
        for name, value in {"PATH": "/usr/bin:/bin", "HOME": "/root", **(env or {})}.items():
            words += ["--setenv", name, value]
        shell = await asyncio.create_subprocess_exec(
            *map(str, (*words, "bash", "-c", command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = await shell.communicate()
        finally:
            if shell.returncode is None:
                shell.kill()
                await shell.wait()
        return ExecResult(stdout=out.decode(), stderr=err.decode(), return_code=shell.returncode)

    async def upload_dir(self, source_dir, target_dir):
        shutil.copytree(source_dir, self.root / target_dir.strip("/"), dirs_exist_ok=True)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self.root / source_dir.strip("/"), target_dir, dirs_exist_ok=True)


def score_by_harbor(folder, command, root):
    """Return the rewards that Harbor gives after a command, as a trial does; None without a verdict."""

    async def verify():
        task = Task(folder)
        machine, paths = Machine(root / "machine"), TrialPaths(root / "trial")
        paths.mkdir()
        ground = folder / "environment"
        if (ground / "files.tar").exists():
            with tarfile.open(ground / "files.tar") as tar:
                tar.extractall(machine.root / "app", filter="fully_trusted")
        else:
            shutil.copytree(ground, machine.root / "app", dirs_exist_ok=True)
        await machine.exec(command)
        verifier = Verifier(task=task, trial_paths=paths, environment=machine)
        try:
            result = await asyncio.wait_for(verifier.verify(), task.config.verifier.timeout_sec)
        except Exception:  # whatever it raises, the trial has no reward then
            return None
        return result.rewards

    return asyncio.run(verify())


def score_by_gem(folder, command):
    """Return the rewards that gem gives after a command; None without a verdict."""
    with gem.make(f"harbor:{folder}") as env:
        env.reset(seed=0)
        env.step(f"<bash>\n{command}\n</bash>")
        try:
            step = env.step("<submit/>")
        except NoVerdict:
            return None
        return step.info.get("rewards", {"reward": step.reward})


RIGHT, WRONG = "echo 42 > answer.txt", "echo 41 > answer.txt"
TXT, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
GRADE = '[ "$(cat /app/answer.txt)" = 42 ]'
PYTHON = f"""#!/usr/bin/env python3
import json, pathlib
text = pathlib.Path('/app/answer.txt').read_text()
parts = {{'right': float(text.strip() == '42'), 'short': 1 / len(text)}}
pathlib.Path('{JSON}').write_text(json.dumps({{'reward': parts['right'] * parts['short'], **parts}}))
"""
CASES = {
    "right": (f"{GRADE} && echo 1 > {TXT} || echo 0 > {TXT}", RIGHT),
    "wrong": (f"{GRADE} && echo 1 > {TXT} || echo 0 > {TXT}", WRONG),
    "nothing done": (f"{GRADE} && echo 1 > {TXT} || echo 0 > {TXT}", "true"),
    "right, exit 1": (f"{GRADE} && echo 1 > {TXT}; exit 1", RIGHT),
    "wrong, exit 0": (f"{GRADE} || echo 0 > {TXT}; exit 0", WRONG),
    "no file if wrong": (f"{GRADE} && echo 1 > {TXT}", WRONG),
    "set -e": (f"set -e\n{GRADE}\necho 1 > {TXT}", WRONG),
    "fraction": (f"echo 0.5 > {TXT}", RIGHT),
    "fraction by awk": (f"awk '{{print $1 / 84}}' /app/answer.txt > {TXT}", RIGHT),
    "negative": (f"echo -1 > {TXT}", RIGHT),
    "above one": (f"echo 2.5 > {TXT}", RIGHT),
    "exponent": (f"echo 1e-3 > {TXT}", RIGHT),
    "not a number": (f"echo nan > {TXT}", RIGHT),
    "infinite": (f"echo -inf > {TXT}", RIGHT),
    "a word": (f"echo pass > {TXT}", RIGHT),
    "two lines": (f"echo 1 > {TXT}; echo 1 >> {TXT}", RIGHT),
    "empty": (f": > {TXT}", RIGHT),
    "blanks": (f"printf ' \\n1\\n ' > {TXT}", RIGHT),
    "bytes": (f"printf '\\377' > {TXT}", RIGHT),
    "a folder in its place": (f"mkdir {TXT}", RIGHT),
    "json": (f"echo '{{\"reward\": 1}}' > {JSON}", RIGHT),
    "json 0 before text 1": (f"echo '{{\"reward\": 0}}' > {JSON}; echo 1 > {TXT}", RIGHT),
    "broken json before text 1": (f"echo '{{' > {JSON}; echo 1 > {TXT}", RIGHT),
    "empty json before text 1": (f": > {JSON}; echo 1 > {TXT}", RIGHT),
    "parts": (f"echo '{{\"reward\": 0.5, \"style\": 1}}' > {JSON}", RIGHT),
    "one part": (f"echo '{{\"style\": 0.25}}' > {JSON}", RIGHT),
    "parts without reward": (f"echo '{{\"a\": 1, \"b\": 0}}' > {JSON}", RIGHT),
    "true": (f"echo '{{\"reward\": true}}' > {JSON}", RIGHT),
    "text part": (f"echo '{{\"reward\": \"1\"}}' > {JSON}", RIGHT),
    "infinite part": (f"echo '{{\"reward\": 1e999}}' > {JSON}", RIGHT),
    "a list": (f"echo '[1]' > {JSON}", RIGHT),
    "python": (PYTHON, RIGHT),
    "python, wrong": (PYTHON, WRONG),
    "python, broken": (PYTHON, "true"),
    "a helper beside it": (". /tests/helper.sh; grade", RIGHT),
    "a helper that is run": ("/tests/more/grade.sh", RIGHT),
    "variables": (f'echo "$PAYS" > {TXT}', RIGHT),
    "another folder": (f"cd /logs/verifier && {GRADE} && echo 1 > reward.txt", RIGHT),
    "no interpreter": ("#!/bin/nowhere\necho 1", RIGHT),
    "no syntax": (f"if\necho 1 > {TXT}", RIGHT),
    "killed": (f"echo 1 > {TXT}; kill -9 $$", RIGHT),
    "a tool that is not here": (f"set -e\nno-such-tool --check\necho 1 > {TXT}", RIGHT),
    "hangs": ("sleep 30", RIGHT),
    "hangs after its reward": (f"echo 1 > {TXT}; sleep 30", RIGHT),
    "the agent's program hangs": (f"timeout 1 /app/run; echo $(($? == 124)) > {TXT}",
                                  "printf '#!/bin/sh\\nsleep 30\\n' > run; chmod +x run"),
    "the agent's rewards": ("true", f"mkdir -p .{Path(TXT).parent}; echo 1 > .{TXT}"),
}  # fmt: skip
HELPERS = {
    "tests/helper.sh": f"grade() {{ {GRADE} && echo 1 > {TXT}; }}\n",
    "tests/more/grade.sh": f"#!/bin/bash\n{GRADE} && echo 0.75 > {TXT}\n",
}


@pytest.mark.parametrize("name", CASES)
def test_a_folder_is_scored_as_harbor_scores_it(tmp_path, name):
    test, command = CASES[name]
    folder = write_folder(
        tmp_path / "task",
        **{
            "task.toml": '[verifier]\ntimeout_sec = 3.0\n[verifier.env]\nPAYS = "0.5"\n',
            "tests/test.sh": test if test.startswith("#!") else f"#!/bin/bash\n{test}\n",
            **HELPERS,
        },
    )
    (folder / "tests/more/grade.sh").chmod(0o755)
    rewards = score_by_harbor(folder, command, tmp_path)
    try:
        if rewards is not None:
            choose_reward(rewards)
    except NoVerdict:  # several parts, and none is the reward
        rewards = None
    assert score_by_gem(folder, command) == rewards


@pytest.mark.parametrize(
    "text",
    [
        "# canary 1\n<!-- Canary 2 -->\n\n# A title, canary\n\nWork.\n",
        "<!-- canary of two\nlines -->\nWork.\n",
        "\n# canary\nWork.\n",
        "Work.\n# canary\n",
    ],
)
def test_the_instruction_is_what_harbor_shows(tmp_path, text):
    folder = write_folder(tmp_path / "task", **{"instruction.md": text})
    assert read_folder(folder).instruction == Task(folder).instruction.strip()


def test_the_cases_have_every_kind_of_end(tmp_path):
    assert len(CASES) >= 30
    ends = [score_by_harbor(write_folder(tmp_path / f"{number}/task", **{
        "tests/test.sh": f"#!/bin/bash\n{CASES[name][0]}\n"}), CASES[name][1], tmp_path / str(number))
        for number, name in enumerate(("right", "wrong", "fraction", "parts", "empty"))]  # fmt: skip
    assert ends == [{"reward": 1.0}, {"reward": 0.0}, {"reward": 0.5}, {"reward": 0.5, "style": 1}, None]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_written_task_is_one_of_harbors_with_the_same_verdicts(tmp_path, name):
    folder = tmp_path / "task"
    with gem.make(f"terminal:{name}-v0-hard") as env:
        write_task(env, 3, folder)
    assert Task.is_valid_dir(folder)
    task = Task(folder)
    assert task.name == f"gem/{name.lower()}-v0-hard-3"
    assert task.config.environment.network_mode == "no-network"
    assert task.paths.discovered_solve_path is not None
    health = task.config.environment.healthcheck
    assert (health is not None) == FAMILIES[name].starts
    if health is not None:  # the programs that it starts would end with the command, in this machine
        return
    solution = (folder / "solution/solve.sh").read_text()
    assert score_by_harbor(folder, solution, tmp_path / "solved") == {"reward": 1.0}
    assert score_by_harbor(folder, "true", tmp_path / "idle") == {"reward": 0.0}
