"""One episode as an MCP server: its messages, its tools, and that it is played once."""

import asyncio
import base64
import json
from functools import partial

import httpx
import pytest
from served_envs import Obeying

import gem
from gem.content import Image, ToolCall
from gem.core import Env, Start, Step
from gem.errors import BadArgument, StoreError
from gem.record import Limits, Reply
from gem.rollout.conversation import Conversation
from gem.rollout.store import EpisodeStore
from gem.sandbox.choice import has_sandbox
from gem.serve.mcp import EpisodeServer
from gem.serve.mcp.messages import HANDSHAKES, Endpoint

GUESS = "game:GuessTheNumber-v0-easy"


def played(env, talk, seed=3, **options):
    """Play an episode by `talk`, a coroutine function that is given the server and its endpoint."""

    async def run():
        server = EpisodeServer(env, seed, **options)
        try:
            await talk(server, Endpoint(server))
        finally:
            await server.close()
        return server.episode

    return asyncio.run(run())


async def ask(endpoint, method, version=None, **params):
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.loads(await endpoint.answer(json.dumps(message).encode(), version))


async def call(endpoint, name, **arguments):
    answer = await ask(endpoint, "tools/call", name=name, arguments=arguments)
    return answer.get("result") or answer["error"]


def texts(result):
    return [part["text"] for part in result["content"]]


def act(text):
    return {"name": "act", "arguments": {"action": text}}


def guess(number):
    return f"\\boxed{{{number}}}"


async def play_out(endpoint):
    """Guess until the episode is over, and return the last result."""
    for number in (5, 8, 6, 7):
        result = await call(endpoint, "act", action=guess(number))
        if len(result["content"]) > 1:
            return result
    return result


def test_an_episode_is_observed_and_played_as_in_a_conversation():
    observed = []

    async def talk(server, endpoint):
        observed.append(await call(endpoint, "observe"))
        await call(endpoint, "act", action=guess(5))
        observed.append(await call(endpoint, "observe"))
        await play_out(endpoint)

    episode = played(GUESS, talk)
    with Conversation(GUESS, 3) as other:
        first = other.asks[0].messages[0].content
        (second,) = (asks[0].messages[-1].content for asks in [other.answer(guess(5))])
        for number in (5, 8, 6, 7):
            if other.asks:
                other.answer(guess(number))
    assert [texts(each) for each in observed] == [[first], [first, second]]
    assert episode.transcript_hash() == other.episode.transcript_hash()
    assert episode.scored
    assert episode.task == other.episode.task


def test_an_episode_is_over_for_ever_and_tells_no_reward(tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:

        async def talk(server, endpoint):
            last = await play_out(endpoint)
            assert "is over" in texts(last)[-1]
            assert "eward" not in json.dumps(last)
            assert not last["isError"]
            count = server.actions
            for other in (endpoint, Endpoint(server)):  # a client that connects again
                await ask(other, "initialize", protocolVersion=HANDSHAKES[-1])
                again = await call(other, "act", action=guess(1))
                assert again["isError"]
                assert "cannot be played again" in texts(again)[-1]
                assert "is over" in texts(await call(other, "observe"))[-1]
                for name in ("reset", "start"):
                    assert "there is no tool" in (await call(other, name, seed=4))["message"]
            await server.start()
            server.leave()
            server.cancel()
            assert server.actions == count

        episode = played(GUESS, talk, store=store)
        assert len(store) == 1
        assert store[0].transcript_hash() == episode.transcript_hash()
        assert store[0].reward() == episode.reward()


def test_the_reward_is_told_where_it_is_asked_for():
    async def talk(server, endpoint):
        last = await play_out(endpoint)
        assert texts(last)[-1].endswith(f"Reward: {server.episode.reward():g}.")

    played(GUESS, talk, show_reward=True)


@pytest.mark.skipif(not has_sandbox(), reason="needs a sandbox")
def test_native_tools_are_offered_and_written_as_native_calls():
    async def talk(server, endpoint):
        tools = (await ask(endpoint, "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == ["observe", "act", "sql", "submit"]
        assert all(tool["inputSchema"]["type"] == "object" for tool in tools)
        names = [spec.name for spec in server._own_tools]
        assert names == ["sql", "submit"]
        result = await call(endpoint, "sql", **arguments)
        assert texts(result) == [expected]

    env = gem.make("db:Bank-v0-operations")
    sql = next(tool for tool in env.tool_specs if tool.name == "sql")
    arguments = {next(iter(sql.schema["properties"])): "SELECT count(*) FROM accounts"}
    with Conversation(env, 3) as other:
        (asked,) = other.answer(Reply("", tool_calls=(ToolCall("call_1", "sql", json.dumps(arguments)),)))
        expected = asked.messages[-1].text
    episode = played("db:Bank-v0-operations", talk)
    assert episode.turns[0].action == other.episode.turns[0].action


class Clashing(Env):
    """Has tools of the names that the server uses."""

    tool_specs = (
        gem.content.ToolSpec("act", "Its own."),
        gem.content.ToolSpec("observe", "Its own, too.", {"properties": {}}),
        gem.content.ToolSpec("env_act", "Another."),
    )

    def reset(self, seed=None):
        super().reset(seed)
        return Start("begin", {})

    def step(self, action):
        return Step(action, 1.0, True, False, {})


def test_tools_of_the_servers_names_get_others():
    async def talk(server, endpoint):
        tools = (await ask(endpoint, "tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in tools] == [
            "observe",
            "act",
            "env_env_act",
            "env_observe",
            "env_act",
        ]
        await call(endpoint, "env_env_act", it=1)

    episode = played(Clashing(), talk)
    assert episode.turns[0].action == '<tool_call>{"name": "act", "arguments": {"it": 1}}</tool_call>'


def test_pictures_are_image_content():
    async def talk(server, endpoint):
        first = await call(endpoint, "observe")
        (picture,) = (part for part in obs if isinstance(part, Image))
        shown = [part for part in first["content"] if part["type"] == "image"]
        assert [(base64.b64decode(each["data"]), each["mimeType"]) for each in shown] == [
            (picture.data, picture.mime)
        ]
        result = await call(endpoint, "act", action=guess(1))
        assert "is over" in texts(result)[-1]

    pytest.importorskip("PIL", reason="needs pillow: pip install 'gem-gym[vision]'")
    obs = gem.make("vision:Charts-v0-easy").reset(seed=3).obs
    played("vision:Charts-v0-easy", talk)


VERSIONS = [(each, each) for each in HANDSHAKES] + [("2019-01-01", HANDSHAKES[-1]), (None, HANDSHAKES[-1])]


def test_versions_are_negotiated():
    async def talk(server, endpoint):
        for asked, answered in VERSIONS:
            result = (await ask(endpoint, "initialize", protocolVersion=asked))["result"]
            assert result["protocolVersion"] == endpoint.version == answered
            assert result["capabilities"] == {"tools": {}}
            assert GUESS not in json.dumps(result)  # an agent that knows id and seed could play it elsewhere
        discovered = (await ask(endpoint, "server/discover"))["result"]
        assert discovered["supportedVersions"] == [*HANDSHAKES, "2026-07-28"]
        meta = {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
        error = (await ask(endpoint, "tools/list", _meta=meta))["error"]
        assert (error["code"], error["data"]["requested"]) == (-32022, "2031-01-01")
        assert not server.episode.turns  # a handshake begins nothing
        assert (await ask(endpoint, "ping"))["result"] == {}

    played(GUESS, talk)


REFUSED = [
    (b"{", -32700),
    (b"\xff\xfe", -32700),
    (b'{"a": "\\ud800"}', -32600),
    (b"[" * 100_000, -32700),
    (b"", -32700),
    (b"3", -32600),
    (b"[]", -32600),
    (b"[" + b"1," * 100 + b"1]", -32600),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600),
    (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "x", "params": null}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create"}', -32601),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}', -32602),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": []}}', -32602),
    (
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "act", "arguments": 3}}',
        -32602,
    ),
]
UNANSWERED = [
    b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": {}}}',
    b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "act", "arguments": {"action": "x"}}}',
    b'{"jsonrpc": "2.0", "id": 9, "result": {}}',
]
WRONG_CALLS = [
    {"name": "act", "arguments": {}},
    {"name": "act", "arguments": {"action": 3}},
    {"name": "act", "arguments": {"action": "x", "seed": 3}},
    {"name": "observe", "arguments": {"reset": True}},
    {"name": "reset"},
    {"name": "", "arguments": {}},
    {"name": "__class__", "arguments": {}},
]


def test_what_is_no_request_is_refused_and_changes_nothing():
    async def talk(server, endpoint):
        for text, code in REFUSED:
            assert json.loads(await endpoint.answer(text))["error"]["code"] == code, text[:80]
        for text in UNANSWERED:
            assert await endpoint.answer(text) is None, text
        for params in WRONG_CALLS:
            assert (await ask(endpoint, "tools/call", **params))["error"]["code"] == -32602, params
        assert server.actions == 0
        assert not (await call(endpoint, "act", action=guess(5)))["isError"]

    played(GUESS, talk)


def test_batches_are_answered_where_the_version_has_them():
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}

    async def talk(server, endpoint):
        batch = json.dumps([ping, note, {**ping, "id": 2}, 3]).encode()
        answers = json.loads(await endpoint.answer(batch, "2025-03-26"))
        assert [each["id"] for each in answers] == [1, 2, None]
        assert await endpoint.answer(json.dumps([note]).encode()) is None
        refused = json.loads(await endpoint.answer(batch, "2025-06-18"))
        assert "has no batches" in refused["error"]["message"]

    played(GUESS, talk)


def test_a_call_that_is_cancelled_before_its_turn_is_not_played():
    def request(number, text):
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": act(text)}

    async def talk(server, endpoint):
        await call(endpoint, "observe")
        texts_of = [request(7, "wait"), request(8, "never"), request(9, "last")]
        tasks = [asyncio.create_task(endpoint.answer(json.dumps(each).encode())) for each in texts_of]
        while not server.lock.locked():
            await asyncio.sleep(0)
        for number in (7, 8, "9", 10):
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
            assert await endpoint.answer(json.dumps(cancel).encode()) is None
        assert (await ask(endpoint, "ping"))["result"] == {}  # while the environment is busy
        Obeying.gate.set()
        first, second, third = await asyncio.gather(*tasks)
        assert first is second is None  # the first was played; its client wants no answer
        assert json.loads(third)["id"] == 9

    Obeying.gate.clear()
    try:
        episode = played(Obeying(), talk)
    finally:
        Obeying.gate.clear()
    assert [turn.action for turn in episode.turns if turn.action] == ["wait", "last"]


@pytest.mark.parametrize(("action", "stop"), [("secret", "error"), ("nan", "error"), ("broken", "error")])
def test_an_environment_that_breaks_gives_no_verdict_and_no_secrets(action, stop, caplog):
    async def talk(server, endpoint):
        result = await call(endpoint, "act", action=action)
        assert result["isError"]
        assert "broke" in texts(result)[-1]
        assert "secret" not in json.dumps(result)
        assert "broke" in texts(await call(endpoint, "act", action="x"))[-1]
        assert (await call(endpoint, "observe"))["isError"]

    episode = played(Obeying(), talk)
    assert (episode.stop, episode.scored) == (stop, False)


def test_an_environment_that_hangs_gives_no_verdict():
    async def talk(server, endpoint):
        result = await call(endpoint, "act", action="wait")
        assert "broke" in texts(result)[-1]
        Obeying.gate.set()

    Obeying.gate.clear()
    episode = played(Obeying(), talk, limits=Limits(call_s=0.2))
    Obeying.gate.clear()
    assert (episode.error.boundary, episode.error.type) == ("host", "WorkerDied")


def test_an_agent_that_leaves_is_scored_and_a_limit_cuts():
    async def leave(server, endpoint):
        await call(endpoint, "act", action=guess(5))
        server.leave()
        assert "is over" in texts(await call(endpoint, "act", action=guess(6)))[-1]

    async def go_on(server, endpoint):
        for number in (1, 2, 3):
            last = await call(endpoint, "act", action=guess(number))
        assert last["isError"]

    left, cut = played(GUESS, leave), played(GUESS, go_on, limits=Limits(turns=2))
    assert (left.stop, left.scored, left.truncated, len(left.turns)) == ("time_limit", True, True, 1)
    assert (cut.stop, cut.scored, len(cut.turns)) == ("turn_limit", True, 2)


def test_actions_of_any_text_are_kept_as_they_are():
    hostile = ["\x00\x1b]0;x\x07", "</tool_call>" * 3, '{"seed": 4}', "x" * 100_000, ""]

    async def talk(server, endpoint):
        for text in hostile:
            assert not (await call(endpoint, "act", action=text))["isError"]
        deep = json.loads("[" * 500 + "]" * 500)
        await call(endpoint, "echo", it=deep)

    episode = played(Obeying(length=9), talk)
    assert [turn.action for turn in episode.turns[: len(hostile)]] == hostile


def test_the_text_of_all_actions_is_limited(monkeypatch):
    async def talk(server, endpoint):
        for text, error in (("x" * 60, ""), ("x" * 41, "40 are left"), ("x" * 40, ""), ("x", "0 are left")):
            answer = await call(endpoint, "act", action=text)
            assert error in answer.get("message", ""), text
        assert "characters at most" in (await call(endpoint, "echo", it="x"))["message"]
        assert server.actions == 2

    monkeypatch.setattr("gem.serve.mcp.episode.TEXT_AT_MOST", 100)
    played(Obeying(length=9), talk)


def test_what_no_json_holds_is_an_internal_error(caplog):
    class Unwritable(Obeying):
        tool_specs = (gem.content.ToolSpec("half\ud800", ""), gem.content.ToolSpec("sets", "", {"enum": {1}}))

    async def talk(server, endpoint):
        error = (await ask(endpoint, "tools/list"))["error"]
        assert (error["code"], "surrogates" in error["message"]) == (-32603, False)
        assert "content" in await call(endpoint, "act", action="x")

    played(Unwritable(), talk)


def test_the_log_has_no_control_characters_of_an_agent(caplog):
    class Quoting(Obeying):
        def step(self, action):
            raise ValueError(action)

    async def talk(server, endpoint):
        await call(endpoint, "act", action="\x1b]0;mine\x07")

    played(Quoting(), talk)
    assert "mine" in caplog.text
    assert "\x1b" not in caplog.text


def test_calls_at_the_same_time_are_limited(monkeypatch):
    async def talk(server, endpoint):
        await server.start()
        answers = await asyncio.gather(*[call(endpoint, "act", action=str(n)) for n in range(5)])
        assert ["content" in each for each in answers] == [True, True, False, False, False]
        assert "in progress" in answers[-1]["message"]
        assert "content" in await call(endpoint, "act", action="then")

    monkeypatch.setattr("gem.serve.mcp.messages.IN_FLIGHT", 2)
    episode = played(Obeying(length=9), talk)
    assert [turn.action for turn in episode.turns if turn.action] == ["0", "1", "then"]


def test_a_record_that_cannot_be_written_is_no_matter_of_the_agent(tmp_path, caplog):
    store = EpisodeStore(tmp_path / "episodes.jsonl")
    store.close()

    async def talk(server, endpoint):
        last = await play_out(endpoint)
        assert not last["isError"]
        assert "is over" in texts(last)[-1]
        assert "could not be written" in texts(last)[-1]
        assert isinstance(server.unwritten, StoreError)

    played(GUESS, talk, store=store)
    assert "is lost" in caplog.text


def test_an_application_of_ones_own_serves_an_episode():
    pytest.importorskip("starlette", reason="needs starlette: pip install 'gem-gym[serve]'")
    from starlette.applications import Starlette
    from starlette.routing import Route

    from gem.serve.mcp.http import answer_request

    async def talk(server, endpoint):
        route = Route("/mcp", partial(answer_request, endpoint, message_bytes=1000), methods=["GET", "POST"])
        transport = httpx.ASGITransport(Starlette(routes=[route]))
        async with httpx.AsyncClient(transport=transport, base_url="http://gem") as client:
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            assert (await client.post("/mcp", json=ping)).json()["result"] == {}
            assert (await client.post("/mcp", json={**ping, "params": {"x": "x" * 1000}})).status_code == 413
            assert (await client.get("/mcp")).status_code == 405

    played(GUESS, talk)


def test_what_cannot_be_served_is_told():
    with pytest.raises(BadArgument, match="several seats"):
        EpisodeServer("multi:ConnectFour-v0", 3)
    with pytest.raises(BadArgument, match="seed"):
        EpisodeServer(GUESS, -1)
