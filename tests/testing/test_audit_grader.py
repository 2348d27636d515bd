import importlib.util
from pathlib import Path

import pytest

from gem import cli
from gem.errors import BadArgument
from gem.graders import MADE
from gem.graders.base import Score
from gem.graders.math import decide, final_answer
from gem.testing.audit_grader import SUBJECTS, audit_grader


def fast(answer, reference):
    """The mathematics grader without its workers."""
    given, _ = final_answer(answer)
    right = given is not None and bool(decide(reference, given)[0])
    return Score(float(right), right)


def test_the_mathematics_grader_passes_its_audit():
    card = audit_grader("math", fast)
    assert card.ok, str(card)
    assert card.mutation_score == card.equivalence_score == 1.0
    assert sum(rule.tried for rule in card.equivalences) > 500
    assert sum(rule.tried for rule in card.mutations) > 400
    assert all(rule.tried for rule in (*card.equivalences, *card.mutations))  # no rule is idle


def test_the_text_grader_passes_its_audit():
    card = audit_grader("text")
    assert card.ok, str(card)
    assert all(rule.tried for rule in (*card.equivalences, *card.mutations))


def test_the_number_grader_passes_its_audit():
    card = audit_grader("number")
    assert card.ok, str(card)
    assert all(rule.tried for rule in (*card.equivalences, *card.mutations))


NOT_AUDITED = {
    "choice": "its answers are letters of the question's own choices",
    "code": "audit_code does it",
}


def test_every_grader_is_audited_named_in_help_and_in_the_guide(capsys):
    assert {*SUBJECTS, *NOT_AUDITED} == {*MADE}
    guide = (Path(__file__).parents[2] / "docs/guides/grader_trust.md").read_text()
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    words = set(capsys.readouterr().out.replace(",", " ").replace(".", " ").split())
    for name in (*SUBJECTS, "code"):
        assert name in words
        assert f"\n| `{name}` |" in guide


@pytest.mark.parametrize(
    ("always", "low", "high"),
    [(True, "mutation_score", "equivalence_score"), (False, "equivalence_score", "mutation_score")],
)
def test_a_grader_that_always_says_the_same_fails(always, low, high):
    card = audit_grader("math", lambda answer, reference: Score(float(always), always))
    assert (getattr(card, low), getattr(card, high), card.ok) == (0.0, 1.0, False)
    assert "0.00%" in str(card)
    assert card.as_dict()[low] == 0.0


def test_a_float_comparison_is_found_out():
    def floats(answer, reference):
        try:
            right = abs(float(answer) - float(reference)) <= 1e-9 * abs(float(reference))
        except ValueError:
            right = answer == reference
        return Score(float(right), right)

    card = audit_grader("math", floats, ["12345678901234567890", "7"])
    wrong = {rule.name: rule.wrong for rule in card.mutations if rule.wrong}
    assert wrong["another last digit"] == [("12345678901234567891", "12345678901234567890")]


def test_an_unknown_grader_is_named():
    with pytest.raises(BadArgument, match="Did you mean 'math'"):
        audit_grader("maths")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="math-verify is not installed")
def test_the_whole_mathematics_grader_passes_its_audit():
    assert audit_grader("math").ok
