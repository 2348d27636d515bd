"""NeMo Gym's agent, model server and resources server, a process each, play episodes on loopback."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

os.environ["NEMO_GYM_EXTRA_ROOTS"] = sysconfig.get_path("purelib")  # else it puts that at the end of sys.path
pytest.importorskip("nemo_gym", reason="`scripts/frameworks.py nemo_gym`")
pytestmark = pytest.mark.framework

import httpx
import resources_servers.gymnasium
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.server_utils import BaseServerConfig, ServerClient
from omegaconf import OmegaConf

import gem
from gem.adapters.nemo_gym import GemServer, write_rows
from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument, NoVerdict
from gem.rollout import Job, rollout_async
from gem.testing.doubles import EchoEnv
from gem.testing.stub_server import StubServer

ROOT = Path(__file__).parents[2]
GAME, BANK = "game:GuessTheNumber-v0-easy", "db:Bank-v0-operations"
PACKAGE = Path(resources_servers.gymnasium.__file__).parents[2]
PLAYER, MODEL = "responses_api_agents/gymnasium_agent", "responses_api_models/openai_model"
PROGRAMS = {
    "gem": ("resources_servers", "gem", ROOT / "examples/researcher" / "nemo_gym_app.py"),
    "agent": (*PLAYER.split("/"), PACKAGE / PLAYER / "app.py"),
    "model": (*MODEL.split("/"), PACKAGE / MODEL / "app.py"),
}


class Broken(gem.Env):
    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("Say 1.", {})

    def step(self, action):
        raise NoVerdict("the sandbox is gone")


gem.register("nemo-test:Broken-v0", Broken)
gem.register("nemo-test:Echo-v0", EchoEnv)


def response(*output, **changes):
    made = {"id": "r", "created_at": 0, "model": "m", "object": "response", "status": "completed"}
    made |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": list(output)}
    return made | changes


def message(text):
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}


def call(name, number, **arguments):
    given = {"name": name, "arguments": json.dumps(arguments), "call_id": f"call-{number}"}
    return {"type": "function_call", "id": f"f{number}", "status": "completed", **given}


def tasks(folder, env, seeds=(0,), **settings):
    folder.mkdir(exist_ok=True)
    path = folder / "tasks.jsonl"
    write_rows(path, env, seeds, **settings)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def run():
    """Start the three servers over a model; return what plays a row."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in PROGRAMS]
    ports = {name: each.getsockname()[1] for name, each in zip(PROGRAMS, sockets, strict=True)}
    for each in sockets:
        each.close()
    started = []

    def begin(model):
        own = {
            "gem": {"domain": "games"},
            "agent": {
                "resources_server": {"type": "resources_servers", "name": "gem"},
                "model_server": {"type": "responses_api_models", "name": "model"},
                "max_steps": 20,
            },
            "model": {"openai_base_url": model.base_url, "openai_api_key": "x", "openai_model": "m"},
        }
        place = {name: {"host": "127.0.0.1", "port": port} for name, port in ports.items()}
        config = {"head_server": {"host": "127.0.0.1", "port": 1}, "dry_run": False} | {
            name: {kind: {each: {"entrypoint": "app.py"} | place[name] | own[name]}}
            for name, (kind, each, _) in PROGRAMS.items()
        }
        for name, (_, _, program) in PROGRAMS.items():
            named = {"NEMO_GYM_CONFIG_DICT": json.dumps(config), "NEMO_GYM_CONFIG_PATH": name}
            started.append(subprocess.Popen([sys.executable, program], env={**os.environ, **named}))
        with httpx.Client(transport=httpx.HTTPTransport(retries=9), trust_env=False) as waiting:
            for port in ports.values():  # it asks again for two minutes
                waiting.get(f"http://127.0.0.1:{port}/health").raise_for_status()
        url = f"http://127.0.0.1:{ports['agent']}/run"
        return lambda row: httpx.post(url, json=row, timeout=120, trust_env=False)

    yield begin
    for each in started:
        each.terminate()
    for each in started:
        each.wait(30)


def bisected(body):
    """Answer with the middle of what the environment has not ruled out."""
    low, high = 1, 10
    for number, item in enumerate(said := body["input"]):
        if item.get("role") == "assistant":
            guess = int(re.search(r"\d+", item["content"][0]["text"])[0])
            higher = "higher" in said[number + 1]["content"]
            low, high = (guess + 1, high) if higher else (low, guess - 1)
    return response(message(f"\\boxed{{{(low + high) // 2}}}"))


def answered(body):
    """Guess by bisection; call the tools of a database; say nothing when asked to do so."""
    names = {tool["name"] for tool in body["tools"]}
    if not names:
        return bisected(body)
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    if body["input"][0].get("content") == "be silent":
        return response(status="incomplete", incomplete_details={"reason": "content_filter"})
    made = call("submit", 1) if outputs else call("sql", 0, query="SELECT count(*) AS n FROM sqlite_master")
    assert made["name"] in names
    return response(made)


@pytest.mark.slow
def test_its_agent_plays_episodes_and_their_returns_are_gems(run, tmp_path):
    rows = tasks(tmp_path / "game", GAME, range(3))
    (bank,) = tasks(tmp_path / "bank", BANK)
    silent = bank | {"responses_create_params": bank["responses_create_params"] | {"input": "be silent"}}
    with StubServer(answered) as model:
        play = run(model)
        played = [play(row).json() for row in rows]
        banked, lost = play(bank).json(), play(silent)
    for row, done in zip(rows, played, strict=True):
        assert (done["terminated"], done["info"]) == (True, {"stop": "solved", "success": True})
        said = [item["content"][0]["text"] for item in done["response"]["output"] if item.get("id") == "m"]
        job = Job(GAME, json.loads(row["task"])["seed"])
        (here,) = asyncio.run(rollout_async([job], ScriptedAgent(said)))
        assert done["reward"] == pytest.approx(here.reward())
    kinds = [item["type"] for item in banked["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "function_call"]
    assert (
        '"n"' in banked["response"]["output"][1]["output"] or "n" in banked["response"]["output"][1]["output"]
    )
    assert (banked["reward"], banked["terminated"], banked["info"]["success"]) == (0.0, True, False)
    assert lost.status_code == 500
    assert "content_filter" in lost.text


@pytest.fixture
def client():
    config = BaseResourcesServerConfig(host="", port=0, entrypoint="", name="gem", domain="games")
    known = ServerClient(
        head_server_config=BaseServerConfig(host="", port=0), global_config_dict=OmegaConf.create()
    )
    server = GemServer(config=config, server_client=known)
    with TestClient(server.setup_webserver()) as client:
        client.server = server
        yield client


def begin(client, row):
    return client.post("/reset", json=row).json()


def step(client, text, **more):
    given = {"responses_create_params": {"input": []}, "response": response(message(text))} | more
    return client.post("/step", json=given).json()


def number(text):
    return re.search(r"\d+", text)[0]


def test_a_repeated_request_is_not_a_second_turn(client, tmp_path):
    (row,) = tasks(tmp_path / "a", "nemo-test:Echo-v0")
    asked = begin(client, row)
    assert asked["info"] == {"supports_explicit_close": True, "supports_step_idempotency": True}
    first = step(client, number(asked["observation"]), _ng_step_request_id="1")
    assert first["reward"] == pytest.approx(1 / 3)
    assert step(client, "other", _ng_step_request_id="1") == first
    second = step(client, "wrong", _ng_step_request_id="2")
    assert (second["reward"], second["terminated"]) == (0.0, False)
    last = step(client, number(second["observation"]), _ng_step_request_id="3")
    assert (last["reward"], last["terminated"]) == (pytest.approx(1 / 3), True)
    assert step(client, "x", _ng_step_request_id="3") == last
    with pytest.raises(BadArgument, match="episode is over"):
        step(client, "x", _ng_step_request_id="4")
    client.post("/close", json={})
    assert not client.server.session_state
    with pytest.raises(BadArgument, match="no episode"):
        step(client, "x")


def test_sessions_have_episodes_of_their_own_and_close_them(client, tmp_path):
    (row,) = tasks(tmp_path / "a", "nemo-test:Echo-v0", turns=1)
    begin(client, row)
    (session,) = client.server.session_state.values()
    begin(client, row)  # a client that lost the answer asks again
    assert session.talk.done
    done = step(client, "x")
    assert (done["truncated"], done["info"]["stop"]) == (True, "turn_limit")
    client.cookies.clear()
    begin(client, row)
    assert len(client.server.session_state) == 2


def test_no_verdict_is_an_error_and_no_reward(client, tmp_path):
    (row,) = tasks(tmp_path / "a", "nemo-test:Broken-v0")
    begin(client, row)
    with pytest.raises(NoVerdict, match="sandbox is gone"):
        step(client, "1")


def test_rows_that_are_no_tasks_are_named(client, tmp_path):
    (row,) = tasks(tmp_path / "a", "nemo-test:Echo-v0")
    for wrong in (None, "{", 3):
        with pytest.raises(BadArgument, match="not a task of an episode"):
            begin(client, row | {"task": wrong})
    with pytest.raises(BadArgument, match="already exists"):
        tasks(tmp_path / "a", "nemo-test:Echo-v0")
