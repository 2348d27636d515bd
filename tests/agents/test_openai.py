import asyncio
import base64
import json
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from plain_questions import answers_plain_questions

from gem import codec
from gem.agents.base import BatchBroken
from gem.agents.endpoint import Endpoint
from gem.agents.outcomes import FIRST_LIMIT
from gem.content import Image, Message, Text
from gem.errors import BadArgument, NoVerdict
from gem.record import Ask, Limits, StopReason
from gem.rollout import Job, rollout, rollout_async
from gem.testing.stub_server import RawAnswer, StubServer

OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent

EASY = "game:GuessTheNumber-v0-easy"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def ask(*messages, **changes):
    return Ask("e", "agent", 0, messages or (Message("user", "hello"),), **changes)


def agent_of(server, **options):
    return OpenAIAgent("tiny", base_url=server.base_url, backoff_s=0.001, **options)


def one(server, request=None, **options):
    with agent_of(server, **options) as agent:
        return agent([request or ask()])[0]


def failure(server, **options):
    with agent_of(server, **options) as agent:

        async def first():
            return await agent.ask(ask())

        with pytest.raises(NoVerdict) as caught:
            asyncio.run(first())
    return str(caught.value)


def test_an_ask_becomes_a_request_and_the_answer_a_reply():
    picture = Image(b"\x00png", "image/png")
    messages = (
        Message("system", "be brief"),
        Message("user", "first"),
        Message("assistant", "second"),
        Message("user", (Text("look"), picture)),
    )
    with StubServer("fine") as server:
        reply = one(server, ask(*messages, seed=2**63 - 1, max_tokens=7), temperature=0.5, max_tokens=9)
        (request,) = server.requests
    assert request == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "second"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {
                        "type": "image_url",
                        "image_url": {
                            "url": "data:image/png;base64," + base64.b64encode(picture.data).decode()
                        },
                    },
                ],
            },
        ],
        "temperature": 0.5,
        "seed": 2**31 - 1,
        "max_tokens": 7,
    }
    assert (reply.text, reply.finish, reply.token_ids) == ("fine", "stop", ())


def test_text_with_lone_surrogates_is_sent_and_read():
    with StubServer(lambda body: body["messages"][0]["content"] + "!") as server:
        assert one(server, ask(Message("user", "a\ud800b"))).text == "a\ud800b!"


def test_the_key_is_sent_and_never_shown(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    refusal = RawAnswer.error(401, "who are you?")
    with StubServer("x", [refusal, refusal]) as server:
        shown = failure(server, api_key_env="MY_KEY")
        assert server.headers[0]["Authorization"] == "Bearer sk-secret"
        assert "MY_KEY, which is set" in shown
        assert "sk-secret" not in shown
        shown = failure(server, api_key_env="NO_KEY")
        assert "Authorization" not in server.headers[1]
        assert "NO_KEY, which is not set" in shown
        assert len(server.requests) == 2


def completion(text="yes", **choice):
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop", **choice}]}


def test_token_ids_and_logprobs_are_taken_where_the_server_gives_them():
    body = completion(
        token_ids=[5, 6],
        logprobs={"content": [{"token": "y", "logprob": -0.5}, {"token": "es", "logprob": -1}]},
    )
    with StubServer({**body, "prompt_token_ids": [1, 2, 3]}) as server:
        reply = one(server, token_ids=True)
        assert server.requests[0]["return_token_ids"] is True
        assert server.requests[0]["logprobs"] is True
    assert (reply.prompt_ids, reply.token_ids, reply.logprobs) == ((1, 2, 3), (5, 6), (-0.5, -1.0))


def test_logprobs_that_do_not_fit_the_tokens_are_left_out():
    with StubServer(completion(token_ids=[5, 6], logprobs={"content": [{"logprob": -0.5}]})) as server:
        reply = one(server, token_ids=True)
    assert (reply.token_ids, reply.logprobs) == ((5, 6), None)


@pytest.mark.parametrize(
    ("reason", "finish", "extra"),
    [
        ("stop", "stop", {}),
        ("length", "length", {}),
        (None, "stop", {"finish_reason": "none"}),
        ("tool_calls", "stop", {}),
        ("function_call", "stop", {}),
        ("max_tokens", "length", {}),
        ("repetition", "stop", {"finish_reason": "repetition"}),
    ],
)
def test_finish_reasons(reason, finish, extra):
    with StubServer(completion(finish_reason=reason)) as server:
        reply = one(server)
    assert (reply.finish, reply.extra) == (finish, extra)


def test_the_servers_count_of_tokens_is_usage():
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    with StubServer({**completion(), "usage": usage}) as server:
        reply = one(server)
    assert reply.usage == usage
    with StubServer(completion()) as server:
        assert one(server).usage == {}


@pytest.mark.parametrize(
    "fault",
    [
        RawAnswer.error(400, "This model's maximum context length is 4096 tokens."),
        RawAnswer(400, body=b'{"error": {"code": "context_length_exceeded"}}'),
    ],
)
def test_a_prompt_that_is_too_long_is_a_context_limit(fault):
    with StubServer(answers_plain_questions(fault)) as server, agent_of(server) as agent:
        (episode,) = rollout([Job(EASY, 0)], agent)
    assert (episode.stop, episode.scored) == (StopReason.CONTEXT_LIMIT, True)


@pytest.mark.parametrize(
    ("limit", "tried"),
    [(None, [None, FIRST_LIMIT, FIRST_LIMIT // 2]), (20_000, [20_000, 10_000, 5_000])],
)
def test_where_the_answer_may_be_what_is_too_long_a_shorter_one_is_asked_for(limit, tried):
    unclear = RawAnswer.error(400, "Please reduce the length of the messages or completion.")
    with StubServer("x", [unclear] * 2) as server:
        assert one(server, max_tokens=limit).text == "x"
    assert [request.get("max_tokens") for request in server.requests] == tried


def test_a_token_limit_that_no_answer_may_have_ends_the_run():
    said = "`max_tokens` must be less than or equal to `8192`, which is less than the `context_window`"
    with StubServer(RawAnswer.error(400, said)) as server:
        assert "Set a smaller max_tokens" in failure(server, max_tokens=20_000)


def test_the_context_limit_of_the_episode_holds_by_the_servers_count():
    body = completion() | {"usage": {"prompt_tokens": 30, "completion_tokens": 3}}
    with StubServer(body) as server:
        assert one(server, ask(context=33)).finish == "stop"
        assert one(server, ask(context=32)).finish == "context"


def test_tokens_that_the_server_counts_count_against_the_episodes_limit():
    body = completion(r"\boxed{99}") | {"usage": {"prompt_tokens": 30, "completion_tokens": 3}}
    with StubServer(body) as server, agent_of(server) as agent:
        (episode,) = rollout([Job(EASY, 0)], agent, limits=Limits(tokens=6))
    assert (episode.stop, len(episode.turns)) == (StopReason.TOKEN_LIMIT, 2)
    assert [request["max_tokens"] for request in server.requests] == [6, 3]


@pytest.mark.parametrize("usage", [{}, {"usage": {"prompt_tokens": 30, "completion_tokens": 0}}])
def test_a_limit_on_tokens_that_the_server_does_not_count_is_reported(usage):
    with StubServer(completion(r"\boxed{99}") | usage) as server, agent_of(server) as agent:
        with pytest.warns(UserWarning, match="limit of 6 tokens .* ends no episode"):
            (episode,) = rollout([Job(EASY, 0)], agent, limits=Limits(tokens=6))
        assert episode.stop is not StopReason.TOKEN_LIMIT


@pytest.mark.parametrize(
    "fault",
    [
        RawAnswer.error(500, "oops"),
        RawAnswer.error(503),
        RawAnswer.error(429, "slow down", retry_after="0.01"),
        RawAnswer.error(429, retry_after="Thu, 01 Jan 1970 00:00:00 GMT"),
        RawAnswer.error(429, retry_after="soon"),
        RawAnswer(body=b"<html>not json"),
        RawAnswer(body=b"[]"),
        RawAnswer(body=b'{"choices": []}'),
        RawAnswer(body=b"[" * 100_000),
        RawAnswer(body=b'{"choices": [{"message": {"content": 3}}]}'),
        RawAnswer(headers={"Content-Encoding": "gzip"}, body=b"not gzip"),
        RawAnswer(drop=True),
    ],
)
def test_a_fault_is_tried_again_and_then_told(fault):
    with StubServer("fine", [fault, fault]) as server:
        assert one(server, retries=2).text == "fine"
        assert len(server.requests) == 3
    with StubServer("fine", [fault, fault]) as server:
        assert "tried 2 times" in failure(server, retries=1)


def filtered(prompt, sampled):
    usage = {"prompt_tokens": prompt, "completion_tokens": sampled}
    return RawAnswer(body=json.dumps({**completion(finish_reason="content_filter"), "usage": usage}).encode())


def test_the_tokens_of_discarded_answers_are_counted_apart():
    usage = {"prompt_tokens": 9, "completion_tokens": 2, "discarded_prompt_tokens": 10**9}  # not the server's
    with StubServer({**completion(), "usage": usage}, [filtered(9, 4), filtered(8, 3)]) as server:
        found = one(server).usage
    discarded = {"discarded_prompt_tokens": 17, "discarded_completion_tokens": 7}
    assert found == {"prompt_tokens": 9, "completion_tokens": 2, **discarded}


def test_a_lost_episode_holds_the_tokens_of_its_discarded_answers():
    with StubServer("", [filtered(9, 4)] * 9) as server, agent_of(server, retries=2) as agent:
        (episode,) = rollout([Job(EASY, 1)], agent, limits=Limits(turns=2))
    counters = {"discarded_prompt_tokens": 27, "discarded_completion_tokens": 12}
    assert (episode.scored, episode.error.usage) == (False, {"tiny": counters})
    assert codec.decode(codec.encode(episode)).error == episode.error


def test_a_slow_answer_is_given_up_and_tried_again():
    with StubServer("fine", [RawAnswer(stall=Event())]) as server:
        assert one(server, timeout_s=0.1).text == "fine"


def test_a_server_that_is_not_there_is_told():
    with StubServer() as server:
        pass
    assert "ConnectError" in failure(server, grace_s=0.0)


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_request_that_the_server_refuses_is_not_tried_again(status):
    with StubServer("fine", [RawAnswer.error(status, "no such model")]) as server:
        shown = failure(server)
        assert len(server.requests) == 1
    assert f"answered {status}" in shown
    assert "no such model" in shown


def solve(body):
    """Bisect from the conversation alone."""
    low, high = 1, 10
    talk = body["messages"]
    for said, heard in zip(talk[1::2], talk[2::2], strict=True):
        guess = int(said["content"][7:-1])
        low, high = (guess + 1, high) if "higher" in heard["content"] else (low, guess - 1)
    return rf"\boxed{{{(low + high) // 2}}}"


def test_both_drivers_play_the_same_episodes_over_http():
    jobs = [Job(EASY, seed) for seed in range(12)]
    with StubServer(solve) as server, agent_of(server) as agent:
        first = rollout(jobs, agent, concurrency=6)
        second = asyncio.run(rollout_async(jobs, agent, concurrency=5))
    assert {episode.stop for episode in first} == {StopReason.SOLVED}
    assert [e.transcript_hash() for e in first] == [e.transcript_hash() for e in second]


def test_an_answer_that_does_not_come_costs_its_own_episode_alone():
    def refuse_some(body):
        if body["seed"] % 3 == 0:
            raise ConnectionError
        return solve(body)

    jobs = [Job(EASY, seed) for seed in range(12)]
    with StubServer(refuse_some) as server, agent_of(server, retries=0) as agent:
        first = rollout(jobs, agent)
        second = asyncio.run(rollout_async(jobs, agent))
    lost = [episode.scored for episode in first]
    assert lost == [episode.scored for episode in second]
    assert {True, False} == set(lost)
    assert {e.error.type for e in first if e.error} == {"NoVerdict"}


def meeting_point(count):
    """An answer that comes only when `count` requests are there together."""
    here, everybody = [], Event()

    def answer(body):
        here.append(1)
        if len(here) == count:
            everybody.set()
        assert everybody.wait(30)
        return "x"

    return answer


def test_a_batch_is_asked_concurrently():
    with StubServer(meeting_point(8)) as server, agent_of(server) as agent:
        assert len(agent([ask()] * 8)) == 8


def test_a_batch_is_asked_concurrently_inside_a_running_loop_too():
    async def main(agent):
        return agent([ask()] * 8)

    with StubServer(meeting_point(8)) as server, agent_of(server) as agent:
        assert len(asyncio.run(main(agent))) == 8


def test_no_more_requests_are_in_flight_than_allowed():
    with StubServer(meeting_point(3)) as server, agent_of(server, concurrency=3) as agent:
        agent([ask()] * 9)
        assert server.most_at_once == 3


def test_a_server_that_goes_on_for_ever_byte_by_byte_is_given_up():
    released = Event()

    class Trickle(BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            with suppress(OSError):
                while not released.wait(0.01):
                    self.wfile.write(b" ")

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Trickle)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        with (
            OpenAIAgent("tiny", base_url=url, timeout_s=0.2, retries=0) as agent,
            pytest.raises(BatchBroken, match=r"did not answer within 0\.2 s"),
        ):
            agent([ask()])
    finally:
        released.set()
        server.shutdown()
        server.server_close()


def test_an_ask_that_takes_too_long_is_cut_off_with_its_connection():
    with StubServer("x", [RawAnswer(stall=Event())]) as server, agent_of(server) as agent:
        (episode,) = asyncio.run(rollout_async([Job(EASY, 0)], agent, limits=Limits(policy_s=0.1)))
    assert (episode.stop, episode.scored) == (StopReason.TIME_LIMIT, False)


def test_an_agent_can_be_used_again_after_it_was_closed():
    with StubServer("x") as server:
        agent = agent_of(server)
        agent([ask()])
        agent.close()
        agent.close()
        assert agent([ask()])[0].text == "x"
        agent.close()


def test_the_address_comes_from_the_environment_when_it_is_not_given(monkeypatch):
    with StubServer("x") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        with OpenAIAgent("tiny", extra={"top_p": 0.5}) as agent:
            agent([ask()])
        assert server.requests[0]["top_p"] == 0.5


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x/v1", "http://", "http://x:port/v1"])
def test_a_bad_address_is_refused(url):
    with pytest.raises(BadArgument, match="accepted: an address"):
        OpenAIAgent("tiny", base_url=url)


def test_an_endpoint_is_a_value_that_keywords_change(monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-123456789")
    with StubServer("x") as server:
        endpoint = Endpoint(server.base_url, "MY_KEY", {"X-Team": "red-team-1"}, retries=0)
        with OpenAIAgent("tiny", endpoint=endpoint, timeout_s=9.0) as agent:
            agent([ask()])
        (headers,) = server.headers
    assert (headers["Authorization"], headers["X-Team"]) == ("Bearer sk-123456789", "red-team-1")
    assert agent.endpoint == replace(endpoint, timeout_s=9.0)
    assert "red-team-1" not in repr(endpoint)
    assert endpoint.hide_secrets("sk-123456789 of red-team-1") == "*** of ***"
    with pytest.raises(TypeError, match="timeouts"):
        OpenAIAgent("tiny", timeouts=9.0)


BAD_NUMBERS = {
    "concurrency": (0, 1.5),
    "retries": (-1, 1.5, float("nan")),
    **dict.fromkeys(("timeout_s", "connect_s"), (-1, 0, float("nan"), "3")),
    **dict.fromkeys(("backoff_s", "grace_s", "silence_s"), (-1, float("nan"), "3", None)),
}


@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_bad_numbers_are_refused(name):
    for value in BAD_NUMBERS[name]:
        with pytest.raises(BadArgument, match=f"{name} is {value!r}; accepted"):
            OpenAIAgent("tiny", **{name: value})


@pytest.mark.parametrize("limit_s", [None, float("inf"), 1e12])
def test_an_answer_may_take_any_time(limit_s):
    with StubServer("yes") as server, agent_of(server, timeout_s=limit_s, connect_s=limit_s) as agent:
        assert agent([ask()])[0].text == "yes"


def test_an_agent_names_its_model_and_settings():
    with OpenAIAgent("tiny", base_url="http://127.0.0.1:1/v1", temperature=0.5, extra={"top_k": 3}) as agent:
        assert (agent.info.agent, agent.info.model) == ("OpenAIAgent", "tiny")
        assert agent.info.sampling == {"temperature": 0.5, "max_tokens": None, "top_k": 3}
        assert agent.info.vocabulary is None
        assert agent.info.address == agent.url.removesuffix("/chat/completions")
        agent.publish(2)
        with pytest.raises(BadArgument, match="OpenAIAgent holds no model to load weights into"):
            agent.publish(3, {})


def test_the_recorded_address_has_no_secret(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1")
    agent = OpenAIAgent("m", base_url="https://me:pass@host/sk-secret-1/v1?token=x#y")
    assert agent.info.address == "https://host/***/v1"


def test_a_server_that_repeats_secrets_tells_none_of_them(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-1")
    options = {"retries": 0, "headers": {"X-Key": "Bearer header-secret"}, "max_tokens_field": "max_tokens"}
    for said in ("sk-very-secret-1", "header-secret", "query-secret", "p" * 285 + " sk-very-secret-1"):
        for answer in (RawAnswer.error(400, said), {"error": {"message": said}}):
            with StubServer(answer) as server:
                url = server.base_url.replace("http://", "http://me:hidden@") + "?key=query-secret"
                with (
                    OpenAIAgent("tiny", base_url=url, **options) as agent,
                    pytest.raises(BatchBroken) as caught,
                ):
                    agent([ask()])
            (told,) = map(str, caught.value.answers)
            assert f"{server.base_url}/chat/completions answered" in told
            assert "***" in told
            for secret in ("secret", "sk-very", "hidden"):
                assert secret not in told


def test_the_query_of_an_address_stays_behind_the_path():
    with StubServer("x") as server:
        for url in (server.base_url + "?api-version=1", server.base_url + "/?api-version=1"):
            with OpenAIAgent("tiny", base_url=url) as agent:
                agent([ask()])
                assert agent.info.address == server.base_url
        assert server.paths == ["/v1/chat/completions?api-version=1"] * 2
