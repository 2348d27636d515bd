"""RayRunner, its crew and its players, with actors that are threads here instead of processes of Ray."""

import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import SimpleNamespace

import pytest

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.core import Env, Start, Step
from gem.errors import BadArgument, EnvClosed, NoVerdict
from gem.hosts.ray_cluster import Node
from gem.record import Reply
from gem.registry import ENV_REGISTRY
from gem.rollout import EpisodeStore, Job, RayRunner, rollout
from gem.rollout.episode import NO_LIMITS, versions
from gem.rollout.jobs import Trial
from gem.rollout.ray_player import Orders, Parcel, Player
from gem.rollout.trials import infos_of
from gem.specs import EnvSpec, Needs
from gem.testing.doubles import EchoEnv

GAMES = ("game:GuessTheNumber-v0", "game:Sudoku-v0-easy")


class RayError(Exception):
    """Everything that Ray raises."""


class TaskError(RayError):
    """A call that raised `cause`."""


class Gone(RayError):
    """The actor is dead."""


class Actor:
    """An actor whose calls run in threads; `kill` makes them fail."""

    def __init__(self, cls, args):
        self.threads = ThreadPoolExecutor(4)
        self.dead = False
        self.it = cls(*args)
        self.calls = []

    def __getattr__(self, name):
        return SimpleNamespace(remote=lambda *args: self.call(name, args))

    def call(self, name, args):
        def work():
            try:
                value = getattr(self.it, name)(*args)
            except Exception as error:
                wrapped = TaskError(repr(error))
                wrapped.cause = error
                raise wrapped from error
            if self.dead:
                raise Gone("killed")
            return value

        future = self.threads.submit(work)
        self.calls.append(future)
        return future


def done(value):
    future = Future()
    future.set_result(value)
    return future


class Cluster:
    """A cluster of two nodes with a core each."""

    def __init__(self, address=None):
        self.actors, self.closed = [], False
        self.ray = SimpleNamespace(
            put=lambda value: value,
            get=lambda call: call.result(),
            wait=self.wait,
            cloudpickle=pickle,
            exceptions=SimpleNamespace(
                RayError=RayError, RayTaskError=TaskError, ActorUnavailableError=type("No", (RayError,), {})
            ),
        )

    @staticmethod
    def wait(calls, num_returns, timeout):
        how = {"return_when": FIRST_COMPLETED} if num_returns == 1 else {}
        done, _ = wait(calls, timeout, **how)
        return [call for call in calls if call in done], []

    def nodes(self):
        return [Node(name, name, {"CPU": 1.0}) for name in ("one", "two")]

    def actor(self, cls, node, *args, reserves):
        self.actors.append(Actor(cls, args))
        return self.actors[-1]

    def call(self, function, node, *args):
        value = function(*args)
        return map(done, value) if isinstance(value, Iterator) else done(value)

    def wait_for(self, calls, seconds):
        wait(calls, seconds)

    def kill(self, actor):
        actor.dead = True
        actor.threads.shutdown(wait=False)

    def close(self):
        self.closed = True


@pytest.fixture
def play_on(monkeypatch, tmp_path):
    monkeypatch.setattr("gem.rollout.ray.Cluster", Cluster)
    monkeypatch.setattr("gem.rollout.ray_crew.added_folders", tuple)
    monkeypatch.setattr("gem.rollout.ray_player.ray_module", lambda: SimpleNamespace(cloudpickle=pickle))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a player on processes replaces it
    return lambda agent="random", **options: RayRunner(agent, **{"spool": tmp_path / "spool"} | options)


def games(count):
    return [Job(GAMES[i % 2], i, sample=i % 3) for i in range(count)]


def hashes(episodes):
    return [episode.transcript_hash() for episode in episodes]


def test_the_same_episodes_in_the_order_of_the_jobs(play_on, tmp_path):
    jobs = games(60)
    ended = []
    with EpisodeStore(tmp_path / "e.jsonl") as store:
        with play_on(store=store, concurrency=8, on_episode=ended.append) as runner:
            played = runner.play(jobs)
            cluster = runner._crew._cluster
        assert hashes(played) == hashes(rollout(jobs, RandomAgent()))
        assert sorted(entry.id for entry in store.select()) == sorted(episode.id for episode in played)
        assert sorted(map(id, ended)) == sorted(map(id, played))
        assert {episode.run.agent for episode in played} == {"RandomAgent"}
        assert (cluster.closed, len(cluster.actors)) == (True, 2)
        assert not list(tmp_path.rglob("*.spool"))
        with play_on(store=store, resume=True) as runner:
            assert hashes(runner.play(jobs)) == hashes(played)
            assert len(store) == 60
    with pytest.raises(EnvClosed):
        runner.play(jobs)


def test_environments_of_other_needs_take_turns_where_nodes_are_full(play_on, monkeypatch):
    for name, cores in (("test:Whole", 1.0), ("test:Part", 0.75)):
        monkeypatch.setitem(ENV_REGISTRY, name, EnvSpec(name, EchoEnv, needs=Needs(cores)))
    jobs = [Job(("test:Whole", "test:Part")[i // 3 % 2], i) for i in range(24)]
    with play_on(concurrency=4) as runner:
        assert hashes(runner.play(jobs)) == hashes(rollout(jobs, RandomAgent()))


def test_an_endless_stream_is_taken_only_as_far_as_players_need_it(play_on):
    taken = []

    def endless():
        for seed in range(10**9):
            taken.append(seed)
            yield Job(GAMES[0], seed)

    with play_on(concurrency=4) as runner:
        stream = runner.stream(endless())
        episodes = [next(stream) for _ in range(30)]
        stream.close()
        assert len({episode.seed for episode in episodes}) == 30
        assert len(taken) <= 30 + 4 * 4
        assert len(runner.play(games(3))) == 3


@pytest.mark.system
def test_what_a_dead_player_had_is_played_again(play_on):
    with play_on(concurrency=8, retries=2) as runner:
        played = []
        for episode in runner.stream(games(80)):
            played.append(episode)
            if len(played) == 10:
                runner._crew._cluster.actors[0].dead = True
        assert sorted(episode.seed for episode in played) == list(range(80))
        assert all(episode.scored for episode in played)
        assert len(runner._crew._cluster.actors) > 2
    with play_on(concurrency=8, retries=0) as runner:
        played = []
        for episode in runner.stream(games(80)):
            played.append(episode)
            if len(played) == 10:
                runner._crew._cluster.actors[0].dead = True
        lost = [episode for episode in played if not episode.scored]
        assert {(each.error.boundary, each.error.type, each.attempt) for each in lost} == {
            ("host", "WorkerDied", 0)
        }
        assert len(played) == 80


class Broken(Env):
    """Its infrastructure fails."""

    def reset(self, seed=None):
        super().reset(seed)
        raise NoVerdict("no container")

    def step(self, action):
        return Step("", 0.0, True, False, {})


def test_retries_are_counted_by_the_driver(play_on):
    with play_on(retries=2) as runner:
        (episode,) = runner.play([Job(Broken, 0)])
    assert (episode.attempt, episode.error.type) == (2, "NoVerdict")


@pytest.mark.parametrize(
    ("agent", "job", "message"),
    [
        ("random", Job(GAMES[0], 0, agents=RandomAgent()), "leave out the job's agents"),
        ({"a": "random"}, Job(GAMES[0], 0), "the game has"),
    ],
)
def test_a_job_that_cannot_be_sent_is_refused(play_on, agent, job, message):
    with play_on(agent) as runner:
        for use in (lambda: runner.submit(job), lambda: runner.play([job])):
            with pytest.raises(BadArgument, match=message):
                use()


# -- a player


class Says(BaseAgent):
    """Answers with its version."""

    async def ask(self, ask):
        return Reply(f"says {self.policy_version}")

    def publish(self, version, weights=None):
        self.policy_version = version if weights is None else weights


class Short(Env):
    """One step."""

    def reset(self, seed=None):
        super().reset(seed)
        return Start("go", {})

    def step(self, action):
        return Step(action, 1.0, True, False, {})


class Batch(Says):
    """The same, as a batch."""

    def __call__(self, asks):
        return [Reply(f"says {self.policy_version}") for _ in asks]

    ask = BaseAgent.ask


@pytest.mark.parametrize("agent", [Says(), Batch()])
def test_a_player_loads_weights_before_the_jobs_that_come_with_them(agent):
    orders = Orders("serial", NO_LIMITS, 2, versions())
    player = Player(orders, pickle.dumps(agent))
    assert player.hello().about == infos_of(agent)
    run = rollout([Job(Short, 0)], agent)[0].run

    def exchange(numbers, recipes, version=None, weights=None):
        trials = [
            Trial(Job("@0", number), None, str(number), number, attempt=1, run=run, alone=number % 2 == 1)
            for number in numbers
        ]
        parcel = pickle.dumps(Parcel(trials, recipes))
        ended = {}
        while len(ended) < len(trials):
            report = player.exchange(parcel, 20.0, version, weights)
            assert report.error is None
            ended |= report.ended
            parcel, version = pickle.dumps(Parcel([], {})), None
        return ended

    first = exchange([0, 1, 2], {"@0": Short}, 3)
    assert sorted(first) == [0, 1, 2]
    assert all(b"says 3" in line for line in first.values())
    second = exchange([5], {}, 4, "heavy")
    assert b"says heavy" in second[5]
    player.close(True)
