"""The names of graders in command lines, suites and configs, and rubrics as tables and TOML files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gem.errors import BadArgument, did_you_mean, reason
from gem.files import read_toml
from gem.graders import MADE
from gem.graders.base import Grader
from gem.graders.functions import FORMS, FunctionGrader, JudgeByName, class_of
from gem.graders.rubric import Rubric
from gem.naming import fix_name, load_named
from gem.source_files import remember_name
from gem.specs import check_accepted

GRADER_HELP = (
    f"{', '.join(MADE)}, judge:MODEL[@URL] (a model grades), a function of answer and reference, as "
    "package.module:fn or file.py:fn, or several with weights: rubric.toml"
)
"""The names of graders, for the help of commands."""

SETTINGS = ("correct", "passing")
"""The keys of a table that are no part."""

LIMITS = ("at_once", "seconds", "retries")
"""The keys of a part that is an ``async def`` function; the first is a judge's too."""

JUDGE_KEYS = ("rubric", "prompt", "passing", "at_once")

PART_KEYS = ("grader", "weight", *JUDGE_KEYS, *LIMITS[1:])
"""The keys of a part."""


def named_grader(name: Any, folder: str = "") -> tuple[str, Grader | None]:
    """Return the kind of grader that a name means, and the grader where the kind alone does not say which.

    Kinds are those of `gem.graders.MADE` and `GIVEN`. Only a name that this user gave may come here: the
    module of a function is executed.

    Args:
        name: a name as in `FORMS`, or a function ``(answer, reference)``, or a grader; or the table of a
            rubric, see `read_rubric`.
        folder: the folder that a relative path of a file starts from.

    Raises:
        BadArgument: for an unknown name, and a function that does not take an answer and a reference.
    """
    if isinstance(name, Mapping):
        return read_rubric(name)
    if not isinstance(name, str):
        return "function", name if isinstance(name, FunctionGrader | JudgeByName) else FunctionGrader(name)
    if name in MADE:
        return name, None
    if name.startswith("judge:"):
        judge = JudgeByName(name.removeprefix("judge:"))
        remember_name("judge", judge.model)
        return "judge", judge
    if name.endswith(".toml"):
        return named_grader(read_grader(name, folder))
    if ":" not in name:
        raise BadArgument(f"grader is {name!r}.{did_you_mean(name, (*MADE, 'judge:'))} Accepted: {FORMS}.")
    return "function", FunctionGrader(load_named(name, "grader", folder=folder))


def read_grader(name: str, folder: str = "") -> Any:
    """Return a grader's name as settings can hold it: the table in place of the file of a rubric.

    Raises:
        BadArgument: for a file that cannot be read.
    """
    if not name.endswith(".toml"):
        return name
    return read_file(os.path.join(folder, os.path.expanduser(name)))


def make_grader(name: str) -> Grader:
    """Return the grader of a name that this user gave; see `named_grader`.

    Raises:
        BadArgument: as `named_grader`.
    """
    kind, grader = named_grader(name)
    made: Grader = class_of(kind)() if grader is None else grader  # type: ignore[assignment]
    return made


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table of a TOML file that this user named, with the Python files of its functions fixed.

    Raises:
        BadArgument: for a file that is no TOML or no rubric, or names a Python file that is not there.
    """
    try:
        table = read_toml(path)
    except (OSError, ValueError) as error:
        raise BadArgument(f"the rubric's file {str(path)!r} cannot be read: {reason(error)}.") from error
    table = fix_table(table, Path(path).parent)
    try:
        read_rubric(table)
    except BadArgument as error:
        start = f"the rubric's file {str(path)!r}: "
        raise BadArgument(f"{start}{error}" if start not in str(error) else str(error)) from error
    return table


def fix_table(table: Mapping[str, Any], folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table of a rubric, in which a function's file has its digest in place of its path.

    Raises:
        BadArgument: see `gem.naming.fix_name`.
    """
    fixed: dict[str, Any] = {}
    for name, part in table.items():
        named = isinstance(part, Mapping) and isinstance(part.get("grader"), str)
        fixed[name] = {**part, "grader": fix_name(part["grader"], "grader", folder)} if named else part
    return fixed


def read_rubric(table: Mapping[str, Any]) -> tuple[str, Rubric]:
    """Return the rubric of a table, and the kind of grader that says how rows are read and answers look.

    Each table in it is a part, with the keys of `PART_KEYS`; beside them stand `SETTINGS`. The kind is that
    of the first part of `gem.graders.MADE`. Only a table that this user gave, or that the rule of trust
    accepted, may come here: the module of a function is executed.

    Raises:
        BadArgument: for another form.
    """
    graders: dict[str, Grader | str] = {}
    weights, kinds = {}, []
    parts = {name: part for name, part in table.items() if name not in SETTINGS or isinstance(part, Mapping)}
    for name, part in parts.items():
        if not isinstance(part, Mapping) or not isinstance(part.get("grader"), str):
            raise BadArgument(
                f"{name} of the rubric is {part!r:.80}; accepted: a table with a grader, as "
                f'{name} = {{grader = "math", weight = 0.5}}, and the settings {" and ".join(SETTINGS)}.'
            )
        check_accepted(PART_KEYS, part, f"the part {name}")
        try:
            kind, grader = named_grader(part["grader"])
        except RecursionError:
            raise BadArgument(f"the part {name} names a rubric that names itself.") from None
        is_judge, is_function = isinstance(grader, JudgeByName), isinstance(grader, FunctionGrader)
        given = {key: part[key] for key in PART_KEYS[2:] if key in part}
        accepted = JUDGE_KEYS if is_judge else LIMITS if is_function else ()
        if extra := [key for key in given if key not in accepted]:
            takes = "a judge" if extra[0] in JUDGE_KEYS[:-1] else "an async def function"
            also = " or a judge" if extra[0] == "at_once" else ""
            raise BadArgument(f"the part {name} has {', '.join(extra)}, which only {takes}{also} takes.")
        if isinstance(grader, JudgeByName):
            grader = JudgeByName(grader.model, **given)
        elif isinstance(grader, FunctionGrader) and given:
            grader = FunctionGrader(grader.function, **given)
        graders[name] = kind if grader is None else grader
        weights[name] = part.get("weight", 1.0)
        kinds.append(kind)
    settings = {key: table[key] for key in SETTINGS if key in table and key not in parts}
    if len(settings) > 1:
        raise BadArgument("the rubric has both correct and passing, which each decide it; leave one out.")
    kind = next((each for each in kinds if each in MADE), "judge" if "judge" in kinds else "function")
    return kind, Rubric(graders, weights, **settings)
