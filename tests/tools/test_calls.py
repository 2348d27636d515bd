import json
import sys
from time import process_time
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.tools.base_tool import BaseTool, FunctionTool, ToolResult
from gem.tools.calls import NativeCall, find, write


class Python(BaseTool):
    name, tag, fences = "python", "python", ("python",)

    def call(self, code: str) -> ToolResult:
        """Run it."""
        return ToolResult(code)


class Search(BaseTool):
    name, tag = "search", "search"

    def call(self, query: str, topk: int = 3) -> ToolResult:
        """Look it up."""
        return ToolResult(f"{topk} of {query}")


TOOLS = [Python(), Search()]


def said(text):
    return [(f.call.name, dict(f.call.arguments)) if f.call else f.error for f in find(text, TOOLS)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("<python>print(1)</python>", [("python", {"code": "print(1)"})]),
        ("so:\n```python\nprint(1)\n```\n", [("python", {"code": "print(1)\n"})]),
        ("```py\nif x:\n    y\n```", [("python", {"code": "if x:\n    y\n"})]),
        ("<python>\n```python\nprint(1)\n```\n</python>", [("python", {"code": "print(1)"})]),
        (
            "<python>\n    a = 1\n    if a:\n        b\n</python>",
            [("python", {"code": "a = 1\nif a:\n    b"})],
        ),
        ("<python> a = 1\nb = 2</python>", [("python", {"code": "a = 1\nb = 2"})]),
        (
            '<tool_call>{"name": "search", "arguments": {"query": "x", "topk": 2}}</tool_call>',
            [("search", {"query": "x", "topk": 2})],
        ),
        (
            '<tool_call>{"name": "search", "arguments": "{\\"query\\": \\"x\\"}"}</tool_call>',
            [("search", {"query": "x"})],
        ),
        (
            '<tool_call>\n```json\n{"name": "search", "parameters": {"query": "x"}}\n```\n</tool_call>',
            [("search", {"query": "x"})],
        ),
        (
            '<tool_call><tool_name>time</tool_name><arguments>{"zone": "UTC"}</arguments></tool_call>',
            [("time", {"zone": "UTC"})],
        ),
        ("<tool_call><tool_name>now</tool_name></tool_call>", [("now", {})]),
        (
            "<search>a</search> then\n```python\nb\n```\n<search>c</search>",
            [("search", {"query": "a"}), ("python", {"code": "b\n"}), ("search", {"query": "c"})],
        ),
    ],
)
def test_calls_are_read_in_every_form_and_in_order(text, wanted):
    assert said(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\\boxed{7}",
        "<python>print(1)",
        "print(1)</python>",
        "```python\nprint(1)",
        "```json\n{}\n```",
        "```\nprint(1)\n```",
        "Use the <python> tag.",
    ],
)
def test_what_is_not_closed_or_of_another_language_is_no_call(text):
    assert said(text) == []


def test_drafts_in_thinking_are_no_calls_even_when_the_prompt_opened_it():
    call = "<search>x</search>"
    assert said(f"<think>maybe {call}</think>{call}") == [("search", {"query": "x"})]
    assert said(f"maybe {call}</think>") == []
    assert len(find(f"<think>a</think>{call}<think>{call}</think>{call}", TOOLS)) == 2
    assert len(find(f"<think>still thinking, so {call}", TOOLS)) == 1


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("<THINK>", "</THINK>"),
        ("<thinking>", "</thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("<|begin_of_thought|>", "<|end_of_thought|>"),
        ("◁think▷", "◁/think▷"),
    ],
)
def test_thinking_has_other_tags_too(begin, end):
    call = "<search>x</search>"
    for text in (f"{begin}{call}{end}", f"{call}{end}", f"<think>{call} in {begin} and {call}{end}</think>"):
        assert said(text) == []
        assert said(text + call) == [("search", {"query": "x"})]
    native = write(f"{begin}It broke off.", [NativeCall("1", "python", json.dumps({"code": end}))])
    assert said(native) == [("python", {"code": end})]


def test_what_the_prompt_opened_closes_outside_of_arguments():
    draft, call = "<python>x</python>", "<python>print('</think>')</python>"
    (said_of_call,) = said(call)
    assert said_of_call == ("python", {"code": "print('</think>')"})
    assert said(f"{draft} no</think>") == said(f"{call} no</think>") == []
    assert said(f"{draft} no</think>{call}") == said(f"<think>{draft}</think>{call}") == [said_of_call]
    assert len(said("<python>print('<think>x')</python> and <search>y</search></think>")) == 0


def test_of_calls_inside_one_another_the_outer_one_counts():
    assert said("```python\nprint('<search>x</search>')\n```") == [
        ("python", {"code": "print('<search>x</search>')\n"})
    ]
    assert said("a <python> in prose, then <python>x</python>") == [("python", {"code": "x"})]


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "7", "{}", '{"name": 3}', '{"name": "a", "arguments": 3}', "[" * 100_000, "9" * 10_000],
)
def test_a_call_that_cannot_be_read_is_returned_with_the_reason(body):
    [found] = find(f"x <tool_call>{body}</tool_call> y", TOOLS)
    assert found.call is None
    assert "JSON" in found.error
    assert len(found.error) < 300


def test_null_is_no_arguments():
    for body in ('{"name": "a", "arguments": null}', '{"name": "a", "parameters": null}', '{"name": "a"}'):
        assert said(f"<tool_call>{body}</tool_call>") == [("a", {})]


PIECES = ["<python>", "</python>", "<think>", "</Thought>", "```python", "```", "\n", "~~~~", "x",
          "<tool_call>", "</tool_call>", '{"name":', "\ud800", "\x00", "  "]  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_reading_never_raises_and_spans_do_not_overlap(text):
    last = 0
    for found in find(text, TOOLS):
        assert last <= found.start < found.end <= len(text)
        last = found.end


@pytest.mark.parametrize(
    "piece",
    ["<python>", "</python>", "<think></think>", "```python\n", "~~~~~~\n", "<tool_call>{", "`" * 9, "\\n<"],
)
def test_reading_is_linear(piece):
    def seconds(n):
        text = piece * n
        best = 9.0
        for _ in range(3):
            began = process_time()
            find(text, TOOLS)
            best = min(best, process_time() - began)
        return best

    small, large = seconds(4_000), seconds(64_000)
    assert large < 16 * 6 * max(small, 1e-3)  # quadratic would be 256 times


def test_a_schema_follows_from_signature_and_docstring():
    def book(
        room: str, nights: int, view: Literal["sea", "yard"] = "sea", notes: list[str] | None = None
    ) -> str:
        """Book a room.

        It costs money.

        Args:
            room: its name,
                as on the door.
            nights (int): how many.

        Returns:
            The number of the booking.
        """
        return "1"

    tool = FunctionTool(book)
    assert tool.schema() == {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book a room.\n\nIt costs money.",
            "parameters": {
                "type": "object",
                "properties": {
                    "room": {"type": "string", "description": "its name, as on the door."},
                    "nights": {"type": "integer", "description": "how many."},
                    "view": {"enum": ["sea", "yard"], "default": "sea"},
                    "notes": {"type": "array", "items": {"type": "string"}, "default": None},
                },
                "required": ["room", "nights"],
                "additionalProperties": False,
            },
        },
    }
    told = tool.instruction_string()
    assert "room (string) its name" in told
    assert "view ('sea' | 'yard', optional)" in told
    assert '<tool_call>{"name": "book", "arguments": {"room": ..., "nights": ...}}</tool_call>' in told


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "'a' is missing"),
        ({"a": "1"}, "accepted: integer"),
        ({"a": True}, "accepted: integer"),
        ({"a": 1, "c": 2}, "no argument 'c'"),
        ({"a": 1, "how": "loud"}, "'soft', 'hard'"),
    ],
)
def test_arguments_that_do_not_fit_are_the_agents_fault(arguments, why):
    def press(a: int, how: Literal["soft", "hard"] = "soft") -> str:
        """Press it."""
        return "pressed"

    tool = FunctionTool(press)
    result = tool.run(arguments)
    assert result.error
    assert why in result.text
    assert tool.run({"a": 1}) == ToolResult("pressed")


def test_a_function_that_raises_is_the_agents_fault():
    def divide(a: float, b: float) -> float:
        """Divide."""
        return a / b

    tool = FunctionTool(divide)
    assert tool.run({"a": 1, "b": 2.0}).text == "0.5"
    assert tool.run({"a": 1, "b": 0}) == ToolResult("ZeroDivisionError: float division by zero", error=True)


def test_a_tool_without_name_or_docstring_is_refused():
    with pytest.raises(BadArgument, match="docstring"):
        FunctionTool(lambda x: x)


def test_execute_action_is_upstreams_four_values():
    assert Search().execute_action("I say <search>x</search> and more") == (
        True,
        False,
        "<output>\n3 of x\n</output>",
        "I say <search>x</search>",
    )
    assert Search().execute_action("nothing here") == (False, True, "", "")
    valid, error, _, _ = Search().execute_action("<tool_call>{</tool_call>")
    assert (valid, error) == (True, True)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e400", "[[-1e999]]"])
def test_a_number_that_is_none_is_no_json(number):
    given = f'{{"query": "x", "topk": {number}}}'
    for text in (
        f'<tool_call>{{"name": "search", "arguments": {given}}}</tool_call>',
        write("", [NativeCall("1", "search", given)]),
    ):
        (error,) = said(text)
        assert "this tool call is no JSON" in error


def test_huge_integers_in_json_are_the_agents_fault():
    digits = "9" * (sys.get_int_max_str_digits() + 1)
    [found] = find(f'<tool_call>{{"name": "x", "arguments": {{"a": {digits}}}}}</tool_call>', TOOLS)
    assert found.call is None


# -- native calls, written as text

TAGS = "<think> </think> <tool_call> </tool_call> <python> </python> <tool_name> </tool_name> <arguments>"
pieces = st.sampled_from([*TAGS.split(), "```python", "```", *'\n"\\{}', "é\u2028", "\ud800", "a < b", "x"])
hostile = st.lists(pieces, max_size=8).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | hostile,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile, inner, max_size=3),
    max_leaves=6,
)
arguments_ = st.dictionaries(hostile, values, max_size=3)


@pytest.mark.system
@given(hostile, st.lists(st.tuples(hostile, arguments_), min_size=1, max_size=4))
def test_native_calls_are_read_back_from_the_action_whatever_stands_in_them(text, calls):
    native = [NativeCall(str(i), name, json.dumps(given)) for i, (name, given) in enumerate(calls)]
    found = find(write(text, native), TOOLS)[-len(calls) :]
    assert [(each.call.name, each.call.arguments) for each in found] == calls


@given(hostile, st.text(max_size=20) | hostile)
def test_a_native_call_with_arguments_of_any_text_is_one_call(text, arguments):
    (*_, last) = find(write(text, [NativeCall("1", "python", arguments)]), TOOLS)
    assert last.end == len(write(text, [NativeCall("1", "python", arguments)]))
    assert last.call is None or isinstance(last.call.arguments, dict)


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ("", {}),
        ("{}", {}),
        (' {"code": "1"}', {"code": "1"}),
        ('{"code": ', None),
        ("[1]", None),
        ('"text"', None),
        ("null", {}),
        ("[" * 100_000, None),
    ],
)
def test_what_is_no_object_stays_unreadable(arguments, read):
    (found,) = find(write("", [NativeCall("1", "python", arguments)]), TOOLS)
    assert (found.call.arguments if found.call else None) == read
    assert bool(found.error) == (read is None)


def test_an_action_is_the_text_and_then_the_calls():
    one, two = NativeCall("1", "search", '{"query": "a"}'), NativeCall("2", "search", '{"query": "b"}')
    assert write("I look.", [one, two]) == (
        'I look.\n<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>\n'
        '<tool_call>{"name": "search", "arguments": {"query": "b"}}</tool_call>'
    )


@pytest.mark.parametrize("depth", [100, *range(300, 1100, 20), 3000])
def test_arguments_nested_beyond_measure_are_written_and_answered(depth):
    deep = '{"a": ' + "[" * depth + "]" * depth + "}"
    (found,) = find(write("", [NativeCall("c", "search", deep)]), TOOLS)
    assert found.error or found.call.name == "search"


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_no_arguments_at_all_are_an_empty_object(blank):
    (found,) = find(write("", [NativeCall("c", "search", blank)]), TOOLS)
    assert found.call.arguments == {}
