"""What of playing on Ray is so without Ray; tests/frameworks/test_ray.py plays on a cluster."""

import pickle
import sys

import pytest

from gem.agents.named import AgentByName, AgentSettings
from gem.agents.random import RandomAgent
from gem.errors import BadArgument, MissingExtra
from gem.hosts import make_host
from gem.hosts.ray_cluster import Node, Nodes, reserves
from gem.rollout import RayRunner
from gem.specs import Needs


@pytest.fixture
def no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)


@pytest.mark.usefixtures("no_ray")
def test_without_ray_the_pip_line_is_told():
    with pytest.raises(MissingExtra, match=r"pip install .*\[ray\]"):
        RayRunner("random")


def test_a_host_on_ray_is_refused_with_what_to_use():
    with pytest.raises(BadArgument, match=r"gem\.rollout\.RayRunner.*`gem-gym serve`.*'remote:"):
        make_host("ray")


@pytest.mark.parametrize(
    "name", ["random", "solver", "openai:m", "openai:m@http://10.0.0.1/v1", "hf:x", "smollm2"]
)
def test_an_agent_by_name_is_known_before_it_is_made(name):
    agent = AgentByName(name, AgentSettings(temperature=0.0))
    assert pickle.loads(pickle.dumps(agent)) == agent
    assert agent.info.model == ("m" if name.startswith("openai") else None)


def test_an_agent_by_name_is_made():
    assert isinstance(AgentByName("random").make(), RandomAgent)
    for name in ("nobody", "openai:", "hf:", ""):
        with pytest.raises(BadArgument, match=r"accepted: random, solver, openai:MODEL"):
            AgentByName(name)


def test_what_no_node_could_give_is_refused():
    for wrong in ({"cores": -1}, {"memory_mb": float("nan")}, {"resources": {"kvm": float("inf")}}):
        with pytest.raises(BadArgument, match="accepted: 0 or more"):
            Needs(**wrong)


class Three:
    """A cluster of three nodes."""

    def nodes(self):
        kinds = ({"CPU": 4.0, "memory": 2**32}, {"CPU": 2.0, "memory": 2**31, "kvm": 1.0}, {"memory": 2**40})
        return [Node(str(number), str(number), resources) for number, resources in enumerate(kinds)]


def test_room_is_what_others_leave():
    nodes = Nodes(Three())
    nodes.look()
    one = reserves(Needs(), 8)
    assert nodes.fitting(one, []) == {"0": 4, "1": 2, "2": 0}
    assert nodes.fitting(one, [("0", one), ("0", one), ("gone", one)]) == {"0": 2, "1": 2, "2": 0}
    assert nodes.whole(reserves(Needs(memory_mb=512), 4)) == 2 + 1
    assert nodes.fitting(reserves(Needs(resources={"kvm": 1.0}), 1), []) == {"0": 0, "1": 1, "2": 0}
    assert nodes.fitting(reserves(Needs(cores=0.0), 1), []) == {"0": 1, "1": 1, "2": 1}


def test_a_node_is_left_alone_after_a_loss_and_longer_when_it_is_silent():
    nodes = Nodes(Three())
    nodes.look()
    assert nodes.record_loss("0", silent=True)
    assert not nodes.record_loss("1", silent=False)
    assert nodes.record_loss("gone", silent=False)
    assert [node.id for node in nodes.open()] == ["2"]
    for _ in range(2000):  # a pause has an end
        nodes.record_loss("1", silent=False)
    assert nodes.pauses("1")
