import random
from dataclasses import replace

import pytest

from gem.statistics import mean_interval
from gem.train.baselines.rows import Bounds
from gem.train.baselines.summary import summarise_study, trend, with_interval

from .conftest import a_run, an_exact_run, put

TWO = """
    [[environments]]
    id = "game:GuessTheNumber-v0-easy"
    name = "one"
    cpu_s = 15
    [[environments]]
    id = "game:GuessTheNumber-v0-hard"
    name = "two"
    [[variants]]
    name = "first"
    [[variants]]
    name = "second"
"""


def noisy(slope, points=60, noise=0.02, seed=0):
    rng = random.Random(seed)
    return [0.5 + slope * i / points + rng.gauss(0, noise) for i in range(points)]


def test_trends_are_told():
    assert trend([noisy(0.6, seed=1), noisy(0.6, seed=2)], 1.0).says == "rising"
    assert trend([noisy(-0.6)], 1.0).says == "falling"
    assert trend([noisy(0.0)], 1.0).says == "flat"


def test_a_trend_is_that_of_the_last_third():
    levelled = [min(1.0, i / 40) for i in range(60)]
    assert trend([levelled], 1.0).says == "flat"
    rising = trend([[0.0] * 40 + [i / 20 for i in range(20)]], 1.0)
    assert rising.says == "rising"
    assert rising.gain == pytest.approx(0.95)


def test_a_trend_too_small_to_matter_is_none_however_sure():
    creeping = [i / 60 * 0.02 for i in range(60)]
    assert trend([creeping], 1.0).says == "flat"
    assert trend([creeping], 0.1).says == "rising"


@pytest.mark.parametrize("curves", [[], [[0.5] * 29], [[0.5] * 60, [0.5] * 59]])
def test_of_too_little_no_trend_is_told(curves):
    assert trend(curves, 1.0) is None


def test_what_has_not_run_has_no_figures(study):
    cells = summarise_study(study()).cells
    assert [(each.state, each.figures, each.cpu_s) for each in cells] == [("not run", {}, None)]


def test_a_cell_is_the_mean_over_seeds_with_students_interval(study):
    found = study()
    put(found, found.cells[0], {1: a_run(0.4), 2: a_run(0.6)})
    (cell,) = summarise_study(found).cells
    classical = mean_interval([0.4, 0.6])
    assert cell.figures["after"].mean == pytest.approx(0.5)
    assert (classical.low, classical.high) == pytest.approx((-0.7703, 1.7703), abs=1e-3)
    assert cell.figures["after"][1:3] == (0.0, 1.0)  # a rate's ends at 0 and 1
    assert cell.whole
    assert cell.state == ""


def test_failed_and_missing_seeds_are_told_and_enter_no_figure(study):
    found = study(head='title = "t"\n    seeds = [1, 2, 3]')
    put(found, found.cells[0], {1: a_run(0.4), 3: a_run(error="broke"), 9: a_run(1.0)})
    (cell,) = summarise_study(found).cells
    assert cell.figures["after"].n == 1
    assert cell.state == "seed 3 failed, seed 2 not run"


def test_a_row_of_other_settings_counts_for_nothing(study):
    found = study()
    put(found, found.cells[0], {1: a_run(0.4)})
    changed = study(settings="episodes = 64\n    batch = 32")
    (cell,) = summarise_study(changed).cells
    assert cell.figures == {}
    assert cell.state.startswith("not run (its row is of another ")
    assert "episodes" in cell.state


def test_without_success_the_return_is_measured(study):
    found = study()
    put(found, found.cells[0], {1: a_run(0.4)})
    assert summarise_study(found).cells[0].measure == "success"
    from dataclasses import replace

    silent = a_run(0.4)
    silent = replace(silent, figures={n: replace(f, success=None) for n, f in silent.figures.items()})
    put(found, found.cells[0], {1: silent})
    assert summarise_study(found).cells[0].measure == "return"


def test_a_run_over_its_claim_is_marked(study):
    found = study(parts=TWO)
    for cell in found.cells:
        put(found, cell, {1: a_run(cpu_s=15.0), 2: a_run(cpu_s=15.1)})
    assert [each.over for each in summarise_study(found).cells] == [(2,), (2,), (), ()]


def test_variants_are_compared_with_the_first_by_seed(study):
    found = study(head='title = "t"\n    seeds = [1, 2, 3, 4]', parts=TWO)
    levels = {1: 0.3, 2: 0.5, 3: 0.7, 4: 0.4}  # what the seeds share drops out
    gains = {1: 0.1, 2: 0.12, 3: 0.09, 4: 0.11}
    for cell in found.cells:
        more = gains if cell.variant.name == "second" else dict.fromkeys(gains, 0.0)
        put(found, cell, {seed: a_run(levels[seed] + more[seed]) for seed in levels})
    one, two = summarise_study(found).differences
    assert one.interval.mean == pytest.approx(0.105)
    assert one.narrow  # four gains that agree more closely than 50 episodes each can tell
    assert 0.03 < one.interval.low < 0.04
    assert 0.01 < one.p < 0.02
    assert one.corrected == pytest.approx(2 * one.p)
    assert two.environment.name == "two"


def test_a_gain_of_greedy_play_on_which_seeds_agree_is_widened(study):
    found = study()
    (cell,) = found.cells
    runs = {1: a_run(0.5, before_greedy=0.6, greedy=0.5), 2: a_run(0.8, before_greedy=0.7, greedy=0.6)}
    put(found, cell, runs)
    (gain,) = summarise_study(found).gains
    assert gain.greedy.mean == pytest.approx(-0.1)
    assert gain.greedy.low < -0.3  # 50 episodes a seed cannot tell more
    assert gain.greedy.high > 0.1


def test_of_differences_all_alike_no_p_is_told(study):
    found = study(parts=TWO)
    for cell in found.cells:
        run = an_exact_run(0.5 + 0.1 * (cell.variant.name == "second"))
        put(found, cell, dict.fromkeys((1, 2), run))
    assert [(each.p, each.corrected) for each in summarise_study(found).differences] == [(None, None)] * 2


def test_a_seed_that_one_variant_lacks_enters_no_difference(study):
    found = study(parts=TWO)
    for cell in found.cells:
        put(found, cell, {1: a_run()} if cell.variant.name == "second" else {1: a_run(), 2: a_run()})
    assert summarise_study(found).differences == ()


def test_the_mean_over_environments_is_of_scores_between_random_play_and_the_solver(study):
    found = study(parts=TWO)
    for cell in found.cells:
        scores = {"first": (0.2, 0.2), "second": (0.6, 1.0)}[cell.variant.name]
        put(found, cell, dict(zip((1, 2), map(a_run, scores), strict=True)))
    summary = summarise_study(found)
    assert summary.aggregated == ("one", "two")
    first, second = summary.aggregates
    assert first.interval.mean == pytest.approx(0.0)
    assert second.interval.mean == pytest.approx(0.75)
    assert 0.49 < second.interval.low < second.interval.high < 1.01


def test_what_is_not_whole_is_left_out_of_it_with_the_reason(study):
    found = study(parts=TWO)
    unsolved, *others, _ = found.cells
    put(found, unsolved, {1: a_run(), 2: a_run(optimum=None)})
    for cell in others:
        put(found, cell, {1: a_run(), 2: a_run()})
    summary = summarise_study(found)
    assert summary.aggregates == ()
    assert summary.left_out == {
        "one": "the solver is missing, or not above random play",
        "two": "not every cell is finished",
    }


def test_intervals_that_say_nothing_say_why():
    assert with_interval(mean_interval([0.5]), "success") == "50.0% (one seed)"
    assert with_interval(mean_interval([0.5, 0.5]), "return") == "0.500 (the same on all 2 seeds)"
    assert with_interval(mean_interval([0.4, 0.6]), "return", signed=True) == "+0.500 (-0.771 to +1.771)"


def test_files_that_belong_to_nothing_are_named(study):
    found = study()
    put(found, found.cells[0], {1: a_run()})
    (found.rows / "old--variant.json").write_text("{}")
    assert summarise_study(found).strange == ("old--variant.json",)


def slow(after, random=5.0, solver=2.9):
    """Return a run that is measured by the turns that success takes."""
    found = a_run(curve=[5.0 - i / 15 for i in range(31)])
    reached = {"random": random, "before": random, "after": after, "greedy": after, "optimum": solver}
    taken = {
        name: replace(found.figures[name], turns_to_success=Bounds(value, value, value, 50))
        for name, value in reached.items()
    }
    return replace(found, figures=taken)


def test_of_turns_fewer_are_better(study):
    found = study(
        head='title = "t"\n    seeds = [1, 2]\n    score = "turns"',
        parts=TWO.replace("first", "a").replace("second", "b"),
    )
    for cell, (one, other) in zip(found.cells, [(4.0, 4.2), (3.0, 3.2), (4.0, 4.2), (3.0, 3.2)], strict=True):
        put(found, cell, {1: slow(one), 2: slow(other)})
    summary = summarise_study(found)
    first = summary.cells[0]
    assert (first.measure, first.figures["after"].mean) == ("turns", pytest.approx(4.1))
    assert first.figures["random"].mean == 5.0
    assert with_interval(first.figures["after"], "turns") == "4.10 (2.83 to 5.37)"
    assert first.trend.says == "falling"
    assert summary.differences[0].interval.mean == pytest.approx(-1.0)
    by_variant = {each.variant.name: each.interval.mean for each in summary.aggregates}
    assert by_variant["a"] == pytest.approx((5 - 4.1) / (5 - 2.9))
    assert by_variant["b"] == pytest.approx((5 - 3.1) / (5 - 2.9))
