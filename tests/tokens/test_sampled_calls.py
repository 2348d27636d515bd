import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gem.content import ToolCall
from gem.envs.kit.workspace import Written
from gem.envs.kit.workspace import read as turn_of
from gem.tokens.sampled_calls import take_calls
from gem.tools.calls import find, write

HERMES = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
LS, PWD = ("bash", {"command": "ls"}), ("bash", {"command": "pwd"})


def read(text):
    rest, calls = take_calls(text, turn=2)
    assert [call.id for call in calls] == [f"t0002n{place:03d}" for place in range(len(calls))]
    return rest, [(call.name, json.loads(call.arguments)) for call in calls]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HERMES, ("", [LS])),
        (f"I look.\n{HERMES}\n", ("I look.", [LS])),
        (
            f"<think>\nhm {HERMES}\n</think>\n\nSo:\n{HERMES}",
            (f"<think>\nhm {HERMES}\n</think>\n\nSo:", [LS]),
        ),
        (f"{HERMES}\n{HERMES.replace('ls', 'pwd')}\nNow I wait.", ("Now I wait.", [LS, PWD])),
        (f"{HERMES} <submit/>", ("<submit/>", [LS])),
        ('{"name": "bash", "parameters": {"command": "ls"}}', ("", [LS])),
        ('{"name": "bash", "arguments": null}', ("", [("bash", {})])),
        (
            f"<thinking>{HERMES}</thinking>{HERMES}",
            (f"<thinking>{HERMES}</thinking>", [LS]),
        ),
        (
            '<thinking>a</thinking>{"name": "bash", "parameters": {"command": "ls"}}',
            ("<thinking>a</thinking>", [LS]),
        ),
        ('<think>a</think>\n{"name": "bash", "parameters": {"command": "ls"}}', ("<think>a</think>", [LS])),
        (
            '<|python_tag|>{"name": "bash", "parameters": {"command": "ls"}}; '
            '{"name": "bash", "parameters": {"command": "pwd"}}',
            ("", [LS, PWD]),
        ),
        ('[TOOL_CALLS][{"name": "bash", "arguments": {"command": "ls"}, "id": "abc"}]', ("", [LS])),
        (
            'So.[TOOL_CALLS]bash[ARGS]{"command": "ls"}[TOOL_CALLS]bash[CALL_ID]a1[ARGS]{"command": "pwd"}',
            ("So.", [LS, PWD]),
        ),
    ],
)
def test_calls_in_the_forms_of_well_known_models_are_taken_out(text, wanted):
    assert read(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no call",
        "<tool_call>{</tool_call>",
        f"{HERMES}<tool_call>{{</tool_call>",  # one that cannot be read: the environment says so
        f"<think>{HERMES}</think>",
        f"{HERMES}<bash>pwd</bash>",  # would come before the other, once that is taken out
        f"{HERMES}\n```bash\npwd\n```\n",
        "<tool_call>" + '{"name": "bash", "arguments": {"command": "ls"}}',
        '{"name": "bash"}',
        '{"name": "bash", "parameters": {}, "arguments": {}}',
        '{"name": "bash", "parameters": {"a": 1}} and more',
        '{"name": 3, "parameters": {}}',
        '{"answer": 4}',
        "[TOOL_CALLS]",
        "[TOOL_CALLS][]",
        '[TOOL_CALLS][{"name": "bash", "arguments": {}}] tail',
        "[TOOL_CALLS]bash[ARGS][1]",
        '<think>[TOOL_CALLS][{"name": "bash", "arguments": {}}]</think>',
        '<reasoning>[TOOL_CALLS][{"name": "bash", "arguments": {}}]</reasoning>',
        "[" * 5000,
        '{"name": "bash", "parameters": ' + "[" * 5000,
        '{"name": "bash", "parameters": {"a": ' + "9" * 5000 + "}}",
    ],
)
def test_what_is_no_call_or_cannot_be_read_stays_text(text):
    assert take_calls(text) == (text, ())


PIECES = st.lists(
    st.sampled_from(
        [
            HERMES, HERMES.replace("ls", "<think>"), "<tool_call>", "</tool_call>", "<think>", "</think>",
            "[TOOL_CALLS]", '[{"name": "a", "arguments": {}}]', "a[ARGS]{}", "<|python_tag|>",
            '{"name": "a", "parameters": {"b": "\\ud800"}}', "<bash>ls</bash>", "```bash\nls\n```", "\n", "x",
            ";",
        ]
    ),
    max_size=8,
).map("".join)  # fmt: skip


@pytest.mark.system
@settings(max_examples=400)
@given(text=PIECES | st.text(max_size=40))
def test_what_is_asked_for_stays_the_same(text):
    rest, calls = take_calls(text)
    if not calls:
        assert rest == text
        return
    again = [
        each.call and (each.call.name, dict(each.call.arguments)) for each in find(write(rest, calls), ())
    ]
    assert again == [(call.name, json.loads(call.arguments)) for call in calls]
    before = [each.call and (each.call.name, dict(each.call.arguments)) for each in find(text, ())]
    assert before in ([], again)
    assert all(isinstance(call, ToolCall) for call in calls)


SQL = Written("sql", "Run SQL.", "query", "what to run", tag="sql", fences=("sql",))
WORK_PIECES = (
    "```sql\n", "```", "~~~\n", "\n", " ", "word", "<sql>SELECT 1</sql>", "<sql>", "</sql>", "<think>",
    "</think>", "<thought>", "</thought>", "<submit/>", "\\boxed{done}", "\\boxed{7}",
    "<tool_call>", "</tool_call>",
    '<tool_call>{"name": "sql", "arguments": {"query": "</think> <submit/> ```"}}</tool_call>',
    '<tool_call>{"name": "submit", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "nobody", "parameters": {}}</tool_call>', '<tool_call>{"name": 3}</tool_call>',
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORK_PIECES), max_size=6).map("".join))
@example('```sql\nSELECT 1\n```<tool_call>{"name": "submit", "arguments": {}}</tool_call>')
def test_a_turn_asks_for_the_same_beside_the_forms_of_an_environment(text):
    rest, calls = take_calls(text)
    assert turn_of(write(rest, calls), [SQL], in_a_box=True) == turn_of(text, [SQL], in_a_box=True)
