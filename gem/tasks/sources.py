"""Sources of tasks: rows in memory, data frames, files, folders, and data sets of the Hugging Face hub.

`load` opens all of them. It returns a TaskSet over rows with any column names. `gem.tasks.files` reads files,
and `datasets` the hub, with its own cache and offline mode.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import io
import math
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from gem.content import Image, Obs, Part, Text
from gem.errors import BadArgument, MissingData, did_you_mean, install_command
from gem.parsing import drop_thinking, find_thinking
from gem.proxies import through_proxy
from gem.tasks.base import Task, TaskSet
from gem.tasks.files import (
    SHORT_FLOATS,
    SUFFIXES,
    BadRow,
    FileRows,
    MergedRow,
    digest_file,
    files_below,
    import_datasets,
    is_data_file,
    one_split,
    open_once,
    place_of,
    scan,
)
from gem.tasks.order import Ordered

Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Anything with a length whose items, by index, are mappings from column names."""

Source: TypeAlias = str | Path | Rows | TaskSet | Mapping[str, Rows]
"""A source of tasks: the name of a data set, a path, rows, rows by split, or tasks."""

PROBE_S = 3.0
"""Seconds for the hub to accept a connection; without this limit its client tries for half a minute."""

MOST_REASONS = 100
"""The most different reasons in the message about bad rows."""

MOST_NESTED = 100
"""The most lists and mappings that an answer may be nested in; Python reads far more, and compares fewer."""

PLACEHOLDER = "<image>"
"""The placeholder of a picture in a question's text."""

_MAGIC_BYTES = 16
_MIMES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def load(
    source: Source,
    split: str | None = None,
    question_key: str | None = "problem",
    answer_key: str = "answer",
    images_key: str | None = None,
    read: Read | None = None,
) -> TaskSet:
    """Return the tasks of a source, whose rows are all checked.

    Args:
        source: rows (a list of mappings, a data frame, a `datasets.Dataset`), a TaskSet, the path of a file
            or folder, or the name of a data set, which is searched in the folder GEM_DATA, then on the
            Hugging Face hub.
        split: the split; None if there is only one.
        question_key: the column with the question for the agent; None: ``question``, or else ``problem``.
        answer_key: the column with the reference for the grader.
        images_key: the column with a picture or a list of pictures.
        read: makes a reference from the answer's cell and its row; it raises BadArgument for an answer that
            the grader cannot read.

    Raises:
        MissingData: when the data set is neither local nor reachable.
        BadArgument: for an empty source, an unknown split or column, a file that cannot be read, and for bad
            rows: the message lists them all, with their places.
        MissingExtra: for Parquet, or the hub, without the extra `data`.
    """
    if isinstance(source, TaskSet) and hasattr(source, "order"):
        return source
    rows, name, folder = open_rows(source, split)
    if question_key is None:
        question_key = "question" if _has(rows, "question") else "problem"
    tasks = RowTasks(name, rows, question_key, answer_key, images_key, folder, read)
    tasks.check()
    return tasks


def open_rows(source: Any, split: str | None) -> tuple[Rows, str, Path | None]:
    """Return the rows of a source, their name in messages, and the folder of their pictures.

    Raises:
        MissingData, BadArgument, MissingExtra: see `load`; rows are not checked.
    """
    if isinstance(source, str | Path):
        rows, name, folder = _open(str(source), split)
    else:
        rows, name, folder = one_split(source, split, "dataset"), "dataset", None
    if not len(rows):
        raise BadArgument(f"{name} has no rows; one or more are needed.")
    return rows, name, folder


Read: TypeAlias = Callable[[Any, Mapping[str, Any]], Any]
"""A function that makes a reference from the answer's cell and its row."""


def _has(rows: Rows, column: str) -> bool:
    first = next(iter(scan(rows)))
    return isinstance(first, Mapping) and column in first


@dataclass(frozen=True, eq=False)
class RowTasks(Ordered):
    """A TaskSet over rows: two columns are question and reference, the others go into the task's info.

    A column may be named with dots where a cell is a mapping: ``reward_model.ground_truth``. `context_key` is
    a column that stands before the question. A task's id is its cell in `id_key`, or else the row's number.
    """

    name: str
    rows: Rows
    question_key: str
    answer_key: str | None
    images_key: str | None = None
    folder: Path | None = None
    read: Read | None = None
    context_key: str | None = None
    id_key: str | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> Task:
        """Return the task of one row.

        Raises:
            BadArgument: when the row lacks a column or its value, or its answer cannot be read.
        """
        row = self.rows[index]
        try:
            question, reference = self._parts(row)
        except BadArgument as error:
            raise BadArgument(f"{self.name}, {place_of(self.rows, index)}: {error}") from error
        if self.images_key is not None:
            question = _place_pictures(str(question), _pictures(raw_cell(row, self.images_key), self.folder))
        keys = (self.question_key, self.answer_key, self.images_key)
        info = {key: value for key, value in row.items() if key not in keys}
        return Task(self.id_of(index, row), question, reference, info)

    def id_of(self, index: int, row: Mapping[str, Any]) -> str:
        """Return a task's id."""
        given = None if self.id_key is None else cell(row, self.id_key)
        return str(index) if is_empty(given) else str(given)

    def warn_of_ids(self) -> str:
        """Return a warning about rows with the id of an earlier row; empty where there are none."""
        if self.id_key is None:
            return ""
        rows = enumerate(scan(self.rows, self.images_key))
        ids = Counter(self.id_of(index, row) for index, row in rows if isinstance(row, Mapping))
        again = ids.total() - len(ids)
        name, _ = ids.most_common(1)[0] if again else ("", 0)
        rows_have = "1 row has" if again == 1 else f"{again} rows have"
        return f"Warning: {rows_have} the id of an earlier row, as {name!r:.40}." if again else ""

    def reference(self, index: int) -> Any:
        """Return the reference of one row without reading its pictures."""
        return self._parts(self.rows[index])[1]

    def _parts(self, row: Any) -> tuple[Obs, Any]:
        """Return the question, without pictures, and the reference; a row may lack its context."""
        if not isinstance(row, Mapping):
            raise BadArgument(f"a row is {type(row).__name__} {row!r:.80}; accepted: mappings (dict).")
        for key in (self.question_key, self.answer_key):
            if key is not None and not has_cell(row, key):
                raise BadArgument(_name_missing(key, row))
        for key in (self.question_key if self.images_key is None else None, self.answer_key):
            if key is not None and is_empty(cell(row, key)):
                raise BadArgument(f"column {key!r} is empty")
        asked: Any = cell(row, self.question_key)
        reference: Any = None if self.answer_key is None else cell(row, self.answer_key)
        if _is_deep(reference):
            raise BadArgument(f"column {self.answer_key!r} is nested in more than {MOST_NESTED} lists")
        if is_chat(reference):  # the answer is a message of its own, or the last of the conversation
            asked = reference[:-1] if self.answer_key == self.question_key else asked
            reference = _content(reference[-1]["content"], str(self.answer_key))
        if isinstance(reference, str) and is_empty(reference := _drop_first_thinking(reference)):
            raise BadArgument(f"column {self.answer_key!r} has nothing behind its thinking")
        question = "" if is_empty(asked) else as_text(asked, self.question_key)  # a picture alone
        if self.context_key is not None and not is_empty(context := cell(row, self.context_key)):
            question = f"{as_context(context, self.context_key)}\n\n{question}"
        return question, reference if self.read is None else self.read(reference, row)

    def check(self) -> None:
        """Refuse bad rows; rows of a file are checked once per process.

        Raises:
            BadArgument: with all bad rows, with their places.
        """
        memory = getattr(self.rows, "checked", None)
        key = (self.question_key, self.answer_key, self.images_key, self.context_key, self.read)
        if memory is not None and key in memory:
            return
        bad = self.bad_rows()
        if bad:
            raise BadArgument(self.describe_bad_rows(bad))
        images, rows = self.images_key, (row for row in scan(self.rows) if isinstance(row, Mapping))
        if images is not None and not any(has_cell(row, images) for row in rows):
            raise BadArgument(f"{self.name}: {_name_missing(images, next(scan(self.rows)))}")
        if memory is not None:
            memory.add(key)

    def bad_rows(self) -> dict[str, list[int]]:
        """Return the numbers of all bad rows, by what is wrong with them."""
        reasons: dict[str, list[int]] = {}
        column = self.images_key
        if column is not None:
            cells = (raw_cell(row, column) for row in scan(self.rows) if isinstance(row, Mapping))
            first = next((each for each in cells if not is_empty(each)), None)
            named = isinstance(first, str) or (isinstance(first, list) and isinstance(first[0], str))
        for index, row in enumerate(scan(self.rows, None if column is None or named else column)):
            try:
                if isinstance(row, BadRow):
                    raise row
                self._parts(row)
                if column is not None and (named or has_cell(row, column)):
                    self._check_pictures(row)
            except BadArgument as error:
                reason = error.reason if isinstance(error, BadRow) else str(error)
                reasons.setdefault(reason, []).append(index)
        return reasons

    def _check_pictures(self, row: Mapping[str, Any]) -> None:
        """Refuse a row with neither a question nor a picture, and what is no picture, by its first bytes."""
        pictures = _list_pictures(raw_cell(row, str(self.images_key)))
        if not pictures and is_empty(cell(row, self.question_key)):
            raise BadArgument(f"column {self.question_key!r} is empty, and there is no picture")
        for each in pictures:
            if not hasattr(each, "save"):  # of Pillow, which is one
                _picture(each, self.folder, _MAGIC_BYTES)

    def describe_bad_rows(self, bad: Mapping[str, Sequence[int]], most: int = MOST_REASONS) -> str:
        """Return the text about bad rows."""
        total = sum(map(len, bad.values()))
        if len(bad) == 1 and total == len(self):
            whole = "every row" if total > 1 else place_of(self.rows, 0)
            return f"{self.name}, {whole}: {next(iter(bad))}"
        reasons = [f"  {self._places(numbers)}: {reason}" for reason, numbers in bad.items()]
        if len(reasons) > most:
            reasons[most:] = [
                f"  ... and {len(reasons) - most} other reasons; `gem-gym audit --data` lists all."
            ]
        whole = f"{total} of {len(self)} rows cannot be used"
        return "\n".join((f"{self.name}: {whole}. Mend them, or leave them out:", *reasons))

    def _places(self, numbers: Sequence[int]) -> str:
        """Return the places of rows, neighbours as a range: ``line 3, lines 7 to 9``."""
        ranges: list[list[int]] = []
        for number in numbers:
            if ranges and ranges[-1][1] == number - 1 and self._file(number) == self._file(number - 1):
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        texts = []
        for first, last in ranges:
            text = place_of(self.rows, first)
            texts.append(text if first == last else _range(text, place_of(self.rows, last)))
        return ", ".join(texts)

    def _file(self, index: int) -> str:
        return place_of(self.rows, index).rpartition(" ")[0]


def _range(first: str, last: str) -> str:
    """Return two places of one file as a range: ``lines 7 to 9``."""
    where, _, number = first.rpartition(" ")
    return f"{where}s {number} to {last.rpartition(' ')[2]}"


def _name_missing(key: str, row: Any) -> str:
    return (
        f"no column {key!r}.{did_you_mean(key, map(str, row))} It has: "
        f"{', '.join(map(repr, row))}. Name them with question_key= and answer_key= (--columns)."
    )


def has_cell(row: Mapping[str, Any], key: str) -> bool:
    """Return whether a row has a column; see `cell`."""
    if key in row:
        return True
    home, dot, rest = key.partition(".")
    return bool(dot) and isinstance(row.get(home), Mapping) and has_cell(row[home], rest)


def cell(row: Mapping[str, Any], key: str) -> Any:
    """Return the value of a cell by its column, in which dots lead into mappings; None if there is none.

    It is plain: see `plain_value`. A picture is read by `raw_cell`.
    """
    return plain_value(raw_cell(row, key))


def raw_cell(row: Mapping[str, Any], key: str) -> Any:
    """Return a cell as it is, but lists and numbers of numpy as those of Python; see `cell`.

    A number of 32 bits is the shortest decimal that it stands for: 0.1, not 0.10000000149011612.
    """
    if key not in row and "." in key:
        home, _, rest = key.partition(".")
        inner = row.get(home)
        return raw_cell(inner, rest) if isinstance(inner, Mapping) else None
    value: Any = row.get(key)
    if not hasattr(value, "tolist"):
        return value
    short = str(getattr(value, "dtype", "")) in SHORT_FLOATS
    return (value.astype(str).astype(float) if short else value).tolist()


def plain_value(value: Any) -> Any:
    """Return a value as JSON has it, so that a row means the same from each kind of source.

    Bytes are text, and a decimal, a fraction, a date and a time are as they are written, also in a list. What
    has no such form, as bytes of a picture, is unchanged.
    """
    if isinstance(value, list) and any(isinstance(each, _WRITTEN) for each in value):
        return [plain_value(each) for each in value]
    if not isinstance(value, _WRITTEN):
        return value
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            return value.decode()
        return value
    if value != value:  # no number, and no time of pandas
        return None
    if isinstance(value, datetime):
        midnight = value.tzinfo is None and value.time() == time()
        return (value.date() if midnight else value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_WRITTEN = (bytes, Decimal, Fraction, date, time)


def is_chat(value: Any) -> bool:
    """Return whether a value is a list of chat messages: mappings with a role and content."""
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(each, Mapping) and "role" in each and "content" in each for each in value)
    )


def as_text(value: Any, column: str) -> str:
    """Return a cell as text: text, a number, or chat messages, which are joined.

    Of messages of a system and a user only the contents are kept; in a longer conversation each begins with
    its role.

    Raises:
        BadArgument: for a cell of another kind.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return str(value)
    if not is_chat(value):
        raise BadArgument(
            f"column {column!r} is {type(value).__name__} {value!r:.60}; accepted: text, or chat messages (a "
            "list of mappings with role and content)."
        )
    turns = [(str(each["role"]), _content(each["content"], column)) for each in value]
    if all(role in ("system", "developer", "user") for role, _ in turns):
        return "\n\n".join(text for _, text in turns if text.strip())
    return "\n\n".join(f"{role.capitalize()}: {text}" for role, text in turns)


def _drop_first_thinking(text: str) -> str:
    """Return an answer without the thinking that it begins with, as those of reasoning models have it.

    Tags that stand elsewhere are text, as in the tests of a program.
    """
    start, _ = next(find_thinking(text), (len(text), 0))
    return text if text[:start].strip() else drop_thinking(text).strip()


def is_context(value: Any) -> bool:
    """Return whether a cell can be a context; see `as_context`."""
    return isinstance(value, str) or _paragraphs_of(value) is not None


def as_context(value: Any, column: str) -> str:
    """Return a context as text: text, a list of texts, or titles with the sentences of each, as HotpotQA has.

    Raises:
        BadArgument: for a cell of another kind.
    """
    paragraphs = _paragraphs_of(value)
    return as_text(value, column) if paragraphs is None else "\n\n".join(paragraphs)


def _paragraphs_of(value: Any) -> list[str] | None:
    """Return the paragraphs of a context that is no text; None if it is none."""
    if isinstance(value, Mapping):
        titles, sentences = value.get("title"), value.get("sentences")
        if not isinstance(titles, list) or not isinstance(sentences, list) or len(titles) != len(sentences):
            return None
        value = [*zip(titles, sentences, strict=True)]
    if not isinstance(value, list) or not value or is_chat(value):
        return None
    paragraphs = []
    for each in value:
        titled = isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[1], list)
        title, own = each if titled else ("", each)
        texts = [*([f"{title}\n"] if title else []), *(own if isinstance(own, list) else [own])]
        texts = [text for text in texts if text is not None]
        if not all(isinstance(text, str) for text in texts):
            return None
        paragraphs.append("".join(texts))
    return paragraphs


def _content(value: Any, column: str) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    parts = value if isinstance(value, list | tuple) else []
    texts = [
        each["text"] for each in parts if isinstance(each, Mapping) and isinstance(each.get("text"), str)
    ]
    if not parts or len(texts) < len(parts):
        raise BadArgument(
            f"column {column!r} has a message whose content is {value!r:.60}; accepted: text, or text parts."
        )
    return "\n".join(texts)


def is_empty(value: object) -> bool:
    """Return whether a value is nothing: blank text, NaN, or a list of such values."""
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, list | tuple):
            parts += part
        elif isinstance(part, str):
            if part.strip():
                return False
        elif part is not None and not (isinstance(part, float) and math.isnan(part)):
            return False
    return True


def _is_deep(value: object) -> bool:
    """Return whether a value is nested in more than MOST_NESTED lists and mappings."""
    parts = [value]
    for _ in range(MOST_NESTED + 1):
        insides = (list(part.values()) if isinstance(part, Mapping) else part for part in parts)
        parts = [each for inside in insides if isinstance(inside, list | tuple) for each in inside]
    return bool(parts)


# -- finding


def _open(name: str, split: str | None) -> tuple[Rows, str, Path | None]:
    """Return the rows of a name or path, their name in messages, and the folder of their pictures."""
    path = find(name)
    if path is None:
        there = Path(name).expanduser()
        if there.is_file():
            raise BadArgument(
                f"{name!r} is a file of a type that is not read; accepted: names with {', '.join(SUFFIXES)}."
            )
        if "://" in name:
            raise BadArgument(f"{name!r} is an address; download the file, and name it here.")
        if is_place(name):
            raise MissingData(f"there is no file or folder {name!r}; the working folder is {os.getcwd()}.")
    rows = open_once(FileRows, path, split) if path else open_once(HubRows, name, split)
    return rows, f"{name}, {split}" if split else name, rows.folder


def is_place(name: str) -> bool:
    """Return whether a name is evidently a path, not a data set of the hub."""
    return name.lower().endswith((*SUFFIXES, "/")) or name.startswith((".", "/", "~"))


def find(name: str) -> Path | None:
    """Return the file or folder of a data set: the name as a path, or else below GEM_DATA.

    A name without an ending may mean a file that has one; below GEM_DATA such a file is looked for first.
    """
    here = Path(name).expanduser()
    places = [here]
    if os.environ.get("GEM_DATA"):
        home = Path(os.environ["GEM_DATA"]).expanduser()
        places = [home / name, home / here.name, here]
    for path in (here, *(Path(f"{place}{suffix}") for place in places for suffix in ("", *SUFFIXES))):
        if path.is_dir() or is_data_file(path):
            return path.absolute()
    return None


def digest_of(*sources: Any) -> str:
    """Return a digest of the files and folders among sources; those of the hub are left out.

    Raises:
        BadArgument: for a file that cannot be read, and a folder as of `files_below`.
    """
    content = hashlib.blake2b(digest_size=8)
    for source in sources:
        place = find(str(source)) if isinstance(source, str | Path) else None
        for path in () if place is None else files_below(place):
            content.update(digest_file(path))
    return content.hexdigest()


def missing(name: str, split: str | None, why: str) -> MissingData:
    """Build the error for missing data, which names the three ways to supply it."""
    home, last = os.environ.get("GEM_DATA"), Path(name).name
    if not home:
        looked = "GEM_DATA is not set"
    elif not Path(home).expanduser().is_dir():
        looked = f"GEM_DATA is {home!r}, which is no folder"
    else:
        looked = f"{home!r} has neither {name} nor {last}"
    # One file stands for the split `train`, or for all; any other is a file in a folder.
    layout = (
        f"{last}.jsonl (or .csv, .parquet, or a folder of that name with a file per split)"
        if split in (None, "train")
        else f"{last}/{split}.jsonl (or .csv, .parquet)"
    )
    return MissingData(
        f"the data set {name!r} is not here ({looked}) and not reachable ({why}). Supply it in one of three "
        f"ways: (1) set GEM_DATA to a folder that holds {layout}; (2) give your own rows, or a path, as "
        "dataset=; (3) go online once after "
        f"{install_command('data')}: `datasets` keeps a copy in its cache."
    )


# -- the hub


class HubRows(Sequence[Mapping[str, Any]]):
    """The rows of a data set of the Hugging Face hub. They are pickled as its name and opened again."""

    folder: Path | None = None

    def __init__(self, name: str, split: str | None) -> None:
        self.name = name
        self.split = split
        self.checked: set[Any] = set()
        self.merged = MergedRow()
        self._rows = one_split(_from_hub(name, split), split, name)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def scan(self, without: str | None) -> Iterator[Mapping[str, Any] | BadRow]:
        """See `gem.tasks.files.scan`."""
        return scan(self._rows, without)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_once, (HubRows, self.name, self.split)


def _from_hub(name: str, split: str | None) -> Any:
    """Load a name with `datasets`, from its cache if the hub cannot be reached.

    Raises:
        MissingData: when it is neither in the cache nor reachable.
    """
    if not _is_cached(name) and (why := _unreachable()):
        raise missing(name, split, why)  # before the import of `datasets`, which takes seconds
    try:
        return import_datasets().load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:  # all that absence, networks and permissions raise
        why = f"{type(error).__name__}: {str(error)[:200]}{through_proxy(_hub())}"
        raise missing(name, split, why) from error


def _unreachable() -> str:
    """Return why the hub cannot be reached; ``""`` if it may be reachable."""
    for switch in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(switch, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"{switch} is set"
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return ""  # the proxy resolves names; only its own client can tell
    hub = urlsplit(_hub())
    port = hub.port or (443 if hub.scheme == "https" else 80)
    try:
        socket.create_connection((hub.hostname or "", port), timeout=PROBE_S).close()
    except OSError as error:
        return f"{hub.hostname}: {error}"
    return ""


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _is_cached(name: str) -> bool:
    """Return whether a cache of the hub's clients has the name."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    built = Path(os.environ.get("HF_DATASETS_CACHE") or home / "datasets").expanduser()
    fetched = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    owner, slash, short = name.rpartition("/")
    start = f"{owner}___" if slash else ""
    # `datasets` writes the short name in its own snake case; letters and digits survive that
    plain = "".join(filter(str.isalnum, short)).lower()
    known = built.iterdir() if built.is_dir() else ()
    return (fetched / f"datasets--{name.replace('/', '--')}").is_dir() or any(
        each.name.startswith(start)
        and "".join(filter(str.isalnum, each.name.removeprefix(start))).lower() == plain
        for each in known
    )


# -- pictures


def _place_pictures(text: str, pictures: list[Image]) -> Obs:
    """Return a question with its pictures at their placeholders in the text, or else before it."""
    pieces = text.split(PLACEHOLDER)
    if len(pieces) - 1 != len(pictures):
        return (*pictures, Text("".join(pieces).strip()))
    parts: list[Part] = []
    for at, piece in enumerate(pieces):
        parts += [Text(piece.strip())] if piece.strip() else []
        parts += pictures[at : at + 1]
    return tuple(parts)


def _pictures(value: Any, folder: Path | None) -> list[Image]:
    return [_picture(each, folder) for each in _list_pictures(value)]


def _list_pictures(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [] if is_empty(value) else [value]


def _picture(value: Any, folder: Path | None, most: int = -1) -> Image:
    """Return one picture from bytes, base64, a path in the data's folder, a mapping of these, or Pillow.

    `most`: the most bytes to read of a file; -1: all.

    Raises:
        BadArgument: for anything else, or a path that leads out of the folder.
    """
    if isinstance(value, Image):
        return value
    given = value
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if hasattr(value, "save"):
        file = io.BytesIO()
        value.save(file, format="PNG")
        value = file.getvalue()
    if isinstance(value, str):
        value = _from_text(value, folder, most)
    if isinstance(value, bytes):
        mime = next((mime for magic, mime in _MIMES.items() if value.startswith(magic)), None)
        if mime:
            return Image(value, mime)
    raise BadArgument(
        f"a picture is {type(given).__name__} {given!r:.60}; accepted: PNG, JPEG, GIF or WebP as bytes, "
        "base64, a path in the data's folder, a Pillow image."
    )


def _from_text(value: str, folder: Path | None, most: int) -> bytes | str:
    if folder is not None and len(value) < 1024 and os.path.isfile(folder / value):
        path = (folder / value).resolve()
        if path.is_relative_to(folder.resolve()):
            with path.open("rb") as file:
                return file.read(most)
    try:
        return base64.b64decode(value.rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return value
