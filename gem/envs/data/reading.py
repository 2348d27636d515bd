"""Read the tasks of a data set whose columns are found, for each kind of grader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gem.errors import BadArgument
from gem.graders.functions import class_of
from gem.graders.rubric import Rubric
from gem.tasks.columns import FINAL_ANSWERS, IMAGES, Columns, find_columns, plain_name
from gem.tasks.files import BadRow, MergedRow, place_of, scan
from gem.tasks.sources import RowTasks, Source, is_empty, open_rows


def read_tasks(
    data: Source, split: str | None, given: Mapping[str, str], kind: str, grader: Any = None
) -> tuple[RowTasks, Columns]:
    """Return the tasks of data, whose rows are not checked yet, and the columns that were found.

    A row is bad too if a part of a `grader` that is a rubric cannot read its answer.

    Raises:
        MissingData, BadArgument: see `gem.tasks.sources.open_rows` and `gem.tasks.columns.find_columns`.
    """
    rows, name, folder = open_rows(data, split)
    columns = find_columns(merge_rows(rows, name, given.get("images")), given, kind, name)
    read = class_of(kind).reader(columns, rows, name)
    tasks = RowTasks(
        name,
        rows,
        columns.question,
        columns.answer,
        columns.images,
        folder,
        grader.check_reader(read) if isinstance(grader, Rubric) else read,
        columns.context,
        columns.id,
    )
    numbered = getattr(read, "numbered", None)  # of a reader of choices
    return tasks, columns if numbered is None else replace(columns, first=str(numbered))


def merge_rows(rows: Any, name: str, images: str | None = None) -> Mapping[str, Any]:
    """Return a row with all columns that rows of the data `name` have, each with its first value, if any.

    The rows of a file are read once per process, without their `images` where that is cheaper.

    Raises:
        BadArgument: see `first_row`.
    """
    known: MergedRow | None = getattr(rows, "merged", None)
    merged = MergedRow() if known is None else known
    if not merged:
        merged.update(first_row(rows, name))
        finals = [each for each in merged if plain_name(str(each)) in FINAL_ANSWERS]
        images = images or next((each for each in merged if str(each).casefold() in IMAGES), None)
        for row in scan(rows, images):
            if not isinstance(row, Mapping):
                continue
            merged.gaps.update(each for each in finals if is_empty(row.get(each)))
            for column, value in row.items():
                if column not in merged:
                    merged.gaps.add(column)
                if column not in merged or is_empty(merged[column]):
                    merged[column] = value
    return merged


def first_row(rows: Any, name: str) -> Mapping[str, Any]:
    """Return the first row of the data `name` that can be read; an empty one if there is none.

    Raises:
        BadArgument: why the first row cannot be read, if none can.
    """
    wrong: BadArgument | None = None
    for index, row in enumerate(scan(rows)):
        if isinstance(row, Mapping):
            return row
        if wrong is None:
            kind = f"a {type(row).__name__}; accepted: an object with a value for each column"
            wrong = (
                row if isinstance(row, BadRow) else BadArgument(f"{name}: {place_of(rows, index)} is {kind}.")
            )
    if wrong is not None:
        raise wrong
    return {}
