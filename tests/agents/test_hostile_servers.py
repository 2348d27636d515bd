"""Answers of servers that break every rule: they cost one ask at most, never the run, nor endless memory."""

import copy
import gzip
import json
import socket
import tracemalloc
import zlib
from contextlib import suppress
from threading import Thread

import pytest

from gem import codec
from gem.dialogue import Dialogue
from gem.errors import NoVerdict
from gem.history import CHAT
from gem.record import Ask, Reply
from gem.testing.stub_server import (
    RawAnswer,
    StubServer,
    completion,
    completion_events,
    response,
    response_events,
)

pytest.importorskip("gem.agents.openai", exc_type=ImportError)

from gem.agents import bodies, outcomes, wire
from gem.agents.chat_completions import ChatCompletions
from gem.agents.openai import OpenAIAgent
from gem.agents.responses import Responses

ALLOWED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What a reader may raise; the agent then says that the answer cannot be read."""

ASK = Ask("e", "agent", 0, ())
DEEP = json.loads("[" * 400 + "]" * 400)
ODD = [None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**40, "", "stop", "a\ud800\x00\x1b[2J", [], {}]
ODD += [[None], [[]], {"": {}}, {"type": []}, {"type": "text"}, {"text": 3}, DEEP, "x" * 10_000]


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 1}}
CHAT_BODY = {
    "id": "r",
    "model": "m",
    **completion("yes", reasoning_content="hm", refusal="no", tool_calls=[CALL]),
    "usage": USAGE,
    "prompt_token_ids": [1, 2],
}
CHAT_BODY["choices"][0] |= {"token_ids": [5], "logprobs": {"content": [{"logprob": -0.5}]}}
PARTS_BODY = completion([{"type": "text", "text": "a"}, {"type": "reasoning", "content": [{"text": "r"}]}])
RESPONSES_BODY = response(
    "yes",
    output=[
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "content": []},
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"},
        {"type": "message", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
    usage={"input_tokens": 3, "output_tokens": 4},
    incomplete_details={"reason": "x"},
    error=None,
)


def places(data, path=()):
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places(value, (*path, key))


def mutants(data):
    """`data` with each of its places in turn made odd, or gone."""
    for path in places(data):
        for odd in ODD:
            changed = copy.deepcopy(data) if path else odd
            if path:
                inner = changed
                for key in path[:-1]:
                    inner = inner[key]
                inner[path[-1]] = odd
            yield changed
        if path and isinstance(path[-1], str):
            changed = copy.deepcopy(data)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            del inner[path[-1]]
            yield changed


def holds(said):
    """A judgement, and where it is a reply, one that the record takes and gives back."""
    assert outcomes.judge(said) in outcomes.OUTCOMES
    if outcomes.judge(said).verdict is not outcomes.Verdict.SCORED:
        return
    reply = outcomes.reply(said)
    dialogue = Dialogue("agent", "e", 0, 0, CHAT, 0, ())
    dialogue.open("hello", {})
    assert dialogue.answer(reply) >= 0
    assert codec.unpack(codec.pack(reply), Reply) == reply
    json.dumps([wire.sent_name(c.name) + wire.sent_arguments(c.arguments) for c in reply.tool_calls])
    for call in reply.tool_calls:
        assert isinstance(json.loads(wire.sent_arguments(call.arguments)), dict)


@pytest.mark.parametrize(
    ("form", "whole"),
    [(ChatCompletions(), CHAT_BODY), (ChatCompletions(), PARTS_BODY), (Responses(), RESPONSES_BODY)],
)
def test_no_shape_of_an_answer_breaks_the_reader(form, whole):
    read = 0
    for mutant in mutants(whole):
        try:
            said = form.read(mutant, ASK)
        except ALLOWED:
            continue
        holds(said)
        read += 1
    assert read > 100


@pytest.mark.parametrize(
    ("form", "events"),
    [
        (ChatCompletions(), completion_events(copy.deepcopy(CHAT_BODY))),
        (Responses(), response_events(copy.deepcopy(RESPONSES_BODY))),
    ],
)
def test_no_shape_of_an_event_breaks_a_stream(form, events):
    read = 0
    for number in range(len(events)):
        for mutant in mutants(events[number]):
            collector = form.collector()
            try:
                for event in (*events[:number], mutant, *events[number + 1 :]):
                    collector.take(event)
                said = form.read(collector.body(), ASK)
            except ALLOWED:
                continue
            holds(said)
            read += 1
    assert read > 100


def test_a_part_of_text_that_lost_its_text_is_no_empty_answer():
    body = copy.deepcopy(CHAT_BODY)
    body["choices"][0]["message"]["content"] = [{"type": "text"}]
    with pytest.raises(wire.NoResponse, match="without its text"):
        ChatCompletions().read(body, ASK)


@pytest.mark.parametrize("odd", ODD)
def test_no_shape_of_an_error_breaks_its_reader(odd):
    for data in mutants(
        {"error": {"message": "m", "param": "p", "code": 3}, "detail": [{"loc": ["a"], "msg": "b"}]}
    ):
        said = outcomes.complaint(data)
        outcomes.too_long(said)
        assert len(said) <= 4000
    assert outcomes.shorter(f"context length is {'9' * 4000} tokens 9 input tokens", 5) is None
    assert isinstance(outcomes.complaint(odd), str)


def test_reading_an_error_takes_no_longer_than_its_length():
    for piece in (
        "context length is 9 tokens ",
        "max_new_tokens must be <= 9 ",
        "context limit: 9 + 9 ",
        "max_tokens or ",
        "9 ",
    ):
        said = (piece * 4000)[:4000]
        assert outcomes.shorter(said, 100) in (None, 50)
        outcomes.too_long(said)
        outcomes.over_cap(said)


# -- over the wire


def body(content, **fields):
    return RawAnswer(body=content if isinstance(content, bytes) else json.dumps(content).encode(), **fields)


def sse(*chunks, **fields):
    return RawAnswer(headers={"Content-Type": "text/event-stream", **fields}, chunks=chunks)


GZIP = {"Content-Encoding": "gzip"}
_packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
BOMB = b"".join(_packer.compress(b" " * 2**20) for _ in range(64)) + _packer.flush()
ATTACKS = {
    "null": body(b"null"),
    "number": body(b"1"),
    "text": body(b'"x"'),
    "NaN": body(b"NaN"),
    "a huge number": body(b"1" * 10_000),
    "nothing": body(b""),
    "zero bytes": body(b"\x00" * 100),
    "no UTF-8": body(b'{"choices": "\xff\xfe"}'),
    "UTF-16": body(json.dumps(completion("x")).encode("utf-16")[:-1]),
    "deep lists": body(b"[" * 200_000),
    "deep objects": body(b'{"a":' * 200_000),
    "deep and closed": body(b"[" * 900 + b"]" * 900),
    "a call without a name": body(completion(None, tool_calls=[{"function": {"arguments": DEEP}}])),
    "a name that is a list": body(
        completion(None, tool_calls=[{"function": {"name": [], "arguments": "{}"}}])
    ),
    "calls that are text": body(completion(None, tool_calls="search")),
    "calls of null": body(completion(None, tool_calls=[None])),
    "a function call of text": body(completion(None, function_call="search")),
    "content that is a number": body(completion(1)),
    "content that is an object": body(completion({"text": "x"})),
    "parts of numbers": body(completion([1, 2])),
    "a part with a number": body(completion([{"type": "text", "text": 1}])),
    "choices that are text": body({"choices": "x"}),
    "choices of null": body({"choices": [None]}),
    "a message of null": body({"choices": [{"message": None}]}),
    "a message that is a list": body({"choices": [{"message": []}]}),
    "an end that is a list": body(completion("x", [])),
    "an end that is a number": body(completion("x", 3)),
    "an endless end": body(completion(None, "e" * 100_000)),
    "an error that is a number": body({"error": 7}),
    "an error that is a deep list": body({"error": DEEP}),
    "an error and an answer": body({**completion("x"), "error": {"message": "m"}}),
    "markup": body(b"<html><body>502 Bad Gateway</body></html>"),
    "terminal codes": body(b"\x1b[2J\x1b]0;owned\x07"),
    "no gzip": body(b"hello", headers=GZIP),
    "half a gzip": body(gzip.compress(json.dumps(completion("x")).encode())[:20], headers=GZIP),
    "another encoding": body(b"hello", headers={"Content-Encoding": "br"}),
    "two encodings": body(b"hello", headers={"Content-Encoding": "gzip, gzip"}),
    "a bomb": body(BOMB, headers=GZIP),
    "a bomb under 500": RawAnswer(500, body=BOMB, headers=GZIP),
    "a bomb in a stream": RawAnswer(headers={"Content-Type": "text/event-stream", **GZIP}, body=BOMB),
    "a long error": RawAnswer(503, body=b"x" * 1_000_000),
    "an error that is cut": RawAnswer(503, body=b"x", cut=True),
    "an odd Retry-After": RawAnswer(503, {"Retry-After": "-1"}),
    "a Retry-After without a zone": RawAnswer(503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00"}),
    "a Retry-After of no number": RawAnswer(503, {"Retry-After": "nan"}),
    "no content": RawAnswer(204, body=b""),
    "a stream of nothing": sse(b""),
    "a stream of comments": sse(b": x\n\n" * 100),
    "a stream of no JSON": sse(b"data: {\n\n"),
    "a stream of null": sse(b"data: null\n\n"),
    "a stream of lists": sse(b"data: []\n\n"),
    "a stream of deep lists": sse(b"data: " + b"[" * 100_000 + b"\n\n"),
    "a stream without a line's end": sse(b"data: " + b"x" * 100_000),
    "a stream of done alone": sse(b"data: [DONE]\n\n"),
    "a stream with text of another type": sse(b'data: {"choices": [{"delta": {"content": 1}}]}\n\n'),
    "a stream with calls of another type": sse(b'data: {"choices": [{"delta": {"tool_calls": 1}}]}\n\n'),
    "a stream with a call of null": sse(b'data: {"choices": [{"delta": {"tool_calls": [null]}}]}\n\n'),
    "a stream with choices of another type": sse(b'data: {"choices": 1}\n\n'),
    "a stream with another choice": sse(b'data: {"choices": [{"index": 1, "finish_reason": "stop"}]}\n\n'),
    "a stream with an error": sse(b'data: {"error": null}\n\ndata: {"error": 1}\n\n'),
    "a stream of other events": sse(b'event: error\ndata: {"type": "error"}\n\n'),
    "a stream that is no UTF-8": sse(b'data: {"choices": "\xff"}\n\n'),
    "a stream of zero bytes": sse(b"\x00" * 1000),
}


@pytest.mark.parametrize("api", ["chat", pytest.param("responses", marks=pytest.mark.slow)])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_costs_its_ask_and_nothing_else(attack, api):
    with StubServer("fine", [ATTACKS[attack]]) as server:
        url = server.base_url
        with OpenAIAgent("tiny", base_url=url, api=api, retries=0, grace_s=0.0, timeout_s=20.0) as agent:
            answers = agent_answers(agent, 1)
            assert type(answers[0]) is NoVerdict, answers[0]
            assert len(str(answers[0])) < 2000
            assert "\x1b" not in str(answers[0])
            assert agent([ASK])[0].text == "fine"


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 60


def agent_answers(agent, count):
    from gem.agents.base import BatchBroken

    try:
        return agent([ASK] * count)
    except BatchBroken as broken:
        return broken.answers


ENDLESS = [
    ({}, b" " * 65536),
    ({"Content-Type": "text/event-stream"}, b": keep-alive " + b"x" * 65536 + b"\n\n"),
    (
        {"Content-Type": "text/event-stream"},
        b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n' * 99,
    ),
]


@pytest.mark.parametrize(("headers", "piece"), ENDLESS)
def test_an_answer_without_end_is_bounded(headers, piece, monkeypatch):
    monkeypatch.setattr(bodies, "LONGEST_BODY", 2**20)
    monkeypatch.setattr(bodies.Unpacked.__init__, "__defaults__", (2**20,))
    monkeypatch.setattr("gem.agents.openai.LONGEST_STREAM", 2**20)

    def endless():
        while True:
            yield piece

    with (
        StubServer("fine", [RawAnswer(headers=headers, chunks=endless())]) as server,
        OpenAIAgent("tiny", base_url=server.base_url, retries=0, timeout_s=60.0) as agent,
    ):
        (answer,) = agent_answers(agent, 1)
    assert "longer than any valid answer" in str(answer)


def test_what_is_packed_well_is_unpacked_only_as_far_as_it_is_read():
    unpacked = bodies.Unpacked("gzip", 1000)
    tracemalloc.start()
    try:
        with pytest.raises(bodies.BodyTooLong):
            unpacked.feed(BOMB)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"not http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
def test_a_server_that_hardly_speaks_http_costs_its_ask_alone(raw):
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(raw)

        thread = Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with OpenAIAgent("tiny", base_url=url, retries=0, timeout_s=20.0) as agent:
            (answer,) = agent_answers(agent, 1)
        thread.join()
    assert type(answer) is NoVerdict


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_events_come_whole_out_of_any_pieces(end, size):
    lines = [
        b"\xef\xbb\xbf: hi",
        b"data: a",
        b"data:b",
        b"event: x",
        b"id: 3",
        b"",
        b"",
        b"data: \xf0\x9f\x99\x82",
        b"",
        b"data: end",
    ]
    raw = end.join(lines)
    events = bodies.Events()
    found = [event for at in range(0, len(raw), size) for event in events.feed(raw[at : at + size])]
    assert [*found, *events.end()] == [(b"x", b"a\nb"), (b"", b"\xf0\x9f\x99\x82"), (b"", b"end")]


@pytest.mark.parametrize(
    "pieces",
    [
        [(b"data: a\n", []), (b"\n", [b"a"])],
        [(b"data: a\r\n", []), (b"\r", []), (b"\n", [b"a"])],
        [(b"data: a\r", []), (b"\r", []), (b"data: b\n", [b"a"])],
        [(b"data: a\r\rdata: b", [b"a"])],
        [(b"data: ", []), (b"a", []), (b"\n\ndata: b", [b"a"]), (b"\n\n", [b"b"])],
    ],
)
def test_an_event_comes_with_the_piece_that_ends_it(pieces):
    events = bodies.Events()
    assert [[data for _, data in events.feed(piece)] for piece, _ in pieces] == [each for _, each in pieces]


class NeverAdded(str):
    """A text that may be joined, but not added to a sum: a sum of many texts takes quadratic time."""

    def __add__(self, other):
        raise AssertionError("a sum of texts")

    __radd__ = __add__


@pytest.mark.parametrize("kind", ["text", "refusal", "reasoning"])
def test_many_parts_are_joined_once(kind):
    parts = [{"type": kind, "text": NeverAdded(word)} for word in "abc"]
    chat = ChatCompletions().read({"choices": [{"message": {"content": parts}}]}, ASK)
    items = [{"type": "message", "content": parts}]
    for said in (chat, Responses().read({"output": items, "status": "completed"}, ASK)):
        assert getattr(said, kind) == "abc"


class CountedIndex(int):
    compared = 0

    def __eq__(self, other):
        CountedIndex.compared += 1
        return int(self) == int(other)

    __hash__ = int.__hash__


def test_the_pieces_of_many_calls_are_not_searched_for_their_call():
    collector, number = ChatCompletions().collector(), 200
    for index in range(number):
        for function in ({"name": "f", "arguments": "["}, {"arguments": f"{index}]"}):
            delta = {"tool_calls": [{"index": CountedIndex(index), "function": function}]}
            collector.take({"choices": [{"index": 0, "delta": delta}]})
    said = ChatCompletions().read(collector.body(), ASK)
    assert [call.arguments for call in said.calls] == [f"[{index}]" for index in range(number)]
    assert CountedIndex.compared < 4 * number


def test_an_index_that_is_none_is_refused():
    delta = {"tool_calls": [{"index": [0], "function": {"name": "f"}}]}
    with pytest.raises(wire.NoResponse, match="index"):
        ChatCompletions().collector().take({"choices": [{"index": 0, "delta": delta}]})


def unpack(body, size):
    unpacked = bodies.Unpacked("gzip")
    text = b"".join(unpacked.feed(body[at : at + size]) for at in range(0, len(body), size))
    unpacked.end()
    return text


WHOLE = gzip.compress(b'{"a": 1}', mtime=0)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_gzip_body_is_all_of_its_members(size):
    assert unpack(WHOLE, size) == b'{"a": 1}'
    assert unpack(gzip.compress(b'{"a"') + gzip.compress(b"") + gzip.compress(b": 1}"), size) == b'{"a": 1}'
    assert unpack(b"", size) == b""


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "body",
    [WHOLE + b'{"b": 2}', WHOLE[:-1], WHOLE[:-8], WHOLE + WHOLE[:5], WHOLE[:-8] + bytes(8)],
    ids=["tail", "short by one", "no sum", "half a member", "wrong sum"],
)
def test_a_gzip_body_that_is_cut_or_has_a_tail_is_damaged(body, size):
    with pytest.raises(ValueError, match=r"cut|incorrect"):
        unpack(body, size)


def test_empty_members_without_end_are_given_up(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_MEMBERS", 3)
    with pytest.raises(ValueError, match="too many members"):
        unpack(gzip.compress(b"") * 4, 1000)


def test_a_cookie_of_an_endpoint_is_not_sent_back():
    cookie = RawAnswer(body=json.dumps(completion("yes")).encode(), headers={"Set-Cookie": "a=b; Path=/"})
    with StubServer("yes", faults=[cookie]) as server, OpenAIAgent("m", base_url=server.base_url) as agent:
        agent_answers(agent, 1)
        agent_answers(agent, 1)
        assert len(server.headers) == 2
        assert not any("cookie" in map(str.lower, headers) for headers in server.headers)


@pytest.mark.parametrize("stream", [False, True])
def test_a_second_answer_behind_the_first_is_not_that_of_the_next_request(stream):
    """A server that sends two answers to its first request of each connection, and counts what it answers."""
    asked = []

    def answer(text):
        body = b"".join(
            b"data: " + json.dumps(each).encode() + b"\n\n" for each in completion_events(completion(text))
        )
        body = body + b"data: [DONE]\n\n" if stream else json.dumps(completion(text)).encode()
        kind = b"text/event-stream" if stream else b"application/json"
        head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
        return head + body

    def serve(listening):
        while True:
            try:
                connection = listening.accept()[0]
            except OSError:
                return
            with suppress(ConnectionError), connection, connection.makefile("rb") as file:
                length = 0
                while line := file.readline():
                    if line.lower().startswith(b"content-length"):
                        length = int(line.partition(b":")[2])
                    if line == b"\r\n":
                        file.read(length)
                        asked.append(len(asked))
                        second = answer("of another") if len(asked) < 3 else b""
                        connection.sendall(answer(f"answer {asked[-1]}") + second)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=serve, args=(listening,), daemon=True).start()
        base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        with OpenAIAgent("m", base_url=base_url, retries=2, stream=stream, timeout_s=20) as agent:
            texts = [agent_answers(agent, 1)[0].text for _ in range(4)]
        listening.shutdown(socket.SHUT_RDWR)
    assert texts == [f"answer {number}" for number in range(4)]
