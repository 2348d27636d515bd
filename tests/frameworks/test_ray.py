"""Playing on a Ray cluster: two nodes with a core each, on this machine."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock

import pytest
from waiting import until

ray = pytest.importorskip("ray")
from fork_worlds import FarWalk, Walk
from ray.cluster_utils import Cluster
from ray_worlds import Poison, Waits

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.ray_model import ModelActor
from gem.errors import AgentUnavailable, BadArgument, StoreError, UnknownEnv
from gem.evals import evaluate
from gem.hosts.ray_cluster import Cluster as Connection
from gem.naming import fix_name
from gem.record import Limits, Reply
from gem.registry import EnvSpec, Maker, register
from gem.rollout import EpisodeStore, Job, RayRunner, branches, rollout
from gem.rollout.ray_spool import spool_store
from gem.rollout.store import merge
from gem.specs import Needs

pytestmark = pytest.mark.framework

HERE = Path(__file__).parent
GAMES = ("game:GuessTheNumber-v0", "game:Sudoku-v0-easy")


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        shared = HERE.parent / "shared"
        patch.setenv("PYTHONPATH", f"{shared}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        yield made
        made.shutdown()


@pytest.fixture
def play_on(cluster, tmp_path):
    """Make runners on the cluster."""

    def make(agent="random", **options):
        options.setdefault("spool", tmp_path / "spool")
        return RayRunner(agent, address=cluster.address, **options)

    return make


def hashes(episodes):
    return [episode.transcript_hash() for episode in episodes]


def games(count):
    return [Job(GAMES[i % 2], i, sample=i % 3) for i in range(count)]


def player_pids():
    """The processes of players, of whatever driver of this user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes().startswith(b"ray::Player"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


# -- the same episodes


def test_the_same_episodes_as_on_the_serial_host(play_on, tmp_path):
    jobs = games(200)
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        with play_on(store=store) as runner:
            played = runner.play(jobs)
        serial = rollout(jobs, RandomAgent())
        assert hashes(played) == hashes(serial)
        named = [(episode.job, episode.sample, episode.attempt) for episode in serial]
        assert [(episode.job, episode.sample, episode.attempt) for episode in played] == named
        assert sorted(entry.id for entry in store.select()) == sorted(episode.id for episode in played)
        assert {episode.run.agent for episode in played} == {"RandomAgent"}
    assert not list((tmp_path / "spool").rglob("*.jsonl"))


@pytest.mark.parametrize("host", ["serial", "process"])
def test_forks_are_the_same_as_on_the_serial_host(play_on, host):
    (whole,) = rollout([Job(Walk, 3)], RandomAgent())
    for env, fork in ((Walk, True), (Walk, False), (FarWalk, True)):
        jobs = branches(whole, [0, 2, 4], 4, env=env, fork=fork)
        with play_on(host=host) as runner:
            assert hashes(runner.play(jobs)) == hashes(rollout(jobs, RandomAgent()))


def test_what_only_the_driver_knows_travels(play_on):
    class Local(Waits):
        """Defined where no node can import it."""

    register(EnvSpec("ray:OnlyHere-v0", Local, {"steps": 2}))
    jobs = [Job("ray:OnlyHere-v0", 1), Job(Maker("ray:OnlyHere-v0", {"steps": 4}), 1), Job(partial(Local), 1)]
    for host in ("serial", "process"):
        with play_on(host=host) as runner:
            played = runner.play(jobs)
        assert [(len(episode.turns), episode.error) for episode in played] == [
            (2, None),
            (4, None),
            (3, None),
        ]


class Counts(BaseAgent):
    """Answers with its version and what it was published."""

    published = "nothing"

    async def ask(self, ask):
        return Reply(f"{self.policy_version} {self.published}")

    def publish(self, version, weights=None):
        self.policy_version, self.published = version, weights or self.published


def test_an_agent_is_sent_and_told_what_is_published(play_on):
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    jobs = [Job(partial(Waits, steps=1), seed) for seed in range(8)]
    with play_on(Counts()) as runner:
        assert {e.turns[0].action for e in runner.play(jobs)} == {"None nothing"}
        runner.publish(3, "weights")
        assert {(e.turns[0].action, e.policy_version) for e in runner.play(jobs)} == {("3 weights", 3)}
        runner.publish(4)
        assert {e.policy_version for e in runner.play(jobs)} == {4}


def test_players_share_a_model(cluster, play_on):
    pytest.importorskip("torch")
    from gem.agents.tiny import TinyAgent, TinyConfig, TinyLM
    from gem.tokens.tiny import TinyRenderer

    renderer = TinyRenderer()
    agent = TinyAgent(TinyLM(len(renderer), TinyConfig(width=16, layers=1, heads=2), 0), renderer)
    jobs = [Job("game:GuessTheNumber-v0-easy", seed, limits=Limits(turns=3)) for seed in range(30)]
    here = rollout(jobs, agent)
    other = TinyLM(len(renderer), TinyConfig(width=16, layers=1, heads=2), 1).state_dict()
    with Connection(cluster.address), ModelActor(agent, cores=0) as model:
        with play_on(model, concurrency=16) as runner:
            assert hashes(runner.play(jobs)) == hashes(here)
            runner.publish(7, other)
            there = runner.play(jobs)
            assert {turn.policy_version for episode in there for turn in episode.turns} == {7}
            agent.publish(7, other)
            assert hashes(there) == hashes(rollout(jobs, agent))
            assert here[0].run.vocabulary == there[0].run.vocabulary == renderer.vocab_hash
        with play_on(model) as runner:
            ray.kill(model._actor)
            with pytest.raises(AgentUnavailable, match="the actor of the model is gone"):
                runner.play(jobs)
    with pytest.raises(BadArgument, match="connect first"):
        ModelActor(agent)


class Gone(BaseAgent):
    async def ask(self, ask):
        raise AgentUnavailable("nobody there")


def test_a_stream_that_is_left_is_followed_by_another(play_on, tmp_path):
    async def later(runner):
        return [episode async for episode in runner.stream_async(games(20))]

    with EpisodeStore(tmp_path / "e.jsonl") as store, play_on(store=store, concurrency=8) as runner:
        for number, _ in enumerate(runner.stream(games(200))):
            if number == 10:
                break
        assert hashes(runner.play(games(20))) == hashes(rollout(games(20), RandomAgent()))
        assert len(asyncio.run(later(runner))) == 20
        assert evaluate(runner, GAMES[0], episodes=10).scored == 10
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".spool"]


def test_a_spool_is_of_one_store_alone(play_on, tmp_path):
    path = tmp_path / "e.jsonl"
    with EpisodeStore(path) as store:
        runner = play_on(store=store)
        runner.play(games(10))
        runner._crew.dismiss()
        runner._crew._cluster.close()  # a driver that ends without closing
    kept = list((tmp_path / "spool").rglob("*.jsonl"))
    assert kept
    with EpisodeStore(path) as store, play_on(store=store, resume=True) as runner:
        assert len(runner.play(games(10))) == len(store) == 10
    path.rename(tmp_path / "old.jsonl")
    (tmp_path / "e.jsonl.spool").write_text("0123456789abcdef 1")
    with EpisodeStore(path) as store, play_on(store=store, resume=True) as runner:
        assert len(runner.play(games(4))) == len(store) == 4


def test_a_spool_in_somebody_elses_folder_is_refused(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StoreError, match="not a folder of this user"):
        spool_store(tmp_path / "link" / "node.jsonl")


# -- losses


def test_what_kills_its_player_takes_nobody_along(play_on, tmp_path):
    jobs = [Job(partial(Poison, 0.005), seed) for seed in range(40)]
    with (
        EpisodeStore(tmp_path / "e.jsonl") as store,
        play_on(store=store, concurrency=16, retries=2) as runner,
    ):
        played = runner.play(jobs)
        assert [episode.seed for episode in played if not episode.scored] == [13]
        assert played[13].error.type == "WorkerDied"
        assert played[13].attempt == 2
        latest = store.latest()
        assert sorted(entry.seed for entry in latest) == list(range(40))


def test_a_player_that_is_silent_is_given_up(play_on):
    # after ten episodes each player is in the middle of long ones
    jobs = [Job(partial(Waits, 0.05 if seed < 10 else 0.5), seed) for seed in range(60)]
    with play_on(host="thread", concurrency=8, heartbeat_s=2.0) as runner:
        played = []
        for episode in runner.stream(jobs):
            played.append(episode)
            if len(played) == 10:
                stopped = player_pids()[0]
                os.kill(stopped, signal.SIGSTOP)
        assert sorted(episode.seed for episode in played) == list(range(60))
        assert all(episode.scored for episode in played)
        assert any(episode.attempt for episode in played)
    until(lambda: stopped not in player_pids())


def folder_of(pid):
    return Path("/proc") / str(pid)


def memory_mb():
    fields = (line.split() for line in (folder_of("self") / "status").read_text().splitlines())
    return next(int(words[1]) / 1024 for words in fields if words[0] == "VmRSS:")


@pytest.mark.slow
def test_players_and_nodes_that_die_at_random_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv(
        "PYTHONPATH", f"{HERE.parent / 'shared'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    )
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(cluster.address, log_to_driver=False)
    chance = Random(5)
    jobs = [Job(partial(Waits, 0.02, 5), seed) for seed in range(1000)]
    try:
        with EpisodeStore(tmp_path / "e.jsonl") as store:
            options = {"store": store, "retries": 8, "concurrency": 16, "host": "thread"}
            with RayRunner("random", address=cluster.address, spool=tmp_path / "spool", **options) as runner:
                played = []
                stream = runner.stream(jobs)
                for episode in stream:
                    played.append(episode)
                    if len(played) == 20:
                        files, memory = len(os.listdir("/proc/self/fd")), memory_mb()
                        threads = threading.active_count()
                    if len(played) % 150 == 0 and (pids := player_pids()):
                        os.kill(chance.choice(pids), signal.SIGKILL)
                    if len(played) in (300, 700):
                        cluster.remove_node(node, allow_graceful=False)
                        node = cluster.add_node(num_cpus=1)
                merge(tmp_path / "all.jsonl", [store.path, *(tmp_path / "spool").rglob("*.jsonl")])
            assert sorted(episode.seed for episode in played) == list(range(1000))
            assert [episode.seed for episode in played if not episode.scored] == []
            serial = rollout(jobs, RandomAgent(), host="thread", concurrency=500)
            assert {e.seed: e.transcript_hash() for e in played} == {
                e.seed: e.transcript_hash() for e in serial
            }
            scored = [entry for entry in store.select() if entry.verdict == "scored"]
            assert sorted(entry.seed for entry in scored) == list(range(1000))
            assert sorted(entry.seed for entry in store.latest()) == list(range(1000))
            assert any(entry.attempt for entry in scored)
            with EpisodeStore(tmp_path / "all.jsonl") as merged:
                assert sorted(entry.seed for entry in merged.latest()) == list(range(1000))
        until(lambda: not player_pids())
        assert len(os.listdir("/proc/self/fd")) <= files + 10
        assert threading.active_count() <= threads + 2
        assert memory_mb() < memory + 100
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_driver_that_was_killed_goes_on(cluster, tmp_path):
    path, spool = tmp_path / "e.jsonl", tmp_path / "spool"
    count = 120
    command = [
        sys.executable,
        str(HERE / "ray_driver.py"),
        cluster.address,
        str(path),
        str(spool),
        str(count),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        for line in driver.stdout:
            if int(line) == 30:
                break
        driver.kill()
    until(lambda: not player_pids())
    with EpisodeStore(path) as store:
        held = {entry.id for entry in store.select()}
        spooled = set()
        for file in spool.rglob("*.jsonl"):
            with EpisodeStore(file, read_only=True) as one:
                spooled |= {entry.id for entry in one.select()}
    assert 30 <= len(held) < count
    assert held <= spooled
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(count)
    with EpisodeStore(path, read_only=True) as store:
        entries = store.select()
        assert sorted(entry.seed for entry in entries) == list(range(count))  # each once
        assert {entry.run for entry in entries} == {entries[0].run}
        assert held | spooled <= {entry.id for entry in entries}
        serial = rollout([Job(partial(Waits), seed) for seed in range(count)], RandomAgent())
        assert {e.seed: e.transcript_hash() for e in store} == {e.seed: e.transcript_hash() for e in serial}
    assert not list(spool.rglob("*.jsonl"))


# -- what is refused


@pytest.mark.parametrize(
    ("agent", "options", "said"),
    [
        ("random", {"players": 0}, "players is 0"),
        ("random", {"heartbeat_s": 0.5}, "heartbeat_s is 0.5"),
        ("random", {"host": object()}, "give its name"),
        (RandomAgent, {}, "accepted: an agent's name"),
        ("nobody", {}, "agent is 'nobody'; accepted: random, solver"),
        ({"a": 3}, {}, "accepted: an agent's name"),
    ],
)
def test_what_makes_no_sense_is_refused_before_ray_is_asked(agent, options, said):
    with pytest.raises(BadArgument, match=said):
        RayRunner(agent, address="10.0.0.1:1", **options)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense", "127.0.0.1:99999999"])
def test_an_address_without_a_cluster_is_told_at_once(address):
    with pytest.raises(BadArgument, match="there is no Ray cluster at"):
        Connection(address)


def test_what_a_node_lacks_is_told(play_on):
    with play_on(secrets=["NO_SUCH_KEY"]) as runner, pytest.raises(BadArgument, match="no NO_SUCH_KEY"):
        runner.play(games(2))
    with play_on() as runner, pytest.raises(UnknownEnv):
        runner.play([Job("game:NoSuch-v0", 0)])
    with play_on() as runner, pytest.raises(BadArgument, match="leave out the job's agents"):
        runner.play([Job(GAMES[0], 0, agents=RandomAgent())])
    with play_on(Gone()) as runner, pytest.raises(AgentUnavailable, match="nobody there"):
        runner.play(games(2))
    unsendable = Counts()
    unsendable.lock = Lock()
    with play_on(unsendable) as runner, pytest.raises(BadArgument, match="cannot be sent"):
        runner.play(games(2))


# -- what environments need of a node


@pytest.mark.slow
def test_environments_with_different_needs_take_turns_on_a_small_cluster(tmp_path):
    register(EnvSpec("ray:Two-v0", "ray_worlds:Waits", {"steps": 2}, needs=Needs(cores=2.0)))
    register(EnvSpec("ray:Special-v0", "ray_worlds:Waits", {"steps": 1}, needs=Needs(resources={"kvm": 1})))
    register(EnvSpec("ray:Boxed-v0", "ray_worlds:Waits", {"steps": 1}, needs=Needs(sandbox=True)))
    register(EnvSpec("ray:Huge-v0", "ray_worlds:Waits", needs=Needs(cores=64.0)))
    register(EnvSpec("ray:Large-v0", "ray_worlds:Waits", {"steps": 1}, needs=Needs(memory_mb=1000)))
    names = ("ray:Two-v0", "ray:Special-v0", "ray:Boxed-v0", "ray:Large-v0")
    jobs = [Job(names[i % 4], i) for i in range(80)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{HERE.parent / 'shared'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        small = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            small.add_node(num_cpus=1, resources={"kvm": 1})
            with RayRunner("random", address=small.address, concurrency=100) as runner:
                played = runner.play(jobs)
                assert hashes(played) == hashes(rollout(jobs, RandomAgent()))
                with pytest.raises(BadArgument, match="no node of the cluster has what an environment needs"):
                    runner.play([Job("ray:Huge-v0", 1)])
        finally:
            small.shutdown()


def test_a_process_has_one_connection_and_a_worker_of_others_has_none(cluster):
    with Connection(cluster.address):
        with pytest.raises(BadArgument, match=r"connected to the Ray cluster at .*, not at '10.0.0.1:1'"):
            RayRunner("random", address="10.0.0.1:1")
        inside = ray.remote(num_cpus=0)(lambda: RayRunner("random"))
        with pytest.raises(BadArgument, match="worker of a Ray cluster already"):
            ray.get(inside.remote())


# -- evaluation and training


def evaluated(*words):
    from gem import cli

    return cli.main(["eval", *map(str, words)])


def test_an_evaluation_on_ray_has_the_same_figures(cluster, tmp_path, capsys):
    words = [GAMES[0], "-n", 20, "-k", 2, "--turns", 6, "--agent", "random", "--agent", "solver"]
    assert evaluated(*words, "--ray", cluster.address, "--out", tmp_path / "ray") == 0
    assert evaluated(*words, "--out", tmp_path / "here") == 0
    figures = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("ray", "here")]
    rows = [
        [(row["agent"], row["env"], row["success"], row["reward"], row["turns"]) for row in each["results"]]
        for each in figures
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2
    capsys.readouterr()
    assert evaluated(*words, "--ray", cluster.address, "--out", tmp_path / "ray", "--stop-at-width", 0.9) == 0


def test_training_samples_on_ray_with_the_weights_of_each_iteration(cluster, tmp_path):
    pytest.importorskip("torch")
    from gem.train.config import TrainConfig
    from gem.train.learn.training import train

    config = {
        **{"env_kwargs": {"max_number": 4, "max_turns": 3}, "width": 16, "layers": 1, "heads": 2},
        **{"episodes": 48, "batch": 16, "minibatch": 8, "group": 4, "warmup_steps": 8, "warmup_batch": 8},
        **{"eval_episodes": 8, "watch": 0, "store": "tokens"},
    }
    played = {}
    for name, address in (("here", ""), ("ray", cluster.address)):
        train(TrainConfig(**config, out=tmp_path / name, ray=address))
        with EpisodeStore(tmp_path / name / "episodes.jsonl", read_only=True) as store:
            played[name] = {(e.policy_version, e.job): e.transcript_hash() for e in store}
            assert len(store) == 48
            assert all(turn.logprobs is not None for episode in store for turn in episode.turns)
    assert {version for version, _ in played["ray"]} == {0, 1, 2}
    assert played["ray"] == played["here"]


# -- what the user names in a file

RELAY = """
import gem
import helpers

class Relay(gem.Env):
    def __init__(self, length: int = 3):
        self.length = length

    def reset(self, seed=None):
        super().reset(seed=seed)
        self.left = self.length
        return gem.Start(self.rng.choice(helpers.LETTERS), {})

    def step(self, action):
        self.left -= 1
        return gem.Step(self.rng.choice(helpers.LETTERS), float(len(action)), not self.left, False, {})

    def sample_random_action(self):
        return self.actor_rng.choice(helpers.LETTERS)

class Doubled(gem.EnvWrapper):
    def on_step(self, step):
        return step._replace(reward=2 * step.reward)
"""

AGENT = """
from gem.agents import BaseAgent
from gem.record import Reply

class Repeats(BaseAgent):
    def __call__(self, asks):
        return [Reply(ask.messages[-1].content) for ask in asks]
"""


@pytest.fixture
def named(tmp_path, monkeypatch):
    """A folder elsewhere, the files of a user named from there, and a cache that the nodes do not have."""
    texts = {"relay.py": RELAY, "agent.py": AGENT, "helpers.py": f"LETTERS = 'ab{tmp_path.name}'\n"}
    for name, text in texts.items():
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text(text)
    (tmp_path / "elsewhere").mkdir()
    for name in ("random.py", "statistics.py"):  # Ray imports the first itself, gem the second
        (tmp_path / "elsewhere" / name).write_text("raise RuntimeError('a neighbour was imported')\n")
    monkeypatch.setenv("GEM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    return "../mine/relay.py:Relay"


@pytest.mark.parametrize("host", ["serial", "process"])
def test_what_a_file_holds_is_sent_to_the_nodes(play_on, named, tmp_path, host):
    env = fix_name(named, "environment")
    jobs = [Job(Maker(env, {"length": 4}, wrappers=("../mine/relay.py:Doubled",)), seed) for seed in range(6)]
    for path in (tmp_path / "mine").iterdir():
        path.unlink()
    with play_on(host=host) as runner:
        played = runner.play(jobs)
    assert [episode.error for episode in played] == [None] * 6
    assert hashes(played) == hashes(rollout(jobs, RandomAgent()))


@pytest.mark.parametrize("host", ["serial", "process"])
def test_an_evaluation_of_files_is_the_same_on_ray(cluster, named, tmp_path, host):
    words = [named, "-n", 4, "--agent", "../mine/agent.py:Repeats", "--wrappers", "../mine/relay.py:Doubled"]
    assert evaluated(*words, "--ray", cluster.address, "--host", host, "--out", tmp_path / "ray") == 0
    assert evaluated(*words, "--out", tmp_path / "here") == 0
    stored = []
    for name in ("ray", "here"):
        with EpisodeStore(tmp_path / name / "episodes.jsonl", read_only=True) as store:
            stored.append({episode.seed: episode.transcript_hash() for episode in store})
    assert stored[0] == stored[1]
    assert len(stored[0]) == 4


def test_an_agent_of_a_module_in_the_current_folder_plays_on_ray(cluster, named, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "elsewhere" / "own_agent_for_ray.py").write_text(AGENT)
    words = [GAMES[0], "-n", 2, "--turns", 2, "--agent", "own_agent_for_ray:Repeats"]
    assert evaluated(*words, "--ray", cluster.address) == 0


def test_training_on_ray_samples_what_a_file_holds(cluster, named, tmp_path):
    pytest.importorskip("torch")
    from gem.train.config import TrainConfig
    from gem.train.learn.training import train

    config = {
        **{"env": named, "wrappers": ("../mine/relay.py:Doubled",), "width": 16, "layers": 1, "heads": 2},
        **{"episodes": 32, "batch": 16, "minibatch": 8, "group": 4, "warmup_steps": 0},
        **{"eval_episodes": 4, "watch": 0, "store": "tokens"},
    }
    played = {}
    for name, address in (("here", ""), ("ray", cluster.address)):
        train(TrainConfig(**config, out=tmp_path / name, ray=address))
        with EpisodeStore(tmp_path / name / "episodes.jsonl", read_only=True) as store:
            played[name] = {(e.policy_version, e.job): e.transcript_hash() for e in store}
    assert len(played["ray"]) == 32
    assert played["ray"] == played["here"]
