"""Read the tasks of a data set whose columns are found, for each kind of grader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gem.errors import BadArgument
from gem.graders.functions import class_of
from gem.tasks.columns import Columns, find_columns
from gem.tasks.files import BadRow, place_of, scan
from gem.tasks.sources import RowTasks, Source, open_rows


def read_tasks(
    data: Source, split: str | None, given: Mapping[str, str], kind: str
) -> tuple[RowTasks, Columns]:
    """Return the tasks of data, whose rows are not checked yet, and the columns that were found.

    Raises:
        MissingData, BadArgument: see `gem.tasks.sources.open_rows` and `gem.tasks.columns.find_columns`.
    """
    rows, name, folder = open_rows(data, split)
    columns = find_columns(first_row(rows, name), given, kind, name)
    tasks = RowTasks(
        name,
        rows,
        columns.question,
        columns.answer,
        columns.images,
        folder,
        class_of(kind).reader(columns, rows, name),
        columns.context,
        columns.id,
    )
    numbered = getattr(tasks.read, "numbered", None)  # of a reader of choices
    return tasks, columns if numbered is None else replace(columns, first=str(numbered))


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
