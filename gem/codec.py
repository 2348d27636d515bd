"""Encode records as JSON and decode them, for episode stores and for messages between processes.

Each Struct below describes the JSON object of the record with the same name (in this file ``record.Turn`` is
the record, ``Turn`` its Struct). `json_schema` is generated from them. Fields with their default value are
left out. Token ids, log probabilities and masks are arrays: base64 of little-endian int32, float32 and uint8;
a mask of ones is left out. Of a turn's prompt, only the ids that its parent (the number of an earlier turn)
does not have are stored, as in the record.

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
from operator import index
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Struct, field

from gem import content, record
from gem.errors import BadArgument, SchemaMismatch
from gem.history import HistoryPolicy
from gem.record import SCHEMA, SEAT, StopReason, Verdict
from gem.schema_1 import decode_1
from gem.specs import TaskRef, WrapperRef

DEPTH = 32
"""Depth below which a value nested in `info` is stored as its repr; this also ends cycles."""

BEGINNING = re.compile(rb'\{"schema":(\d+)[,}]')
"""The start of each line of a store; it holds the schema number."""

RUN_LINE = b'{"schema":%d,"run":' % SCHEMA
"""The start of the line of a run."""


class Utf8(Struct):
    """Text with lone surrogates, which JSON cannot hold: its UTF-8 bytes, surrogates included, in base64."""

    data: bytes = field(name="$utf8")


class Float(Struct):
    """A number that JSON cannot hold."""

    name: Literal["nan", "inf", "-inf"] = field(name="$float")


class Int(Struct):
    """An integer of 64 bits or more, in hexadecimal."""

    digits: str = field(name="$int")


ESCAPES = (
    "Values that JSON lacks are objects with one key: $float, $int, $utf8, $image, $text, $dict or $repr."
)

SchemaNumber: TypeAlias = Annotated[int, Meta(ge=SCHEMA, le=SCHEMA)]
Chars: TypeAlias = str | Utf8
Number: TypeAlias = int | float | Float
Values: TypeAlias = Annotated[dict[str, Any], Meta(description=f"Values by name. {ESCAPES}")]
Ids: TypeAlias = Annotated[bytes, Meta(description="Token ids: little-endian int32, in base64.")]
Logprobs: TypeAlias = Annotated[
    bytes, Meta(description="Log probabilities of the sampled tokens: little-endian float32, in base64.")
]
Mask: TypeAlias = Annotated[
    bytes, Meta(description="One byte per sampled token, in base64; left out where all are 1.")
]


class Part(Struct, omit_defaults=True):
    """A part of an observation: a text, or an image (bytes in base64, media type, alternative text)."""

    text: Chars | None = field(name="$text", default=None)
    image: tuple[bytes, Chars, Chars] | None = field(name="$image", default=None)


Obs: TypeAlias = str | Utf8 | list[Part]


class ToolCall(Struct):
    """A model's call of a tool; `arguments` is JSON as the model wrote it."""

    id: Chars
    name: Chars
    arguments: Chars


class ToolSpec(Struct, omit_defaults=True):
    """A tool that a model may call; `schema` is the JSON schema of its arguments."""

    name: Chars
    description: Chars = ""
    schema: Values = {}


class Message(Struct, omit_defaults=True):
    """One message of a conversation; `role` is system, user, assistant or tool."""

    role: str
    content: Obs
    tool_calls: list[ToolCall] = []
    tool_call_id: Chars | None = None
    name: Chars | None = None
    reasoning: Chars | None = None


class Ask(Struct, omit_defaults=True):
    """A request to an agent for its next action."""

    episode: Chars
    seat: Chars
    turn: int
    messages: list[Message]
    held: Ids = b""
    fresh: int = 0
    seed: int | Int = 0
    max_tokens: int | None = None
    context: int | None = None
    tools: list[ToolSpec] = []
    sampling: Values | None = None
    policy_s: float | None = None


class Reply(Struct, omit_defaults=True):
    """An agent's answer; where `logprobs` is left out, they are unknown."""

    text: Chars
    prompt_ids: Ids = b""
    token_ids: Ids = b""
    logprobs: Logprobs | None = None
    finish: Chars = "stop"
    policy_version: int | None = None
    tool_calls: list[ToolCall] = []
    reasoning: Chars | None = None
    usage: Values = {}
    extra: Values = {}
    policy_s: float | None = None


class Turn(Struct, omit_defaults=True):
    """One action of one seat.

    The ids of its prompt are the first `kept` ids of the prompt and answer of turn number `parent`, then
    `new_ids`. Where `logprobs` is left out, they are unknown.
    """

    seat: Chars = SEAT
    observation: Obs = ""
    action: Chars | None = None
    reply: Message | None = None
    finish: Chars = ""
    reward: Number | None = None
    rewards: Values | None = None
    info: Values = {}
    policy_version: int | None = None
    value: Number | None = None
    sampling: Values | None = None
    usage: Values | None = None
    timing: Values = {}
    extra: Values | None = None
    messages: list[Message] | None = None
    parent: int | None = None
    kept: int = 0
    new_ids: Ids | None = None
    token_ids: Ids | None = None
    logprobs: Logprobs | None = None
    mask: Mask | None = None


class Wrapper(Struct, omit_defaults=True):
    """The name of a wrapper, and its keyword arguments."""

    name: Chars
    kwargs: Values = {}


class Task(Struct, omit_defaults=True):
    """The data that makes an environment, and the seed of its episode."""

    spec: Chars
    kwargs: Values = {}
    wrappers: list[Wrapper] = []
    seed: int | Int | None = None
    entry_point: Chars | None = None
    opaque: list[Chars] = []


class End(Struct, omit_defaults=True):
    """The end of an episode for one seat."""

    stop: StopReason
    seat: Chars = SEAT
    terminated: bool = False
    truncated: bool = False
    observation: Obs = ""
    info: Values = {}
    unearned: Number | None = None


class Failure(Struct):
    """The error that broke an episode, and where it happened."""

    boundary: Chars
    type: Chars
    message: Chars


class Origin(Struct):
    """The id of the episode that this one branched off, and the number of turns it copied from there."""

    episode: Chars
    turns: int


class Episode(Struct, omit_defaults=True):
    """One episode. Its id is run, job, sample and attempt, joined by hyphens; `run` is the run's id."""

    schema: SchemaNumber
    job: Chars
    run: Chars
    task: Task
    stop: StopReason
    verdict: Verdict
    sample: int = 0
    attempt: int = 0
    salt: int | Int = 0
    group: Chars = ""
    error: Failure | None = None
    origin: Origin | None = None
    timing: Values = {}
    starts: Values = {}
    turns: list[Turn] = []
    ends: list[End] = []


class Tasked(Struct):
    """The `task` field of an episode alone."""

    task: Task


class Limits(Struct, omit_defaults=True):
    """Limits from outside the task; a field that is left out means no limit."""

    turns: int | None = None
    tokens: int | None = None
    turn_tokens: int | None = None
    context: int | None = None
    policy_s: float | None = None
    call_s: float | None = None
    on_time: Literal["none", "scored"] = "none"


class History(Struct, omit_defaults=True):
    """The past turns that an agent saw."""

    kind: str
    window: int | None = None
    keep_first: bool = False
    system: Chars | None = None


class Agent(Struct, omit_defaults=True):
    """The agent that acted."""

    agent: Chars = ""
    model: Chars | None = None
    sampling: Values = {}
    vocabulary: Chars | None = None


class RunInfo(Struct, omit_defaults=True):
    """The settings with which the episodes of a run were played."""

    id: Chars
    agent: Chars = ""
    model: Chars | None = None
    sampling: Values = {}
    vocabulary: Chars | None = None
    limits: Limits = field(default_factory=Limits)
    history: History | None = None
    versions: Values = {}
    seats: list[tuple[Chars, Agent]] = []


class Run(Struct):
    """The line of a run; it comes before the run's first episode."""

    schema: SchemaNumber
    run: RunInfo


LINES = (Episode, Run)
PARTS = (Ask, Reply, Task, Message, ToolSpec, ToolCall)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a store's lines; its ``$defs`` hold Ask, Reply and the other records too."""
    schemas, components = msgspec.json.schema_components((*LINES, *PARTS), ref_template="#/$defs/{name}")
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
    return _put(_EPISODE, _episode, episode, tokens)


def _episode(episode: record.Episode, tokens: bool) -> Episode:
    places: dict[int, int] = {}
    turns = []
    for number, turn in enumerate(episode.turns):
        turns.append(_turn(turn, number, places, tokens))
        places[id(turn)] = number
    error, origin = episode.error, episode.origin
    return Episode(
        schema=SCHEMA,
        job=_chars(episode.job),
        run=_chars(episode.run.id),
        task=_task(episode.task),
        stop=episode.stop,
        verdict=episode.verdict,
        sample=_int(episode.sample),
        attempt=_int(episode.attempt),
        salt=_long(episode.salt),
        group=_chars(episode.group),
        error=None
        if error is None
        else Failure(_chars(error.boundary), _chars(error.type), _chars(error.message)),
        origin=None if origin is None else Origin(_chars(origin.episode), _int(origin.turns)),
        timing=_values(episode.timing),
        starts=_values(episode.starts),
        turns=turns,
        ends=[_end(seat, end) for seat, end in episode.ends.items()],
    )


def decode(line: bytes, run: record.RunInfo | None = None) -> record.Episode:
    """Return the episode that a line holds; reads this schema and schema 1.

    Args:
        line: bytes that `encode` returned.
        run: the run it belongs to; None: the episode gets a run with its id alone.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is not an episode.
    """
    if schema_of(line) == 1:
        return _told(_decode_1, line)
    return _told(_decode_2, line, run)


def decode_task(line: bytes) -> TaskRef:
    """Return only the task of the episode in a line; this is faster than `decode`.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is not an episode.
    """
    if schema_of(line) == 1:
        return _told(_decode_1, line).task
    return _told(lambda: _task_back(_TASKED.decode(line).task, _free(line)))


def _decode_1(line: bytes) -> record.Episode:
    return decode_1(line, {key: restored(value) for key, value in msgspec.json.decode(line).items()})


def _decode_2(line: bytes, run: record.RunInfo | None) -> record.Episode:
    wire = _EPISODE.decode(line)
    free = _free(line)
    turns: list[record.Turn] = []
    for turn in wire.turns:
        turns.append(_turn_back(turn, turns, free))
    error, origin = wire.error, wire.origin
    run_id = _text(wire.run)
    return record.Episode(
        task=_task_back(wire.task, free),
        run=run if run is not None and run.id == run_id else record.RunInfo(run_id),
        job=_text(wire.job),
        sample=wire.sample,
        attempt=wire.attempt,
        salt=_long_back(wire.salt),
        group=_text(wire.group),
        turns=turns,
        starts=free(wire.starts),
        ends={_text(end.seat): _end_back(end, free) for end in wire.ends},
        stop=wire.stop,
        verdict=wire.verdict,
        error=None
        if error is None
        else record.Failure(_text(error.boundary), _text(error.type), _text(error.message)),
        origin=None if origin is None else record.Origin(_text(origin.episode), origin.turns),
        timing=free(wire.timing),
    )


def encode_run(run: record.RunInfo) -> bytes:
    """Return a run as one line of JSON, without the line's end.

    Raises:
        BadArgument: for values whose type is not the schema's.
    """
    return _put(_RUN, _run, run)


def _run(run: record.RunInfo) -> Run:
    limits, history = run.limits, run.history
    wire = RunInfo(
        id=_chars(run.id),
        agent=_chars(run.agent),
        model=_some(run.model),
        sampling=_values(run.sampling),
        vocabulary=_some(run.vocabulary),
        limits=Limits(
            _int(limits.turns),
            _int(limits.tokens),
            _int(limits.turn_tokens),
            _int(limits.context),
            _seconds(limits.policy_s),
            _seconds(limits.call_s),
            limits.on_time,
        ),
        history=None
        if history is None
        else History(history.kind, _int(history.window), history.keep_first, _some(history.system)),
        versions=_values(run.versions),
        seats=[
            (
                _chars(seat),
                Agent(_chars(who.agent), _some(who.model), _values(who.sampling), _some(who.vocabulary)),
            )
            for seat, who in run.seats.items()
        ],
    )
    return Run(SCHEMA, wire)


def decode_run(line: bytes) -> record.RunInfo:
    """Return the run in a line that `encode_run` wrote.

    Raises:
        SchemaMismatch: for another schema. ValueError: for a line that is not a run.
    """
    schema_of(line)
    return _told(_decode_run, line)


def _decode_run(line: bytes) -> record.RunInfo:
    wire, free = _RUN.decode(line).run, _free(line)
    limits, history = wire.limits, wire.history
    return record.RunInfo(
        id=_text(wire.id),
        agent=_text(wire.agent),
        model=_text_or_none(wire.model),
        sampling=free(wire.sampling),
        vocabulary=_text_or_none(wire.vocabulary),
        limits=record.Limits(*(getattr(limits, name) for name in Limits.__struct_fields__)),
        history=None
        if history is None
        else HistoryPolicy(
            cast(Any, history.kind), history.window, history.keep_first, _text_or_none(history.system)
        ),
        versions=free(wire.versions),
        seats={
            _text(seat): record.AgentInfo(
                _text(who.agent), _text_or_none(who.model), free(who.sampling), _text_or_none(who.vocabulary)
            )
            for seat, who in wire.seats
        },
    )


def schema_of(line: bytes) -> int:
    """Return the schema number at the start of a line.

    Raises:
        SchemaMismatch: when this version of gem cannot read that schema.
        ValueError: when the line is not from an episode store.
    """
    found = BEGINNING.match(line)
    if found is None:
        raise ValueError(f"a line of an episode store begins with its schema, not with {line[:40]!r}.")
    number = int(found[1])
    if not 1 <= number <= SCHEMA:
        raise SchemaMismatch(
            f"a line of schema {number}; this version of gem reads schemas 1 to {SCHEMA}. Read it with the "
            "version that wrote it."
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
    for kind, (decoder, to_wire, _) in _PACKED.items():
        if isinstance(value, kind):
            return _put(decoder, to_wire, value)
    raise BadArgument(
        f"{type(value).__name__} cannot be packed; accepted: {', '.join(kind.__name__ for kind in _PACKED)}."
    )


def unpack(data: bytes, kind: type[Packed]) -> Packed:
    """Return the record that `pack` encoded as `data`; its token ids are tuples.

    Raises:
        ValueError: when `data` is not a packed record of type `kind`.
    """
    decoder, _, from_wire = _PACKED[kind]
    return cast(Packed, _told(lambda: from_wire(decoder.decode(data), _free(data))))


Result = TypeVar("Result")


def _put(decoder: msgspec.json.Decoder[Any], to_wire: Callable[..., Struct], *args: Any) -> bytes:
    """Return a record as JSON, after a check that it can be read again."""
    try:
        data = _ENCODER.encode(to_wire(*args))
        decoder.decode(data)
    except BadArgument:
        raise
    except (*_UNREADABLE, ValueError) as error:
        raise BadArgument(f"this {type(args[0]).__name__} cannot be written: {error}.") from error
    return data


def _told(read: Callable[..., Result], *args: Any) -> Result:
    """Return ``read(*args)``; turn errors about the data into ValueError."""
    try:
        return read(*args)
    except _UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


# -- records to Structs, and back

Free: TypeAlias = Callable[[Any], Any]
"""The function that restores the values of a line: `restored`, or none where the line holds no escape."""


def _free(line: bytes) -> Free:
    return _restored_values if b'"$' in line or b'"\\u0024' in line else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


def _restored_values(values: dict[str, Any] | None) -> Any:
    back = restored(values)
    if back is not values and not isinstance(back, dict):
        raise ValueError(f"{values!r:.80} is not an object of values by name.")
    return back


def _turn(turn: record.Turn, number: int, places: Mapping[int, int], tokens: bool) -> Turn:
    wire = Turn(
        _seat(turn.seat),
        _obs(turn.observation),
        _some(turn.action),
        None if turn.reply is None else _message(turn.reply),
        _chars(turn.finish),
        _number(turn.reward),
        _values(turn.rewards),
        _values(turn.info),
        _int(turn.policy_version),
        _number(turn.value),
        _values(turn.sampling),
        _values(turn.usage),
        _values(turn.timing),
        _values(turn.extra),
        None if turn.messages is None else [_message(message) for message in turn.messages],
    )
    parent = turn.parent
    if parent is not None:
        wire.parent = places.get(id(parent))
    if not tokens:
        return wire
    new_ids = turn.new_ids
    if turn.kept > 0:
        if wire.parent is not None and parent is not None and turn.kept <= _length(parent):
            wire.kept = turn.kept
        else:  # a parent that is not in the episode: the prompt is stored whole
            new_ids = turn.prompt_ids
    wire.new_ids, wire.token_ids = _packed("i", new_ids), _packed("i", turn.token_ids)
    if turn.logprobs is not None:
        wire.logprobs = _packed("f", turn.logprobs) or b""
    _check_columns(number, turn)
    mask = bytes(turn.mask)
    if mask != _ones(wire):
        wire.mask = mask
    return wire


def _turn_back(wire: Turn, earlier: Sequence[record.Turn], free: Free) -> record.Turn:
    turn = record.Turn(
        seat=_text(wire.seat),
        observation=_obs_back(wire.observation),
        action=_text_or_none(wire.action),
        reply=None if wire.reply is None else _message_back(wire.reply),
        finish=_text(wire.finish),
        kept=wire.kept,
        new_ids=_unpacked("i", wire.new_ids),
        token_ids=_unpacked("i", wire.token_ids),
        logprobs=None if wire.logprobs is None else _unpacked("f", wire.logprobs),
        mask=_ones(wire) if wire.mask is None else wire.mask,
        policy_version=wire.policy_version,
        value=_number_back(wire.value),
        reward=_number_back(wire.reward),
        rewards=free(wire.rewards),
        sampling=free(wire.sampling),
        usage=free(wire.usage),
        info=free(wire.info),
        timing=free(wire.timing),
        extra=free(wire.extra),
        messages=None if wire.messages is None else tuple(map(_message_back, wire.messages)),
    )
    if wire.parent is not None:
        if not 0 <= wire.parent < len(earlier):
            raise ValueError(
                f"turn {len(earlier)} has turn {wire.parent} as parent; accepted: an earlier one."
            )
        turn.parent = earlier[wire.parent]
    covered = 0 if turn.parent is None else _length(turn.parent)
    if not 0 <= wire.kept <= covered:
        raise ValueError(f"turn {len(earlier)} keeps {wire.kept} ids, but its parent has {covered}.")
    _check_columns(len(earlier), turn)
    return turn


def _check_columns(number: int, turn: record.Turn) -> None:
    count, masked = len(turn.token_ids), len(turn.mask)
    told = count if turn.logprobs is None else len(turn.logprobs)
    if masked != count or told != count:
        raise ValueError(
            f"turn {number} has {count} tokens, {masked} mask entries and {told} logprobs; accepted: equal "
            "numbers"
        )


def _length(turn: record.Turn) -> int:
    return turn.prompt_length + len(turn.token_ids)


def _ones(wire: Turn) -> bytes:
    """Return a mask of ones, the default that is not stored."""
    return record.all_ones(len(wire.token_ids or b"") // 4)


def _end(seat: str, end: record.SeatEnd) -> End:
    return End(
        end.stop,
        _seat(seat),
        bool(end.terminated),
        bool(end.truncated),
        _obs(end.observation),
        _values(end.info),
        None if repr(end.unearned) == "0.0" else _number(end.unearned),
    )


def _end_back(wire: End, free: Free) -> record.SeatEnd:
    return record.SeatEnd(
        wire.stop,
        wire.terminated,
        wire.truncated,
        _obs_back(wire.observation),
        free(wire.info),
        0.0 if wire.unearned is None else _number_back(wire.unearned),
    )


def _task(task: TaskRef) -> Task:
    return Task(
        _chars(task.spec),
        _values(task.kwargs),
        [Wrapper(_chars(wrapper.name), _values(wrapper.kwargs)) for wrapper in task.wrappers],
        _long(task.seed),
        _some(task.entry_point),
        [_chars(name) for name in task.opaque],
    )


def _task_back(wire: Task, free: Free) -> TaskRef:
    return TaskRef(
        _text(wire.spec),
        free(wire.kwargs),
        tuple(WrapperRef(_text(wrapper.name), free(wrapper.kwargs)) for wrapper in wire.wrappers),
        _long_back(wire.seed),
        _text_or_none(wire.entry_point),
        tuple(map(_text, wire.opaque)),
        foreign=True,
    )


def _message(message: content.Message) -> Message:
    return Message(
        message.role,
        _obs(message.content),
        [_tool_call(call) for call in message.tool_calls],
        _some(message.tool_call_id),
        _some(message.name),
        _some(message.reasoning),
    )


def _message_back(wire: Message) -> content.Message:
    return content.Message(
        cast(content.Role, wire.role),
        _obs_back(wire.content),
        tool_calls=tuple(map(_tool_call_back, wire.tool_calls)),
        tool_call_id=_text_or_none(wire.tool_call_id),
        name=_text_or_none(wire.name),
        reasoning=_text_or_none(wire.reasoning),
    )


def _tool_call(call: content.ToolCall) -> ToolCall:
    return ToolCall(_chars(call.id), _chars(call.name), _chars(call.arguments))


def _tool_call_back(wire: ToolCall) -> content.ToolCall:
    return content.ToolCall(_text(wire.id), _text(wire.name), _text(wire.arguments))


def _tool(tool: content.ToolSpec) -> ToolSpec:
    return ToolSpec(_chars(tool.name), _chars(tool.description), _values(tool.schema))


def _tool_back(wire: ToolSpec, free: Free) -> content.ToolSpec:
    return content.ToolSpec(_text(wire.name), _text(wire.description), free(wire.schema))


def _ask(ask: record.Ask) -> Ask:
    return Ask(
        _chars(ask.episode),
        _chars(ask.seat),
        _int(ask.turn),
        [_message(message) for message in ask.messages],
        _packed("i", ask.held) or b"",
        _int(ask.fresh),
        _long(ask.seed),
        _int(ask.max_tokens),
        _int(ask.context),
        [_tool(tool) for tool in ask.tools],
        _values(ask.sampling),
        _seconds(ask.policy_s),
    )


def _ask_back(wire: Ask, free: Free) -> record.Ask:
    return record.Ask(
        _text(wire.episode),
        _text(wire.seat),
        wire.turn,
        tuple(map(_message_back, wire.messages)),
        tuple(_unpacked("i", wire.held)),
        wire.fresh,
        _long_back(wire.seed),
        wire.max_tokens,
        wire.context,
        tools=tuple(_tool_back(tool, free) for tool in wire.tools),
        sampling=free(wire.sampling),
        policy_s=wire.policy_s,
    )


def _reply(reply: record.Reply) -> Reply:
    return Reply(
        _chars(reply.text),
        _packed("i", reply.prompt_ids) or b"",
        _packed("i", reply.token_ids) or b"",
        None if reply.logprobs is None else _packed("f", reply.logprobs) or b"",
        _chars(reply.finish),
        _int(reply.policy_version),
        [_tool_call(call) for call in reply.tool_calls],
        _some(reply.reasoning),
        _values(reply.usage),
        _values(reply.extra),
        _seconds(reply.policy_s),
    )


def _reply_back(wire: Reply, free: Free) -> record.Reply:
    return record.Reply(
        _text(wire.text),
        tuple(_unpacked("i", wire.prompt_ids)),
        tuple(_unpacked("i", wire.token_ids)),
        None if wire.logprobs is None else tuple(_unpacked("f", wire.logprobs)),
        _text(wire.finish),
        wire.policy_version,
        tool_calls=tuple(map(_tool_call_back, wire.tool_calls)),
        reasoning=_text_or_none(wire.reasoning),
        usage=free(wire.usage),
        extra=free(wire.extra),
        policy_s=wire.policy_s,
    )


# -- single values


def _packed(kind: str, numbers: Sequence[float]) -> bytes | None:
    """Return numbers as little-endian bytes; None for an empty tuple."""
    if not len(numbers):
        return b"" if isinstance(numbers, array) else None
    whole = record.as_ids(cast(Any, numbers)) if kind == "i" else numbers
    if not isinstance(whole, array) or whole.typecode != kind:
        whole = array(kind, whole)
    if sys.byteorder == "big":
        whole = whole[:]
        whole.byteswap()
    return whole.tobytes()


def _unpacked(kind: str, data: bytes | None) -> Any:
    if data is None:
        return ()
    numbers = array(kind, data)[:]  # the copy is exact; an array that was filled is a sixteenth larger
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# Values of a wrong type pass through here: `_put` refuses them, and its message has their position.


def _chars(text: str) -> Chars:
    if not isinstance(text, str) or (type(text) is str and text.isascii()):
        return text
    if _encodes(text):
        return str(text)
    return Utf8(text.encode("utf-8", "surrogatepass"))


def _seat(name: str) -> Chars:
    return SEAT if name == SEAT else _chars(name)  # a default is left out where it is the same object


def _some(text: str | None) -> Chars | None:
    return None if text is None else _chars(text)


def _text(wire: Chars) -> str:
    return wire if isinstance(wire, str) else wire.data.decode("utf-8", "surrogatepass")


def _text_or_none(wire: Chars | None) -> str | None:
    return None if wire is None else _text(wire)


def _obs(obs: content.Obs) -> Obs:
    if isinstance(obs, str):
        return obs if type(obs) is str and obs.isascii() else _chars(obs)
    return [_part(part) for part in obs] if isinstance(obs, list | tuple) else obs


def _part(part: content.Part) -> Part:
    if isinstance(part, content.Image):
        return Part(image=(bytes(part.data), _chars(part.mime), _chars(part.alt)))
    return Part(text=_chars(part.text)) if isinstance(part, content.Text) else part


def _obs_back(wire: Obs) -> content.Obs:
    if not isinstance(wire, list):
        return _text(wire)
    return tuple(
        content.Text(_text(part.text or ""))
        if part.image is None
        else content.Image(part.image[0], _text(part.image[1]), _text(part.image[2]))
        for part in wire
    )


def _int(number: int | None) -> Any:
    return number if number is None or type(number) is int else index(number)


def _long(number: int | None) -> Any:
    number = _int(number)
    return number if number is None or number.bit_length() < 64 else Int(hex(number))


def _long_back(wire: int | Int | None) -> Any:
    return int(wire.digits, 16) if isinstance(wire, Int) else wire


def _number(number: Any) -> Any:
    if number is None or (type(number) is float and math.isfinite(number)):
        return number
    if isinstance(number, int) and number.bit_length() < 64:
        return int(number)
    if isinstance(number, str | bytes):  # which float() would read
        return number
    number = float(number)
    return number if math.isfinite(number) else Float(cast(Any, str(number)))


def _seconds(seconds: float | None) -> float | None:
    return None if seconds is None else float(seconds)


def _number_back(wire: Number | None) -> Any:
    return float(wire.name) if isinstance(wire, Float) else wire


def _values(values: Mapping[str, Any] | None) -> Any:
    return plain(values) if type(values) is dict or isinstance(values, Mapping) else values


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
        if type(key) is not str or not _encodes(key) or (len(values) == 1 and key in _RESTORE):
            return {"$dict": [[plain(key, depth), plain(value, depth)] for key, value in values.items()]}
        stored[key] = plain(value, depth)
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
_EPISODE, _RUN = msgspec.json.Decoder(Episode), msgspec.json.Decoder(Run)
_TASKED = msgspec.json.Decoder(Tasked)
_PACKED: dict[type, tuple[msgspec.json.Decoder[Any], Callable[[Any], Any], Callable[[Any, Free], Any]]] = {
    record.Ask: (msgspec.json.Decoder(Ask), _ask, _ask_back),
    record.Reply: (msgspec.json.Decoder(Reply), _reply, _reply_back),
    TaskRef: (msgspec.json.Decoder(Task), _task, _task_back),
    content.Message: (msgspec.json.Decoder(Message), _message, lambda wire, _: _message_back(wire)),
    content.ToolSpec: (msgspec.json.Decoder(ToolSpec), _tool, _tool_back),
    content.ToolCall: (msgspec.json.Decoder(ToolCall), _tool_call, lambda wire, _: _tool_call_back(wire)),
}
