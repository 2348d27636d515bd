"""Which backend is taken, and what is said and refused on the way."""

import errno
import os
import subprocess
import sys
import warnings

import pytest

from gem.cli import main
from gem.errors import BadArgument
from gem.sandbox import bwrap, choice, selftest
from gem.sandbox.backends import BACKENDS, PROPERTIES
from gem.sandbox.base import SandboxFailed
from gem.sandbox.choice import open_sandbox
from gem.sandbox.command import describe
from gem.sandbox.selftest import Report, self_test

WHOLE = dict.fromkeys(PROPERTIES, True)


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch):
    for name in ("GEM_SANDBOX", "GEM_SANDBOX_ALLOW_UNSAFE", "GEM_SANDBOX_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def found(monkeypatch):
    """Results of self-tests, as if this were another machine."""
    results = {name: Report(name, failure="not on this machine") for name in BACKENDS}
    monkeypatch.setattr(choice, "self_test", lambda name, options=None: results[name])
    monkeypatch.setattr("gem.sandbox.command.self_test", lambda name, options=None: results[name])
    return results


def test_a_machine_with_no_backend_refuses_and_says_why(found):
    with pytest.raises(SandboxFailed, match="apt install bubblewrap") as refusal:
        open_sandbox()
    for name in ("userns", "bwrap-slots", "landlock"):
        assert f"{name}: not on this machine" in str(refusal.value)


def test_none_must_be_asked_for(found):
    with pytest.raises(SandboxFailed, match="allow_unsafe=True"):
        open_sandbox("none")
    choice._warned.discard("none")
    with pytest.warns(UserWarning, match="'none'"):
        sandbox = open_sandbox(allow_unsafe=True)
    assert sandbox.backend == "none"
    assert sandbox.run("print(6 * 7)").info["backend"] == "none"
    assert sandbox.report()["higher"]["userns"] == "not on this machine"
    assert not any(sandbox.report()["properties"].values())
    sandbox.close()


def test_the_environment_may_allow_it(found, monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX_ALLOW_UNSAFE", "1")
    choice._warned.add("none")
    open_sandbox().close()


def test_a_named_backend_never_falls_back(found):
    for name in ("userns", "bwrap-slots", "landlock", "container", "remote"):
        with pytest.raises(SandboxFailed, match=f"{name}.*not on this machine"):
            open_sandbox(name, allow_unsafe=True)


def test_the_environment_names_a_backend(found, monkeypatch):
    monkeypatch.setenv("GEM_SANDBOX", "container")
    with pytest.raises(SandboxFailed, match="'container' does not work here"):
        open_sandbox()


def test_a_misspelt_backend():
    with pytest.raises(BadArgument, match="Did you mean 'userns'"):
        open_sandbox("usrns")


def test_a_backend_must_hold_what_it_claims():
    assert Report("userns", WHOLE).passed
    for name in PROPERTIES:
        assert not Report("userns", WHOLE | {name: False}).passed
        assert not Report("userns", WHOLE | {name: None}).passed
    assert Report("landlock", WHOLE | {"disk": False}).passed
    assert not Report("landlock", WHOLE | {"network": False}).passed
    assert "loopback" in Report("landlock", WHOLE | {"network": False}).why_not


@pytest.mark.system
def test_partial_isolation_is_told_once(found, monkeypatch):
    if not self_test_of_this_machine("landlock").passed:
        pytest.skip("this machine has no Landlock")
    found["landlock"] = Report("landlock", WHOLE | {"disk": False})
    monkeypatch.setattr(choice, "_warned", set())
    with pytest.warns(UserWarning, match=r"partial isolation.*files are limited in total"):
        first = open_sandbox(begin=("bare",))
    with warnings.catch_warnings(action="error"):
        second = open_sandbox(begin=("bare",))
    assert first.run("print(1)").info == {
        "backend": "landlock",
        "filter": "allow",
        "label": "partial",
    }
    assert second.report()["higher"] == dict.fromkeys(("userns", "bwrap-slots"), "not on this machine")
    first.close()
    second.close()


def self_test_of_this_machine(name):
    return selftest._tested.setdefault(name, selftest._try(name, {}))


def test_the_best_backend_of_this_machine():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "_warned", set(BACKENDS))
        try:
            sandbox = open_sandbox(begin=("bare",))
        except SandboxFailed as error:
            pytest.skip(f"nothing isolates here: {error}")
    report = sandbox.report()
    assert report["label"] in ("isolated", "partial")
    assert all(
        held for name, held in report["properties"].items() if name not in BACKENDS[sandbox.backend].may_lack
    )
    told = {"backend": sandbox.backend, "filter": "allow", "label": report["label"]}
    assert sandbox.run("print(6 * 7)").info == told
    sandbox.close()


def test_a_backend_is_tested_once(monkeypatch):
    tried = []
    monkeypatch.setattr(selftest, "_try", lambda name, *_: tried.append(name) or Report(name, WHOLE))
    monkeypatch.setattr(selftest, "_tested", {})
    assert self_test("userns") is self_test("userns")
    assert tried == ["userns"]


LATE = Report("userns", WHOLE | {"memory": False}, slow=frozenset({"memory", "deadline"}))


def test_what_failed_for_want_of_time_is_tried_with_more(monkeypatch):
    patience, reports = [], [LATE, Report("userns", failure="late", slow=frozenset({"start"}))]
    monkeypatch.setattr(selftest, "_tested", {})
    monkeypatch.setattr(
        selftest, "_try", lambda name, _, p: patience.append(p) or (reports.pop(0) if reports else whole)
    )
    whole = Report("userns", WHOLE)
    assert self_test("userns") is whole
    assert patience == sorted(patience) == list(selftest.PATIENCE)


def test_a_refusal_for_want_of_time_is_not_remembered(monkeypatch):
    monkeypatch.setattr(selftest, "_tested", {})
    monkeypatch.setattr(selftest, "_try", lambda *_: LATE)
    assert self_test("userns") is LATE
    assert selftest._tested == {}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM])
def test_a_start_that_found_no_space_or_process_is_no_answer(monkeypatch, code):
    def make(name, **options):
        raise SandboxFailed(f"a fork server did not start: {OSError(code, os.strerror(code))}")

    monkeypatch.setattr(selftest, "_tested", {})
    monkeypatch.setattr(selftest, "make", make)
    assert self_test("userns").doubtful
    assert selftest._tested == {}


FULL_DISK = """
import os, tempfile
from gem.sandbox.selftest import self_test

path = os.path.join(tempfile.gettempdir(), "filler")
assert path.startswith(os.environ["TMPDIR"])
with open(path, "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
refused = self_test("landlock")
print(refused.passed, refused.doubtful, "No space left" in refused.why_not)
os.remove(path)
print(self_test("landlock").passed)
"""


@pytest.mark.system
def test_a_full_disk_is_told_and_no_answer_once_there_is_space_again(tmp_path):
    """In namespaces, with a small disk for temporary files."""
    if not (self_test_of_this_machine("userns").passed and self_test_of_this_machine("landlock").passed):
        pytest.skip("needs namespaces for a small disk of its own, and Landlock in them")
    small = [bwrap.find(), "--dev-bind", "/", "/", "--size", str(16 << 20), "--tmpfs", str(tmp_path)]
    done = subprocess.run(
        [*small, sys.executable, "-c", FULL_DISK],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False True True", "True"]


def test_a_property_refused_is_an_answer_at_once(monkeypatch):
    refused = Report("userns", WHOLE | {"memory": False, "network": False}, slow=frozenset({"memory"}))
    tried = []
    monkeypatch.setattr(selftest, "_tested", {})
    monkeypatch.setattr(selftest, "_try", lambda *_: tried.append(1) or refused)
    assert self_test("userns") is refused
    assert (tried, selftest._tested) == ([1], {"userns": refused})


@pytest.mark.slow
def test_the_self_test_sees_what_is_not_held():
    report = selftest._try("none", {})
    held = {name for name, held in report.properties.items() if held}
    assert held <= {"deadline", "filter", "alone", "survivors"}
    assert report.properties["deadline"]


def test_without_bubblewrap(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(bwrap, "find_packaged", lambda: None)
    report = selftest._try("bwrap-slots", {})
    assert not report.passed
    assert "apt install bubblewrap" in report.why_not


def test_describing(found):
    lines, held = describe()
    assert not held
    assert "install bubblewrap" in lines[-1]
    found["landlock"] = Report("landlock", WHOLE | {"disk": False})
    lines, held = describe()
    assert held
    assert lines[0].startswith("landlock:")
    assert [line for line in lines if line.endswith("NO")] == [
        f"  {PROPERTIES['disk']:<{max(map(len, PROPERTIES.values()))}}  NO"
    ]
    assert "not userns: not on this machine" in lines
    assert describe("none")[1] is False
    with pytest.raises(BadArgument, match="no backend 'x'"):
        describe("x")


NO_NAMESPACES = """
import errno, os, struct, sys
from gem.sandbox import lockdown, seccomp
from gem.sandbox.choice import open_sandbox
from gem.sandbox.selftest import _try, self_test
import warnings
warnings.simplefilter("ignore")

def refusing():
    "A container's filter: no unshare, no mount, no clone into a new user namespace."
    machine = seccomp.MACHINES[os.uname().machine]
    number = lambda call: seccomp.NUMBERS[call][machine.column]
    load, equal, any_of, end = 0x20, 0x15, 0x45, 0x06
    code = [(load, 0, 0, 0)]
    for call in ("unshare", "mount", "setns"):
        code += [(equal, 0, 1, number(call)), (end, 0, 0, 0x50000 | errno.EPERM)]
    code += [(equal, 0, 1, number("clone3")), (end, 0, 0, 0x50000 | errno.ENOSYS)]
    code += [(equal, 0, 3, number("clone")), (load, 0, 0, 16), (any_of, 0, 1, 0x7E020000)]
    code += [(end, 0, 0, 0x50000 | errno.EPERM), (end, 0, 0, 0x7FFF0000)]
    return b"".join(struct.pack("=HBBI", *step) for step in code)

lockdown._prctl(38, 1)
lockdown.Filter(refusing()).install()
report = self_test("userns")
assert not report.passed, report
assert report.failure, report
print(report.failure.replace(chr(10), " "))
sandbox = open_sandbox()
print(sandbox.backend, sandbox.run("print(6 * 7)").stdout.strip())
sandbox.close()
"""


@pytest.mark.system
def test_a_machine_that_forbids_user_namespaces():
    if not sys.platform.startswith("linux") or not self_test_of_this_machine("landlock").passed:
        pytest.skip("needs Linux with Landlock, the backend that is left then")
    done = subprocess.run(
        [sys.executable, "-c", NO_NAMESPACES],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "landlock 42"


def test_the_command(found, capsys):
    assert main(["sandbox"]) == 1
    assert "not userns: not on this machine" in capsys.readouterr().out
    found["userns"] = Report("userns", WHOLE)
    assert main(["sandbox"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("userns: ")
    assert told.count("yes") == len(PROPERTIES)
    assert main(["sandbox", "--backend", "landlock"]) == 1
    assert main(["sandbox", "--backend", "usrns"]) == 2
    assert "Did you mean 'userns'" in capsys.readouterr().err
