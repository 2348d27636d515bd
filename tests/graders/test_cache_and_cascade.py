import threading

import pytest

from gem.agents.scripted import ScriptedAgent
from gem.errors import BadArgument, NoVerdict, StoreError
from gem.graders.base import UNDECIDED, Score
from gem.graders.cache import CachedGrader
from gem.graders.cascade import CascadeGrader
from gem.graders.code import CodeGrader
from gem.graders.judge import JudgeGrader
from gem.graders.math import MathGrader
from gem.graders.text import TextGrader
from gem.sandbox.base import Budget


class Counting:
    """Right when answer and reference are equal; counts its calls."""

    name = "counting/1"

    def __init__(self, fold=False):
        self.calls = 0
        self.fold = fold

    def __call__(self, answer, reference):
        self.calls += 1
        if answer == "break":
            raise NoVerdict("broken")
        same = answer.lower() == reference.lower() if self.fold else answer == reference
        return Score(float(same), same, answer, "same" if same else "other", {"n": 1})


def test_the_same_content_is_graded_once():
    grader = Counting()
    cached = CachedGrader(grader)
    first, again = cached("a", "b"), cached("a", "b")
    assert first == again
    assert not cached("b", "a").correct  # the two do not run together
    assert (grader.calls, cached.hits, cached.misses) == (2, 1, 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (TextGrader(), TextGrader("f1")),
        (TextGrader(), TextGrader(official=True)),
        (MathGrader(), MathGrader(cpu_s=9.0)),
        (CodeGrader(), CodeGrader(max_tests=1)),
        (CodeGrader(), CodeGrader(budget=Budget(cpu_s=1.0))),
        (
            CascadeGrader({"text": TextGrader(), "math": MathGrader()}),
            CascadeGrader({"text": TextGrader("f1"), "math": MathGrader()}),
        ),
        (CascadeGrader({"a": TextGrader()}), CascadeGrader({"b": TextGrader()})),
    ],
)
def test_graders_of_other_settings_do_not_share_verdicts(one, other):
    assert CachedGrader(one).name != CachedGrader(other).name
    assert CachedGrader(one).name == CachedGrader(type(one)(*one._init[0], **one._init[1])).name


def test_a_verdict_under_one_metric_is_none_under_another(tmp_path):
    path = tmp_path / "verdicts.db"
    with CachedGrader(TextGrader("f1"), path) as f1, CachedGrader(TextGrader(), path) as em:
        assert f1("the red house", "house").value == pytest.approx(2 / 3)
        assert em("the red house", "house").value == 0.0


def test_settings_that_cannot_be_told_apart_need_a_name():
    judge = JudgeGrader(ScriptedAgent(["x"]), "Be strict.")
    with pytest.raises(BadArgument, match=r"JudgeGrader\.agent cannot be written down"):
        CachedGrader(judge)
    assert CachedGrader(judge, name="strict judge").name == "strict judge"


def test_what_a_spent_budget_left_undecided_is_asked_again(tmp_path):
    class Tired(Counting):
        def __call__(self, answer, reference):
            self.calls += 1
            return Score(0.0, False, None, UNDECIDED) if self.calls == 1 else Score(1.0, True)

    grader = Tired()
    with CachedGrader(grader, tmp_path / "verdicts.db") as cached:
        assert [cached("a", "b").correct for _ in range(3)] == [False, True, True]
    assert grader.calls == 2
    assert MathGrader()(r"\boxed{9^9^9^9}", "7").why == UNDECIDED


def test_every_grader_can_be_cached():
    cached = CachedGrader(CodeGrader())
    tests = {"entry_point": "f", "inputs": [[2]], "outputs": [4]}
    first = cached("no code at all", tests)
    assert cached("no code at all", tests) == first
    assert (cached.hits, cached.misses) == (1, 1)


def test_what_has_no_verdict_is_asked_again():
    grader = Counting()
    cached = CachedGrader(grader)
    for _ in range(2):
        with pytest.raises(NoVerdict):
            cached("break", "x")
    assert grader.calls == 2


def test_capacity_bounds_the_memory():
    grader = Counting()
    cached = CachedGrader(grader, capacity=2)
    for answer in "abcab":
        cached(answer, "x")
    assert grader.calls == 5
    cached("b", "x")
    assert grader.calls == 5


def test_a_file_outlives_the_process_and_serves_many(tmp_path):
    path = tmp_path / "verdicts.db"
    with CachedGrader(Counting(), path) as cached:
        first = cached("a\ud800", "a")
    grader = Counting()
    with CachedGrader(grader, path) as again, CachedGrader(grader, path) as other:
        assert again("a\ud800", "a") == first == other("a\ud800", "a")
        assert grader.calls == 0
        other("new", "x")
        again("new", "x")
        assert grader.calls == 1
    with CachedGrader(grader, path, name="counting/2") as renamed:
        renamed("new", "x")
    assert grader.calls == 2


def test_threads_share_a_cache(tmp_path):
    cached = CachedGrader(Counting(), tmp_path / "verdicts.db", capacity=3)
    wrong = []

    def grade(i):
        for j in range(50):
            if cached(str(j % 7), "3").correct != (j % 7 == 3):
                wrong.append((i, j))

    threads = [threading.Thread(target=grade, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cached.hits + cached.misses == 200
    cached.close()


def test_a_cache_needs_a_name_a_size_and_a_file_that_can_be_used(tmp_path):
    with pytest.raises(BadArgument, match="name="):
        CachedGrader(lambda answer, reference: Score(1.0, True))
    with pytest.raises(BadArgument):
        CachedGrader(Counting(), capacity=0)
    with pytest.raises(StoreError):
        CachedGrader(Counting(), tmp_path / "absent" / "verdicts.db")
    broken = tmp_path / "no.db"
    broken.write_text("this is no database, though it is long enough to be looked at as one" * 20)
    with pytest.raises(StoreError):
        CachedGrader(Counting(), broken)


def test_a_damaged_file_that_sqlite_quotes_is_refused(tmp_path):
    path = tmp_path / "verdicts.db"
    CachedGrader(Counting(), path, name="counting").close()
    path.write_bytes(path.read_bytes().replace(b" (key", b" \xedkey"))
    with pytest.raises(StoreError, match="cannot use the file of verdicts"):
        CachedGrader(Counting(), path, name="counting")


def test_a_cascade_stops_at_the_first_that_accepts():
    strict, lenient = Counting(), Counting(fold=True)
    cascade = CascadeGrader({"strict": strict, "lenient": lenient})
    assert cascade("Paris", "Paris").info == {"n": 1, "settled_by": "strict", "verdicts": {"strict": True}}
    assert lenient.calls == 0
    score = cascade("paris", "Paris")
    assert (score.correct, score.info["settled_by"]) == (True, "lenient")
    assert score.info["verdicts"] == {"strict": False, "lenient": True}
    assert not cascade("Rome", "Paris").correct
    assert cascade.report() == {
        "settled": {"strict": 1, "lenient": 2},
        "disagreements": {"strict / lenient": (1, 2)},
        "failed": {},
    }


def test_spot_checks_show_settled_answers_to_the_others():
    hasty = Counting(fold=True)
    cascade = CascadeGrader({"hasty": hasty, "exact": Counting()}, spot_checks=1.0)
    score = cascade("paris", "Paris")
    assert (score.correct, score.info["settled_by"]) == (True, "hasty")  # the verdict stays the cascade's
    assert cascade.report()["disagreements"] == {"hasty / exact": (1, 1)}
    some = CascadeGrader({"a": Counting(), "b": Counting()}, spot_checks=0.5)
    checked = [len(some(str(i), str(i)).info["verdicts"]) == 2 for i in range(200)]
    assert 60 < sum(checked) < 140
    assert checked == [len(some(str(i), str(i)).info["verdicts"]) == 2 for i in range(200)]


def test_a_spot_check_that_fails_costs_the_check_and_not_the_verdict():
    class Down(Counting):
        def __call__(self, answer, reference):
            raise NoVerdict("the judge is down")

    cascade = CascadeGrader({"hasty": Counting(), "judge": Down()}, spot_checks=1.0)
    score = cascade("Paris", "Paris")
    assert (score.correct, score.info["verdicts"]) == (True, {"hasty": True})
    assert cascade.report() == {
        "settled": {"hasty": 1, "judge": 0},
        "disagreements": {},
        "failed": {"judge": 1},
    }
    with pytest.raises(NoVerdict):  # nobody has settled this one
        cascade("Rome", "Paris")


def test_a_rule_of_its_own_says_what_settles():
    sure_either_way = CascadeGrader({"a": Counting(), "b": Counting(fold=True)}, settles=lambda score: True)
    assert not sure_either_way("paris", "Paris").correct


def test_a_cascade_without_graders_or_sense_is_refused():
    with pytest.raises(BadArgument):
        CascadeGrader({})
    with pytest.raises(BadArgument):
        CascadeGrader({"a": Counting()}, spot_checks=2)
