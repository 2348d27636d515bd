"""Checkpoints: writing and reading the state that a killed run resumes from.

A file is written beside the old one and renamed over it, so that there is always one complete checkpoint. All
randomness of a run is derived from its seed and its counters, so these are the state of every random
generator and of every environment.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from gem.errors import GemError, SchemaMismatch, StoreError, reason
from gem.files import open_file

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


def load(path: Path, *, mmap: bool = False) -> dict[str, Any]:
    """Read a checkpoint. Nothing in it is executed: only tensors and plain values are accepted.

    Args:
        path: the file.
        mmap: read tensors only when they are used, for a reader that wants the other values.

    Raises:
        StoreError: when there is none, or it cannot be read.
        SchemaMismatch: when it was written under another schema.
    """
    try:
        with explain_damage(path), open_file(path) as file, warnings.catch_warnings(action="ignore"):
            source: Any = path if mmap else file
            state: dict[str, Any] = torch.load(source, map_location="cpu", weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise StoreError(
            f"no checkpoint at {path}; a run writes one after each iteration, the first before training. "
            "Begin one that was stopped earlier again: the same command without --resume."
        ) from None
    schema = state.get("schema") if isinstance(state, dict) else None
    if type(schema) is not int or schema != SCHEMA:
        raise SchemaMismatch(
            f"checkpoint {path} has schema {schema!r:.80}, this version reads {SCHEMA}; train anew, or use "
            "the version that wrote it."
        )
    return state


@contextmanager
def explain_damage(where: Path | str) -> Iterator[None]:
    """Say of the checkpoint at `where` what is wrong with it, if the block that reads it fails.

    Raises:
        SchemaMismatch: for a part that it does not have.
        StoreError: for any other error but those of gem.
    """
    try:
        yield
    except (GemError, FileNotFoundError):
        raise
    except KeyError as error:
        raise SchemaMismatch(
            f"checkpoint {where} has no {str(error)[:80]}: an earlier version of gem wrote it. Resume the "
            "run with that version, or train anew (--overwrite)."
        ) from error
    except Exception as error:  # a torn file may break the unpickling anywhere
        text = (reason(error) or type(error).__name__).splitlines()[0][:200]
        if isinstance(error, UnpicklingError):  # whose text tells how to run what the file names
            text = "it holds other things than tensors and plain values"
        raise StoreError(
            f"checkpoint {where} cannot be read: {text}. It may be damaged: restore a copy, or train "
            "anew (--overwrite)."
        ) from error
