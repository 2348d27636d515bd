"""Sources of tasks: rows in memory, files, folders, and data sets of the Hugging Face hub.

`load` opens all of them. It returns a TaskSet over rows with any column names. This module reads files
itself, Parquet with pyarrow, and the hub with `datasets`, which has its own cache and offline mode.
"""

from __future__ import annotations

import base64
import binascii
import csv
import gzip
import io
import json
import math
import os
import re
import socket
import weakref
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from gem.content import Image, Obs, Part, Text
from gem.errors import BadArgument, GemError, MissingData, did_you_mean, install_command, missing_extra
from gem.tasks.base import Task, TaskSet
from gem.tasks.order import Order

Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Anything with a length whose items, by index, are mappings from column names."""

Source: TypeAlias = str | Path | Rows | TaskSet | Mapping[str, Rows]
"""A source of tasks: the name of a data set, a path, rows, rows by split, or tasks."""

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".parquet")
"""The supported file types."""

PROBE_S = 3.0
"""Seconds for the hub to accept a connection; without this limit its client tries for half a minute."""

PLACEHOLDER = "<image>"
"""The placeholder of a picture in a question's text."""

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_SAVED = ("dataset_dict.json", "dataset_info.json")  # in a folder that `datasets` wrote by save_to_disk
_MIMES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def load(
    source: Source,
    split: str | None = None,
    question_key: str = "problem",
    answer_key: str = "answer",
    images_key: str | None = None,
) -> TaskSet:
    """Return the tasks of a source.

    Args:
        source: rows (a list of mappings, a `datasets.Dataset`), a TaskSet, the path of a file or folder, or
            the name of a data set, which is searched in the folder GEM_DATA, then on the Hugging Face hub.
        split: the split; None if there is only one.
        question_key: the column with the question for the agent.
        answer_key: the column with the reference for the grader.
        images_key: the column with a picture or a list of pictures.

    Raises:
        MissingData: when the data set is neither local nor reachable.
        BadArgument: for an empty source, an unknown split or column, a file that cannot be read.
        MissingExtra: for Parquet, or the hub, without the extra `data`.
    """
    if isinstance(source, str | Path):
        rows, name, folder = _open(str(source), split)
    elif isinstance(source, TaskSet) and hasattr(source, "order"):
        return source
    else:
        rows, name, folder = _one_split(source, split, "dataset"), "dataset", None
    if not len(rows):
        raise BadArgument(f"{name} has no rows; one or more are needed.")
    _check_columns(rows[0], name, question_key, answer_key, images_key)
    return RowTasks(name, rows, question_key, answer_key, images_key, folder)


@dataclass(frozen=True, eq=False)
class RowTasks:
    """A TaskSet over rows: two columns are question and reference, the others go into the task's info."""

    name: str
    rows: Rows
    question_key: str
    answer_key: str
    images_key: str | None = None
    folder: Path | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> Task:
        """Return the task of one row.

        Raises:
            BadArgument: when the row lacks a column or its value.
        """
        row = self.rows[index]
        keys = (self.question_key, self.answer_key, self.images_key)
        _check_columns(row, f"{self.name}, row {index}", *keys)
        asked = () if self.images_key is not None else (self.question_key,)
        for key in (*asked, self.answer_key):
            if _is_empty(row[key]):
                raise BadArgument(f"{self.name}, row {index}: column {key!r} is empty. Leave such rows out.")
        question: Obs = str(row[self.question_key])
        if self.images_key is not None:
            question = _illustrated(str(question), _pictures(row[self.images_key], self.folder))
        info = {key: value for key, value in row.items() if key not in keys}
        return Task(str(index), question, row[self.answer_key], info)

    def reference(self, index: int) -> Any:
        """Return the answer of one row without reading its pictures."""
        return self.rows[index][self.answer_key]

    def order(self, seed: int, epoch: int = 0) -> Order:
        """Return a permutation of the indices: a pure function of its arguments."""
        return Order(len(self), seed, epoch)


def _is_empty(value: object) -> bool:
    """Return whether a value is nothing: blank text, NaN, or a list of such values."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, list | tuple):
        return all(map(_is_empty, value))
    return value is None or (isinstance(value, float) and math.isnan(value))


def _check_columns(row: object, name: str, *keys: str | None) -> None:
    if not isinstance(row, Mapping):
        raise BadArgument(f"{name}: a row is {type(row).__name__} {row!r:.80}; accepted: mappings (dict).")
    for key in keys:
        if key is not None and key not in row:
            raise BadArgument(
                f"{name} has no column {key!r}.{did_you_mean(key, map(str, row))} It has: "
                f"{', '.join(map(repr, row))}. Name them with question_key= and answer_key=."
            )


# -- finding


_OPENED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_LOCK = Lock()


def _open(name: str, split: str | None) -> tuple[Rows, str, Path | None]:
    """Return the rows of a name or path, their name in messages, and the folder of their pictures."""
    path = find(name)
    if path is None and (name.endswith(SUFFIXES) or name.startswith((".", "/", "~"))):
        raise MissingData(f"there is no file or folder {name!r}; the working folder is {os.getcwd()}.")
    rows = _once(FileRows, path, split) if path else _once(HubRows, name, split)
    return rows, f"{name}, {split}" if split else name, rows.folder


def _once(kind: type, source: str | Path, split: str | None) -> Any:
    """Return the rows of a source, which is opened once per process for all environments."""
    with _LOCK:
        rows = _OPENED.get((kind, source, split))
        if rows is None:
            rows = _OPENED[kind, source, split] = kind(source, split)
        return rows


def find(name: str) -> Path | None:
    """Return the file or folder of a data set: its name under GEM_DATA, or the name itself as a path."""
    places = [Path(name).expanduser()]
    if os.environ.get("GEM_DATA"):
        home = Path(os.environ["GEM_DATA"]).expanduser()
        places = [home / name, home / Path(name).name, *places]
    for place in places:
        for suffix in ("", *SUFFIXES):
            path = Path(f"{place}{suffix}")
            if path.is_dir() or (path.is_file() and path.name.endswith(SUFFIXES)):
                return path.absolute()
    return None


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


# -- files


class FileRows(Sequence[Mapping[str, Any]]):
    """The rows of a file, or of one split of a folder. They are pickled as the path and opened again."""

    def __init__(self, path: Path, split: str | None) -> None:
        self.path = path
        self.split = split
        self.folder = path if path.is_dir() else path.parent
        self._parts = [_read(file) for file in _files(path, split)]
        if isinstance(self._parts[0], Mapping):
            self._parts = [_one_split(self._parts[0], split, str(path))]
        elif path.is_file() and split not in (None, "train"):
            raise BadArgument(
                f"{path} is one file without splits, and split is {split!r}. Drop split=, or make a folder "
                f"of that name with a file {split}.jsonl in it."
            )
        self._ends = [sum(map(len, self._parts[: at + 1])) for at in range(len(self._parts))]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        part = next(at for at, end in enumerate(self._ends) if index < end)
        return self._parts[part][index - (self._ends[part - 1] if part else 0)]

    def __reduce__(self) -> tuple[Any, ...]:
        return _once, (FileRows, self.path, self.split)


def _files(path: Path, split: str | None) -> list[Path]:
    """Return the files of a split, in order: ``train.jsonl``, or ``train-00000-of-00002.parquet`` and on."""
    if path.is_file() or any((path / name).is_file() for name in _SAVED):
        return [path]
    files = sorted(
        file
        for folder in (path, path / "data", *([path / split] if split else []))
        for file in (folder.iterdir() if folder.is_dir() else ())
        if file.is_file() and file.name.endswith(SUFFIXES)
    )
    splits = {file: _SHARD.sub("", file.name.partition(".")[0]) for file in files}
    if split is not None:
        found = [file for file in files if splits[file] == split or file.parent == path / split]
    else:
        found = files if len(set(splits.values())) == 1 else []
    if not found:
        known = sorted(set(splits.values()))
        wanted = f"no split {split!r}" if split else "more than one split, and none was named"
        listing = f"it has {', '.join(known)}" if known else f"it has no file of {', '.join(SUFFIXES)}"
        raise BadArgument(f"{path}: {wanted}; {listing}. Name one with split=.")
    return found


def _read(path: Path) -> Any:
    """Open one file and return its rows; a mapping of splits to rows where a JSON file holds one."""
    try:
        if path.is_dir():
            return _datasets().load_from_disk(str(path))
        if path.name.endswith(".parquet"):
            return ParquetRows(path)
        if path.name.endswith(".jsonl"):
            return JsonLines(path)
        if path.name.endswith(".jsonl.gz"):
            with gzip.open(path) as packed:
                return [json.loads(line) for line in packed if line.strip()]
        if path.name.endswith(".json"):
            return json.loads(path.read_bytes())
        with path.open(encoding="utf-8-sig", newline="") as file:
            return _table(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True))
    except GemError:
        raise
    except (OSError, ValueError, csv.Error) as error:  # pyarrow's errors are ValueErrors
        raise BadArgument(f"{path} cannot be read: {error}") from error


def _table(reader: csv.DictReader[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file.

    Raises:
        ValueError: for two columns of one name, and for a row with more cells than columns.
    """
    names = [name for name in reader.fieldnames or () if name]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"the column {twice[0]!r} is there twice.")
    rows = []
    for number, row in enumerate(reader):
        surplus = row.pop(None, ())  # where DictReader puts such cells
        if any(cell.strip() for cell in surplus):
            raise ValueError(
                f"row {number} has more cells than there are columns; put double quotes around text with "
                "commas."
            )
        rows.append(row)
    return rows


class JsonLines(Sequence[Mapping[str, Any]]):
    """The rows of a JSON Lines file, read one by one from the file.

    The file is not mapped into memory, because truncating a mapped file would kill the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts, self._lengths, at = array("Q"), array("Q"), 0
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    self._starts.append(at)
                    self._lengths.append(len(line))
                at += len(line)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        line = os.pread(self._file, self._lengths[index], self._starts[index])
        try:
            return json.loads(line)
        except ValueError as error:
            raise BadArgument(f"{self.path}, row {index} is not JSON: {error}") from error


class ParquetRows(Sequence[Mapping[str, Any]]):
    """The rows of a Parquet file."""

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import parquet
        except ImportError as error:
            raise missing_extra("a Parquet file", "pyarrow", "data") from error
        self._table = parquet.read_table(path)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: Any) -> Any:
        return self._table.slice(index, 1).to_pylist()[0]


# -- the hub


class HubRows(Sequence[Mapping[str, Any]]):
    """The rows of a data set of the Hugging Face hub. They are pickled as its name and opened again."""

    folder: Path | None = None

    def __init__(self, name: str, split: str | None) -> None:
        self.name = name
        self.split = split
        self._rows = _one_split(_from_hub(name, split), split, name)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return _once, (HubRows, self.name, self.split)


def _from_hub(name: str, split: str | None) -> Any:
    """Load a name with `datasets`, from its cache if the hub cannot be reached.

    Raises:
        MissingData: when it is neither in the cache nor reachable.
    """
    if not _cached(name) and (why := _unreachable()):
        raise missing(name, split, why)  # before the import of `datasets`, which takes seconds
    try:
        return _datasets().load_dataset(name)
    except (OSError, ValueError, RuntimeError) as error:  # all that absence, networks and permissions raise
        raise missing(name, split, f"{type(error).__name__}: {str(error)[:200]}") from error


def _unreachable() -> str:
    """Return why the hub cannot be reached; ``""`` if it may be reachable."""
    for switch in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if os.environ.get(switch, "").upper() in ("1", "ON", "YES", "TRUE"):
            return f"{switch} is set"
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return ""  # the proxy resolves names; only its own client can tell
    hub = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = hub.port or (443 if hub.scheme == "https" else 80)
    try:
        socket.create_connection((hub.hostname or "", port), timeout=PROBE_S).close()
    except OSError as error:
        return f"{hub.hostname}: {error}"
    return ""


def _cached(name: str) -> bool:
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


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise missing_extra("a data set of the hub", "datasets", "data") from error
    return datasets


def _one_split(dataset: Any, split: str | None, name: str) -> Any:
    """Return the rows of the chosen split, if `dataset` is a mapping of splits to rows."""
    if not isinstance(dataset, Mapping):
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or isinstance(dataset, str):
            raise BadArgument(
                f"{name} is {type(dataset).__name__} {dataset!r:.80}; accepted: a list of mappings, a "
                "datasets.Dataset, a TaskSet, a path or a data set's name."
            )
        return dataset
    known = [str(key) for key in dataset]
    if split is None and len(known) == 1:
        return dataset[known[0]]
    if split not in dataset:
        asked = "more than one split, and none was named" if split is None else f"no split {split!r}"
        raise BadArgument(f"{name}: {asked}; it has {', '.join(known) or 'none'}. Name one with split=.")
    return dataset[split]


# -- pictures


def _illustrated(text: str, pictures: list[Image]) -> Obs:
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
    values = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [_picture(each, folder) for each in values]


def _picture(value: Any, folder: Path | None) -> Image:
    """Return one picture from bytes, base64, a path in the data's folder, a mapping of these, or Pillow.

    Raises:
        BadArgument: for anything else, or a path that leads out of the folder.
    """
    if isinstance(value, Image):
        return value
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if hasattr(value, "save"):
        file = io.BytesIO()
        value.save(file, format="PNG")
        value = file.getvalue()
    if isinstance(value, str):
        value = _from_text(value, folder)
    if isinstance(value, bytes):
        mime = next((mime for magic, mime in _MIMES.items() if value.startswith(magic)), None)
        if mime:
            return Image(value, mime)
    raise BadArgument(
        f"a picture is {type(value).__name__} {value!r:.60}; accepted: PNG, JPEG, GIF or WebP as bytes, "
        "base64, a path in the data's folder, a Pillow image."
    )


def _from_text(value: str, folder: Path | None) -> bytes | str:
    if folder is not None:
        path = (folder / value).resolve() if len(value) < 1024 else folder
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path.read_bytes()
    try:
        return base64.b64decode(value.rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return value
