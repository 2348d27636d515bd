"""The files of this machine that a fork server and its children can see.

Of the host they see only /usr, the interpreter, and the packages that programs may import. They see no
project folder, no home, an /etc of a few lines made by gem, and in /usr neither sources nor other packages.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import itertools
import marshal
import os
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from gem.sandbox import packages
from gem.sandbox.lockdown import HOME, PROGRAM_HOME, SHARED

INSIDE = (
    *("landlock", "lockdown", "template", "memory", "namespaces"),
    *("files", "program", "cells", "judge", "zygote"),
)
"""The modules of this package that a fork server runs, each after those that it imports."""

_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_HIDDEN = (
    *("/usr/src", "/usr/local/src", "/usr/lib*/python3*/dist-packages", "/usr/lib*/python3*/site-packages"),
    *("/usr/local/lib*/python3*/dist-packages", "/usr/local/lib*/python3*/site-packages"),
)
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/sandbox:/bin/bash\n",
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter: its executables, prefix, package folders, and the folders to show."""

    base_executable: str
    executable: str
    prefix: str
    sites: tuple[str, ...]
    visible: tuple[str, ...]

    @classmethod
    @functools.cache
    def this(cls) -> Interpreter:
        """Describe the running interpreter."""
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable) or sys.executable)
        sites = packages.sites()
        wanted = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *sites]
        for prefix in dict.fromkeys(
            (sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.dirname(base)))
        ):
            wanted += [os.path.join(prefix, part) for part in ("bin", "lib", "lib64", "share")]
        if sys.prefix != sys.base_prefix:
            wanted += [os.path.join(sys.prefix, part) for part in ("bin", "pyvenv.cfg")]
        visible = [path for path in _outermost(map(os.path.abspath, wanted)) if not _below(path, "/usr")]
        return cls(base, sys.executable, sys.prefix, tuple(sites), tuple(visible))


@dataclass(frozen=True, slots=True)
class Image:
    """The visible files: links and folders of the host, their hidden parts, and packages placed over these.

    `kept`: entries of a child's own folders that must stay visible, such as an interpreter below /tmp.
    `homes`: further folders that a child may have for its own.
    """

    links: dict[str, str]
    folders: tuple[str, ...]
    covered: tuple[str, ...]
    packages: tuple[str, ...]
    kept: tuple[str, ...]
    homes: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the image as plain data for `marshal`."""
        return {
            "links": self.links,
            "folders": [(os.path.realpath(path), path) for path in self.folders],
            "covered": list(self.covered),
            "packages": [(os.path.realpath(path), path) for path in self.packages],
            "etc": ETC,
            "homes": list(self.homes),
        }


def image(python: Interpreter, names: tuple[str, ...], visible: tuple[str, ...] | None = None) -> Image:
    """Return the image for programs that may import the packages `names`; `visible`: of an agent program."""
    links, folders = _way(python.executable), ["/usr"]
    for path in (f"/{name}" for name in _LINKS):
        if os.path.islink(path):
            links[path] = os.readlink(path)
        elif os.path.isdir(path):
            folders.append(path)
    folders += [path for path in ("/etc/ld.so.cache", "/etc/alternatives") if os.path.exists(path)]
    folders += [*python.visible, *(path for path in _outermost(visible or ()) if path not in folders)]
    links = {path: to for path, to in links.items() if not any(_below(path, folder) for folder in folders)}
    kept = {
        os.path.join(folder, path[len(folder) + 1 :].partition("/")[0])
        for path in (*links, *folders)
        for folder in (HOME, "/tmp", SHARED)
        if path.startswith(f"{folder}/")
    }
    homes = () if visible is None else (PROGRAM_HOME,)
    hidden = list_hidden(python, folders)
    return Image(links, tuple(folders), hidden, packages.entries(names), tuple(sorted(kept)), homes)


def _way(executable: str) -> dict[str, str]:
    """Return the links that lead from a virtual environment's interpreter to the one it was made from."""
    links: dict[str, str] = {}
    while os.path.islink(executable) and executable not in links:
        links[executable] = os.readlink(executable)
        executable = os.path.normpath(os.path.join(os.path.dirname(executable), links[executable]))
    return links


def list_hidden(python: Interpreter, folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths below `folders` to hide: packages, their sources, and gem itself."""
    paths = {path for pattern in _HIDDEN for path in glob.glob(pattern)} | set(python.sites)
    for folder in folders:  # of the interpreter beneath a virtual environment too
        for below in ("*-packages", "python3*/*-packages"):
            paths |= set(glob.glob(os.path.join(glob.escape(folder), below)))
    paths.add(str(Path(__file__).resolve().parents[2]))
    return tuple(_outermost(path for path in paths if any(_below(path, folder) for folder in folders)))


def readable(python: Interpreter, names: tuple[str, ...], links: str) -> dict[str, list[str]]:
    """Return what Landlock lets a child read: ``roots``, their visible parts ``shown``, names ``listed``.

    Landlock can only allow, so for a folder that holds something hidden its visible entries are allowed one
    by one. Packages are imported from the folder `links`, which is made here: in their own folder an import
    would also find packages that cannot be read.
    """
    os.mkdir(links)
    for path in packages.entries(names):
        os.symlink(path, os.path.join(links, os.path.basename(path)))
    roots = _outermost(
        {os.path.realpath(path) for path in ("/usr", *(f"/{name}" for name in _LINKS), *python.visible)}
    )
    away = {os.path.realpath(path) for path in list_hidden(python, roots)}
    visible, listed, left = list(packages.entries(names)), [], list(roots)
    while left:
        path = left.pop()
        if path in away:
            continue
        if any(_below(other, path) for other in away):
            listed.append(path)
            left += [entry.path for entry in os.scandir(path) if not entry.is_symlink()]
        else:
            visible.append(path)
    beside = [
        links,
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/dev/null",
        "/dev/full",
        "/dev/urandom",
        "/dev/random",
    ]
    return {"roots": [*roots, *beside], "shown": [*visible, *beside], "listed": listed}


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return those that exist and lie in none of the others."""
    kept: list[str] = []
    for path in sorted(filter(os.path.exists, paths), key=lambda path: path.split("/")):
        if not kept or not _below(path, kept[-1]):
            kept.append(path)
    return kept


def _below(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def environment(python: Interpreter) -> dict[str, str]:
    """Return the whole environment of a fork server and its children."""
    folders = [os.path.dirname(python.executable), "/usr/local/bin", "/usr/bin", "/bin"]
    libraries = [
        path
        for path in os.environ.get("LD_LIBRARY_PATH", "").split(":")
        if any(_below(path, visible) for visible in python.visible)
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


# ------------------------------------------------------------------------------- the code that runs in it

_BOOT = """
import marshal, os, sys, types
data = bytearray()
while piece := os.pread({code}, 1 << 20, len(data)):
    data += piece
os.close({code})
for name in ("gem", "gem.sandbox"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, file, code in marshal.loads(data):
    module = sys.modules["gem.sandbox." + name] = types.ModuleType("gem.sandbox." + name)
    module.__file__ = file
    setattr(sys.modules["gem.sandbox"], name, module)
    exec(code, module.__dict__)
sys.modules["gem.sandbox.zygote"].main({control})
"""


def start_line(python: Interpreter, code: int, control: int) -> list[str]:
    """Return the command that starts a fork server; it reads code from `code`, orders from `control`."""
    return [python.base_executable, "-s", "-S", "-P", "-c", _BOOT.format(code=code, control=control)]


@functools.cache
def code_inside() -> bytes:
    """Return the compiled modules of `INSIDE`, so that gem's files and folder can stay hidden."""
    modules = []
    for name in INSIDE:
        spec = importlib.util.find_spec(f"gem.sandbox.{name}")
        assert spec is not None
        file, code = f"/gem-sandbox/{name}.py", spec.loader.get_code(spec.name)  # type: ignore[union-attr]
        modules.append((name, file, _rename_code(code, file)))
    return marshal.dumps(modules)


def _rename_code(code: CodeType, file: str) -> CodeType:
    inner = (_rename_code(each, file) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=tuple(inner))


# ------------------------------------------------------------------------------------------------ the user


def is_root() -> bool:
    """Return whether this process is root of the whole machine, and so must drop privileges."""
    if os.geteuid() != 0:
        return False
    try:
        spans = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    except OSError:
        return False
    last = STEP_DOWN_TO + USERS - 1
    return any(int(first) <= STEP_DOWN_TO <= last < int(first) + int(count) for first, _, count in spans)


STEP_DOWN_TO, USERS = 60706, 478
"""The user ids that root switches to, so that no other process can signal or trace gem's.

systemd leaves these ids unused (its services use those from 61184 on), and no Debian package uses one.
"""

_taken = itertools.count()


def next_user() -> int:
    """Return a user id for a fork server of root, rarely one in use: the process limit counts per user."""
    return STEP_DOWN_TO + (16 * os.getpid() + next(_taken)) % USERS
