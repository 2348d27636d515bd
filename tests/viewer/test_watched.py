"""The seeds that a training run plays at every checkpoint, on the page of the whole run."""

import json
import re

import pytest
from records import episode

from gem.record import StopReason

from .conftest import RUN, answer, need_viewer, training, watch, write

need_viewer()

from gem.viewer.sources import open_sources
from gem.viewer.watched import CHECKPOINTS, SEEDS, compare_checkpoints

GOOD, BAD = "v-good", "v-bad"


def cells(page, seed):
    row = re.search(rf">seed {seed}</a>.*?</tr>", page, re.DOTALL)[0]
    return re.findall(r'<td class="(v-\w+)">', row), re.search(r'class="since">(.*?)</td>', row)[1]


def test_a_seed_is_shown_at_every_checkpoint(pages, tmp_path):
    shown = pages(watch(training(tmp_path / "run")))
    page = shown.get("run/0/through").text
    assert cells(page, 1) == ([BAD] * 3 + [GOOD] * 4, "first solved at iteration 3")
    assert cells(page, 2) == ([BAD] * 7, "never solved")
    assert "Seed 1, one checkpoint below the other" in page  # it changed, seed 2 never did
    assert re.findall(r"<mark>(.*?)</mark>", page) == ["\\boxed{7}"]
    assert page.count(">the same<") == 5
    (pair,) = re.findall(r'href="/t0ken/(pair[^"]*)"', page)
    assert pair == "pair?one=1.4&amp;other=1.6"
    assert "Side by side" in shown.get(pair.replace("&amp;", "&")).text
    assert '"/t0ken/run/1/episode/6"' in page
    assert shown.get("run/1/episode/6?colour=entropy").text.count("entropy 0.00 nats") > 0
    (start,) = re.findall(r'href="/t0ken/(start[^"]*)"', page)
    assert "Same environment and seed, 7 episodes" in shown.get(start.replace("&amp;", "&")).text
    other = shown.get("run/0/through?watched=1").text
    assert "Seed 2, one checkpoint below the other" in other
    assert "<mark>" not in other
    shown.get("run/0/through?watched=x", 400)
    assert "Seed 1, one" in shown.get("run/0/through?watched=99").text


def test_the_checkpoints_of_one_seed_are_no_independent_episodes(pages, tmp_path):
    folder = training(tmp_path / "run")
    write(
        folder / "watched.jsonl",
        *(episode(job=f"{i}-0", run=RUN, seed=5, group="0", stop=StopReason.SOLVED) for i in range(16)),
    )
    page = pages(folder).get("run/1").text
    assert "16 episodes" in page
    assert "0.0% to 100.0%" in page


def test_alarms_stand_on_the_axis(pages, tmp_path):
    pytest.importorskip("torch")
    from dataclasses import asdict

    from gem.train.config import TrainConfig
    from gem.train.report.run_folder import Metrics

    folder = watch(training(tmp_path / "run"))
    (folder / "config.json").write_text(json.dumps(TrainConfig(out=str(folder)).to_json()))
    names = Metrics.__dataclass_fields__
    lines = [
        asdict(Metrics(**{**dict.fromkeys(names, 0.0), "iteration": i + 1, "selected": None}))
        for i in range(4)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = pages(folder).get("run/0/through").text
    axis = re.search(r">alarms</th>.*?</tr>", page, re.DOTALL)[0]
    assert [cell.count("!") for cell in axis.split("<td>")[1:8]] == [0, 0, 0, 1, 0, 0, 0]
    assert "iteration 3: All returns were equal" in axis


@pytest.mark.parametrize(
    ("solved", "said"),
    [
        ({3, 6, 7}, "first solved at iteration 3, each time since 6"),
        ({3, 4}, "first solved at iteration 3, not at the last"),
        ({0, 1, 2, 3, 4, 5, 6, 7}, "first solved before RL"),
    ],
)
def test_a_seed_that_is_lost_again_is_said_to_be(pages, tmp_path, solved, said):
    folder = training(tmp_path / "run")
    stops = [StopReason.SOLVED if i in solved else StopReason.FAILED for i in range(8)]
    write(
        folder / "watched.jsonl",
        *(episode(answer("a"), stop=stop, seed=1, run=RUN, job=f"{i}-0") for i, stop in enumerate(stops)),
    )
    assert cells(pages(folder).get("run/0/through").text, 1)[1] == said


def test_where_nobody_knows_what_solved_is_returns_are_said(pages, tmp_path):
    folder = training(tmp_path / "run")
    write(
        folder / "watched.jsonl",
        *(
            episode(answer("a", reward=i / 4), stop=StopReason.ENDED, seed=1, run=RUN, job=f"{i}-0")
            for i in range(3)
        ),
        episode(answer("a"), stop=StopReason.TURN_LIMIT, seed=2, run=RUN, job="0-1"),
    )
    shown = pages(folder)
    assert cells(shown.get("run/0/through").text, 1) == (["v-none"] * 3, "return 0.000 to 0.500")
    assert [
        each.known for each in compare_checkpoints(shown.viewer.sources, shown.viewer.sources[0]).seeds
    ] == [False] * 2


def test_what_is_no_watched_job_or_too_much_is_left_out(pages, tmp_path):
    evil = "<script>alert(1)</script>"
    jobs = ["", evil, "1", "1-2-3", "-1", "1-", "99999999999-1", "x-1", "1e3-0"]
    extra = [episode(answer("x"), seed=5, run=RUN, job=job, sample=i) for i, job in enumerate(jobs)]
    extra += [episode(answer(evil), seed=5, run=RUN, job=f"{i}-3") for i in range(2)]
    extra += [episode(answer("x"), seed=5, run=RUN, job=f"{i}-4") for i in range(100)]
    extra += [episode(answer("x"), seed=5, run=RUN, job=f"1-{10 + i}") for i in range(20)]
    folder = watch(training(tmp_path / "run"), extra=extra)
    shown = pages(folder)
    page = shown.get("run/0/through?watched=4").text
    assert "<script>alert" not in page
    found = compare_checkpoints(shown.viewer.sources, shown.viewer.sources[0])
    assert len(found.checkpoints) == CHECKPOINTS
    assert len(found.seeds) <= SEEDS
    assert max(found.checkpoints) == 99


def test_a_damaged_episode_costs_no_other(pages, tmp_path):
    folder = watch(training(tmp_path / "run"))
    store = folder / "watched.jsonl"
    lines = store.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b'"turns":[', b'"turns":{', 1)
    for file in folder.glob("watched*"):
        file.unlink()
    store.write_bytes(b"".join(lines))
    page = pages(folder).get("run/0/through").text
    assert "The same seeds at every checkpoint" in page


def test_an_empty_store_shows_nothing(pages, tmp_path):
    folder = training(tmp_path / "run")
    write(folder / "watched.jsonl")
    assert "The same seeds" not in pages(folder).get("run/0/through").text


def test_they_come_behind_all_runs_and_not_into_an_export(tmp_path):
    for name in ("a", "b"):
        watch(training(tmp_path / name))
    sources = open_sources([tmp_path])
    assert [source.name for source in sources] == ["a", "b", "a, watched", "b, watched"]
    assert [source.training for source in sources] == [True, True, False, False]
    alone = open_sources([tmp_path], watched=False)
    assert [source.name for source in alone] == ["a", "b"]
    for source in (*sources, *alone):
        source.close()
