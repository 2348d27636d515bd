"""Strategies: whatever an episode, and each part of it, may be; drawn by the annotations of the schema."""

from enum import Enum
from types import NoneType, UnionType
from typing import Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from gem import schema
from gem.codec import RECORDS
from gem.content import Image, Text
from gem.history import KINDS

texts = st.text(st.characters(exclude_categories=()), max_size=8)
floats = st.floats(allow_nan=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.integers() | st.just("$repr"), inner, max_size=3)
    ),
    max_leaves=6,
)
infos = st.dictionaries(texts, values, max_size=2)
parts = st.builds(Text, texts) | st.builds(Image, st.binary(max_size=6), texts, texts)
observations = texts | st.lists(parts, max_size=3).map(tuple)
seats = st.sampled_from(["agent", "player_0", "\ud800"])
ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5)
logprobs = st.floats(width=32, allow_nan=False)
numbers = st.integers(0, 9)


def options(hint):
    """Return the types that an annotation allows."""
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}


DRAWN = [
    (schema.Chars, texts),
    (schema.Obs, observations),
    (schema.Number, floats | numbers),
    (schema.Values, infos),
    (schema.Ids, ids.map(tuple)),
    (schema.Logprobs, st.lists(logprobs, max_size=3).map(tuple)),
    (int | schema.Int, st.integers(-(2**80), 2**80)),
    (int, numbers),
    (float, st.floats(0, 9)),
    (bool, st.booleans()),
]


def values_of(hint):
    """Draw a value of the record's field that has this annotation in the schema."""
    allowed = options(hint)
    if NoneType in allowed:
        (*rest,) = allowed - {NoneType}
        return st.none() | values_of(Union[tuple(rest)])  # noqa: UP007
    for known, drawn in DRAWN:
        if options(known) == allowed:
            return drawn
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is not list:
        return st.sampled_from(hint) if issubclass(hint, Enum) else record_of(hint)
    (element,) = get_args(hint)
    if get_origin(element) is tuple:
        return st.dictionaries(seats, values_of(get_args(element)[1]), max_size=2)
    if element is schema.End:
        return st.dictionaries(seats, ends, max_size=3)
    return st.lists(values_of(element), max_size=2).map(tuple)


def record_of(kind, /, **given):
    """Draw a record of a Struct; a field that is not given is drawn by its annotation."""
    hints = get_type_hints(kind, include_extras=True)
    drawn = {name: values_of(hint) for name, hint in hints.items() if name not in given}
    return st.builds(
        RECORDS[kind], **drawn, **{name: each for name, each in given.items() if each is not None}
    )


roles = st.sampled_from(["system", "user", "assistant", "tool"])
messages = record_of(schema.Message, role=roles)
DRAWN.append((schema.Message, messages))
calls = values_of(list[schema.ToolCall])
tasks = record_of(schema.Task)
policies = record_of(schema.History, kind=st.sampled_from(KINDS), window=st.none() | st.integers(1, 9))
runs = record_of(schema.RunInfo, history=st.none() | policies)
asks = record_of(schema.Ask)
replies = record_of(schema.Reply)
tools = record_of(schema.ToolSpec) | record_of(schema.ToolCall)
ends = record_of(schema.End, seat=None, unearned=floats)
TOKENS = dict.fromkeys(["parent", "kept", "new_ids", "token_ids", "logprobs", "mask"])


@st.composite
def turn_lists(draw):
    """Draw turns whose prompts extend, branch off, rewrite or ignore those of earlier turns, or have none."""
    turns = []
    for _ in range(draw(st.integers(0, 5))):
        turn = draw(record_of(schema.Turn, seat=seats, **TOKENS))
        kind = draw(st.sampled_from(["none", "new", "extend", "hold"]))
        sampled = draw(ids)
        known = draw(st.none() | st.lists(logprobs, min_size=len(sampled), max_size=len(sampled)))
        if kind == "extend" and turns:
            turn.extend(draw(st.sampled_from(turns)), draw(ids), sampled, known)
        elif kind != "none":
            before = draw(st.sampled_from(turns)).prompt_ids.tolist() if kind == "hold" and turns else []
            mask = draw(st.none() | st.lists(st.integers(0, 1), min_size=len(sampled), max_size=len(sampled)))
            cut = draw(st.integers(0, len(before)))
            turn.hold(before[:cut] + draw(ids), sampled, known, mask, after=turns)
        turns.append(turn)
    return turns


episodes = record_of(
    schema.Episode,
    schema=None,
    run=runs,
    turns=turn_lists(),
    starts=st.dictionaries(seats, infos, max_size=2),
)
