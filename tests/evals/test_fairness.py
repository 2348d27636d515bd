import pytest

from gem.errors import BadArgument
from gem.evals import EnvResult, unfair
from gem.statistics import wilson


def result(scored, lost=None, cancelled=0, env="test:X"):
    lost = lost or {}
    episodes = scored + sum(lost.values()) + cancelled
    return EnvResult(
        env, episodes, scored, None, None, None, None, cancelled=cancelled, errors=lost,
        no_verdict=wilson(episodes - scored, episodes) if episodes else None,
    )  # fmt: skip


def test_other_rates_of_episodes_without_verdict_are_told():
    (told,) = unfair(
        {"A": result(170, {"agent: NoVerdict": 20, "agent: OutOfTime": 10}), "B": result(198, {"env: X": 2})}
    )
    assert told.startswith(
        "agent A has no verdict in 30 of 200 episodes, B in 2 of 200: the comparison is not fair (p = "
    )


def test_rates_that_chance_explains_are_not():
    assert unfair({"A": result(195, {"env: X": 5}), "B": result(198, {"env: X": 2})}) == []
    assert unfair({"A": result(200), "B": result(200)}) == []
    assert unfair({"A": result(0, {"agent: X": 3}), "B": result(3)}) == []  # three are too few
    assert unfair({"A": result(100)}) == []
    assert unfair({"A": result(0), "B": result(100)}) == []
    assert unfair({}) == []


def test_the_same_rate_at_another_boundary_is_told():
    found = unfair({"A": result(180, {"agent: NoVerdict": 20}), "B": result(180, {"env: NoVerdict": 20})})
    assert [told.split(":")[0] for told in found] == [
        "agent A lost 20 of 200 episodes at the boundary 'agent', B 0 of 200",
        "agent A lost 0 of 200 episodes at the boundary 'env', B 20 of 200",
    ]


def test_cancelled_episodes_are_lost_ones():
    (told,) = unfair({"A": result(150, cancelled=50), "B": result(200)})
    assert "A has no verdict in 50 of 200" in told


def test_of_several_agents_each_pair_is_compared():
    few, many = {"env: X": 1}, {"env: X": 40}
    found = unfair({"A": result(199, few), "B": result(160, many), "C": result(200)})
    assert [told.split(":")[0] for told in found] == [
        "agent A has no verdict in 1 of 200 episodes, B in 40 of 200",
        "agent B has no verdict in 40 of 200 episodes, C in 0 of 200",
    ]


def test_the_level_is_the_callers():
    results = {"A": result(190, {"env: X": 10}), "B": result(198, {"env: X": 2})}  # p = 0.036
    assert unfair(results) == []
    assert len(unfair(results, level=0.05)) == 1


@pytest.mark.parametrize("level", [0, 1, -1, float("nan")])
def test_no_level_is_refused(level):
    with pytest.raises(BadArgument, match="accepted: between 0 and 1"):
        unfair({"A": result(1)}, level=level)


def test_results_of_different_environments_are_refused():
    with pytest.raises(BadArgument, match="test:X, test:Y; accepted: results of one environment"):
        unfair({"A": result(1), "B": result(1, env="test:Y")})
