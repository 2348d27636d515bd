"""OpenEnv's own clients, and its own judge of servers, against gem's server."""

import asyncio
import socket
import subprocess
import sys
import threading

import pytest

openenv = pytest.importorskip("openenv")
pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from types import SimpleNamespace

import httpx
import uvicorn
from openenv.cli._validation import validate_running_environment
from openenv.core import GenericEnvClient
from openenv.core.env_server import Action, Environment, Observation, State
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.mcp_client import MCPToolClient
from openenv.validation.graders.runtime.basic import (
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan, RuntimeReset
from openenv.validation.types import CheckStatus

import gem
from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument, NoVerdict, WorkerDied
from gem.record import Verdict
from gem.rollout import Job, Runner
from gem.serve.environments.server import EnvironmentServer

TOOLS = "db:Bank-v0-operations"
ENV = "game:GuessTheNumber-v0-easy"


@pytest.fixture
def server():
    server = EnvironmentServer([ENV, "game:Hangman-v0-easy", TOOLS], port=0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.stop()
    thread.join(20)


def test_its_judge_passes_the_server(server):
    report = validate_running_environment(server.url)
    assert report["passed"], [each for each in report["criteria"] if not each["passed"]]
    assert report["mode"] == "simulation"


def test_its_client_plays_the_episode_that_is_played_here(server):
    env = gem.make(ENV)
    with GenericEnvClient(base_url=server.url).sync() as client:
        assert client.reset(seed=5).observation["text"] == env.reset(seed=5).obs
        done = False
        while not done:
            action = env.sample_random_action()
            there, here = client.step({"text": action}), env.step(action)
            assert (there.observation["text"], there.reward, there.done) == (here.obs, here.reward, here.done)
            done = here.done
        assert there.metadata["stop"] == here.info["stop"]
        assert client.state()["step_count"] > 0


def test_its_client_is_told_what_is_wrong(server):
    with GenericEnvClient(base_url=server.url).sync() as client:
        with pytest.raises(RuntimeError, match="before step"):
            client.step({"text": "x"})
        client.reset(seed=1)
        with pytest.raises(RuntimeError, match=r"accepted: \{\"text\""):
            client.step({"message": "x"})
        assert client.step({"text": "\\boxed{3}"}).done is False


def test_many_of_its_clients_play_at_the_same_time(server):
    async def play(seed):
        async with GenericEnvClient(base_url=f"{server.url}/game:Hangman-v0-easy") as client:
            start = await client.reset(seed=seed)
            await client.step({"text": "\\boxed{e}"})
            return start.metadata["seed"], (await client.state())["step_count"]

    async def play_all():
        return await asyncio.gather(*map(play, range(16)))

    assert asyncio.run(play_all()) == [(seed, 1) for seed in range(16)]


def test_its_client_of_tools_calls_them_in_the_episode_it_began(server):
    async def call():
        async with MCPToolClient(base_url=f"{server.url}/{TOOLS}") as client:
            await client.reset(seed=1)
            tools = await client.list_tools()
            said = await client.call_tool(tools[0].name)
            return [tool.name for tool in tools], said, (await client.state()).step_count

    names, said, steps = asyncio.run(call())
    assert names == [tool.name for tool in gem.make(TOOLS).tool_specs]
    assert isinstance(said, str)
    assert steps == 1


class Guess(Action):
    number: int


class Seen(Observation):
    message: str = ""


class Counting(Environment):
    """Somebody else's environment: guess three, no reward before the end."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        return Seen(message=f"seed {seed}", done=False, reward=None)

    def step(self, action, timeout_s=None, **kwargs):
        if action.number == 13:
            raise RuntimeError("a secret of the server")
        if action.number == 99:
            return Seen(message="broken", done=True, reward=None)
        return Seen(
            message=f"{action.number}", done=action.number == 3, reward=1.0 if action.number == 3 else None
        )

    @property
    def state(self):
        return State()


@pytest.fixture
def theirs():
    """A server of OpenEnv's own; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_fastapi_app(Counting, Guess, Seen, max_concurrent_envs=8)
    served = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=served.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    served.should_exit = True
    thread.join(20)
    listening.close()


def test_its_own_servers_are_environments_here(theirs):
    with gem.make(f"openenv:{theirs}") as env:
        assert env.reset(seed=4).obs == "seed 4"
        assert env.step("2")[:4] == ("2", 0.0, False, False)
        assert "is to be of type integer" in env.step("two").obs
        assert "was refused" in env.step('{"number": "x"}').obs
        assert env.step('{"number": 3}')[:4] == ("3", 1.0, True, False)
        for action in ("13", "99"):
            env.reset(seed=4)
            with pytest.raises(NoVerdict):
                env.step(action)
        env.reset(seed=5)


def test_a_runner_plays_episodes_on_its_servers(theirs):
    with Runner(ScriptedAgent(["1", "3"]), host="thread") as runner:
        played = runner.play([Job(f"openenv:{theirs}", seed=seed) for seed in range(4)])
    assert [episode.verdict for episode in played] == [Verdict.SCORED] * 4
    assert [turn.reward for turn in played[0].turns] == [0.0, 1.0]


def test_its_graders_of_the_wire_pass_an_episode(server):
    env = gem.make(ENV)
    env.reset(seed=5)
    actions = []
    while True:
        actions.append({"text": env.sample_random_action()})
        if env.step(actions[-1]["text"]).done:
            break
    plan = RuntimePlan(
        plan_schema_version="1", reset=RuntimeReset(seed=5, episode_id="judged"), actions=actions
    )
    evidence = collect_runtime_evidence(server.url, plan, episode_timeout_s=30)
    assert evidence.failure_reason is None
    manifest = SimpleNamespace(reward=SimpleNamespace(range=(0.0, 1.0)))
    subject = SimpleNamespace(runtime_evidence=evidence, manifest=manifest)
    for grader in (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader()):
        result = grader.run(subject)
        assert result.status is CheckStatus.PASS, result


def test_a_folder_that_openenv_init_made_is_served_and_played(tmp_path, monkeypatch):
    words = [sys.executable, "-c", "from openenv.cli.__main__ import main; main()", "init", "say_again"]
    subprocess.run([*words, "--output-dir", str(tmp_path)], check=True, capture_output=True, timeout=120)
    (folder,) = (path.parent for path in tmp_path.rglob("openenv.yaml"))
    with gem.make(f"openenv:{folder}") as env:
        env.reset(seed=1)
        step = env.step("hello there")
        assert "hello there" in str(step.obs)
        url = env.unwrapped.url
        again = gem.make(f"openenv:{folder}")
        again.reset(seed=1)
        assert again.unwrapped.url != url  # each has a server of its own
        again.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url + "/health", trust_env=False)


def test_a_folder_without_an_environment_is_named(tmp_path):
    with pytest.raises(BadArgument, match=r"no folder with an openenv\.yaml"):
        gem.make(f"openenv:{tmp_path}")
    (tmp_path / "openenv.yaml").write_text("name: x\n")
    with pytest.raises(BadArgument, match="names no app"):
        gem.make(f"openenv:{tmp_path}")
    (tmp_path / "openenv.yaml").write_text("app: server.app:app\n")
    with gem.make(f"openenv:{tmp_path}") as env, pytest.raises(WorkerDied, match="gone"):
        env.reset(seed=1)
