import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from gem.errors import BadArgument, StoreError
from gem.train.baselines import rows, runs
from gem.train.baselines.rows import Bounds
from gem.train.baselines.runs import Carrier, Plan
from gem.train.baselines.study import read_study
from gem.train.baselines.worker import JOB, RESULT, Job
from gem.train.config import TrainConfig
from gem.train.report.run_folder import RunFolder

from .conftest import TINY, a_run, put
from .test_rows import line

ONE = """
    title = "t"
    seeds = [1]
"""
SEARCHED = """
    [[environments]]
    id = "game:GuessTheNumber-v0-easy"
    name = "guess"
    [[variants]]
    name = "rebn"
    [search]
    seeds = [8, 9]
    grid = {lr = [0.5, 0.25, 0.125]}
"""


def a_plan(study, **others):
    return Plan(study, **{"runs": Path("runs"), "cells": study.cells, "seeds": study.seeds, **others})


def carry(plan, overwrite=False, tell=None, workers=2):
    told = []

    def both(text):
        told.append(text)
        if tell is not None:
            tell(text)

    outcome = Carrier(plan, workers=workers, overwrite=overwrite, tell=both).carry_out()
    return outcome, told


@pytest.fixture
def no_process(monkeypatch):
    """Let nothing run: what is done already needs no process."""

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(runs.subprocess, "Popen", refuse)


def leave(task, run):
    """Leave a result in a run's folder, as its process does."""
    task.folder.mkdir(parents=True, exist_ok=True)
    transfer = {name: config.to_json() for name, config in task.transfer.items()}
    (task.folder / JOB).write_text(json.dumps(asdict(Job(task.config.to_json(), transfer, "now"))))
    rows.write(task.folder / RESULT, run)


# -- one run, really carried out


@pytest.mark.system
def test_a_study_is_carried_out_once(study, monkeypatch):
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    assert plan.state(task) == ("open", "")
    outcome, told = carry(plan)
    assert (outcome.finished, outcome.failed) == (1, [])
    assert told[0] == "begun: guess, rebn, seed 1"
    path = found.row_of(found.cells[0])
    row = rows.read_row(path)
    run = row.runs["1"]
    assert TrainConfig.from_json({**row.config, "seed": 1}).differences(replace(task.config)) == []
    assert list(run.figures) == ["random", "before", "before_greedy", "after", "greedy", "optimum"]
    assert run.episodes == 96
    assert run.curve["episodes"] == [32, 64, 96]
    assert run.cpu_s > 0
    assert run.started <= run.ended
    assert run.machine["cores"] == os.cpu_count()
    assert set(run.versions) == {"gem", "commit", "torch", "python"}

    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(runs.subprocess, "Popen", refuse)
    assert plan.state(task) == ("finished", "")
    assert carry(plan) == (runs.Outcome(), [])
    before = path.read_text()
    path.unlink()  # then the row is made from the run's folder
    outcome, _ = carry(plan)
    assert (outcome.finished, outcome.failed) == (1, [])
    assert path.read_text() == before


@pytest.mark.system
def test_a_run_that_fails_is_written_down_and_stops_nobody(study):
    found = study(
        head=ONE,
        settings=TINY + "\n    demos = 'nowhere.jsonl'",
    )
    plan = a_plan(found)
    outcome, told = carry(plan)
    assert outcome.failed == ["guess, rebn, seed 1"]
    row = rows.read_row(found.row_of(found.cells[0]))
    assert "nowhere.jsonl" in row.runs["1"].error
    assert "nowhere.jsonl" in told[-1]
    (task,) = plan.tasks(found.cells[0])
    assert plan.state(task)[0] == "failed"  # and the next command tries it again


# -- what stands


def test_results_in_folders_are_written_down_without_running(study, no_process):
    found = study()
    plan = a_plan(found)
    for task in plan.tasks(found.cells[0]):
        leave(task, a_run(0.1 * task.seed))
    outcome, _ = carry(plan)
    assert outcome.finished == 2
    assert list(rows.read_row(found.row_of(found.cells[0])).runs) == ["1", "2"]


def test_a_changed_setting_is_told_before_anything_runs(study):
    found = study()
    put(found, found.cells[0], {1: a_run(), 2: a_run()})
    changed = study(settings=TINY.replace("batch = 32", "batch = 48"))
    assert a_plan(changed).find_changes() == {"guess, rebn, seed 1": "batch", "guess, rebn, seed 2": "batch"}
    assert a_plan(found).find_changes() == {}


def test_a_changed_setting_of_an_unfinished_run_is_told_too(study):
    found = study(head=ONE)
    (task,) = a_plan(found).tasks(found.cells[0])
    leave(task, a_run())
    (task.folder / RESULT).unlink()
    assert a_plan(found).state(task) == ("begun", "")
    changed = study(head=ONE, settings=TINY.replace("batch = 32", "batch = 48"))
    assert a_plan(changed).find_changes() == {"guess, rebn, seed 1": "batch"}


def test_a_row_of_other_settings_begins_anew_and_only_when_told_to(study, no_process):
    found = study()
    put(found, found.cells[0], {1: a_run(), 2: a_run()})
    changed = study(settings=TINY.replace("batch = 32", "batch = 48"))
    plan = a_plan(changed)
    first, _ = plan.tasks(changed.cells[0])
    with pytest.raises(StoreError, match="changed meanwhile in batch"):
        plan.record(first, a_run())
    assert list(rows.read_row(found.row_of(found.cells[0])).runs) == ["1", "2"]
    plan.record(first, a_run(), overwrite=True)
    row = rows.read_row(found.row_of(found.cells[0]))
    assert list(row.runs) == ["1"]
    assert row.config["batch"] == 48


def test_a_row_keeps_the_seeds_that_others_wrote(study):
    found = study(head='title = "t"\n    seeds = [10, 9, 1]')
    plan = a_plan(found)
    for task in plan.tasks(found.cells[0]):
        plan.record(task, a_run())
    assert list(rows.read_row(found.row_of(found.cells[0])).runs) == ["1", "9", "10"]


def test_a_damaged_row_stops_the_command_before_anything_runs(study, no_process):
    found = study()
    found.rows.mkdir()
    found.row_of(found.cells[0]).write_text('{"study": "mi')
    with pytest.raises(StoreError, match="damaged"):
        carry(a_plan(found))


def test_a_result_that_cannot_be_written_down_is_kept_and_written_later(study, no_process):
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    leave(task, a_run())
    found.row_of(found.cells[0]).with_suffix(".json.partial").mkdir(parents=True)  # what is in the way
    outcome, told = carry(plan)
    assert outcome.failed == [task.name]
    assert "cannot be written" in told[-1]
    assert str(task.folder / RESULT) in told[-1]
    found.row_of(found.cells[0]).with_suffix(".json.partial").rmdir()
    outcome, _ = carry(plan)
    assert outcome.finished == 1


def test_another_transfer_is_evaluated_again(study):
    found = study(head=ONE)
    put(found, found.cells[0], {1: a_run()})
    moved = study(head=ONE + '    transfer = ["game:GuessTheNumber-v0-hard"]')
    for each, state in ((found, "finished"), (moved, "open")):
        (task,) = a_plan(each).tasks(each.cells[0])
        assert a_plan(each).state(task)[0] == state


def test_runs_from_before_and_after_a_setting_came_are_not_put_into_one_row(study):
    """They may differ in what they did: its default need not be what was done before."""
    found = study()
    row = put(found, found.cells[0], {1: a_run()})
    del row.config["temperature"]
    path = found.row_of(found.cells[0])
    rows.write(path, row)
    plan = a_plan(found)
    first, second = plan.tasks(found.cells[0])
    assert plan.state(first) == ("finished", "before there was temperature")
    assert plan.state(second) == ("changed", "temperature (newer than its row)")
    with pytest.raises(StoreError, match="changed meanwhile in temperature"):
        plan.record(second, a_run())
    kept = a_plan(found, keep_older=True)
    assert kept.state(second) == ("open", "")
    kept.record(second, a_run())
    assert list(rows.read_row(path).runs) == ["1", "2"]
    assert "temperature" not in rows.read_row(path).config
    plan.record(second, a_run(), overwrite=True)
    assert list(rows.read_row(path).runs) == ["2"]
    assert "temperature" in rows.read_row(path).config


def test_a_row_holds_the_settings_that_its_runs_were_made_with(study, no_process):
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    leave(task, a_run())
    job = json.loads((task.folder / JOB).read_text())
    del job["config"]["temperature"]
    (task.folder / JOB).write_text(json.dumps(job))
    assert carry(plan)[0].finished == 1
    assert "temperature" not in rows.read_row(found.row_of(found.cells[0])).config
    (task.folder / RESULT).unlink()
    found.row_of(found.cells[0]).unlink()
    assert plan.state(task) == ("changed", "temperature (newer than its run)")


def test_a_failure_does_not_take_the_place_of_what_finished(study):
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    for run, error in ((a_run(error="broke"), "broke"), (a_run(), None), (a_run(error="again"), None)):
        plan.record(task, run)
        assert rows.read_row(found.row_of(found.cells[0])).runs["1"].error == error


def test_a_command_says_how_far_its_runs_are(study, no_process):
    found = study(head=ONE)
    (task,) = a_plan(found).tasks(found.cells[0])
    assert runs.describe_place(task) == "at its start"
    task.folder.mkdir(parents=True)
    folder = RunFolder(task.folder)
    step = json.dumps({"step": 1, "loss": 0.5})
    folder.warmup.write_text(f"{step}\n" * 3)
    assert runs.describe_place(task) == f"warm-up step 3 of {task.config.warmup_steps}"
    folder.append(line(7))
    with folder.metrics.open("a") as file:
        file.write('{"iteration": 8')  # as it is while it is written
    assert runs.describe_place(task) == f"iteration 7 of {task.config.iterations}"


# -- several commands at once


def test_what_another_process_is_at_work_on_is_waited_for(study, no_process):
    """The other one holds the lock, and writes its row down while this one waits."""
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    lock = task.lock
    lock.parent.mkdir(parents=True)
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def end(text):
            if text.startswith("waiting for guess, rebn, seed 1"):
                plan.record(task, a_run(0.7))
                fcntl.flock(other, fcntl.LOCK_UN)

        outcome, told = carry(plan, tell=end)
    assert outcome == runs.Outcome()
    assert len(told) == 1
    assert rows.read_row(found.row_of(found.cells[0])).runs["1"].figures["after"].success.mean == 0.7


def test_the_lock_lasts_as_long_as_the_process_of_the_run(study, monkeypatch):
    """A command that is killed leaves its runs; nobody begins them anew while they live."""
    found = study(head=ONE)
    plan = a_plan(found)
    (task,) = plan.tasks(found.cells[0])
    started = []

    class Killed(Exception):
        pass

    def long(command, **options):
        # The process is another one; that it gets the lock is the command's own doing.
        program = "import sys; sys.stdin.read()"
        options |= {"stdin": subprocess.PIPE}
        started.append(popen([sys.executable, "-c", program], **options))
        return started[0]

    popen = subprocess.Popen
    monkeypatch.setattr(runs.subprocess, "Popen", long)
    carrier = Carrier(plan, workers=1, overwrite=False, tell=lambda text: None)
    assert carrier._fill() == ""
    assert carrier.describe() == "guess, rebn, seed 1 (at its start)"
    (working,) = carrier.working
    os.close(working.lock)  # as the end of the command does
    assert runs._try_lock(task.lock) is None
    started[0].communicate(b"")
    free = runs._try_lock(task.lock)
    assert free is not None
    os.close(free)


# -- the search


def searched(study, scores):
    found = study(head=ONE, parts=SEARCHED)
    plan = a_plan(found)
    for task in plan.tasks(found.cells[0]):
        score = scores[task.point][task.seed - 8]
        leave(task, a_run(error="broke") if score is None else a_run(score))
    return found, plan


def test_a_search_is_run_before_the_seeds(study):
    found = study(head=ONE, parts=SEARCHED)
    tasks = a_plan(found).tasks(found.cells[0])
    assert [(task.point, task.seed, task.config.lr) for task in tasks] == [
        *((0, 8, 0.5), (0, 9, 0.5)),
        *((1, 8, 0.25), (1, 9, 0.25)),
        *((2, 8, 0.125), (2, 9, 0.125)),
    ]


def test_the_highest_mean_is_chosen_and_every_point_recorded(study):
    found, plan = searched(study, [(0.9, 0.1), (0.6, 0.7), (0.2, 0.2)])
    (cell,) = found.cells
    assert plan.conclude(cell).chosen == 1
    row = rows.read_row(found.row_of(cell))
    assert [point.scores for point in row.search.points] == [[0.9, 0.1], [0.6, 0.7], [0.2, 0.2]]
    assert row.config["lr"] == 0.25
    (task,) = plan.tasks(cell)
    assert (task.point, task.seed, task.config.lr) == (None, 1, 0.25)
    plan.record(task, a_run())
    assert plan.conclude(cell) is None  # it stands already, and so do the runs
    assert list(rows.read_row(found.row_of(cell)).runs) == ["1"]


def test_of_equal_points_the_first_is_chosen(study):
    found, plan = searched(study, [(0.1, 0.1), (0.4, 0.4), (0.4, 0.4)])
    assert plan.conclude(found.cells[0]).chosen == 1


def test_a_point_that_failed_is_recorded_and_not_chosen(study):
    found, plan = searched(study, [(0.9, None), (0.1, 0.1), (0.2, 0.2)])
    concluded = plan.conclude(found.cells[0])
    assert concluded.chosen == 2
    assert concluded.points[0].errors == [None, "broke"]


def test_a_search_that_is_not_through_chooses_nothing(study):
    found, plan = searched(study, [(0.9, 0.9), (0.1, 0.1), (0.2, 0.2)])
    (plan.tasks(found.cells[0])[-1].folder / RESULT).unlink()
    assert plan.conclude(found.cells[0]) is None
    assert rows.read_row(found.row_of(found.cells[0])) is None


def test_where_every_point_failed_nothing_runs_and_the_command_says_so(study, no_process, monkeypatch):
    _, plan = searched(study, [(None, None)] * 3)
    monkeypatch.setattr(runs, "now", lambda: "2025")  # they failed while this command ran
    outcome, told = carry(plan)
    assert len(outcome.failed) == 6
    assert "failed: guess, rebn: every point of its search failed, so nothing was chosen" in told


def test_another_grid_is_a_change(study):
    found, plan = searched(study, [(0.9, 0.9), (0.1, 0.1), (0.2, 0.2)])
    plan.conclude(found.cells[0])
    other = study(head=ONE, parts=SEARCHED.replace("0.125", "0.0625"))
    assert a_plan(other).find_changes() == {"guess, rebn": "grid of [search]"}
    without = study(head=ONE, parts=SEARCHED.partition("[search]")[0])
    assert a_plan(without).find_changes() == {"guess, rebn": "[search]"}


def test_a_search_that_came_later_is_a_change(study):
    found = study(head=ONE, parts=SEARCHED.partition("[search]")[0])
    put(found, found.cells[0], {1: a_run()})
    assert a_plan(study(head=ONE, parts=SEARCHED)).find_changes() == {"guess, rebn": "[search]"}


HALVED = SEARCHED.replace("0.125]}", "0.125, 0.1, 0.01, 0.001]}\n    shares = [0.34, 1]")


def test_a_search_in_rounds_goes_on_with_the_best_of_each(study):
    found = study(head=ONE, parts=HALVED)
    (cell,) = found.cells
    plan = a_plan(found)
    first = plan.tasks(cell)
    assert {(task.share, task.config.episodes) for task in first} == {(0.34, 32)}
    assert len(first) == 12
    assert "search 1 with 0.34 of the episodes, seed 8" in first[0].name
    assert len({task.lock for task in first}) == 12
    for task in first:
        leave(task, a_run((0.1, 0.5, 0.2, 0.6, 0.4, 0.3)[task.point]))
        assert plan.conclude(cell) is None
    second = plan.tasks(cell)[12:]
    assert [(task.point, task.config.episodes) for task in second] == [(1, 96)] * 2 + [(3, 96)] * 2
    for task in second:
        leave(task, a_run((0, 0.9, 0, 0.8)[task.point]))
    searched = plan.conclude(cell)
    assert (searched.chosen, searched.shares) == (1, [0.34, 1.0])
    assert [point.share for point in searched.points] == [0.34, 1.0, 0.34, 1.0, 0.34, 0.34]
    assert [point.cpu_s[0] for point in searched.points] == [10, 20, 10, 20, 10, 10]
    assert rows.read_row(found.row_of(cell)).config["lr"] == 0.25
    (task,) = plan.tasks(cell)
    assert (task.point, task.config.episodes) == (None, 96)
    other = study(head=ONE, parts=HALVED.replace("0.34", "0.5"))
    assert a_plan(other).find_changes() == {"guess, rebn": "shares of [search]"}


@pytest.mark.parametrize("score", ["success", "turns"])
def test_a_point_that_failed_does_not_go_on(study, score):
    found = study(head=f"{ONE}    score = '{score}'", parts=HALVED)
    (cell,) = found.cells
    plan = a_plan(found)
    for task in plan.tasks(cell):
        turns = Bounds(2.0, 1.0, 3.0, 50)
        done = a_run(0.1)
        done = replace(done, figures={"after": replace(done.figures["after"], turns_to_success=turns)})
        leave(task, a_run(error="broke") if task.point < 4 else done)
    assert {task.point for task in plan.tasks(cell)[12:]} == {4, 5}


@pytest.mark.parametrize("shares", [[], [0.5], [1, 0.5], [0, 1], [0.5, 0.5, 1], [0.2, 2]])
def test_shares_that_do_not_rise_to_one_are_refused(study, shares):
    with pytest.raises(BadArgument, match=r"shares of \[search\].*rising shares of the episodes, up to 1"):
        study(head=ONE, parts=HALVED.replace("[0.34, 1]", str(shares)))


# -- interrupted


LONG = TINY.replace("episodes = 96", "episodes = 640")


def until_trained(process, metrics, lines):
    """Wait until a run has trained for some iterations; the process has to live."""
    while not metrics.exists() or metrics.read_text().count("\n") < lines:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_study_goes_on_and_comes_to_the_same(study, tmp_path, how):
    whole, cut = study(head=ONE, settings=LONG, name="whole"), study(head=ONE, settings=LONG, name="cut")
    command = [sys.executable, "-m", "gem", "baseline", "--workers", "1"]
    assert subprocess.run([*command, "whole.toml"]).returncode == 0
    (task,) = a_plan(cut, runs=tmp_path / "runs/baselines").tasks(cut.cells[0])
    with subprocess.Popen(
        [*command, "cut.toml"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until_trained(process, RunFolder(task.folder).metrics, 3)
        process.send_signal(how)
        _, said = process.communicate()
    assert process.returncode == (130 if how == signal.SIGINT else -9)
    if how == signal.SIGINT:
        assert "gem-gym baseline cut.toml" in said
    assert not (task.folder / RESULT).exists()
    assert subprocess.run([*command, "cut.toml"]).returncode == 0
    first, second = (rows.read_row(each.row_of(each.cells[0])).runs["1"] for each in (whole, cut))
    assert first.figures == second.figures
    assert {**first.curve, "cpu_s": []} == {**second.curve, "cpu_s": []}


@pytest.mark.slow
def test_two_commands_at_once_do_each_run_once(study):
    found = study(settings=TINY)
    command = [sys.executable, "-m", "gem", "baseline", str(found.path), "--workers", "1"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    for seed in (1, 2):
        assert sum(text.count(f"begun: guess, rebn, seed {seed}") for text in said) == 1
    assert list(rows.read_row(read_study(found.path).row_of(found.cells[0])).runs) == ["1", "2"]
