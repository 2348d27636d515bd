"""Strategies: whatever an episode, and each part of it, may be."""

from hypothesis import strategies as st

from gem.content import Image, Message, Text, ToolCall
from gem.history import HistoryPolicy
from gem.record import (
    AgentInfo,
    Episode,
    Failure,
    Limits,
    Origin,
    RunInfo,
    SeatEnd,
    StopReason,
    Turn,
    Verdict,
)
from gem.specs import TaskRef, WrapperRef

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
calls = st.lists(st.builds(ToolCall, texts, texts, texts), max_size=2).map(tuple)
messages = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    observations,
    tool_calls=calls,
    tool_call_id=st.none() | texts,
    name=st.none() | texts,
    reasoning=st.none() | texts,
)
seats = st.sampled_from(["agent", "player_0", "\ud800"])
ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5)
logprobs = st.floats(width=32, allow_nan=False)
tasks = st.builds(
    TaskRef,
    texts,
    infos,
    st.lists(st.builds(WrapperRef, texts, infos), max_size=2).map(tuple),
    st.none() | st.integers(0, 2**80),
    st.none() | texts,
    st.lists(texts, max_size=2).map(tuple),
)
who = st.builds(AgentInfo, texts, st.none() | texts, infos, st.none() | texts)
runs = st.builds(
    RunInfo,
    texts,
    texts,
    st.none() | texts,
    infos,
    st.none() | texts,
    st.builds(
        Limits,
        turns=st.none() | st.integers(0, 9),
        policy_s=st.none() | st.floats(0, 9),
        on_time=st.sampled_from(["none", "scored"]),
    ),
    st.none()
    | st.builds(HistoryPolicy, st.just("chat"), st.none() | st.integers(1, 9), st.booleans(), texts),
    infos,
    st.dictionaries(seats, who, max_size=2),
)


@st.composite
def turn_lists(draw):
    """Draw turns whose prompts extend, branch off, rewrite or ignore those of earlier turns, or have none."""
    turns = []
    for _ in range(draw(st.integers(0, 5))):
        turn = draw(
            st.builds(
                Turn,
                seats,
                observations,
                st.none() | texts,
                st.none() | messages,
                texts,
                policy_version=st.none() | st.integers(0, 9),
                value=st.none() | floats,
                reward=st.none() | floats,
                rewards=st.none() | st.dictionaries(texts, floats, max_size=1),
                sampling=st.none() | infos,
                usage=st.none() | st.dictionaries(texts, st.integers(0, 9), max_size=1),
                info=infos,
                timing=st.dictionaries(texts, floats, max_size=1),
                extra=st.none() | infos,
                messages=st.none() | st.lists(messages, max_size=2).map(tuple),
            )
        )
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


ends = st.builds(
    SeatEnd, st.sampled_from(StopReason), st.booleans(), st.booleans(), observations, infos, floats
)
episodes = st.builds(
    Episode,
    tasks,
    runs,
    texts,
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 2**70),
    texts,
    turn_lists(),
    st.dictionaries(seats, infos, max_size=2),
    st.dictionaries(seats, ends, max_size=3),
    st.sampled_from(StopReason),
    st.sampled_from(Verdict),
    st.none() | st.builds(Failure, texts, texts, texts),
    st.none() | st.builds(Origin, texts, st.integers(0, 9)),
    st.dictionaries(texts, floats, max_size=2),
)
