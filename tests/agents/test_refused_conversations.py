"""What a server does not take back of what its model said: no way for a model to get no verdict."""

import asyncio
import json
import warnings

import pytest

from gem.agents.base import BatchBroken
from gem.content import Image, Message, Text, ToolCall, ToolSpec
from gem.core import Env, Start, Step
from gem.errors import AgentUnavailable, NoVerdict
from gem.record import Ask, StopReason
from gem.rollout import Job, rollout, rollout_async
from gem.testing.stub_server import RawAnswer, StubServer, completion, response

OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent
wire = pytest.importorskip("gem.agents.wire", exc_type=ImportError)

both = pytest.mark.parametrize("api", ["chat", "responses"])


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def agent_of(server, **options):
    return OpenAIAgent("tiny", base_url=server.base_url, backoff_s=0.001, **{"retries": 1, **options})


def talk(body):
    return body.get("messages") or body["input"]


def whole(body, text, calls=()):
    """An answer that counts its tokens, in the protocol that was asked."""
    if "messages" in body:
        sent = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
        fields = {"tool_calls": sent} if sent else {}
        return {**completion(text, **fields), "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    items = [{"type": "function_call", "call_id": i, "name": n, "arguments": a} for i, n, a in calls]
    return response(text, output=items, usage={"output_tokens": 1})


def picky(text, stumbles, why, status=400, calls=()):
    """A server whose model says `text`, and that refuses a conversation over which it stumbles."""

    def answer(body):
        if any(map(stumbles, talk(body)[1:])):
            return RawAnswer.error(status, why)
        return whole(body, text, calls)

    return answer


class Tools(Env):
    """Offers a tool; three turns."""

    tool_specs = (ToolSpec("search", "Search.", {"type": "object"}),)

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return Start("begin", {})

    def step(self, action):
        self.turn += 1
        return Step(f"result {self.turn}", 0.0, self.turn == 3, False, {"success": False})


def said(message):
    return message.get("content") if message.get("role") == "assistant" else "x"


STUMBLES = {
    "empty": ("", lambda m: said(m) == "", "messages: text content blocks must be non-empty"),
    "blank": (" \n\t", lambda m: not (said(m) or "x").strip(), "blank text"),
    "zero": ("a\0b", lambda m: r"\u0000" in json.dumps(m), "unsupported Unicode escape sequence"),
    "escape": ("\x1b[2J", lambda m: r"\u001b" in json.dumps(m), "control characters"),
    "surrogate": ("\ud800", lambda m: r"\ud800" in json.dumps(m), "lone leading surrogate in hex escape"),
    "special token": ("<|endoftext|>", lambda m: "<|" in json.dumps(m), "disallowed special token"),
    "placeholder": ("see <image>", lambda m: "<image>" in json.dumps(m), "1 placeholder and 0 images"),
}


@both
@pytest.mark.parametrize(
    "status", [400, *(pytest.param(each, marks=pytest.mark.slow) for each in (422, 500))]
)
@pytest.mark.parametrize("what", STUMBLES)
@pytest.mark.system
def test_what_a_server_does_not_take_back_is_told_again(what, status, api):
    text, stumbles, why = STUMBLES[what]
    with warnings.catch_warnings(), StubServer(picky(text, stumbles, why, status)) as server:
        warnings.simplefilter("ignore")
        with agent_of(server, api=api) as agent:
            (episode,) = rollout([Job(Tools, 0)], agent)
            (again,) = asyncio.run(rollout_async([Job(Tools, 0)], agent))
    assert (episode.error, episode.scored) == (None, True)
    assert len(episode.turns) == 3
    assert episode.turns[0].action == text  # what was said stands in the record
    assert again.transcript_hash() == episode.transcript_hash()


CALLS = {
    "many": [(f"c{i}", "search", "{}") for i in range(200)],
    "an odd name": [("c", "\ud800 a\0", "{}")],
    "an id of another form": [("functions.search:0", "search", "{}")],
    "an endless id": [("c" * 5000, "search", "{}")],
    "odd arguments": [("c", "search", r'{"q": "\ud800\u0000"}')],
    "no arguments": [("c", "search", "][")],
}


@both
@pytest.mark.parametrize("what", CALLS)
def test_calls_that_a_server_does_not_take_back_are_told_as_text(what, api):
    def stumbles(message):
        return bool(message.get("tool_calls") or message.get("call_id"))

    answer = picky("", stumbles, "Invalid 'messages[2].tool_calls'", calls=CALLS[what])
    with StubServer(answer) as server, agent_of(server, api=api) as agent:
        (episode,) = rollout([Job(Tools, 0)], agent)
        last = server.requests[-1]
    assert (episode.error, episode.scored, len(episode.turns)) == (None, True, 3)
    assert len(episode.turns[0].reply.tool_calls) == len(CALLS[what])
    assert "<tool_call>" in talk(last)[1]["content"]
    assert last["tools"]  # they are offered all the same


def test_empty_text_is_filled_from_the_second_time_on():
    answer = picky("", lambda m: said(m) == "", "text must be non-empty")
    with StubServer(answer) as server, agent_of(server) as agent:
        with pytest.warns(UserWarning, match="refuses messages without text"):
            rollout([Job(Tools, 0)], agent)
        assert len(server.requests) == 4  # one was refused
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (episode,) = rollout([Job(Tools, 1)], agent)
        assert len(server.requests) == 7
        assert [m["content"] for m in server.requests[-1]["messages"][1::2]] == [wire.EMPTY] * 2
    assert episode.turns[1].extra["history"] == "filled"
    assert "history" not in (episode.turns[0].extra or {})


def test_a_server_that_takes_empty_text_gets_it():
    with StubServer("") as server, agent_of(server) as agent:
        rollout([Job(Tools, 0)], agent)
        assert [m["content"] for m in server.requests[-1]["messages"][1::2]] == [""] * 2
        assert len(server.requests) == 3


def test_a_server_that_breaks_for_a_moment_changes_nothing_for_good():
    broken = [RawAnswer.error(500, "oops")] * 2
    conversation = (Message("user", "a"), Message("assistant", ""), Message("user", "b"))
    with StubServer("fine", broken) as server, agent_of(server) as agent:
        (reply,) = agent([Ask("e", "agent", 1, conversation)])
        assert reply.text == "fine"
        agent([Ask("e", "agent", 1, conversation)])
        assert server.requests[-1]["messages"][1]["content"] == ""


@pytest.mark.parametrize("status", [400, 422])
def test_what_is_refused_in_every_form_has_no_verdict_after_a_few_requests(status):
    conversation = (Message("user", "a"), Message("assistant", "\0"), Message("user", ""))
    with StubServer(RawAnswer.error(status, "no")) as server, agent_of(server) as agent:
        with pytest.raises(BatchBroken) as caught:
            agent([Ask("e", "agent", 1, conversation)])
        assert len(server.requests) == 3
    assert type(caught.value.answers[0]) is NoVerdict


def test_the_plain_form_keeps_what_was_said():
    picture = Image(b"x")
    conversation = (
        Message("system", "s"),
        Message("user", (Text("look\x00"), picture)),
        Message("assistant", "so", tool_calls=(ToolCall("i", "f", '{"a": 1}'),)),
        Message("tool", "", tool_call_id="i", name="f"),
        Message("assistant", "a < b, <b>, <think>x</think>\n"),
    )
    plain = wire.retold(conversation, wire.Form.PLAIN)
    assert plain[1].content == (Text("look\ufffd"), picture)
    assert plain[2].content == 'so\n<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    assert (plain[3].role, plain[3].content) == ("user", wire.EMPTY)
    assert plain[4].content == "a < b, <b>, <think>x</think>\n"
    assert wire.retold(plain, wire.Form.PLAIN) == plain
    assert wire.retold(conversation, wire.Form.AS_IT_IS) is conversation


# -- huge answers


@pytest.mark.parametrize(("size", "scored"), [(100_000, True), (10, False)])
def test_a_request_is_too_large_by_the_models_words_or_by_the_servers(size, scored):
    def answer(body):
        if len(body["messages"]) > 1:
            return RawAnswer.error(413, "Request Entity Too Large")
        return "x" * size

    with StubServer(answer) as server, agent_of(server) as agent:
        (episode,) = rollout([Job(Tools, 0)], agent)
    assert episode.scored == scored
    assert (episode.stop is StopReason.CONTEXT_LIMIT) == scored


@pytest.mark.system
def test_a_long_answer_in_many_events_is_read():
    event = {"id": "i" * 900, "choices": [{"index": 0, "delta": {"content": "word "}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    stream = RawAnswer.stream(*[event] * 10_000, end)
    with StubServer(stream) as server, agent_of(server, stream=True, timeout_s=60.0) as agent:
        (reply,) = agent([Ask("e", "agent", 0, (Message("user", "hi"),))])
    assert len(reply.text) == 5 * 10_000


# -- one conversation that is refused costs no others


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (403, "Sorry, you have been blocked"),
        (404, "no endpoints found"),
        (400, "cannot read: model_not_found"),
        (400, "unsupported temperature, tools, max_tokens"),
    ],
)
def test_where_others_are_answered_a_refusal_is_no_dead_key(status, words):
    def answer(body):
        return RawAnswer.error(status, words) if "<script>" in json.dumps(body) else "fine"

    question = Message("user", "hi")
    bad = (question, Message("assistant", "<script>"), question)
    asks = [Ask("b", "agent", 1, bad, max_tokens=20), Ask("c", "agent", 0, (question,), max_tokens=20)]
    with StubServer(answer) as server, agent_of(server) as agent:
        agent([asks[1]])
        with pytest.raises(BatchBroken) as caught:
            agent(asks)
        assert "max_tokens" in server.requests[-1]  # its name is not changed for the others
    refusal, reply = caught.value.answers
    assert type(refusal) is NoVerdict
    assert reply.text == "fine"


def test_a_key_that_dies_in_the_midst_is_still_told_to_all():
    ask = Ask("a", "agent", 0, (Message("user", "hi"),))
    with StubServer("fine") as server, agent_of(server) as agent:
        agent([ask])
        server.answer = RawAnswer.error(403, "Forbidden")
        with pytest.raises(BatchBroken) as caught:
            agent([ask] * 5)
    assert {type(answer) for answer in caught.value.answers} == {AgentUnavailable}
