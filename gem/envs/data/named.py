"""Environments over data that a command line or a suite names."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from gem.envs.data.env import DataEnv
from gem.envs.data.reading import merge_rows, read_tasks
from gem.errors import BadArgument, reason
from gem.files import read_text
from gem.graders.choice import options, read_choice
from gem.graders.functions import class_of
from gem.graders.mathematics.number_words import date, is_notation
from gem.graders.named import fix_table, named_grader, read_grader
from gem.graders.number import read_numbers
from gem.graders.text import unboxed_references
from gem.tasks.columns import (
    PERHAPS_CHOICES,
    SOLUTIONS,
    TESTS,
    Columns,
    find_columns,
    parse_columns,
    plain_name,
)
from gem.tasks.files import scan
from gem.tasks.sources import Source, cell, digest_of, is_place, open_rows


class OwnData(NamedTuple):
    """An environment over data: its id, its keywords, and what was understood of the data.

    `written` are the keywords as JSON values, in which a grader has its name; see `named_kwargs`.
    """

    env: str
    kwargs: dict[str, Any]
    written: dict[str, Any]
    about: str

    @property
    def title(self) -> str:
        """Its name in figures: ``q.csv:text``."""
        return title_of(self.env, self.kwargs)


def data_task(
    data: str,
    grader: str | Mapping[str, Any] = "",
    columns: str | Mapping[str, str] = "",
    split: str = "",
    prompt: str = "",
    few_shot: str = "",
    folder: str | Path = "",
    shuffle_choices: bool = False,
) -> OwnData:
    """Return an environment over data that a command line or a suite names; its rows are checked.

    A path is relative to `folder`, and is kept relative to the working folder. Without a grader, its kind
    follows from the data; see `guess_kind`. A prompt that ends in ``.txt`` is the file that holds it. A
    grader may be the table of a rubric (`gem.graders.named.read_rubric`), or a TOML file that holds it.

    Raises:
        MissingData, BadArgument: see DataEnv and `gem.graders.named.named_grader`.
    """
    kwargs: dict[str, Any] = {"data": _relative(data, folder)}
    given = parse_columns(columns) if isinstance(columns, str) else dict(columns)
    if given:
        kwargs["columns"] = given
    if split:
        kwargs["split"] = split
    if prompt:
        kwargs["prompt"] = _text_in(prompt, folder) if prompt.endswith(".txt") else prompt
    if shuffle_choices:
        kwargs["shuffle_choices"] = True
    if few_shot:
        kwargs["few_shot"] = _relative(few_shot, folder)
    grader = read_grader(grader, str(folder)) if isinstance(grader, str) else fix_table(grader, folder)
    kind, own_grader = named_grader(grader, str(folder)) if grader != "" else ("", None)
    kind = kind or guess_kind(kwargs["data"], split or None, given)
    digest = digest_of(kwargs["data"], kwargs.get("few_shot"))
    env = DataEnv(kind, grader=own_grader, **kwargs)  # all rows are checked here, before anything is asked
    kwargs["digest"] = digest
    if own_grader is None:
        return OwnData(f"data:{kind}", kwargs, kwargs, env.about)
    return OwnData(f"data:{kind}", {**kwargs, "grader": own_grader}, {**kwargs, "grader": grader}, env.about)


def named_kwargs(env_id: str, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the keywords of an environment, in which a grader's name over data becomes the grader.

    Only keywords that this user gave may come here; see `gem.graders.named.named_grader`.
    """
    if not env_id.startswith("data:") or not isinstance(kwargs.get("grader"), str | Mapping):
        return kwargs
    return {**kwargs, "grader": named_grader(kwargs["grader"])[1]}


def title_of(env_id: str, kwargs: Mapping[str, Any]) -> str:
    """Return the name of an environment over data in figures: ``q.csv:text``."""
    split = f"[{kwargs['split']}]" if "split" in kwargs else ""
    grader = getattr(kwargs.get("grader"), "name", env_id.partition(":")[2])
    grader = grader.removeprefix("function:").partition("#")[0]
    shuffled = "+shuffled" if kwargs.get("shuffle_choices") else ""
    return f"{Path(str(kwargs.get('data'))).name}{split}:{grader}{shuffled}"


def _relative(name: str, folder: str | Path) -> str:
    """Return a path as it is seen from the working folder; a name that is no path there is unchanged."""
    place = Path(folder, Path(name).expanduser())
    if place.exists():
        return os.path.relpath(place)
    return os.path.join(os.path.relpath(folder), name) if folder and is_place(name) else name


def _text_in(name: str, folder: str | Path) -> str:
    try:
        return read_text(Path(folder, Path(name).expanduser())).strip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"the prompt's file {name!r} cannot be read: {reason(error)}.") from error


def guess_kind(data: Source, split: str | None, given: Mapping[str, str]) -> str:
    """Return the kind of grader that data suggests: choice, code, math for numbers and formulas, else text.

    A few answers in words among numbers do not make it text: the math grader compares them word for word, but
    the text grader would refuse "9" for "9 (apples)".

    Raises:
        MissingData, BadArgument: see `read_tasks`.
    """
    rows, name, _ = open_rows(data, split)
    row = merge_rows(rows, name, given.get("images"))
    with suppress(BadArgument):
        columns = find_columns(row, given, "choice", name)
        if columns.choices and (
            "choices" in given
            or not PERHAPS_CHOICES.match(plain_name(columns.choices))
            or _choose(columns, rows)
        ):
            return "choice"
    if _has_tests(row, given, name):
        return "code"
    tasks, _ = read_tasks(data, split, given, "text")
    texts: list[str] = []
    for index in range(min(len(tasks), 200)):
        with suppress(BadArgument):
            texts += unboxed_references(tasks.reference(index))
    kinds = Counter(map(_looks_like, texts))
    if not any("\\" in text or "^" in text for text in texts):
        # among formulas the math grader compares it word for word too
        kinds["text"] += kinds.pop("notation", 0)
    if kinds["text"] * 4 > kinds.total() or not kinds:
        return "text"
    return "number" if kinds["number"] and not kinds["text"] + kinds["formula"] else "math"


def _choose(columns: Columns, rows: Any) -> bool:
    """Return whether most answers are a letter, a text or a number of their row's choices."""
    fit = 0
    first = [row for row in islice(scan(rows, columns.images), 200) if isinstance(row, Mapping)]
    for row in first:
        for numbered in (0, 1):
            with suppress(BadArgument):
                read_choice(cell(row, columns.answer or ""), options(row, columns.choices or ""), numbered)
                fit += 1
                break
    return 2 * fit > len(first)


def _has_tests(row: Mapping[str, Any], given: Mapping[str, str], name: str) -> bool:
    """Return whether a row is a program's: its tests are read or a list, or it has no answer beside them."""
    if given.get("answer", TESTS[0]).casefold() not in TESTS:
        return False
    try:
        columns = find_columns(row, given, "code", name)
    except BadArgument:
        return False
    tests = columns.answer or ""
    if tests.casefold() not in TESTS or (tests == "inputs" and "outputs" not in row):
        return False
    if isinstance(cell(row, tests), list):
        return True  # what is wrong with its tests is told
    with suppress(BadArgument):
        class_of("code").reader(columns, (), name)(cell(row, tests), row)
        return True
    with suppress(BadArgument):
        return (find_columns(row, given, "text", name).answer or "").casefold() in SOLUTIONS
    return True


def _looks_like(text: str) -> str:
    """Return the kind of grader that an answer looks like.

    It may also be formula (math, which `number` would refuse) or notation (of a date or score, or a code).
    """
    if is_notation(text) or date(text) or _CODE.fullmatch(text.strip()):
        return "notation"
    one = False
    with suppress(BadArgument):
        one = bool(read_numbers(text))
    if "####" in text or "\\boxed" in text or _FORMULA.fullmatch(text.strip()):
        return "math" if one else "formula"
    if not _NUMBER.match(text):
        return "text"
    return "number" if one else "text" if re.search("[A-Za-z]{3}", text) else "formula"


_CODE = re.compile(r"0(?![01]+\Z)\d{3,}")  # as a ZIP code; 033 may be an integer, and 0101 binary
_FORMULA = re.compile(
    r"[-+]?[\d.,/]*\d[\d.,/%]*|.*(?:\$|\\[a-z]+).*|[-+*/^()=\da-z\s]*[\^=][-+*/^()=\da-z\s]*", re.DOTALL
)
_NUMBER = re.compile(r"\s*[-+$€£]?[\d¼-¾⅐-⅞]")
