"""Decode token ids with the tokenizer of the model that sampled them.

A store names the vocabulary of its ids by a hash. The tiny model's vocabulary is in this package. A Hugging
Face tokenizer is searched only in the model caches of this machine, because a path named in a store cannot
be trusted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gem.models import find_kept
from gem.record import RunInfo
from gem.source_files import cache_folder
from gem.tokens.tiny import SPECIAL, TinyRenderer

Decode = Callable[[Sequence[int]], str]
TOGETHER = 6
"""The most tokens that together make one character."""


class Piece(NamedTuple):
    """Tokens that decode together, usually one: their text, the index of the first, and their number."""

    text: str
    at: int
    tokens: int


class Vocabulary:
    """A decoder of token ids; without the tokenizer, the ids themselves are the text."""

    def __init__(self, decode: Decode | None = None, name: str = "") -> None:
        """Take the decoding function; `name` is the model's."""
        self.name = name
        self._decode = decode
        self._one = lru_cache(maxsize=65536)(self._text)

    @property
    def known(self) -> bool:
        """Whether the tokenizer is available."""
        return self._decode is not None

    def _text(self, *ids: int) -> str:
        if self._decode is None:
            return " ".join(map(str, ids)) + " "
        try:
            return self._decode(ids)
        except (LookupError, OverflowError, TypeError, ValueError):  # ids that the vocabulary does not have
            return "".join(f"<{id}>" for id in ids)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Split ids into pieces of text, each with as few tokens as make whole characters."""
        pieces: list[Piece] = []
        at = 0
        while at < len(ids):
            for count in range(1, min(TOGETHER, len(ids) - at) + 1):
                text = self._one(*ids[at : at + count])
                if "\ufffd" not in text:
                    break
            else:
                count, text = 1, self._one(ids[at])
            pieces.append(Piece(text, at, count))
            at += count
        return pieces


def vocabulary_of(run: RunInfo) -> Vocabulary:
    """Return the vocabulary of a run's model; if it is not on this machine, one that shows ids."""
    return _load_vocabulary(run.model or "", run.vocabulary)


@lru_cache(maxsize=16)
def _load_vocabulary(model: str, hashed: str | None) -> Vocabulary:
    if hashed is None:
        return Vocabulary()
    tiny = TinyRenderer()
    if tiny.vocab_hash == hashed:
        return Vocabulary(_tiny(tiny), "tiny")
    folder = _kept_here(model)
    if folder is None:
        return Vocabulary()
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception:  # the package is absent, or raises what it likes for a broken file
        return Vocabulary()
    return Vocabulary(lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)), folder.name)


def _tiny(renderer: TinyRenderer) -> Decode:
    """Return a decoder that writes special tokens by their names, which the renderer leaves out."""

    def decode(ids: Sequence[int]) -> str:
        if min(ids) < 0:
            raise LookupError("an id below 0")
        return SPECIAL[ids[0]] if len(ids) == 1 and ids[0] < len(SPECIAL) else renderer.decode(ids)

    return decode


def _kept_here(model: str) -> Path | None:
    """Return the folder of a model in one of the model caches; None if it is not there."""
    if not model:
        return None
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    homes = [cache_folder(), Path(hub).expanduser()]
    folders = [Path(model)] if os.path.isabs(model) else find_kept(model)
    if "/" in model and not os.path.isabs(model):
        folders += sorted(homes[1].glob(f"models--{model.replace('/', '--')}/snapshots/*"))
    # The glob pattern may come from a store, so its results must lie in the caches like any other path.
    for folder in folders:
        with suppress(OSError, ValueError):
            real = folder.resolve(strict=True)
            if (
                any(real.is_relative_to(home.resolve()) for home in homes)
                and (real / "tokenizer.json").is_file()
            ):
                return real
    return None
