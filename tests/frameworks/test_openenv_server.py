"""OpenEnv's own clients, and its own judge of servers, against gem's server."""

import asyncio
import threading

import pytest

openenv = pytest.importorskip("openenv")
pytestmark = [pytest.mark.framework, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

from openenv.cli._validation import validate_running_environment
from openenv.core import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient

import gem
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
