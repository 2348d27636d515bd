"""A real vLLM, on the processor: it samples for training, loads adapters and serves an exported model.

SmolLM2-135M is served in bfloat16, so its log probabilities differ from the trainer's by rounding.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, suppress
from statistics import fmean

import pytest
from waiting import until

pytest.importorskip("vllm", reason="`scripts/frameworks.py vllm`", exc_type=ImportError)
torch = pytest.importorskip("torch")
httpx = pytest.importorskip("httpx")

from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.token_server import TokenServerAgent
from gem.cli import main
from gem.content import Message
from gem.errors import AgentUnavailable, GemError
from gem.models import load_causal
from gem.record import Ask
from gem.rollout import EpisodeStore
from gem.statistics import mean_interval
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.train.config import TrainConfig
from gem.train.learn.policy import make_policy
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder
from tests.shared.own_model import commands, gem_gym, write_environment

pytestmark = [
    pytest.mark.framework,
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # vLLM brings packages of other versions
]
ENV = "game:GuessTheNumber-v0-easy"
NAME = "trained"
START_S = 900
"""Seconds for a server to start; a minute where the machine is free."""
VARIABLES = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "OMP_NUM_THREADS": "2",
}
ASKS = [
    Ask("e", "agent", 0, (Message("user", f"Guess a number from 1 to {n}."),), seed=n, max_tokens=8)
    for n in (5, 9, 20)
]


@contextmanager
def serve(folder, log, name=NAME):
    """Serve a model's folder; yield the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # The module, not the program `vllm`, which looks for its own name among the installed packages.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16"]
    command += ["--logprobs-mode", "processed_logprobs"]
    url = f"http://127.0.0.1:{port}"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, env=os.environ | VARIABLES, stdout=file, stderr=file, start_new_session=True
        ) as server,
    ):
        try:
            wait_for(server, url, log)
            yield url
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


def wait_for(server, url, log):
    def healthy():
        with suppress(httpx.HTTPError):
            return httpx.get(f"{url}/health", timeout=5).status_code == 200

    until(lambda: server.poll() is not None or healthy(), f"vLLM did not start: {log}", START_S)
    assert server.poll() is None, f"vLLM did not start: {log.read_text(errors='replace')[-3000:]}"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """SmolLM2 as a folder."""
    try:
        model, tokenizer = load_causal("smollm2")
    except GemError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("smollm2")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(base, tmp_path_factory):
    with serve(base, tmp_path_factory.mktemp("log") / "vllm.log") as url:
        yield url


def settings(base, out, url="", **changes):
    return TrainConfig(
        env=ENV,
        model=str(base),
        out=out,
        sampler=f"vllm:{url}" if url else "",
        **{
            "dtype": "bfloat16",
            "episodes": 80,
            "batch": 4,
            "minibatch": 4,
            "epochs": 1,
            "lr": 1e-3,
            "kl": 0.0,
            "warmup_steps": 0,
            "max_turns": 1,
            "max_tokens": 8,
            "eval_episodes": 4,
            "watch": 0,
            "threads": 0,
            "save_every": 20,
            "algorithm": "reinforce",
            "store": "tokens",
            **changes,
        },
    )


def test_answers_are_as_a_local_agent_gives_them(base, server):
    """Prompt, ids and log probabilities, with a prefix and a text that ends an answer."""
    model, tokenizer = load_causal(str(base))
    renderer = ChatTemplateRenderer(tokenizer)
    how = {"max_tokens": 8, "prefix": "The number", "stop": ("is",)}
    local = HuggingFaceAgent(model, renderer, **how)
    with TokenServerAgent(server, renderer, "vllm", **how) as agent:
        replies, same = agent(ASKS), local(ASKS)
        for reply, other in zip(replies, same, strict=True):
            assert reply.prompt_ids == other.prompt_ids
            assert reply.text.startswith("The number")
            assert "is" not in renderer.decode(reply.token_ids[:-1])
            ids = (*reply.prompt_ids, *reply.token_ids)
            with torch.no_grad():
                logp = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            start = len(reply.prompt_ids)
            mine = [float(logp[at - 1, ids[at]]) for at in range(start, len(ids))]
            assert reply.logprobs == pytest.approx(mine, abs=0.3)
            assert agent.logprobs(ids)[start - 1 :] == pytest.approx(mine, abs=0.3)


def test_twenty_iterations_with_an_adapter(base, server, tmp_path):
    """Every answer comes from the weights of its iteration, as the trainer knows them."""
    train(settings(base, tmp_path, server, lora_rank=4, answer_prefix="\\boxed{", stop=("}",)))
    history = RunFolder(tmp_path).history()
    assert [metrics.iteration for metrics in history] == list(range(1, 21))
    assert all(metrics.no_verdict == 0 and metrics.logprob_gap < 0.4 for metrics in history)
    assert fmean(metrics.logprob_gap for metrics in history) < 0.1  # both in bfloat16: 0.06
    with EpisodeStore(tmp_path / "episodes.jsonl", read_only=True) as store:
        turns = [turn for episode in store for turn in episode.turns]
    assert {turn.policy_version for turn in turns} == set(range(20))
    assert all(turn.action.startswith("\\boxed{") for turn in turns)
    assert len(list((tmp_path / "weights").iterdir())) == 1


def test_old_weights_are_refused(base, server, tmp_path, monkeypatch):
    policy = make_policy(settings(base, tmp_path, server))
    with policy.agent as agent:
        policy.publish(0)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(1.02)

        async def load(post, folder, label):
            await agent._tokens.relabel(post, label)

        monkeypatch.setattr(agent._tokens, "load", load)
        with pytest.raises(AgentUnavailable, match="confirmed version 1, but answers with older weights"):
            policy.publish(1)


def test_an_exported_model_is_served(base, tmp_path, capsys):
    """The chat endpoint shows the model the same ids, and its episodes are scored."""
    train(settings(base, tmp_path / "run", episodes=4, lora_rank=4))
    out = tmp_path / "model"
    assert main(["export", str(tmp_path / "run"), "--format", "hf", "--merge", "--out", str(out)]) == 0
    _, tokenizer = load_causal(str(out))
    said = [{"role": "user", "content": "Guess a number from 1 to 9."}]
    request = {"model": NAME, "messages": said, "max_tokens": 8, "return_token_ids": True}
    with serve(out, tmp_path / "vllm.log") as url:
        answer = httpx.post(f"{url}/v1/chat/completions", json=request, timeout=300).json()
        wanted = ChatTemplateRenderer(tokenizer).prompt((Message("user", said[0]["content"]),))
        assert tuple(answer["prompt_token_ids"]) == wanted
        agent = f"openai:{NAME}@{url}/v1"
        store = tmp_path / "eval"
        args = ["eval", ENV, "--agent", agent, "--episodes", "4", "--max-tokens", "8", "--out", str(store)]
        assert main(args) == 0
    with EpisodeStore(store / "episodes.jsonl", read_only=True) as episodes:
        assert [episode.scored for episode in episodes] == [True] * 4
    capsys.readouterr()
    shutil.rmtree(out)


def test_an_environment_in_a_file_is_measured_where_its_model_is_served(tmp_path):
    """The commands of docs/start/own_model.md: the served model scores as the local one."""
    write_environment(tmp_path)
    served, local = commands("eval", "served")
    (compare,) = commands("compare", "served")
    for words in (commands("train")[0], *commands("export")):
        gem_gym(tmp_path, words)
    with serve(tmp_path / "relay-model", tmp_path / "vllm.log", "relay") as url:
        gem_gym(tmp_path, [word.replace("http://127.0.0.1:8000", url) for word in served])
    gem_gym(tmp_path, local)
    rewards = []
    for name in ("local", "served"):
        with EpisodeStore(tmp_path / f"runs/{name}/episodes.jsonl", read_only=True) as store:
            rewards.append({episode.seed: episode.reward() for episode in store if episode.scored})
    assert len(rewards[0]) == 200
    assert rewards[0].keys() == rewards[1].keys()
    difference = mean_interval([rewards[1][seed] - rewards[0][seed] for seed in rewards[0]], level=0.99)
    assert difference.low <= 0 <= difference.high
    assert min(sum(each.values()) / 200 for each in rewards) > 0.8
    assert "relay.py" in gem_gym(tmp_path, compare)
