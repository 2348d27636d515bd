import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

vf = pytest.importorskip("verifiers.v1")
pytestmark = pytest.mark.framework

from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.loaders import environment_class, load_environment, taskset_class

import gem
from gem.adapters.verifiers import GemEnv, GemEnvConfig, GemTaskset, GemTasksetConfig
from gem.cli import main
from gem.errors import NoVerdict, UnknownEnv
from gem.testing.doubles import EchoEnv
from gem.testing.stub_server import StubServer, completion

ID = "verifiers-gem"  # the module in examples
needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="verifiers' harnesses start with uv")


class Broken(gem.Env):
    def reset(self, seed=None):
        super().reset(seed)
        return gem.Start("Say 1.", {})

    def step(self, action):
        raise NoVerdict("the sandbox is gone")


gem.register("verifiers-test:Echo-v0", EchoEnv)
gem.register("verifiers-test:Broken-v0", Broken)


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples/researcher")
    monkeypatch.setenv("GEM_TEST_KEY", "x")


def echoed(body):
    """Say the number that was asked for last; a wrong one on the second turn."""
    said = [message for message in body["messages"] if message["role"] == "user"]
    content = said[-1]["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    answer = "wrong" if len(said) == 2 else re.search(r"\d+", text)[0]
    return {**completion(answer), "id": "chat-1", "created": 1, "model": body["model"]}


def episodes(env, n=1, **settings):
    """Play tasks with verifiers' own loop, over a server on loopback."""
    taskset = {"id": ID, "env": env, "n": n, **settings}

    async def play(url):
        loaded = load_environment(GemEnvConfig(taskset=taskset))
        client = EvalClientConfig(base_url=url, api_key_var="GEM_TEST_KEY")
        context = ModelContext("model", client)
        async with loaded.serving():
            slots = [slot for task in loaded.taskset for slot in loaded.slots(task, 2)]
            return await asyncio.gather(*[loaded.run_slot(slot, context) for slot in slots])

    with StubServer(echoed) as server:
        return asyncio.run(play(server.base_url))


@needs_uv
@pytest.mark.slow
def test_an_episode_is_played_and_its_return_recorded():
    for episode in episodes("verifiers-test:Echo-v0"):
        assert episode.ok, episode.errors
        (trace,) = episode.traces
        assert trace.reward == pytest.approx(2 / 3)
        assert trace.info["gem"]["rewards"] == pytest.approx([1 / 3, 0, 1 / 3])
        assert trace.metrics["success"] == 0.0
        assert trace.num_turns == 3


@needs_uv
@pytest.mark.slow
def test_a_turn_limit_counts_with_what_was_earned():
    episode = episodes("verifiers-test:Echo-v0", turns=1)[0]
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    assert trace.reward == pytest.approx(1 / 3)
    assert trace.info["gem"] | {"rewards": None} == {
        "rewards": None,
        "stop": "turn_limit",
        "success": False,
        "truncated": True,
    }


@needs_uv
@pytest.mark.slow
def test_no_verdict_is_none_and_fails_the_rollout():
    for episode in episodes("verifiers-test:Broken-v0"):
        assert not episode.ok
        assert "sandbox is gone" in episode.errors[-1].message
        (trace,) = episode.traces
        assert trace.rewards == {"return": None}


def test_verifiers_finds_taskset_and_environment():
    assert taskset_class(ID) is GemTaskset
    assert environment_class(ID) is GemEnv


def test_tasks_are_the_same_for_the_same_seed():
    one, again = (GemTaskset(GemTasksetConfig(id=ID, n=3, seed=4)) for _ in range(2))
    assert [task.key for task in one] == [task.key for task in again]
    assert len({task.data.seed for task in one}) == 3
    assert [task.data.name for task in one.take(1)] == ["game:GuessTheNumber-v0-easy#0"]
    with pytest.raises(UnknownEnv):
        list(GemTaskset(GemTasksetConfig(id=ID, env="x:Y")))


@needs_uv
@pytest.mark.slow
def test_vf_eval_plays_an_exported_package(tmp_path):
    folder, target, out = tmp_path / "number-hunt", tmp_path / "installed", tmp_path / "out"
    assert main(["export", "game:GuessTheNumber-v0-easy", str(folder), "--format", "verifiers"]) == 0
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(target), str(folder)], check=True)

    def bisect(body):
        """Answer with the middle of what the environment has not ruled out."""
        low, high = 1, 10
        for number, message in enumerate(said := body["messages"]):
            if message["role"] == "assistant":
                guess = int(re.search(r"\d+", message["content"])[0])
                higher = "higher" in said[number + 1]["content"]
                low, high = (guess + 1, high) if higher else (low, guess - 1)
        answer = f"\\boxed{{{(low + high) // 2}}}"
        return {**completion(answer), "id": "chat-1", "created": 1, "model": body["model"]}

    with StubServer(bisect) as server:
        words = ["vf-eval", "number-hunt", "-n", "2", "-m", "model", "-o", str(out), "--no-push", "--no-rich"]
        place = ["--client.base-url", server.base_url, "--client.api-key-var", "GEM_TEST_KEY"]
        path = os.pathsep.join([str(target), os.environ.get("PYTHONPATH", "")])
        own = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([*words, *place], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (traces,) = out.glob("*/traces.jsonl")
    episodes = [json.loads(line) for line in traces.read_text().splitlines()]
    played = [trace for episode in episodes for trace in episode.get("traces", [episode])]
    assert len(played) == 2
    for trace in played:
        assert trace["metrics"] == {"success": 1.0}
        assert trace["rewards"]["return"]["score"] == pytest.approx(1.0)
        assert trace["task"]["data"]["env"] == "game:GuessTheNumber-v0-easy"
