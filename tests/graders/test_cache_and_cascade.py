import threading

import pytest

from gem.errors import BadArgument, NoVerdict, StoreError
from gem.graders.base import Score
from gem.graders.cache import CachedGrader
from gem.graders.cascade import CascadeGrader


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
    assert cached("a", ["b"]) if False else (grader.calls, cached.hits, cached.misses) == (2, 1, 2)


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


def test_a_rule_of_its_own_says_what_settles():
    sure_either_way = CascadeGrader({"a": Counting(), "b": Counting(fold=True)}, settles=lambda score: True)
    assert not sure_either_way("paris", "Paris").correct


def test_a_cascade_without_graders_or_sense_is_refused():
    with pytest.raises(BadArgument):
        CascadeGrader({})
    with pytest.raises(BadArgument):
        CascadeGrader({"a": Counting()}, spot_checks=2)
