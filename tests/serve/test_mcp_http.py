"""Episodes of MCP's clients at the environment server: who reaches which, and that each is played once."""

import json

import httpx
import pytest

from gem.rollout.store import EpisodeStore
from gem.serve.environments import app

TOKEN = "0123456789abcdef"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
SESSION = "mcp-session-id"


class Client:
    """A client of MCP at an address."""

    def __init__(self, url, **headers):
        self.url, self.headers = url, headers

    def send(self, message, **headers):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return httpx.post(self.url, content=body, headers={**self.headers, **headers})

    def ask(self, method, **params):
        return self.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    def call(self, name, **arguments):
        return self.ask("tools/call", name=name, arguments=arguments).json()["result"]

    def act(self, text):
        return self.call("act", action=text)["content"][-1]["text"]

    def shake_hands(self):
        answer = self.ask("initialize", protocolVersion="2025-06-18")
        assert answer.json()["result"]["protocolVersion"] == "2025-06-18"
        self.headers[SESSION] = answer.headers[SESSION]
        return self


@pytest.fixture
def store(tmp_path):
    with EpisodeStore(tmp_path / "episodes.jsonl") as store:
        yield store


def opened(server, seed=3, **headers):
    answer = httpx.post(server.url + "/served:Obeying/episodes", json={"seed": seed}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_handshake_opens_an_episode_that_is_played_once(serving, store):
    server = serving(store=store)
    one, other = Client(server.url + "/mcp").shake_hands(), Client(server.url + "/mcp").shake_hands()
    assert one.headers != other.headers
    assert [one.act(text)[:3] for text in ("one", "two")] == ["one", "two"]
    assert other.act("his")[:3] == "his"
    assert "is over" in one.act("end")
    again = one.ask("initialize", protocolVersion="2025-06-18")
    assert SESSION not in again.headers  # the same episode
    assert "cannot be played again" in one.act("more")
    assert one.call("observe")["content"][0]["text"].startswith("end")
    assert other.act("goes on")[:4] == "goes"
    assert [episode.scored for episode in store] == [True]
    assert [turn.action for turn in store[0].turns] == ["one", "two", "end"]
    assert len(server.application.sessions) == 2


def test_an_address_is_the_key_of_one_episode_and_of_nothing_else(serving, store, connected):
    server = serving("served:Obeying", "served:Waiting", store=store, token=TOKEN)
    assert httpx.post(server.url + "/served:Obeying/episodes", json={}).status_code == 401
    one, other = opened(server, 3, **OPERATOR), opened(server, 4, **OPERATOR)
    key = one["url"].rpartition("/")[2]
    client = Client(one["url"])
    tools = [tool["name"] for tool in client.ask("tools/list").json()["result"]["tools"]]
    assert tools == ["observe", "act", "echo"]
    client.act("first")
    assert client.ask("openenv/session/create").json()["error"]["code"] == -32601
    for path in ("/mcp", "/reset", "/step", "/served:Obeying/episodes", "/metrics/mcp/x", f"/{key}"):
        for headers in ({}, {SESSION: key}, {"Authorization": f"Bearer {key}"}):
            answer = httpx.post(server.url + path, json={"session_id": key}, headers=headers)
            assert answer.status_code == 401, (path, headers)
    for wrong in (key[:-1], key + "x", "%2e%2e", ""):
        answer = httpx.post(f"{server.url}/served:Obeying/mcp/{wrong}", content=b"{}")
        assert answer.status_code in (401, 404), wrong
    elsewhere = Client(f"{server.url}/served:Waiting/mcp/{key}")
    assert elsewhere.ask("tools/list").status_code == 404
    assert Client(other["url"]).act("second")[:6] == "second"
    assert [client.act(text)[:3] for text in ("two", "end")] == ["two", "The"]
    assert [(each.seed, len(each.turns)) for each in store] == [(3, 3)]
    assert one["id"] == store[0].id


def test_the_other_protocols_cannot_reset_the_episode_of_a_key(serving, connected):
    server = serving()  # without a token: everybody on this machine may use it
    client = Client(opened(server)["url"])
    session = Client(server.url + "/mcp").shake_hands()
    client.act("one")
    for key in (client.url.rpartition("/")[2], session.headers[SESSION]):
        for path, body in (("/reset", {}), ("/step", {"action": {"text": "x"}})):
            answer = httpx.post(server.url + path, json={"session_id": key, **body})
            assert (answer.status_code, "no such session" in answer.text) == (422, True)
        assert (
            "no such session"
            in connected(server, f"/ws?session_id={key}").error({"type": "reset"})["message"]
        )
        call = {"name": "echo", "arguments": {}, "session_id": key}
        assert "no such session" in Client(server.url + "/mcp").ask("tools/call", **call).text
        assert httpx.get(server.url + "/state", params={"session_id": key}).status_code == 422
    assert client.act("two")[:3] == "two"
    assert "is over" in client.act("end")


def test_the_end_of_a_session_is_the_end_of_its_episode(serving, store, until):
    server = serving(store=store)
    client = Client(server.url + "/mcp").shake_hands()
    client.act("one")
    assert httpx.delete(server.url + "/mcp", headers=client.headers).status_code == 204
    assert client.ask("tools/list").status_code == 404
    assert httpx.delete(server.url + "/mcp", headers=client.headers).status_code == 404
    assert [(each.stop, each.scored) for each in store] == [("time_limit", True)]
    keyed = opened(server)["url"]
    assert httpx.delete(keyed).status_code == 405  # only whoever opened it can end it
    assert httpx.get(keyed).status_code == 405
    assert httpx.get(server.url + "/mcp").status_code == 405
    assert len(server.application.sessions) == 1


def test_a_server_that_lost_a_record_tells_the_client_and_says_so_at_its_end(serving, store):
    server = serving(store=store)
    client = Client(opened(server)["url"])
    store.close()
    assert [client.act(text)[:3] for text in ("one", "two")] == ["one", "two"]
    assert "could not be written" in client.act("end")
    assert "records_lost_total 1" in httpx.get(server.url + "/metrics").text
    server.stop()
    server.thread.join(20)
    assert str(server.failure) == "1 records of episodes could not be written; the log says why."


def test_an_unused_episode_is_scored_when_its_lease_ends(serving, store, until, monkeypatch):
    monkeypatch.setattr(app, "REAP_S", 0.01)
    server = serving(store=store)
    client = Client(opened(server)["url"])
    client.act("one")
    for session in server.application.sessions._sessions.values():
        session.touched -= 2 * server.application.limits.lease_s
    until(lambda: len(store) == 1, "the lease did not end")
    assert (store[0].stop, store[0].scored, len(store[0].turns)) == ("time_limit", True, 1)
    assert client.ask("tools/list").status_code == 404


def test_a_server_that_ends_gives_no_verdict(serving, store):
    server = serving(store=store, limits={"drain_s": 0.1})
    client = Client(opened(server)["url"])
    client.act("one")
    server.stop()
    server.thread.join(20)
    assert [(each.stop, each.scored) for each in store] == [("cancelled", False)]


def test_wrong_requests_are_told_what_is_wrong(serving):
    server = serving("served:Obeying", "multi:ConnectFour-v0", limits={"message_bytes": 1000, "sessions": 1})
    for body in ({"seed": -1}, {"seed": True}, {"seed": "3"}, {"sed": 3}):
        assert httpx.post(server.url + "/served:Obeying/episodes", json=body).status_code == 422, body
    assert len(server.application.sessions) == 0
    several = Client(server.url + "/multi:ConnectFour-v0/mcp").ask("initialize")
    assert (several.status_code, "several seats" in several.json()["error"]["message"]) == (422, True)
    client = Client(opened(server)["url"])
    full = Client(server.url + "/mcp").ask("initialize")
    assert (full.status_code, "its maximum" in full.json()["error"]["message"]) == (503, True)
    long = client.send({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * 1000}})
    assert (long.status_code, long.json()["error"]["code"]) == (413, -32600)
    assert client.send(b"{").status_code == 400
    assert client.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}]).status_code == 200  # of 2025-03-26
    version = {"mcp-protocol-version": "2025-06-18"}
    assert client.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], **version).status_code == 400
    assert client.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert client.send(b"{}", **{"mcp-protocol-version": "2019-01-01"}).status_code == 400
    assert client.send(b"{}", Origin="https://evil.example").status_code == 403
    assert client.send(b"{}", Host="evil.example").status_code == 421
    assert Client(server.url + "/mcp", **{SESSION: "x"}).ask("ping").status_code == 404
    assert client.act("still there")[:5] == "still"


def test_a_full_server_keeps_the_episodes_of_agents_that_think(serving, monkeypatch):
    monkeypatch.setattr("gem.serve.environments.sessions.FORSAKEN_S", 0.0)
    server = serving(limits={"sessions": 2})
    client = Client(opened(server)["url"])
    assert httpx.post(server.url + "/reset", json={}).status_code == 200
    assert httpx.post(server.url + "/reset", json={}).status_code == 200  # in the place of the one before
    assert client.act("still there")[:5] == "still"


def test_only_a_handshake_opens_an_episode(serving):
    server = serving()
    client = Client(server.url + "/mcp")
    client.send({"jsonrpc": "2.0", "method": "initialize"})
    client.send({"jsonrpc": "1.0", "id": 1, "method": "initialize"})
    client.send([{"jsonrpc": "2.0", "id": 1, "method": "initialize"}])
    client.send({"jsonrpc": "2.0", "id": None, "method": "initialize"})
    handshake = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    for params in ([], 7, "x"):
        assert SESSION not in client.send({**handshake, "params": params}).headers
    assert client.send({**handshake, "params": {}}, **{"mcp-protocol-version": "1"}).status_code == 400
    assert len(server.application.sessions) == 0


def test_a_store_that_cannot_be_written_stops_no_server(serving, store, until, caplog):
    store.close()
    server = serving(store=store, limits={"lease_s": 0.2})
    for _ in range(2):  # the one that looks for leases goes on
        opened(server)
        until(lambda: len(server.application.sessions) == 0, "the lease did not end")
    assert "is lost" in caplog.text


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_a_limit_of_steps_and_an_environment_that_breaks(serving, store, backend):
    server = serving(store=store, backend=backend, limits={"steps": 2})
    first, second = Client(opened(server)["url"]), Client(opened(server)["url"])
    first.act("one")
    assert "is over" in first.act("two")
    assert "broke" in second.act("secret")
    assert {(each.stop, each.scored) for each in store} == {("turn_limit", True), ("error", False)}
    assert server.application.sessions.running == 0
    assert server.application.metrics["no_verdict_total"] == 1
