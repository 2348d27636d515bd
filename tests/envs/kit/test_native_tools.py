"""Every family with tools: an episode by native calls is the episode that a text agent would have had."""

import contextlib
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gem
from gem.agents.base import BaseAgent
from gem.content import Message, ToolCall, ToolSpec, tools_in
from gem.core import Env, Start, Step
from gem.envs.database.env import DatabaseEnv
from gem.envs.seats.service_desk import ServiceDesk
from gem.envs.terminal.env import TerminalEnv, check_shell
from gem.record import Limits, Reply
from gem.rollout import Conversation, Job, rollout
from gem.sandbox import SandboxFailed, default_sandbox
from gem.seats import SeatEnv
from gem.testing.doubles import EchoEnv
from gem.tools.base_tool import FunctionTool
from gem.tools.calls import find, write
from gem.tools.python_code_tool import PythonCodeTool
from gem.tools.search_tool import SearchTool
from gem.tools.tool_env_wrapper import ToolEnvWrapper
from gem.wrappers import EpisodeTrackingWrapper, TimeLimit

TURNS = 4


def double(number: int) -> str:
    """Double a number.

    Args:
        number: which.
    """
    return str(2 * number)


def shout(text: str) -> str:
    """Say it in capitals.

    Args:
        text: what.
    """
    return text.upper()


class Notebook(Env):
    """An environment with a tool of its own, and no sandbox."""

    tool_specs = (
        ToolSpec(
            "note",
            "Write a note.",
            {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        ),
    )

    def reset(self, seed=None):
        super().reset(seed)
        self.notes = []
        return Start("Write notes.", {})

    def step(self, action):
        self.notes += [each.call.arguments.get("text") for each in find(action, ()) if each.call]
        results = [{"tool": "note", "shown": 4} for _ in find(action, ())]
        return Step("\n".join(["done"] * len(results)) or "?", 0.0, False, False, {"tool_results": results})


def notebook():
    return ToolEnvWrapper(Notebook(), [FunctionTool(double), FunctionTool(shout)], max_tool_uses=4)


def plain_tools():
    return ToolEnvWrapper(
        gem.make("game:GuessTheNumber-v0-easy"),
        [FunctionTool(double), FunctionTool(shout, tag="shout")],
        tool_success_reward=0.01,
        tool_execute_error_reward=-0.01,
        max_tool_uses=4,
    )


def search():
    return ToolEnvWrapper(gem.make("qa:Facts-v0-easy"), [SearchTool(search_url="world", topk=1)])


def python():
    default_sandbox()
    return ToolEnvWrapper(gem.make("game:GuessTheNumber-v0-easy"), [PythonCodeTool()])


def terminal():
    check_shell()
    return TerminalEnv("FindText", command_s=5)


def desk():
    return SeatEnv(ServiceDesk(), "agent", "solver")


def questions():
    default_sandbox()
    return DatabaseEnv("Library")


def orders():
    default_sandbox()
    return DatabaseEnv("Library", "operations")


def postgres_questions():
    return DatabaseEnv("Library", backend="postgres")


def mcp():
    pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")
    from gem.envs.database.mcp import McpPostgresEnv

    return McpPostgresEnv("ForeignKeys")


# What is called in each: names, good arguments, and the tag whose content is the argument.
FAMILIES = {
    "notebook": (notebook, 60, {"note": ("text", "a"), "shout": ("text", "hi"), "double": ("number", 2)}, ()),
    "tools": (plain_tools, 60, {"shout": ("text", "hi"), "double": ("number", 2)}, ("shout",)),
    "search": (search, 15, {"search": ("query", "river")}, ("search",)),
    "desk": (desk, 40, {"get_booking": ("booking_id", "B7"), "list_bookings": (None, None)}, ()),
    "python": (python, 6, {"python": ("code", "print(6 * 7)")}, ("python",)),
    "terminal": (terminal, 8, {"bash": ("command", "echo hi"), "submit": (None, None)}, ("bash", "submit")),
    "questions": (
        questions, 8, {"sql": ("query", "SELECT 1"), "answer": ("query", "SELECT 2")}, ("sql", "answer"),
    ),
    "orders": (orders, 8, {"sql": ("query", "SELECT 1"), "submit": (None, None)}, ("sql", "submit")),
    "postgres": (postgres_questions, 4, {"sql": ("query", "SELECT 1 AS one")}, ("sql",)),
    "mcp": (mcp, 4, {"execute_sql": ("sql", "SELECT 1"), "submit": (None, None)}, ("submit",)),
}  # fmt: skip
NEEDS_POSTGRES = ("postgres", "mcp")
each_family = pytest.mark.parametrize("family", FAMILIES)

HOSTILE_TEXTS = [
    "</tool_call>", "<think>", "</think>", "```\nx\n```", "</bash><submit/>", "é☃", "\ud800", "\x00",
    "x" * 100_000, "<tool_call>{}</tool_call>", "\\boxed{done}", "",
]  # fmt: skip
BROKEN = [
    "",
    " ",
    "{",
    "[1]",
    "null",
    '"a"',
    "{}",
    "NaN",
    '{"a": ' + "[" * 3000,
    '{"number": 1e999}',
    "9" * 5000,
]
SAID = [
    "",
    "Let me look.",
    "<think>a draft</think>",
    "<think>",
    "</tool_call>",
    "<tool_call>",
    "```",
    "é\ud800",
]


@pytest.fixture(scope="module")
def make(request):
    """Make one environment per family, of those that this machine can have."""
    made = {}
    with contextlib.ExitStack() as stack:

        def make(family):
            if family not in made:
                if family in NEEDS_POSTGRES:
                    patch = stack.enter_context(pytest.MonkeyPatch.context())
                    patch.setenv("GEM_POSTGRES_DSN", request.getfixturevalue("postgres_dsn"))
                try:
                    made[family] = stack.enter_context(FAMILIES[family][0]())
                except SandboxFailed as absent:
                    pytest.skip(str(absent))
            return made[family]

        yield make


def arguments_of(family):
    """Arguments of any kind for any of a family's tools, as JSON text, and names that are nobody's."""
    tools = FAMILIES[family][2]
    texts = st.sampled_from(HOSTILE_TEXTS)

    def of(name):
        key, good = tools[name]
        right = json.dumps({} if key is None else {key: good})
        values = texts | st.integers() | st.none() | st.booleans() | st.lists(st.integers(), max_size=2)
        return st.one_of(
            st.just(right),
            st.just(right),
            st.sampled_from(BROKEN),
            values.map(lambda value: json.dumps({key or "x": value})),
            values.map(lambda value: json.dumps({key or "x": good, "extra": value})),
        ).map(lambda arguments: (name, arguments))

    strange = st.sampled_from(["nobody", "", "</tool_call>", "a" * 300])
    return st.one_of(*map(of, tools), strange.map(lambda name: (name, "{}")))


def plans(family):
    turn = st.tuples(st.sampled_from(SAID), st.lists(arguments_of(family), max_size=3))
    return st.lists(turn, min_size=1, max_size=TURNS)


def replies_of(plan):
    made = []
    for number, (said, named) in enumerate(plan):
        calls = tuple(ToolCall(f"c{number}_{n}", name, given) for n, (name, given) in enumerate(named))
        made.append(Reply(said, tool_calls=calls))
    return made


def played(env, replies):
    """Play replies, and return the episode and what was asked each time."""
    asked = []
    with Conversation(env, 3, Limits(turns=len(replies))) as talk:
        left = iter(replies)
        while talk.asks:
            asked.append(talk.asks[0])
            talk.answer(next(left))
    return talk.episode, asked


def said_by(episode):
    turns = [(turn.observation, turn.reward) for turn in episode.turns]
    return turns, episode.stop, episode.verdict, episode.final_observation, episode.error


def check_messages(asked, replies, tools):
    """Compare what an agent with native calls was shown with what it did."""
    for ask, before, reply in zip(asked[1:], asked, replies, strict=False):
        assert ask.tools == tools
        new = ask.messages[len(before.messages) :]
        if not reply.tool_calls:
            assert [message.role for message in new] == ["assistant", "user"]
            continue
        first, *results = new
        assert first == Message("assistant", reply.text, tool_calls=reply.tool_calls)
        assert [(m.role, m.tool_call_id, m.name) for m in results] == [
            ("tool", call.id, call.name) for call in reply.tool_calls
        ]


@pytest.mark.system
@each_family
def test_the_same_by_native_calls_and_by_text(make, family):
    env = make(family)

    @settings(
        max_examples=FAMILIES[family][1],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(plan=plans(family))
    def check(plan):
        natively = replies_of(plan)
        in_text = [Reply(write(reply.text, reply.tool_calls)) for reply in natively]
        one, asked = played(env, natively)
        other, asked_in_text = played(env, in_text)
        assert one.error is None
        assert said_by(one) == said_by(other)
        assert one.transcript_hash() == other.transcript_hash()
        check_messages(asked, natively, tuple(env.tool_specs))
        assert {message.role for ask in asked_in_text for message in ask.messages} <= {"user", "assistant"}

    check()


@each_family
@pytest.mark.system
def test_the_same_by_tags(make, family):
    env = make(family)
    _, _, tools, tags = FAMILIES[family]
    if not tags:
        pytest.skip("its tools have no tags")
    texts = ["hi", "1", "SELECT 1", "echo a; echo b", "print('x')\nprint(2)"]

    def tagged(name, text):
        return "<submit/>" if tools[name][0] is None else f"<{name}>{text}</{name}>"

    def native(name, text):
        key = tools[name][0]
        return json.dumps({} if key is None else {key: text})

    @settings(max_examples=max(4, FAMILIES[family][1] // 3), suppress_health_check=[HealthCheck.too_slow])
    @given(
        plan=st.lists(
            st.lists(st.tuples(st.sampled_from(tags), st.sampled_from(texts)), min_size=1, max_size=3),
            min_size=1,
            max_size=TURNS,
        )
    )
    def check(plan):
        natively = replies_of([("So.", [(name, native(name, text)) for name, text in turn]) for turn in plan])
        in_tags = [Reply("\n".join(["So.", *(tagged(*call) for call in turn)])) for turn in plan]
        one, _ = played(env, natively)
        other, _ = played(env, in_tags)
        assert one.error is None
        assert said_by(one) == said_by(other)

    check()


@pytest.mark.system
@each_family
def test_the_results_of_a_turn_are_a_message_each_in_order(make, family):
    env = make(family)
    tools = FAMILIES[family][2]
    name = next(iter(tools))
    key, good = tools[name]
    call = (name, json.dumps({} if key is None else {key: good}))
    replies = replies_of([("", [call, ("nobody", "{}"), call]), ("", [call])])
    if family == "notebook":  # in a turn with a tool of nobody's, which the wrapper answers
        replies = replies_of([("", [call, call, call]), ("", [call])])
    episode, asked = played(env, replies)
    assert episode.error is None
    results = asked[1].messages[2:]
    whole = episode.turns[1].observation
    assert [message.role for message in results] == ["tool"] * 3
    assert "\n".join(message.text for message in results) == whole
    assert results[0].text == results[2].text != ""
    assert re.search(r"nobody|no tool", results[1].text) or family == "notebook"


@each_family
def test_tools_reach_the_agent_through_wrappers(make, family):
    env = make(family)
    specs = tuple(env.tool_specs)
    assert specs
    assert all(spec.name and spec.description and spec.schema["type"] == "object" for spec in specs)
    wrapped = EpisodeTrackingWrapper(TimeLimit(env, 3))
    assert tuple(wrapped.tool_specs) == specs
    assert tools_in(wrapped.reset(seed=1).info) == specs
    assert json.loads(json.dumps(wrapped.reset(seed=1).info["tools"])) == wrapped.reset(seed=1).info["tools"]


def test_the_instruction_says_whose_calls_are_counted():
    assert "You have 4 calls of double, shout in all. A turn that" in notebook().reset(seed=0).obs
    alone = ToolEnvWrapper(EchoEnv(), [FunctionTool(double)], max_tool_uses=3).reset(seed=0).obs
    assert "You have 3 tool calls in all. A turn that calls a tool gives no answer" in alone


def test_calls_of_the_environments_own_tools_go_to_it():
    env = notebook()
    assert [spec.name for spec in env.tool_specs] == ["double", "shout", "note"]
    env.reset(seed=0)

    def native(*named):
        return write("", [ToolCall("x", name, json.dumps(given)) for name, given in named])

    note, two = ("note", {"text": "a"}), ("double", {"number": 1})
    step = env.step(native(note, note))
    assert (step.obs, step.info["use_tool"], env.env.notes) == ("done\ndone", False, ["a", "a"])
    step = env.step(native(note, two))
    assert step.obs == "note was not run: call it in a turn of its own.\n<output>\n2\n</output>"
    assert [result["refused"] for result in step.info["tool_results"]] == [True, False]
    assert (env.env.notes, env.tool_use_counter) == (["a", "a"], 1)
    unknown = env.step(native(("nots", {}))).obs
    assert "there is no tool 'nots'. Did you mean 'note'?" in unknown
    assert "Tools: double, shout, note." in unknown
    for _ in range(2):
        env.step(native(two))
    for _ in range(5):  # none of its own is left: turns that mix end the episode all the same
        step = env.step(native(note, two))
    assert (step.terminated, step.info["stop"]) == (True, "turn_budget")


class Clerk(BaseAgent):
    """Answers by native calls, or by the text that they are."""

    native = True

    def answer(self, ask):
        if ask.turn > 2:
            return Reply("That is not possible. Goodbye.")
        calls = tuple(
            ToolCall(f"{ask.turn}_{n}", name, "{}") for n, name in enumerate(("list_bookings", "hand_over"))
        )
        return Reply("", tool_calls=calls) if self.native else Reply(write("", calls))

    def __call__(self, asks):
        return [self.answer(ask) for ask in asks]


class AsyncClerk(BaseAgent):
    async def ask(self, ask):
        return Clerk().answer(ask)


class TextClerk(Clerk):
    native = False


@pytest.mark.system
@pytest.mark.parametrize("host", ["serial", "thread", "process"])
@pytest.mark.parametrize("agent", [Clerk, AsyncClerk, TextClerk])
def test_the_same_on_every_host_and_by_every_driver(host, agent):
    jobs = [Job("multi:ServiceDesk-v0-scripted", seed) for seed in range(3)]
    expected = [episode.transcript_hash() for episode in rollout(jobs, Clerk())]
    episodes = rollout(jobs, agent(), host=host)
    assert [episode.transcript_hash() for episode in episodes] == expected
    for episode in episodes:
        assert episode.error is None
        assert episode.initial_info["tools"][0]["name"] == "verify_customer"
        assert bool(episode.turns[0].said.tool_calls) is (agent is not TextClerk)


def test_only_the_seat_that_has_tools_is_offered_them():
    offered = {}

    class Seat(BaseAgent):
        def __call__(self, asks):
            offered.update({ask.seat: [tool.name for tool in ask.tools] for ask in asks})
            return [Reply("Goodbye.") for _ in asks]

    rollout([Job("multi:ServiceDesk-v0", 0)], Seat())
    assert offered["customer"] == []
    assert "cancel_booking" in offered["agent"]
    other = SeatEnv(ServiceDesk(), "customer", Clerk())
    assert other.tool_specs == ()
    assert "tools" not in other.reset(seed=0).info
    step = other.step("Please cancel my booking.")  # the clerk calls tools natively before it speaks
    assert 'The clerk says: "That is not possible. Goodbye."' in step.obs


@pytest.mark.system
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_a_vector_of_environments_hands_tools_on(backend):
    with gem.make_vec("db:Library-v0-questions", num_envs=2, backend=backend) as vector:
        _, infos = vector.reset(seed=0)
        assert [[tool["name"] for tool in info["tools"]] for info in infos] == [["sql", "answer"]] * 2
        *_, infos = vector.step(["<answer>SELECT 1</answer>"] * 2)
        assert [[tool["name"] for tool in info["tools"]] for info in infos] == [["sql", "answer"]] * 2
