"""Half an answer is no answer, nor is a stream with chunks of another."""

import asyncio
import json

import pytest

from gem.errors import NoVerdict
from gem.record import Ask
from gem.testing.stub_server import RawAnswer, StubServer, completion, response

OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent
END = {"index": 0, "delta": {}, "text": "", "finish_reason": "stop"}


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def chunk(text, answer="a", **choice):
    piece = {"index": 0, "delta": {"content": text}, "text": text, **choice}
    return {"id": answer, "model": "tiny", "choices": [piece]}


def agent_of(server, **options):
    return OpenAIAgent(
        "tiny", base_url=server.base_url, retries=1, backoff_s=0.001, **{"stream": True, **options}
    )


def answer_of(agent):
    """The agent's answer; an error is an answer too."""
    try:
        return asyncio.run(agent.ask(Ask("e", "agent", 0, (), seed=0)))
    except NoVerdict as error:
        return error


def ask(server, count=1, **options):
    """The answers, one after the other, of one agent."""
    with agent_of(server, **options) as agent:
        return [answer_of(agent) for _ in range(count)]


HALF = RawAnswer.stream(chunk("ye"))
WHOLE = RawAnswer.stream(chunk("yes"), {"id": "a", "choices": [END]})


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_half_stream_is_asked_again_once_the_server_has_named_an_end(api):
    with StubServer("", faults=[WHOLE, HALF, WHOLE]) as server:
        first, second = ask(server, 2, api=api)
        assert len(server.requests) == 3
    assert (first.text, second.text) == ("yes", "yes")
    assert "finish_reason" not in second.extra


def test_a_server_that_sends_half_streams_from_then_on_gives_no_verdict():
    with StubServer("", faults=[WHOLE, HALF, HALF]) as server:
        _, second = ask(server, 2)
        assert len(server.requests) == 3
    assert type(second) is NoVerdict
    assert "cut its answer short" in str(second)


@pytest.mark.parametrize("api", ["chat", "responses", "completions"])
def test_a_whole_body_without_an_end_counts_as_half_a_stream_does(api):
    half = {"choices": [{"text": "ye", "message": {"content": "ye"}}], **response("ye", None)}
    fault = RawAnswer(body=json.dumps(half).encode())
    with StubServer("yes", [fault]) as server, agent_of(server, api=api, stream=False) as agent:
        marked, whole = (answer_of(agent) for _ in range(2))
        server.answer = half
        lost = answer_of(agent)
    assert (marked.text, marked.extra["finish_reason"], whole.text) == ("ye", "none", "yes")
    assert "it has no finish reason" in str(lost)


@pytest.mark.parametrize(
    ("arguments", "ends", "text"),
    [
        ("{}", ["stop"], ""),
        ("{}", ["stop", "tool_calls"], None),
        ('{"a": ', ["stop"], None),
        ("", ["stop"], None),
    ],
)
def test_whole_calls_need_no_end_where_the_server_names_that_of_texts_alone(arguments, ends, text):
    calls = [{"id": "c", "type": "function", "function": {"name": "add", "arguments": arguments}}]
    with StubServer() as server, agent_of(server, stream=False) as agent:
        for end in ends:
            server.answer = completion("yes", end, tool_calls=calls if end == "tool_calls" else [])
            assert answer_of(agent).text == "yes"
        server.answer = completion(None, None, tool_calls=calls)
        assert getattr(answer_of(agent), "text", None) == text


def test_a_server_that_never_names_an_end_is_scored_and_marked():
    with StubServer("", faults=[HALF, HALF]) as server:
        answers = ask(server, 2)
        assert len(server.requests) == 2
    assert [(each.text, each.extra["finish_reason"]) for each in answers] == [("ye", "none")] * 2


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("order", ["aab", "aba", "abb", "aaab"])
def test_chunks_of_two_answers_are_no_answer(api, order):
    spliced = RawAnswer.stream(*(chunk("x", name) for name in order), {"id": order[-1], "choices": [END]})
    with StubServer("", faults=[spliced, WHOLE]) as server:
        (answer,) = ask(server, api=api)
        assert len(server.requests) == 2
    assert answer.text == "yes"


@pytest.mark.parametrize("names", [["a", "b", "c"], [None, None, None], [1, 1, 2]])
def test_ids_that_name_chunks_and_not_answers_are_no_splice(names):
    *pieces, last = (chunk("x", name) for name in names)
    last["choices"][0]["finish_reason"] = "stop"
    with StubServer("", faults=[RawAnswer.stream(*pieces, last)]) as server:
        (answer,) = ask(server)
    assert answer.text == "xxx"


def test_a_note_of_a_filter_has_no_id_and_is_no_splice():
    note = chunk("", "")
    end = chunk("", finish_reason="stop")
    with StubServer("", faults=[RawAnswer.stream(chunk("ye"), note, chunk("s"), note, end)]) as server:
        (answer,) = ask(server)
        assert len(server.requests) == 1
    assert answer.text == "yes"


def test_the_counts_after_an_answer_may_have_another_id():
    usage = {"id": "u", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    with StubServer(
        "", faults=[RawAnswer.stream(chunk("yes"), chunk("", finish_reason="stop"), usage)]
    ) as server:
        (answer,) = ask(server)
    assert (answer.text, answer.usage["completion_tokens"]) == ("yes", 2)
