"""OpenEnv's protocol, spoken by hand."""

import json

import httpx
import pytest
from served_envs import Obeying
from websockets.exceptions import ConnectionClosed, InvalidStatus

import gem
from gem.errors import BadArgument, UnknownEnv
from gem.serve.environments import ServeLimits
from gem.serve.environments.server import EnvironmentServer


def post(server, path, status=200, **body):
    answer = httpx.post(server.url + path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_an_episode_is_what_it_is_here(serving, connected):
    client = connected(serving("game:GuessTheNumber-v0-easy"))
    env = gem.make("game:GuessTheNumber-v0-easy")
    start = client.reset(seed=3)
    assert start["observation"]["text"] == env.reset(seed=3).obs
    assert (start["reward"], start["done"], start["metadata"]["seed"]) == (None, False, 3)
    for guess in range(1, 20):
        there, here = client.step(f"\\boxed{{{guess}}}"), env.step(f"\\boxed{{{guess}}}")
        assert (there["observation"]["text"], there["reward"], there["done"]) == (
            here.obs,
            here.reward,
            here.done,
        )
        if here.done:
            break
    assert there["metadata"]["verdict"] == "scored"
    assert there["metadata"]["stop"] == here.info["stop"]
    assert client.data({"type": "state"})["step_count"] == guess


def test_each_id_has_a_path_and_the_first_is_at_the_root(serving, connected):
    server = serving("game:Hangman-v0-easy", "game:GuessTheNumber-v0-easy")
    at_root, by_id = connected(server), connected(server, "/game:GuessTheNumber-v0-easy/ws")
    assert at_root.reset(seed=1)["metadata"]["env_id"] == "game:Hangman-v0-easy"
    assert by_id.reset(seed=1)["metadata"]["env_id"] == "game:GuessTheNumber-v0-easy"
    assert httpx.get(server.url + "/list_environments").json() == [
        "game:Hangman-v0-easy",
        "game:GuessTheNumber-v0-easy",
    ]
    with pytest.raises(InvalidStatus):
        connected(server, "/game:Sudoku-v0-easy/ws")


@pytest.mark.parametrize("env_id", ["served:Obeying", "served:Waiting"])
@pytest.mark.parametrize("action", ["secret", "broken", "argument", "nan", "error"])
def test_an_episode_without_verdict_has_no_reward(serving, connected, env_id, action):
    client = connected(serving(env_id))
    client.reset(seed=1)
    end = client.step(action)
    assert (end["reward"], end["done"]) == (None, True)
    assert end["metadata"]["verdict"] == "none"
    assert end["metadata"]["stop"] == "error"
    assert "/etc/secret-path" not in json.dumps(end)
    assert client.error({"type": "step", "data": {"text": "x"}})["code"] == "EXECUTION_ERROR"
    assert client.reset(seed=1)["observation"]["text"].startswith("start ")
    assert client.step("x")["reward"] == 1 / 8


def test_truncation_and_its_reason_stand_in_the_metadata(serving, connected):
    client = connected(serving(limits={"steps": 2}))
    client.reset(seed=1)
    end = client.step("cut")
    assert (end["reward"], end["done"]) == (0.5, True)
    assert (end["metadata"]["truncated"], end["metadata"]["stop"]) == (True, "token_limit")
    client.reset(seed=1)
    assert not client.step("x")["done"]
    end = client.step("x")
    assert (end["reward"], end["done"]) == (2 / 8, True)
    assert (end["metadata"]["truncated"], end["metadata"]["stop"]) == (True, "turn_limit")
    assert "is over" in client.error({"type": "step", "data": {"text": "x"}})["message"]


def test_pictures_and_half_characters_cross(serving, connected):
    client = connected(serving())
    client.reset(seed=1)
    seen = client.step("picture")["observation"]
    assert seen["text"] == "see\n[a cat]"
    assert seen["parts"][1] == {"type": "image", "mime": "image/png", "data": "iVBORw==", "alt": "[a cat]"}
    assert client.step("surrogate")["observation"]["text"] == "half ?"
    assert client.step("\ud800")["observation"]["text"].startswith("? ")


def test_tool_actions_become_text(serving, connected):
    client = connected(serving())
    client.reset(seed=1)
    listed = client.data({"type": "step", "data": {"type": "list_tools"}})
    assert listed["observation"]["tools"][0]["name"] == "echo"
    called = {"type": "call_tool", "tool_name": "echo", "arguments": {"it": "<tool_call>"}}
    seen = client.data({"type": "step", "data": called})["observation"]["text"]
    assert seen.startswith('<tool_call>{"name": "echo", "arguments": {"it": "')
    called["arguments"] = None
    seen = client.data({"type": "step", "data": called})["observation"]["text"]
    assert seen.startswith('<tool_call>{"name": "echo", "arguments": {}}')
    called["tool_name"] = "rm"
    assert "there are: echo" in client.error({"type": "step", "data": called})["message"]


@pytest.mark.parametrize(
    ("message", "code", "why"),
    [
        ("{", "INVALID_JSON", "truncated"),
        ('{"data": {"a": ' + "[" * 100_000, "INVALID_JSON", "invalid JSON"),
        (b'{"type": "\xff"}', "INVALID_JSON", "utf-8"),
        ("[]", "VALIDATION_ERROR", "object"),
        ('{"type": 3}', "VALIDATION_ERROR", "str"),
        ('{"type": "step", "data": 3}', "VALIDATION_ERROR", "object"),
        ({"type": "fly"}, "UNKNOWN_TYPE", "fly"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR", "nothing"),
        ({"type": "step", "data": {"message": "x"}}, "VALIDATION_ERROR", "message"),
        ({"type": "step", "data": {"text": 3}}, "VALIDATION_ERROR", "accepted"),
        ({"type": "step", "data": {"text": "x"}}, "EXECUTION_ERROR", "before step"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"seed": True}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"seed": "3"}}, "VALIDATION_ERROR", "seed"),
        ({"type": "reset", "data": {"episode_id": "x" * 256}}, "VALIDATION_ERROR", "255"),
        ({"type": "reset", "data": {"length": 9}}, "VALIDATION_ERROR", "listed: none"),
    ],
)
@pytest.mark.system
def test_a_wrong_message_is_told_what_is_wrong(serving, connected, message, code, why):
    client = connected(serving())
    told = client.error(message)
    assert told["code"] == code
    assert why in told["message"]
    assert client.reset(seed=1)["done"] is False


def test_listed_keywords_make_another_environment(serving, connected):
    client = connected(serving(keywords=["length"]))
    client.reset(seed=1, length=1)
    assert client.step("x")["done"]
    closed = len(Obeying.closed)
    client.reset(seed=1)
    assert len(Obeying.closed) == closed + 1
    assert not client.step("x")["done"]


@pytest.mark.system
def test_http_has_sessions_and_answers_a_request_once(serving):
    server = serving()
    start = post(server, "/reset", seed=1, episode_id="mine")
    session = start["metadata"]["session_id"]
    assert start["metadata"]["episode_id"] == "mine"
    first = post(server, "/step", action={"text": "x"}, session_id=session, request_id="r1")
    assert post(server, "/step", action={"text": "x"}, session_id=session, request_id="r1") == first
    assert httpx.get(server.url + f"/state?session_id={session}").json()["step_count"] == 1
    second = post(server, "/step", action={"text": "x"}, session_id=session, request_id="r2")
    assert second["metadata"]["info"]["turn"] == 2
    assert server.application.metrics["answers_repeated_total"] == 1
    post(server, "/reset", session_id=session, seed=1)
    assert "session_id" in post(server, "/step", 422, action={"text": "x"})["detail"]
    assert "no such session" in post(server, "/step", 422, action={"text": "x"}, session_id="y")["detail"]
    assert "object" in post(server, "/step", 422, action="x", session_id=session)["detail"]
    assert "over" in post(server, "/step", 409, action={"text": "x"}, session_id=_ended(server))["detail"]
    assert httpx.post(server.url + "/reset", content=b"{").status_code == 422


def _ended(server):
    session = post(server, "/reset", seed=1)["metadata"]["session_id"]
    for _ in range(3):
        post(server, "/step", action={"text": "x"}, session_id=session)
    return session


def test_the_same_request_over_the_web_socket_is_answered_from_memory(serving, connected):
    client = connected(serving())
    client.reset(seed=1)
    step = {"type": "step", "data": {"text": "x"}, "request_id": "a"}
    assert client.data(step) == client.data(step)
    assert client.data({"type": "state"})["step_count"] == 1


def test_each_episode_numbers_its_requests_anew(serving, connected):
    server = serving("math:Arithmetic-v0-easy")
    client, env = connected(server), gem.make("math:Arithmetic-v0-easy")
    for seed in (1, 1, 2):
        reset = {"type": "reset", "data": {"seed": seed}, "request_id": "0"}
        start = client.data(reset)
        assert start["observation"]["text"] == env.reset(seed=seed).obs
        assert client.data(reset) == start  # episode_id too: it began no other
        step = {"type": "step", "data": {"text": env.solve()}, "request_id": "1"}
        assert client.data(step)["reward"] == 1
        assert client.data(step)["reward"] == 1
    session = None
    for seed in (1, 2):
        start = post(server, "/reset", seed=seed, **({"session_id": session} if session else {}))
        session = start["metadata"]["session_id"]
        env.reset(seed=seed)
        step = {"session_id": session, "action": {"text": env.solve()}, "request_id": "1"}
        assert post(server, "/step", **step)["reward"] == 1
    step["action"] = {"text": "something else"}
    assert "'1' was used in this episode" in post(server, "/step", 422, **step)["detail"]


def test_a_request_id_stands_for_one_request(serving, connected):
    client = connected(serving())
    reset = {"type": "reset", "data": {}, "request_id": "a"}
    first = client.data(reset)
    for other in ({"type": "state", "data": {}}, {"type": "step", "data": {"text": "x"}}):
        told = client.error({**other, "request_id": "a"})
        assert told["code"] == "VALIDATION_ERROR"
        assert "'a' was used in this episode" in told["message"]
    assert client.data({"type": "state"})["step_count"] == 0
    step = {"type": "step", "data": {"text": "x", "metadata": {"k": 1, "l": 2}}, "request_id": "b"}
    seen = client.data(step)
    step["data"] = {"metadata": {"l": 2, "k": 1}, "text": "x"}  # the order of keys means nothing
    assert client.data(step) == seen
    assert client.data(reset)["metadata"]["episode_id"] != first["metadata"]["episode_id"]
    assert client.data(step)["metadata"]["info"]["turn"] == 1


def test_a_step_is_not_taken_again_after_its_answer_is_gone(serving, connected):
    client = connected(serving())
    client.reset(seed=1)
    steps = [{"type": "step", "data": {"text": "x"}, "request_id": f"r{number}"} for number in range(3)]
    for step in steps:
        client.data(step)
    for again in (steps[0], {**steps[0], "data": {"text": "y"}}, {"type": "state", "request_id": "r0"}):
        assert "'r0' was used in this episode before the last 2 requests" in client.error(again)["message"]
    assert client.data({"type": "state"})["step_count"] == 3
    client.reset(seed=1)
    assert client.data(steps[0])["metadata"]["info"]["turn"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1, "episode_id": "other"},
        {"seed": -1, "length": 9},
        {"seed": 2, "length": -1},
        {"seed": 2, "width": 9},
    ],
)
@pytest.mark.parametrize("env_id", ["served:Obeying", "served:Waiting"])
def test_a_refused_reset_leaves_the_episode_as_it_was(serving, connected, env_id, wrong):
    client = connected(serving(env_id, keywords=["length"]))
    env = Obeying(length=2)
    client.reset(seed=1, length=2)
    env.reset(seed=1)
    client.step("x")
    env.step("x")
    before = client.data({"type": "state"})
    assert client.error({"type": "reset", "data": wrong})["code"] == "VALIDATION_ERROR"
    assert client.data({"type": "state"}) == before
    end, here = client.step("y"), env.step("y")
    assert (end["observation"]["text"], end["done"]) == (here.obs, here.done)
    closed = len(Obeying.closed)
    client.reset(seed=1, length=2)
    assert len(Obeying.closed) == closed, "it was made again for nothing"


def test_a_refused_index_leaves_the_episode_as_it_was(serving, connected):
    client = connected(serving("qa:Facts-v0-easy"))
    client.reset(index=3)
    before = client.data({"type": "state"})
    for index in (10**6, -1, "3", True):
        assert "has tasks 0 to" in client.error({"type": "reset", "data": {"index": index}})["message"]
    assert client.data({"type": "state"}) == before
    assert client.step("x")["done"]


def test_what_openenv_asks_of_a_server_is_there(serving):
    server = serving()
    assert httpx.get(server.url + "/health").json() == {"status": "healthy"}
    assert set(httpx.get(server.url + "/schema").json()) == {"action", "observation", "state"}
    assert httpx.get(server.url + "/metadata").json()["name"] == "served:Obeying"
    assert {"/reset", "/step", "/state"} <= set(httpx.get(server.url + "/openapi.json").json()["paths"])
    assert "gem_sessions 0" in httpx.get(server.url + "/metrics").text


def test_a_session_ends_with_its_connection(serving, connected, until):
    server = serving()
    sessions = server.application.sessions
    for end in ({"type": "close"}, None):
        client = connected(server)
        client.reset(seed=1)
        assert len(sessions) == 1
        if end:
            client.socket.send(json.dumps(end))
            with pytest.raises(ConnectionClosed):
                client.socket.recv(20)
        else:
            client.socket.socket.close()
        until(lambda: len(sessions) == 0, "the session stayed")


def test_what_cannot_be_served_is_told_at_the_start():
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        EnvironmentServer(["game:GuessTheNumbr-v0-easy"], port=0)
    with pytest.raises(BadArgument, match="no environment was named"):
        EnvironmentServer([], port=0)
    with pytest.raises(BadArgument, match="a token is needed"):
        EnvironmentServer(["served:Obeying"], host="0.0.0.0", port=0)
    with pytest.raises(BadArgument, match="16 or more"):
        EnvironmentServer(["served:Obeying"], port=0, token="short")
    with pytest.raises(BadArgument, match="cannot listen"):
        EnvironmentServer(["served:Obeying"], host="192.0.2.1", port=0, token="x" * 16)
    with pytest.raises(BadArgument, match="backend is 'threads'"):
        EnvironmentServer(["served:Obeying"], port=0, backend="threads")
    with pytest.raises(BadArgument, match="rate is 0"):
        ServeLimits(rate=0)


def test_several_seats_are_for_gems_clients_alone(serving, connected):
    server = serving("multi:ConnectFour-v0")
    assert "several seats" in connected(server).error({"type": "reset"})["message"]
    assert "several seats" in post(server, "/reset", 422)["detail"]
    assert "several seats" in rpc(server, "openenv/session/create", -32602)


def rpc(server, method, error=None, **params):
    answer = post(server, "/mcp", jsonrpc="2.0", id=1, method=method, params=params)
    if error is not None:
        assert answer["error"]["code"] == error
        return answer["error"]["message"]
    return answer["result"]


def test_mcp_calls_are_steps_of_a_session(serving, connected):
    server = serving()
    assert [tool["name"] for tool in rpc(server, "tools/list")["tools"]] == ["echo"]
    session = rpc(server, "openenv/session/create")["session_id"]
    called = {"name": "echo", "arguments": {"it": "x"}, "session_id": session}
    first, second = rpc(server, "tools/call", **called), rpc(server, "tools/call", **called)
    assert first["data"].startswith('<tool_call>{"name": "echo"')
    assert first["structuredContent"]["reward"] == 1 / 8
    assert second["structuredContent"]["reward"] == 2 / 8
    attached = connected(server, f"/ws?session_id={session}")
    assert attached.data({"type": "state"})["step_count"] == 2
    assert (
        "another web socket"
        in connected(server, f"/ws?session_id={session}").error({"type": "state"})["message"]
    )
    assert rpc(server, "openenv/session/close", session_id=session)["closing"]
    attached.socket.close()
    alone = rpc(server, "tools/call", name="echo", arguments={})
    assert alone["structuredContent"]["reward"] == 1 / 8


def test_a_plain_client_of_mcp_calls_the_tools(serving):
    pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")
    from gem.tools.mcp_tool import MCPTool

    tool = MCPTool({"mcpServers": {"served": {"url": serving().url + "/mcp"}}})
    assert [each["name"] for each in tool.get_available_tools()] == ["observe", "act", "echo"]
    assert tool.call_tool("served", "observe", {}).text.startswith("start")
    for turn in range(2):
        assert tool.call_tool("served", "echo", {"it": f"x{turn}"}).text.startswith("<tool_call>")
    assert "episode is over" in tool.call_tool("served", "act", {"action": "last"}).text
    assert "cannot be played again" in tool.call_tool("served", "act", {"action": "one more"}).text
    tool.close()


def test_mcp_says_what_is_wrong(serving, until):
    server = serving()
    assert httpx.post(server.url + "/mcp", content=b"{").json()["error"]["code"] == -32700
    assert post(server, "/mcp")["error"]["code"] == -32600
    assert "Method not found" in rpc(server, "resources/list", -32601)
    assert "there are: echo" in rpc(server, "tools/call", -32602, name="rm")
    half = b'{"jsonrpc": "2.0", "id": 1, "method": "\\ud800"}'
    assert "Method not found: ?" in httpx.post(server.url + "/mcp", content=half).text
    unnamed = post(server, "/mcp", jsonrpc="2.0", id="a")
    assert (unnamed["id"], unnamed["error"]["code"]) == ("a", -32600)
    assert "no such session" in rpc(server, "tools/call", -32602, name="echo", session_id="x")
    assert "no such session" in rpc(server, "openenv/session/close", -32602)
    notified = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    answer = httpx.post(server.url + "/mcp", json=notified)
    assert (answer.status_code, answer.content) == (202, b"")
    until(lambda: len(server.application.sessions) == 0, "a session stayed")


def test_mcp_takes_any_id_of_json_rpc_and_answers_no_answer(serving):
    server = serving()
    ping = {"jsonrpc": "2.0", "method": "ping"}
    for number in (7, "7", 7.5, None):
        answer = {"jsonrpc": "2.0", "id": number, "result": {}}
        assert post(server, "/mcp", **ping, id=number) == answer
        assert post(server, "/mcp", **ping, id=number, params=None) == answer
        assert post(server, "/mcp", method="ping", id=number) == answer
    for wrong in ({"id": True}, {"id": {}}, {"id": 7, "jsonrpc": "1.0"}, {"id": 7, "params": []}):
        assert post(server, "/mcp", **ping | wrong)["error"]["code"] == -32600, wrong
    for unanswered in (ping, {"jsonrpc": "2.0", "id": 7, "result": {}}):
        answer = httpx.post(server.url + "/mcp", json=unanswered)
        assert (answer.status_code, answer.content) == (202, b""), unanswered
    unknown = post(server, "/mcp", jsonrpc="2.0", method="resources/list")
    assert (unknown["id"], unknown["error"]["code"]) == (None, -32601)


def test_mcp_over_a_web_socket_has_a_session_of_its_own(serving, connected):
    client = connected(serving(), "/mcp")
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "echo"}}
    assert [client.ask(call)["result"]["structuredContent"]["reward"] for _ in range(2)] == [1 / 8, 2 / 8]


def test_tasks_are_listed_without_their_answers(serving, connected):
    server = serving("qa:Facts-v0-easy", "served:Obeying")
    path = "/qa:Facts-v0-easy"
    total = post(server, path + "/num_tasks", split="all")["num_tasks"]
    env = gem.make("qa:Facts-v0-easy")
    assert total == len(env.tasks)
    assert httpx.get(server.url + path + "/splits").json() == [{"name": "all", "type": "validation"}]
    task = post(server, path + "/task", split="all", index=3)["task"]
    assert (task["text"], task["index"]) == (env.tasks[3].question, 3)
    assert set(task) == {"id", "index", "text"}
    assert post(server, path + "/task_range", split="all", start=3, stop=4)["tasks"] == [task]
    assert len(post(server, path + "/tasks", split="all")["tasks"]) == min(total, 1000)
    assert "tasks 0 to" in post(server, path + "/task", 422, split="all", index=total)["detail"]
    assert "there is 'all'" in post(server, path + "/task", 422, split="train", index=0)["detail"]
    assert "whole numbers" in post(server, path + "/task_range", 422, split="all", start="a")["detail"]
    assert "no list of tasks" in post(server, "/served:Obeying/num_tasks", 501, split="all")["detail"]
    client = connected(server)
    assert client.reset(split="all", index=3)["observation"]["text"] == env.reset(idx=3).obs
    assert "tasks 0 to" in client.error({"type": "reset", "data": {"index": total}})["message"]
