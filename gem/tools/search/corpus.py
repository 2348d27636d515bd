"""Documents to index: a folder of text files, a JSONL corpus, the built-in world, or your own list."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from gem.errors import BadArgument, MissingData
from gem.files import read_text
from gem.tools.search.base import Document

WORLD = "world"
"""The name of the built-in world, which WikiGame walks and qa:Facts asks about."""

TEXT_FILES = (".txt", ".md", ".rst")
PASSAGE_CHARS = 2000
"""A longer text file becomes several documents, cut between paragraphs if possible."""

Source: TypeAlias = str | Path | Sequence[Document]


def documents(source: Source) -> Iterator[Document]:
    r"""Yield the documents of a source, always in the same order.

    Args:
        source: ``"world"``; a folder, whose .txt, .md and .rst files are read, with their paths as ids and
            their names as titles; a .jsonl file with one document per line in the format of Search-R1:
            ``{"id": ..., "contents": "\"Title\"\nText"}``, or with `title` and `text`; or Documents.

    Raises:
        MissingData: when there is no such file or folder, or no document in it.
        BadArgument: for a line or a kind of file that cannot be read.
    """
    if not isinstance(source, str | Path):
        yield from source
    elif source == WORLD:
        from gem.tasks.world import built_in

        world = built_in()
        for title, text in zip(world.titles, world.texts, strict=True):
            yield Document(title, title, text)
    elif (path := Path(source)).suffix == ".jsonl" and path.is_file():
        yield from _lines(path)
    else:
        for file in _text_files(path):
            pieces = passages(read_text(file, "replace"))
            name = file.relative_to(path).as_posix()
            for number, text in enumerate(pieces, 1):
                yield Document(name if number == 1 else f"{name}#{number}", file.stem, text)


def fingerprint(source: Source) -> str:
    """Return a digest that changes with the source: of files' names, sizes and times, or of the documents.

    Raises:
        MissingData: when there is no such file or folder.
    """
    digest = hashlib.sha256()
    if isinstance(source, str | Path) and source != WORLD:
        path = Path(source)
        for file in [path] if path.is_file() else _text_files(path):
            stat = file.stat()
            digest.update(
                f"{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode("utf-8", "replace")
            )
    else:
        for document in documents(source):
            digest.update(json.dumps(document).encode())
    return digest.hexdigest()


def contents_of(title: str, text: str) -> str:
    """Return title and text in the format of Search-R1's `contents`."""
    return f'"{" ".join(title.split())}"\n{text}' if title else text


def title_and_text(contents: str) -> tuple[str, str]:
    """Split what contents_of() joined; without a title in quotes on the first line, all is text."""
    first, _, rest = contents.partition("\n")
    first = first.strip()
    if rest and len(first) > 1 and first[0] == first[-1] == '"':
        return first[1:-1], rest
    return "", contents


def document_of(row: Any, number: int) -> Document:
    """Return the document of a line of a corpus or of a service's answer.

    Raises:
        ValueError: when it has neither contents nor text.
    """
    if isinstance(row, str):
        row = {"contents": row}
    if isinstance(row, dict) and isinstance(row.get("text"), str):
        title, text = "", row["text"]
    elif isinstance(row, dict) and isinstance(row.get("contents"), str):
        title, text = title_and_text(row["contents"])
    else:
        raise ValueError(f'an object with "contents" or "text" is wanted, not {str(row)[:80]!r}')
    name = next((row[key] for key in ("id", "_id", "docid") if row.get(key) is not None), number)
    return Document(str(name), str(row.get("title") or title), text)


def passages(text: str, most: int = PASSAGE_CHARS) -> list[str]:
    """Return `text` in pieces of at most `most` characters, cut between paragraphs or words if possible."""
    pieces: list[str] = []
    text = text.strip()
    while len(text) > most:
        cut = next((at for mark in ("\n\n", "\n", " ") if (at := text.rfind(mark, 1, most)) > 0), most)
        pieces.append(text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [piece for piece in [*pieces, text] if piece]


def _lines(path: Path) -> Iterator[Document]:
    with path.open(encoding="utf-8") as file:
        number = -1
        for number, line in enumerate(file):
            if line.strip():
                try:
                    yield document_of(json.loads(line), number)
                except ValueError as error:
                    raise BadArgument(
                        f"line {number + 1} of {path} is not a document: {error}. Accepted: JSON objects as "
                        '{"id": ..., "contents": ...} or {"id": ..., "title": ..., "text": ...}.'
                    ) from error
    if number < 0:
        raise MissingData(f"{path} is empty; wanted: a document per line.")


def _text_files(folder: Path) -> list[Path]:
    if not folder.exists():
        raise MissingData(f"there is no {folder} to search; accepted: a folder, a .jsonl file, or {WORLD!r}.")
    if not folder.is_dir():
        raise BadArgument(
            f"{folder} cannot be indexed; accepted: a folder of {', '.join(TEXT_FILES)} files, a .jsonl "
            f"file, a .zim file, or {WORLD!r}."
        )
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.suffix in TEXT_FILES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if not files:
        raise MissingData(f"{folder} holds no {', '.join(TEXT_FILES)} file to index.")
    return files
