"""However a client ends, and whenever: no process, folder or mount of its sandbox is left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gem.sandbox.selftest import self_test

ROOT = str(Path(__file__).resolve().parents[2])

CLIENT = """
import os, sys, warnings
warnings.simplefilter("ignore")
from gem.sandbox.backends import make
from gem.sandbox.base import Case
print("begun", flush=True)
sandbox = make({backend!r}, begin=("bare", "science"))
end = {end!r}
while True:
    print(sandbox.run("open('left', 'w').write('x'); print(1)").stdout, flush=True)
    session = sandbox.session()
    session.execute("open('left', 'w').write('x')")
    print(len(sandbox.judge("open('left', 'w').write('x')", [Case(stdin=b"")] * 3)), flush=True)
    if end == "abort":
        os.abort()
    if end == "exec":
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(0.5)"])
    if end == "fork" and os.fork() == 0:
        sandbox.run("print(2)")
        os.kill(os.getpid(), 9)
    if end in ("fork", "exit"):
        os._exit(0)
"""

# A process of its own becomes the parent of all that lose theirs, and so sees whatever outlives a client.
KEEPER = """
import ctypes, json, os, random, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
client, backend, ends, seed = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
rng, left = random.Random(seed), []

def below():
    found, parents = [], {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{name}/stat").read().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and pid != above:
            found.append(pid)
    return found

def mounts():
    return len(open("/proc/self/mountinfo").readlines())

before = mounts()
for end in ends:
    code = client.format(backend=backend, end=end)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([sys.executable, "-c", code], **pipes)
    process.stdout.readline()
    if end.startswith("SIG"):
        time.sleep(rng.random() * 1.5)
        process.send_signal(getattr(signal, end))
    process.stdout.close()
    process.wait()
    deadline = time.monotonic() + 30
    while below():
        if time.monotonic() > deadline:
            left.append([end, [open(f"/proc/{pid}/cmdline").read()[-200:] for pid in below()]])
            break
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.01)
folder = os.environ["TMPDIR"]
found = os.listdir(folder)
from gem.sandbox.backends import make
make(backend, begin=("bare",)).close()
found = {"processes": left, "mounts": mounts() - before, "folders": found, "later": os.listdir(folder)}
print(json.dumps(found))
"""


def ended(backend, ends, tmp_path, seed):
    if not self_test(backend).passed:
        pytest.skip(f"not to be had here: {self_test(backend).why_not}")
    folder = tmp_path / "temporary"
    folder.mkdir()
    folder.chmod(0o755)
    import os

    done = subprocess.run(
        [sys.executable, "-c", KEEPER, CLIENT, backend, json.dumps(ends), str(seed)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": ROOT},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


NOTHING = {"processes": [], "mounts": 0, "folders": [], "later": []}


@pytest.mark.system
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_a_client_that_ends_suddenly_leaves_nothing(backend, tmp_path):
    assert ended(backend, ["SIGKILL", "abort", "exec", "fork"], tmp_path, 1) == NOTHING


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["userns", "bwrap-slots", "landlock"])
def test_twenty_clients_that_are_killed_at_any_moment_leave_nothing(backend, tmp_path):
    ends = ["SIGKILL"] * 20 + ["SIGTERM"] * 3 + ["SIGINT"] * 3 + ["SIGSEGV", "SIGHUP", "exit"]
    assert ended(backend, ends, tmp_path, 2) == NOTHING


def test_folders_that_a_killed_client_left_go_with_the_next_start(tmp_path, monkeypatch):
    import tempfile

    from gem.sandbox.scratch import Scratch

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os\nfrom gem.sandbox.scratch import Scratch\n"
        "open(Scratch().path + '/file', 'w')\nos.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"TMPDIR": str(tmp_path), "PYTHONPATH": ROOT})
    assert len(list(tmp_path.iterdir())) == 1
    kept, other = Scratch(), Scratch()
    assert sorted(map(str, tmp_path.iterdir())) == sorted([kept.path, other.path])
    other.close()
    kept.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.system
def test_folders_deeper_than_python_recurses_are_removed(tmp_path, monkeypatch):
    import os
    import tempfile

    from gem.sandbox.scratch import PREFIX, Scratch

    def fill(folder):
        inner = os.open(folder, os.O_RDONLY)
        for _ in range(1500):
            outer = inner
            os.mkdir("d", dir_fd=outer)
            inner = os.open("d", os.O_RDONLY, dir_fd=outer)
            os.close(outer)
        os.close(inner)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale = tmp_path / f"{PREFIX}stale"
    stale.mkdir()
    fill(stale)
    scratch = Scratch()
    assert not stale.exists()
    fill(scratch.path)
    scratch.close()
    assert not list(tmp_path.iterdir())
