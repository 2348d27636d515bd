"""Token ids as text, by the tokenizer of the model that sampled them.

A store says by a hash which vocabulary its ids are of. The tiny model's stands in this package; a tokenizer
of the Hugging Face kind is looked for where models are kept on this machine, and nowhere else: the path that
a store names may be anybody's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from gem import models
from gem.record import RunInfo
from gem.tokens.tiny import SPECIAL, TinyRenderer

Decode = Callable[[Sequence[int]], str]
TOGETHER = 6
"""Tokens that one character is made of at most."""


class Piece(NamedTuple):
    """Tokens that are text together, most often one: their text, the first one's place, and how many."""

    text: str
    at: int
    tokens: int


class Vocabulary:
    """Makes text of ids; where the tokenizer is not here, the ids themselves are the text."""

    def __init__(self, decode: Decode | None = None, name: str = "") -> None:
        """Take what decodes ids; `name` says whose it is."""
        self.name = name
        self._decode = decode
        self._one = lru_cache(maxsize=65536)(self._text)

    @property
    def known(self) -> bool:
        """Whether ids become text."""
        return self._decode is not None

    def _text(self, *ids: int) -> str:
        if self._decode is None:
            return " ".join(map(str, ids)) + " "
        try:
            return self._decode(ids)
        except (LookupError, OverflowError, TypeError, ValueError):  # ids that the vocabulary does not have
            return "".join(f"<{id}>" for id in ids)

    def pieces(self, ids: Sequence[int]) -> list[Piece]:
        """Return ids as pieces of text: as few tokens in each as make whole characters."""
        found: list[Piece] = []
        at = 0
        while at < len(ids):
            for count in range(1, min(TOGETHER, len(ids) - at) + 1):
                text = self._one(*ids[at : at + count])
                if "\ufffd" not in text:
                    break
            else:
                count, text = 1, self._one(ids[at])
            found.append(Piece(text, at, count))
            at += count
        return found


def vocabulary_of(run: RunInfo) -> Vocabulary:
    """Return the vocabulary of a run's model, as far as it is on this machine."""
    return _found(run.model or "", run.vocabulary)


@lru_cache(maxsize=16)
def _found(model: str, hashed: str | None) -> Vocabulary:
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
    """Return the folder of a model, where it lies in one of the caches of models."""
    if not model:
        return None
    hub = os.environ.get("HF_HUB_CACHE") or Path(os.environ.get("HF_HOME") or "~/.cache/huggingface") / "hub"
    homes = [models.cache(), Path(hub).expanduser()]
    folders = [Path(model)] if os.path.isabs(model) else []
    if "/" in model and not os.path.isabs(model):
        folders += sorted(homes[1].glob(f"models--{model.replace('/', '--')}/snapshots/*"))
    # A glob's name may come from a store, so what it finds is held to the caches like any other path.
    for folder in folders:
        with suppress(OSError, ValueError):
            real = folder.resolve(strict=True)
            if (
                any(real.is_relative_to(home.resolve()) for home in homes)
                and (real / "tokenizer.json").is_file()
            ):
                return real
    return None
