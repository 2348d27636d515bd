"""The record of an episode inside the files of other formats, and what these files need of text and numbers.

A carried record is ``{"run": ..., "episode": ...}``: the two lines that an episode store would hold, as JSON
objects. `gem.codec` knows their form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from gem import codec
from gem.content import Message, ToolCall
from gem.errors import BadArgument, MissingData, StoreError
from gem.history import CHAT, messages
from gem.record import Episode, Turn

KEY = "gem"
"""The name under which a record is carried."""


def carry(episode: Episode, *, tokens: bool = True) -> dict[str, Any]:
    """Return the record of an episode as plain JSON values.

    Args:
        episode: any.
        tokens: False leaves out token ids, log probabilities and masks.

    Raises:
        BadArgument: for what an episode store would not take either.
    """
    lines = codec.encode_run(episode.run), codec.encode(episode, tokens=tokens)
    run, record = map(msgspec.json.decode, lines)
    return {"run": run, "episode": record}


def carried(record: object) -> Episode:
    """Return the episode of a carried record.

    Raises:
        SchemaMismatch: for one of another schema. BadArgument: for what is no such record.
    """
    if not isinstance(record, Mapping) or set(record) != {"run", "episode"}:
        raise BadArgument(f"{record!r:.80} is no record of an episode; accepted: its run and its episode.")
    return episode_of(_line(record["episode"]), _line(record["run"]))


def episode_of(line: bytes, run: bytes) -> Episode:
    """Return the episode of its two lines.

    Raises:
        SchemaMismatch: for lines of another schema. BadArgument: for what are no such lines.
    """
    try:
        return codec.decode(line, codec.decode_run(run))
    except ValueError as error:
        if isinstance(error, BadArgument):
            raise
        raise BadArgument(f"the record of an episode cannot be read: {error}") from error


def _line(record: object) -> bytes:
    """Return a line as a store has it: the number of the schema stands first."""
    if not isinstance(record, Mapping):
        raise BadArgument(f"{record!r:.80} is no part of an episode's record; accepted: a JSON object.")
    ordered = {"schema": record.get("schema"), **record}
    try:
        return msgspec.json.encode(ordered)
    except (TypeError, ValueError, RecursionError) as error:  # lone surrogates, NaN: no JSON
        raise BadArgument(f"the record of an episode cannot be read: {error}") from error


def shown(text: str) -> str:
    r"""Return text as JSON and Arrow can hold it: a lone surrogate becomes its escape, ``\udc80``."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def arguments_of(call: ToolCall) -> dict[str, Any] | None:
    """Return what a model wrote as the arguments of a call; None where it is no JSON object.

    What other programs may not read of it (NaN, lone surrogates, 33 levels of nesting) stands as
    `gem.codec.plain` writes it.
    """
    try:
        given = codec.plain(json.loads(call.arguments.strip() or "{}"))
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def next_messages(episode: Episode, seat: str) -> Iterator[tuple[Turn, tuple[Message, ...]]]:
    """Yield each turn of a seat with the messages that answered it: of the user, or one per native call."""
    turns = episode.exchanges(seat)
    end = episode.ends.get(seat)
    for number, turn in enumerate(turns):
        if number + 1 < len(turns):
            after = turns[number + 1]
        elif end is not None and end.observation:
            after = Turn(seat, end.observation, info=end.info)
        else:
            yield turn, ()
            continue
        yield turn, messages((turn, after), CHAT)[2:]


def each_line(path: str | Path, read: Callable[[Any, str], Episode]) -> Iterator[Callable[[], Episode]]:
    """Yield, for each line of a file of JSON lines, what reads its episode: one damaged line spoils no other.

    Args:
        path: the file.
        read: makes an episode of a line's value; the second argument says where it stands.

    Raises:
        MissingData: where there is no such file. BadArgument: when it cannot be read; the calls raise it
            too, for a line that is no JSON.
    """

    def decoded(line: bytes, where: str) -> Episode:
        try:
            value = msgspec.json.decode(line)
        except (msgspec.MsgspecError, RecursionError, ValueError) as error:
            raise BadArgument(f"{where} is no JSON: {error}") from error
        return read(value, where)

    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                yield partial(decoded, line, f"{path}, line {number}")
    except FileNotFoundError as error:
        raise MissingData(f"{path}: no such file.") from error
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {error.strerror}.") from error


def empty_folder(path: Path) -> None:
    """Make a folder, or take one that holds nothing.

    Raises:
        BadArgument: when it holds something. StoreError: when it cannot be made.
    """
    try:
        path.mkdir(exist_ok=True)
        if any(path.iterdir()):
            raise BadArgument(f"{path} is not empty; name another folder.")
    except OSError as error:
        raise StoreError(f"{path} cannot be made: {error.strerror}.") from error


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give the name of a file to write, which becomes `path` when the block ends well, and else is removed.

    Raises:
        BadArgument: when `path` is there already. StoreError: when it cannot be written.
    """
    if path.exists():
        raise BadArgument(f"{path} is there already; remove it, or name another file.")
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)
