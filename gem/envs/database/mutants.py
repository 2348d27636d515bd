"""Wrong queries: a right one without one of its conditions, which no answer should get away with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|[\w.]+|[<>=!|]+|\S")
_CLAUSES = {"WHERE", "ON", "HAVING"}
_ENDS = {
    *("GROUP", "ORDER", "LIMIT", "WINDOW", "UNION", "EXCEPT", "INTERSECT"),
    *("JOIN", "LEFT", "INNER", "CROSS", ",", ";"),
    *_CLAUSES,
}
_COLUMN = re.compile(r"[A-Za-z_][\w.]*")


class _Token(NamedTuple):
    word: str
    start: int
    end: int
    depth: int


def find_mutants(sql: str) -> list[str]:
    """Return a query without one of its conditions, for each that it has.

    A condition is a part of WHERE, ON or HAVING that AND joins, a bound of a BETWEEN, a DISTINCT, or the LEFT
    of a join. Two equal columns are none: without a join's, a query would run long. Some of the queries
    may not run, or be as right as the one given.

    >>> find_mutants("SELECT a FROM t WHERE b BETWEEN 1 AND 5")
    ['SELECT a FROM t WHERE 1', 'SELECT a FROM t WHERE b >= 1', 'SELECT a FROM t WHERE b <= 5']
    """
    tokens = _read(sql)
    mutants = []
    for at, token in enumerate(tokens[:-1]):
        if token.word in ("DISTINCT", "LEFT"):
            mutants.append(sql[: token.start] + sql[tokens[at + 1].start :])
        elif token.word in _CLAUSES:
            for part in _conjuncts(tokens, at):
                head, tail = sql[: part[0].start], sql[part[-1].end :]
                mutants += [head + condition + tail for condition in _weaken(sql, part)]
    return mutants


def _read(sql: str) -> list[_Token]:
    """Return the tokens of a query, each with its depth in brackets and in CASE ... END."""
    tokens, depth = [], 0
    for match in _TOKEN.finditer(sql):
        word = match[0].upper()
        depth -= word in (")", "END")
        tokens.append(_Token(word, match.start(), match.end(), depth))
        depth += word in ("(", "CASE")
    return tokens


def _conjuncts(tokens: Sequence[_Token], clause: int) -> Iterator[Sequence[_Token]]:
    """Yield the parts of a clause's condition that AND joins; the whole condition if OR joins some."""
    depth, begin, end = tokens[clause].depth, clause + 1, clause + 1
    cuts: list[int] = []
    either = between = False
    while end < len(tokens) and tokens[end].depth >= depth:
        word = tokens[end].word
        if tokens[end].depth == depth:
            if word in _ENDS:
                break
            if word == "AND" and not between:
                cuts.append(end)
            either |= word == "OR"
            between = word == "BETWEEN" or (between and word != "AND")
        end += 1
    for cut in (*([] if either else cuts), end):
        if begin < cut:
            yield tokens[begin:cut]
        begin = cut + 1


def _weaken(sql: str, part: Sequence[_Token]) -> Iterator[str]:
    """Yield what may stand for a condition: a true one, and each bound of a BETWEEN alone."""
    words = [token.word for token in part]
    if len(part) == 3 and words[1] == "=" and _COLUMN.fullmatch(words[0]) and _COLUMN.fullmatch(words[2]):
        return
    yield "1"
    places = [place for place, token in enumerate(part) if token.depth == part[0].depth]
    outer = [words[place] for place in places]
    if "BETWEEN" in outer and "OR" not in outer:
        nth = outer.index("BETWEEN")
        if "AND" not in outer[nth:]:
            return
        between, both = places[nth], places[outer.index("AND", nth)]
        value = sql[part[0].start : part[between].start]
        yield f"{value}>= {sql[part[between].end : part[both].start].strip()}"
        yield f"{value}<={sql[part[both].end : part[-1].end]}"
