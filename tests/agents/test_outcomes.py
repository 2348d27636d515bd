"""Every row of the table of outcomes: what a server sends, and what becomes of the ask and of the episode."""

import asyncio
import contextlib
import json
import re
from pathlib import Path

import pytest
from plain_questions import answers_plain_questions

from gem.content import Message
from gem.errors import AgentUnavailable, NoVerdict
from gem.record import Ask, Reply, StopReason
from gem.rollout import Job, rollout, rollout_async
from gem.testing.stub_server import RawAnswer, StubServer, completion, response

outcomes = pytest.importorskip("gem.agents.outcomes", exc_type=ImportError)
OpenAIAgent = pytest.importorskip("gem.agents.openai", exc_type=ImportError).OpenAIAgent
Verdict = outcomes.Verdict

EASY = "game:GuessTheNumber-v0-easy"
ROWS = {outcome.what: outcome for outcome in outcomes.OUTCOMES}
CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
AWAY = "no server at all"


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def sampled(count, *args, **message):
    return {**completion(*args, **message), "usage": {"prompt_tokens": 3, "completion_tokens": count}}


def body(content):
    return RawAnswer(body=content if isinstance(content, bytes) else json.dumps(content).encode())


def says(status, message, **fields):
    return RawAnswer(status, body=json.dumps({"error": {"message": message, **fields}}).encode())


PIECE = {"choices": [{"index": 0, "delta": {"content": "ye"}}]}
STREAMED = {"stream": True}

TOO_LARGE = "a request that is too large (413), most of it what the model said"
OWN_WORDS = {"own_words": True}  # no keyword: the ask holds a long answer
LENGTH = ("a prompt that is too long", TOO_LARGE)  # counts if a plain question is answered
RATE = "a rate limit, under any status"
TOO_MANY = "Request too large on tokens per minute (TPM): Limit 6000, please reduce your message size"

CHAT_ANSWERS = [
    # row, what the server sends, keywords of the agent, fields of the reply
    ("no connection", AWAY, {"grace_s": 0.0}, None),
    ("no whole answer in time", RawAnswer(chunks=[b" ", b" "], cut=True, stall=None), {}, None),
    ("a broken connection", RawAnswer(drop=True), {}, None),
    ("a broken connection", RawAnswer(body=b'{"choices": [', cut=True), {}, None),
    ("a broken connection", RawAnswer(chunks=[b'{"choices": ['], cut=True), {}, None),
    ("a stream cut before its end", RawAnswer.stream(PIECE, done=False), STREAMED, None),
    ("a stream cut before its end", RawAnswer.stream(PIECE, done=False, cut=True), STREAMED, None),
    ("a stream cut before its end", RawAnswer.stream(done=False), STREAMED, None),
    ("a body that is no JSON or of another shape", body(b"<html>busy</html>"), {}, None),
    ("a body that is no JSON or of another shape", body({}), {}, None),
    ("a body that is no JSON or of another shape", body({"choices": []}), {}, None),
    ("a body that is no JSON or of another shape", body({"choices": [{}]}), {}, None),
    ("a body that is no JSON or of another shape", body({"choices": {"0": 1}}), {}, None),
    ("a body that is no JSON or of another shape", body(completion(3)), {}, None),
    (
        "a body that is no JSON or of another shape",
        body(completion(None, tool_calls=[{"id": "c"}])),
        {},
        None,
    ),
    (
        "a prompt that is too long",
        says(
            400,
            "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000.",
        ),
        {},
        "context",
    ),
    (
        "a prompt that is too long",
        body({"error": {"message": "exceeds", "type": "exceed_context_size_error"}}),
        {},
        "context",
    ),
    ("a call that the server cannot read", says(400, "Failed", code="tool_use_failed"), {}, ""),
    (
        "a call that the server cannot read",
        says(400, "Failed", code="tool_use_failed", failed_generation="<function=f>{"),
        {},
        "<function=f>{",
    ),
    (
        "a call that the server cannot read",
        body({"error": {"code": "tool_use_failed", "failed_generation": "<function=f>{"}}),
        {},
        "<function=f>{",
    ),
    (
        "a call that the server cannot read",
        says(500, "Failed to parse input at pos 9: <tool_call>model_not_found, unknown tools"),
        {},
        "",
    ),
    ("a call that the server cannot read", body(completion(None, "malformed_function_call")), {}, ""),
    (
        "a call that the server cannot read",
        body(completion(None, "function_call_filter: MALFORMED_FUNCTION_CALL")),
        {},
        "",
    ),
    (TOO_LARGE, says(413, "Request Entity Too Large"), OWN_WORDS, "context"),
    ("a request that is refused (other 4xx)", says(413, "Request Entity Too Large"), {}, None),
    ("no credit left", says(402, "Insufficient Balance"), {}, None),
    ("no credit left", says(429, "You are out of credit", code="insufficient_quota"), {}, None),
    (RATE, says(413, TOO_MANY), {}, None),
    (RATE, says(413, "Request Entity Too Large", code="rate_limit_exceeded"), OWN_WORDS, None),
    (RATE, says(400, "Exceeded the context limit", code="rate_limit_exceeded"), {}, None),
    (RATE, body({"error": {"message": TOO_MANY}}), {}, None),
    ("a prompt that moderation refuses", says(403, "Your input was flagged by moderation."), {}, None),
    ("a key that is refused (401, 403)", says(401, "Invalid key"), {}, None),
    ("a key that is refused (401, 403)", says(403, "Forbidden"), {}, None),
    ("an unknown model or address (404)", says(404, "The model `x` does not exist."), {}, None),
    ("an unknown model or address (404)", says(400, "bad", code="model_not_found"), {}, None),
    ("a redirection", RawAnswer(307, {"Location": "http://elsewhere.example/v1"}), {}, None),
    ("a busy or broken server (429, 5xx)", says(429, "slow down"), {}, None),
    ("a busy or broken server (429, 5xx)", says(500, "oops"), {}, None),
    ("a busy or broken server (429, 5xx)", says(503, "loading model"), {}, None),
    ("a busy or broken server (429, 5xx)", says(500, "could not read the context length"), {}, None),
    ("a busy or broken server (429, 5xx)", says(500, "Context size has been exceeded."), {}, None),
    ("a request that is refused (other 4xx)", says(400, "messages must alternate"), {}, None),
    ("a request that is refused (other 4xx)", says(422, "no"), {}, None),
    ("an error under status 200", body({"error": {"message": "engine died"}}), {}, None),
    ("an error under status 200", body({"object": "error", "message": "engine died"}), {}, None),
    ("an error under status 200", body({"choices": [{"error": {"code": 502}}]}), {}, None),
    ("an error under status 200", RawAnswer.stream(PIECE, {"error": {"message": "x"}}), STREAMED, None),
    *(
        (
            "an error under status 200",
            RawAnswer.stream(PIECE, b"event: error\ndata: %b\n\n" % data),
            STREAMED,
            None,
        )
        for data in (b'{"message": "engine died", "code": 500}', b'{"error": "engine died"}', b"it died", b"")
    ),
    ("an end by the server (filter, error, abort)", body(completion("ye", "content_filter")), {}, None),
    ("an end by the server (filter, error, abort)", body(completion("ye", "error")), {}, None),
    ("an end by the server (filter, error, abort)", body(completion("", "abort")), {}, None),
    ("an end by the server (filter, error, abort)", body(completion(None, {"type": "abort"})), {}, None),
    (
        "an end by the server (filter, error, abort)",
        body(completion(None, "abort", tool_calls=[CALL])),
        {},
        None,
    ),
    ("tool calls", body(completion(None, "tool_calls", tool_calls=[CALL])), {}, ""),
    ("tool calls", body(completion("so:", "stop", tool_calls=[CALL])), {}, "so:"),
    ("tool calls", body(completion(None, "function_call", function_call=CALL["function"])), {}, ""),
    ("a refusal in words", body(completion(None, refusal="I will not.")), {}, "I will not."),
    (
        "a refusal in words",
        body(completion([{"type": "refusal", "refusal": "I will not."}])),
        {},
        "I will not.",
    ),
    ("text cut by the token limit", body(completion("ye", "length")), {}, "length"),
    ("text", body(completion("yes")), {}, "yes"),
    ("text", body(completion("yes", None)), {}, "yes"),
    ("text", body(completion("yes", "a_new_word")), {}, "yes"),
    ("text", body(completion("I'm sorry, I can't do that.")), {}, "I'm sorry, I can't do that."),
    (
        "text",
        body(completion([{"type": "text", "text": "y"}, {"type": "output_text", "text": "es"}])),
        {},
        "yes",
    ),
    (
        "reasoning alone, cut by the token limit or not",
        body(completion("", "length", reasoning_content="Let me see")),
        {},
        "length",
    ),
    (
        "reasoning alone, cut by the token limit or not",
        body(completion(None, "stop", reasoning="Let me see")),
        {},
        "",
    ),
    ("no token, for want of space behind the prompt", body(sampled(0, "", "length")), {}, "context"),
    ("empty text that the model sampled", body(sampled(1, "")), {}, ""),
    ("empty text that the model sampled", body(sampled(1, None)), {}, ""),
    ("empty text that the model sampled", body(completion("")), {}, ""),
    ("empty text that the model sampled", body(sampled(9, "", "length")), {}, "length"),
    ("nothing that the model said", body(completion(None)), {}, None),
    ("nothing that the model said", body(completion(None, "tool_calls", tool_calls=[])), {}, None),
    ("nothing that the model said", body(sampled(0, "")), {}, None),
    ("nothing that the model said", body(sampled(0, None)), {}, None),
    ("nothing that the model said", body(completion("", None)), {}, None),
    ("nothing that the model said", body(completion(None, "a_new_word")), {}, None),
    ("nothing that the model said", body(sampled(4, "", "a_new_word")), {}, None),
    ("nothing that the model said", RawAnswer.stream(), STREAMED, None),
]

ITEM = {"type": "function_call", "call_id": "c", "name": "search", "arguments": "{}"}
THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me see"}]}
LIMIT = {"incomplete_details": {"reason": "max_output_tokens"}}
REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}

RESPONSES_ANSWERS = [
    ("a body that is no JSON or of another shape", body({}), {}, None),
    ("a body that is no JSON or of another shape", body({"output": {}}), {}, None),
    (
        "a prompt that is too long",
        says(400, "Your input exceeds the context window", code="context_length_exceeded"),
        {},
        "context",
    ),
    (
        "a stream cut before its end",
        RawAnswer.stream({"type": "response.output_text.delta"}, done=False),
        STREAMED,
        None,
    ),
    ("an error under status 200", body(response("ye", "failed", error={"code": "server_error"})), {}, None),
    (
        "an error under status 200",
        RawAnswer.stream({"type": "error", "message": "x"}, done=False),
        STREAMED,
        None,
    ),
    ("an error under status 200", RawAnswer.stream(b"event: error\ndata: died\n\n"), STREAMED, None),
    (
        "an end by the server (filter, error, abort)",
        body(response("ye", "incomplete", incomplete_details={"reason": "content_filter"})),
        {},
        None,
    ),
    ("an end by the server (filter, error, abort)", body(response("ye", "incomplete")), {}, None),
    ("an end by the server (filter, error, abort)", body(response("ye", "cancelled")), {}, None),
    ("an end by the server (filter, error, abort)", body(response("ye", "in_progress")), {}, None),
    ("tool calls", body(response("", output=[THOUGHT, ITEM])), {}, ""),
    ("a refusal in words", body(response("", output=[REFUSAL])), {}, "I will not."),
    ("text cut by the token limit", body(response("ye", "incomplete", **LIMIT)), {}, "length"),
    ("text", body(response("yes", output=[THOUGHT])), {}, "yes"),
    (
        "reasoning alone, cut by the token limit or not",
        body(response("", "incomplete", [THOUGHT], **LIMIT)),
        {},
        "length",
    ),
    ("empty text that the model sampled", body(response("", usage={"output_tokens": 2})), {}, ""),
    ("nothing that the model said", body(response("")), {}, None),
]


SAID = (Message("user", "hi"), Message("assistant", "x" * 9), Message("user", "ho"))


def agent_for(server, options, **more):
    options = {key: value for key, value in options.items() if key != "own_words"}
    options = {"retries": 1, "backoff_s": 0.001, **options, **more}
    return OpenAIAgent("tiny", base_url=server.base_url, **options)


def named(cases):
    return [pytest.param(*case, id=f"{number}-{case[0]}") for number, case in enumerate(cases)]


def slow(row, fault, options):
    """The row of slowness has a server that never ends, and a client that does not wait long."""
    if row != "no whole answer in time":
        return fault, options

    def spaces():
        while True:
            yield b" "

    return RawAnswer(chunks=spaces()), {**options, "timeout_s": 0.3}


def ask_once(agent, messages=()):
    async def once():
        return await agent.ask(Ask("e", "agent", 0, messages, seed=1))

    try:
        return asyncio.run(once())
    except NoVerdict as error:
        return error


def check_alone(row, fault, options, expected):
    verdict = ROWS[row].verdict
    fault, options = slow(row, fault, options)
    answer = answers_plain_questions(fault) if row in LENGTH else fault
    with StubServer(answer) as server, agent_for(server, options) as agent:
        if fault == AWAY:
            server.close()
        answer = ask_once(agent, SAID if options.get("own_words") else ())
        requests = len(server.requests)
    if verdict is Verdict.SCORED:
        assert isinstance(answer, Reply), answer
        assert expected in (answer.finish, answer.text)
        assert requests == 1 + (row in LENGTH)
    else:
        assert expected is None
        unavailable = verdict in (Verdict.UNAVAILABLE, Verdict.GRACE)
        assert type(answer) is (AgentUnavailable if unavailable else NoVerdict)
        assert server.base_url in str(answer)
        assert requests == {Verdict.RETRIED: 2, Verdict.GRACE: 0}.get(verdict, 1)


@pytest.mark.parametrize(("row", "fault", "options", "expected"), named(CHAT_ANSWERS))
def test_a_row_of_the_table(row, fault, options, expected):
    check_alone(row, fault, options, expected)


@pytest.mark.parametrize(("row", "fault", "options", "expected"), named(RESPONSES_ANSWERS))
def test_a_row_of_the_table_through_responses(row, fault, options, expected):
    check_alone(row, fault, {**options, "api": "responses"}, expected)


def whole_ones(cases):
    """The whole answers among the cases, which are to come to the same as streams."""
    for row, fault, _, expected in cases:
        if ROWS[row].verdict in (Verdict.SCORED, Verdict.RETRIED) and isinstance(fault, RawAnswer):
            with contextlib.suppress(ValueError, LookupError, TypeError):
                whole = json.loads(fault.body)
                if whole["choices"][0]["message"]["content"] != 3 and "a body" not in row:
                    yield row, whole, expected


@pytest.mark.parametrize(("row", "whole", "expected"), named(list(whole_ones(CHAT_ANSWERS))))
def test_a_row_of_the_table_as_a_stream(row, whole, expected):
    check_alone(row, whole, {"stream": True}, expected)


def played(agent, driver):
    job = [Job(EASY, 0)]
    try:
        if driver is rollout:
            (episode,) = rollout(job, agent, retries=0)
        else:
            (episode,) = asyncio.run(rollout_async(job, agent, retries=0))
    except AgentUnavailable:  # the run stops
        return "unavailable", None
    return episode.error.type if episode.error else "scored", episode


FIRST_OF_EACH = list(
    {case[0]: case for case in reversed(CHAT_ANSWERS) if case[0] != TOO_LARGE}.values()
)  # the first ask of an episode holds nothing that the model said


@pytest.mark.parametrize("driver", [rollout, rollout_async])
@pytest.mark.parametrize(("row", "fault", "options", "expected"), named(FIRST_OF_EACH))
def test_a_row_of_the_table_through_the_drivers(row, fault, options, expected, driver):
    verdict = ROWS[row].verdict
    fault, options = slow(row, fault, options)
    answer = answers_plain_questions(fault) if row in LENGTH else fault
    with StubServer(answer) as server, agent_for(server, options, retries=0) as agent:
        if fault == AWAY:
            server.close()
        came, episode = played(agent, driver)
    if verdict is Verdict.SCORED:
        assert came == "scored"
        assert (episode.stop is StopReason.CONTEXT_LIMIT) == (expected == "context")
    elif verdict in (Verdict.UNAVAILABLE, Verdict.GRACE):
        assert came in ("unavailable", "AgentUnavailable")
    else:
        assert came == "NoVerdict"
    assert episode is None or episode.scored == (verdict is Verdict.SCORED)


def test_every_row_has_an_answer_and_every_answer_a_row():
    assert {case[0] for case in CHAT_ANSWERS} == set(ROWS)
    assert len(ROWS) == len(outcomes.OUTCOMES)
    assert {case[0] for case in RESPONSES_ANSWERS} <= set(ROWS)


def test_the_page_shows_the_table_as_it_is():
    page = (Path(__file__).parents[2] / "docs/guides/endpoints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", page.split("<!-- outcomes -->")[1], re.MULTILINE)
    assert rows[0] == ("What comes back", "What it counts as")
    assert rows[1:] == [(outcome.what, outcome.verdict.value) for outcome in outcomes.OUTCOMES]


TOO_LONG = [
    "This model's maximum context length is 8192 tokens. However, you requested 8334 tokens (338 in the "
    "messages, 7996 in the completion).",
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "Requested token count exceeds the model's maximum context length of 64000 tokens.",
    "the request exceeds the available context size, try increasing it",
    "Input validation error: `inputs` must have less than 1024 tokens. Given: 1168",
    "`inputs` tokens + `max_new_tokens` must be <= 1512. Given: 1000 `inputs` tokens and 1024",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Your input exceeds the context window of this model",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion.",
    "context_length_exceeded",
]
OF_TEXT_INPUT = (
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens "
    "(7884 of text input, 131072 in the output). Please reduce the length of either one."
)


@pytest.mark.parametrize("said", [*TOO_LONG, OF_TEXT_INPUT])
def test_servers_have_many_words_for_a_prompt_that_is_too_long(said):
    assert outcomes.too_long(said)


@pytest.mark.parametrize(
    "said",
    [
        "messages with role 'tool' must follow tool_calls",
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens.",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than "
        "the `context_window` for this model",
        "Rate limit reached for tokens per min",
        "Context size has been exceeded.",
        "",
    ],
)
def test_other_refusals_say_nothing_of_the_length(said):
    assert not outcomes.too_long(said)


@pytest.mark.parametrize(
    ("said", "limit", "next_limit"),
    [
        (TOO_LONG[0], 7996, 8192 - 338 - 1),
        (
            "Requested token count exceeds the model's maximum context length of 64000 tokens. You requested "
            "a total of 71897 tokens: 7897 tokens from the input messages and 64000 tokens for completion.",
            64000,
            64000 - 7897 - 1,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 10000. This model's maximum context "
            "length is 4096 tokens and your request has 112 input tokens (10000 > 4096 - 112).",
            10000,
            4096 - 112 - 1,
        ),
        (
            "This model's maximum context length is 32768 tokens. However, you requested 32000 output tokens "
            "and your prompt contains at least 769 input tokens, for a total of at least 32769 tokens.",
            32000,
            16000,
        ),
        (TOO_LONG[5], 1024, 511),
        (TOO_LONG[7], 20000, 9999),
        (TOO_LONG[1], 100, None),
        (TOO_LONG[6], 100, None),
        (OF_TEXT_INPUT, 131072, 131072 - 7884 - 1),
        (OF_TEXT_INPUT, None, 131072 - 7884 - 1),
        (TOO_LONG[0], None, 8192 - 338 - 1),
        (TOO_LONG[1], None, None),
        (TOO_LONG[2], 100, 50),
        (TOO_LONG[11], None, outcomes.FIRST_LIMIT),
        (TOO_LONG[12], 2 * outcomes.LEAST_LIMIT, outcomes.LEAST_LIMIT),
        (TOO_LONG[12], 2 * outcomes.LEAST_LIMIT - 1, None),
        (
            "This model's maximum context length is 4097 tokens. However, you requested 7000 tokens (6000 in "
            "the messages, 1000 in the completion).",
            1000,
            None,
        ),
    ],
)
def test_an_answer_is_shortened_where_prompt_and_answer_together_do_not_fit(said, limit, next_limit):
    assert outcomes.shorter(said, limit) == next_limit


def test_what_an_error_echoes_of_the_request_is_not_what_it_says():
    echoed = {
        "detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": "max_tokens"}]
    }
    said = outcomes.complaint(echoed)
    assert outcomes.refuses(said, "seed")
    assert not outcomes.refuses(said, "max_tokens")
    assert not outcomes.refuses(
        outcomes.complaint({"message": "[{'loc': 1, 'input': {'seed': 'unknown'}}]"}), "seed"
    )
