"""What waits says so, after five silent seconds, and what it waits for."""

import re
import threading
from functools import partial

import pytest

from gem import cli, waiting
from gem.agents import BaseAgent
from gem.cli import silence
from gem.core import Env, Start, Step
from gem.errors import BadArgument
from gem.record import AgentInfo, Reply
from gem.registry import ENV_REGISTRY, register
from gem.rollout import Job, Runner
from gem.specs import EnvSpec
from gem.waiting import describe_waits, name_wait, report_news, report_trouble

PATIENCE_S = 20


class Slow(BaseAgent):
    """Answers when the gate opens."""

    def __init__(self, gate):
        self.gate = gate

    @property
    def info(self):
        return AgentInfo("Slow", "m")

    def __call__(self, asks):
        assert self.gate.wait(PATIENCE_S)
        return [Reply("x") for _ in asks]


class Gated(Env):
    """Steps when the gate opens."""

    def __init__(self, gate):
        self.gate = gate

    def reset(self, seed=None):
        super().reset(seed)
        return Start("go", {})

    def sample_random_action(self):
        return "x"

    def step(self, action):
        assert self.gate.wait(PATIENCE_S)
        return Step("end", 1.0, True, False, {})


@pytest.fixture
def gated():
    gate = threading.Event()
    spec = EnvSpec("test:Gated", partial(Gated, gate))
    register(spec)
    yield gate
    del ENV_REGISTRY[spec.id]


@pytest.fixture
def shown(monkeypatch):
    """Show lines after 0.05 s; the lines, and who is called with each."""
    lines, callbacks = [], []

    def show(line):
        lines.append(line)
        for call in callbacks:
            call(line)

    monkeypatch.setattr(silence, "show_line", show)
    monkeypatch.setattr(silence, "AFTER_S", 0.05)
    return lines, callbacks


@pytest.mark.parametrize("waits_for", ["agent", "environment"])
def test_a_line_says_what_is_waited_for_and_each_takes_twice_as_long(gated, shown, waits_for):
    gate, other = threading.Event(), gated
    (other if waits_for == "agent" else gate).set()
    lines, callbacks = shown
    # A batch holds the asks that are ready, so that an agent may be asked before the third episode has begun.
    expected = "answers of Slow m (" if waits_for == "agent" else "calls of test:Gated: step (3)"
    gates = gate, other
    callbacks.append(lambda _: sum(map(wanted, lines)) == 2 and [each.set() for each in gates])

    def wanted(line):
        return f"waiting for {expected}" in line

    with silence.Silence(), Runner(Slow(gate), host="thread") as runner:
        episodes = runner.play([Job("test:Gated", seed) for seed in range(3)])
    assert [episode.scored for episode in episodes] == [True] * 3
    assert sum(map(wanted, lines)) == 2
    assert describe_waits() == ""


def test_the_reason_of_a_wait_follows_what_waits(monkeypatch):
    monkeypatch.setattr(waiting, "_sources", [])
    waiting.add_source(lambda: "a pause", last=True)
    waiting.add_source(lambda: "answers")
    assert describe_waits() == "answers: a pause"


def test_news_break_the_silence(gated, shown):
    lines, _ = shown
    with silence.Silence("all", after_s=PATIENCE_S):
        report_news()
    assert lines == []


def test_a_long_silence_is_told_again_and_again(shown, monkeypatch):
    lines, callbacks = shown
    monkeypatch.setattr(silence, "MOST_S", 0.05)
    told = threading.Event()
    callbacks.append(lambda _: len(lines) == 10 and told.set())
    with silence.Silence("all"):
        assert told.wait(PATIENCE_S)  # each after twice as long, ten would take 25 seconds


def test_a_trouble_is_shown_at_once_while_the_command_runs(shown):
    lines, _ = shown
    with silence.Silence("all", after_s=PATIENCE_S):
        report_trouble("no server; trying again")
    report_trouble("later")
    assert lines == ["no server; trying again"]


def test_the_widest_wait_is_said_first_and_each_ends_with_its_block():
    with name_wait("the update"), name_wait("a server"):
        assert describe_waits() == "the update: a server"
    assert describe_waits() == ""


@pytest.mark.parametrize(
    ("host", "limit"), [("thread", ""), ("serial", ", which has no limit of time on the host serial")]
)
def test_an_evaluation_says_what_it_waits_for(gated, shown, host, limit):
    lines, callbacks = shown
    expected = f"waiting for calls of test:Gated: step{limit} (1)"
    callbacks.append(lambda line: line.endswith(expected) and gated.set())
    assert cli.main(["eval", "test:Gated", "--agent", "random", "-n", "1", "--host", host]) == 0
    assert any(line.endswith(expected) for line in lines)


def test_an_episode_that_does_not_end_is_told(shown):
    lines, callbacks = shown
    ended = threading.Event()

    class Endless(Gated):
        def step(self, action):
            return Step("on", 1.0, self.gate.is_set(), False, {})

    spec = EnvSpec("test:Endless", partial(Endless, ended))
    register(spec)
    told = re.compile(
        r"an episode has had [1-9][\d,]+ turns so far, and no limit of them is set \(as by --turns"
    )
    callbacks.append(lambda line: told.search(line) and ended.set())
    try:
        assert cli.main(["eval", "test:Endless", "--agent", "random", "-n", "1"]) == 0
        assert any(map(told.search, lines))
        lines.clear()
        assert cli.main(["eval", "test:Endless", "--agent", "random", "-n", "1", "--turns", "300"]) == 0
        assert not any(map(told.search, lines))
    finally:
        del ENV_REGISTRY[spec.id]


def test_a_close_without_a_limit_of_time_says_so(gated, shown, monkeypatch):
    lines, callbacks = shown
    first, second = (threading.Event(), threading.Event())  # that of the look at its tasks, and of the run
    gates = [first, second]
    monkeypatch.setattr(Gated, "close", lambda self: gates.pop(0).wait(PATIENCE_S))
    gated.set()
    callbacks.append(lambda line: line.endswith("the tasks of test:Gated") and first.set())
    callbacks.append(lambda line: "close() of" in line and second.set())
    assert cli.main(["eval", "test:Gated", "--agent", "random", "-n", "1", "--host", "serial"]) == 0
    assert any("waiting for close() of an environment, which has no limit" in line for line in lines)
    assert first.is_set()
    assert second.is_set()
    assert gates == []


@pytest.mark.parametrize("named", ["slow_import:Env", "slow_import.py:Env"])
def test_an_import_that_hangs_is_named(shown, monkeypatch, tmp_path, named):
    lines, callbacks = shown
    waiting.heard = threading.Event()
    expected = f"environment {named!r} to be imported"
    callbacks.append(lambda line: line.endswith(expected) and waiting.heard.set())
    (tmp_path / "slow_import.py").write_text(
        f"from gem import waiting\nassert waiting.heard.wait({PATIENCE_S})\nclass Env: pass\n"
    )
    monkeypatch.chdir(tmp_path)
    try:
        assert cli.main(["eval", named, "--agent", "random", "-n", "1"]) == 2
    finally:
        del waiting.heard
    assert any(line.endswith(expected) for line in lines)


@pytest.mark.parametrize(
    ("args", "place", "expected"),
    [
        (["models", "--fetch", "smollm2"], "gem.models.fetch", "pip, which downloads smollm2"),
        (
            ["audit", "--grader", "math"],
            "gem.testing.audit_grader.audit_grader",
            "the audit of the grader math",
        ),
        (["audit", "game:Sudoku-v0-easy"], "gem.testing.audit.audit_env", "the audit of game:Sudoku-v0-easy"),
        (["compare", "a", "b"], "gem.cli.compare.refuse_training", "the episodes of both runs to be read"),
        (["serve", "game:Sudoku-v0-easy"], "gem.serve.environments.server.EnvironmentServer", "to start"),
        (["serve-search", "world"], "gem.tools.search.open_engine", "the index of world"),
        (["store", "ls", "x"], "gem.cli.store.find_store", "gem-gym store"),
        (["export", "--format", "atif", "x", "y"], "gem.cli.export.find_store", "gem-gym export"),
    ],
)
def test_a_command_says_what_it_waits_for(shown, monkeypatch, args, place, expected):
    lines, callbacks = shown
    heard = threading.Event()
    callbacks.append(lambda line: line.endswith(expected) and heard.set())

    def wait(*args, **kwargs):
        assert heard.wait(PATIENCE_S)
        raise BadArgument("that is all")

    monkeypatch.setattr(place, wait)
    assert cli.main(args) == 2
    assert any(line.endswith(expected) for line in lines)


def test_a_server_that_waits_for_requests_stays_quiet():
    assert silence.Silence("")._otherwise == ""
    assert {"play", "view", "tail", "proxy", "mcp"} == {*cli.STAYS_QUIET}


@pytest.mark.system
def test_training_names_what_it_waits_for(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    named = []

    class Recorder(dict):
        def __setitem__(self, key, value):
            named.append(value())
            super().__setitem__(key, value)

    monkeypatch.setattr(waiting, "_named", Recorder())
    args = [
        "--episodes",
        "32",
        "--batch",
        "32",
        "--warmup-steps",
        "2",
        "--eval-episodes",
        "4",
        "--eval-every",
        "1",
    ]
    assert cli.main(["train", "--out", str(tmp_path / "run"), *args]) == 0
    for wait in (
        "torch to be loaded",
        "the model tiny and the environments to be made",
        "the figures of random play in game:GuessTheNumber-v0-easy",
        "a step of the warm-up",
        "the episodes of iteration 1",
        "the update of iteration 1",
        "the figures on held-out instances",
        f"{tmp_path}/run/checkpoint.pt to be written",
        "the figures of trained, sampled in game:GuessTheNumber-v0-easy",
    ):
        assert wait in named
    assert describe_waits() == ""
