import math

import pytest

from gem.agents.base import BaseAgent
from gem.agents.random import RandomAgent
from gem.agents.solver import SolverAgent
from gem.envs.games.guess_the_number import GuessTheNumber
from gem.errors import NoVerdict
from gem.record import Limits, Reply
from gem.registry import ENV_REGISTRY, EnvSpec, Maker, register
from gem.rollout import Job, rollout
from gem.rollout.measure import Instances, Measurement, find_instances, measure, success_rate
from gem.testing.doubles import EchoEnv

EASY = Maker("game:GuessTheNumber-v0-easy")


def first_numbers(instances, maker):
    """The instance that each seed deals."""
    env = maker()
    dealt = []
    for seeds in instances.seeds:
        told = set()
        for seed in seeds:
            env.reset(seed=seed)
            told.add(env.instance())
        dealt.append(told)
    return dealt


def test_few_instances_are_all_found():
    instances = find_instances(EASY, seed=0)
    assert instances.complete
    dealt = first_numbers(instances, EASY)
    assert [len(told) for told in dealt] == [1] * 10
    assert len(set.union(*dealt)) == 10
    assert find_instances(EASY, seed=0) == instances != find_instances(EASY, seed=1)


def test_many_instances_come_as_they_are_dealt():
    maker = Maker("game:GuessTheNumber-v0-easy", {"max_number": 1000, "max_turns": 4})
    instances = find_instances(maker, seed=0, wanted=200)
    assert not instances.complete
    assert [len(seeds) for seeds in instances.seeds] == [1] * 200
    secrets = [secret for told in first_numbers(instances, maker) for _, secret in told]
    assert 400 < sum(secrets) / 200 < 600  # not the smallest, nor any other choice by name


def test_an_environment_that_does_not_tell_is_measured_on_its_seeds(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", dict(ENV_REGISTRY))
    register(EnvSpec("test:Echo", EchoEnv))
    instances = find_instances(Maker("test:Echo"), seed=0, wanted=5)
    assert not instances.complete
    assert len({seed for seeds in instances.seeds for seed in seeds}) == 5


class Fixed(BaseAgent):
    """Says 1, 2, 3 ... in turn."""

    def __call__(self, asks):
        return [Reply(f"\\boxed{{{ask.turn + 1}}}") for ask in asks]


def measured(agent=None, *, budget=4, **how):
    instances = find_instances(EASY, seed=0)
    return measure(
        agent or Fixed(), EASY, instances, **{"samples": 1, "limits": Limits(), "budget": budget, **how}
    )


def test_figures_by_hand():
    """Saying 1, 2, 3, 4 wins four secrets of ten, after 1, 2, 3, 4 guesses; a lost game counts five."""
    found = measured(exactly=True)
    assert found.success[:3] == (0.4, 0.4, 0.4)
    assert found.mean_guesses.mean == (1 + 2 + 3 + 4 + 6 * 5) / 10
    assert found.coverage == 1.0
    assert measured(budget=None, exactly=True).mean_guesses.mean == (1 + 2 + 3 + 4 + 6 * 5) / 10
    short = measured(budget=2, limits=Limits(turns=2), exactly=True)
    assert short.mean_guesses.mean == (1 + 2 + 8 * 3) / 10
    assert Measurement.from_json(found.to_json()) == found


def test_samples_of_an_instance_are_one_cluster():
    once, again = measured(), measured(samples=5)
    assert (once.success.n, again.success.n, again.success.clusters) == (10, 50, 10)
    assert again.success[:3] == pytest.approx(once.success[:3])  # nothing new was learnt
    assert 0 <= once.success.low < once.success.mean < once.success.high <= 1


def test_the_references():
    best = measured(SolverAgent(), exactly=True)
    assert (best.success.mean, best.mean_guesses.mean) == (1.0, 2.9)
    random = measured(RandomAgent(), samples=40)
    assert random.success.low < 1 - 0.9**4 < random.success.high


class Even(GuessTheNumber):
    def play(self, move):
        if self.secret % 2:
            raise OSError("gone")
        return super().play(move)


class Never(GuessTheNumber):
    def play(self, move):
        raise OSError("gone")


def test_episodes_without_verdict_are_told_and_not_counted(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", dict(ENV_REGISTRY))
    for name, made in (("Even", Even), ("Never", Never)):
        register(EnvSpec(f"test:{name}", made, {"max_number": 10, "max_turns": 4}))
    maker = Maker("test:Even")
    how = {"samples": 1, "budget": 4, "limits": Limits(), "exactly": True}
    found = measure(Fixed(), maker, find_instances(maker, 0), **how)
    assert found.coverage == 0.5
    assert found.success.mean == 2 / 5
    maker = Maker("test:Never")
    with pytest.raises(NoVerdict, match=r"none of 10 episodes has a verdict: .*gone"):
        measure(Fixed(), maker, find_instances(maker, 0), **how)


class Silent(EchoEnv):
    """Ends without saying how."""

    def step(self, action):
        return super().step(action)._replace(info={})


def test_where_the_environment_does_not_say_success_is_unknown_and_not_0():
    jobs = [Job(Silent, seed) for seed in range(3)]
    assert math.isnan(success_rate(rollout(jobs, SolverAgent())))
    instances = Instances(((0,), (1,)), False)
    found = measure(SolverAgent(), Silent, instances, samples=1, budget=3, limits=Limits())
    assert math.isnan(found.success.mean)
    assert math.isnan(found.mean_guesses.mean)
    assert found.coverage == 1.0


def test_success_rate_of_nothing_is_unknown():
    assert success_rate([]) != success_rate([])
