"""Hostile programs on the real backends: none may do harm. By default a few quick ones on the best.

The slow tests run all of them: fresh and as cells, as this user and, started by root, as a plain one, on
every backend that this machine has. Some run on no sandbox at all, to see that harm would be seen.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gem.sandbox.choice import open_sandbox
from gem.sandbox.selftest import self_test

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLAIN = 65534

if not sys.platform.startswith("linux"):
    pytest.skip("these programs are for Linux", allow_module_level=True)
sys.path.insert(0, str(HERE))
try:
    from arena import Arena
    from second_wave import PROGRAMS
finally:
    sys.path.remove(str(HERE))

BY_NAME = {f"{program.group}: {program.name}": program for program in PROGRAMS}
QUICK = [name for name, program in BY_NAME.items() if not program.heavy and program.runs]


@pytest.fixture(scope="module")
def backend():
    """The best backend here; where that is not userns, say what is not checked."""
    for name in ("userns", "landlock"):
        report = self_test(name)
        if report.passed:
            return name
        print(f"not checked on {name}: {report.why_not}", file=sys.stderr)
    pytest.skip(f"no backend of this machine isolates: {report.why_not}")


@pytest.fixture(scope="module")
def sandbox(backend):
    opened = open_sandbox(backend, begin=("bare",))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def arena():
    with Arena() as arena:
        yield arena


@pytest.mark.filterwarnings("ignore:programs run on the backend")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if i % 6 else []) for i, name in enumerate(QUICK)]
)
def test_no_harm(sandbox, arena, name):
    program = BY_NAME[name]
    harm = arena.attack(sandbox, program)
    if harm and (known := program.gap.get(sandbox.backend)):
        pytest.skip(f"{sandbox.backend} does not claim to stop it: {known}")
    assert harm == []


def let_loose(backend, how, *args, user=None):
    """Run the suite as a program of its own and return its report."""
    python, wrapper = sys.executable, []
    if user is not None:
        wrapper = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
        python = next((p for p in (sys.executable, "/usr/bin/python3") if usable(p, wrapper)), None)
        if python is None:
            pytest.skip("no Python 3.11 or newer that a plain user may run, or gem is out of its sight")
    done = subprocess.run(
        [*wrapper, python, str(HERE), "--backend", backend, "--how", how, *args],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def usable(python, wrapper):
    code = "import sys, gem.sandbox.choice; sys.exit(sys.version_info < (3, 11))"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    tried = subprocess.run([*wrapper, python, "-c", code], env=env, cwd="/", capture_output=True)
    return tried.returncode == 0


def skip_without(backend):
    if not self_test(backend).passed:
        pytest.skip(f"not checked on {backend}: {self_test(backend).why_not}")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "session"])
@pytest.mark.parametrize("backend_", ["userns", "landlock"])
def test_everything_as_this_user(backend_, how):
    skip_without(backend_)
    report = let_loose(backend_, how)
    assert report["harm"] == {}
    assert report["tried"] > 350


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend_", "how"), [("userns", "judge"), ("userns", "shell"), ("landlock", "judge")]
)
def test_the_quick_ones_as_submissions_and_commands(backend_, how):
    skip_without(backend_)
    report = let_loose(backend_, how, "--light")
    assert report["harm"] == {}
    assert report["tried"] > 300


@pytest.mark.slow
@pytest.mark.parametrize("how", ["run", "session"])
@pytest.mark.parametrize("backend_", ["userns", "landlock"])
def test_everything_as_a_plain_user(backend_, how):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, who can become somebody else, and setpriv")
    skip_without(backend_)
    report = let_loose(backend_, how, user=PLAIN)
    assert report["harm"] == {}
    assert report["tried"] > 350


SEEN_WITHOUT_A_SANDBOX = {
    "files and secrets: read a secret by its path": "the secret in its file",
    "files and secrets: environment and arguments of every process": "the secret in its",
    "files and secrets: see the host's processes": "a process of the host is in /proc",
    "host writes: overwrite": "changed",
    "host writes: create": "changed",
    "host writes: change its mode": "changed",
    "host writes: change its times": "changed",
    "host writes: write into a pipe of the host": "wrote into the host's pipe",
    "host writes: delete the tree": "changed",
    "network and communication: TCP to the loopback": "reached TCP",
    "network and communication: UDP to the loopback": "reached UDP",
    "network and communication: a Unix socket by its path": "reached UNIX",
    "network and communication: a Unix datagram by its path": "reached UNIX_DATAGRAM",
    "network and communication: an abstract Unix socket": "reached ABSTRACT",
    "network and communication: System V memory": "left a System V",
    "network and communication: a message queue": "left a message queue",
    "processor, memory, disk, output: memory in memfds": "memory that no limit counts",
    "processor, memory, disk, output: inodes": "3000 files",
    "signals and daemons: a daemon": "survive",
    "signals and daemons: a daemon, twice forked": "survive",
    "kernel and privilege: what a child may do": "",
    "protocol and poison: files for the next call": "of another call",
}


@pytest.mark.slow
def test_harm_is_seen_where_nothing_isolates():
    """Without a sandbox each of these does its harm, and each is told: the suite has eyes."""
    code = f"""
import json, sys
sys.path.insert(0, {str(HERE)!r})
from arena import Arena
from second_wave import PROGRAMS
from gem.sandbox.piped import UnsafeSandbox
seen = {{}}
with Arena() as arena:
    for program in PROGRAMS:
        name = f"{{program.group}}: {{program.name}}"
        if name in {list(SEEN_WITHOUT_A_SANDBOX)!r}:
            seen[name] = arena.attack(UnsafeSandbox(), program)
    arena.bystander.kill()
    arena.bystander.wait()
    seen["bystander"] = arena._touched("gz" + "0" * 10)
print(json.dumps(seen))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    expected = SEEN_WITHOUT_A_SANDBOX | {"bystander": "changed bystander"}
    missed = {
        name: seen[name]
        for name, word in expected.items()
        if not (seen[name] and word in " ".join(seen[name]))
    }
    assert missed == {}, missed
