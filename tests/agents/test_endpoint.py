"""OpenAIAgent: tools, streams, the fields that servers refuse, Responses, dead servers, the clock."""

import asyncio
import base64
import json
import re
import socket
import warnings
from threading import Event, Thread
from time import perf_counter, sleep

import pytest
from plain_questions import answers_plain_questions
from waiting import until_async

import gem
from gem.agents.base import BatchBroken
from gem.agents.pace import describe_requests
from gem.content import Image, Message, Text, ToolCall, ToolSpec
from gem.errors import AgentUnavailable, BadArgument, NoVerdict, OutOfTime
from gem.record import Ask, Limits, Reply, StopReason
from gem.rollout import Job, rollout, rollout_async
from gem.testing.stub_server import (
    CHAT,
    RESPONSES,
    RawAnswer,
    StubServer,
    completion,
    completion_events,
    event_of,
    response,
    response_events,
)
from gem.tools import calls
from gem.waiting import hear_trouble

LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent

TOOLS = (ToolSpec("search", "Search.", {"type": "object", "properties": {"q": {"type": "string"}}}),)
PICTURE = Image(b"\x00png", "image/png")
PICTURE_URL = "data:image/png;base64," + base64.b64encode(PICTURE.data).decode()


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(*messages, turn=0, **changes):
    return Ask("e", "agent", turn, messages or (Message("user", "hello"),), **changes)


def agent_of(server, **options):
    return OpenAIAgent("tiny", base_url=server.base_url, **{"backoff_s": 0.001, **options})


def one(server, request=None, **options):
    with agent_of(server, **options) as agent:
        return agent([request or ask()])[0]


def error_of(server, request=None, **options):
    with agent_of(server, **options) as agent, pytest.raises(BatchBroken) as caught:
        agent([request or ask()])
    (error,) = caught.value.answers
    return error


def call(name="search", arguments='{"q": "x"}', **fields):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **fields}


# -- tools


def test_tools_are_offered_as_schemas_and_calls_are_read():
    answer = completion(
        None, "tool_calls", tool_calls=[call(id="c1"), call("no_such_tool", "{not json", id="c2")]
    )
    with StubServer(answer) as server:
        reply = one(server, ask(tools=TOOLS))
        (request,) = server.requests
    assert request["tools"] == [
        {
            "type": "function",
            "function": {"name": "search", "description": "Search.", "parameters": TOOLS[0].schema},
        }
    ]
    assert reply.tool_calls == (
        ToolCall("c1", "search", '{"q": "x"}'),
        ToolCall("c2", "no_such_tool", "{not json"),
    )
    assert (reply.text, reply.finish, reply.extra) == ("", "stop", {})


def test_calls_without_an_id_of_their_own_get_one_that_is_always_the_same():
    given = [call(), call(id=""), call(id=None), call(id="c"), call(id="c")]
    with StubServer(completion("", "tool_calls", tool_calls=given)) as server:
        ids = [[c.id for c in one(server, ask(turn=4)).tool_calls] for _ in range(2)]
    assert ids[0] == ids[1] == ["call_4_0", "call_4_1", "call_4_2", "c", "call_4_4"]


def test_arguments_that_are_an_object_and_the_older_form_of_a_call_are_read():
    with StubServer(completion(None, tool_calls=[call(arguments={"q": "ü"})])) as server:
        assert one(server).tool_calls == (ToolCall("call_0_0", "search", '{"q": "ü"}'),)
    older = {"name": "search", "arguments": "{}"}
    with StubServer(completion(None, "function_call", function_call=older)) as server:
        assert one(server).tool_calls == (ToolCall("call_0_0", "search", "{}"),)


def conversation():
    said = (ToolCall("a", "search", '{"q": 1}'), ToolCall("b", "look for!", "[1"))
    return (
        Message("system", "be brief"),
        Message("user", "find it"),
        Message("assistant", "", tool_calls=said, reasoning="hm"),
        Message("tool", "found", tool_call_id="a", name="search"),
        Message("tool", (Text("a board"), PICTURE), tool_call_id="b", name="look for!"),
    )


def test_calls_and_their_results_are_sent_back():
    with StubServer("x") as server:
        one(server, ask(*conversation(), tools=TOOLS))
        _, _, said, first, second, behind = server.requests[0]["messages"]
    assert said == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}},
            {
                "id": "b",
                "type": "function",
                # as servers take it: some refuse the whole conversation for a bad name or bad arguments
                "function": {"name": "look_for_", "arguments": '{"unreadable": "[1"}'},
            },
        ],
    }
    assert first == {"role": "tool", "content": "found", "tool_call_id": "a"}
    assert second == {"role": "tool", "content": "a board\n[image]", "tool_call_id": "b"}
    assert behind == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Pictures of the result of look for! (b):"},
            {"type": "image_url", "image_url": {"url": PICTURE_URL}},
        ],
    }


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_as_text_no_tools_are_offered_and_none_are_sent_back(api):
    answer = (
        completion("so", tool_calls=[call()])
        if api == "chat"
        else response(
            "so",
            output=[{"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"q": "x"}'}],
        )
    )
    with StubServer(answer) as server:
        reply = one(server, ask(*conversation(), tools=TOOLS), tools="text", api=api)
        (request,) = server.requests
    assert "tools" not in request
    sent = json.dumps(request)
    assert "tool_call_id" not in sent
    assert "function_call" not in sent
    assert [each["role"] for each in request.get("messages") or request["input"]][-2:] == [
        "assistant",
        "user",
    ]
    assert "<tool_call>" in sent
    assert reply.tool_calls == ()
    assert [found.call.name for found in calls.find(reply.text, ())] == ["search"]


class Finder(gem.Env):
    """An environment with a tool: who calls it and then says what it gave has won."""

    tool_specs = TOOLS

    def reset(self, seed=None):
        super().reset(seed)
        return "Find the word.", {}

    def step(self, action):
        found = calls.find(action, ())
        if found and found[0].call is not None:
            shown = "the word is " + str(found[0].call.arguments.get("q"))
            return shown, 0.0, False, False, {"tool_results": [{"shown": len(shown)}]}
        return "bye", float("x" in action), True, False, {"success": "x" in action}


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", ["native", "text"])
def test_an_episode_with_tools_is_the_same_natively_and_as_text(api, stream, tools):
    def answer(body):
        heard = json.dumps(body.get("messages") or body["input"])
        if "the word is" in heard:
            return "it is x"
        if tools == "text":
            return calls.write("", [ToolCall("", "search", '{"q": "x"}')])
        item = {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"q": "x"}'}
        if api == "responses":
            return response("", output=[item])
        return completion(None, "tool_calls", tool_calls=[call(id="c")])

    with StubServer(answer) as server, agent_of(server, api=api, stream=stream, tools=tools) as agent:
        (episode,) = rollout([Job(Finder, 0)], agent)
        (again,) = asyncio.run(rollout_async([Job(Finder, 0)], agent))
    assert (episode.reward(), len(episode.turns), episode.error) == (1.0, 2, None)
    assert episode.transcript_hash() == again.transcript_hash()
    assert episode.turns[0].action == '<tool_call>{"name": "search", "arguments": {"q": "x"}}</tool_call>'
    assert (episode.turns[0].reply is not None) == (tools == "native")


@pytest.mark.parametrize(
    "refusal",
    [
        RawAnswer.error(
            400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        ),
        RawAnswer.error(400, "registry.example/tiny does not support tools"),
        RawAnswer.error(404, "No endpoints found that support tool use."),
        RawAnswer.error(500, "tools param requires --jinja flag"),
        RawAnswer(
            422, body=b'{"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]}'
        ),
    ],
)
def test_a_server_without_tools_says_what_to_pass(refusal):
    with StubServer(refusal) as server:
        error = error_of(server, ask(tools=TOOLS))
        assert isinstance(error, AgentUnavailable)
        assert 'pass tools="text"' in str(error)
        assert len(server.requests) == 1
        assert 'tools="text"' not in str(error_of(server, ask()))


def test_what_a_model_wrote_cannot_make_tools_look_refused():
    odd = RawAnswer.error(400, "unknown tools in the conversation")
    with StubServer("fine", []) as server, agent_of(server) as agent:
        agent([ask(tools=TOOLS)])
        server.answer = odd
        with pytest.raises(BatchBroken) as caught:
            agent([ask(tools=TOOLS)])
    assert type(caught.value.answers[0]) is NoVerdict


# -- reasoning and parts


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "a", "reasoning_content": "r"}, "a", "r"),
        ({"content": "a", "reasoning": "r"}, "a", "r"),
        ({"content": "a", "reasoning": {"effort": 1}}, "a", None),
        ({"content": "<think>r</think>a"}, "<think>r</think>a", None),
        ({"content": [{"type": "reasoning", "text": "r"}, {"type": "text", "text": "a"}]}, "a", "r"),
        (
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "r"}]}, "a"]},
            "a",
            "r",
        ),
        ({"content": [{"type": "thinking", "text": "", "thinking": "r"}, "a"]}, "a", "r"),
        ({"content": [{"type": "thinking", "text": 5, "thinking": "r"}, "a"]}, "a", "r"),
        ({"content": [{"type": "output_text", "text": "a"}, {"type": "unheard_of"}]}, "a", None),
        ({"content": "a", "refusal": "no"}, "a\nno", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_content_in_parts_and_reasoning_apart(message, text, reasoning, stream):
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    with StubServer(body) as server:
        reply = one(server, stream=stream)
    assert (reply.text, reply.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("send", "field"), [(False, None), (True, "reasoning_content"), ("thoughts", "thoughts")]
)
def test_reasoning_is_sent_back_where_that_is_wanted(send, field):
    with StubServer("x") as server:
        one(server, ask(*conversation()), send_reasoning=send)
        one(server, ask(*conversation()), send_reasoning=send, api="responses")
        said = server.requests[0]["messages"][2]
        items = server.requests[1]["input"]
    assert {key: value for key, value in said.items() if value == "hm"} == ({field: "hm"} if field else {})
    assert [item for item in items if item.get("type") == "reasoning"] == (
        [
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [],
                "content": [{"type": "reasoning_text", "text": "hm"}],
            }
        ]
        if field
        else []
    )


# -- usage and extra


@pytest.mark.parametrize(
    ("usage", "sampled"),
    [
        ({"completion_tokens": 9, "total_tokens": 135, "details": {"reasoning_tokens": 94}}, 103),
        ({"completion_tokens": 9, "total_tokens": 41, "details": {"reasoning_tokens": 4}}, 9),
        ({"completion_tokens": 9, "details": {"reasoning_tokens": 94}}, 94),
        ({"completion_tokens": 9, "total_tokens": 3}, 9),
        ({"completion_tokens": 9, "total_tokens": 135, "prompt_tokens_details": {"cached_tokens": 30}}, 103),
        ({"total_tokens": 135}, 103),
        ({"total_tokens": 32}, None),
    ],
)
def test_reasoning_that_a_server_counts_apart_is_part_of_the_answer(usage, sampled):
    usage = {"prompt_tokens": 32, **usage}
    with StubServer({**completion("x"), "usage": usage}) as server:
        assert one(server).usage.get("completion_tokens") == sampled
    with StubServer({**completion(""), "usage": usage}) as server:  # empty, but it thought
        assert one(server).text == ""


@pytest.mark.parametrize(
    "beside",
    [
        {"cache_read_input_tokens": 1000},
        {"cache_read_input_tokens": 500, "cache_creation_input_tokens": 500},
        {"cache_read_input_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 1000}},
        {"prompt_tokens_details": {"cached_tokens": 1000}},
        {"citation_tokens": 1000},
    ],
)
@pytest.mark.parametrize(("thought", "told"), [(0, False), (7, True), (7, False)])
def test_tokens_that_a_total_has_beside_prompt_and_answer_are_not_sampled(beside, thought, told):
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 1015 + thought, **beside}
    usage |= {"completion_tokens_details": {"reasoning_tokens": thought}} if told else {}
    with StubServer({**completion("x"), "usage": usage}) as server:
        assert one(server).usage["completion_tokens"] == 5 + thought


def test_every_counter_is_kept_and_what_tells_a_response_apart():
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 1, "audio_tokens": 0},
        "prompt_tokens_details": {"cached_tokens": 4},
        "cost": 0.5,
        "flag": True,
        "broken": -1,
        "huge": 10**40,
    }
    body = {**completion("x"), "usage": usage, "id": "r1", "model": "m", "system_fingerprint": "f" * 300}
    counted = {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "reasoning_tokens": 1,
        "cached_tokens": 4,
    }
    for stream in (False, True):
        with StubServer(body) as server:
            reply = one(server, stream=stream)
        assert reply.usage == counted
        assert reply.extra == {"id": "r1", "model": "m"}


# -- streams


def test_a_stream_is_asked_for_with_its_counters_and_read_in_any_pieces():
    whole = {
        **completion(
            "Grüße 🙂", "tool_calls", reasoning_content="ähm", tool_calls=[call(id="a"), call(id="b")]
        ),
        "usage": {"completion_tokens": 5},
    }
    lines = b": keep-alive\r\n\r\nevent: x\r\nretry: 5\r\n\r\n" + b"".join(
        b"data:" + json.dumps(event, ensure_ascii=False).encode() + b"\r\n\r\n"
        for event in completion_events(whole)
    )
    lines += b"data: [DONE]\r\n\r\n"
    replies = []
    for size in (1, 7, len(lines)):
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        fault = RawAnswer(headers={"Content-Type": "text/event-stream; charset=utf-8"}, chunks=pieces)
        with StubServer(fault) as server:
            replies.append(one(server, stream=True))
        assert server.requests[0]["stream"] is True
        assert server.requests[0]["stream_options"] == {"include_usage": True}
    with StubServer(whole) as server:
        assert replies == [one(server)] * 3
    assert replies[0].text == "Grüße 🙂"
    assert replies[0].usage == {"completion_tokens": 5}


def test_calls_in_a_stream_are_told_apart_by_index_and_by_id():
    def delta(*calls, end=None):
        return {"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": end}]}

    events = [
        delta({"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}),
        delta({"index": 1, "id": "b", "function": {"name": "two", "arguments": "{"}}),
        delta({"index": 0, "function": {"arguments": "{}"}}, {"index": 1, "function": {"arguments": "}"}}),
        delta({"index": 0, "id": "c", "function": {"name": "three", "arguments": "{}"}}),  # all have index 0
        delta({"id": "d", "function": {"name": "four", "arguments": {"x": 1}}}),  # no index
        delta(end="tool_calls"),
    ]
    with StubServer(RawAnswer.stream(*events)) as server:
        found = [(c.id, c.name, c.arguments) for c in one(server, stream=True).tool_calls]
    assert found == [("a", "one", "{}"), ("b", "two", "{}"), ("c", "three", "{}"), ("d", "four", '{"x": 1}')]


@pytest.mark.parametrize("names", [("one", "two"), ("one", "one")])
@pytest.mark.parametrize("more", [{}, {"index": 0}, {"index": 0, "id": ""}])
def test_calls_in_a_stream_without_ids_are_told_apart_by_name_and_arguments(names, more):
    def delta(**function):
        return {"choices": [{"index": 0, "delta": {"tool_calls": [{**more, "function": function}]}}]}

    one_call = [delta(name=names[0], arguments='{"x"'), delta(name=names[0], arguments=": 1}")]
    another = [delta(name=names[0], arguments=""), delta(name=names[1], arguments='{"x": 2}')]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    with StubServer(RawAnswer.stream(*one_call, *another, end)) as server:
        found = [(c.name, c.arguments) for c in one(server, stream=True).tool_calls]
    assert found == [(names[0], '{"x": 1}'), (names[1], '{"x": 2}')]


@pytest.mark.parametrize(
    "end",
    ["content_filter: SAFETY", "content_filter (SAFETY)", "contentFilter", "content-filter", "tool_calls"],
)
def test_an_answer_that_the_server_kept_is_not_the_models(end):
    text = "I would guess" if end.startswith("content") else None
    said = {**completion(text, end), "usage": {"prompt_tokens": 9, "completion_tokens": 25}}
    with StubServer(lambda request: said) as server, pytest.raises(BatchBroken, match=re.escape(end)):
        one(server, retries=0)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_before_its_text_is_read_alike(stream):
    whole = {"choices": [{"index": 0, "finish_reason": "length"}], "usage": {"completion_tokens": 64}}
    with StubServer(RawAnswer.stream(whole) if stream else lambda request: whole) as server:
        answer = one(server, stream=stream)
    assert (answer.text, answer.finish) == ("", "length")


def test_a_character_that_a_stream_splits_is_joined():
    events = [
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": end}]}
        for text, end in (("a\ud83d", None), ("\ude00\ud83d", "stop"))
    ]
    with StubServer(RawAnswer.stream(*events)) as server:
        assert one(server, stream=True).text.startswith("a\U0001f600")


def test_a_key_that_the_server_repeats_is_not_recorded():
    said = {**completion("x", "stop sk-very-secret"), "id": "sk-very-secret", "model": "sk-very-secret"}
    with StubServer(lambda request: said) as server:
        answer = one(server, headers={"Authorization": "Bearer sk-very-secret"})
    assert "very-secret" not in repr(answer)


def test_token_ids_and_logprobs_come_in_a_stream_too():
    def chunk(text, ids, logprob, **more):
        choice = {"index": 0, "delta": {"content": text}, "token_ids": ids}
        return {"choices": [choice | {"logprobs": {"content": [{"logprob": logprob}]}}], **more}

    events = [
        chunk("a", [5], -0.5, prompt_token_ids=[1, 2]),
        chunk("b", [6], -1.0),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    with StubServer(RawAnswer.stream(*events)) as server:
        reply = one(server, stream=True, token_ids=True)
    assert (reply.text, reply.prompt_ids, reply.token_ids, reply.logprobs) == (
        "ab",
        (1, 2),
        (5, 6),
        (-0.5, -1.0),
    )


def test_a_stream_that_is_whole_counts_even_if_it_is_cut_behind_its_end():
    events = completion_events(completion("fine"))
    with StubServer(RawAnswer.stream(*events, b"data: {brok", done=False, cut=True)) as server:
        assert one(server, stream=True, retries=0).text == "fine"


def test_a_stream_that_stays_open_behind_its_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("gem.agents.openai.LINGER_S", 0.05)
    over = Event()

    def chunks():
        yield from map(event_of, completion_events(completion("fine")))
        over.wait(60)

    fault = RawAnswer(headers={"Content-Type": "text/event-stream"}, chunks=chunks())
    with StubServer(fault) as server:
        try:
            assert one(server, stream=True, retries=0).text == "fine"
        finally:
            over.set()


def test_a_server_that_streams_or_does_not_whatever_it_was_asked_for_is_read():
    with StubServer(RawAnswer.stream(*completion_events(completion("fine")))) as server:
        assert one(server).text == "fine"
    with StubServer(RawAnswer(body=json.dumps(completion("fine")).encode())) as server:
        assert one(server, stream=True).text == "fine"


def test_the_last_event_counts_without_an_empty_line_behind_it():
    events = [event_of(event) for event in completion_events(completion("fine"))]
    with StubServer(RawAnswer.stream(*events[:-1], events[-1].strip(), done=False)) as server:
        assert one(server, stream=True, retries=0).text == "fine"


def test_responses_leave_their_output_to_the_items_sometimes():
    *events, last = response_events(response("fine"))
    last = {**last, "response": {**last["response"], "output": []}}
    with StubServer(RawAnswer.stream(*events, last, done=False)) as server:
        assert one(server, api="responses", stream=True).text == "fine"


# -- fields that a server refuses


def refusing(*fields, answer="fine", message="Unsupported parameter: {!r} is not supported with this model."):
    def respond(body):
        for name in fields:
            if name in body:
                return RawAnswer.error(400, message.format(name))
        return answer

    return respond


def test_the_limit_changes_its_name_for_good_without_a_try():
    with StubServer(refusing("max_tokens")) as server, agent_of(server, max_tokens=9, retries=0) as agent:
        assert agent([ask(), ask()])[0].text == "fine"
        agent([ask()])
        (last,) = server.requests[-1:]
    assert last["max_completion_tokens"] == 9
    assert "max_tokens" not in last
    assert len(server.requests) <= 5  # two asks of two requests, then one of one


def test_a_limit_that_was_named_is_the_callers():
    with StubServer(refusing("max_tokens")) as server:
        error = error_of(server, max_tokens=9, max_tokens_field="max_tokens")
        assert type(error) is NoVerdict
    with StubServer("x") as server:
        one(server, max_tokens=9, max_tokens_field="max_completion_tokens")
        assert server.requests[0]["max_completion_tokens"] == 9


def test_a_limit_that_is_too_large_is_no_refusal_of_its_field():
    too_large = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens."
    with StubServer(RawAnswer.error(400, too_large)) as server:
        assert "too large" in str(error_of(server, max_tokens=100_000))
        assert len(server.requests) == 1


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_seed_has_31_bits(api):
    with StubServer("x") as server:
        one(server, ask(seed=3 * 2**31 + 5), api=api)
        assert server.requests[0]["seed"] == 5


@pytest.mark.parametrize(
    "message", ["Invalid value at 'generation_config.{}' (TYPE_INT32), 5", "{} must be at most 100"]
)
def test_a_seed_whose_value_is_refused_is_left_out(message):
    with StubServer(refusing("seed", message=message)) as server, pytest.warns(UserWarning, match="'seed'"):
        assert one(server, retries=0).text == "fine"


def test_a_seed_that_was_taken_is_not_refused_by_an_error_that_names_it():
    with StubServer("fine") as server, agent_of(server, retries=0) as agent:
        agent([ask()])
        server.answer = RawAnswer.error(400, "I cannot read the seed of the apple")
        with pytest.raises(BatchBroken):
            agent([ask()])
        assert len(server.requests) == 2


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("why", ["blocked: 'which seed grows?'", "unknown topic: 'which seed grows?'"])
def test_a_refused_conversation_that_names_a_field_costs_no_other_its_seed(why, status):
    def answer(body):
        return RawAnswer.error(status, why) if "grows" in json.dumps(body) else "fine"

    with StubServer(answer) as server, agent_of(server, retries=0) as agent:
        with pytest.raises(BatchBroken):
            agent([ask(Message("user", "which seed grows?"))])
        agent([ask()])
    assert "seed" in server.requests[-1]


def test_a_conversation_that_is_answered_in_another_form_costs_no_other_its_seed():
    def answer(body):
        return RawAnswer.error(400, "bad seed: \x01") if "u0001" in json.dumps(body) else "fine"

    with StubServer(answer) as server:
        assert one(server, ask(Message("user", "bad seed: \x01")), retries=0).text == "fine"
    assert "seed" in server.requests[-1]


def test_a_seed_that_is_refused_is_left_out_with_one_warning():
    with (
        StubServer(refusing("seed", "stream_options")) as server,
        agent_of(server, stream=True) as agent,
        warnings.catch_warnings(record=True) as told,
    ):
        warnings.simplefilter("always")
        assert agent([ask()])[0].text == "fine"
        agent([ask()])
    assert [str(each.message).split("refuses ")[1] for each in told] == [
        "'seed'; it is left out.",
        "'stream_options'; it is left out.",
    ]
    assert len(server.requests) == 4


def test_a_temperature_that_is_refused_stops_the_run_and_says_what_to_pass():
    message = "Unsupported value: {!r} does not support 0.5 with this model."
    with StubServer(refusing("temperature", message=message)) as server:
        error = error_of(server, temperature=0.5)
        assert isinstance(error, AgentUnavailable)
        assert "temperature=None" in str(error)
        assert one(server, temperature=None).text == "fine"


def test_token_ids_that_are_refused_stop_the_run_too():
    with StubServer(refusing("return_token_ids", message="Unrecognized request argument: {}")) as server:
        error = error_of(server, token_ids=True)
    assert isinstance(error, AgentUnavailable)
    assert "token_ids=False" in str(error)


def test_headers_of_the_callers_take_the_place_of_ours(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-one")
    with StubServer("x") as server:
        one(server, headers={"authorization": "Basic abc", "X-Title": "t"})
        sent = {key.lower(): value for key, value in server.headers[0].items()}
    assert (sent["authorization"], sent["x-title"]) == ("Basic abc", "t")


def test_a_field_of_the_callers_own_is_never_changed():
    with StubServer(refusing("logprobs", "stream_options")) as server:
        error = error_of(server, extra={"logprobs": True, "stream_options": {}})
        assert type(error) is NoVerdict
        assert len(server.requests) == 1


def test_an_answer_is_shortened_until_it_fits():
    def respond(body):
        asked = body["max_tokens"]
        if asked > 61:
            return RawAnswer.error(
                400,
                "This model's maximum context length is 100 tokens. However, you requested "
                f"{asked + 38} tokens (38 in the messages, {asked} in the completion).",
            )
        return completion("cut", "length")

    with StubServer(respond) as server:
        reply = one(server, max_tokens=1000, retries=0)
        assert [request["max_tokens"] for request in server.requests] == [1000, 61]
    assert (reply.text, reply.finish) == ("cut", "length")


def test_a_prompt_that_leaves_no_space_ends_at_the_context_limit():
    def respond(body):  # vLLM counts the prompt only up to there
        asked = body["max_tokens"]
        return RawAnswer.error(
            400,
            f"This model's maximum context length is 100 tokens. However, you requested {asked} output "
            f"tokens and your prompt contains at least {101 - asked} input tokens, at least 101 in total.",
        )

    with StubServer(answers_plain_questions(respond)) as server:
        assert one(server, max_tokens=64, retries=0).finish == "context"
        assert [request["max_tokens"] for request in server.requests] == [64, 32, 16, 8, 4, 2, 1, 64]


@pytest.mark.parametrize("sampling", [None, {"context_length": 8192}])
@pytest.mark.parametrize(
    "fault",
    [
        RawAnswer.error(400, "Unrecognized request argument supplied: context_length"),
        RawAnswer.error(400, "Failed to load model: requested context length 131072 needs more memory"),
        RawAnswer(body=b'{"error": {"message": "The context length is out of memory"}}'),
    ],
)
def test_a_server_that_refuses_a_plain_question_too_blames_the_length_wrongly(fault, sampling):
    with StubServer(fault) as server:
        error = error_of(server, ask(sampling=sampling), extra={"context_length": 8192})
    assert type(error) is AgentUnavailable
    assert "to 'Say yes.' too" in str(error)


def test_a_field_of_an_asker_that_is_refused_is_no_prompt_that_is_too_long():
    def answer(body):
        refused = RawAnswer.error(400, "Unrecognized request argument supplied: context_length")
        return refused if "context_length" in body else "x"

    with StubServer(answer) as server:
        assert type(error_of(server, ask(sampling={"context_length": 8192}))) is NoVerdict


def with_tools_alone(refusal):
    """A server that answers "hello" with `refusal`, and refuses fields of tools where no tools are sent."""

    def answer(body):
        field = next((name for name in ("tool_choice", "parallel_tool_calls") if name in body), None)
        if field and "tools" not in body:
            return RawAnswer.error(
                400, f"Invalid value: {field!r} is only allowed when 'tools' are specified."
            )
        return "yes" if "hello" not in json.dumps(body) else refusal

    return answer


TOO_LONG = RawAnswer.error(400, "The prompt is too long")


@pytest.mark.parametrize("sampling", [None, {"tool_choice": "auto"}])
def test_a_prompt_with_tools_is_too_long_for_a_server_that_answers_a_plain_question_with_tools(sampling):
    with StubServer(with_tools_alone(TOO_LONG)) as server:
        request = ask(tools=TOOLS, sampling=sampling)
        assert one(server, request, extra={"parallel_tool_calls": False}).finish == "context"
    assert len(server.requests) == 2


def test_a_plain_question_that_is_refused_says_nothing_of_the_length():
    form = {"response_format": {"type": "json_object"}}
    needs_word = RawAnswer.error(400, "'messages' must contain the word 'json' to use 'response_format'")
    with StubServer(lambda body: TOO_LONG if "hello" in json.dumps(body) else needs_word) as server:
        assert one(server, extra=form).finish == "context"


def test_a_plain_question_has_no_field_of_tools():
    with (
        StubServer(with_tools_alone(RawAnswer.error(403))) as server,
        agent_of(server, extra={"parallel_tool_calls": False}) as agent,
    ):
        agent([ask(Message("user", "hi"), tools=TOOLS)])
        with pytest.raises(BatchBroken) as caught:
            agent([ask(tools=TOOLS)])
    assert type(caught.value.answers[0]) is NoVerdict


@pytest.mark.parametrize("fault", [RawAnswer.error(429), RawAnswer(drop=True)])
def test_a_server_that_is_busy_at_the_plain_question_is_asked_again(fault):
    with StubServer(answers_plain_questions(TOO_LONG), [TOO_LONG, fault]) as server:
        assert one(server).finish == "context"
    assert len(server.requests) == 4


def test_the_plain_question_is_asked_as_the_server_takes_it():
    def answer(body):
        if "hello" in json.dumps(body):
            return RawAnswer.error(400, "The prompt is too long")
        return RawAnswer.error(400, "Unsupported parameter: 'max_tokens'") if "max_tokens" in body else "yes"

    with StubServer(answer) as server:
        assert one(server).finish == "context"
    assert server.requests[-1]["max_completion_tokens"] == 256


# -- responses


def test_responses_take_the_whole_conversation_and_keep_nothing():
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}], "summary": []}
    item = {"type": "function_call", "id": "i", "call_id": "c9", "name": "search", "arguments": "{}"}
    usage = {
        "input_tokens": 7,
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 1},
        "input_tokens_details": {"cached_tokens": 3},
    }
    body = response("so", output=[thought, item, {"type": "web_search_call"}], usage=usage, id="r", model="m")
    with StubServer(body) as server:
        messages = (*conversation(), Message("user", (Text("look"), PICTURE)))
        reply = one(server, ask(*messages, tools=TOOLS, max_tokens=5), api="responses", extra={"top_p": 0.5})
        assert server.paths == [RESPONSES]
        (request,) = server.requests
    assert request == {
        "model": "tiny",
        "store": False,
        "instructions": "be brief",
        "temperature": 1.0,
        "max_output_tokens": 5,
        "top_p": 0.5,
        "tools": [
            {
                "type": "function",
                "name": "search",
                "description": "Search.",
                "parameters": TOOLS[0].schema,
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": "find it"},
            {"type": "function_call", "call_id": "a", "name": "search", "arguments": '{"q": 1}'},
            {
                "type": "function_call",
                "call_id": "b",
                "name": "look_for_",
                "arguments": '{"unreadable": "[1"}',
            },
            {"type": "function_call_output", "call_id": "a", "output": "found"},
            {"type": "function_call_output", "call_id": "b", "output": "a board\n[image]"},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Pictures of the result of look for! (b):"},
                    {"type": "input_image", "detail": "auto", "image_url": PICTURE_URL},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "look"},
                    {"type": "input_image", "detail": "auto", "image_url": PICTURE_URL},
                ],
            },
        ],
    }
    assert reply == Reply(
        "so",
        tool_calls=(ToolCall("c9", "search", "{}"),),
        reasoning="hm",
        usage={"prompt_tokens": 7, "completion_tokens": 2, "reasoning_tokens": 1, "cached_tokens": 3},
        extra={"id": "r", "model": "m"},
    )


# -- dead servers


def test_a_dead_key_is_told_to_every_ask_and_the_key_to_nobody(monkeypatch):
    monkeypatch.setenv("MY_KEY", " sk-very-secret\n")
    said = "Incorrect API key provided: sk-very-secret. header-secret"
    options = {"api_key_env": "MY_KEY", "headers": {"X-Other": "header-secret"}, "concurrency": 2}
    with StubServer(RawAnswer.error(401, said)) as server, agent_of(server, **options) as agent:
        with pytest.raises(BatchBroken) as caught:
            agent([ask()] * 30)
        assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
        assert server.headers[0]["X-Other"] == "header-secret"
        assert len(server.requests) <= 2  # those that wait for a place are told without one
    assert {type(answer) for answer in caught.value.answers} == {AgentUnavailable}
    for error in caught.value.answers:
        assert "answered 401" in str(error)
        assert "MY_KEY, which is set" in str(error)
        assert "secret" not in str(error)
    assert "header-secret" not in repr(agent.info)


def test_an_unknown_model_is_told_with_its_name_and_address():
    with StubServer(RawAnswer.error(404, "no such model")) as server:
        shown = str(error_of(server))
        assert f"{server.base_url}/chat/completions answered 404" in shown
        assert "'tiny'" in shown


def test_a_password_in_the_address_is_not_shown():
    with StubServer(RawAnswer.error(403, "no")) as server:
        url = server.base_url.replace("http://", "http://me:hidden@")
        with OpenAIAgent("tiny", base_url=url) as agent, pytest.raises(BatchBroken, match="403") as caught:
            agent([ask()])
    assert "hidden" not in str(caught.value)


def test_a_server_that_restarts_is_waited_for():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1"
    servers = []

    def later():
        sleep(0.3)
        server = StubServer("back", port=port)
        servers.append(server)

    thread = Thread(target=later)
    with OpenAIAgent("tiny", base_url=url, retries=0, backoff_s=0.05, grace_s=20.0) as agent:
        thread.start()
        try:
            assert [reply.text for reply in agent([ask()] * 4)] == ["back"] * 4
        finally:
            thread.join()
            servers[0].close()


def test_a_server_that_stays_away_is_given_up_after_the_grace_time_and_then_at_once():
    with StubServer() as server:
        pass
    with agent_of(server, grace_s=0.3, backoff_s=0.01, retries=100) as agent:
        began = perf_counter()
        with pytest.raises(BatchBroken) as caught:
            agent([ask()] * 20)
        assert perf_counter() - began >= 0.3
        assert {type(answer) for answer in caught.value.answers} == {AgentUnavailable}
        assert "is the server running?" in str(caught.value)
        with pytest.raises(BatchBroken) as caught:
            agent([ask()])
        assert isinstance(caught.value.answers[0], AgentUnavailable)


def test_a_server_that_asks_to_wait_is_reported_though_others_were_just_answered(monkeypatch):
    monkeypatch.setattr("gem.agents.openai.LONGEST_WAIT_S", 0.01)
    troubles = []
    busy = RawAnswer.error(429, "slow down", retry_after="25")
    answers = iter(["yes", busy, busy, "yes"])
    server = StubServer(lambda body: next(answers))
    with server, agent_of(server) as agent, hear_trouble(troubles.append):
        agent([ask()])
        agent([ask()])
    why = "answered 429: 'slow down 429'; the server asks to wait 25 s; trying again"
    assert [why in trouble for trouble in troubles] == [True]  # said once


def test_a_server_that_is_not_there_is_named_at_once_and_once():
    with StubServer() as server:
        pass
    troubles = []
    agent = agent_of(server, grace_s=0.2, backoff_s=0.01)
    with agent, hear_trouble(troubles.append), pytest.raises(BatchBroken):
        agent([ask()] * 4)
    why = "did not answer: ConnectError: connection refused; trying again (retries 1)"
    assert troubles == [f"{agent.url} {why}"]


def test_a_server_that_answers_nothing_is_named_before_the_first_answer(monkeypatch):
    monkeypatch.setattr("gem.agents.openai.SLOW_S", 0.05)
    gate, troubles = Event(), []

    def hear(trouble):
        troubles.append(trouble)
        gate.set()

    server = StubServer(lambda body: gate.wait(20) and "late")
    with server, agent_of(server) as agent, hear_trouble(hear):
        assert [reply.text for reply in agent([ask()] * 2)] == ["late"] * 2
    assert troubles == [f"{agent.url} has not answered for 0.05 s (2 asks wait)"]


def test_an_answer_says_how_often_it_was_asked_for_again():
    with StubServer("x", [RawAnswer(503), RawAnswer(429)]) as server, agent_of(server) as agent:
        assert [agent([ask()])[0].extra.get("retries") for _ in range(2)] == [2, None]
        assert agent._pace.retries == 2
        assert agent._pace.took_s > 0
        agent._pace.asks = 1  # as while it is asked
        assert re.fullmatch(r"retries 2, last answer took [0-9.]+ s", describe_requests())
        agent._pace.asks = 0


def test_an_unknown_host_is_a_server_that_is_not_there():
    with (
        OpenAIAgent("tiny", base_url="http://no-such-host.invalid/v1", grace_s=0.0) as agent,
        pytest.raises(BatchBroken, match="AgentUnavailable"),
    ):
        agent([ask()])


def test_the_grace_time_counts_from_the_last_success_of_any_ask():
    answer = RawAnswer(headers={"Connection": "close"}, body=json.dumps(completion("x")).encode())
    with StubServer(answer) as server, agent_of(server, grace_s=0.2, backoff_s=0.01) as agent:
        agent([ask()])
        agent._away_since = perf_counter() - 1000  # it was away, and nobody asked since
        agent([ask()])
        assert agent._away_since is None
        server.close()
        with pytest.raises(BatchBroken):
            agent([ask()])
        assert agent._away_since is not None


def test_a_redirection_is_not_followed_and_the_key_stays_here(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with StubServer("stolen") as elsewhere:
        for status in (301, 302, 303, 307, 308):
            place = RawAnswer(status, {"Location": f"{elsewhere.base_url}/chat/completions"})
            with StubServer(place) as server:
                error = error_of(server)
            assert isinstance(error, AgentUnavailable)
            assert elsewhere.base_url in str(error)
        assert elsewhere.requests == []


@pytest.mark.parametrize("key", ["sk-\nX-Evil: 1", "sk-\u00e9", "sk-\x00"])
def test_a_key_that_no_header_can_have_is_told_without_it(monkeypatch, key):
    if "\x00" in key:
        monkeypatch.setattr("gem.agents.endpoint.Endpoint.key", property(lambda self: key))
    else:
        monkeypatch.setenv("OPENAI_API_KEY", key)
    with StubServer("x") as server:
        error = error_of(server)
        assert server.requests == []
    assert isinstance(error, AgentUnavailable)
    assert "OPENAI_API_KEY" in str(error)
    assert "sk-" not in str(error)


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X: Y": "é"}},
        {"headers": {"": "b"}},
        {"api": "complete"},
        {"renderer": object()},
        {"tools": "xml"},
        {"max_tokens_field": "limit"},
        {"grace_s": -1.0},
        {"grace_s": float("nan")},
    ],
)
def test_bad_options_are_refused(options):
    with pytest.raises(BadArgument):
        OpenAIAgent("tiny", base_url="http://127.0.0.1:1/v1", **options)


@pytest.mark.parametrize("name", ["messages", "instructions", "model", "tools", "stream", "seed", *LIMITS])
def test_a_field_that_the_agent_sets_itself_is_no_extra_field(name):
    with pytest.raises(BadArgument, match=f"extra has '{name}', which the agent sets itself: "):
        OpenAIAgent("tiny", base_url="http://127.0.0.1:1/v1", extra={"top_p": 0.5, name: 5})


def test_settings_that_differ_from_the_usual_are_in_the_record():
    with OpenAIAgent("tiny", base_url="http://127.0.0.1:1/v1", api="responses", tools="text") as agent:
        assert agent.info.sampling == {
            "temperature": 1.0,
            "max_tokens": None,
            "api": "responses",
            "tools": "text",
        }


# -- the clock


@pytest.mark.system
def test_the_wait_for_a_place_is_not_the_agents_time():
    release = Event()

    def answer(body):
        assert release.wait(30)
        return "x"

    with StubServer(answer) as server, agent_of(server, concurrency=1) as agent:

        async def both():
            tasks = [asyncio.create_task(agent.ask(ask(policy_s=30.0))) for _ in range(2)]
            await until_async(lambda: server.requests)
            await asyncio.sleep(1.0)
            release.set()
            return await asyncio.gather(*tasks)

        first, second = asyncio.run(both())
    assert first.policy_s >= 1.0
    assert second.policy_s < 1.0
    assert agent.keeps_time


def test_retries_and_the_waits_between_them_are_the_agents_time():
    with StubServer("x", [RawAnswer.error(429, retry_after="0.2")]) as server:
        assert one(server).policy_s >= 0.2


@pytest.mark.parametrize(
    "fault",
    [RawAnswer(stall=Event()), RawAnswer.error(429, retry_after="30")],
)
def test_time_that_is_spent_is_out_of_time(fault):
    with StubServer("x", [fault] * 9) as server:
        error = error_of(server, ask(policy_s=0.1))
    assert type(error) is OutOfTime


@pytest.mark.system
def test_one_slow_answer_costs_its_own_episode_in_both_drivers():
    hang = Event()

    def answer(body):
        if body["seed"] % 3 == 0:
            hang.wait(30)
        return "x"

    jobs = [Job("game:GuessTheNumber-v0-easy", seed) for seed in range(9)]
    try:
        with StubServer(answer) as server, agent_of(server) as agent:
            first = rollout(jobs, agent, limits=Limits(policy_s=1.0), retries=0)
            second = asyncio.run(rollout_async(jobs, agent, limits=Limits(policy_s=1.0), retries=0))
            hang.set()
    finally:
        hang.set()
    assert [e.stop for e in first] == [e.stop for e in second]
    assert {e.stop for e in first if not e.scored} == {StopReason.TIME_LIMIT}
    assert any(e.scored for e in first)


def test_a_wait_that_the_server_asked_for_holds_no_place():
    first = RawAnswer.error(429, retry_after="0.3")
    with StubServer("x", [first]) as server, agent_of(server, concurrency=1) as agent:

        async def both():
            slow = asyncio.create_task(agent.ask(ask()))
            await until_async(lambda: server.requests)
            quick = await agent.ask(ask(policy_s=10.0))
            assert not slow.done()
            await slow
            return quick

        assert asyncio.run(both()).text == "x"


def test_the_stub_answers_no_other_address():
    with StubServer("x") as server:
        with OpenAIAgent("tiny", base_url=server.base_url + "/other") as agent, pytest.raises(BatchBroken):
            agent([ask()])
        assert server.paths == ["/v1/other/chat/completions"]
        assert CHAT not in server.paths


@pytest.mark.system
def test_the_vendors_own_client_reads_the_stub_and_accepts_our_requests():
    openai = pytest.importorskip("openai")
    pydantic = pytest.importorskip("pydantic")
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatRequest
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Request

    tool = call(id="c")
    item = {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"}
    body = {"id": "r", "created": 1, "model": "m", **completion("hi", tool_calls=[tool])}
    ask_with_all = ask(*conversation(), tools=TOOLS, max_tokens=5)
    with StubServer(body) as server:
        with openai.OpenAI(base_url=server.base_url, api_key="k") as client:
            question = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            whole = client.chat.completions.create(**question).choices[0].message
            assert (whole.content, whole.tool_calls[0].function.arguments) == ("hi", '{"q": "x"}')
            chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**question, stream=True)]
            assert "".join(chunk.delta.content or "" for chunk in chunks) == "hi"
            assert chunks[-1].finish_reason == "stop"
        one(server, ask_with_all)
        pydantic.TypeAdapter(ChatRequest).validate_python(server.requests[-1])
    with StubServer(response("hi", output=[item], id="r", created_at=1, model="m")) as server:
        with openai.OpenAI(base_url=server.base_url, api_key="k") as client:
            assert client.responses.create(model="m", input="x").output_text == "hi"
            *_, last = client.responses.create(model="m", input="x", stream=True)
            assert (last.type, last.response.output_text) == ("response.completed", "hi")
        one(server, ask_with_all, api="responses", send_reasoning=True)
        pydantic.TypeAdapter(Request).validate_python(server.requests[-1])
