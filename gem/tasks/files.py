"""Read rows from files and folders: JSON Lines, JSON, CSV, TSV, Parquet, and what `datasets` saved.

The rows of a file are a sequence of mappings from column names. `place_of` returns where a row is, such as
``line 7``, for messages.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import os
import re
import weakref
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any

from gem.errors import BadArgument, GemError, needs_extra, reason
from gem.files import open_file, read_bytes

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".parquet")
"""The supported file types."""

LONGEST_ROW, MOST_UNPACKED = 64 << 20, 1 << 30
"""The most bytes of a line (of a cell of CSV: characters), and of all lines of a compressed file."""

MOST_FILES = 100_000
"""The most files of a folder of data, pictures too."""

MOST_TIMES = 100
"""How often a Parquet file's own size its rows may take in memory, if they take more than MOST_UNPACKED."""

ROWS_AT_ONCE = 256
_SHARD = re.compile(r"[-.](\d{5})-of-(\d{5})(?!\d).*")  # `datasets` once wrote a digest after it
_SAVED = ("dataset_dict.json", "dataset_info.json")  # in a folder that `datasets` wrote by save_to_disk
_MARKS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16"}
_MARKS |= {b"\xfe\xff": "UTF-16"}
_UTF8_MARK = b"\xef\xbb\xbf"


class MergedRow(dict[str, Any]):
    """A row with each column of a data set.

    `gaps` are the columns that its first row lacks, and those of final answers that are empty in some row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.gaps: set[str] = set()


class BadRow(BadArgument):
    """A row that cannot be read; `reason` says why, without the row's place."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.reason = reason


def is_data_file(path: Path) -> bool:
    """Return whether a file has a supported type, by its name in any case."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


def place_of(rows: Any, index: int) -> str:
    """Return where a row is in its file, as ``line 7``, or else its number, as ``row 6``."""
    place: Callable[[int], str] | None = getattr(rows, "place", None)
    return f"row {index}" if place is None else place(index)


def scan(rows: Any, without: str | None = None) -> Iterator[Mapping[str, Any] | BadRow]:
    """Yield every row, or the error of one that cannot be read; without this column where that is cheaper."""
    if hasattr(rows, "scan"):
        yield from rows.scan(without)
        return
    if without is not None and without in getattr(rows, "column_names", ()):  # a data set of `datasets`
        rows = rows.remove_columns([without])
    for index in range(len(rows)):
        try:
            yield rows[index]
        except BadRow as error:
            yield error


# -- one process opens a source once

_OPENED: weakref.WeakValueDictionary[tuple[Any, ...], Any] = weakref.WeakValueDictionary()
_LOCK = Lock()


def open_once(kind: type, source: str | Path, split: str | None) -> Any:
    """Return the rows of a source, which is opened once per process for all environments."""
    with _LOCK:
        state = _state_of_all(source, split) if isinstance(source, Path) else None
        rows = _OPENED.get((kind, source, split, state))
        if rows is None:
            rows = _OPENED[kind, source, split, state] = kind(source, split)
        return rows


def _state_of_all(path: Path, split: str | None) -> Any:
    """Return what changes when a file, or one that a folder's rows are read from, is written again."""
    if not path.is_dir():
        return _state(path)
    with contextlib.suppress(BadArgument):  # it has no data, which reading it says
        files = _files(path, split)
        if files == [path]:  # that `datasets` saved: its rows are beside its description, or a folder below
            files += [*path.glob("*.arrow"), *path.glob("*/*.arrow")]
        return tuple((file, _state(file)) for file in files)
    return None


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when a file is written again."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


# -- a file or folder


class FileRows(Sequence[Mapping[str, Any]]):
    """The rows of a file, or of one split of a folder. They are pickled as the path and opened again."""

    def __init__(self, path: Path, split: str | None) -> None:
        self.path = path
        self.split = split
        self.folder = path if path.is_dir() else path.parent
        files = _files(path, split)
        self._parts = [_read(file) for file in files]
        self._names = [file.name for file in files]
        if isinstance(self._parts[0], Mapping):
            self._parts = [one_split(self._parts[0], split, str(path))]
            if isinstance(self._parts[0], Mapping | str) or not hasattr(self._parts[0], "__len__"):
                raise BadArgument(f"{path}: the split holds no rows; accepted: a list of them.")
        elif path.is_file() and split not in (None, "train"):
            raise BadArgument(
                f"{path} is one file without splits, and split is {split!r}. Drop split=, or make a folder "
                f"of that name with a file {split}.jsonl in it."
            )
        self.delimiter: str | None = getattr(self._parts[0], "delimiter", None)  # of a CSV file
        self._ends = [sum(map(len, self._parts[: at + 1])) for at in range(len(self._parts))]
        self.checked: set[Any] = set()
        self.merged = MergedRow()

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: Any) -> Any:
        part, at = self._place(index)
        return self._parts[part][at]

    def _place(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        part = next(at for at, end in enumerate(self._ends) if index < end)
        return part, index - (self._ends[part - 1] if part else 0)

    def place(self, index: int) -> str:
        """Return where a row is, with its file if there are several."""
        part, at = self._place(index)
        place = place_of(self._parts[part], at)
        return place if len(self._parts) == 1 else f"{self._names[part]}, {place}"

    def scan(self, without: str | None) -> Iterator[Mapping[str, Any] | BadRow]:
        """See `scan`."""
        for part in self._parts:
            yield from scan(part, without)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_once, (FileRows, self.path, self.split)


def files_below(path: Path) -> list[Path]:
    """Return the files of a data set in order, its pictures too: the file itself, or all in a folder.

    Raises:
        BadArgument: where none is of a supported type, and for more than MOST_FILES, as a whole machine has.
    """
    if not path.is_dir():
        return [path]
    if not any(map(is_data_file, chain(path.glob("*"), path.glob("*/*")))):
        raise _without_data(path)
    return sorted(_list_files(path))


def digest_file(path: Path) -> bytes:
    """Return a digest of a file, which is read once per process, and again when it is written again.

    Raises:
        BadArgument: when it cannot be read.
    """
    try:
        return _digest_state(path.absolute(), _state(path))
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {reason(error)}.") from error


@lru_cache(maxsize=MOST_FILES)
def _digest_state(path: Path, state: tuple[int, int] | None) -> bytes:
    with open_file(path) as file:
        return hashlib.file_digest(file, "blake2b").digest()


def digest_folders(folders: Iterable[Path]) -> str:
    """Return a digest of all files in these folders, with their paths.

    Of a file of more than MOST_UNPACKED bytes only the size counts: one without content may claim any.

    Raises:
        BadArgument: for a file that cannot be read, and more than MOST_FILES in a folder.
    """
    content = hashlib.blake2b(digest_size=8)
    for folder in map(Path.absolute, folders):
        for path in sorted(_list_files(folder)):
            size = path.stat().st_size
            content.update(f"{path.relative_to(folder.parent)}\0{size}\0".encode(errors="surrogateescape"))
            content.update(digest_file(path) if size <= MOST_UNPACKED else b"")
    return content.hexdigest()


def _list_files(folder: Path) -> list[Path]:
    """Return the files below a folder. Raises BadArgument for more than MOST_FILES."""
    files = list(islice((file for file in folder.rglob("*") if file.is_file()), MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise BadArgument(
            f"the folder {folder} has more than {MOST_FILES:,} files, which would all be read; give the data "
            "a folder of its own, or name its file."
        )
    return files


def _files(path: Path, split: str | None) -> list[Path]:
    """Return the files of a split, in order: ``train.jsonl``, or ``train-00000-of-00002.parquet`` and on."""
    if path.is_file() or any((path / name).is_file() for name in _SAVED):
        return [path]
    folders = {path, path / "data", *([path / split] if split else [])}
    files = sorted(
        file
        for folder in folders
        for file in (folder.iterdir() if folder.is_dir() else ())
        if is_data_file(file)
    )
    if not files:
        raise _without_data(path)
    splits = {file: _read_name(file)[0].partition(".")[0] for file in files}
    if split is not None:
        chosen = [file for file in files if splits[file] == split or file.parent == path / split]
    else:
        chosen = files if len(set(splits.values())) == 1 else []
    if not chosen:
        wanted = f"no split {split!r}" if split else "more than one split, and none was named"
        raise BadArgument(
            f"{path}: {wanted}; it has {', '.join(sorted(set(splits.values())))}. Name one with split= "
            "(--split)."
        )
    _refuse_copies(path, split, chosen)
    return chosen


def _read_name(file: Path) -> tuple[str, str, str, str]:
    """Return the name of a file of data, its ending, and its number and the total if it is a shard."""
    ending = max((each for each in SUFFIXES if file.name.lower().endswith(each)), key=len)
    name = file.name[: -len(ending)]
    shard = _SHARD.search(name)
    return (name[: shard.start()], ending, shard[1], shard[2]) if shard else (name, ending, "", "")


def _refuse_copies(path: Path, split: str | None, files: Sequence[Path]) -> None:
    """Refuse files that may hold rows of a split twice, and shards without the rest of their set.

    A folder named as the split may hold several names: all in it is the split.

    Raises:
        BadArgument: with the files.
    """
    places, copies = set(), False
    totals: dict[str, dict[str, str]] = {}  # of each name, by the numbers of its shards
    for file in files:
        name, ending, number, total = _read_name(file)
        is_own = split is not None and file.parent == path / split
        places.add((file.parent, ending, None if is_own else name))
        shards = totals.setdefault(name, {})
        copies |= number in shards or not {total}.issuperset(shards.values())
        shards[number] = total
    if copies or len(places) > 1:
        raise BadArgument(
            f"{path}: the split {split or next(iter(totals))!r} is in several files: "
            f"{', '.join(str(file.relative_to(path)) for file in files)}. Accepted: one file, or one set of "
            "shards, all with one name and ending and in one folder. Remove the others, or name one file."
        )
    for name, shards in totals.items():
        total = next(iter(shards.values()))
        first = int(total in shards)  # some count from 1
        lacking = [at for at in range(first, int(total or 0) + first) if f"{at:05d}" not in shards]
        if lacking:
            raise BadArgument(
                f"{path}: of {name!r} {len(lacking)} of {int(total)} shards are missing; the first is number "
                f"{lacking[0]:05d}. Get them, or name one file."
            )


def _without_data(folder: Path) -> BadArgument:
    return BadArgument(f"the folder {folder} has no file of data; accepted: {', '.join(SUFFIXES)}.")


def _read(path: Path) -> Any:
    """Open one file and return its rows; a mapping of splits to rows where a JSON file holds one."""
    name = path.name.lower()
    try:
        if path.is_dir():
            return name_classes(import_datasets().load_from_disk(str(path)))
        if name.endswith(".parquet"):
            return name_classes(ParquetRows(path))
        if name.endswith(".jsonl"):
            return JsonLines(path)
        if name.endswith(".jsonl.gz"):
            return PackedLines(path)
        if name.endswith(".json"):
            rows = json.loads(decode(path, read_bytes(path, None)))
            if not isinstance(rows, (list, dict)):
                raise BadArgument(f"{path} holds no rows; accepted: a list of them, or a mapping of splits.")
            return rows
        return Table(path)
    except GemError:
        raise
    except RecursionError:
        raise BadArgument(f"{path} cannot be read: its values are nested too deeply.") from None
    except MemoryError:
        raise BadArgument(
            f"{path} cannot be read: its rows do not fit into memory. Split the file."
        ) from None
    except (OSError, ValueError, EOFError, zlib.error) as error:  # pyarrow's errors are ValueErrors
        raise BadArgument(f"{path} cannot be read: {error}") from error


def decode(path: Path, data: bytes) -> str:
    """Return a file's text.

    Raises:
        BadArgument: when it is not UTF-8; the message names the line, and the encoding where it is evident.
    """
    _refuse_mark(path, data)
    try:
        return data.removeprefix(_UTF8_MARK).decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise BadArgument(
            f"{path}, line {line}: the byte 0x{error.object[error.start]:02x} is not UTF-8. "
            f"{_resave('WINDOWS-1252')}"
        ) from error


def _refuse_mark(path: Path, start: bytes) -> None:
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            raise BadArgument(f"{path} is {encoding}. {_resave(encoding)}")


def _resave(encoding: str) -> str:
    return f"Save it as UTF-8, for example: iconv -f {encoding} -t UTF-8 FILE > NEW."


class _Lines(Sequence[Mapping[str, Any]]):
    """Rows of a file of lines; `_lines` has the number of the line that each row begins at."""

    path: Path
    _lines: Sequence[int]

    def __len__(self) -> int:
        return len(self._lines)

    def place(self, index: int) -> str:
        """Return the line that a row begins at."""
        return f"line {self._lines[index]}"


class Table(_Lines):
    """The rows of a CSV or TSV file. A CSV file may have semicolons or tabs in place of commas."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            BadArgument: for two columns of one name, and for a quote that is not closed.
        """
        self.path = path
        text = decode(path, read_bytes(path, None))
        head = text.lstrip("\r\n").partition("\n")[0]
        self.delimiter = "\t" if path.name.lower().endswith(".tsv") else max(",;\t", key=head.count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
        self._cells: list[list[str]] = []
        self._lines = array("Q")
        line = 1
        try:
            with _long_cells():
                self.names = [name.strip() for name in next(filter(None, reader), [])]
                line = reader.line_num + 1
                for cells in reader:
                    if cells:
                        self._cells.append(cells)
                        self._lines.append(line)
                    line = reader.line_num + 1
        except csv.Error as error:
            long = "field limit" in str(error)
            why = f"a cell has more than {LONGEST_ROW:,} characters" if long else error
            raise BadArgument(
                f"{path} cannot be read: {why}, in the row of line {line}. Is a double quote not closed?"
            ) from error
        _refuse_twice(path, [name for name in self.names if name])

    def __getitem__(self, index: Any) -> Any:
        cells = self._cells[index]
        if any(cell.strip() for cell in cells[len(self.names) :]):
            raise BadRow(
                f"{self.path}, {self.place(index)}",
                "more cells than there are columns; put double quotes around text with commas",
            )
        filled: list[str | None] = [*cells, *[None] * (len(self.names) - len(cells))]
        return {name: cell for name, cell in zip(self.names, filled, strict=False) if name}


def _refuse_twice(path: Path | str, names: Sequence[str]) -> None:
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise BadArgument(f"{path} cannot be read: the column {twice[0]!r} is there twice; rename one.")


@contextlib.contextmanager
def _long_cells() -> Iterator[None]:
    """Return a context manager in which the csv module, which has one limit for all, reads long cells."""
    with _LONG_CELLS:
        before = csv.field_size_limit(LONGEST_ROW)
        try:
            yield
        finally:
            csv.field_size_limit(before)


_LONG_CELLS = Lock()


def _read_lines(path: Path, file: io.BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, from 1. Raises BadArgument for one above the limit."""
    number = 0
    while line := file.readline(LONGEST_ROW + 1):
        number += 1
        if len(line) > LONGEST_ROW:
            raise BadArgument(f"{path}, line {number}: the line has more than {LONGEST_ROW >> 20} MiB.")
        yield number, line


class JsonLines(_Lines):
    """The rows of a JSON Lines file, read one by one from the file.

    The file is not mapped into memory, because truncating a mapped file would kill the process.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts, self._lengths, at = array("Q"), array("Q"), 0
        self._lines = array("Q")
        with open_file(path) as file:
            start = file.read(4)
            _refuse_mark(path, start)
            at = len(_UTF8_MARK) if start.startswith(_UTF8_MARK) else 0
            file.seek(at)
            for number, line in _read_lines(path, file):
                if line.strip():
                    self._starts.append(at)
                    self._lengths.append(len(line))
                    self._lines.append(number)
                at += len(line)
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __getitem__(self, index: Any) -> Any:
        line = os.pread(self._file, self._lengths[index], self._starts[index])
        return _parse(line, f"{self.path}, {self.place(index)}")


class PackedLines(_Lines):
    """The rows of a compressed JSON Lines file, in memory."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises BadArgument for one that holds more than MOST_UNPACKED bytes."""
        self.path = path
        self._lines, self._texts, size = array("Q"), list[bytes](), 0
        with open_file(path) as file, gzip.open(file) as packed:
            for number, line in _read_lines(path, packed):
                if (size := size + len(line)) > MOST_UNPACKED:
                    raise BadArgument(
                        f"{path} cannot be read: unpacked it has more than {MOST_UNPACKED >> 20} MiB, which "
                        "memory has to hold. Unpack it (gunzip -k FILE): the lines of a .jsonl stay on disk."
                    )
                if line.strip():
                    self._lines.append(number)
                    self._texts.append(line)

    def __getitem__(self, index: Any) -> Any:
        return _parse(self._texts[index], f"{self.path}, {self.place(index)}")


def _parse(line: bytes, where: str) -> Any:
    try:
        return json.loads(line)
    except UnicodeDecodeError as error:
        raise BadRow(where, f"not UTF-8. {_resave('WINDOWS-1252')}") from error
    except json.JSONDecodeError as error:
        raise BadRow(where, f"not JSON: {error.msg}, at character {error.pos + 1}") from error
    except (ValueError, RecursionError) as error:
        raise BadRow(where, f"not JSON: {error}") from error


class ParquetRows(Sequence[Mapping[str, Any]]):
    """The rows of a Parquet file."""

    def __init__(self, path: Path) -> None:
        with needs_extra("a Parquet file", "pyarrow", "data"):
            from pyarrow import Table as ArrowTable
            from pyarrow import parquet
        with open_file(path) as opened:  # Arrow would wait for the writer of a pipe
            most = max(MOST_UNPACKED, MOST_TIMES * os.fstat(opened.fileno()).st_size)
        with parquet.ParquetFile(path) as file:
            batches, size = [], 0
            for batch in file.iter_batches(ROWS_AT_ONCE):
                batches.append(batch)
                if (size := size + batch.nbytes) > most:
                    raise BadArgument(
                        f"{path} cannot be read: its rows take more than {most >> 20} MiB of memory, far "
                        "more than the file has. Split it."
                    )
            self._table = _widen(ArrowTable.from_batches(batches, file.schema_arrow))
        _refuse_twice(path, self._table.column_names)
        self.path = path
        self.features = _features_of(file.schema_arrow.metadata)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._table.slice(index, 1), index)

    def _read(self, row: Any, index: int) -> Any:
        try:
            return row.to_pylist()[0]
        except (ValueError, OverflowError) as error:  # Arrow holds times that Python does not
            raise BadRow(f"{self.path}, row {index}", f"a value cannot be read: {error}") from error

    def scan(self, without: str | None) -> Iterator[Mapping[str, Any] | BadRow]:
        """See `scan`."""
        table = self._table.select([name for name in self._table.column_names if name != without])
        at = 0
        for batch in table.to_batches(max_chunksize=1000):
            try:
                yield from batch.to_pylist()
            except (ValueError, OverflowError):
                for index in range(batch.num_rows):
                    try:
                        yield self._read(batch.slice(index, 1), at + index)
                    except BadRow as error:
                        yield error
            at += batch.num_rows


def _features_of(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    """Return the features of the columns that `datasets` wrote into a Parquet file; empty if it did not."""
    with contextlib.suppress(LookupError, ValueError, TypeError):
        features = json.loads((metadata or {})[b"huggingface"])["info"]["features"]
        return features if isinstance(features, dict) else {}
    return {}


CLASS, CLASSES = "{} (class)", "{} (classes)"
"""The names of the columns that ClassRows adds, for that of a class."""


class ClassRows(Sequence[Mapping[str, Any]]):
    """Rows of `datasets` that have, beside each number of a class (`ClassLabel`), its name and all names.

    They stand in the columns CLASS and CLASSES. The name of a number below 0 is None.
    """

    def __init__(self, rows: Any, names: Mapping[str, Sequence[str]]) -> None:
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._name(self._rows[index])

    def scan(self, without: str | None) -> Iterator[Mapping[str, Any] | BadRow]:
        """See `scan`."""
        yield from map(self._name, scan(self._rows, without))

    def _name(self, row: Any) -> Any:
        if not isinstance(row, Mapping):
            return row
        classed = {column: names for column, names in self._names.items() if column in row}
        named = {CLASS.format(column): _name_class(row[column], names) for column, names in classed.items()}
        every = {CLASSES.format(column): [*names] for column, names in classed.items()}
        return {**row, **named, **every}


def _name_class(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_name_class(each, names) for each in value]
    if isinstance(value, int) and value < len(names):
        return names[value] if value >= 0 else None
    return value


def name_classes(rows: Any) -> Any:
    """Return rows with the names of their classes, if they are of `datasets` and have any; see ClassRows."""
    features = getattr(rows, "features", None)
    if not isinstance(features, Mapping):
        return rows
    names = {}
    for column, feature in features.items():
        inner = _part(feature, "feature") or feature  # of a list
        listed = _part(inner, "names")
        if isinstance(listed, list) and listed and all(isinstance(each, str) for each in listed):
            names[str(column)] = listed
    return ClassRows(rows, names) if names else rows


def _part(of: Any, name: str) -> Any:
    """Return a part of a feature: an object of `datasets`, or a mapping in a file."""
    return of.get(name) if isinstance(of, Mapping) else getattr(of, name, None)


def import_datasets() -> Any:
    """Import `datasets`.

    Raises:
        MissingExtra: when it is not installed.
    """
    with needs_extra("a data set of the hub", "datasets", "data"):
        import datasets
    return datasets


def one_split(dataset: Any, split: str | None, name: str) -> Any:
    """Return the rows of the chosen split, if `dataset` is a mapping of splits to rows."""
    if not isinstance(dataset, Mapping):
        dataset = _frame_rows(dataset)
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__") or isinstance(dataset, str):
            raise BadArgument(
                f"{name} is {type(dataset).__name__} {dataset!r:.80}; accepted: a list of mappings, a "
                "data frame, a datasets.Dataset, a TaskSet, a path or a data set's name."
            )
        return dataset
    known = [str(key) for key, rows in dataset.items() if not isinstance(rows, str | float | int | None)]
    if not any(map(_may_be_rows, dataset.values())):
        raise BadArgument(
            f"{name} is one mapping of {', '.join(map(repr, dataset))[:200]}, whose values are no rows; "
            "accepted: a list with a mapping for each row (pandas: to_json(orient='records')), or a mapping "
            "of splits to such lists."
        )
    if split is None and len(known) == 1:
        return _frame_rows(dataset[known[0]])
    if split not in dataset:
        asked = "more than one split, and none was named" if split is None else f"no split {split!r}"
        raise BadArgument(
            f"{name}: {asked}; it has {', '.join(known) or 'none'}. Name one with split= (--split)."
        )
    return _frame_rows(dataset[split])


def _may_be_rows(value: Any) -> bool:
    """Return whether a value may be the rows of a split; the cells of a row or a column are none."""
    if isinstance(value, list | tuple):
        return not value or isinstance(value[0], Mapping)
    return not isinstance(value, str | float | int | Mapping | None)


def _frame_rows(frame: Any) -> Any:
    """Return the rows of a data frame of pandas or polars, a table of pyarrow, or a set of `datasets`.

    All else is returned unchanged.
    """
    if hasattr(frame, "to_dicts"):  # polars
        return frame.to_dicts()
    if hasattr(frame, "to_pylist") and hasattr(frame, "column_names"):  # pyarrow
        _refuse_twice("the table", frame.column_names)
        return _widen(frame).to_pylist()
    if hasattr(frame, "iloc") and hasattr(frame, "to_dict"):  # pandas
        frame = frame.rename(columns=str)  # a file without a header has numbers
        _refuse_twice("the data frame", list(frame.columns))
        short = [name for name, kind in frame.dtypes.items() if str(kind) in SHORT_FLOATS]
        return frame.astype(dict.fromkeys(short, str)).astype(dict.fromkeys(short, float)).to_dict("records")
    return name_classes(frame)


SHORT_FLOATS = ("float16", "float32", "float")
"""What numpy and pyarrow call types of numbers that a float of Python shows with digits that they lack."""


def _widen(table: Any) -> Any:
    """Return a table of pyarrow in which 0.1 of 32 bits is 0.1, not 0.10000000149011612."""
    for at, field in enumerate(table.schema):
        if str(field.type) in SHORT_FLOATS:
            column = table.column(at).cast("string").cast("float64")
            table = table.set_column(at, field.name, column)
    return table
