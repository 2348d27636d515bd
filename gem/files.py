"""Files that are replaced as a whole, so that a crash leaves the old one or the new one; and their locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gem.errors import GemError, StoreError, reason


@contextmanager
def replace_file(path: Path, partial: Path | None = None, *, parents: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file, which replaces `path` at the end of the block.

    It is removed if the block fails. `partial`: another path than that of `path` with ``.partial`` behind it.
    With `parents`, missing folders are made.

    Raises:
        StoreError: where the block raises OSError, or the file cannot be replaced; the old one stays.
    """
    partial = partial or path.with_name(path.name + ".partial")
    try:
        with explain_errors(path, ". Free disk space or choose another place, and run the command again."):
            if parents:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield partial
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def explain_errors(path: Path, cure: str = ".") -> Iterator[None]:
    """Raise StoreError where the block raises OSError: that `path` cannot be written, why, and the `cure`."""
    try:
        yield
    except GemError:  # some are OSErrors too, of what the block reads
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {reason(error)}{cure}") from error


def lock_file(file: int, *, wait: bool = False, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False where another process holds it, unless `wait`.

    On a network file system that keeps no locks every file counts as free.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # no locks are kept there
    return True
