"""Each rule about faults has an environment here that breaks it, and is caught; sound ones pass."""

import os
import sys
from functools import partial
from types import ModuleType
from typing import ClassVar

import pytest
from fault_worlds import double

from gem.cli import main
from gem.core import Step
from gem.envs.seats.matrix_game import MatrixGame
from gem.errors import BadArgument
from gem.registry import EnvSpec
from gem.sandbox import default_sandbox
from gem.sandbox.base import SandboxFailed
from gem.testing import EchoEnv, check_env, fault_rules
from gem.testing.fault_rules import FAULT_RULES
from gem.tools.base_tool import FunctionTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper

SOUND = EnvSpec("test:Sound-v0", "gem.testing.doubles:EchoEnv", {"turns": 3}, solver="oracle", max_turns=3)


@pytest.fixture(autouse=True)
def light_main(monkeypatch):
    """Keep workers from importing pytest, which a spawned process does with its parent's main module."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))


@pytest.fixture
def isolates():
    try:
        default_sandbox().run("pass")
    except SandboxFailed as absent:
        pytest.skip(f"no backend of the sandbox is to be had here: {absent}")


class Remembers(EchoEnv):
    """Shows how many were made before it: an episode that is played again is another one."""

    made: ClassVar[list[int]] = []

    def __init__(self):
        super().__init__()
        self.made.append(1)

    def reset(self, seed=None):
        start = super().reset(seed)
        return start._replace(obs=f"{start.obs} {len(self.made)}")


class SeatsRemember(MatrixGame):
    """Shows each of its seats how many were made before it."""

    made: ClassVar[list[int]] = []

    def __init__(self):
        super().__init__()
        self.made.append(1)

    def reset(self, seed=None):
        start = super().reset(seed)
        return start._replace(obs={seat: f"{text} {len(self.made)}" for seat, text in start.obs.items()})


class LocksItself(EchoEnv):
    """Does not let itself be reset while a step is under way."""

    def __init__(self):
        super().__init__()
        self.under_way = False

    def reset(self, seed=None):
        if getattr(self, "under_way", False):
            raise RuntimeError("a step is under way")
        return super().reset(seed)

    def step(self, action):
        self.under_way = True
        self.helper()
        step = super().step(action)
        self.under_way = False
        return step

    def helper(self):
        pass


class HidesErrors(EchoEnv):
    """Scores what broke."""

    def step(self, action):
        try:
            self.helper()
        except RuntimeError as error:
            raise ValueError("something went wrong") from error
        return super().step(action)

    def helper(self):
        pass


class HidesTools(ToolEnvWrapper):
    """Takes a tool's failure for the agent's."""

    def step(self, action, verbose=False):
        try:
            return super().step(action)
        except Exception as error:
            return Step(f"the tool said {error}", 0.0, True, False, {"success": False})


class HidesSandboxes(EchoEnv):
    """Takes a sandbox's failure for a wrong answer."""

    def step(self, action):
        try:
            right = default_sandbox().run(f"print({action.strip() or 0})").stdout.strip() == str(self.number)
        except SandboxFailed:
            right = False
        return super().step(action if right else "wrong")


class LeavesFiles(EchoEnv):
    """Opens a file in each episode and closes none."""

    opened: ClassVar[list[int]] = []

    def reset(self, seed=None):
        self.opened.append(os.open(os.devnull, os.O_RDONLY))
        return super().reset(seed)


class LeavesFilesOfSteps(EchoEnv):
    """Opens a file in each step and closes none."""

    def step(self, action):
        LeavesFiles.opened.append(os.open(os.devnull, os.O_RDONLY))
        return super().step(action)


class LeavesFilesAtTheEnd(EchoEnv):
    """Opens a file in its last step and closes none."""

    def step(self, action):
        step = super().step(action)
        if step.done:
            LeavesFiles.opened.append(os.open(os.devnull, os.O_RDONLY))
        return step


def tools(wrapper=ToolEnvWrapper):
    return wrapper(EchoEnv(), [FunctionTool(double)])


def found_by(target, **options):
    return {
        finding.rule for finding in check_env(target, rules=FAULT_RULES, seeds=(0, 1), **options).findings
    }


@pytest.mark.parametrize(
    ("target", "rules"),
    [
        (Remembers, {"no-false-zero", "broken-off", "dying-workers"}),
        (SeatsRemember, {"no-false-zero", "broken-off", "dying-workers"}),
        (LocksItself, {"broken-off"}),
        (HidesErrors, {"broken-off"}),
        (partial(tools, HidesTools), {"broken-tools"}),
    ],
    ids=["Remembers", "SeatsRemember", "LocksItself", "HidesErrors", "HidesTools"],
)
@pytest.mark.system
def test_what_breaks_a_rule_is_caught(target, rules):
    assert found_by(target) == rules


def test_a_sandbox_whose_failure_is_a_wrong_answer_is_caught(isolates):
    report = check_env(HidesSandboxes, rules=["broken-sandbox"], seeds=(0,))
    assert [finding.rule for finding in report.findings] == ["broken-sandbox"]
    assert "fail of the sandbox" in report.findings[0].seen


def test_a_hang_that_is_cut_off_too_late_is_told(monkeypatch):
    monkeypatch.setattr(fault_rules, "SLACK", 0)
    report = check_env(EchoEnv, rules=["hangs-are-cut-off"], seeds=(0, 1))
    assert [finding.rule for finding in report.findings] == ["hangs-are-cut-off"]


@pytest.mark.system
def test_a_lock_that_outlives_its_process_is_caught(tmp_path):
    spec = EnvSpec("test:Locks-v0", "fault_worlds:LocksAFile", {"path": str(tmp_path / "lock")})
    report = check_env(spec, rules=["dying-workers"], seeds=(0,))
    assert [finding.rule for finding in report.findings] == ["dying-workers"]
    assert "somebody else has the lock" in report.findings[0].seen


@pytest.mark.system
@pytest.mark.parametrize("target", [LeavesFiles, LeavesFilesOfSteps, LeavesFilesAtTheEnd])
def test_files_that_stay_open_are_caught(target):
    try:
        report = check_env(target, rules=["nothing-left-behind"], seeds=(0,))
    finally:
        while LeavesFiles.opened:
            os.close(LeavesFiles.opened.pop())
    assert [finding.rule for finding in report.findings] == ["nothing-left-behind"]
    assert "files" in report.findings[0].seen


def test_every_rule_has_an_environment_that_breaks_it():
    caught = {"no-false-zero", "broken-off", "broken-tools", "broken-sandbox", "hangs-are-cut-off"}
    assert caught | {"dying-workers", "nothing-left-behind"} == set(FAULT_RULES)


@pytest.mark.system
def test_sound_environments_pass():
    report = check_env(SOUND, faults=True, seeds=(0, 1))
    assert report.ok, str(report)
    assert {"no-false-zero", "dying-workers"} <= set(report.held)
    no_tools = {"tools-declared", "tools-reachable", "broken-tools", "broken-sandbox"}
    assert set(report.skipped) == {"hash-seed", "same-on-every-host"} | no_tools
    assert check_env(tools, rules=FAULT_RULES, seeds=(0,)).ok


@pytest.mark.system
@pytest.mark.parametrize("env_id", ["multi:KuhnPoker-v0", "multi:MatrixGame-v0"])
def test_the_rules_hold_for_games_of_several_seats(env_id):
    report = check_env(env_id, rules=FAULT_RULES, seeds=(0, 1))
    assert report.ok, str(report)
    assert set(report.skipped) == {"broken-tools", "broken-sandbox"}


def test_faults_are_left_out_unless_they_are_asked_for():
    report = check_env(EchoEnv, seeds=(0,))
    assert not {*report.held, *report.skipped} & set(FAULT_RULES)
    with pytest.raises(BadArgument, match="broken-off"):
        check_env(EchoEnv, rules=["broken-of"])


@pytest.mark.system
def test_the_command_line_runs_them(capsys):
    assert main(["check", "game:GuessTheNumber-v0-easy", "--faults", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert "27 rules hold, 0 broken" in said
    assert "skipped broken-sandbox: it runs nothing in the shared sandbox" in said
