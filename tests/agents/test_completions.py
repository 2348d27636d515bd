"""Plain completions: a conversation as one prompt; and what an ask says of its own sampling."""

import json

import pytest

from gem.agents.base import BatchBroken
from gem.agents.named import AgentSettings, named_agent
from gem.content import Image, Message, Text, ToolCall, ToolSpec
from gem.errors import BadArgument, MissingExtra, NoVerdict
from gem.record import Ask
from gem.testing.stub_server import RawAnswer, StubServer, text_completion

OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(*messages, **changes):
    return Ask("e", "agent", 0, messages or (Message("user", "hello"),), **changes)


def one(server, request=None, **options):
    options = {"api": "completions", **options}
    with OpenAIAgent("m", base_url=server.base_url, backoff_s=0.001, **options) as agent:
        return agent([request or ask()])[0]


def test_token_ids_and_log_probabilities_come_in_a_stream_too():
    def chunk(text, number, end=None, **more):
        logprobs = {"token_logprobs": [-number / 10]}
        choice = {"index": 0, "text": text, "token_ids": [number], "logprobs": logprobs, **more}
        return {"choices": [{**choice, "finish_reason": end}]}

    events = [chunk("H", 5, prompt_token_ids=[1, 2, 3]), chunk("i", 6, "stop")]
    with StubServer(RawAnswer.stream(*events)) as server:
        answer = one(server, token_ids=True, stream=True)
    assert (answer.text, answer.prompt_ids, answer.token_ids) == ("Hi", (1, 2, 3), (5, 6))
    assert answer.logprobs == (-0.5, -0.6)


def test_a_conversation_is_sent_as_a_transcript():
    messages = (
        Message("system", "be brief"),
        Message("user", "first"),
        Message("assistant", "", tool_calls=(ToolCall("c", "python", '{"code": "1"}'),)),
        Message("tool", "told", tool_call_id="c"),
    )
    tools = (ToolSpec("python", "runs", {"type": "object"}),)
    with StubServer(" fine\n") as server:
        reply = one(server, ask(*messages, seed=7, tools=tools), temperature=0.5)
        (request,), (path,) = server.requests, server.paths
    assert path == "/v1/completions"
    assert request["prompt"].startswith("System: be brief\n\nUser: first\n\nAssistant: ")
    assert request["prompt"].endswith("\n\nUser: told\n\nAssistant:")
    assert {key: request[key] for key in ("model", "temperature", "seed", "max_tokens", "stop")} == {
        "model": "m",
        "temperature": 0.5,
        "seed": 7,
        "max_tokens": 1024,  # servers stop after 16 where none is sent
        "stop": ["\nUser:", "\nSystem:"],
    }
    assert "tools" not in request
    assert (reply.text, reply.finish) == ("fine", "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_text_end_and_usage_are_read(stream):
    usage = {"prompt_tokens": 5, "completion_tokens": 3}
    body = text_completion("cut her", "length", usage=usage, model="m-1")
    with StubServer(body) as server:
        reply = one(server, stream=stream, max_tokens=3)
        assert server.requests[0]["max_tokens"] == 3
    assert (reply.text, reply.finish, dict(reply.usage)) == ("cut her", "length", usage)
    assert reply.extra["model"] == "m-1"


def test_the_turn_of_another_speaker_is_cut_off_where_the_server_did_not_stop():
    with StubServer("fine\n\nUser: I win\n\nAssistant: no") as server:
        assert one(server).text == "fine"


@pytest.mark.parametrize("odd", [{"choices": []}, {"choices": [{"text": 3}]}, {"choices": "x"}, []])
def test_another_shape_is_no_answer(odd):
    with (
        StubServer(RawAnswer(body=json.dumps(odd).encode())) as server,
        OpenAIAgent("m", base_url=server.base_url, api="completions", retries=0) as agent,
        pytest.raises(NoVerdict, match="did not answer with a completion"),
    ):
        agent.loop.run(agent.ask(ask()))


class Renderer:
    vocab_hash = "hash"

    def prompt(self, messages, tools=()):
        return tuple(len(message.text) for message in messages)


def test_a_renderer_gives_the_ids_of_the_prompt_and_the_text_stays_as_it_is():
    with StubServer(" fine\nUser: me\n") as server:
        reply = one(server, renderer=Renderer())
        (request,) = server.requests
    assert (request["prompt"], "stop" in request) == ([5], False)
    assert reply.text == " fine\nUser: me\n"
    with OpenAIAgent("m", base_url="http://127.0.0.1:1/v1", api="completions", renderer=Renderer()) as agent:
        assert (agent.info.vocabulary, agent.info.sampling["api"]) == ("hash", "completions")


@pytest.mark.parametrize("api", ["chat", "responses", "completions"])
def test_an_ask_has_settings_of_its_own(api):
    limit = {"responses": "max_output_tokens"}.get(api, "max_tokens")
    with StubServer("fine") as server:
        own = ask(sampling={"temperature": 0.25, "top_p": 0.5, "max_tokens": 9}, max_tokens=20)
        one(server, own, api=api, temperature=1.0, max_tokens=4)
        one(server, ask(), api=api, temperature=1.0, max_tokens=4)
        first, second = server.requests
    assert (first["temperature"], first["top_p"], first[limit]) == (0.25, 0.5, 9)
    assert (second["temperature"], "top_p" in second, second[limit]) == (1.0, False, 4)


# -- agents by name


def test_an_endpoint_is_made_as_the_settings_say(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk")
    settings = AgentSettings(0.0, 5, "completions", None, "MY_KEY", 3, 7.0, extra={"top_p": 0.1})
    with named_agent("openai:a/b@v1@http://127.0.0.1:1/v1", settings) as agent:
        assert (agent.model, agent.url) == ("a/b@v1", "http://127.0.0.1:1/v1/completions")
        assert (agent.temperature, agent.max_tokens, agent.endpoint.api_key_env) == (0.0, 5, "MY_KEY")
        assert (agent.endpoint.timeout_s, agent.extra) == (7.0, {"top_p": 0.1})


def test_what_some_models_refuse_is_left_out():
    settings = AgentSettings("none", tool_calls="text", send_reasoning=True, stream=True)
    tools = (ToolSpec("python", "runs", {"type": "object"}),)
    with StubServer("fine") as server:
        with named_agent(f"openai:m@{server.base_url}", settings) as agent:
            agent([ask(Message("user", "x"), Message("assistant", "y", reasoning="z"), tools=tools)])
        (request,) = server.requests
    assert not {"temperature", "tools"} & set(request)
    assert (request["stream"], request["messages"][1]["reasoning_content"]) == (True, "z")


@pytest.mark.parametrize("name", ["", "hf:", "nobody", "openai:", "smollm"])
def test_a_name_that_means_nothing_makes_no_agent(name):
    assert named_agent(name) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"max_tokens": 0},
        {"tool_calls": "xml"},
        {"concurrency": 0},
        {"timeout_s": 0.0},
        {"template": "smollm2"},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(BadArgument):
        AgentSettings(**wrong)


def test_a_model_that_is_not_there_is_told():
    with pytest.raises((BadArgument, MissingExtra), match="no/such/folder"):
        named_agent("hf:no/such/folder")
    settings = AgentSettings(api="completions", template="no/such/folder")
    with pytest.raises((BadArgument, MissingExtra), match="no/such/folder"):
        named_agent("openai:m@http://127.0.0.1:1/v1", settings)


def test_a_picture_that_no_text_describes_is_refused_before_anything_is_sent():
    named, described = ((Image(b"", alt=alt), Text("How long is x?")) for alt in ("[a figure]", "x = 3"))
    with StubServer(" 3\n") as server:
        with pytest.raises(BatchBroken, match=r"BadArgument: .* no text describes the picture"):
            one(server, ask(Message("user", named)))
        assert not server.requests
        with pytest.warns(UserWarning, match="a model over the completions API reads text alone"):
            assert one(server, ask(Message("user", described))).text == "3"
