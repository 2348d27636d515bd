"""The outer box: what of this machine the fork server and its children may see, as a bwrap command.

Nothing of the host is bound but /usr, the interpreter, and the packages that it would import; no project
folder, no home, no /etc but a few lines of our own. bwrap is started with the box's environment, never with
ours: its own process stays in the box, and /proc would show the environment that it was started with.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
import py_compile
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gem.sandbox import bwrap
from gem.sandbox.lockdown import HOME, SHARED

CODE = "/opt/gem-sandbox"
FILES = ("zygote.py", "runner.py", "lockdown.py", "landlock.py")
_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/sandbox:/bin/bash\n",
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """This interpreter and what it imports: the executables, site folders, and folders to bind."""

    base_executable: str
    executable: str
    prefix: str
    sites: tuple[str, ...]
    binds: tuple[str, ...]

    @classmethod
    def this(cls) -> Interpreter:
        """Describe the running one."""
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable) or sys.executable)
        sites = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
        sites += [p for p in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) if p not in sites]
        sites = [p for p in dict.fromkeys(sites) if os.path.isdir(p)]
        wanted = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *sites]
        for prefix in dict.fromkeys(
            (sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.dirname(base)))
        ):
            wanted += [os.path.join(prefix, part) for part in ("bin", "lib", "lib64", "share")]
        if sys.prefix != sys.base_prefix:
            wanted += [os.path.join(sys.prefix, part) for part in ("bin", "pyvenv.cfg")]
        return cls(base, sys.executable, sys.prefix, tuple(sites), tuple(_outermost(wanted)))


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return those that exist and lie neither in /usr nor in one another."""
    kept: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths}):
        if os.path.exists(path) and not any((path + "/").startswith(k + "/") for k in ("/usr", *kept)):
            kept.append(path)
    return kept


def environment(python: Interpreter) -> dict[str, str]:
    """Return the whole environment of the box."""
    folders = [os.path.dirname(python.executable), "/usr/local/bin", "/usr/bin", "/bin"]
    libraries = [
        path
        for path in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if any((path + "/").startswith(bind + "/") for bind in python.binds)
    ]
    return {
        "PATH": ":".join(dict.fromkeys(folders)),
        "HOME": HOME,
        "USER": "user",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",  # the same program gives the same output
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "agg",
        "MALLOC_ARENA_MAX": "1",  # else every thread takes 64 MiB of the address space that a budget gives
        **dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
        ),
        **({"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else {}),
    }


def start_line(python: Interpreter, code: str, control: int) -> list[str]:
    """Return the command that starts the fork server whose package lies below the folder `code`."""
    # The two packages are stood in for: all of gem is neither needed nor, in the box, there.
    program = (
        "import sys, types\n"
        f"for name in ('gem', 'gem.sandbox'):\n"
        f"    sys.modules[name] = types.ModuleType(name)\n"
        f"    sys.modules[name].__path__ = [{code!r} + '/' + name.replace('.', '/')]\n"
        f"from gem.sandbox import zygote\n"
        f"zygote.main({control})\n"
    )
    return [python.base_executable, "-s", "-S", "-P", "-c", program]


def is_root() -> bool:
    """Say whether this is the machine's root, who has to step down first, and not a namespace's."""
    if os.geteuid() != 0:
        return False
    try:
        spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    last = STEP_DOWN_TO + USERS - 1
    return any(int(first) <= STEP_DOWN_TO <= last < int(first) + int(count) for first, _, count in spans)


STEP_DOWN_TO, USERS = 60706, 478
"""The users that root becomes: no other process is to be able to signal or trace ours.

systemd leaves these numbers unused (those from 61184 on are its services'), and no package of Debian has one.
"""

_taken = itertools.count()


def next_user() -> int:
    """Return a user for a box of root's, seldom another box's: processes are counted by user."""
    return STEP_DOWN_TO + (16 * os.getpid() + next(_taken)) % USERS


def bwrap_command(
    python: Interpreter,
    control: int,
    about: int,
    data: dict[str, int],
    *,
    root: bool,
    namespaces: bool,
    disk_mb: int = 0,
) -> list[str]:
    """Return the bwrap command for a box.

    Args:
        python: the interpreter that it holds.
        control: the inherited descriptor of the fork server's control socket.
        about: the inherited descriptor that bwrap writes the process id of the box's first process to.
        data: open descriptors of the files of `etc_files`, by name.
        root: started as the machine's root, and no user namespace is needed.
        namespaces: the fork server makes namespaces per child and needs the power to; without (the
            bwrap-slots rung) the home and /tmp are tmpfs of the box, of `disk_mb` each.
        disk_mb: as said.
    """
    command = [bwrap.find(), "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--hostname", "sandbox", "--new-session"]
    command += ["--info-fd", str(about)]
    command += [
        "--as-pid-1"
    ]  # as it ends, so does all that it started; a process of bwrap's would wait for that
    if not root:
        command += ["--unshare-user"]
        command += ["--uid", "0", "--gid", "0"] if namespaces else ["--uid", "1000", "--gid", "1000"]
    if root or namespaces:
        command += ["--cap-add", "ALL"]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in _LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            command += ["--ro-bind", path, path]
    command += ["--dir", "/etc"]  # else bwrap makes it readable for the user alone who starts it
    for path in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", path, path]
    for name, fd in data.items():
        command += ["--perms", "0644", "--ro-bind-data", str(fd), f"/etc/{name}"]
    command += ["--dev", "/dev"]
    # bwrap run by root covers parts of /proc, and then no new one may be mounted: the fork server mounts it.
    command += ["--dir", "/proc"] if root and namespaces else ["--proc", "/proc"]
    for folder in (HOME, "/tmp", "/run"):
        command += ["--dir", folder]
    if not namespaces:
        for folder in (HOME, "/tmp", SHARED):
            command += ["--perms", "1777", "--size", str(disk_mb << 20), "--tmpfs", folder]
    for path in sorted(
        {str(parent) for bind in python.binds for parent in Path(bind).parents} - {"/", "/tmp"}
    ):
        command += ["--dir", path]  # else bwrap makes them readable for the user alone who starts it
    for path in python.binds:
        command += ["--ro-bind", path, path]
    for site in python.sites:  # what grades a program is not for it to read
        if os.path.isdir(os.path.join(site, "gem")):
            command += ["--tmpfs", os.path.join(site, "gem"), "--remount-ro", os.path.join(site, "gem")]
    command += ["--dir", "/opt", "--dir", CODE, "--dir", f"{CODE}/gem", "--dir", f"{CODE}/gem/sandbox"]
    for path, name in _code_files():
        command += ["--ro-bind", path, f"{CODE}/gem/sandbox/{name}"]
    command += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/", "--"]
    return command + start_line(python, CODE, control)


@functools.cache
def _code_files() -> list[tuple[str, str]]:
    """Return the files of the box's half, and where they lie below the package there.

    They are compiled here, if that can be kept: compiling is a third of a bare fork server's start.
    """
    here, found = os.path.dirname(os.path.abspath(__file__)), []
    for name in FILES:
        path = os.path.join(here, name)
        found.append((path, name))
        compiled = importlib.util.cache_from_source(path)
        try:
            if not os.path.exists(compiled) or os.path.getmtime(compiled) < os.path.getmtime(path):
                py_compile.compile(path, compiled, doraise=True)
        except (OSError, py_compile.PyCompileError):
            continue
        found.append((compiled, f"__pycache__/{os.path.basename(compiled)}"))
    return found


def etc_files() -> dict[str, int]:
    """Return descriptors of the few files of /etc; whoever asks closes them."""
    opened = {}
    for name, text in _ETC.items():
        fd = os.memfd_create(f"gem-{name}", os.MFD_CLOEXEC)
        os.write(fd, text.encode())
        os.lseek(fd, 0, os.SEEK_SET)
        opened[name] = fd
    return opened


def covered(python: Interpreter) -> list[str]:
    """Return the entries of a child's own folders that hold the interpreter: its mounts would hide them."""
    found = {
        os.path.join(folder, path[len(folder) + 1 :].partition("/")[0])
        for path in python.binds
        for folder in (HOME, "/tmp", SHARED)
        if path.startswith(f"{folder}/")
    }
    return sorted(found)
