"""What statsmodels computes too."""

import numpy as np
import pytest

from gem.statistics import holm, mcnemar, noise, paired_difference, smallest_difference, wilson

pytest.importorskip("statsmodels", reason="statsmodels is no dependency; pip install statsmodels")

import statsmodels.api as sm
from statsmodels.stats.contingency_tables import mcnemar as theirs
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower
from statsmodels.stats.proportion import proportion_confint


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (3, 10), (40, 41), (0, 7), (500, 600)])
def test_mcnemar(lost, won):
    if lost + won:
        assert mcnemar(lost, won) == pytest.approx(theirs([[9, lost], [won, 4]], exact=True).pvalue)
    else:
        assert mcnemar(lost, won) == 1.0


def test_holm():
    ps = np.random.default_rng(0).random(12) ** 3
    assert holm(ps.tolist()) == pytest.approx(multipletests(ps, method="holm")[1].tolist())


@pytest.mark.parametrize(("won", "of"), [(0, 20), (3, 20), (20, 20), (190, 200)])
def test_wilson(won, of):
    assert wilson(won, of)[1:3] == pytest.approx(proportion_confint(won, of, method="wilson"), abs=1e-12)


def test_clustered_differences():
    """An ordinary regression on a constant, with standard errors that allow for clusters."""
    rng = np.random.default_rng(1)
    tasks = np.repeat(np.arange(25), rng.integers(1, 6, 25))
    first, second = (rng.normal(size=25)[tasks] + rng.normal(size=len(tasks)) for _ in range(2))
    model = sm.OLS(second - first, np.ones(len(tasks)))
    fitted = model.fit(cov_type="cluster", cov_kwds={"groups": tasks}, use_t=True)
    ours = paired_difference(first.tolist(), second.tolist(), tasks.tolist())
    # Theirs corrects by (n - 1) / (n - 1) too, of one coefficient: the same.
    assert ours[:3] == pytest.approx((fitted.params[0], *fitted.conf_int()[0]), rel=1e-6)


@pytest.mark.parametrize("tasks", [20, 60, 400])
@pytest.mark.parametrize("power", [0.8, 0.9])
def test_smallest_differences(tasks, power):
    paired = TTestPower().solve_power(nobs=tasks, alpha=0.05, power=power)
    assert smallest_difference(1 / tasks, tasks, power=power) == pytest.approx(paired, rel=0.01)
    apart = TTestIndPower().solve_power(nobs1=tasks, alpha=0.05, power=power)
    assert smallest_difference(2 / tasks, tasks, power=power, paired=False) == pytest.approx(apart, rel=0.01)


def test_variance_components():
    """A mixed model by restricted likelihood: of balanced data the same as the analysis of variance."""
    rng = np.random.default_rng(2)
    tasks = np.repeat(np.arange(40), 4)
    values = rng.normal(0, 1, 40)[tasks] + rng.normal(0, 1.5, 160)
    fitted = sm.MixedLM(values, np.ones(160), tasks).fit(reml=True)
    ours = noise(values.tolist(), tasks.tolist())
    assert ours.between == pytest.approx(float(np.asarray(fitted.cov_re)[0, 0]), rel=1e-3)
    assert ours.within == pytest.approx(fitted.scale, rel=1e-3)
