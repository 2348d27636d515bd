"""Gates, scorecards and reports."""

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from gem.errors import BadArgument
from gem.evals import EnvResult
from gem.evals.gates import Checked, Gate, check, refuse_unknown
from gem.evals.reports import junit, markdown
from gem.evals.scorecard import Scorecard, Scored
from gem.evals.suite import Entry
from gem.evals.usage import Price, Prices, Usage
from gem.statistics import Interval, wilson
from gem.statistics.combining import combined, combined_rate

EASY, HARD, OTHER = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard", "game:Sudoku-v0-easy"


def result(env=EASY, won=8, n=10, lost=0, unplayed=0, **more):
    return EnvResult(
        env=env,
        episodes=n + lost + unplayed,
        scored=n,
        at_least=won / (n + lost),
        at_most=(won + lost) / (n + lost),
        turns=3.0,
        unplayed=unplayed,
        errors={"agent: NoVerdict": lost} if lost else {},
        first_error="<b>\x00broke|</b>" if lost else None,
        **{"success": wilson(won, n), "reward": Interval(won / n, 0.1, 0.9, n, n), **more},
    )


def card(*rows, **options):
    entries = [
        row if isinstance(row, Scored) else Scored(Entry(row.env, category=row.env.split("-")[-1]), row)
        for row in rows
    ]
    return Scorecard("me", rows=entries, **options)


@pytest.mark.parametrize(
    ("text", "bound", "metric", "where", "op", "value"),
    [
        ("success>=0.8", "", "success", "", ">=", 0.8),
        (" success > 80 % ", "", "success", "", ">", 0.8),
        ("low(success)>=.8", "low", "success", "", ">=", 0.8),
        ("high( return [ game:X ] ) < -1e-2", "high", "return", "game:X", "<", -0.01),
        ("pass@4[*]<=1", "", "pass@4", "*", "<=", 1.0),
        ("low(pass^2[a(b=[1])])>0", "low", "pass^2", "a(b=[1])", ">", 0.0),
    ],
)
def test_a_gate_is_read(text, bound, metric, where, op, value):
    gate = Gate.parse(text)
    assert (gate.bound, gate.metric, gate.where, gate.op) == (bound, metric, where, op)
    assert gate.value == pytest.approx(value)


@pytest.mark.parametrize(
    "text",
    [
        *("", "success", "success>=", ">=1", "success==1", "success>=nan", "success>=inf", "success>=1e999"),
        *("success>=0.8 or True", "__import__('os')>1", "low(low(success))>1", "x" * 10**6, "success>=1.2.3"),
    ],
)
def test_what_is_no_gate_is_refused(text):
    with pytest.raises(BadArgument, match=r"cannot be read|is about"):
        Gate.parse(text)


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("success>=80", "0 to 1, or 0% to 100%"),
        ("low(success)>=80", "0 to 1, or 0% to 100%"),
        ("success[*]>=101%", "0 to 1, or 0% to 100%"),
        ("pass@4>1", "below 1 with >"),
        ("coverage>=95", "0 to 1, or 0% to 100%"),
        ("doubtful<0", "above 0 with <"),
        ("success<=-1", "0 to 1, or 0% to 100%"),
        ("turns<-1", "0 or more"),
        ("cost<0", "above 0 with <"),
    ],
)
def test_a_gate_that_no_figure_passes_or_fails_is_refused(text, accepted):
    with pytest.raises(BadArgument) as caught:
        Gate.parse(text)
    assert str(caught.value).endswith(f"accepted: {accepted}.")
    for fine in ("success<=1", "pass^2>=1", "turns<=0", "cost<=0", "return<-3", "tokens>1e6", "doubtful<=0"):
        Gate.parse(fine)


def test_an_unknown_metric_place_or_number_of_samples_is_refused_before_anything_is_played():
    with pytest.raises(BadArgument, match="Did you mean 'success'"):
        Gate.parse("succes>=0.8")
    with pytest.raises(BadArgument, match="coverage has no interval"):
        Gate.parse("low(coverage)>=0.8")
    for text, said in (
        ("success[game:Sudoku]>0", "which is not played"),
        ("pass@5>0", "needs 5 samples"),
        ("pass@1>0", "needs 2 samples"),
        ("cost<1", "--prices"),
    ):
        samples = dict.fromkeys(("", EASY, "easy"), 1 if "@1" in text else 4)
        with pytest.raises(BadArgument, match=said):
            refuse_unknown([Gate.parse(text)], samples, [], False)
    known = [Gate.parse(text) for text in ("success[easy]>0", f"success[{EASY}]>0", "pass@4>0", "cost<1")]
    refuse_unknown(known, dict.fromkeys(("", EASY, "easy"), 4), [], True)


def passed(text, of):
    (found,) = check([Gate.parse(text)], of)
    return found.passed


def test_gates_read_the_figures():
    of = card(result(won=8), result(HARD, won=6))
    assert passed("success>=0.7", of)
    assert not passed("success>0.7", of)
    assert not passed("low(success)>=0.6", of)
    assert passed("high(success)>=0.8", of)
    assert passed(f"success[{EASY}]>=80%", of)
    assert not passed(f"success[{HARD}]>=80%", of)
    assert passed("success[hard]>=60%", of)
    assert not passed("success[*]>0.6", of)
    assert passed("success[*]>=0.6", of)
    assert passed("turns<=3", of)
    assert passed("coverage>=1", of)
    assert passed("tokens<=30", card(result(usage={"m": Usage(20, 10)})))


def test_a_figure_that_is_not_there_fails_its_gate():
    silent = result()
    silent = EnvResult(**{**{name: getattr(silent, name) for name in silent.__slots__}, "success": None})
    assert not passed("success>=0", card(silent))
    assert not passed("success>=0", card(Scored(Entry(EASY), missing="no data")))
    assert not passed("success[*]>=0", card(Scored(Entry(EASY), missing="no data")))
    assert not passed("success>=0", card(result(lost=10), min_coverage=0.9))
    assert not passed(f"success[{EASY}]>=0", card(result(lost=10), min_coverage=0.9))
    assert passed("coverage>=0.5", card(result(lost=10), min_coverage=0.9))


def test_the_overall_figure_is_the_mean_over_environments_by_weight():
    first, second = result(won=9, n=10), result(HARD, won=10, n=100)
    overall = card(first, second).overall
    assert overall.success == combined_rate([first.success, second.success])
    assert overall.success.mean == pytest.approx(0.5)  # not 19 of 110
    assert (overall.environments, overall.episodes, overall.scored, overall.turns) == (2, 110, 110, 3.0)
    heavy = Scorecard("me", rows=[Scored(Entry(EASY, weight=3), first), Scored(Entry(HARD), second)])
    assert heavy.overall.success.mean == pytest.approx(0.7)
    assert heavy.categories == []


def test_returns_that_are_rates_have_the_overall_interval_of_rates():
    rates = [result(reward=wilson(10, 10), success=None), result(HARD, reward=wilson(9, 10))]
    assert card(*rates).overall.reward == combined_rate([each.reward for each in rates])
    others = [result(), result(HARD)]
    assert card(*others).overall.reward == combined([each.reward for each in others])


def test_environments_that_share_tasks_are_one_sample_in_the_overall_figure():
    one = result()

    def overall(*rows):
        return card(*(Scored(entry, one, seeds=seeds) for entry, seeds in rows)).overall.success

    drawn, later = range(10), range(10, 20)
    variants = overall((Entry(EASY), drawn), (Entry(EASY, wrappers=("concat",)), drawn))
    assert variants[1:3] == pytest.approx(one.success[1:3])
    ids = overall((Entry(EASY), drawn), (Entry(HARD), drawn))
    assert ids.high - ids.low < one.success.high - one.success.low
    assert overall((Entry(EASY), drawn), (Entry(EASY), later)) == ids
    assert overall((Entry(EASY), drawn), (Entry(EASY), later), (Entry(EASY), range(5, 15)))[1:3] == (
        pytest.approx(one.success[1:3])
    )


def test_what_is_not_here_is_left_out_and_counted_never_zero():
    of = card(result(), Scored(Entry(OTHER, category="other"), missing="needs data"))
    assert (of.overall.environments, of.overall.left_out, of.overall.success.mean) == (1, 1, 0.8)
    assert of.overall.withheld == f"without {OTHER}, which is not here"
    for gate in ("success>0", "success[*]>0", "coverage>=1", "coverage[*]>=1", "low(return)>0"):
        assert not passed(gate, of)
    assert passed(f"success[{EASY}]>0", of)
    (every,) = check([Gate.parse("success[*]>0")], of)
    assert every.said == f"{OTHER}: no figure, it is not here"
    assert of.categories[1].withheld == "no environment of it is here"
    values = json.loads(json.dumps(of.to_json()))
    assert values["results"][1]["missing"] == "needs data"
    assert (values["overall"]["left_out"], values["overall"]["coverage"]) == (1, 1.0)
    assert of.categories[1].to_json()["coverage"] is None
    assert card(result(lost=10), result(HARD)).overall.to_json()["coverage"] == pytest.approx(20 / 30)


def test_there_is_no_mean_of_a_figure_that_an_environment_has_not():
    broken = replace(result(HARD, won=1, n=1, lost=9), scored=0, success=None, reward=None, turns=None)
    of = card(result(), broken)
    assert (of.overall.success, of.overall.reward, of.overall.turns) == (None, None, None)
    assert of.overall.gaps == {"success": f"{HARD} has none", "return": f"{HARD} has none"}
    for gate, metric in (("success>=0", "success"), ("low(reward)>-9", "return")):
        (checked,) = check([Gate.parse(gate)], of)
        assert (checked.passed, checked.said) == (False, f"overall: no figure, {of.overall.gaps[metric]}")
    silent = replace(result(HARD), success=None)
    assert (card(silent).overall.gaps, card(result(), silent).overall.reward.mean) == ({}, 0.8)
    scale = Interval(0.5, 0.4, 0.6, 4, 4)
    of = card(Scored(Entry(EASY), result(), normalised=scale), Scored(Entry(HARD), result(HARD)))
    assert (of.overall.normalised, [*of.overall.gaps]) == (None, ["normalised"])


def test_under_the_coverage_no_headline_is_given_and_it_says_why():
    of = card(result(lost=5, unplayed=5), result(HARD), min_coverage=0.95)
    assert of.withheld(of.results[0]) == (
        "coverage 50.0% is under 95.0%: of 20 episodes 5 without verdict and 5 not played"
    )
    assert of.overall.withheld == f"the coverage of {EASY} is under 95.0%"
    assert of.to_json()["results"][0]["withheld"].startswith("coverage 50.0%")
    assert card(result(lost=5)).overall.withheld == ""
    both = card(result(lost=5), result(HARD, lost=5), result(OTHER, lost=5), min_coverage=0.95)
    assert both.overall.withheld == f"the coverage of {EASY} and 2 more is under 95.0%"


def test_episodes_that_do_not_say_success_are_not_in_its_coverage():
    of = card(result(n=10, unclear=3), min_coverage=0.8)
    assert of.withheld(of.results[0]) == (
        "coverage 70.0% is under 80.0%: of 10 episodes 3 without word of success"
    )
    assert card(result(n=10, unclear=2), min_coverage=0.8).overall.withheld == ""


def test_return_and_turns_are_known_where_success_is_not():
    of = card(result(n=10, unclear=3), result(HARD), min_coverage=0.95)
    assert of.overall.withheld == f"the share of episodes with word of success of {EASY} is under 95.0%"
    assert of.overall.withheld_known == ""
    assert card(result(lost=5), min_coverage=0.95).overall.withheld_known


def test_pass_figures_over_too_few_tasks_are_withheld():
    passes = {"pass@1": wilson(20, 40), "pass@2": wilson(24, 27)}
    few, all_there = result(passes=passes, tasks=40), result(HARD, passes=passes)  # of an earlier version
    of = card(few, all_there, min_coverage=0.7)
    assert [*of.withheld_passes(few)] == ["pass@2"]
    assert [*of.overall.passes] == ["pass@1"]
    why = "27 of 40 tasks have the verdicts for pass@2, under 70.0%"
    assert check([Gate.parse("pass@2>0"), Gate.parse("pass@2[*]>0")], of) == [
        Checked(Gate.parse("pass@2>0"), "me", False, f"overall: no figure, {EASY}: {why}"),
        Checked(Gate.parse("pass@2[*]>0"), "me", False, f"{EASY}: no figure, {why}"),
    ]
    assert of.to_json()["results"][0]["withheld_passes"] == {"pass@2": why}
    assert f"| {EASY} | 80.0% (49.0% to 94.3%) | 10/10 | 0.800 (0.100 to 0.900) | 3.00 | 50.0%" in markdown(
        [of]
    )
    assert " | withheld |" in markdown([of])
    assert "over 27 of 40 tasks" in markdown([card(few)])
    assert passed("pass@2>0.8", card(few))


def test_tasks_that_environments_share_are_no_lost_ones_in_the_overall_pass_figures():
    one = result(passes={"pass@1": wilson(3, 6)}, tasks=6)
    prompts = [Scored(Entry(EASY), replace(one, env=name), seeds=range(6)) for name in "ab"]
    other = Scored(Entry(HARD), replace(one, env=HARD))
    for of, tasks in ((card(*prompts), 6), (card(*prompts, other), 12)):
        assert (of.overall.passes["pass@1"].clusters, of.overall.tasks) == (tasks, tasks)
        assert "tasks" not in markdown([of])


PRICED = Prices({"m": Price(1.0, 2.0, 0.5)})


def test_the_markdown_report_holds_every_figure_and_no_foreign_markup():
    hostile = Scored(Entry(OTHER), missing="get it | <script>x</script>\n# [link](x)")
    of = card(
        result(usage={"m": Usage(10**6, 10**6)}),
        result(HARD, lost=9),
        hostile,
        min_coverage=0.9,
        prices=PRICED,
    )
    text = markdown(
        [of],
        check([Gate.parse("success>=0.9"), Gate.parse("tokens>0")], of),
        title="mine",
        notes=["warning: a `b`"],
        command="gem-gym eval x",
    )
    assert "| turns | tokens | tokens/success | s/success | cost |" in text
    assert (
        f"| {EASY} | 80.0% (49.0% to 94.3%) | 10/10 | 0.800 (0.100 to 0.900) | 3.00 | 2,000,000 | - | - "
        "| $3.00 |" in text
    )
    assert f"| {HARD} | withheld | 10/19 |" in text
    assert f"{HARD}: without verdict: 9 " in text
    assert "Whatever they would have been, success is 42.1% to 89.5%." in text
    assert text.count("without verdict:") == 1
    assert "**failed**: `success>=0.9`" in text
    assert "- passed: `tokens>0`" in text
    assert "<script>" not in text
    assert "\n# [link]" not in text
    assert text.endswith("```sh\ngem-gym eval x\n```\n")


def test_the_junit_report_has_a_suite_for_each_environment_and_gates_as_cases():
    of = card(result(), result(HARD, lost=2), Scored(Entry(OTHER), missing="no \x00data"))
    gates = [Gate.parse(text) for text in (f"success[{EASY}]>=0.9", "success>=0.1", "success[*]>=0.1")]
    root = ElementTree.fromstring(junit([of], check(gates, of)))
    assert root.tag == "testsuites"
    assert [root.get(name) for name in ("tests", "failures", "errors")] == ["6", "3", "1"]
    first, second, third, overall = root
    assert [case.get("name") for case in first] == ["verdicts", f"success[{EASY}]>=0.9"]
    assert "0.8" in first[1].find("failure").get("message")
    assert second[0].find("error").get("message") == "2 of 12 episodes have no verdict, 0 not played"
    assert "<b>\ufffdbroke|</b>" in second[0].find("error").text
    assert third[0].find("skipped") is not None
    assert third.get("skipped") == "1"
    assert [case.get("name") for case in overall] == ["success>=0.1", "success[*]>=0.1"]
    told = ElementTree.fromstring(junit([card(result(), result(HARD, lost=2), min_coverage=0.9)], []))
    assert [each.text for each in told.iter("system-out")] == [
        "success 80.0% (49.0% to 94.3%), return 0.800 (0.100 to 0.900)",
        "success withheld, return withheld",
    ]


def test_a_figure_that_rounding_moved_is_equal():
    thirds = card(result(EASY, won=7), result(HARD, won=8), result(OTHER, won=9))
    assert thirds.overall.success.mean < 0.8  # in floating point
    gates = [Gate.parse(text) for text in ("success>=0.8", "success<=80%", "success>0.8", "success<0.8")]
    assert [each.passed for each in check(gates, thirds)] == [True, True, False, False]


def test_a_figure_is_told_so_that_it_can_be_compared():
    figures = card(result(won=99_996, n=100_000, usage={"m": Usage(123_456, 7)}))
    gates = [Gate.parse(text) for text in ("success>=0.99997", "tokens<=123462", "low(return)>0.2")]
    assert [each.said for each in check(gates, figures)] == [
        "overall: 0.99996",
        "overall: 123463",
        "overall: 0.1",
    ]
    unbounded = card(result(won=1, n=1, reward=Interval(1.0, -math.inf, math.inf, 1, 1)))
    assert check([Gate.parse("low(return)>=0")], unbounded)[0].said == "overall: -inf"


def test_tokens_that_nobody_counted_are_no_zero():
    (checked,) = check([Gate.parse("tokens<=10")], card(result()))
    assert (checked.passed, checked.said) == (False, "overall: no figure, no tokens were counted")
    (checked,) = check([Gate.parse("tokens<=10")], replace(card(result()), agent="random"))
    assert (checked.passed, checked.said) == (True, "overall: 0")
    some = result(usage={"m": Usage(10, 5, uncounted=3)})
    figures = card(some, prices=Prices({"m": Price(1, 1, 1)}))
    assert figures.cost(some.usage) is None
    for text in ("tokens<100", "cost<1"):
        (checked,) = check([Gate.parse(text)], figures)
        assert (checked.passed, checked.said) == (
            False,
            "overall: no figure, the tokens of 3 turns were not counted",
        )
