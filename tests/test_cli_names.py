"""Commands that name an environment, an agent, a wrapper or a logger in a file of the user's own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gem import cli

RELAY = '''
import random  # not the neighbour
import math
import gem
import helpers
from package import inner

class Relay(gem.Env):
    """Repeat a letter."""

    def __init__(self, length: int = 3):
        self.length = length

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.way = [self.rng.choice(helpers.LETTERS) for _ in range(self.length)]
        return gem.Start(inner.prompt(self.way[0]), {})

    def step(self, action):
        reward = float(action == self.way.pop(0))
        return gem.Step(inner.prompt(self.way[0]) if self.way else "over", reward, not self.way, False, {})

    def sample_random_action(self):
        return self.actor_rng.choice(helpers.LETTERS)


class NoEnv: ...
'''

AGENT = """
from gem.agents import BaseAgent
from gem.record import Reply

class Repeats(BaseAgent):
    def __call__(self, asks):
        return [Reply(ask.messages[-1].content[-1]) for ask in asks]

def shouting():
    return Repeats()

AGENT = Repeats()
"""

WRAP = """
import gem

class Doubled(gem.EnvWrapper):
    def on_step(self, step):
        return step._replace(reward=2 * step.reward)
"""

FILES = {
    "relay.py": RELAY,
    "agent.py": AGENT,
    "wrap.py": WRAP,
    "helpers.py": 'LETTERS = "ab"\n',
    "package/__init__.py": "",
    "package/inner.py": "def prompt(letter):\n    return f'Repeat {letter}'\n",
    "random.py": "raise RuntimeError('the neighbour was imported')\n",
    "math.py": "raise RuntimeError('the neighbour was imported')\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The files of a user, in the folder `mine`, and a cache of this user's own."""
    for name, text in FILES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path / "mine")
    yield tmp_path
    for name in ("relay", "agent", "helpers", "package", "package.inner"):  # where they were named as modules
        sys.modules.pop(name, None)


def command(*args, cwd):
    """Run gem-gym in a process of its own, in a folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "gem", *args], cwd=cwd, capture_output=True, text=True, env=os.environ
    )
    waits = "no news for "  # a busy machine
    errors = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith(waits)]
    return done.returncode, done.stdout, "".join(errors)


@pytest.mark.system
def test_an_evaluation_from_another_folder_is_played_resumed_replayed_and_valued(folder):
    play = [
        "eval",
        "../mine/relay.py:Relay",
        "--agent",
        "../mine/agent.py:Repeats",
        "-n",
        "4",
        "--out",
        "out",
    ]
    code, out, err = command(*play, cwd=folder / "elsewhere")
    assert (code, err) == (0, "")
    assert "3.000 (no bounds)" in out
    stored = (folder / "elsewhere" / "out" / "episodes.jsonl").read_text()
    assert '"spec":"relay.py@' in stored
    assert str(folder) not in stored
    for name in ("relay.py", "helpers.py", "agent.py"):
        (folder / "mine" / name).unlink()
    store = str(folder / "elsewhere" / "out")
    assert command("eval", "--resume", "--out", store, "-n", "6", cwd=folder)[0] == 0
    code, out, err = command("replay", store, "all", cwd=folder)
    assert (code, err, out.count("the same transcript")) == (0, "", 6)
    assert command("value", store, "0", "--agent", "random", "-n", "2", cwd=folder)[0] == 0


@pytest.mark.system
def test_a_stranger_of_the_file_is_refused_with_its_name(folder, monkeypatch, capsys):
    assert cli.main(["eval", "relay.py:Relay", "-n", "2", "--out", "out"]) == 0
    monkeypatch.setenv("GEM_CACHE", str(folder / "another"))
    code, out, _ = command("replay", "out", "0", cwd=folder / "mine")
    assert code == 1
    assert "relay.py@" in out
    assert "was not named here before, or has changed since" in out


def test_a_changed_file_is_told_and_not_mixed(folder, capsys):
    assert cli.main(["eval", "relay.py:Relay", "-n", "2", "--out", "out"]) == 0
    before = json.loads(Path("out/command.json").read_text())[0]
    (folder / "mine" / "helpers.py").write_text('LETTERS = "abc"\n')
    capsys.readouterr()
    assert cli.main(["eval", "relay.py:Relay", "-n", "2", "--out", "out"]) != 0
    told = capsys.readouterr().err
    assert f"was played with {before}, and the file has changed since: here it is relay.py@" in told
    for again in (["eval", "--resume", "--out", "out"], ["replay", "out", "all"]):
        assert cli.main(again) == 0
        told = capsys.readouterr().err
        assert told.count("relay.py or a file that it imports has changed: its digest was") == 1


@pytest.mark.parametrize("name", ["agent.py:Repeats", "agent.py:shouting", "agent.py:AGENT", "agent:Repeats"])
def test_an_agent_is_a_class_a_factory_or_an_object(name, capsys):
    assert cli.main(["eval", "relay.py:Relay", "--agent", name, "-n", "2"]) == 0
    assert "3.000 (no bounds)" in capsys.readouterr().out


def test_a_wrapper_of_a_file(capsys):
    args = ["eval", "relay.py:Relay", "--wrappers", "wrap.py:Doubled", "--agent", "agent.py:AGENT", "-n", "2"]
    assert cli.main([*args, "--out", "out"]) == 0
    assert "6.000 (no bounds)" in capsys.readouterr().out
    assert cli.main(["replay", "out", "all"]) == 0


@pytest.mark.system
@pytest.mark.parametrize("host", ["thread", "process"])
def test_hosts_give_the_transcripts_of_the_serial_host(host):
    for name in ("serial", host):
        assert cli.main(["eval", "relay.py:Relay", "-n", "3", "--host", name, "--out", name]) == 0
    assert cli.main(["replay", host, "all", "--host", host]) == 0
    played = []
    for name in ("serial", host):
        lines = map(json.loads, Path(name, "episodes.jsonl").read_text().splitlines())
        told = {
            each["job"]: [turn["observation"] for turn in each["turns"]] for each in lines if "turns" in each
        }
        played.append(told)
    assert played[0] == played[1]
    assert len(played[0]) == 3


def test_play_check_and_audit(capsys):
    assert cli.main(["play", "relay.py:Relay", "--agent", "agent.py:Repeats", "--seed", "1"]) == 0
    assert "return 3" in capsys.readouterr().out
    assert cli.main(["play", "relay:Relay", "--agent", "random", "--seed", "1"]) == 0
    assert cli.main(["check", "relay.py:Relay"]) == 0
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.system
def test_a_suite_names_what_is_beside_it(folder, capsys):
    assert cli.main(["check", "relay.py:Relay"]) == 0  # named once, so that the suite may
    (folder / "mine" / "suite.toml").write_text('[[environments]]\nid = "relay.py:Relay"\nn = 2\n')
    code, out, err = command("eval", "../mine/suite.toml", cwd=folder / "elsewhere")
    assert (code, err) == (0, "")
    assert "relay.py@" in out


@pytest.mark.system
def test_a_suite_may_not_name_a_file_that_nobody_named(folder):
    (folder / "mine" / "suite.toml").write_text('[[environments]]\nid = "relay.py:Relay"\nn = 2\n')
    code, _, err = command("eval", "mine/suite.toml", cwd=folder)
    assert code == 2
    assert "--trust" in err
    assert command("eval", "mine/suite.toml", "--trust", cwd=folder)[0] == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["eval", "relay.py:Rely"], "there is no 'Rely' in it. Did you mean 'Relay'?"),
        (["eval", "relay.py:X"], "It defines Relay, NoEnv."),
        (["eval", "relay.py:NoEnv"], "is the class NoEnv; accepted: a subclass of gem.Env"),
        (["eval", "relay.py"], "names a file; accepted: relay.py:NAME. It defines Relay, NoEnv."),
        (["play", "gone.py:Relay"], "there is no file gone.py."),
        (["train", "--env", "gone.py:Relay"], "there is no file gone.py."),
        (["train", "--env", "relay.py:NoEnv"], "accepted: a subclass of gem.Env"),
        (["train", "--log", "relay.py:NoEnv"], "accepted: a subclass of gem.train.Watcher"),
        (["train", "--opponent", "gone.py:X"], "there is no file gone.py."),
        (["serve", "relay.py:Rely"], "Did you mean 'Relay'?"),
        (["demos", "relay.py:Relay", "--out", "d"], "has no solver"),
        (["eval", "relay.py:Relay", "--agent", "relay.py:NoEnv"], "accepted: an object with the methods of"),
        (["eval", "relay.py:Relay", "--agent", "relay.py:Relay.reset"], "cannot be made: TypeError"),
        (["eval", "relay.py:Relay", "--wrappers", "wrap.py:Halved"], "It defines Doubled."),
        (["eval", "random.py:X"], "its import fails: RuntimeError: the neighbour was imported"),
        (["eval", "game:Soduku-v0"], "Did you mean 'game:Sudoku-v0-hard'"),
        (["eval", "gmae:Sudoku-v0"], "'game:Sudoku-v0-easy'"),
    ],
)
def test_what_names_nothing_is_one_sentence(args, message, capsys):
    assert cli.main(args) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert len(told.splitlines()) == 1


@pytest.mark.slow
def test_a_run_keeps_the_content_of_its_files(folder, capsys):
    flags = [
        "--episodes",
        "32",
        "--batch",
        "16",
        "--warmup-steps",
        "0",
        "--eval-episodes",
        "4",
        "--watch",
        "0",
    ]
    log = "from gem.train import Watcher\nclass Log(Watcher): ...\n"
    (folder / "mine" / "log.py").write_text(log)
    args = ["train", "--env", "relay.py:Relay", "--wrappers", "wrap.py:Doubled", "--log", "log.py:Log"]
    assert cli.main([*args, *flags, "--out", "run"]) == 0
    config = json.loads((folder / "mine" / "run" / "config.json").read_text())
    assert config["env"].startswith("relay.py@")
    assert config["wrappers"][0].startswith("wrap.py@")
    (folder / "mine" / "helpers.py").write_text('LETTERS = "xyz"\n')
    capsys.readouterr()
    code, out, _ = command("train", "--resume", "--out", "mine/run", cwd=folder)
    assert code == 0
    assert "has changed: its digest was" in " ".join(out.split())
    assert cli.main([*args, *flags, "--out", "run", "--resume"]) == 2
    assert f"has env='{config['env']}'" in capsys.readouterr().err
