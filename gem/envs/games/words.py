"""English words for the word games, from the `wordfreq` package.

Two lists per length, each made once per process from the data that the package brings: no download. What
a game may hide is `common`: among the `COMMON` most frequent words of wordfreq's small list. What a guess
may be is `known`: at least `RAREST` of all words of its large list. Both hold lower-case ASCII words with
a vowel and without a letter three times in a row, less those of ``words_left_out.txt`` (names,
abbreviations, rude words), and follow from the package's release alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from random import Random

from gem.errors import missing_extra

COMMON = 8000
"""How many of the most frequent words may be hidden, before words are left out."""

RAREST = 1e-7
"""The least frequency of a known word, one in ten million: what is rarer is mostly names and misspellings."""

SHORTEST, LONGEST = 3, 8
"""The lengths of common words; longer ones were not gone through for names."""

_PLAIN = re.compile(r"(?=.*[aeiouy])(?!.*(.)\1\1)[a-z]+")


@cache
def common(length: int) -> tuple[str, ...]:
    """Return the words of a length that a game may hide, from the most frequent down.

    Raises:
        MissingExtra: without wordfreq.
    """
    return tuple(word for word in _ranked() if len(word) == length)


def pick(length: int, rng: Random) -> str:
    """Return one of the common words of a length, all equally likely.

    Raises:
        MissingExtra: without wordfreq.
    """
    choice = common(length)
    return choice[int(rng.random() * len(choice))]


def letters(move: str) -> str:
    """Return a move that is ASCII letters alone, in lower case.

    Raises:
        ValueError: for anything else.
    """
    if not (move.isascii() and move.isalpha()):
        raise ValueError
    return move.lower()


@cache
def known(length: int) -> frozenset[str]:
    """Return the words of a length that a guess may be; the common ones are among them.

    Raises:
        MissingExtra: without wordfreq.
    """
    frequencies = _frequencies("large")
    found = {word for word, often in frequencies.items() if len(word) == length and often >= RAREST}
    return frozenset(_real(found)) | set(common(length))


@cache
def _ranked() -> tuple[str, ...]:
    frequencies = _frequencies("small")
    plain = sorted(filter(_PLAIN.fullmatch, frequencies), key=lambda word: (-frequencies[word], word))
    return tuple(_real(plain[:COMMON]))


def _real(words: list[str] | set[str]) -> list[str]:
    left_out = _left_out()
    return [word for word in words if _PLAIN.fullmatch(word) and word not in left_out]


@cache
def _left_out() -> frozenset[str]:
    lines = Path(__file__).with_name("words_left_out.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def _frequencies(size: str) -> Mapping[str, float]:
    try:
        from wordfreq import get_frequency_dict
    except ImportError as error:
        raise missing_extra("a game of words", "wordfreq", "games") from error
    return get_frequency_dict("en", size)
