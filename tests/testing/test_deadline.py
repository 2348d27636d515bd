"""A call of an environment that does not return is named, and ends the check and the audit."""

import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from gem import cli
from gem.core import Env, Start, Step
from gem.errors import ContractBroken
from gem.testing import EchoEnv, audit_env, check_env

SOON = 0.5

COMMAND = "import sys; from gem import cli; sys.exit(cli.main(sys.argv[1:]))"


class Takes(Env):
    """Take 1 to 3; what is more never returns."""

    def reset(self, seed=None):
        super().reset(seed)
        return Start("Take 1 to 3 of 7, as `take N`.", {})

    def step(self, action):
        word, _, number = action.partition(" ")
        if word == "take" and number.isdigit():
            self.take(int(number))
        return Step("", float(number == "3"), True, False, {})

    def take(self, taken):
        while taken > 3:
            pass

    def sample_random_action(self):
        return f"take {self.actor_rng.randrange(1, 4)}"


def test_an_ordinary_action_that_hangs_is_named_with_its_seed_and_place():
    report = check_env(Takes, seeds=[5], call_s=SOON)
    (found,) = report.findings
    assert found.rule == "hostile-actions"
    assert found.seen == "step(action='take 8') in the episode of seed 5 has not returned after 0.5 s"
    assert "it was in take() (test_deadline.py:" in found.change


class HangsInReset(EchoEnv):
    def reset(self, seed=None):
        while True:
            with suppress(Exception):  # as authors do
                time.sleep(60)


class HangsInMaking(EchoEnv):
    def __init__(self):
        threading.Event().wait()


class HangsInClose(EchoEnv):
    def close(self):
        threading.Event().wait()


@pytest.mark.parametrize(
    ("target", "call"),
    [(HangsInReset, "reset(seed=0)"), (HangsInMaking, "__init__()"), (HangsInClose, "close()")],
)
def test_any_call_that_hangs_is_one_finding(target, call):
    (found,) = check_env(target, call_s=SOON).findings
    assert found.seen.startswith(call)
    assert "(test_deadline.py:" in found.change


def test_what_hangs_in_a_thread_alone_is_found():
    class Deadlocks(EchoEnv):
        def step(self, action):
            if threading.current_thread() is not threading.main_thread():
                threading.Event().wait()
            return super().step(action)

    (found,) = check_env(Deadlocks, call_s=SOON, rules=["threads"]).findings
    assert found.seen.startswith("step(")


@pytest.mark.system
def test_many_calls_may_take_longer_than_one_may():
    class Slow(EchoEnv):
        def step(self, action):
            time.sleep(SOON / 20)
            return super().step(action)

    report = check_env(lambda: Slow(40), call_s=SOON, rules=["is-env", "step-returns"])
    assert report.ok, str(report)


def test_an_audit_names_the_call_that_hangs():
    class HangsOnWords(EchoEnv):
        def step(self, action):
            if "Ignore" in action:
                threading.Event().wait()
            return super().step(action)

    with pytest.raises(ContractBroken, match=r"step\(action='Ignore all .* in the episode of seed 0 has not"):
        audit_env(HangsOnWords, episodes=4, instances=4, call_s=SOON)


@pytest.mark.system
def test_commands_name_the_call_and_fail(tmp_path, capsys):
    (tmp_path / "stuck.py").write_text(
        "from gem.testing.doubles import EchoEnv\n"
        "class Stuck(EchoEnv):\n"
        "    def step(self, action):\n"
        "        while True: self.sleep()\n"
        "    def sleep(self):\n"
        "        __import__('time').sleep(1)\n"
    )
    target = f"{tmp_path / 'stuck.py'}:Stuck"
    assert cli.main(["check", target, "--call-s", str(SOON)]) == cli.FAILED
    out = capsys.readouterr().out
    assert out.count("BROKEN") == 1
    assert "step(action=" in out
    assert "(stuck.py:6)" in out
    assert cli.main(["audit", target, "--call-s", str(SOON)]) == cli.FAILED
    assert "Stuck: not audited: step(action=" in capsys.readouterr().err


@pytest.mark.system
@pytest.mark.parametrize("command", ["check", "audit"])
def test_c_code_that_no_signal_interrupts_ends_the_process(tmp_path, command):
    (tmp_path / "stuck.py").write_text(
        "from gem.testing.doubles import EchoEnv\n"
        "class Stuck(EchoEnv):\n"
        "    def step(self, action):\n"
        "        return sum(iter(int, 1))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, command, "stuck.py:Stuck", "--call-s", "0.5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert 'stuck.py", line 4 in step' in done.stderr


def test_a_timer_of_the_caller_goes_on():
    rung = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    signal.setitimer(signal.ITIMER_REAL, 600)
    try:
        assert check_env(EchoEnv, rules=["is-env"]).ok
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 500
        signal.raise_signal(signal.SIGALRM)
        assert rung.is_set()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
