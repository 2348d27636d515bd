import math
import random

import pytest

from gem.errors import BadArgument
from gem.statistics import interquartile_mean, stratified_interval


@pytest.mark.parametrize("count", range(1, 30))
def test_it_is_the_mean_that_scipy_trims(count):
    stats = pytest.importorskip("scipy.stats")
    values = [random.Random(count).gauss(0, 1) for _ in range(count)]
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


def test_one_run_far_out_does_not_move_it():
    assert interquartile_mean([0, 1, 2, 3]) == interquartile_mean([0, 1, 2, 1e9]) == 1.5


def test_equal_scores_give_a_point():
    assert stratified_interval([[0.5] * 4, [0.5] * 4])[:3] == (0.5, 0.5, 0.5)


def test_runs_are_drawn_within_their_task():
    """Tasks far apart, whose runs are all alike: drawn over all runs, the mean would swing between them."""
    found = stratified_interval([[0.0] * 8, [1.0] * 8])
    assert found[:3] == (0.5, 0.5, 0.5)
    assert (found.n, found.clusters) == (16, 2)


def test_the_same_seed_gives_the_same_bounds():
    strata = [[random.Random(task * 10 + run).random() for run in range(5)] for task in range(3)]
    first, again, other = (stratified_interval(strata, resamples=500, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first.low < first.mean < first.high


def test_it_covers():
    """Normal scores of two tasks, 12 runs each: the interquartile mean of the whole is 0.5."""
    hits = 0
    for trial in range(200):
        rng = random.Random(trial)
        strata = [[rng.gauss(mean, 0.1) for _ in range(12)] for mean in (0.5, 0.5)]
        found = stratified_interval(strata, resamples=300)
        hits += found.low <= 0.5 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


@pytest.mark.parametrize("strata", [[], [[]], [[1.0], []], [[math.nan]], [[math.inf, 0.0]]])
def test_what_are_no_scores_is_refused(strata):
    with pytest.raises(BadArgument, match="score"):
        stratified_interval(strata)


@pytest.mark.parametrize(("options", "named"), [({"level": 1.0}, "level"), ({"resamples": 10}, "resamples")])
def test_bad_options_are_refused(options, named):
    with pytest.raises(BadArgument, match=named):
        stratified_interval([[1.0, 2.0]], **options)
