"""Encode records as JSON and decode them, for episode stores and for messages between processes.

`gem.schema` describes the JSON object of each record. The functions that convert a record and convert it back
are made from its annotations, so a new field is added to the record and to its Struct, and nowhere else. In
this file ``record.Turn`` is the record, ``schema.Turn`` its Struct.

A value that JSON lacks is written as an object with one key: ``$float`` (nan, inf, -inf), ``$int`` (from 64
bits up, in hexadecimal), ``$utf8`` (text with lone surrogates, in base64), ``$image`` and ``$text`` (parts of
an observation), ``$dict`` (keys that are not plain text, or one of these names alone) and ``$repr`` (anything
else; it is read back as that text).
"""

from __future__ import annotations

import base64
import math
import re
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache, partial
from operator import attrgetter, index
from threading import Lock
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints
from zlib import crc32

import msgspec
from msgspec import Struct

from gem import content, record, schema
from gem.errors import BadArgument, SchemaMismatch
from gem.history import HistoryPolicy
from gem.record import SCHEMA
from gem.schema_1 import decode_1
from gem.specs import TaskRef, WrapperRef

DEPTH = 32
"""Depth below which a value nested in `info` is stored as its repr; this also ends cycles."""

BEGINNING = re.compile(rb'\{"schema":(\d+)[,}]')
"""The start of each line of a store; it holds the schema number."""

RUN_LINE = b'{"schema":%d,"run":' % SCHEMA
"""The start of the line of a run."""

RECORDS: dict[type[Struct], Any] = {
    schema.Episode: record.Episode,
    schema.Turn: record.Turn,
    schema.End: record.SeatEnd,
    schema.Failure: record.Failure,
    schema.Origin: record.Origin,
    schema.RunInfo: record.RunInfo,
    schema.Agent: record.AgentInfo,
    schema.Limits: record.Limits,
    schema.History: HistoryPolicy,
    schema.Ask: record.Ask,
    schema.Reply: record.Reply,
    schema.Task: TaskRef,
    schema.Wrapper: WrapperRef,
    schema.Message: content.Message,
    schema.ToolSpec: content.ToolSpec,
    schema.ToolCall: content.ToolCall,
}
"""The record that each Struct describes."""

CHECKSUM = re.compile(rb',"crc32":"([^"]*)"\}\s*\Z')
"""The end of a line with a checksum, which is of all bytes before it; lines of earlier versions have none."""

LINES = (schema.Episode, schema.Run)
PARTS = (schema.Ask, schema.Reply, schema.Task, schema.Message, schema.ToolSpec, schema.ToolCall)
PACKED = {RECORDS[struct]: struct for struct in PARTS}

TOKENS = ("parent", "kept", "new_ids", "token_ids", "logprobs", "mask")
"""The last fields of a turn. They depend on other turns and on each other; `_write_episode` writes them."""


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a store's lines; its ``$defs`` hold Ask, Reply and the other records too."""
    schemas, components = msgspec.json.schema_components((*LINES, *PARTS), ref_template="#/$defs/{name}")
    for line in LINES:
        components[line.__name__]["properties"]["crc32"] = {
            "type": "string",
            "pattern": "^[0-9a-f]{8}$",
            "description": "CRC-32 of the line up to the comma before this last field. Old lines have none.",
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of an episode store, schema {SCHEMA}",
        "anyOf": list(schemas[: len(LINES)]),
        "$defs": components,
    }


# -- episodes and runs


def encode(episode: record.Episode, *, tokens: bool = True) -> bytes:
    """Return an episode as one line of JSON, without the line's end.

    Args:
        episode: any episode; objects of unknown types in it are written as their repr.
        tokens: False leaves out token ids, log probabilities and masks.

    Raises:
        BadArgument: for values that `decode` would refuse: token ids that are not 32-bit integers, or
            values whose type is not the schema's.
    """
    return _seal(_encode_checked(schema.Episode, lambda: _write_episode(episode, tokens)))


def decode(line: bytes, run: record.RunInfo | None = None) -> record.Episode:
    """Return the episode that a line holds; reads this schema and schema 1.

    Args:
        line: bytes that `encode` returned.
        run: the run it belongs to; None: the episode gets a run with its id alone.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is no episode, or was changed.
    """
    if _check_line(line) == 1:
        return _read(lambda: decode_1(line, restored(msgspec.json.decode(line))))
    return _read(lambda: _read_episode(line, run))


def decode_task(line: bytes) -> TaskRef:
    """Return only the task of the episode in a line; this is faster than `decode`.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is no episode, or was changed.
    """
    if _check_line(line) == 1:
        return decode(line).task
    task: TaskRef = _read(lambda: _reader(schema.Task, line)(_decoder(schema.Tasked).decode(line).task))
    return task


def encode_run(run: record.RunInfo) -> bytes:
    """Return a run as one line of JSON, without the line's end.

    Raises:
        BadArgument: for values whose type is not the schema's.
    """
    return _seal(_encode_checked(schema.Run, lambda: schema.Run(SCHEMA, _writer(schema.RunInfo)(run))))


def decode_run(line: bytes) -> record.RunInfo:
    """Return the run in a line that `encode_run` wrote.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is no run, or was changed.
    """
    _check_line(line)
    run: record.RunInfo = _read(lambda: _reader(schema.RunInfo, line)(_decoder(schema.Run).decode(line).run))
    return run


def schema_of(line: bytes) -> int:
    """Return the schema number at the start of a line.

    Raises:
        SchemaMismatch: when this version of gem cannot read that schema.
        ValueError: when the line is not from an episode store.
    """
    match = BEGINNING.match(line)
    if match is None:
        raise ValueError(f"a line of an episode store begins with its schema, not with {line[:40]!r}.")
    number = int(match[1])
    if not 1 <= number <= SCHEMA:
        raise SchemaMismatch(
            f"a line of schema {number}; this version of gem reads schemas 1 to {SCHEMA}. Read it with the "
            "version that wrote it."
        )
    return number


def _seal(line: bytes) -> bytes:
    """Return a line with its checksum."""
    inside = memoryview(line)[:-1]
    return b"".join((inside, b',"crc32":"%08x"}' % crc32(inside)))


def _check_line(line: bytes) -> int:
    """Return the schema number of a line; refuse one that is not as it was written."""
    number = schema_of(line)
    match = CHECKSUM.search(line, max(0, len(line) - 64))
    if match is not None and match[1] != (b"%08x" % crc32(memoryview(line)[: match.start()])):
        raise ValueError(
            "it was changed after it was written, as its bytes do not fit the checksum at its end. If the "
            "change is meant, remove its last field, crc32"
        )
    return number


# -- records that travel alone

Packable: TypeAlias = (
    record.Ask | record.Reply | TaskRef | content.Message | content.ToolSpec | content.ToolCall
)
Packed = TypeVar("Packed", bound=Packable)


def pack(value: Packable) -> bytes:
    """Return a record as JSON for another process, which reads it with `unpack`.

    Raises:
        BadArgument: for another type, or for values that `unpack` would refuse; see `encode`.
    """
    struct = next((struct for kind, struct in PACKED.items() if isinstance(value, kind)), None)
    if struct is not None:
        return _encode_checked(struct, lambda: _writer(struct)(value))
    raise BadArgument(
        f"{type(value).__name__} cannot be packed; accepted: {', '.join(kind.__name__ for kind in PACKED)}."
    )


def task_key(task: TaskRef) -> str:
    """Return the canonical key of a task: environment, keywords, wrappers and seed."""
    wire = msgspec.json.decode(pack(replace(task, entry_point=None, opaque=())))
    return msgspec.json.encode(wire, order="deterministic").decode()


def unpack(data: bytes, kind: type[Packed]) -> Packed:
    """Return the record that `pack` encoded as `data`; its token ids are tuples.

    Raises:
        ValueError: when `data` is not a packed record of type `kind`.
    """
    struct = PACKED[kind]
    value: Packed = _read(lambda: _reader(struct, data)(_decoder(struct).decode(data)))
    return value


Result = TypeVar("Result")


def _encode_checked(kind: type[Struct], make: Callable[[], Struct]) -> bytes:
    """Return the JSON of the Struct that `make` returns, after a check that it can be read again."""
    try:
        data = _ENCODER.encode(make())
        _decoder(kind).decode(data)
    except BadArgument:
        raise
    except (*_UNREADABLE, ValueError) as error:
        raise BadArgument(f"this {kind.__name__} cannot be written: {error}.") from error
    return data


def _read(read: Callable[[], Result]) -> Result:
    """Return ``read()``; turn errors about the data into ValueError."""
    try:
        return read()
    except _UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


# -- what the annotations do not say: the turns of an episode refer to each other


def _write_episode(episode: record.Episode, tokens: bool) -> schema.Episode:
    struct: schema.Episode = _writer(schema.Episode)(episode)
    places: dict[int, int] = {}
    for number, turn in enumerate(episode.turns):
        if turn.parent is not None:
            struct.turns[number].parent = places.get(id(turn.parent))
        if tokens:
            _write_tokens(turn, number, struct.turns[number])
        places[id(turn)] = number
    return struct


def _write_tokens(turn: record.Turn, number: int, struct: schema.Turn) -> None:
    new_ids, parent = turn.new_ids, turn.parent
    if turn.kept > 0:
        if struct.parent is not None and parent is not None and turn.kept <= _length(parent):
            struct.kept = turn.kept
        else:  # a parent that is not in the episode: the prompt is stored whole
            new_ids = turn.prompt_ids
    struct.new_ids, struct.token_ids = _pack_numbers("i", new_ids), _pack_numbers("i", turn.token_ids)
    if turn.logprobs is not None:
        struct.logprobs = _pack_numbers("f", turn.logprobs) or b""
    _check_columns(number, turn)
    mask = bytes(turn.mask)
    if mask != record.all_ones(len(turn.token_ids)):
        struct.mask = mask


def _read_episode(line: bytes, run: record.RunInfo | None) -> record.Episode:
    struct = _decoder(schema.Episode).decode(line)
    episode: record.Episode = _reader(schema.Episode, line)(struct)
    episode.turns = list(episode.turns)
    for number, turn in enumerate(struct.turns):
        _link_turn(episode.turns, number, turn)
    run_id: Any = episode.run  # so far only its id
    episode.run = run if run is not None and run.id == run_id else record.RunInfo(run_id)
    return episode


def _link_turn(turns: Sequence[record.Turn], number: int, struct: schema.Turn) -> None:
    turn, turn.parent = turns[number], None
    if struct.parent is not None:
        if not 0 <= struct.parent < number:
            raise ValueError(f"turn {number} has turn {struct.parent} as parent; accepted: an earlier one.")
        turn.parent = turns[struct.parent]
    covered = 0 if turn.parent is None else _length(turn.parent)
    if not 0 <= turn.kept <= covered:
        raise ValueError(f"turn {number} keeps {turn.kept} ids, but its parent has {covered}.")
    if struct.mask is None:
        turn.mask = record.all_ones(len(turn.token_ids))
    _check_columns(number, turn)


def _check_columns(number: int, turn: record.Turn) -> None:
    count, masked = len(turn.token_ids), len(turn.mask)
    known = count if turn.logprobs is None else len(turn.logprobs)
    if masked != count or known != count:
        raise ValueError(
            f"turn {number} has {count} tokens, {masked} mask entries and {known} logprobs; accepted: equal "
            "numbers"
        )


def _length(turn: record.Turn) -> int:
    return turn.prompt_length + len(turn.token_ids)


# -- conversions, derived from the annotations

Convert: TypeAlias = Callable[..., Any]


def _same(value: Any) -> Any:
    return value


class Conversions(NamedTuple):
    """The functions that write a value, read it from a line without escapes, and read it from any line."""

    write: Convert = _same
    read: Convert = _same
    restore: Convert = _same


class Field(NamedTuple):
    """A field of a Struct: its default, and the record's value that None stands for."""

    name: str
    default: Any
    absent: Any
    convert: Conversions


@cache
def _fields(kind: type[Struct]) -> list[Field]:
    """Return the fields of a Struct, in order."""
    hints, make = get_type_hints(kind, include_extras=True), RECORDS[kind]
    defaults = {each.name: None if each.default is MISSING else each.default for each in fields(make)}
    stored = []
    for each in msgspec.structs.fields(kind):
        absent = defaults.get(each.name) if each.default is None else None
        convert = _conversions(hints[each.name], absent, make.__dataclass_params__.frozen)
        stored.append(Field(each.name, each.default, absent, _BY_HAND.get((kind, each.name), convert)))
    return stored


def _key(kind: type[Struct]) -> str | None:
    """Return the field that is the key of the record in a mapping, if the Struct has one."""
    names = {each.name for each in fields(RECORDS[kind])}
    return next((name for name in kind.__struct_fields__ if name not in names), None)


@cache
def _writer(kind: type[Struct]) -> Convert:
    """Return the function that makes the Struct of a record; a record of a mapping comes with its key."""
    written = [each for each in _fields(kind) if kind is not schema.Turn or each.name not in TOKENS]
    key, names = _key(kind), [each.name for each in written]
    converted = [(i, each.convert.write) for i, each in enumerate(written) if each.convert.write is not _same]
    spared = [
        (i, each.default) for i, each in enumerate(written) if each.default and isinstance(each.default, str)
    ]
    values_of = attrgetter(*(name for name in names if name != key))

    def write(value: Any, name: str = "") -> Struct:
        values = [*values_of(value)]
        if key is not None:
            values.insert(names.index(key), name)
        for place, convert in converted:
            one = values[place]
            if one is not None and not (type(one) is str and one.isascii()):
                values[place] = convert(one)
        for place, default in spared:  # the encoder leaves a default out where it is the same object
            if values[place] == default:
                values[place] = default
        return kind(*values)

    return write


def _reader(kind: type[Struct], line: bytes) -> Convert:
    """Return the function that makes the record of a Struct that was read from `line`."""
    return _maker(kind, b'"$' in line or b'"\\u0024' in line)


@cache
def _maker(kind: type[Struct], escapes: bool) -> Convert:
    """Return the function that makes the record of a Struct; `escapes`: it may have values JSON lacks."""
    make, stored = RECORDS[kind], {each.name: each for each in _fields(kind)}
    kept = sorted((each for each in fields(make) if each.name in stored), key=attrgetter("kw_only"))
    converted = []
    for place, (_, _, absent, convert) in enumerate(stored[each.name] for each in kept):
        change = convert.restore if escapes else convert.read
        if change is not _same or absent is not None:
            converted.append((place, change, absent))
    values_of = attrgetter(*(each.name for each in kept))
    named = [each.name for each in kept if each.kw_only]
    count = len(kept) - len(named)
    make = partial(make, foreign=True) if make is TaskRef else make

    def read(struct: Struct) -> Any:
        values = [*values_of(struct)]
        for place, change, absent in converted:
            one = values[place]
            values[place] = absent if one is None else change(one)
        return (
            make(*values[:count], **dict(zip(named, values[count:], strict=True))) if named else make(*values)
        )

    return read


def _conversions(hint: Any, absent: Any = None, hashable: bool = False) -> Conversions:
    """Return the conversions of a value with this annotation; `absent`: what None stands for."""
    options = _options(hint)
    only = next(iter(options)) if len(options) == 1 else None
    if options in _SINGLE:
        convert = _SINGLE[options]
        if not isinstance(absent, float):
            return convert
        return convert._replace(write=lambda one: None if repr(one) == repr(absent) else convert.write(one))
    if only in _ARRAYS:
        code, whole = _ARRAYS[only], tuple if hashable else _same
        unpack = lambda data: whole(_unpack_numbers(code, data))  # noqa: E731
        return Conversions(lambda numbers: _pack_numbers(code, numbers) or b"", unpack, unpack)
    if get_origin(only) is list:
        return _of_list(*get_args(only))
    return (
        Conversions(_writer(only), _maker(only, False), _maker(only, True))
        if only in RECORDS
        else Conversions()
    )


def _options(hint: Any) -> frozenset[Any]:
    """Return the types that an annotation allows beside None."""
    several = get_origin(hint) in (Union, UnionType)
    return frozenset(get_args(hint) if several else (hint,)) - {NoneType}


def _of_list(element: Any) -> Conversions:
    """Return the conversions of a sequence, or of a mapping: a list of pairs, or of Structs with a key."""
    key = _key(element) if element in RECORDS else None
    if key is not None:
        name, (write, read, restore) = attrgetter(key), _conversions(element)
        return Conversions(
            lambda values: [write(value, key) for key, value in values.items()],
            lambda structs: {name(struct): read(struct) for struct in structs},
            lambda structs: {_text(name(struct)): restore(struct) for struct in structs},
        )
    if get_origin(element) is tuple:
        write, read, restore = _conversions(get_args(element)[1])
        return Conversions(
            lambda values: [(_chars(key), write(value)) for key, value in values.items()],
            lambda pairs: {key: read(value) for key, value in pairs},
            lambda pairs: {_text(key): restore(value) for key, value in pairs},
        )
    write, read, restore = _conversions(element)
    return Conversions(
        lambda values: [write(value) for value in values],
        lambda values: tuple([read(value) for value in values]),
        lambda values: tuple([restore(value) for value in values]),
    )


# -- single values


def _pack_numbers(kind: str, numbers: Sequence[float]) -> bytes | None:
    """Return numbers as little-endian bytes; None for an empty tuple."""
    if not len(numbers):
        return b"" if isinstance(numbers, array) else None
    whole: Any = record.as_ids(cast(Any, numbers)) if kind == "i" else numbers
    if not isinstance(whole, array) or whole.typecode != kind:
        whole = array(kind, whole)
    if sys.byteorder == "big":
        whole = whole[:]
        whole.byteswap()
    return bytes(whole)


def _unpack_numbers(kind: str, data: bytes | None) -> Any:
    if data is None:
        return ()
    numbers = array(kind, data)[:]  # the copy is exact; an array that was filled is a sixteenth larger
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# Values of a wrong type pass through here: `_encode_checked` refuses them, and says where they are.


def _chars(text: Any) -> Any:
    if not isinstance(text, str) or (type(text) is str and text.isascii()):
        return text
    return _plain_text(str(text))


def _text(chars: schema.Chars) -> str:
    return chars if isinstance(chars, str) else chars.data.decode("utf-8", "surrogatepass")


def _obs(obs: Any) -> Any:
    if isinstance(obs, str):
        return obs if type(obs) is str and obs.isascii() else _chars(obs)
    if isinstance(obs, list | tuple):
        return [_plain(part, 0) if isinstance(part, content.Part) else part for part in obs]
    return obs


def _obs_back(obs: schema.Obs) -> content.Obs:
    if not isinstance(obs, list):
        return _text(obs)
    return tuple(
        content.Text(_text(part.text or ""))
        if part.image is None
        else content.Image(part.image[0], _text(part.image[1]), _text(part.image[2]))
        for part in obs
    )


def _long(number: Any) -> Any:
    number = index(number)
    return number if number.bit_length() < 64 else _plain(number, 0)


def _number(number: Any) -> Any:
    if type(number) is float and math.isfinite(number):
        return number
    if type(number) is float or (isinstance(number, int) and number.bit_length() < 64):
        return _plain(number, 0)
    return number if isinstance(number, str | bytes) else _plain(float(number), 0)  # float() would read text


def _values(values: Any) -> Any:
    if type(values) is dict:
        return plain(values) if values else values
    return plain(values) if isinstance(values, Mapping) else values


def _restored_values(values: dict[str, Any]) -> Any:
    back = restored(values)
    if not isinstance(back, dict):
        raise ValueError(f"{values!r:.80} is not an object of values by name.")
    return back


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` in a form that JSON can hold; `restored` reverses it."""
    try:
        return _plain(value, depth)
    except Exception:  # a foreign class: any access may fail, and storing must continue
        return {"$repr": _plain_text(_repr(value))}


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str and value.isascii():
        return value
    if kind is float and math.isfinite(value):
        return value
    if value is None or kind is bool or (kind is dict and not value):
        return value
    if kind is dict and depth < DEPTH:
        return _plain_mapping(value, depth + 1)
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else {"$int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, str):
        return _plain_text(str(value))
    if depth < DEPTH:
        if isinstance(value, Mapping):
            return _plain_mapping(value, depth + 1)
        if isinstance(value, list | tuple):
            return [plain(item, depth + 1) for item in value]
        if isinstance(value, content.Text):
            return {"$text": _plain_text(value.text)}
        if isinstance(value, content.Image):
            data = base64.b64encode(value.data).decode("ascii")
            return {"$image": [data, _plain_text(value.mime), _plain_text(value.alt)]}
        if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy or torch
            return plain(value.item(), DEPTH)
    return {"$repr": _plain_text(_repr(value))}


def _plain_mapping(values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    stored = {}
    for key, value in values.items():
        odd = type(key) is not str or not (key.isascii() or _encodes(key))
        if odd or (len(values) == 1 and key in _RESTORE):
            return {"$dict": [[plain(key, depth), plain(value, depth)] for key, value in values.items()]}
        kind = type(value)  # as nearly always: written out, because values are many
        simple = (kind is float and math.isfinite(value)) or (kind is int and value.bit_length() < 64)
        simple = simple or kind is bool or (kind is str and value.isascii())
        stored[key] = value if simple else plain(value, depth)
    return stored


def restored(value: Any) -> Any:
    """Return the value that `plain` converted."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inside),) = value.items()
        if name in _RESTORE:
            try:
                return _RESTORE[name](inside)
            except (ValueError, TypeError, LookupError) as error:
                raise ValueError(f"{value!r:.80} cannot be read: {error}") from error
    return {key: restored(item) for key, item in value.items()}


def _plain_text(text: str) -> Any:
    if _encodes(text):
        return text
    return {"$utf8": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # a foreign __repr__ may fail, and storing must continue
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


_RESTORE: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$utf8": lambda data: base64.b64decode(data).decode("utf-8", "surrogatepass"),
    "$text": lambda text: content.Text(_restored_text(text)),
    "$image": lambda image: _restored_image(*image),
    "$dict": lambda pairs: {_hashable(restored(key)): restored(item) for key, item in pairs},
    "$repr": lambda text: _restored_text(text),
}


def _restored_image(data: str, mime: Any, alt: Any) -> content.Image:
    return content.Image(base64.b64decode(data), _restored_text(mime), _restored_text(alt))


def _restored_text(text: Any) -> str:
    back = restored(text)
    if not isinstance(back, str):
        raise TypeError(f"{back!r:.40} is not text")
    return back


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


_UNREADABLE = (
    msgspec.MsgspecError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_ENCODER = msgspec.json.Encoder()
_ARRAYS = {schema.Ids: "i", schema.Logprobs: "f"}
_SINGLE = {
    _options(schema.Chars): Conversions(_chars, _same, _text),
    _options(schema.Obs): Conversions(_obs, _obs_back, _obs_back),
    _options(schema.Number): Conversions(
        _number, _same, lambda one: float(one.name) if isinstance(one, schema.Float) else one
    ),
    _options(schema.Values): Conversions(_values, _same, _restored_values),
    _options(int | schema.Int): Conversions(
        _long, _same, lambda one: int(one.digits, 16) if isinstance(one, schema.Int) else one
    ),
    _options(schema.Mask): Conversions(bytes),
    _options(int): Conversions(index),
    _options(float): Conversions(float),
    _options(bool): Conversions(bool),
}
_BY_HAND: dict[Any, Conversions] = {
    (schema.Episode, "run"): Conversions(lambda run: _chars(run.id), _same, _text)
}


@cache
def _decoder(kind: type[Struct]) -> msgspec.json.Decoder[Any]:
    with _BUILDS_DECODER:
        return msgspec.json.Decoder(kind)


_BUILDS_DECODER = Lock()  # msgspec crashes when two threads inspect the same Struct for the first time
