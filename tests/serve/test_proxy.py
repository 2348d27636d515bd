"""The recording proxy: calls of programs become episodes, whole or not at all."""

import asyncio
import json
import random
import select
import socket
import string
import threading
from collections import Counter
from dataclasses import replace

import pytest
from waiting import until

pytest.importorskip("starlette", reason="needs starlette: pip install 'gem-gym[serve]'")
uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'gem-gym[serve]'")
httpx = pytest.importorskip("httpx", reason="needs httpx: pip install 'gem-gym[serve]'")

from gem.agents.openai import OpenAIAgent
from gem.agents.scripted import ScriptedAgent
from gem.content import ToolCall, written_tools
from gem.errors import AgentUnavailable, BadArgument, NoVerdict
from gem.evals.usage import spent_on
from gem.record import Limits, Reply, StopReason, Verdict
from gem.rollout import EpisodeStore
from gem.rollout.replay import replay
from gem.serve.proxy import recording
from gem.serve.proxy.app import Allowed, name_of_key
from gem.serve.proxy.server import Server
from gem.testing.stub_server import RawAnswer, StubServer, completion
from gem.tokens.rows import rows
from gem.tokens.tiny import TinyRenderer

RENDERER = TinyRenderer()
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}


def user(text):
    return {"role": "user", "content": text}


def echo(ask):
    """Answer with the number of the call, in tokens."""
    held = ask.held
    fresh = ask.messages[len(ask.messages) - ask.fresh :]
    prompt = (*held, *RENDERER.delta(held, fresh)) if held else RENDERER.prompt(ask.messages)
    text = f"answer {ask.turn}"
    ids = RENDERER.answer(text)
    return Reply(text, prompt, ids, [-0.5] * len(ids), policy_version=3)


clients = []


@pytest.fixture(autouse=True)
def close_clients():
    yield
    while clients:
        clients.pop().close()


class Program:
    """An agent program, a key and an HTTP client, and its owner, who has the token for episodes."""

    def __init__(self, server, key="p1", **headers):
        self.key, self.token = key, server.token
        self.client = httpx.Client(
            base_url=server.url,
            headers={"Authorization": f"Bearer {key}", **headers},
            timeout=30,
            event_hooks={"request": [self._own]},
        )
        clients.append(self.client)

    def post(self, path, body, code=200, **kwargs):
        answer = self.client.post(path, json=body, **kwargs)
        assert answer.status_code == code, answer.text
        return answer.json()

    def _own(self, request):
        if request.url.path.startswith("/episodes"):
            request.headers["Authorization"] = f"Bearer {self.token}"

    def chat(self, *messages, code=200, **fields):
        body = {"model": "m", "messages": list(messages), **fields}
        return self.post("/v1/chat/completions", body, code)

    def say(self, *messages, **fields):
        return self.chat(*messages, **fields)["choices"][0]["message"]

    def reward(self, value=1.0, code=200, **fields):
        return self.post(f"/episodes/{self.key}/reward", {"reward": value, **fields}, code)


@pytest.fixture
def serve():
    opened = []

    def start(agent=echo, store=None, **settings):
        agent = ScriptedAgent(agent) if callable(agent) and not hasattr(agent, "ask") else agent
        opened.append(Server(agent, store, **{"any_key": True, **settings}))
        return opened[-1].__enter__()

    yield start
    for each in opened:
        each.__exit__()


def events(text):
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in found if each != "[DONE]"]


def wait_for_news(server, key):
    """Wait until the proxy knows that a program is gone."""
    session = server.proxy.sessions[key]
    until(lambda: session.unheard, "the news did not arrive")


def test_a_conversation_becomes_one_row_and_is_stored(serve, tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        server = serve(store=store)
        program = Program(server)
        chat = [user("one")]
        for text in ("two", "three"):
            chat += [program.say(*chat), user(text)]
        program.say(*chat)
        told = program.reward(0.5, success=True)
        assert told["verdict"] == "scored"
        assert told["trainable"]
        assert told["calls"] == 3
        (episode,) = store
    assert episode.stop is StopReason.SOLVED
    assert episode.reward() == 0.5
    assert [turn.action for turn in episode.turns] == ["answer 0", "answer 1", "answer 2"]
    assert [turn.parent for turn in episode.turns] == [None, *episode.turns[:2]]
    (row,) = rows(episode)
    assert sum(row.mask) == sum(len(turn.token_ids) for turn in episode.turns)
    assert episode.turns[1].messages[0].content == "two"
    assert episode.turns[0].extra["asked"] == {"model": "m"}
    assert episode.policy_version == 3
    assert server.take() == [episode]


def test_a_rewritten_history_forks_and_branches_never_merge(serve):
    program = Program(server := serve())
    first = program.say(user("one"))
    program.say(user("one"), first, user("two"))
    program.say(user("one"), {**first, "content": "answer zero"}, user("two"))  # written anew
    program.say(user("one"), first, user("two"))  # a second answer to the same
    program.say(user("a sub-agent's"))
    program.reward()
    (episode,) = server.take()
    parents = [turn.parent and episode.turns.index(turn.parent) for turn in episode.turns]
    assert parents == [None, 0, None, 0, None]
    assert len(rows(episode)) == 4
    assert [turn.messages[-1].content for turn in episode.turns[2:]] == ["two", "two", "a sub-agent's"]
    assert len(episode.turns[2].messages) == 3


def test_a_server_that_renders_itself_is_followed_by_its_tokens(serve):
    ids = {1: (1, 2), 3: (1, 2, 7, 9, 5), 5: (1, 2, 7, 8, 5)}  # the third history was tokenised anew

    def rendered(ask):
        return Reply("x", ids[len(ask.messages)], (7, 9), [-1.0, -1.0])

    program = Program(server := serve(rendered))
    chat = [user("one")]
    for _ in range(2):
        chat += [program.say(*chat), user("more")]
    program.say(*chat)
    program.reward()
    (episode,) = server.take()
    assert [turn.parent for turn in episode.turns] == [None, episode.turns[0], None]
    assert [list(row.ids) for row in rows(episode)] == [[1, 2, 7, 9, 5, 7, 9], [1, 2, 7, 8, 5, 7, 9]]


def test_text_alone_is_recorded_and_not_trainable(serve):
    program = Program(server := serve(lambda ask: "plain"))
    said = program.say(user("one"))
    program.say(user("one"), said, user("two"))
    told = program.reward(1)
    assert not told["trainable"]
    assert "text only" in told["why"]
    (episode,) = server.take()
    assert episode.scored
    assert episode.turns[1].parent is episode.turns[0]
    with pytest.raises(BadArgument, match="no prompt_ids"):
        rows(episode)


def test_tools_and_parallel_calls_reach_the_program_and_come_back(serve):
    calls = (ToolCall("c1", "add", '{"a": 1}'), ToolCall("c2", "add", '{"a":2}'))
    heard = []

    def act(ask):
        heard.append(ask)
        return Reply("", (1,), (2,), [-1.0], tool_calls=calls if ask.turn == 0 else ())

    program = Program(server := serve(act))
    choice = program.chat(user("add"), tools=[TOOL])["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == [
        '{"a": 1}',
        '{"a":2}',
    ]
    said = choice["message"]
    said["tool_calls"][1]["function"]["arguments"] = '{"a": 2}'  # as langchain writes it anew
    results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in calls]
    program.chat(user("add"), said, *results, tools=[TOOL])
    assert heard[0].tools[0].name == "add"
    assert heard[1].fresh == 2
    program.reward()
    (episode,) = server.take()
    assert episode.turns[0].reply.tool_calls == calls
    assert episode.starts["agent"]["tools"][0]["name"] == "add"
    assert "tools" not in (episode.turns[1].extra or {})


@pytest.mark.parametrize("path", ["/v1", "/s/p1/v1"])
def test_streams_are_the_answer_replayed(serve, path):
    program = Program(serve(lambda ask: Reply("word " * 30, (1,), (2, 3), [-1.0, -1.0])))
    body = {"model": "m", "messages": [user("x")], "stream": True, "stream_options": {"include_usage": True}}
    answer = program.client.post(f"{path}/chat/completions", json=body)
    chunks = events(answer.text)
    assert answer.text.endswith("data: [DONE]\n\n")
    said = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert said == "word " * 30
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def test_responses_whole_streamed_and_behind_an_earlier_one(serve):
    call = ToolCall("c1", "add", '{"a": 1}')
    agent = ScriptedAgent(
        [
            Reply("let me see", (1,), (2,), [-1.0], tool_calls=(call,), reasoning="hm"),
            Reply("3", (1, 2, 3), (4,), [-1.0]),
            Reply("bye", (1, 2, 3, 4, 5), (6,), [-1.0]),
        ]
    )
    program = Program(server := serve(agent))
    tool = {"type": "function", "name": "add", "parameters": TOOL["function"]["parameters"]}
    body = {"model": "m", "instructions": "Be short.", "input": "add", "tools": [tool]}
    first = program.post("/v1/responses", body)
    assert [item["type"] for item in first["output"]] == ["reasoning", "message", "function_call"]
    result = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    again = {**body, "input": [user("add"), *first["output"], result], "stream": True}
    streamed = events(program.client.post("/v1/responses", json=again).text)
    assert [each["sequence_number"] for each in streamed] == list(range(len(streamed)))
    whole = streamed[-1]
    assert whole["type"] == "response.completed"
    assert whole["response"]["output"][0]["content"][0]["text"] == "3"
    third = {"model": "m", "input": "thanks", "previous_response_id": whole["response"]["id"]}
    assert program.post("/v1/responses", third)["output"][0]["content"][0]["text"] == "bye"
    program.post("/v1/responses", {**third, "previous_response_id": "nope"}, 404)
    program.reward()
    (episode,) = server.take()
    assert len(rows(episode)) == 1
    assert [message.role for message in episode.turns[2].messages] == ["user"]


def test_a_failure_is_the_servers_and_the_retry_makes_up_for_it(serve):
    def down(tokens):
        error = NoVerdict("down")
        error.usage = {"m": {"discarded_completion_tokens": tokens}}
        return error

    left = [down(1), down(2)]

    def act(ask):
        if left:
            raise left.pop()
        return echo(ask)

    program = Program(server := serve(act))
    refused = program.chat(user("x"), code=503)
    assert refused["error"]["type"] == "server_error"
    assert "no verdict" not in refused["error"]["message"]
    assert "was not answered" in program.client.get("/episodes/p1").json()["why"]
    program.chat(user("x"), code=503)
    program.chat(user("x"))
    assert program.reward()["verdict"] == "scored"
    left.append(down(4))
    program.chat(user("x"), code=503)
    assert program.reward()["verdict"] == "none"
    first, second = server.take()
    assert first.scored
    assert first.turns[0].usage["discarded_completion_tokens"] == 3
    assert second.error.type == "LostCall"
    assert second.error.usage == {"m": {"discarded_completion_tokens": 4}}
    assert second.verdict is Verdict.NONE
    assert second.sample == 1
    assert [(end.stop, end.terminated, end.truncated) for end in second.ends.values()] == [
        (StopReason.ERROR, False, True)
    ]


def test_a_bug_of_the_model_tells_clients_nothing(serve, caplog):
    def act(ask):
        raise ValueError("secret path /home")

    program = Program(serve(act))
    assert program.chat(user("x"), code=503)["error"]["message"] == "the model failed: ValueError"
    gone = Program(serve(lambda ask: (_ for _ in ()).throw(AgentUnavailable("no server"))))
    answer = gone.client.post("/v1/chat/completions", json={"messages": [user("x")]})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")


def test_an_answer_whose_tokens_are_none_is_the_servers_failure(serve, caplog):
    program = Program(server := serve(lambda ask: Reply("x", (1,), (2, 3), [-1.0])))
    program.chat(user("x"), code=503)
    assert program.reward()["verdict"] == "none"
    (episode,) = server.take()
    assert "log" in episode.error.message
    refused = Program(serve(lambda ask: (_ for _ in ()).throw(BadArgument("roles must alternate"))))
    assert "alternate" in refused.chat(user("x"), code=400)["error"]["message"]
    assert refused.reward()["verdict"] == "scored"


def test_a_client_that_vanishes_loses_its_call_unless_it_asks_again(serve):
    asked, go = threading.Event(), threading.Event()

    def act(ask):
        asked.set()
        go.wait(30)
        return echo(ask)

    server = serve(act)
    body = json.dumps({"messages": [user("x")]}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Authorization: Bearer {{}}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for key in ("gone", "patient"):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head.format(key).encode() + body)
            assert asked.wait(30)
        asked.clear()
        wait_for_news(server, key)
        go.set()
        if key == "patient":
            program = Program(server, key)
            answer = program.client.post("/v1/chat/completions", content=body)
            assert answer.json()["choices"][0]["message"]["content"] == "answer 0"
        told = Program(server, key).reward(1.0)
        assert told["verdict"] == ("scored" if key == "patient" else "none")
        go.clear()
    lost, whole = server.take()
    assert lost.error.message == "1 answer reached nobody"
    assert len(whole.turns) == 1


def test_an_episode_keeps_so_many_bytes_and_counts_each_message_once(serve):
    program = Program(server := serve(allowed=Allowed(episode_bytes=1000)), "t")
    history = []
    for _ in range(6):
        history.append(user("x" * 120))
        history.append(program.chat(*history)["choices"][0]["message"])
    program.chat(*history, user("x" * 300), code=403)
    program.chat(user("x" * 1001), code=403)
    program.reward(0.5)
    (episode,) = server.take()
    assert (episode.stop, len(episode.turns), episode.reward()) == (StopReason.TOKEN_LIMIT, 6, 0.5)


def test_tools_count_once_among_the_bytes_of_an_episode(serve):
    def tool(text):
        return [{"type": "function", "function": {"name": "t", "description": text, "parameters": {}}}]

    program = Program(serve(allowed=Allowed(episode_bytes=2000)), "t")
    for _ in range(4):
        program.chat(user("x"), tools=tool("a" * 1000))
    program.chat(user("x"), tools=tool("b" * 1000), code=403)


def test_the_tools_of_a_call_are_written_out_once(serve, monkeypatch):
    written = []
    monkeypatch.setattr(
        recording, "written_tools", lambda tools: written.append(tools) or written_tools(tools)
    )
    program = Program(server := serve())
    other = {"type": "function", "function": {"name": "nod"}}
    for tools in ([TOOL], [TOOL], [other]):
        program.chat(user("x"), tools=tools)
    program.reward()
    (episode,) = server.take()
    assert len(written) == 3
    assert [tool["name"] for tool in episode.starts["agent"]["tools"]] == ["add"]
    assert [[tool["name"] for tool in turn.extra.get("tools", ())] for turn in episode.turns] == [
        [],
        [],
        ["nod"],
    ]


def test_the_bodies_that_arrive_from_one_episode_are_limited(serve):
    server = serve(allowed=Allowed(body_bytes=2000))
    program, other = Program(server, "t"), Program(server, "u")
    program.chat(user("x"))
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n"
    halves = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
    try:
        for each in halves:
            each.sendall(f"{head}Content-Length: 2000\r\n\r\n{' ' * 1700}".encode())
        refused, _, _ = select.select(halves, [], [], 20)
        assert refused[0].recv(12) == b"HTTP/1.1 429"
        program.chat(user("x" * 1500), code=429)
        other.chat(user("x" * 1500))
    finally:
        for each in halves:
            each.close()
    until(lambda: not server.proxy._arriving, "bodies of clients that are gone count")
    program.chat(user("x" * 1500))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'["\\"[", [' + b"[]," * 500_000 + b"[]]]", "more than 500,000 lists"),
        (b'{"' + b"[" * 500_001 + b'\\"[": "["}', "messages is None"),
        (b'"' + b"[" * 500_001, "no JSON: Unterminated"),
        ('["x"]'.encode("utf-16-le"), "no JSON"),
    ],
)
def test_a_body_of_many_lists_is_refused_before_it_is_read(serve, body, why):
    answer = Program(serve()).client.post("/v1/chat/completions", content=body)
    assert (answer.status_code, why in answer.text) == (400, True), answer.text


def test_budgets_are_refused_in_a_form_that_clients_do_not_repeat(serve):
    server = serve(limits=Limits(turns=2), allowed=Allowed(sessions=2, body_bytes=2000))
    program = Program(server)
    for text in "ab":
        program.chat(user(text))
    answer = program.client.post("/v1/chat/completions", json={"messages": [user("c")]})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (403, "false")
    assert answer.json()["error"]["code"] == "insufficient_quota"
    Program(server, "p2").chat(user("x"))
    Program(server, "p3").chat(user("x"), code=429)
    program.chat(user("x" * 3000), code=413)
    program.reward(0.25)
    (episode,) = server.take()
    assert (episode.stop, episode.truncated, episode.reward()) == (StopReason.TURN_LIMIT, True, 0.25)
    few = Program(server := serve(limits=Limits(tokens=3)), "t")
    assert few.chat(user("x"))["choices"][0]["finish_reason"] == "stop"
    few.chat(user("y"), code=403)
    uncounted = Program(serve(lambda ask: Reply("x"), limits=Limits(tokens=3)), "u")
    with pytest.warns(UserWarning, match="limit of 3 tokens .* ends no episode"):
        uncounted.chat(user("x"))


def test_rewards_add_up_where_they_were_earned(serve):
    program = Program(server := serve())
    program.reward(1.0, code=404)
    first = program.say(user("one"))
    program.reward(0.25, done=False)
    program.say(user("one"), first, user("two"))
    program.reward(-1.0)
    for wrong in ("high", None, True, float("nan")):
        body = json.dumps({"reward": wrong})
        program.say(user("one"))
        assert program.client.post("/episodes/p1/reward", content=body).status_code == 400
    (episode,) = server.take()
    assert [turn.reward for turn in episode.turns] == [0.25, -1.0]
    assert episode.success is None


def test_a_grader_scores_the_last_answer(serve):
    from gem.graders.named import make_grader

    server = serve(lambda ask: "it is \\boxed{7}", grader=make_grader("math"))
    for reference, reward in (("7", 1.0), ("8", 0.0)):
        opened = server.open("sum", reference=reference)
        Program(server, opened.api_key).chat(user("3 + 4?"))
        episode = server.reward(opened.id)
        assert (episode.reward(), episode.success, episode.group) == (reward, reward == 1, "sum")
    assert [each.sample for each in server.take()] == [0, 1]
    Program(server, "p").chat(user("3 + 4?"))
    Program(server, "p").post("/episodes/p/reward", {}, 400)


def test_a_program_plays_an_environment(serve):
    server = serve(echo)
    owner = Program(server)
    opened = owner.post("/episodes", {"env": "game:GuessTheNumber-v0-easy", "seed": 2, "group": "g"}, 201)
    program = Program(server, opened["api_key"])
    where = f"/episodes/{opened['id']}"
    assert "number" in opened["observation"]
    program.post(f"{where}/step", {"action": "\\boxed{9}"})  # without a call: it is paid before the first
    number, done = 0, False
    chat = [user(opened["observation"])]
    while not done:
        number += 1
        program.say(user("think"))
        chat += [program.say(*chat)]
        told = program.post(f"{where}/step", {"action": f"\\boxed{{{number}}}"})
        done = told["done"]
        chat += [user(told["observation"])]
    program.chat(*chat, code=401)
    program.post(f"{where}/step", {"action": "x"}, 404)
    (episode,) = server.take()
    assert episode.spec == "game:GuessTheNumber-v0-easy"
    assert (episode.seed, episode.group) == (2, "g")
    assert (episode.stop.value, told["stop"]) == (told["stop"], episode.stop.value)
    assert [turn.action for turn in episode.turns[::2]] == [None] * number
    assert [turn.action for turn in episode.turns[1::2]] == [f"\\boxed{{{i + 1}}}" for i in range(number)]
    assert episode.turns[0].reward == 0.0
    assert rows(episode)


def test_a_played_episode_can_be_played_again_and_a_spent_budget_scores_it(serve):
    server = serve(limits=Limits(turns=4))
    owner = Program(server)
    for guesses in (1, 9):
        opened = owner.post("/episodes", {"env": "game:GuessTheNumber-v0-easy", "seed": 2}, 201)
        program = Program(server, opened["api_key"])
        for _ in range(2 if guesses == 1 else 1):
            program.say(user("think"))
            program.say(user("say it"))
            action = {"action": "\\boxed{1}"}
            program.post(f"/episodes/{opened['id']}/step", action)
        if guesses == 1:
            program.chat(user("more"), code=403)
        owner.client.delete(f"/episodes/{opened['id']}")
    spent, given_up = server.take()
    assert (spent.stop.value, spent.scored, len(spent.turns)) == ("turn_limit", True, 4)
    assert (given_up.stop.value, given_up.scored) == ("cancelled", False)
    assert replay(spent).difference is None


def test_the_environments_word_stands_and_its_errors_are_told(serve):
    owner = Program(serve())
    assert (
        "Did you mean" in owner.post("/episodes", {"env": "game:GessTheNumber-v0"}, 404)["error"]["message"]
    )
    owner.post("/episodes", {"env": "os:system"}, 404)
    owner.post("/episodes", {"env": 7}, 400)
    owner.post("/episodes", {"seed": 7}, 400)
    owner.post("/episodes", {"name": "../../etc"}, 400)
    owner.post("/episodes", {"nam": "x"}, 400)
    opened = owner.post("/episodes", {"env": "game:GuessTheNumber-v0-easy", "name": "n"}, 201)
    owner.post("/episodes", {"name": "n"}, 409)
    owner.post("/episodes/n/reward", {"reward": 1}, 409)
    owner.post("/episodes/n/step", {"action": 1}, 400)
    assert owner.client.delete("/episodes/n").json()["verdict"] == "none"
    Program(serve(), opened["api_key"]).chat(user("x"), code=401)


def test_an_idle_episode_of_a_program_is_left_to_who_limits_its_time():
    with Server(ScriptedAgent(echo), allowed=Allowed(idle_s=0.05), any_key=True) as server:
        server.open_session("limited").stop = lambda why: None
        Program(server, "idle").chat(user("x"))
        until(lambda: [*server.proxy.sessions] == ["limited"])


def test_idle_episodes_and_those_of_a_stopped_proxy_have_no_verdict(tmp_path):
    store = EpisodeStore(tmp_path / "episodes.jsonl")
    with Server(ScriptedAgent(echo), store, allowed=Allowed(idle_s=0.05), any_key=True) as server:
        Program(server, "idle").chat(user("x"))
        until(lambda: not server.proxy.sessions)
    with Server(ScriptedAgent(echo), store, any_key=True) as server:
        Program(server, "open").chat(user("x"))
    assert [(each.job, each.stop.value, each.scored) for each in store] == [
        ("idle", "cancelled", False),
        ("open", "cancelled", False),
    ]
    assert [each.error.message for each in store] == ["nothing came for 0.05 s.", "the proxy was stopped."]
    store.close()


def test_an_episode_whose_model_is_asked_is_not_idle():
    asked, go, told = threading.Event(), threading.Event(), []

    def act(ask):
        if not asked.is_set():
            asked.set()
            go.wait(30)
        return echo(ask)

    with Server(ScriptedAgent(act), allowed=Allowed(idle_s=0.05), any_key=True) as server:
        slow = Program(server, "slow")
        calling = threading.Thread(target=lambda: told.append(slow.chat(user("x"))))
        calling.start()
        assert asked.wait(30)
        server.open_session("idle")
        until(lambda: [*server.proxy.sessions] == ["slow"])  # though its call is the older one
        go.set()
        calling.join(30)
    assert told[0]["choices"][0]["message"]["content"] == "answer 0"


ADMINISTRATION = [
    ("GET", "/episodes", None),
    ("POST", "/episodes", {}),
    ("POST", "/episodes", {"env": "game:GuessTheNumber-v0-easy"}),
    *[
        call
        for name in ("mine", "other")
        for call in (
            ("GET", f"/episodes/{name}", None),
            ("DELETE", f"/episodes/{name}", None),
            ("POST", f"/episodes/{name}/reward", {"reward": 1e9}),
            ("POST", f"/episodes/{name}/step", {"action": "x"}),
        )
    ],
]


@pytest.mark.parametrize("any_key", [False, True])
@pytest.mark.parametrize("token", [None, "t"])
def test_a_program_that_knows_its_key_alone_can_only_call_the_model(serve, token, any_key):
    server = serve(token=token, any_key=any_key)
    mine, other = server.open("mine"), server.open("other")
    for key in (mine.api_key, other.api_key, "mine", "other", ""):
        headers = {"Authorization": f"Bearer {key}".rstrip()}
        with httpx.Client(base_url=server.url, headers=headers) as program:
            for method, path, body in ADMINISTRATION:
                assert program.request(method, path, json=body).status_code == 401, (method, path)
    assert httpx.get(f"{server.url}/episodes").status_code == 401
    Program(server, mine.api_key).chat(user("x"))
    Program(server, "mine").chat(user("x"), code=401)
    Program(server, server.token).chat(user("x"), code=401)
    sessions = server.proxy.sessions
    assert {name: len(session.recording.calls) for name, session in sessions.items()} == {
        "mine": 1,
        "other": 0,
    }
    owner = httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"})
    with owner:
        assert len(owner.get("/episodes").json()["episodes"]) == 2
        assert owner.post("/episodes/mine/reward", json={"reward": 1}).status_code == 200
        assert owner.delete("/episodes/other").status_code == 200
        assert owner.post("/episodes", json={"name": "n"}).status_code == 201
    Program(server, "unopened").chat(user("x"), code=200 if any_key else 401)
    assert list(server.proxy.sessions) == ["n", *["unopened"] * any_key]


def test_each_server_makes_a_token_of_its_own():
    with Server(ScriptedAgent(echo)) as first, Server(ScriptedAgent(echo)) as second:
        tokens = [first.token, second.token]
    assert len({*tokens}) == 2
    assert min(map(len, tokens)) >= 32
    with pytest.raises(BadArgument, match="token"):
        Server(ScriptedAgent(echo), host="0.0.0.0")
    with pytest.raises(BadArgument, match="any_key"):
        Server(ScriptedAgent(echo), host="0.0.0.0", token="t", any_key=True)


def test_pages_of_other_sites_and_other_names_are_refused(serve):
    server = serve()
    Program(server, Origin="http://evil.example").chat(user("x"), code=403)
    Program(server, Host="evil.example").chat(user("x"), code=421)
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": [user("x")]})
    assert answer.json()["error"]["code"] == "invalid_api_key"


def shaped(start, alphabet, count):
    """Return a key of the shape of a provider's; the same one each time."""
    return start + "".join(random.Random(start).choices(alphabet, k=count))


LOWER = string.ascii_lowercase + string.digits
MIXED = string.ascii_letters + string.digits
SAFE = MIXED + "-_"
HEX = "0123456789abcdef"
SECRETS = {
    "openai": shaped("sk-", MIXED, 48),
    "openai, short": "sk-proj-1234567890",
    "openai, of a project": shaped("sk-proj-", SAFE, 40),
    "anthropic": shaped("sk-ant-api03-", SAFE, 40),
    "google": shaped("AIzaSy", SAFE, 33),
    "google, new": shaped("AQ.", SAFE, 50),
    "hugging face": shaped("hf_", string.ascii_letters, 34),
    "groq": shaped("gsk_", MIXED, 52),
    "xai": shaped("xai-", MIXED, 56),
    "replicate": shaped("r8_", MIXED, 37),
    "perplexity": shaped("pplx-", MIXED, 48),
    "fireworks": shaped("fw_", MIXED, 22),
    "cerebras": shaped("csk-", LOWER, 48),
    "nvidia": shaped("nvapi-", SAFE, 58),
    "together": shaped("", HEX, 64),
    "azure": shaped("", HEX, 32),
    "mistral": shaped("", MIXED, 32),
    "cohere": shaped("", MIXED, 40),
    "zhipu": shaped("", HEX, 32) + "." + shaped("", MIXED, 16),
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "github": shaped("ghp_", MIXED, 36),
    "langsmith": shaped("lsv2_pt_", HEX, 32) + "_0123456789",
    "databricks": shaped("dapi", HEX, 32),
    "slack": "xoxb-1234567890-1234567890123-" + shaped("", MIXED, 24),
    "uuid": "6f1c2d3e-8a4b-4c5d-9e6f-7a8b9c0d1e2f",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
    "random, of Python": shaped("", SAFE, 22),
    "random, short": shaped("", MIXED, 12),
    "letters": shaped("", string.ascii_lowercase, 26),
    "digits": shaped("", string.digits, 20),
    "path": "../../etc/passwd",
    "long": "a" * 3000,
    "other letters": "n\xe4me",
}


@pytest.mark.parametrize("key", SECRETS.values(), ids=SECRETS)
def test_a_key_that_may_be_a_secret_or_a_path_is_not_recorded(serve, key):
    server = serve()
    headers = {"Authorization": f"Bearer {key}".encode("latin-1")}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json={"messages": [user("x")]}, headers=headers)
    assert answer.status_code == 200
    (name,) = server.proxy.sessions
    assert name.startswith("key-")
    assert key not in repr(server.proxy.sessions[name].recording)


CHOSEN = [
    "p",
    "p1",
    "try-17",
    "episode-3",
    "gsm8k_train.00017-sample-2",
    "GuessTheNumber-v0-easy",
    "2026-11-24",
]


@pytest.mark.parametrize("key", [*CHOSEN, "Qwen2.5-7B", "my_agent", "gpt-4o", "RUN-12", "a-b-c"])
def test_a_key_that_a_person_chose_is_the_name(key):
    assert name_of_key(key) == key


@pytest.mark.parametrize("alphabet", [LOWER, MIXED, SAFE, HEX, string.ascii_letters])
def test_random_keys_are_never_names(alphabet):
    rng = random.Random(0)
    keys = ["".join(rng.choices(alphabet, k=rng.randint(20, 64))) for _ in range(2000)]
    assert all(name_of_key(key).startswith("key-") for key in keys)


WRONG = [
    {"messages": []},
    {"messages": "hi"},
    {"messages": ["hi"]},
    {"messages": [{"role": "wizard", "content": "x"}]},
    {"messages": [{"role": "user", "content": 7}]},
    {"messages": [user([{"type": "video", "video": "x"}])]},
    {"messages": [user([{"type": "image_url", "image_url": {"url": "http://x/y"}}])]},
    {"messages": [user([{"type": "image_url", "image_url": "data:image/png;base64,?"}])]},
    {"messages": [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}]},
    {"messages": [{"role": "assistant", "tool_calls": {"a": 1}}]},
    {"messages": [user("x")], "n": 2},
    {"messages": [user("x")], "n": {}},
    {"messages": [user("x")], "max_tokens": -1},
    {"messages": [user("x")], "max_tokens": "many"},
    {"messages": [user("x")], "stop": [""]},
    {"messages": [user("x")], "stop": 7},
    {"messages": [user("x")], "stream": "yes"},
    {"messages": [user("x")], "model": ["m"]},
    {"messages": [user("x")], "tools": [{"type": "web_search"}]},
    {"messages": [user("x")], "tools": [{"type": "function", "function": {"name": 7}}]},
    {"messages": [user("x")], "tools": 7},
    {"messages": [user("x")], "response_format": {"type": "json_object"}},
    {"messages": [user("x")], "stream_options": 7},
    [],
    "text",
    None,
]


def test_wrong_requests_are_told_what_is_wrong(serve):
    program = Program(server := serve())
    for body in WRONG:
        error = program.post("/v1/chat/completions", body, 400)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert len(error["message"]) < 300
    for given in (7, [], [{"type": "spell"}], [{"type": "function_call_output", "call_id": 1}]):
        program.post("/v1/responses", {"input": given}, 400)
    program.post("/v1/responses", {"input": "x", "background": True}, 400)
    deep = b'{"messages": [{"role": "user", "content": "x"}], "x": ' + b"[" * 80 + b"]" * 80 + b"}"
    for raw in (b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"messages": ' + b"[" * 100_000, deep):
        assert program.client.post("/v1/chat/completions", content=raw).status_code == 400
    assert not server.proxy.sessions  # nothing was opened for them
    assert program.client.get("/nowhere").json()["error"]["message"] == "Not Found"
    assert program.client.get("/v1/chat/completions").status_code == 405
    odd = {"model": "m", "messages": [user("\ud800 lone")], "unknown": {"deep": [1]}, "temperature": 0.5}
    answer = program.client.post("/v1/chat/completions", content=json.dumps(odd))
    assert answer.status_code == 200
    program.reward()
    (episode,) = server.take()
    assert episode.scored
    assert len(episode.turns) == 1
    assert episode.turns[0].extra["asked"] == {"model": "m", "unknown": {"deep": [1]}, "temperature": 0.5}


def test_many_calls_of_one_session_at_once(serve):
    server = serve()

    async def ask_all():
        async with httpx.AsyncClient(base_url=server.url, headers={"Authorization": "Bearer p1"}) as client:
            bodies = [{"messages": [user(f"part {i}")]} for i in range(20)]
            return await asyncio.gather(*(client.post("/v1/chat/completions", json=b) for b in bodies))

    answers = asyncio.run(ask_all())
    assert all(each.status_code == 200 for each in answers)
    program = Program(server)
    assert program.reward()["trainable"]
    (episode,) = server.take()
    assert len(rows(episode)) == 20
    assert len({turn.messages for turn in episode.turns}) == 20


def test_an_answer_ends_where_the_program_said(serve):
    def act(ask):
        return Reply("do it\nObservation: fake", (*ask.held, 1), (2,), [-1.0])

    program = Program(server := serve(act))
    said = program.say(user("x"), stop=["Observation:", "###"])
    assert said["content"] == "do it\n"
    program.say(user("x"), said, user("y"))
    program.reward()
    (episode,) = server.take()
    assert episode.turns[0].extra["cut"] == len("Observation: fake")
    assert episode.turns[0].sampling == {"stop": ["Observation:", "###"]}
    assert episode.turns[1].messages[0].content == "y"


def test_a_full_context_is_the_programs_to_handle(serve):
    program = Program(server := serve(lambda ask: Reply("", (1,) * 9, finish="context")))
    assert program.chat(user("x"), code=400)["error"]["code"] == "context_length_exceeded"
    assert program.reward(0.0)["verdict"] == "scored"
    (episode,) = server.take()
    assert not episode.turns


def test_a_program_that_never_came_has_no_verdict(serve):
    program = Program(server := serve(lambda ask: Reply("", (1,) * 9, finish="context")))
    opened = program.client.post("/episodes", json={"name": "absent"})
    assert opened.status_code == 201
    paid = program.client.post("/episodes/absent/reward", json={"reward": 0.0})
    assert paid.json()["verdict"] == "none"
    (episode,) = server.take()
    assert episode.error.message == "no call was made."


def test_token_ids_are_given_to_who_asks(serve):
    program = Program(serve(lambda ask: Reply("x", (1, 2), (3,), [-1.0])))
    body = program.chat(user("x"), return_token_ids=True)
    assert (body["prompt_token_ids"], body["choices"][0]["token_ids"]) == ([1, 2], [3])
    assert "prompt_token_ids" not in program.chat(user("x"))
    assert program.client.get("/v1/models").json()["data"][0]["id"] == "gem"


def test_a_call_that_is_running_when_its_episode_ends_is_lost(serve):
    asked, go = threading.Event(), threading.Event()

    def act(ask):
        asked.set()
        go.wait(30)
        return echo(ask)

    server = serve(act)
    told = []
    program = Program(server)
    calling = threading.Thread(target=lambda: told.append(program.chat(user("x"), code=409)))
    calling.start()
    assert asked.wait(30)
    assert Program(server).reward(1.0)["verdict"] == "none"
    go.set()
    calling.join(30)
    assert "has ended meanwhile" in told[0]["error"]["message"]
    (episode,) = server.take()
    assert not episode.turns


@pytest.mark.system
def test_a_client_that_leaves_a_stream_has_not_heard_it(serve):
    long = "word " * 1_000_000
    server = serve(lambda ask: Reply(long, (1,), (2,), [-1.0]))
    body = json.dumps({"messages": [user("x")], "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(
            f"POST /s/p/v1/chat/completions HTTP/1.1\r\nHost: localhost:{server.port}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
    wait_for_news(server, "p")
    assert Program(server, "p").reward(1.0)["verdict"] == "none"


def test_a_long_conversation_is_followed_in_time(serve):
    program = Program(server := serve())
    chat = []
    for number in range(60):
        chat.append(user(f"{number} " * 200))
        chat.append(program.say(*chat))
    program.reward()
    (episode,) = server.take()
    (row,) = rows(episode)
    assert sum(len(turn.new_ids) + len(turn.token_ids) for turn in episode.turns) == len(row.ids)
    assert sum(len(turn.messages) for turn in episode.turns) == 60


def test_rewards_stay_finite_in_sum(serve):
    program = Program(serve())
    program.say(user("one"))
    for value in ("1e999", "NaN", "1" + "0" * 400, "-1" + "0" * 400):
        body = f'{{"reward": {value}, "done": false}}'
        assert program.client.post("/episodes/p1/reward", content=body).status_code == 400
    assert program.reward(1e308, done=False)["reward"] == 1e308
    program.reward(1e308, code=400)
    assert program.reward(-1e308)["reward"] == 0.0


def test_a_grader_without_verdict_that_is_asked_twice_ends_an_episode_once(serve):
    asked = threading.Barrier(2, timeout=20)

    def grader(answer, reference):
        asked.wait()
        raise NoVerdict("the sandbox is gone")

    server = serve(grader=grader)
    opened = server.open("q", reference="42")
    program = Program(server, opened.api_key)
    program.say(user("one"))
    codes = []
    askers = [
        threading.Thread(
            target=lambda: codes.append(program.client.post("/episodes/q/reward", json={}).status_code)
        )
        for _ in range(2)
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert sorted(codes) == [200, 409]
    (episode,) = server.take()
    assert episode.verdict is Verdict.NONE


@pytest.mark.parametrize(
    "broken", [{"logprobs": [-0.5]}, {"token_ids": [2**40]}, {"token_ids": ["a"]}], ids=str
)
def test_an_answer_that_cannot_be_recorded_is_a_call_that_is_missing(serve, broken):
    def answer(ask):
        whole = echo(ask)
        return replace(whole, **broken) if ask.turn else whole

    server = serve(answer)
    program = Program(server)
    program.say(user("one"))
    program.chat(user("other"), code=503)
    assert program.reward(1.0)["trainable"] is False
    (episode,) = server.take()
    assert (episode.verdict, episode.error.type) == (Verdict.NONE, "LostCall")


def test_what_has_no_finite_log_probabilities_cannot_be_trained_on(serve):
    def answer(ask):
        whole = echo(ask)
        return replace(whole, logprobs=[float("nan")] * len(whole.token_ids))

    program = Program(serve(answer))
    program.say(user("one"))
    told = program.reward(1.0)
    assert (told["trainable"], told["why"]) == (False, "call 0 has no log probabilities")


@pytest.mark.system
def test_an_environment_that_cannot_be_made_is_told(serve):
    program = Program(serve())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
        told = program.post("/episodes", {"env": f"remote:{address}/game:Sudoku-v0-easy"}, 409)
    assert "cannot be reached" in told["error"]["message"]


def test_a_server_that_nobody_takes_from_keeps_no_episodes():
    server = Server(ScriptedAgent(echo), any_key=True)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        program = Program(server)
        program.client.post("/v1/chat/completions", json={"messages": [user("one")]})
        program.reward(1.0)
    finally:
        server.stop()
        thread.join()
    assert server.take() == []


@pytest.mark.parametrize("in_batches", [True, False])
def test_an_agent_drops_what_it_keeps_of_each_episode_that_ended(serve, in_batches):
    dropped = []

    class Keeper(ScriptedAgent):
        def forget(self, episode):
            dropped.append(episode)

    class Asked(Keeper):
        async def ask(self, ask):
            return echo(ask)

    server = serve(Keeper(echo) if in_batches else Asked(echo))
    ended = []
    for key in ("p1", "p2", "p3"):
        Program(server, key).say(user("hi"))
        ended.append(server.reward(key, 1.0).id)
    assert dropped == (ended[:2] if in_batches else ended)  # with batches, before the next one


def test_why_a_server_cannot_start_is_told(monkeypatch):
    server = Server(ScriptedAgent(["x"]))

    def refuse(config):
        raise OSError("no event loop")

    monkeypatch.setattr(uvicorn.Config, "load", refuse)
    with pytest.raises(OSError, match="no event loop"):
        server.serve()


def test_a_chat_program_plays_with_a_model_behind_the_responses_api():
    def say(body):
        text = {"type": "message", "content": [{"type": "output_text", "text": "do it\nObservation: no"}]}
        return {"id": "r", "object": "response", "status": "completed", "output": [text]}

    with StubServer(say) as stub:
        agent = OpenAIAgent("m", base_url=stub.base_url, api="responses", max_tokens=50)
        with agent, Server(agent, any_key=True) as server:
            program = Program(server)
            said = program.say(user("x"), stop=["Observation:"], max_tokens=99, reasoning_effort="low")
            program.chat(user("x"), code=400, input="y")
            program.reward()
        (sent,) = stub.requests
    assert said["content"] == "do it\n"
    assert set(sent) == {"model", "store", "input", "temperature", "max_output_tokens", "reasoning"}
    assert (sent["max_output_tokens"], sent["reasoning"]) == (50, {"effort": "low"})


@pytest.mark.parametrize("options", [{"api": "completions"}, {"tools": "text"}])
def test_a_model_that_gets_no_tools_is_not_told_to_call_one(options):
    with StubServer("x") as stub, OpenAIAgent("m", base_url=stub.base_url, **options) as agent:
        with Server(agent, any_key=True) as server:
            program = Program(server)
            more = {"tools": [TOOL], "parallel_tool_calls": True, "top_k": 3}
            program.say(user("x"), tool_choice="auto", **more)
            told = program.chat(user("x"), code=400, tool_choice="required", **more)["error"]["message"]
        (sent,) = stub.requests
    assert "leave it out" in told
    assert sent["top_k"] == 3
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & {*sent}


def test_a_refused_call_is_no_dead_server_where_a_model_thinks_before_its_answer():
    def answer(body):
        if body.get("max_tokens", 1000) < 64:
            return RawAnswer.error(400, "The output limit was reached. Try again with a higher max_tokens.")
        return RawAnswer.error(400, "flagged") if "bad" in json.dumps(body) else "hi"

    with (
        StubServer(answer) as stub,
        OpenAIAgent("m", base_url=stub.base_url) as agent,
        Server(agent, any_key=True) as server,
    ):
        program = Program(server)
        program.say(user("one"))
        program.chat(user("bad"), code=400)
        assert program.reward()["verdict"] == "scored"


@pytest.mark.parametrize("behind", [True, False])
def test_what_a_refused_call_cost_is_counted(behind):
    """Of its answers that a filter cut, and of the plain question that tells a refusal from a dead server."""
    paid, tries = Counter(), []

    def answer(body):
        said, usage = completion("hi"), {"prompt_tokens": 10, "completion_tokens": 1}
        if body["messages"][-1]["content"] == "bad":
            tries.append(body)
            if len(tries) > 1:
                return RawAnswer.error(400, "flagged")
            said, usage = completion("", "content_filter"), {"prompt_tokens": 1000, "completion_tokens": 500}
        paid.update(usage)
        return {**said, "usage": usage}

    with (
        StubServer(answer) as stub,
        OpenAIAgent("m", base_url=stub.base_url, backoff_s=0.001) as agent,
        Server(agent, any_key=True) as server,
    ):
        program = Program(server)
        program.say(user("one"))
        program.chat(user("bad"), code=400)
        if behind:
            program.say(user("two"))
        server.proxy.sessions["p1"].recording.price = lambda episode: str(spent_on([episode])["m"])
        assert (
            f"completion={paid['completion_tokens']}" in program.chat(user("x"), code=403)["error"]["message"]
        )
        program.reward()
        (episode,) = server.take()
    spent = spent_on([episode])["m"]
    assert len(episode.turns) == 1 + behind
    assert (spent.prompt, spent.completion) == (paid["prompt_tokens"], paid["completion_tokens"])
    assert spent.completion == 502 + behind
