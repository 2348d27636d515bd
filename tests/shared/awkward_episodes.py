"""Episodes that other formats have no place for: pictures, calls, seats, branches, odd text, what broke."""

from functools import cache

from gem.content import Image, Message, Text, ToolCall, ToolSpec, written_tools
from gem.core import Env, Start, Step
from gem.envs.seats.kuhn_poker import KuhnPoker
from gem.history import HistoryPolicy
from gem.record import SEAT, Episode, Failure, Origin, Reply, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.rollout import Conversation, drive, play
from gem.specs import TaskRef
from gem.testing.doubles import EchoEnv

RUN = RunInfo(
    "run",
    "OpenAIAgent",
    "a-model",
    {"temperature": 0.5},
    history=HistoryPolicy(system="Be brief."),
    versions={"gem": "0.9"},
)
PIXEL = b"\x89PNG\r\n"
ODD = "caf\u00e9 \ud800 <b> \x1b[2J \x00 end"


class Tooled(Env):
    """Two steps, with a tool."""

    tool_specs = (
        ToolSpec("look", "Look around.", {"type": "object", "properties": {"at": {"type": "string"}}}),
    )

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return Start("Where is it?", {"tools": written_tools(self.tool_specs)})

    def step(self, action):
        self.turn += 1
        info = {"success": True} if self.turn == 2 else {"tool_results": [{"shown": 6}, {"shown": 5}]}
        return Step("a lamp\na dog", 0.25, self.turn == 2, False, info)


@cache
def with_tools():
    calls = (ToolCall("c1", "look", '{"at": "<b>"}'), ToolCall("c2", "look", "no JSON \ud800"))

    def agent(asks):
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        native = calls if asks[0].turn == 0 else ()
        prompt = (*asks[0].held, 1, 2)
        return [Reply("so", prompt, (5, 6), (-0.5, -0.25), tool_calls=native, reasoning="hm", usage=usage)]

    record = Episode(TaskRef("test:Tooled", seed=3), RUN, "tools", 1)
    return drive(play(Tooled(), 3, record=record), ask=agent)


@cache
def of_two_seats():
    record = Episode(TaskRef("game:KuhnPoker", seed=5), RUN, "seats")
    return drive(play(KuhnPoker(), 5, record=record, actor="sample_random_action"))


@cache
def with_pictures():
    obs = (
        Text("Look: " + ODD),
        Image(PIXEL, "image/png", "a dot"),
        Image(b"<svg/>", "image/svg+xml", "a line"),
    )
    turn = Turn(SEAT, obs, ODD, Message("assistant", ODD, reasoning="\udfff"), reward=float("nan"))
    turn.info = {"\ud800": 2**70, "x": float("inf")}
    ends = {SEAT: SeatEnd(StopReason.SOLVED, terminated=True, observation=(Image(PIXEL),))}
    task = TaskRef("test:Pictures", {"text": ODD}, seed=2**80)
    return Episode(
        task, RUN, "pictures", turns=[turn], ends=ends, stop=StopReason.SOLVED, verdict=Verdict.SCORED
    )


@cache
def branched():
    """An episode whose third turn goes on from the first one."""
    turns = [Turn(SEAT, f"say {number}", str(number), reward=0.5) for number in range(3)]
    turns[0].hold((1, 2), (3,), (-0.1,))
    turns[1].hold((1, 2, 3, 4), (5,), (float("-inf"),), after=turns[:1])
    turns[2].hold((1, 2, 3, 9), (6, 7), (-0.5, -0.25), (0, 1), after=turns[:1])
    ends = {SEAT: SeatEnd(StopReason.TURN_LIMIT, truncated=True, observation="say 3")}
    return Episode(
        TaskRef("test:Echo", seed=1),
        RUN,
        "branch",
        turns=turns,
        ends=ends,
        stop=StopReason.TURN_LIMIT,
        verdict=Verdict.SCORED,
        origin=Origin("run-other-0-0", 1),
    )


@cache
def broken():
    error = Failure("env", "RuntimeError", "it \ud800 broke")
    return Episode(TaskRef("test:Broken", seed=1), RUN, "broken", error=error)


@cache
def echoed(seed=0):
    with Conversation(EchoEnv(), seed, run=RUN, job=f"echo{seed}") as talk:
        while talk.asks:
            talk.answer(
                "Say nothing." if len(talk.episode.turns) == 2 else talk.asks[0].messages[-1].text[4:-1]
            )
    return talk.episode


@cache
def awkward():
    return [with_tools(), of_two_seats(), with_pictures(), branched(), broken(), echoed()]
