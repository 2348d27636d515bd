import functools
import math
import operator
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from records import episode, paid

from gem.errors import BadArgument
from gem.estimators import KINDS, grpo, has_signal, rebn, reinforce, turn_advantages
from gem.record import StopReason

FLOATS = st.floats(-100, 100)
BATCHES = st.lists(st.lists(FLOATS, max_size=5), max_size=6)
SCORES = st.lists(st.tuples(FLOATS, st.sampled_from("abc")), max_size=12)


def flat(batch):
    return [value for turns in batch for value in turns]


def varied(values):
    """Whether the values differ by more than rounding can explain."""
    return len(values) > 1 and max(values) - min(values) > 1e-3


def earned(*rewards, **fields):
    return episode(*paid(*rewards), **fields)


def test_rebn_by_hand():
    assert rebn([[1.0, 3.0], [5.0], [7.0]]) == [
        pytest.approx([-3 / 5**0.5, -1 / 5**0.5]),
        pytest.approx([1 / 5**0.5]),
        pytest.approx([3 / 5**0.5]),
    ]


def test_grpo_by_hand():
    scores, groups = [1.0, 5.0, 0.0, 3.0], ["a", "b", "a", "b"]
    assert grpo(scores, groups) == [1.0, 1.0, -1.0, -1.0]
    assert grpo(scores, groups, scale=False) == [0.5, 1.0, -0.5, -1.0]


@given(batch=BATCHES)
def test_reinforce_is_the_return(batch):
    assert reinforce(batch) == batch


@given(batch=BATCHES)
def test_rebn_has_mean_zero_and_deviation_one(batch):
    assume(varied(flat(batch)))
    advantages = rebn(batch)
    assert [len(turns) for turns in advantages] == [len(turns) for turns in batch]
    values = flat(advantages)
    assert math.fsum(values) / len(values) == pytest.approx(0, abs=1e-9)
    assert math.fsum(v * v for v in values) / len(values) == pytest.approx(1)


@given(batch=BATCHES, factor=st.floats(0.01, 100), shift=FLOATS)
def test_rebn_ignores_scale_and_shift(batch, factor, shift):
    assume(varied(flat(batch)))
    moved = [[factor * value + shift for value in turns] for turns in batch]
    assert flat(rebn(moved)) == pytest.approx(flat(rebn(batch)), abs=1e-6)


@given(batch=BATCHES, order=st.randoms(use_true_random=False))
def test_rebn_does_not_depend_on_the_order_of_episodes(batch, order):
    places = list(range(len(batch)))
    order.shuffle(places)
    shuffled = rebn([batch[place] for place in places])
    straight = rebn(batch)
    assert shuffled == [straight[place] for place in places]


@given(scores=SCORES, scale=st.booleans())
def test_grpo_sums_to_zero_in_each_group(scores, scale):
    values, groups = [value for value, _ in scores], [group for _, group in scores]
    advantages = grpo(values, groups, scale=scale)
    for group in set(groups):
        mine = [a for a, g in zip(advantages, groups, strict=True) if g == group]
        assert math.fsum(mine) == pytest.approx(0, abs=1e-6)


@given(scores=SCORES, scale=st.booleans(), order=st.randoms(use_true_random=False))
def test_grpo_does_not_depend_on_the_order_of_episodes(scores, scale, order):
    shuffled = list(scores)
    order.shuffle(shuffled)

    def table(pairs):
        return sorted(
            zip(pairs, grpo([v for v, _ in pairs], [g for _, g in pairs], scale=scale), strict=True)
        )

    assert table(shuffled) == table(scores)


@given(scores=SCORES)
def test_a_group_does_not_feel_another(scores):
    values, groups = [value for value, _ in scores], [group for _, group in scores]
    together = grpo(values, groups)
    for group in set(groups):
        mine = [value for value, other in scores if other == group]
        assert grpo(mine, [group] * len(mine)) == [
            advantage for advantage, other in zip(together, groups, strict=True) if other == group
        ]


@pytest.mark.parametrize("value", [0.0, 0.1, -3.3, 1e300])
@pytest.mark.parametrize("kind", ["rebn", "grpo", "dr_grpo"])
def test_equal_returns_have_no_signal(kind, value):
    advantages = turn_advantages([earned(value) for _ in range(3)], kind, 1.0)
    assert advantages == [[0.0]] * 3
    assert not has_signal(advantages)


def test_rounding_is_no_signal():
    # A won game earns 1 in all, in parts that depend on the way; summed, the parts differ by an ulp.
    ways = [[0.1, 0.2, 0.7], [0.7, 0.2, 0.1], [1.0]]
    # From Python 3.12 on, sum() rounds once.
    assert len({functools.reduce(operator.add, way) for way in ways}) > 1
    assert all(sum(map(Fraction, map(str, way))) == 1 for way in ways)
    assert turn_advantages([earned(*way) for way in ways], "grpo", 1.0) == [[0.0] * 3, [0.0] * 3, [0.0]]


def test_reinforce_has_signal_where_equal_returns_are_not_zero():
    assert has_signal(turn_advantages([earned(1.0), earned(1.0)], "reinforce", 1.0))
    assert not has_signal(turn_advantages([earned(0.0), earned(0.0)], "reinforce", 1.0))
    assert not has_signal([None, []])


def test_turn_advantages_by_hand():
    batch = [earned(0.0, 1.0, group="a"), earned(0.0, group="a"), earned(1.0, group="b")]
    assert turn_advantages(batch, "reinforce", 0.5) == [[0.5, 1.0], [0.0], [1.0]]
    # returns 0.5, 1, 0, 1: mean 0.625, variance 2.75 / 16
    deviation = (2.75 / 16) ** 0.5
    assert turn_advantages(batch, "rebn", 0.5) == [
        pytest.approx([-0.125 / deviation, 0.375 / deviation]),
        pytest.approx([-0.625 / deviation]),
        pytest.approx([0.375 / deviation]),
    ]
    assert turn_advantages(batch, "grpo", 0.5) == [[1.0, 1.0], [-1.0], [0.0]]
    assert turn_advantages(batch, "dr_grpo", 1.0) == [[0.5, 0.5], [-0.5], [0.0]]


@given(
    rewards=st.lists(st.lists(FLOATS, max_size=4), max_size=5),
    broken=st.lists(st.integers(0, 5), max_size=3),
    kind=st.sampled_from(KINDS),
)
def test_episodes_without_verdict_change_nothing(rewards, broken, kind):
    whole = [earned(*turns) for turns in rewards]
    batch = list(whole)
    for place in broken:
        batch.insert(place, earned(math.nan, None, stop=StopReason.ERROR))
    advantages = turn_advantages(batch, kind, 0.9)
    assert [a is None for a in advantages] == [not e.scored for e in batch]
    assert [a for a in advantages if a is not None] == turn_advantages(whole, kind, 0.9)


def test_only_the_seats_turns_count():
    first, second = paid(1.0, 2.0, seat="x")
    game = episode(first, *paid(-5.0, seat="o"), second)
    assert turn_advantages([game], "reinforce", 1.0, seat="x") == [[3.0, 2.0]]
    assert turn_advantages([game], "reinforce", 1.0, seat="o") == [[-5.0]]


def test_what_no_estimator_can_read_is_refused():
    with pytest.raises(BadArgument, match="'ppo'; accepted: reinforce, rebn"):
        turn_advantages([], "ppo", 1.0)
    with pytest.raises(BadArgument, match=r"episode '.+-e-0-0', turn 1 of 'agent': the reward is nan"):
        turn_advantages([earned(1.0, math.nan, job="e")], "rebn", 1.0)
    with pytest.raises(BadArgument, match="2 scores and 1 groups"):
        grpo([1.0, 2.0], ["a"])
