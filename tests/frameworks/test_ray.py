"""Playing on a Ray cluster: two nodes with a core each, on this machine."""


import pytest

ray = pytest.importorskip("ray")
from ray.cluster_utils import Cluster

from gem.agents.random import RandomAgent
from gem.rollout import EpisodeStore, Job, RayRunner, rollout

pytestmark = pytest.mark.framework

GAMES = ("game:GuessTheNumber-v0", "game:Sudoku-v0-easy")


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def hashes(episodes):
    return [episode.transcript_hash() for episode in episodes]


def games(count):
    return [Job(GAMES[i % 2], i, sample=i % 3) for i in range(count)]


def test_the_same_episodes_as_on_the_serial_host(cluster, tmp_path):
    jobs = games(200)
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        with RayRunner("random", address=cluster.address, store=store) as runner:
            played = runner.play(jobs)
        serial = rollout(jobs, RandomAgent())
        assert hashes(played) == hashes(serial)
        assert [(e.job, e.sample, e.attempt) for e in played] == [
            (e.job, e.sample, e.attempt) for e in serial
        ]
        assert len(store) == 200
        assert {episode.run.agent for episode in played} == {"RandomAgent"}
