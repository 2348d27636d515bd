"""The spools of a RayRunner: on each node, a store of the ended episodes that the driver may not have yet."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gem import codec
from gem.errors import StoreError
from gem.rollout.store import EpisodeStore

AT_ONCE = 100
"""Number of episodes of a spool that are sent together."""


class Spool:
    """The folder of the nodes' spools, used by one store only.

    A file beside the store has its name, so that a resuming driver finds it, and a new store at the same path
    does not.
    """

    def __init__(self, store: EpisodeStore, home: str | Path | None) -> None:
        """Read the name beside the store, or write a new one. `home`: the folder on the nodes."""
        self._path = store.path.with_name(f"{store.path.name}.spool")
        inode = store.path.stat().st_ino
        name = ""
        with suppress(OSError, ValueError):
            written, of = self._path.read_text(encoding="ascii").split()
            if re.fullmatch("[0-9a-f]{16}", written) and int(of) == inode:
                name = written
        if not name:
            name = os.urandom(8).hex()
            self._path.write_text(f"{name} {inode}", encoding="ascii")
        here = Path(tempfile.gettempdir()) / f"gem-gym-spool-{os.getuid()}-{name}"
        self.folder = here if home is None else Path(home) / name

    def end(self) -> None:
        """Remove the file with the name: the nodes have no more episodes."""
        self._path.unlink(missing_ok=True)


# -- on the nodes


def spool_store(path: Path) -> EpisodeStore:
    """Open a spool.

    Raises:
        StoreError: when its folder belongs to another user.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(path.parent)
    return EpisodeStore(path)


def read_spool(folder: str, known: set[str]) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the run and stored line of each episode in a folder's spools that is not in `known`."""
    paths = sorted(Path(folder).glob("*.jsonl"))
    if paths:
        check_own(Path(folder))
    for path in paths:
        with EpisodeStore(path, read_only=True) as spool:
            new = [entry.number for entry in spool.select() if entry.id and entry.id not in known]
            for start in range(0, len(new), AT_ONCE):
                episodes = [spool[number] for number in new[start : start + AT_ONCE]]
                yield [(codec.encode_run(episode.run), codec.encode(episode)) for episode in episodes]


def drop_spool(folder: str) -> None:
    """Remove the spools in a folder."""
    shutil.rmtree(folder, ignore_errors=True)


def check_own(folder: Path) -> None:
    """Refuse a folder of another user, who could put episodes into it.

    Raises:
        StoreError: when it belongs to another user.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise StoreError(f"{folder} is not a folder of this user; choose another one for the spool.")
