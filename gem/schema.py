"""The stored form of records: a Struct for each record, which describes the JSON object with its fields.

`gem.codec` derives both directions from the annotations, and the published JSON schema is generated from
them. A field has the name of the record's field. Fields with their default value are left out; where that is
None and the record has another default, None stands for the record's. Where a Struct has one field more than
its record, as End has, the records are in a mapping, and the field is the key.

Token ids, log probabilities and masks are arrays: base64 of little-endian int32, float32 and uint8; a mask of
ones is left out. Of a turn's prompt, only the ids that its parent (the number of an earlier turn) does not
have are stored, as in the record.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

from gem.record import SCHEMA, SEAT, StopReason, Verdict


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


class Failure(Struct, omit_defaults=True):
    """The error that broke an episode, and where it happened.

    `no_verdict`: whether its class is a NoVerdict; earlier versions left it out.
    """

    boundary: Chars
    type: Chars
    message: Chars
    usage: Values = {}
    no_verdict: bool | None = None


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
    address: Chars = ""


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
    address: Chars = ""


class Run(Struct):
    """The line of a run; it comes before the run's first episode."""

    schema: SchemaNumber
    run: RunInfo
