"""Landlock on the real kernel, in processes of their own: what it takes away, it takes for good."""

import os
import socket
import subprocess
import sys

import pytest

from gem.sandbox import landlock

needs_landlock = pytest.mark.skipif(
    not sys.platform.startswith("linux") or landlock.abi() == 0, reason="the kernel offers no Landlock"
)


def confined(probe, *args, read=("/usr", "/lib", "/lib64", "/etc"), write=()):
    """Run the probe under the rules and return what it printed; the module is loaded by path."""
    code = f"""
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("landlock", {landlock.__file__!r})
landlock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(landlock)
import signal, socket
def errno(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
landlock.enforce(landlock.ruleset({list(read)!r}, {list(write)!r}))
{probe}
"""
    done = subprocess.run([sys.executable, "-I", "-c", code, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@needs_landlock
def test_files(tmp_path):
    open_folder, closed_folder = tmp_path / "open", tmp_path / "closed"
    for folder in (open_folder, closed_folder):
        folder.mkdir()
        (folder / "file").write_text("secret")
    probe = """
o, c = sys.argv[1:]
print(errno(lambda: open(o + "/file", "a").close()), errno(lambda: open(c + "/file")))
print(errno(lambda: open(c + "/new", "w")), errno(lambda: os.unlink(c + "/file")))
print(errno(lambda: os.listdir(c)))
print(errno(lambda: os.mkdir(c + "/new")), errno(lambda: os.rename(o + "/file", c + "/moved")))
print(errno(lambda: os.symlink(c, o + "/link")), errno(lambda: open(o + "/link/file")))
print(errno(lambda: open("/usr/new", "w")), errno(lambda: os.mkfifo(o + "/fifo")))
"""
    seen = confined(probe, str(open_folder), str(closed_folder), write=[str(open_folder)])
    assert seen[:6] == ["0", "13", "13", "13", "13", "13"]
    assert seen[6] in ("13", "18")  # EXDEV where the rules differ
    assert seen[7:9] == ["0", "13"]
    assert seen[9] in ("13", "30")  # EROFS in a container
    assert seen[10] == "0"
    assert (closed_folder / "file").read_text() == "secret"
    assert [path.name for path in closed_folder.iterdir()] == ["file"]


@needs_landlock
def test_reading_is_not_writing(tmp_path):
    (tmp_path / "file").write_text("kept")
    file = str(tmp_path / "file")
    probe = "print(errno(lambda: open(sys.argv[1])), errno(lambda: open(sys.argv[1], 'w')))"
    assert confined(probe, file, read=["/usr", "/lib", "/lib64", file, "/no/such/path"]) == ["0", "13"]
    assert (tmp_path / "file").read_text() == "kept"


@needs_landlock
@pytest.mark.skipif(landlock.abi() < 4, reason="this kernel's Landlock does not know TCP")
def test_tcp():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        probe = """
print(errno(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])))))
print(errno(lambda: socket.create_server(("127.0.0.1", 0))))
"""
        assert confined(probe, port) == ["13", "13"]


@needs_landlock
@pytest.mark.skipif(landlock.abi() < 6, reason="this kernel's Landlock knows no scopes")
def test_signals_and_abstract_sockets():
    name = f"\0gem-landlock-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        probe = """
print(errno(lambda: os.kill(int(sys.argv[1]), 0)), errno(lambda: os.kill(os.getpid(), 0)))
print(errno(lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[2])))
"""
        assert confined(probe, str(os.getpid()), name[1:]) == ["1", "0", "1"]


@needs_landlock
def test_one_ruleset_serves_many_children(tmp_path):
    probe = f"""
fd = landlock.ruleset(["/usr"], [])
for _ in range(2):
    if (pid := os.fork()) == 0:
        landlock.enforce(fd)
        os._exit(errno(lambda: open({str(tmp_path / "file")!r})))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(errno(lambda: open({str(tmp_path / "file")!r}).close()))
"""
    (tmp_path / "file").touch()
    assert confined(probe, read=["/"]) == ["13", "13", "0"]


@needs_landlock
def test_a_kernel_that_refuses_raises():
    assert confined("print(errno(lambda: landlock.enforce(0)))") == ["77"]  # EBADFD: no ruleset
