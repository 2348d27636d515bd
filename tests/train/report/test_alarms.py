"""Alarms: each is told on a history that has its trouble, once, and none on a healthy, noisy one."""

import math
from dataclasses import asdict, fields, replace
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from gem.statistics import mann_kendall
from gem.train.config import TrainConfig
from gem.train.report import alarms as module
from gem.train.report.alarms import AGAIN, CHECKS, WINDOW, alarms
from gem.train.report.run_folder import Metrics

BATCH, ITERATIONS = 64, 100
CONFIG = TrainConfig(batch=BATCH, episodes=BATCH * ITERATIONS)
USUAL = {"turns": 3.0, "tokens_trained": 10_000, "lr": 1e-3, "selected": math.nan}


def history(length=ITERATIONS, **figures):
    """Metrics whose figures are numbers, or functions of the iteration."""
    found = []
    for i in range(length):
        given = {name: value(i) if callable(value) else value for name, value in figures.items()}
        values = {field.name: 0.0 for field in fields(Metrics)} | USUAL | given
        values |= {"iteration": i + 1, "episodes": BATCH * (i + 1)}
        gap = values.pop("logprob_gap", 0.0)
        known = {field.name: values[field.name] for field in fields(Metrics) if field.name in values}
        if "logprob_gap" in {field.name for field in fields(Metrics)}:
            found.append(Metrics(**known, logprob_gap=gap))
        else:
            found.append(SimpleNamespace(**asdict(Metrics(**known)), logprob_gap=gap))
    return found


def healthy(seed, *, start=0.3, end=0.9, **changed):
    """A run that learns: success along a sigmoid, with the noise of its batches; entropy falls as it does."""
    rng = np.random.default_rng(seed)
    rates = [start + (end - start) / (1 + math.exp(-(i - 40) / 12)) for i in range(ITERATIONS)]
    success = rng.binomial(BATCH, rates) / BATCH
    figures = {
        "success": lambda i: float(success[i]),
        "reward": lambda i: float(success[i]),
        "unreadable": lambda i: float(rng.binomial(BATCH, 0.3 * (1 - rates[i])) / BATCH),
        "no_verdict": lambda i: int(rng.binomial(BATCH, 0.02)),
        "entropy": lambda i: 0.5 * (1.1 - rates[i]) * float(rng.lognormal(0, 0.2)),
        "step_kl": lambda i: 0.01 * float(rng.lognormal(0, 0.5)),
        "kl": lambda i: 0.005 * i * float(rng.lognormal(0, 0.2)),
        "logprob_gap": lambda i: 0.01 * float(rng.lognormal(0, 0.3)),
    }
    return history(**{**figures, **changed})


def told(metrics, config=CONFIG):
    """All that a run is told, iteration by iteration."""
    return [alarm for i in range(1, len(metrics) + 1) for alarm in alarms(metrics[:i], config)]


def named(found):
    return [(alarm.name, alarm.iteration) for alarm in found]


@pytest.mark.system
def test_healthy_runs_are_told_nothing():
    wrong = [named(told(healthy(seed))) for seed in range(40)]
    assert sum(map(bool, wrong)) == 0, wrong


def test_each_alarm_is_told_once_when_its_trouble_begins():
    after = 60  # iterations that are healthy

    def turned(usual, trouble):
        return lambda i: trouble if i >= after else usual

    troubles = {
        "no_signal": {"success": 0.0, "reward": 0.0, "tokens_trained": turned(10_000, 0)},
        "nothing_selected": {"tokens_trained": turned(10_000, 0), "selected": turned(0.5, 0.0)},
        "entropy_collapsed": {"success": 0.4, "entropy": turned(0.5, 0.001)},
        "format_lost": {"unreadable": turned(0.05, 0.6)},
        "verdicts_lost": {"no_verdict": turned(1, 30)},
        "kl_exploding": {"step_kl": turned(0.01, 0.5)},
        "sampler_disagrees": {"logprob_gap": turned(0.005, 0.3)},
    }
    assert {*troubles, "not_learning"} == {*CHECKS}
    for name, trouble in troubles.items():
        found = told(healthy(0, **trouble))
        mine = [alarm for alarm in found if alarm.name == name]
        assert len(mine) == 1, (name, named(found))
        assert after < mine[0].iteration <= after + WINDOW
        assert {alarm.name for alarm in found} <= {name, "not_learning"}


def test_what_was_gone_and_comes_back_is_told_again():
    def sick(i):
        return 30 if i < 10 or 10 + 2 * AGAIN <= i < 20 + 2 * AGAIN else 0

    found = [alarm for alarm in told(healthy(0, no_verdict=sick)) if alarm.name == "verdicts_lost"]
    assert len(found) == 2
    flickering = told(healthy(0, no_verdict=lambda i: 30 if i % 10 < 5 else 0))
    assert [alarm.name for alarm in flickering] == ["verdicts_lost"]


def test_a_divergence_that_runs_away_is_told_however_small_its_steps():
    found = told(healthy(0, kl=lambda i: 0.1 if i < 60 else 0.1 * 1.5 ** (i - 60)))
    assert [alarm.name for alarm in found] == ["kl_exploding"]
    assert "from the policy before RL" in found[0].text


def test_returns_that_are_all_equal_because_all_succeed_are_told_so():
    solved = healthy(0, success=1.0, reward=1.0, tokens_trained=lambda i: 0 if i > 50 else 100)
    (alarm,) = told(solved)
    assert alarm.name == "no_signal"
    assert "nothing is left to learn" in alarm.text


def test_equal_returns_of_a_reward_of_ones_own_name_it():
    solved = healthy(0, success=1.0, reward=1.0, tokens_trained=lambda i: 0 if i > 50 else 100)
    (alarm,) = told(solved, replace(CONFIG, reward="own.py:pay"))
    assert alarm.name == "no_signal"
    assert "All returns of --reward own.py:pay were equal for 3 iterations" in alarm.text
    assert "too hard for the policy, and every episode fails" not in alarm.text


def test_a_selection_of_nothing_is_told_at_once_and_is_no_equal_returns():
    found = told(healthy(0, tokens_trained=lambda i: 100 * (i < 60), selected=lambda i: 0.5 * (i < 60)))
    (alarm,) = found
    assert (alarm.name, alarm.iteration) == ("nothing_selected", 61)
    assert (
        f"`select` of the algorithm {CONFIG.algorithm} chose no turn of the 64 episodes of iteration 61"
        in alarm.text
    )


def test_episodes_that_all_broke_are_no_equal_returns():
    broken = healthy(
        0, success=math.nan, reward=math.nan, unreadable=math.nan, tokens_trained=0, no_verdict=BATCH
    )
    assert {alarm.name for alarm in told(broken)} == {"verdicts_lost"}


def flat(seed, rate=0.4, slope=0.0):
    rng = np.random.default_rng(seed)
    success = [float(rng.binomial(BATCH, rate + slope * i) / BATCH) for i in range(ITERATIONS)]
    return healthy(seed, success=lambda i: success[i], reward=lambda i: success[i])


@pytest.mark.system
def test_runs_that_learn_nothing_are_told_at_half_of_them():
    found = [named(told(flat(seed))) for seed in range(40)]
    assert {alarm for run in found for alarm in run} == {("not_learning", ITERATIONS // 2)}
    assert sum(map(bool, found)) >= 36  # 97.5% of them are expected


def test_a_later_phase_that_learns_nothing_is_told_at_half_of_it():
    """Its history begins with it, and its episodes count from the beginning of the run."""
    phase = [replace(each, iteration=each.iteration + 100) for each in flat(0)[:40]]
    (alarm,) = told(phase, replace(CONFIG, episodes=BATCH * 140))
    assert (alarm.name, alarm.iteration) == ("not_learning", 120)
    assert alarm.text.startswith("After 50% of the phase success does not rise")


@pytest.mark.system
def test_runs_that_learn_slowly_are_not_told_that_they_do_not():
    found = [named(told(flat(seed, slope=0.004))) for seed in range(40)]  # 0.4 to 0.6 at half of the run
    assert sum(map(bool, found)) <= 2


def test_falling_success_is_told_as_such():
    (alarm,) = told(flat(0, rate=0.6, slope=-0.004))
    assert "but falls" in alarm.text


def test_a_long_run_is_averaged_before_its_trend_is_sought():
    long = history(1000, success=lambda i: 0.4 + 0.1 * math.sin(1000 * i), reward=math.nan)
    config = TrainConfig(batch=BATCH, episodes=BATCH * 2000)
    (alarm,) = alarms(long, config)
    assert alarm.name == "not_learning"
    blocks = [sum(m.success for m in long[i : i + 20]) / 20 for i in range(0, 1000, 20)]
    assert module._trend(long, "success") == pytest.approx(mann_kendall(blocks))


def test_short_histories_and_figures_that_were_not_taken_say_nothing():
    assert alarms([], CONFIG) == []
    missing = {field.name: math.nan for field in fields(Metrics)} | {"no_verdict": 0, "tokens_trained": 9}
    assert told(history(**missing)) == []
    assert told(history(3)) == []


def test_an_alarm_says_what_was_seen_and_what_to_do():
    for alarm in told(healthy(0, entropy=lambda i: 0.5 if i < 60 else 0.001, success=0.4, logprob_gap=0.3)):
        assert any(digit in alarm.text for digit in "0123456789")
        assert any(word in alarm.text for word in ("Take", "Try", "Sample", "Read", "Look"))
