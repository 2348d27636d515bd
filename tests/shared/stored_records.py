"""Records whose stored form is fixed: each kind with every field set, odd values, and many drawn ones."""

import math
import random
from array import array

import numpy as np

from gem.content import Image, Message, Text, ToolCall, ToolSpec
from gem.history import HistoryPolicy
from gem.record import (
    AgentInfo,
    Ask,
    Episode,
    Failure,
    Limits,
    Origin,
    Reply,
    RunInfo,
    SeatEnd,
    StopReason,
    Turn,
    Verdict,
)
from gem.specs import TaskRef, WrapperRef

DRAWN = 80

TEXTS = [
    "",
    "agent",
    "stop",
    "caf\u00e9",
    "\ud800 alone",
    '{"$float":"nan"}',
    "$repr",
    "a\nb\x00",
    "\U0001f600",
]
NUMBERS = [0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**70), 0.0, -0.0, 1.5, 1e308, math.inf, -math.inf]
IMAGE = Image(b"\x89PNG\x00\xff", "image/png", "a \udfff cat")


class Words(str):
    """Text of a class of one's own."""


class Odd:
    """An object that JSON cannot hold."""

    def __repr__(self):
        return "<odd \ud800>"


class Rude:
    """An object whose repr fails."""

    def __repr__(self):
        raise RuntimeError("no")


def nested(depth):
    """Return dicts in dicts."""
    return {"deeper": nested(depth - 1)} if depth else "end"


def odd_values():
    """Return a mapping with every kind of value that JSON lacks."""
    loop = {"name": "loop"}
    loop["self"] = [loop]
    return {
        "numbers": [*NUMBERS, True, False, None],
        "numpy": [np.int64(3), np.float32(0.5), np.float64(math.inf), np.bool_(True), np.array(7)],
        "texts": TEXTS,
        "words": Words("sub"),
        "odd words": Words("sub \ud800"),
        "tuples": (1, (2, ("three",))),
        "set": {1},
        "bytes": b"\x00\xff",
        "complex": 1 + 2j,
        "odd": Odd(),
        "rude": Rude(),
        "type": int,
        "text": Text("t \ud800"),
        "image": IMAGE,
        "list of parts": [Text("t"), IMAGE],
        "long keys": {1: "a", (1, 2): "b", None: [3], "\ud800": 4, 0.5: {}},
        "one escape": {"$float": "nan"},
        "two keys": {"$float": "nan", "$int": 1},
        "empty": [{}, [], "", ()],
        "deep": nested(40),
        "loop": loop,
        "enum": StopReason.SOLVED,
    }


MESSAGE = Message(
    "assistant",
    (Text("look"), IMAGE, Text("\ud800")),
    tool_calls=(ToolCall("c1", "look", '{"at": 1}'), ToolCall("\ud800", "caf\u00e9", "no JSON")),
    tool_call_id="c0",
    name="caf\u00e9",
    reasoning="hm \ud801",
)
ASK = Ask(
    "run-j-0-0",
    "player_\ud800",
    3,
    (Message("system", "Be brief."), MESSAGE),
    (1, 2, -(2**31)),
    2,
    2**64,
    100,
    2048,
    tools=(ToolSpec("look", "Look around.", {"type": "object", "n": 2**70}), ToolSpec("run", "")),
    sampling={"temperature": math.nan, "stop": ("a",)},
    policy_s=np.float32(0.5),
)
REPLY = Reply(
    "5 \ud800",
    [1, 2, 3],
    array("i", [4, 5]),
    (-0.5, -math.inf),
    "length",
    np.int64(7),
    tool_calls=MESSAGE.tool_calls,
    reasoning="because",
    usage={"prompt_tokens": 3, "completion_tokens": math.nan},
    extra=odd_values(),
    policy_s=2,
)
TASK = TaskRef(
    "game:X \ud800",
    {"size": 3, **odd_values()},
    (WrapperRef("concat"), WrapperRef("caf\u00e9", {"most": 2**64})),
    -(2**64),
    "module:Name",
    ("agent", "\udfff"),
)
RUN = RunInfo(
    "run \ud800",
    "OpenAIAgent",
    "caf\u00e9",
    odd_values(),
    "vocab",
    Limits(1, 2, 3, 4, 5, 6.5, "scored"),
    HistoryPolicy("chat", 4, True, "Be \ud800."),
    {"gem": "0.9", "python": "3.11"},
    {"agent": AgentInfo(), "player_\ud800": AgentInfo("a", "m", {"n": math.nan}, "v")},
)
PLAIN_RUN = RunInfo("run")
SERVED_RUN = RunInfo("s", seats={"one": AgentInfo("a", address="http://a/v1")}, address="http://caf\u00e9/v1")


def whole_episode():
    """Return an episode in which every field is set, with prompts of every kind."""
    first = Turn(
        "player_\ud800",
        (Text("look"), IMAGE),
        "5",
        MESSAGE,
        "stop",
        value=math.nan,
        reward=np.float32(0.25),
        rewards={"win": 1.0, "form": -math.inf},
        sampling={"temperature": 0.5},
        usage={"completion_tokens": 2},
        info=odd_values(),
        timing={"policy_s": 0.18, "env_s": math.inf},
        extra={"ids": (1, 2)},
        messages=(MESSAGE, Message("user", "caf\u00e9")),
        policy_version=np.int64(3),
    )
    first.hold((1, 2, 3), (4, 5), (-0.5, -1.0), (0, 1))
    second = Turn("agent", "caf\u00e9", None, reward=2**64, value=-0.0)
    second.extend(first, (6,), (7,), (-0.1,))
    third = Turn("agent", ["list", "of"][:0], "\ud800", Message("assistant", ""), reward=3)
    third.hold((1, 2, 9), (), None, after=[first, second])
    stranger = Turn("agent", "")
    stranger.hold((8, 8, 8), (9,))
    fourth = Turn("agent", "", "", parent=stranger, kept=4, new_ids=(5,), token_ids=array("i"))
    fifth = Turn("agent", "o", "a", new_ids=[1, 2], token_ids=np.array([3, 4]), mask=(1, 0))
    fifth.logprobs = np.array([-0.5, math.nan])
    return Episode(
        TASK,
        RUN,
        "job \ud800",
        2,
        np.int64(1),
        2**66,
        "group",
        [first, second, third, fourth, fifth],
        {"agent": {}, "player_\ud800": odd_values()},
        {
            "agent": SeatEnd(StopReason.TOKEN_LIMIT, np.True_, True, (IMAGE,), {"n": 1}, 0),
            "player_\ud800": SeatEnd(StopReason.SOLVED, True, False, "bye", {}, -0.0),
            "third": SeatEnd(unearned=math.inf),
            "fourth": SeatEnd(unearned=np.float64(0.0)),
        },
        StopReason.ENDED,
        Verdict.SCORED,
        Failure("env", "ValueError", "broken \ud800"),
        Origin("run-j-1-0", np.int64(2)),
        {"wall_s": 0.5, "nan": math.nan},
    )


def drawn_episode(number):
    """Return an episode that a generator with this seed draws."""
    draw = random.Random(number)
    turns = []
    for _ in range(draw.randrange(5)):
        turns.append(_drawn_turn(draw, turns))
    seats = draw.sample(["agent", "a", "b", "\ud800"], draw.randrange(4))
    ends = {
        seat: SeatEnd(
            draw.choice(list(StopReason)),
            draw.random() < 0.5,
            draw.random() < 0.5,
            _observation(draw),
            _mapping(draw),
            draw.choice([0.0, draw.choice(NUMBERS)]),
        )
        for seat in seats
    }
    wrappers = tuple(WrapperRef(draw.choice(TEXTS), _mapping(draw)) for _ in range(draw.randrange(3)))
    return Episode(
        TaskRef(draw.choice(TEXTS), _mapping(draw), wrappers, draw.choice([None, 3, 2**64])),
        draw.choice([PLAIN_RUN, RUN]),
        f"job{number}",
        draw.randrange(3),
        draw.randrange(3),
        draw.choice([0, 7, 2**65]),
        draw.choice(TEXTS),
        turns,
        {seat: _mapping(draw) for seat in seats},
        ends,
        draw.choice(list(StopReason)),
        draw.choice(list(Verdict)),
        draw.choice([None, Failure("env", draw.choice(TEXTS), draw.choice(TEXTS))]),
        draw.choice([None, Origin(draw.choice(TEXTS), 1)]),
        {"wall_s": draw.random()},
    )


def _drawn_turn(draw, turns):
    turn = Turn(draw.choice(["agent", "a", "\ud800"]), _observation(draw), draw.choice([None, *TEXTS]))
    turn.reward, turn.value = (draw.choice([None, draw.random(), draw.choice(NUMBERS)]) for _ in range(2))
    turn.reply = draw.choice([None, None, MESSAGE, Message("assistant", draw.choice(TEXTS))])
    turn.info, turn.extra = _mapping(draw), draw.choice([None, _mapping(draw)])
    turn.rewards = draw.choice([None, {"part": draw.random()}])
    turn.finish, turn.policy_version = draw.choice(["", "stop", "length"]), draw.choice([None, 0, 12])
    turn.messages = draw.choice([None, None, (), (MESSAGE,)])
    sampled = [draw.randrange(50_000) for _ in range(draw.randrange(4))]
    known = draw.choice([None, [-draw.random() for _ in sampled]])
    kind = draw.randrange(3)
    if kind == 0 and turns:
        turn.extend(draw.choice(turns), [draw.randrange(9)], sampled, known)
    elif kind:
        mask = draw.choice([None, [draw.randrange(2) for _ in sampled]])
        turn.hold([draw.randrange(9) for _ in range(3)], sampled, known, mask, after=turns)
    return turn


def _observation(draw):
    parts = (Text(draw.choice(TEXTS)), IMAGE, Text("plain"))
    return draw.choice([draw.choice(TEXTS), "seen", tuple(draw.sample(parts, draw.randrange(3)))])


def _mapping(draw, depth=2):
    return {draw.choice(TEXTS): _value(draw, depth) for _ in range(draw.randrange(3))}


def _value(draw, depth):
    kind = draw.randrange(6 if depth else 3)
    if kind == 0:
        return draw.choice(TEXTS)
    if kind == 1:
        return draw.choice(NUMBERS)
    if kind == 2:
        return draw.choice([None, True, Text("x"), IMAGE, np.int64(2), {2}, Words("w")])
    if kind == 3:
        return [_value(draw, depth - 1) for _ in range(draw.randrange(3))]
    if kind == 4:
        return {draw.choice([1, (1, "a"), None]): _value(draw, depth - 1)}
    return _mapping(draw, depth - 1)


def stored_episodes():
    """Return the episodes, in the order of their stored lines."""
    bare = Episode(TaskRef("game:X"), PLAIN_RUN, "bare")
    lost = Episode(TaskRef("game:X"), PLAIN_RUN, "lost")
    lost.error = Failure("agent", "NoVerdict", "filtered", {"m": {"discarded_prompt_tokens": 2**40}})
    broken = Episode(TaskRef("game:X"), PLAIN_RUN, "broken")
    broken.error = Failure("env", "OutOfTime", "its own", no_verdict=False)
    return [bare, whole_episode(), *map(drawn_episode, range(DRAWN)), lost, broken]


def stored_runs():
    """Return the runs, in the order of their stored lines."""
    numbers = Limits(turns=np.int64(3), policy_s=np.float32(0.5))
    return [PLAIN_RUN, RUN, RunInfo("r", limits=numbers), SERVED_RUN]


def packed_records():
    """Return the records that travel alone, in the order of their stored lines."""
    plain = Ask("e", "agent", 0, (Message("user", "hi"),)), Reply("5"), TaskRef("game:X")
    tools = ToolSpec("look", "Look.", {"type": "object"}), ToolCall("c", "look", "{}")
    return [ASK, REPLY, TASK, MESSAGE, *plain, Message("user", ""), *tools, Reply("", token_ids=array("i"))]
