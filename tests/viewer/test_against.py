"""Run against run: the pairs that differ, and the paired difference."""

import re

import pytest
from records import episode, turn

from .conftest import RUN, need_viewer, write
from .test_hostile import EVIL, check, hostile
from .test_pages import text_of

need_viewer()

from gem.evals import compare, read_run
from gem.record import StopReason
from gem.rollout.store import EpisodeStore
from gem.specs import TaskRef
from gem.viewer import app


def store(path, *won, spec="game:X", reward=None):
    """A run whose task of seed i was solved if won[i]; None: it was not played."""
    made = []
    for seed, success in enumerate(won):
        if success is None:
            continue
        stop = StopReason.SOLVED if success else StopReason.FAILED
        paid = float(success) if reward is None else reward[seed]
        each = episode(
            turn(action=f"{path.parent.name} {seed}", reward=paid),
            stop=stop,
            seed=seed,
            run=RUN,
            job=str(seed),
        )
        each.task = TaskRef(spec, {}, (), seed)
        each.ends[each.seats[0]].info = {"why": f"words {path.parent.name} {seed}"}
        made.append(each)
    return write(path, *made)


@pytest.fixture
def two(tmp_path):
    a = store(tmp_path / "one" / "episodes.jsonl", 1, 1, 0, 1, 1, 0)
    b = store(tmp_path / "two" / "episodes.jsonl", 1, 0, 1, 0, 1, None)
    return a, b


def changes(page):
    """The change and the pair of every row."""
    rows = re.findall(r"<tr data-row>(.*?)</tr>", page.text, re.DOTALL)
    return [
        (
            re.search(r'"tag \w+">([^<]*)', row)[1],
            *re.search(r"one=([\d.]+)&amp;other=([\d.]+)", row).groups(),
        )
        for row in rows
    ]


def test_regressions_stand_first_and_lead_to_both_episodes(pages, two):
    opened = pages(*two)
    page = opened.get("against?a=0&b=1")
    assert changes(page) == [
        ("A won, B lost", "0.1", "1.1"),
        ("A won, B lost", "0.3", "1.3"),
        ("B won, A lost", "0.2", "1.2"),
    ]
    seen = text_of(page)
    assert "words one 1" in seen
    assert "words two 1" in seen
    opened.get("pair?one=0.1&other=1.1")
    assert "against?" not in opened.get("").text
    assert 'action="/t0ken/against"' in opened.get("").text


def test_the_difference_is_that_of_the_comparison(pages, two):
    seen = text_of(pages(*two).get("against?a=0&b=1"))
    comparison = compare(*(read_run(path).outcomes for path in two))
    low, high = (f"{100 * bound:.1f}".replace("-", "−") for bound in comparison.overall.difference[1:3])
    assert "B − A −20.0 points" in seen
    assert f"{low} to +{high}" in seen
    assert "5 of 6" in seen


def test_pairs_are_filtered_and_counted(pages, two):
    opened = pages(*two)
    page = opened.get("against?which=better")
    assert changes(page) == [("B won, A lost", "0.2", "1.2")]
    assert "A won, B lost, 2" in page.text
    assert changes(opened.get("against?which=worse&page=1")) == []
    assert changes(opened.get("against?a=1&b=0&which=better"))[0] == ("B won, A lost", "1.1", "0.1")
    assert changes(opened.get("against?env=nothing")) == []
    for wrong in ("which=x", "metric=x", "a=9", "a=x"):
        answer = opened.client.get(f"/t0ken/against?{wrong}")
        assert answer.status_code in (400, 404)


def test_a_comparison_is_made_anew_when_a_store_grows_and_not_before(pages, two, monkeypatch):
    made = []
    monkeypatch.setattr(app, "compare", lambda *runs, **how: made.append(how) or compare(*runs, **how))
    opened = pages(*two)
    for query in ("", "?which=better", "?page=1", "?a=0&b=1"):
        opened.get(f"against{query}")
    assert len(made) == 1
    opened.get("against?metric=return")
    opened.get("against?a=1&b=0&metric=return")
    assert len(made) == 3
    late = episode(turn(reward=1.0), stop=StopReason.SOLVED, seed=5, run=RUN, job="5")
    late.task = TaskRef("game:X", {}, (), 5)
    with EpisodeStore(two[1]) as growing:
        growing.append(late)
    assert "6 of 6" in text_of(opened.get("against?a=1&b=0&metric=return"))
    assert len(made) == 4


def test_returns_are_compared_too(pages, tmp_path):
    a = store(tmp_path / "one" / "episodes.jsonl", 1, 1, reward=(0.5, 0.25))
    b = store(tmp_path / "two" / "episodes.jsonl", 1, 1, reward=(0.75, 0.0))
    opened = pages(a, b)
    assert changes(opened.get("against")) == []
    rows = changes(opened.get("against?metric=return"))
    assert [row[0] for row in rows] == ["B is lower", "B is higher"]


def test_runs_without_equal_tasks_say_so(pages, tmp_path):
    a = store(tmp_path / "one" / "episodes.jsonl", 1)
    b = store(tmp_path / "two" / "episodes.jsonl", 1, spec="game:Y")
    assert "they share no environment" in pages(a, b).get("against", code=400).text


@pytest.mark.parametrize("evil", EVIL)
def test_hostile_runs_are_text_here_too(pages, tmp_path, evil):
    made = [hostile(evil), hostile(evil)]
    for each, stop in zip(made, (StopReason.SOLVED, StopReason.FAILED), strict=True):
        each.verdict, each.error = type(each.verdict)("scored"), None
        each.ends[evil].stop = stop
        each.ends.pop("b")
        each.ends[evil].info["success"] = stop is StopReason.SOLVED
    paths = [write(tmp_path / name / "episodes.jsonl", each) for name, each in zip("ab", made, strict=True)]
    page = pages(*paths).client.get("/t0ken/against", params={"env": ""})
    assert page.status_code == 200, page.text
    assert "A won, B lost" in page.text
    check(page.text)
    check(
        pages(*paths)
        .client.get("/t0ken/against", params={"which": evil.encode("utf-8", "replace").decode()})
        .text
    )
