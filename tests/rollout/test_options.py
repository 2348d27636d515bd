import asyncio
from functools import partial

import pytest

from gem.agents.random import RandomAgent
from gem.errors import BadArgument, UnknownArgument
from gem.evals import evaluate
from gem.record import Limits
from gem.rollout import Job, RayRunner, Runner, RunOptions, rollout, rollout_async
from gem.rollout.episode import NO_LIMITS

GAME = "game:GuessTheNumber-v0-easy"


def asynchronous(*given, **keywords):
    return asyncio.run(rollout_async(*given, **keywords))


CALLS = [
    partial(Runner, RandomAgent()),
    partial(rollout, [Job(GAME, 0)], RandomAgent()),
    partial(asynchronous, [Job(GAME, 0)], RandomAgent()),
    partial(evaluate, RandomAgent(), GAME, episodes=1),
    partial(RayRunner, "random", address="10.0.0.1:1"),
]


@pytest.mark.parametrize("call", CALLS)
def test_every_call_refuses_what_is_no_option(call):
    with pytest.raises(
        UnknownArgument, match=r"no option 'retrys'. Did you mean 'retries'\? Accepted: host, "
    ):
        call(retrys=2)
    with pytest.raises(BadArgument, match="concurrency is 0"):
        call(options=RunOptions(retries=0), concurrency=0)
    with pytest.raises(BadArgument, match=r"options is 3; accepted: a gem\.rollout\.RunOptions"):
        call(options=3)


def test_a_runner_brings_its_options_and_unknown_ones_are_told_all_the_same():
    with Runner(RandomAgent(), retries=4) as runner:
        with pytest.raises(UnknownArgument, match="no option 'hosts'"):
            evaluate(runner, GAME, episodes=1, hosts="serial")
        for twice in ({"options": RunOptions()}, {"retries": 1}, {"store": []}):
            with pytest.raises(BadArgument, match="a Runner has its own"):
                evaluate(runner, GAME, episodes=1, **twice)
        assert evaluate(runner, GAME, episodes=1, concurrency=3, limits=None, store=None).scored == 1
        assert runner.options.retries == 4


@pytest.mark.parametrize("drive", [rollout, asynchronous])
def test_keywords_replace_fields_of_the_options(drive):
    options = RunOptions(limits=Limits(turns=1), retries=0)
    jobs = [Job(GAME, seed) for seed in range(3)]
    assert {len(episode.turns) for episode in drive(jobs, RandomAgent(), options=options)} == {1}
    longer = drive(jobs, RandomAgent(), options=options, limits=Limits(turns=2))
    assert {len(episode.turns) for episode in longer} <= {1, 2}
    assert max(len(episode.turns) for episode in longer) == 2
    assert options == RunOptions(limits=Limits(turns=1), retries=0)


def test_no_limits_may_be_written_as_none():
    assert RunOptions.merge(RunOptions(limits=Limits(turns=1)), {"limits": None}).limits is NO_LIMITS
    assert RunOptions.merge(None, {}) == RunOptions()


@pytest.mark.parametrize(
    ("given", "retries"),
    [({}, 3), ({"retries": 0}, 0), ({"options": RunOptions()}, 1), ({"options": RunOptions(retries=2)}, 2)],
)
def test_nodes_count_as_infrastructure_unless_options_are_given(given, retries, monkeypatch):
    class Connection:
        ray = None

        def __init__(self, address):
            pass

    monkeypatch.setattr("gem.rollout.ray.Cluster", Connection)
    assert RayRunner("random", **given).options.retries == retries
