"""Functions as tools: schema, checks, results, deadline, and the ways in which an environment gets them."""

import asyncio
import functools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

import pytest

import gem
from gem.content import ToolCall
from gem.envs.kit.workspace import WorkspaceEnv
from gem.errors import BadArgument, NoVerdict, UnknownArgument
from gem.evals.suite import load_suite
from gem.record import Reply
from gem.registry import Maker, find_wrapper, fix_wrapper, task_of
from gem.rollout import Conversation
from gem.testing import EchoEnv
from gem.tools import FunctionTool, ToolEnvWrapper, ToolResult, tool
from gem.tools.calls import write
from gem.wrappers.wrapper_factory import tool_wrappers


class Size(Enum):
    """A size."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Place:
    """A place."""

    x: float
    tags: list[str] = field(default_factory=list)


@tool
def put(
    place: Place,
    sizes: list[Size],
    how: Literal["soft", "hard"] = "soft",
    size: Size = Size.SMALL,
    note: str | None = None,
    counts: dict[str, int] | None = None,
    one: int | str = 1,
) -> dict[str, Any]:
    """Put things somewhere.

    Args:
        place: where.
    """
    return {"place": place, "sizes": sizes, "how": how, "size": size, "set": {"b", "a"}, "note": note}


@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool
async def wait(n: int) -> int:
    """Wait a moment."""
    await asyncio.sleep(0)
    return n


GIVEN = {"place": {"x": 1}, "sizes": ["small"]}


def test_the_schema_follows_from_the_annotations():
    properties = FunctionTool(put).arguments["properties"]
    assert properties == {
        "place": {
            "type": "object",
            "properties": {"x": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["x"],
            "additionalProperties": False,
            "description": "where.",
        },
        "sizes": {"type": "array", "items": {"enum": ["small", "large"]}},
        "how": {"enum": ["soft", "hard"], "default": "soft"},
        "size": {"enum": ["small", "large"]},
        "note": {"type": "string", "default": None},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}, "default": None},
        "one": {"anyOf": [{"type": "integer"}, {"type": "string"}], "default": 1},
    }
    instruction = FunctionTool(put).instruction_string()
    assert "place (object {x: number, tags: array of string}) where." in instruction
    assert "sizes (array of 'small' | 'large')" in instruction
    assert "one (integer | string, optional)" in instruction


def test_values_reach_the_function_as_its_annotations_say_and_results_are_json():
    assert put(Place(1), [Size.LARGE])["sizes"] == [Size.LARGE]  # it stays a function
    assert json.loads(FunctionTool(put).run(GIVEN | {"size": "large"}).text) == {
        "place": {"x": 1.0, "tags": []},
        "sizes": ["small"],
        "how": "soft",
        "size": "large",
        "set": ["a", "b"],
        "note": None,
    }
    assert not FunctionTool(put).run(GIVEN | {"note": None, "counts": None}).error


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"place": {}}, "put: in 'place' the argument 'x' is missing. Arguments: x, tags."),
        ({"place": {"x": 1, "y": 2}}, "put: in 'place' there is no argument 'y'"),
        ({"place": {"x": 1, "tags": [3]}}, "Expected `str`, got `int` - at `$.tags[0]`."),
        ({"sizes": ["huge"]}, "put: 'sizes' is ['huge'], which does not fit: Invalid enum value 'huge'"),
        ({"size": "huge"}, "put: 'size' is 'huge'; accepted: 'small', 'large'."),
        ({"counts": {"a": "b"}}, "Expected `int`, got `str`"),
        ({"one": []}, "Expected `int | str`, got `array`"),
        ({"place": {"x": 10**400}}, "Number out of range"),
        ({"how": None}, "'soft', 'hard'"),
    ],
)
def test_arguments_that_do_not_fit_are_one_sentence(given, why):
    result = FunctionTool(put).run(GIVEN | given)
    assert result.error
    assert why in result.text
    assert "\n" not in result.text


def test_values_are_named_as_a_call_writes_them():
    def move(way: Literal["up", 1, None], fast: Literal[True] = True) -> str:
        """Move."""
        return str(way)

    made = FunctionTool(move)
    assert "way ('up' | 1 | null)" in made.instruction_string()
    assert "fast (true, optional)" in made.instruction_string()
    assert "accepted: 'up', 1, null." in made.run({"way": "down"}).text


def test_a_fault_of_the_function_is_its_answer_and_no_verdict_is_none():
    def fail(error: str) -> object:
        """Fail."""
        if error == "object":
            return object()
        raise {"exit": SystemExit, "gem": BadArgument, "lost": NoVerdict}.get(error, KeyError)(error)

    made = FunctionTool(fail)
    assert made.run({"error": "exit"}) == ToolResult("SystemExit: exit", error=True)
    assert made.run({"error": "gem"}) == ToolResult("BadArgument: gem", error=True)
    assert made.run({"error": "x"}) == ToolResult("KeyError: 'x'", error=True)
    assert "cannot be shown as text: a object" in made.run({"error": "object"}).text
    with pytest.raises(NoVerdict, match="lost"):
        made.run({"error": "lost"})


def test_a_call_has_a_deadline_and_without_one_runs_in_this_thread():
    over = threading.Event()

    def hang() -> str:
        """Hang."""
        over.wait(30)
        return threading.current_thread().name

    result = FunctionTool(hang, timeout=0.01).run({})
    over.set()
    assert result == ToolResult(
        "hang gave no answer within 0.01 s; whether it did anything is unknown.", error=True
    )
    assert FunctionTool(hang, timeout=None).run({}).text == threading.current_thread().name


@pytest.mark.parametrize("timeout", [None, 30.0])
def test_an_async_function_is_run_to_its_end_also_inside_a_loop(timeout):
    async def call():
        return FunctionTool(wait, timeout=timeout).run({"n": 3})

    assert asyncio.run(call()).text == "3"


def untyped(x):
    """Take x."""


def starred(*rest: int):
    """Take rest."""


def positional(x: int, /):
    """Take x."""


def of_bytes(x: list[bytes]):
    """Take x."""


def of_callable(x: Callable[[], int]):
    """Take x."""


def unknown(x: "Nowhere"):  # noqa: F821
    """Take x."""


def of_two(x: Size | str):
    """Take x."""


def of_a_set_of_lists(x: list[set[list[int] | str]]):
    """Take x."""


def of_a_set_of_dataclasses(x: set[Place]):
    """Take x."""


def silent(x: int):
    pass


def yielding() -> str:
    """Give the items."""
    yield "a"


async def yielding_later() -> str:
    """Give the items."""
    yield "a"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (untyped, "the parameter 'x' without a type"),
        (starred, r"the parameter '\*rest', which no call can name"),
        (positional, "the parameter 'x', which no call can name"),
        (of_bytes, r"the parameter 'x' of the type list\[bytes\]"),
        (of_callable, "'x' of the type"),
        (unknown, "name 'Nowhere' is not defined"),
        (of_two, "'x' of the type"),
        (of_a_set_of_lists, r"'x' of the type list\[set\[list\[int\] \| str\]\]"),
        (of_a_set_of_dataclasses, "'x' of the type set"),
        (silent, "no docstring"),
        (yielding, "the tool yielding yields its results"),
        (yielding_later, "the tool yielding_later yields its results"),
    ],
)
def test_a_function_that_can_be_no_tool_is_refused_where_it_is_defined(function, why):
    with pytest.raises(BadArgument, match=why) as refused:
        tool(function)
    assert "\n" not in str(refused.value)
    for wrong in ({"timeout": 0}, {"timeout": "5"}):
        with pytest.raises(BadArgument, match="timeout"):
            tool(**wrong)(double)
    with pytest.raises(UnknownArgument, match=r"tool does not take 'nam'\. Did you mean 'name'"):
        tool(nam="x")


def test_a_result_that_is_a_place_in_memory_is_an_error():
    @tool
    def items() -> Any:
        """Give the items."""
        return (item for item in "ab")

    done = FunctionTool(items).run({})
    assert (done.error, done.text) == (True, "the tool returned what cannot be shown as text: a generator.")


def collect(x: set[Any], y: set[tuple[int, ...]]) -> int:
    """Take x."""
    return len(y)


def test_a_set_takes_what_can_be_in_a_set():
    assert FunctionTool(collect).run({"x": [], "y": [[1], [1], [2]]}).text == "2"
    assert FunctionTool(collect).run({"x": [[1]], "y": []}).error


# -- how an environment gets it

CALL = ToolCall("1", "double", '{"n": 21}')


def test_native_and_text_calls_read_the_same_and_the_task_is_made_again():
    env = ToolEnvWrapper(EchoEnv(), [double, wait])
    with Conversation(env, seed=0) as natively:
        assert [each.name for each in natively.asks[0].tools] == ["double", "wait"]
        (ask,) = natively.answer(Reply("", tool_calls=(CALL,)))
        first = ask.messages[-1]
    again = gem.make(task_of(env))
    again.reset(seed=0)
    step = again.step(write("", [CALL]))
    assert step.obs == first.text == "<output>\n42\n</output>"


FILE = '''
from gem.tools import BaseTool, ToolResult, tool

@tool(timeout=5)
async def shout(word: str) -> str:
    """Say a word loudly."""
    return word.upper()

def plain(word: str) -> str:
    """Say a word."""
    return word

class Count(BaseTool):
    name = "count"

    def call(self, word: str) -> str:
        """Count the letters of a word.

        Args:
            word: the word.
        """
        return ToolResult(str(len(word)))

class Picky(Count):
    def __init__(self, language):
        super().__init__()
'''


def test_a_tool_of_a_file_is_named_like_a_wrapper(tmp_path):
    path = tmp_path / "loud.py"
    path.write_text(FILE)
    name = fix_wrapper(f"{path}:shout", "tool")
    assert tool_wrappers(["python", name]) == ("python_tool", name)
    env = find_wrapper(name)(EchoEnv())
    task = task_of(env)
    assert [each.name for each in task.wrappers] == [name]
    again = gem.make(task)
    again.reset(seed=0)
    assert again.step(write("", [ToolCall("1", "shout", '{"word": "a"}')])).obs == "<output>\nA\n</output>"
    with pytest.raises(BadArgument, match=r"^loud\.py:plain is a function .*@gem\.tools\.tool"):
        Maker("game:Sudoku-v0-easy", {}, tool_wrappers([f"{path}:plain"]))
    with pytest.raises(BadArgument, match=r"tool .*gone\.py"):
        fix_wrapper(f"{tmp_path}/gone.py:shout", "tool")


def test_the_class_of_a_tool_is_named_like_a_function(tmp_path):
    path = tmp_path / "loud.py"
    path.write_text(FILE)
    name = fix_wrapper(f"{path}:Count", "tool")
    for env in (find_wrapper(name)(EchoEnv()), gem.make(task_of(find_wrapper(name)(EchoEnv())))):
        env.reset(seed=0)
        assert (
            env.step(write("", [ToolCall("1", "count", '{"word": "abc"}')])).obs == "<output>\n3\n</output>"
        )
    with pytest.raises(BadArgument, match=r"the tool Picky cannot be made without arguments: .*'language'"):
        find_wrapper(fix_wrapper(f"{path}:Picky"))(EchoEnv())


def test_a_file_of_somebody_else_may_not_name_a_tool(tmp_path):
    (tmp_path / "theirs.py").write_text(FILE + "# of somebody else")
    suite = tmp_path / "theirs.toml"
    suite.write_text('[[environments]]\nid = "game:Sudoku-v0-easy"\ntools = ["theirs.py:shout"]\n')
    with pytest.raises(BadArgument, match="the file gives tools as"):
        load_suite(str(suite))
    (entry,) = load_suite(str(suite), trust=True).entries
    assert entry.tools[0].startswith("theirs.py@")


class Counter(WorkspaceEnv):
    """Count to two."""

    max_turns = 4

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = self.count = 0
        return gem.Start("Count to two, then submit.", {})

    @tool
    def add(self, n: int) -> int:
        """Add to the counter."""
        self.count += n
        return self.count

    def judge(self):
        return "" if self.count == 2 else f"The counter is at {self.count}."


def test_methods_are_the_actions_of_an_environment():
    env = Counter()
    start = env.reset(seed=0)
    assert [each["name"] for each in start.info["tools"]] == ["add", "submit"]
    add = functools.partial(ToolCall, "1", "add")
    assert env.step(write("", [add('{"n": "2"}')])).obs.startswith("add: 'n' is '2'; accepted: integer.")
    assert env.step(write("", [add('{"n": 1}'), add('{"n": 1}')])).obs == "1\n2"
    assert env.fork().step("<submit/>").reward == 1.0
