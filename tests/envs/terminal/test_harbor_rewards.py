"""Rewards of Harbor's task folders.

The expected ones are what the parsing methods of Harbor 0.25's verifier returned for the same files. None:
they raised an error, or a trial has no single reward then.
"""

import pytest

from gem.agents.scripted import ScriptedAgent
from gem.envs.terminal.base import choose_reward, read_rewards
from gem.envs.terminal.env import TerminalEnv
from gem.errors import NoVerdict
from gem.rollout import Job, rollout

FOLDER = {
    "task.toml": '[task]\nname = "gem/answer"\n[verifier]\ntimeout_sec = 2.0\n',
    "instruction.md": "Write 42 to /app/answer.txt.\n",
    "environment/numbers.txt": "40\n2\n",
    "solution/solve.sh": "echo 42 > /app/answer.txt\n",
}

FILES = {
    "right": ({"reward.txt": b"1\n"}, {"reward": 1.0}, 1.0),
    "wrong": ({"reward.txt": b"0\n"}, {"reward": 0.0}, 0.0),
    "no newline": ({"reward.txt": b"1"}, {"reward": 1.0}, 1.0),
    "blanks": ({"reward.txt": b" \n 1.0 \t\n"}, {"reward": 1.0}, 1.0),
    "fraction": ({"reward.txt": b"0.5\n"}, {"reward": 0.5}, 0.5),
    "below 0": ({"reward.txt": b"-1"}, {"reward": -1.0}, -1.0),
    "above 1": ({"reward.txt": b"2.5"}, {"reward": 2.5}, 2.5),
    "exponent": ({"reward.txt": b"1e-3"}, {"reward": 0.001}, 0.001),
    "underscore": ({"reward.txt": b"1_0"}, {"reward": 10.0}, 10.0),
    "digit of another script": ({"reward.txt": "١".encode()}, {"reward": 1.0}, 1.0),
    "no file": ({}, None, None),
    "empty": ({"reward.txt": b""}, None, None),
    "a line end": ({"reward.txt": b"\n"}, None, None),
    "a word": ({"reward.txt": b"pass\n"}, None, None),
    "two numbers": ({"reward.txt": b"1\n1\n"}, None, None),
    "per cent": ({"reward.txt": b"100%"}, None, None),
    "a fraction in two numbers": ({"reward.txt": b"1/2"}, None, None),
    "NaN": ({"reward.txt": b"nan"}, None, None),
    "infinite": ({"reward.txt": b"inf"}, None, None),
    "too large": ({"reward.txt": b"1e309"}, None, None),
    "no text": ({"reward.txt": b"\xff\xfe1"}, None, None),
    "json in the text file": ({"reward.txt": b'{"reward": 1}'}, None, None),
    "json": ({"reward.json": b'{"reward": 1.0}'}, {"reward": 1.0}, 1.0),
    "json 0": ({"reward.json": b'{"reward": 0}'}, {"reward": 0.0}, 0.0),
    "json before text": ({"reward.json": b'{"reward": 0}', "reward.txt": b"1"}, {"reward": 0.0}, 0.0),
    "broken json before text": ({"reward.json": b"{", "reward.txt": b"1"}, None, None),
    "empty json before text": ({"reward.json": b"", "reward.txt": b"1"}, None, None),
    "parts": ({"reward.json": b'{"reward": 0.75, "style": 0.5}'}, {"reward": 0.75, "style": 0.5}, 0.75),
    "one part": ({"reward.json": b'{"accuracy": 0.25}'}, {"accuracy": 0.25}, 0.25),
    "parts without a reward": ({"reward.json": b'{"a": 1, "b": 0}'}, {"a": 1.0, "b": 0.0}, None),
    "no part": ({"reward.json": b"{}"}, {}, None),
    "true": ({"reward.json": b'{"reward": true}'}, {"reward": 1.0}, 1.0),
    "twice": ({"reward.json": b'{"reward": 1, "reward": 0}'}, {"reward": 0.0}, 0.0),
    "a number as json": ({"reward.json": b"0.5"}, None, None),
    "list": ({"reward.json": b"[1]"}, None, None),
    "empty list": ({"reward.json": b"[]"}, None, None),
    "null": ({"reward.json": b"null"}, None, None),
    "null part": ({"reward.json": b'{"reward": null}'}, None, None),
    "text part": ({"reward.json": b'{"reward": "1"}'}, None, None),
    "list part": ({"reward.json": b'{"reward": 1, "cases": [1, 0]}'}, None, None),
    "nested parts": ({"reward.json": b'{"reward": {"value": 1}}'}, None, None),
    "NaN part": ({"reward.json": b'{"reward": 1, "style": NaN}'}, None, None),
    "infinite part": ({"reward.json": b'{"reward": Infinity}'}, None, None),
    "too large part": ({"reward.json": b'{"reward": 1e309}'}, None, None),
    "byte order mark": ({"reward.json": b'\xef\xbb\xbf{"reward": 1}'}, None, None),
    "UTF-16": ({"reward.json": '{"reward": 1}'.encode("utf-16")}, None, None),
    "deep": ({"reward.json": b"[" * 100_000}, None, None),
}


def write_folder(folder, test, **files):
    for path, data in {**FOLDER, "tests/test.sh": test, **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


@pytest.mark.parametrize("name", FILES)
def test_files_are_read_as_harbors_verifier_reads_them(name):
    files, rewards, reward = FILES[name]
    if rewards is None:
        with pytest.raises(NoVerdict, match="the test"):
            read_rewards(files.get("reward.json"), files.get("reward.txt"))
        return
    assert read_rewards(files.get("reward.json"), files.get("reward.txt")) == rewards
    if reward is None:
        with pytest.raises(NoVerdict, match="one named reward"):
            choose_reward(rewards)
    else:
        assert choose_reward(rewards) == reward


@pytest.mark.parametrize("rewards", [b'{"reward": 1%s}' % (b"0" * 400), b'{"\\ud800": 1}'])
def test_rewards_that_gem_cannot_store_give_no_verdict(rewards):
    with pytest.raises(NoVerdict, match=r"reward\.json holds"):
        read_rewards(rewards, None)


@pytest.mark.system
@pytest.mark.parametrize("name", FILES)
def test_folders_are_scored_as_harbor_scores_them(shell, tmp_path, name):
    files, rewards, reward = FILES[name]
    copy = "#!/bin/sh\ncp /tests/reward.* /logs/verifier/\nexit {}\n"
    # The exit code says the opposite, and is not believed.
    write_folder(
        tmp_path,
        copy.format(int(bool(reward and reward >= 1))),
        **{f"tests/{path}": data for path, data in files.items()},
    )
    with TerminalEnv(task_dir=tmp_path) as env:
        env.reset(seed=0)
        if reward is None:
            with pytest.raises(NoVerdict):
                env.step("<submit/>")
            return
        step = env.step("<submit/>")
        assert (step.reward, step.info["success"]) == (reward, reward >= 1)
        assert step.info.get("rewards", {"reward": reward}) == rewards


def test_named_parts_are_in_the_turns_rewards(shell, tmp_path):
    test = 'echo \'{"reward": 0.75, "style": 0.5}\' > "$LOGS_DIR/verifier/reward.json"\n'
    write_folder(tmp_path, test)
    job = Job(lambda: TerminalEnv(task_dir=tmp_path), seed=0)
    [episode] = rollout([job], ScriptedAgent(["<submit/>"]))
    [turn] = episode.turns
    assert (turn.reward, turn.rewards) == (0.75, {"reward": 0.75, "style": 0.5})
    assert (episode.reward(), turn.info["why"]) == (0.75, "the test's reward is 0.75")


def test_what_the_agent_left_is_no_reward(shell, tmp_path):
    write_folder(tmp_path, "#!/bin/sh\necho 0 > /logs/verifier/reward.txt\n")
    forge = (
        "mkdir -p .logs/verifier .tests; echo '{\"reward\": 1}' > .logs/verifier/reward.json; "
        "echo 1 > .logs/verifier/reward.txt; chmod 400 .logs/verifier/*; chmod 500 .logs/verifier .logs"
    )
    with TerminalEnv(task_dir=tmp_path) as env:
        env.reset(seed=0)
        assert env.step(f"<bash>{forge}</bash><submit/>").reward == 0.0


@pytest.mark.system
def test_a_test_that_hangs_gives_no_verdict_whatever_it_wrote(shell, tmp_path):
    write_folder(tmp_path, "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nsleep 60\n")
    with TerminalEnv(task_dir=tmp_path) as env:
        env.reset(seed=0)
        with pytest.raises(NoVerdict, match="took more than 2 s"):
            env.step("<submit/>")


@pytest.mark.parametrize(
    "test", ["#!/bin/nowhere\n", "set -e\nfalse\necho 1 > /logs/verifier/reward.txt\n", "(("]
)
def test_a_script_that_breaks_gives_no_verdict(shell, tmp_path, test):
    write_folder(tmp_path, test)
    with TerminalEnv(task_dir=tmp_path) as env:
        env.reset(seed=0)
        with pytest.raises(NoVerdict, match="neither"):
            env.step("<submit/>")


def test_a_script_runs_by_its_first_line(shell, tmp_path):
    write_folder(tmp_path, "#!/usr/bin/env python3\nopen('/logs/verifier/reward.txt', 'w').write('0.25')\n")
    with TerminalEnv(task_dir=tmp_path) as env:
        env.reset(seed=0)
        assert env.step("<submit/>").reward == 0.25
