"""Read the tasks of a data set whose columns are found, for each kind of grader."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gem.envs.math import env as maths
from gem.envs.qa import env as qa
from gem.errors import BadArgument, reason
from gem.graders.choice import first_number, read_choice, read_choices
from gem.graders.code_tests import CodeTests, read_tests
from gem.graders.number import read_numbers
from gem.tasks.columns import Columns, find_columns
from gem.tasks.files import scan
from gem.tasks.sources import Read, RowTasks, Source, cell, find, has_cell, open_rows


@dataclass(frozen=True)
class ChoiceReader:
    """A function that makes the reference of a row with choices; `numbered` is the first option's number."""

    choices: str
    numbered: int | None = None

    def __call__(self, value: Any, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reference of a ChoiceGrader.

        Raises:
            BadArgument: when the answer is not among the choices.
        """
        return read_choice(value, options(row, self.choices), self.numbered)


@dataclass(frozen=True)
class TestsReader:
    """A function that makes the tests of a row; `question` is the column of the question."""

    question: str

    def __call__(self, value: Any, row: Mapping[str, Any]) -> CodeTests:
        """Return the tests.

        Raises:
            BadArgument: for tests in no known form.
        """
        if "outputs" in row and not (isinstance(value, Mapping) and "outputs" in value):
            value = {"inputs": value, "outputs": row["outputs"]}
        return read_tests(value, {**row, "prompt": cell(row, self.question)})


def read_number(value: Any, row: Mapping[str, Any]) -> Any:
    """Return a row's reference, which NumberGrader can read."""
    read_numbers(value)
    return value


READERS: dict[str, Read] = {"text": qa.read_answer, "math": maths.read_answer, "number": read_number}


def options(row: Mapping[str, Any], choices: str) -> Any:
    """Return the options of a row: a cell, or the cells of columns joined with ``+``."""
    if has_cell(row, choices) or "+" not in choices:
        return cell(row, choices)
    return [cell(row, name) for name in choices.split("+") if cell(row, name) not in (None, "")]


def read_tasks(
    data: Source, split: str | None, given: Mapping[str, str], kind: str
) -> tuple[RowTasks, Columns]:
    """Return the tasks of data, whose rows are not checked yet, and the columns that were found.

    Raises:
        MissingData, BadArgument: see `gem.tasks.sources.open_rows` and `gem.tasks.columns.find_columns`.
    """
    rows, name, folder = open_rows(data, split)
    columns = find_columns(first_row(rows), given, kind, name)
    tasks = RowTasks(
        name,
        rows,
        columns.question,
        columns.answer,
        columns.images,
        folder,
        READERS.get(kind),
        columns.context,
        columns.id,
    )
    if kind == "code":
        return replace(tasks, read=TestsReader(columns.question)), columns
    if kind != "choice":
        return tasks, columns
    if columns.choices is None:
        raise BadArgument(f"{name} has no column of choices; name it: --columns choices=COLUMN, or A+B+C+D.")
    return replace(tasks, read=ChoiceReader(columns.choices, _find_first_number(rows, columns))), columns


def _find_first_number(rows: Any, columns: Columns) -> int | None:
    """Return the number of the first option where answers are numbers; bad rows are left out."""
    answers, choices = [], []
    for row in scan(rows, columns.images):
        with suppress(BadArgument):
            if isinstance(row, Mapping) and columns.answer is not None and columns.choices is not None:
                answer, option = cell(row, columns.answer), options(row, columns.choices)
                read_choices(option)
                answers.append(answer)
                choices.append(option)
    return first_number(answers, choices)


def first_row(rows: Any) -> Mapping[str, Any]:
    """Return the first row that can be read; an empty one if there is none."""
    return next((row for row in scan(rows) if isinstance(row, Mapping)), {})


def digest_of(data: str | Path, few_shot: Any = None) -> str:
    """Return a digest of files and folders; empty for a data set of the hub.

    Raises:
        BadArgument: for a file that cannot be read.
    """
    content = hashlib.blake2b(digest_size=8)
    for source in (data, few_shot):
        place = find(str(source)) if isinstance(source, str | Path) else None
        if place is None:
            continue
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file():
                try:
                    with path.open("rb") as file:
                        content.update(hashlib.file_digest(file, "blake2b").digest())
                except OSError as error:
                    raise BadArgument(f"{path} cannot be read: {reason(error)}.") from error
    return content.hexdigest()
