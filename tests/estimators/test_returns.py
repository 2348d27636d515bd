import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem.errors import BadArgument
from gem.estimators import discounted_returns, gae

FLOATS = st.floats(-100, 100)
SHARES = st.floats(0, 1)
TURNS = st.lists(st.tuples(FLOATS, FLOATS), max_size=8)


def test_returns_by_hand():
    assert discounted_returns([1.0, 0.0, 2.0], 0.5) == [1.5, 1.0, 2.0]
    assert discounted_returns([1.0, 0.0, 2.0], 0.5, bootstrap=8.0) == [2.5, 3.0, 6.0]
    assert discounted_returns([], 0.9) == []


def test_gae_by_hand():
    # deltas: 1 + 0.5 * 4 - 2 = 1 and 0 + 0.5 * 6 - 4 = -1; gamma * lam = 0.25
    assert gae([1.0, 0.0], [2.0, 4.0], gamma=0.5, lam=0.5, bootstrap=6.0) == [0.75, -1.0]


@given(rewards=st.lists(FLOATS, max_size=8), bootstrap=FLOATS)
def test_without_discount_a_return_is_the_sum_of_what_follows(rewards, bootstrap):
    returns = discounted_returns(rewards, 1.0, bootstrap)
    assert returns == pytest.approx([sum(rewards[t:]) + bootstrap for t in range(len(rewards))], abs=1e-9)


@given(rewards=st.lists(FLOATS, max_size=8))
def test_with_full_discount_a_return_is_the_reward(rewards):
    assert discounted_returns(rewards, 0.0, bootstrap=7.0) == rewards


@given(turns=TURNS, gamma=SHARES, bootstrap=FLOATS)
def test_gae_with_lambda_one_is_return_minus_value(turns, gamma, bootstrap):
    rewards, values = [r for r, _ in turns], [v for _, v in turns]
    returns = discounted_returns(rewards, gamma, bootstrap)
    expected = [g - v for g, v in zip(returns, values, strict=True)]
    assert gae(rewards, values, gamma, 1.0, bootstrap) == pytest.approx(expected, abs=1e-9)


@given(turns=TURNS, gamma=SHARES, bootstrap=FLOATS)
def test_gae_with_lambda_zero_is_the_one_step_difference(turns, gamma, bootstrap):
    rewards, values = [r for r, _ in turns], [v for _, v in turns]
    after = [*values[1:], bootstrap]
    expected = [r + gamma * w - v for (r, v), w in zip(turns, after, strict=False)]
    assert gae(rewards, values, gamma, 0.0, bootstrap) == pytest.approx(expected, abs=1e-9)


@given(rewards=st.lists(FLOATS, max_size=8), gamma=SHARES, lam=SHARES, bootstrap=FLOATS)
def test_a_critic_that_knows_the_returns_leaves_no_advantage(rewards, gamma, lam, bootstrap):
    values = discounted_returns(rewards, gamma, bootstrap)
    assert gae(rewards, values, gamma, lam, bootstrap) == pytest.approx([0.0] * len(rewards), abs=1e-9)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan")])
def test_a_discount_outside_its_range_is_refused(gamma):
    with pytest.raises(BadArgument, match="gamma"):
        discounted_returns([1.0], gamma)
    with pytest.raises(BadArgument, match="gamma"):
        gae([1.0], [1.0], gamma, 0.5)
    with pytest.raises(BadArgument, match="lam"):
        gae([1.0], [1.0], 0.5, gamma)


def test_gae_refuses_a_missing_value():
    with pytest.raises(BadArgument, match="2 rewards and 1 values"):
        gae([1.0, 2.0], [1.0], 0.5, 0.5)
