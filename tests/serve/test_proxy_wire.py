"""What the proxy reads of a request and writes of an answer, field by field, without a server."""

import json

import pytest

from gem.content import Image, Message, Text, ToolCall, ToolSpec
from gem.serve.proxy import chat, responses
from gem.serve.proxy.request import Answer, Refused, Request

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
TOOL = ToolSpec("look", "Look it up.", SCHEMA)
BARE = ToolSpec("nod", "", {})
CALL = ToolCall("call_1", "look", '{"q": "x"}')
PICTURE = {"url": "data:image/png;base64,AAEC"}


def test_a_chat_is_read_with_every_identifier():
    read = chat.read(
        {
            "model": "tiny",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {
                    "role": "user",
                    "name": "ann",
                    "content": [
                        {"type": "text", "text": "Look:"},
                        {"type": "image_url", "image_url": PICTURE},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "look", "arguments": '{"q": "x"}'},
                        },
                        {"type": "function", "function": {"name": "nod"}},
                        {"id": "call_3", "function": {"name": "look", "arguments": {"q": "é"}}},
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "found"},
                {"role": "function", "name": "nod", "content": [{"type": "text", "text": "a"}, "b"]},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "reasoning": "so"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "look", "description": "Look it up.", "parameters": SCHEMA},
                },
                {"function": {"name": "nod"}},
            ],
            "max_tokens": 9,
            "max_completion_tokens": 7,
            "stop": "END",
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "logprobs": True,
            "n": 1,
            "response_format": {"type": "json_object"},
            "temperature": 0.5,
            "top_p": None,
        }
    )
    assert read == Request(
        messages=(
            Message("system", "Be brief."),
            Message("user", (Text("Look:"), Image(b"\0\1\2", "image/png")), name="ann"),
            Message(
                "assistant",
                "",
                tool_calls=(CALL, ToolCall("", "nod", "{}"), ToolCall("call_3", "look", '{"q": "é"}')),
                reasoning="hm",
            ),
            Message("tool", "found", tool_call_id="call_1"),
            Message("tool", (Text("a"), Text("b")), tool_call_id="", name="nod"),
            Message("assistant", "no", reasoning="so"),
        ),
        tools=(TOOL, BARE),
        max_tokens=7,
        stop=("END",),
        model="tiny",
        stream=True,
        usage=True,
        ids=True,
        logprobs=True,
        schema=True,
        asked={"response_format": {"type": "json_object"}, "temperature": 0.5},
    )


def test_responses_are_read_with_every_identifier():
    read = responses.read(
        {
            "model": "tiny",
            "instructions": "Be brief.",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "Look:"},
                        {"type": "input_image", "image_url": PICTURE["url"]},
                    ],
                },
                {
                    "type": "reasoning",
                    "summary": [{"text": "hm"}],
                    "content": [{"text": "first"}, {"text": 3}, 4],
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Wait."}],
                },
                {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"q": "x"}'},
                {"type": "function_call", "call_id": "call_2", "name": "nod", "arguments": None},
                {"type": "function_call_output", "call_id": "call_2", "output": "nodded"},
                {"type": "function_call_output", "call_id": "call_1", "output": "found"},
                {"type": "function_call_output", "call_id": "other", "output": ""},
                {"type": "function_call", "call_id": "call_4", "name": "look", "arguments": "{}"},
                {"type": "reasoning", "summary": []},
            ],
            "tools": [
                {"type": "function", "name": "look", "description": "Look it up.", "parameters": SCHEMA},
                {"type": "function", "name": "nod"},
            ],
            "tool_choice": "required",
            "max_output_tokens": 7,
            "stream": True,
            "previous_response_id": "resp_1",
            "temperature": 0.5,
            "user": "ann",
            "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}, "verbosity": "low"},
            "reasoning": {"effort": "high", "summary": "auto"},
        }
    )
    assert read == Request(
        messages=(
            Message("system", "Be brief."),
            Message("user", (Text("Look:"), Image(b"\0\1\2", "image/png"))),
            Message(
                "assistant",
                "Wait.",
                tool_calls=(CALL, ToolCall("call_2", "nod", "{}")),
                reasoning="first\nhm",
            ),
            Message("tool", "nodded", tool_call_id="call_2", name="nod"),
            Message("tool", "found", tool_call_id="call_1", name="look"),
            Message("tool", "", tool_call_id="other"),
            Message("assistant", "", tool_calls=(ToolCall("call_4", "look", "{}"),)),
        ),
        tools=(TOOL, BARE),
        max_tokens=7,
        model="tiny",
        stream=True,
        schema=True,
        previous="resp_1",
        asked={
            "temperature": 0.5,
            "tool_choice": "required",
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
            "verbosity": "low",
            "reasoning_effort": "high",
        },
    )


@pytest.mark.parametrize("protocol", [chat, responses])
def test_what_is_not_said_has_its_default_and_no_tools_means_none(protocol):
    said = {"messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
    plain = Request((Message("user", "Hi"),))
    own = {name: said[name] for name in (["messages"] if protocol is chat else ["input"])}
    assert protocol.read(own) == plain
    tool = {"type": "function", "name": "nod", "function": {"name": "nod"}}
    assert protocol.read({**own, "tools": [tool], "tool_choice": "none"}).tools == ()
    assert protocol.read({**own, "tools": [tool]}).tools == (BARE,)
    assert protocol.read({**own, "tool_choice": "auto"}).asked == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "yes"},
        {"stream": 1},
        {"max_tokens": 0},
        {"max_tokens": True},
        {"response_format": ""},
        {"response_format": "json_object"},
        {"stop": [""]},
        {"stop": ["x"] * 17},
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name(wrong):
    (name,) = wrong
    with pytest.raises(Refused, match=f"{name} is"):
        chat.read({"messages": [{"role": "user", "content": "Hi"}], **wrong})


NOD = {"type": "function", "function": {"name": "nod"}}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ({"temperature": 0.5, "top_p": 0.9, "parallel_tool_calls": False}, None),
        ({"tool_choice": "required"}, None),
        ({"tool_choice": NOD}, {"tool_choice": {"type": "function", "name": "nod"}}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"response_format": FORM, "verbosity": "low"},
            {"text": {"format": {"type": "json_schema", **FORM["json_schema"]}, "verbosity": "low"}},
        ),
    ],
)
def test_settings_cross_between_the_protocols(settings, other):
    other = settings if other is None else other
    assert responses.write_settings(settings) == other
    tools = [{"type": "function", "name": "nod"}]
    assert responses.read({"input": "Hi", "tools": tools, **other}).asked == settings


def test_what_changes_nothing_is_left_out_and_what_is_lacking_refused():
    nothing = {"seed": 3, "user": "ann", "store": True, "frequency_penalty": 0.0, "logit_bias": {}}
    assert responses.write_settings(nothing) == responses.read({"input": "Hi", **nothing}).asked == {}
    for name, value in (
        *(("top_k", 3), ("frequency_penalty", 0.5), ("text", {}), ("max_output_tokens", 9)),
        *(("enable_thinking", False), ("top_k", 0), ("web_search_options", {})),
    ):
        with pytest.raises(Refused, match=f"{name}.*the Responses API has no such field; leave it out"):
            responses.write_settings({name: value})
    for asked in ({"top_k": 3}, {"top_k": 0}, {"enable_thinking": False}, {"stop": "x"}):
        with pytest.raises(Refused, match="is not passed on from the Responses API"):
            responses.read({"input": "Hi", **asked})


@pytest.mark.parametrize("kind", ["web_search", "allowed_tools"])
def test_a_choice_of_tools_that_is_no_function_is_refused_in_both_directions(kind):
    choice = {"type": kind, kind: {}}
    with pytest.raises(Refused, match=f"tool_choice is of the type '{kind}'; accepted: function, or a word"):
        responses.write_settings({"tool_choice": choice})
    with pytest.raises(Refused, match=f"tool_choice is of the type '{kind}'; accepted: function, custom"):
        responses.read({"input": "Hi", "tool_choice": choice})


@pytest.mark.parametrize(
    "field", ["input", "instructions", "prompt", "max_output_tokens", "functions", "previous_response_id"]
)
def test_a_field_of_another_protocol_is_refused_with_what_stands_in_its_place(field):
    with pytest.raises(Refused, match=f"{field} is not read; accepted: m|tools"):
        chat.read({"messages": [{"role": "user", "content": "Hi"}], field: ["x"]})


def answer(*calls, text="", reasoning=None, finish="stop"):
    return Answer(
        "a1",
        "tiny",
        Message("assistant", text, tool_calls=calls, reasoning=reasoning),
        finish,
        {"prompt_tokens": 5, "completion_tokens": 3},
        (1, 2),
        (3, 4),
        (-0.5, -1.0),
        17,
    )


ANSWERS = [
    answer(text="x" * 100, reasoning="y" * 50),
    answer(CALL, ToolCall("call_2", "nod", "{" + " " * 60 + "}"), text="Wait."),
    answer(CALL),
    answer(text="cut", finish="length"),
    answer(),
]


@pytest.mark.parametrize("given", ANSWERS)
@pytest.mark.parametrize("full", [True, False])
def test_the_chunks_of_a_chat_come_together_as_the_whole(given, full):
    request = Request((), stream=True, usage=full, ids=full, logprobs=full)
    whole = json.loads(json.dumps(chat.write(given, request)))
    (choice,) = whole["choices"]
    *chunks, end = [data for name, data in chat.events(given, request) if name is None]
    assert end == "[DONE]"
    assert ("usage" in chunks[-1]) == full
    if full:
        assert chunks.pop()["usage"] == whole["usage"]
        assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"] == [1, 2]
        assert chunks[-1]["choices"][0]["token_ids"] == choice["token_ids"] == [3, 4]
        assert [row["logprob"] for row in choice["logprobs"]["content"]] == [-0.5, -1.0]
        assert [row["token"] for row in choice["logprobs"]["content"]] == ["token_id:3", "token_id:4"]
    else:
        assert not {"prompt_token_ids", "token_ids"} & {*whole, *choice, *chunks[0]}
        assert choice["logprobs"] is None
    message, calls = {}, {}
    for chunk in chunks:
        assert {chunk[name] == whole[name] for name in ("id", "created", "model")} == {True}
        (part,) = chunk["choices"]
        for call in part["delta"].pop("tool_calls", ()):
            old = calls.setdefault(call["index"], {**call, "function": {**call["function"], "arguments": ""}})
            old["function"]["arguments"] += call["function"]["arguments"]
        for name, text in part["delta"].items():
            assert len(text) <= chat.PIECE
            message[name] = message.get(name, "") + text
    assert [part["choices"][0]["finish_reason"] for part in chunks] == [None] * (len(chunks) - 1) + [
        choice["finish_reason"]
    ]
    assert chunks[-1]["choices"][0]["logprobs"] == choice["logprobs"]
    assert message["role"] == "assistant"
    assert message["content"] == (choice["message"]["content"] or "")
    assert message.get("reasoning_content") == choice["message"].get("reasoning_content")
    joined = [{name: value for name, value in call.items() if name != "index"} for call in calls.values()]
    assert joined == choice["message"].get("tool_calls", [])
    assert [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in joined] == [
        (call.id, call.name, call.arguments) for call in given.message.tool_calls
    ]
    assert whole["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def test_a_chat_says_why_it_ended_and_has_no_text_where_it_calls_alone():
    ends = [chat.write(each, Request(()))["choices"][0] for each in ANSWERS]
    assert [end["finish_reason"] for end in ends] == ["stop", "tool_calls", "tool_calls", "length", "stop"]
    assert [end["message"]["content"] for end in ends] == ["x" * 100, "Wait.", None, "cut", ""]


@pytest.mark.parametrize("given", ANSWERS)
def test_the_events_of_a_response_come_together_as_the_whole(given):
    request = Request((), previous="a0")
    whole = json.loads(json.dumps(responses.write(given, request)))
    events = [*responses.events(given, request)]
    assert [data["sequence_number"] for _, data in events] == [*range(len(events))]
    assert all(name == data["type"] for name, data in events)
    assert events[-1][1]["response"] == whole
    items = {}
    for name, data in events:
        if name == "response.output_item.added":
            items[data["output_index"]] = {"item": data["item"], "text": "", "done": None}
        elif name.endswith(".delta"):
            assert items[data["output_index"]]["item"]["id"] == data["item_id"]
            assert len(data["delta"]) <= chat.PIECE
            items[data["output_index"]]["text"] += data["delta"]
        elif name == "response.output_item.done":
            items[data["output_index"]]["done"] = data["item"]
    assert [items[place]["done"] for place in sorted(items)] == whole["output"]
    for item in items.values():
        done = item["done"]
        if done["type"] == "function_call":
            assert item["text"] == done["arguments"]
            assert (item["item"]["arguments"], item["item"]["status"]) == ("", "in_progress")
        elif done["type"] == "message":
            assert item["text"] == done["content"][0]["text"]
    calls = [item for item in whole["output"] if item["type"] == "function_call"]
    assert [(call["call_id"], call["name"], call["arguments"]) for call in calls] == [
        (call.id, call.name, call.arguments) for call in given.message.tool_calls
    ]
    assert len({item["id"] for item in whole["output"]}) == len(whole["output"])
    assert (whole["id"], whole["created_at"], whole["previous_response_id"]) == ("a1", 17, "a0")
    assert whole["usage"]["total_tokens"] == 8
    assert (whole["status"] == "completed") == (given.finish == "stop")
    assert (whole["incomplete_details"] is None) == (given.finish == "stop")


def test_a_response_has_a_message_unless_it_calls_alone():
    kinds = [[item["type"] for item in responses.write(each, Request(()))["output"]] for each in ANSWERS]
    assert kinds == [
        ["reasoning", "message"],
        ["message", "function_call", "function_call"],
        ["function_call"],
        ["message"],
        ["message"],
    ]


PATCH = {"type": "custom", "name": "patch", "description": "Apply it.", "format": {"type": "grammar"}}
SPACE = {
    "type": "namespace",
    "name": "mcp__game",
    "tools": [{"type": "function", "name": "act", "description": "Act.", "parameters": SCHEMA}],
}


def test_tools_of_a_namespace_and_of_free_text_are_functions_to_the_model():
    body = {
        "input": [
            {"role": "user", "content": "Go."},
            {
                "type": "function_call",
                "call_id": "1",
                "namespace": "mcp__game",
                "name": "act",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "1", "output": "done"},
            {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "+ a"},
            {"type": "custom_tool_call_output", "call_id": "2", "output": "ok"},
        ],
        "tools": [PATCH, SPACE, {"type": "function", "name": "nod"}],
    }
    read = responses.read(body)
    assert [tool.name for tool in read.tools] == ["patch", "mcp__game__act", "nod"]
    assert read.tools[0] == ToolSpec("patch", "Apply it.", responses.FREE_TEXT)
    assert read.tools[1] == ToolSpec("mcp__game__act", "Act.", SCHEMA)
    assert read.messages[1].tool_calls == (ToolCall("1", "mcp__game__act", "{}"),)
    assert read.messages[2].name == "mcp__game__act"
    assert read.messages[3].tool_calls == (ToolCall("2", "patch", '{"input": "+ a"}'),)
    calls = (
        ToolCall("3", "mcp__game__act", '{"q": "x"}'),
        ToolCall("4", "patch", '{"input": "+ b"}'),
        ToolCall("5", "patch", "+ c"),
        ToolCall("6", "nod", "{}"),
    )
    answer = Answer("a", "m", Message("assistant", "", tool_calls=calls), "stop", {})
    output = responses.write(answer, read)["output"]
    assert [(item["type"], item.get("namespace"), item["name"]) for item in output] == [
        ("function_call", "mcp__game", "act"),
        ("custom_tool_call", None, "patch"),
        ("custom_tool_call", None, "patch"),
        ("function_call", None, "nod"),
    ]
    assert [item.get("input") or item["arguments"] for item in output] == ['{"q": "x"}', "+ b", "+ c", "{}"]
    events = [*responses.events(answer, read)]
    assert events[-1][1]["response"]["output"] == output
    pieces = [data["delta"] for name, data in events if name == "response.custom_tool_call_input.delta"]
    assert pieces == ["+ b", "+ c"]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ({"type": "web_search"}, "web_search.*accepted: function, custom, namespace"),
        ({"type": "namespace"}, r"tools\[0\].name"),
        (
            {"type": "namespace", "name": "x", "tools": [PATCH]},
            r"tools\[0\].tools\[0\] is of the type 'custom'",
        ),
        ({"type": "custom"}, r"tools\[0\].name"),
    ],
)
def test_other_tools_are_refused_by_name(tool, words):
    with pytest.raises(Refused, match=words):
        responses.read({"input": "x", "tools": [tool]})
