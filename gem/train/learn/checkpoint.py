"""Checkpoints: writing and reading the state that a killed run resumes from.

A file is written beside the old one and renamed over it, so that there is always one complete checkpoint. All
randomness of a run is derived from its seed and its counters, so these are the state of every random
generator and of every environment.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from gem.errors import SchemaMismatch, StoreError

SCHEMA = 1
"""Version number of the file format."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically: a crash leaves the old one or the new one, never a partial one.

    Raises:
        StoreError: when it cannot be written; the old one stays.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            torch.save({**state, "schema": SCHEMA}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as RuntimeError
        with suppress(OSError):
            partial.unlink()  # half a checkpoint is of no use, and fills the disk
        raise StoreError(
            f"checkpoint {path} cannot be written: {error}. The previous one is kept; free disk space "
            "or choose another --out, then continue with --resume."
        ) from error


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint. Nothing in it is executed: only tensors and plain values are accepted.

    Raises:
        StoreError: when there is none, or it cannot be read.
        SchemaMismatch: when it was written under another schema.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise StoreError(
            f"no checkpoint at {path}; a run writes one after each iteration, the first before training. "
            "Begin one that was stopped earlier again: the same command without --resume."
        ) from None
    except Exception as error:  # a torn file may break the unpickling anywhere
        first = (str(error) or type(error).__name__).splitlines()[0]
        raise StoreError(
            f"checkpoint {path} cannot be read: {first}. It may be damaged: restore a copy, or train "
            "anew (--overwrite)."
        ) from error
    schema = state.get("schema") if isinstance(state, dict) else None
    if schema != SCHEMA:
        raise SchemaMismatch(
            f"checkpoint {path} has schema {schema}, this version reads {SCHEMA}; train anew, or use the "
            "version that wrote it."
        )
    return state
