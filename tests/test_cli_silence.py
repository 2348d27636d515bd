"""What waits says so, after ten silent seconds, and what it waits for."""

import threading
from functools import partial

import pytest

from gem import cli
from gem.agents import BaseAgent
from gem.cli import silence
from gem.cli.eval_report import Terminal
from gem.core import Env, Start, Step
from gem.record import AgentInfo, Reply
from gem.registry import ENV_REGISTRY, register
from gem.rollout import Job, Runner
from gem.rollout.flights import describe_waits
from gem.specs import EnvSpec

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


@pytest.mark.parametrize("waits_for", ["agent", "environment"])
def test_a_line_says_what_is_waited_for_and_each_takes_twice_as_long(gated, waits_for):
    gate, other = threading.Event(), gated
    (other if waits_for == "agent" else gate).set()
    lines = []

    def show(line):
        lines.append(line)
        if len(lines) == 2:
            gate.set()
            other.set()

    with silence.Silence(show, after_s=0.05), Runner(Slow(gate), host="thread") as runner:
        episodes = runner.play([Job("test:Gated", seed) for seed in range(3)])
    assert [episode.scored for episode in episodes] == [True] * 3
    expected = "answers of Slow m (3)" if waits_for == "agent" else "calls of test:Gated: step (3)"
    assert all(line.endswith(f"waiting for {expected}") for line in lines)
    assert describe_waits() == ""


def test_what_happens_breaks_the_silence(gated):
    gated.set()
    lines = []
    with silence.Silence(lines.append, after_s=PATIENCE_S) as watch:
        watch.break_it()
    assert lines == []


def test_an_evaluation_says_what_it_waits_for(gated, monkeypatch, capsys):
    show = Terminal.on_message

    def show_and_open(self, text):
        show(self, text)
        gated.set()

    monkeypatch.setattr(Terminal, "on_message", show_and_open)
    monkeypatch.setattr(silence, "AFTER_S", 0.05)
    assert cli.main(["eval", "test:Gated", "--agent", "random", "-n", "1", "--host", "thread"]) == 0
    assert "waiting for calls of test:Gated: step (1)" in capsys.readouterr().err
