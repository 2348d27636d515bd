"""A server that confirms new weights and does not use them is found out."""

import socket

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("httpx")

from model_folders import write_folder
from token_server import TokenServer
from transformers import AutoModelForCausalLM

from gem.errors import AgentUnavailable
from gem.train.config import TrainConfig
from gem.train.learn.policy import make_policy
from gem.train.learn.training import train
from gem.train.report.watcher import Watcher

both = pytest.mark.parametrize("protocol", ["vllm", "sglang"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("model"))


class Stubborn(TokenServer):
    """Confirms each publish; while `deaf` is set it keeps the weights that it has."""

    deaf = False

    def load(self, folder):
        if not self.deaf:
            super().load(folder)


def serve(folder, protocol):
    return Stubborn(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), protocol)


def make(folder, out, server):
    sampler = f"{server.protocol}:{server.url}"
    config = TrainConfig(model=str(folder), out=out, dtype="float32", sampler=sampler, threads=0)
    return make_policy(config)


def test_a_server_that_is_not_there_is_said_before_anything_is_measured(folder, tmp_path):
    with socket.socket() as bound:  # nobody listens there
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        config = TrainConfig(
            model=str(folder), out=tmp_path, dtype="float32", sampler=f"vllm:{url}", threads=0
        )
        stages = []
        watcher = Watcher()
        watcher.stage = stages.append
        with pytest.raises(AgentUnavailable, match=f"^no server answers at {url}; start it there"):
            train(config, watcher=watcher)
        assert stages == []


def move(policy, by=0.01):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=generator))


@both
@pytest.mark.system
def test_stale_weights_are_refused(folder, tmp_path, protocol):
    with serve(folder, protocol) as server:
        policy = make(folder, tmp_path, server)
        with policy.agent:
            for version in range(3):
                policy.publish(version)
                move(policy)
            server.deaf = True
            with pytest.raises(
                AgentUnavailable, match=r"confirmed version 3, but answers with older weights"
            ):
                policy.publish(3)


def test_weights_that_stay_stale_are_refused_once_the_difference_shows(folder, tmp_path):
    """A change that is smaller than rounding shows nothing; the sum of several does."""
    with serve(folder, "vllm") as server:
        policy = make(folder, tmp_path, server)
        with policy.agent:
            policy.publish(0)
            server.deaf = True
            move(policy, 3e-8)
            policy.publish(1)
            move(policy, 1e-4)
            with pytest.raises(AgentUnavailable, match="since version 0 the trainer's"):
                policy.publish(2)


def test_weights_that_do_not_change_are_no_error(folder, tmp_path):
    with serve(folder, "vllm") as server:
        policy = make(folder, tmp_path, server)
        with policy.agent:
            for version in range(3):
                policy.publish(version)
            assert policy.agent.policy_version == 2


def test_another_model_is_refused(folder, tmp_path):
    with serve(folder, "vllm") as server:
        move(policy := make(folder, tmp_path, server), 0.5)
        server.deaf = True
        with policy.agent, pytest.raises(AgentUnavailable, match="serves another model"):
            policy.publish(0)


def test_a_server_that_scores_nothing_is_told(folder, tmp_path):
    with serve(folder, "vllm") as server:
        server.scored = lambda prompt: []
        with make(folder, tmp_path, server).agent as agent:
            policy = make(folder, tmp_path, server)
            with policy.agent, pytest.raises(AgentUnavailable, match="but it cannot be checked"):
                policy.publish(0)
            assert agent.policy_version is None


def test_the_first_process_alone_publishes(folder, tmp_path, monkeypatch):
    from gem.train.learn import parallel

    with serve(folder, "vllm") as server:
        policy = make(folder, tmp_path, server)
        monkeypatch.setattr(parallel, "rank", lambda: 1)
        with policy.agent:
            policy.publish(4)
        assert server.paths() == []
        assert policy.agent.policy_version == 4
    assert not (tmp_path / "weights").exists()
