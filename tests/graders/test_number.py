import pytest

from gem.errors import BadArgument
from gem.graders.number import NumberGrader


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("\\boxed{18}", "She makes 9 * 2 = 18.\n#### 18"),
        ("So 9 * 2 = 18 dollars.", "18"),
        ("\\boxed{\\$1,234.50}", 1234.5),
        ("<answer>half: 1/2</answer>", "0.5"),
        ("\\boxed{\\frac{1}{4}}", 0.25),
        ("\\boxed{−3 m}", "-3 (metres)"),
        ("\\boxed{eighteen}", 18),
        ("\\boxed{9 apples}", ["8", "9 (apples)"]),
        ("\\boxed{1.5e3}", 1500),
    ],
)
def test_the_same_number_is_right_however_it_is_written(answer, gold):
    assert NumberGrader()(answer, gold).correct


@pytest.mark.parametrize(
    ("answer", "gold", "parsed"),
    [
        ("\\boxed{19}", "18", "19"),
        ("\\boxed{3}", "-3", "3"),
        ("18, or rather 19", "18", "19"),
        ("\\boxed{18 or 19}", "18", None),
        ("\\boxed{0.3333}", "1/3", "0.3333"),
        ("\\boxed{10000001}", "10000002", "10000001"),
        ("no idea", "18", None),
        ("", "18", None),
        ("\\boxed{" + "9" * 5000 + "}", "18", None),
        ("\\boxed{1e999999999}", "18", None),
    ],
)
def test_another_number_is_wrong_and_several_are_none(answer, gold, parsed):
    score = NumberGrader()(answer, gold)
    assert not score.correct
    assert score.parsed == parsed


def test_a_tolerance_is_relative():
    assert NumberGrader(0.01)("\\boxed{101}", 100).correct
    assert not NumberGrader(0.01)("\\boxed{102}", 100).correct
    with pytest.raises(BadArgument, match="tolerance is 2"):
        NumberGrader(2)


@pytest.mark.parametrize("gold", ["many", "3 of 4", True, None, {}, [], float("nan")])
def test_a_reference_without_one_number_is_refused(gold):
    with pytest.raises(BadArgument, match="accepted by the number grader"):
        NumberGrader()("\\boxed{1}", gold)
