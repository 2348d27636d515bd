"""What follows from held-out evaluations: the best weights, and an early end."""

import random
from contextlib import suppress
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from records import episode, paid
from runs import QUICK, Log, assert_same_run, same_weights, weights

from gem.cli.players import local_agent
from gem.errors import BadArgument, StoreError
from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.training import train, trained_agent
from gem.train.report.callbacks import Callback
from gem.train.report.progress import about_best, table
from gem.train.report.run_folder import Evaluation, RunFolder
from gem.train.report.selection import best, enough, is_better

CONFIG = replace(QUICK, eval_every=1, held_out=12)
BROKEN = episode(*paid(None), stop=StopReason.ERROR, error=Failure("host", "WorkerDied", "gone"))


def evaluation(iteration, won, of=10, kind="unseen"):
    """An evaluation in which the first `won` of so many games were won; None: nothing has a verdict."""
    if won is None:
        return Evaluation(
            iteration, iteration, kind, of, 1.0, summarise("test:X", [BROKEN] * of), (None,) * of, 0.0
        )
    played = [episode(*paid(1.0))] * won + [episode(*paid(0.0), stop=StopReason.FAILED)] * (of - won)
    scores = (1.0,) * won + (0.0,) * (of - won)
    return Evaluation(iteration, iteration, kind, of, 1.0, summarise("test:X", played), scores, 0.0)


# -- the best


@pytest.mark.parametrize(
    ("won", "chosen"),
    [
        ([3, 5, 4], 1),
        ([5, 5, 5], 0),
        ([1, 5, 5, 2], 1),
        ([None, 0], 1),
        ([2, None], 0),
        ([None], None),
        ([], None),
    ],
)
def test_the_best_has_the_highest_score_and_came_first(won, chosen):
    found = best([evaluation(at, each) for at, each in enumerate(won)])
    assert (found and found.iteration) == chosen


def test_of_equal_successes_the_higher_return_is_the_best():
    def earning(at, reward):
        played = [episode(*paid(reward), stop=StopReason.FAILED)] * 4
        return Evaluation(at, at, "all", 4, 1.0, summarise("test:X", played), (0.0,) * 4, 0.0)

    assert best([earning(0, 0.5), earning(1, 0.75), earning(2, 0.75)]).iteration == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run whose weights get worse: the best are not the last."""
    out = tmp_path_factory.mktemp("selection")
    return out, train(replace(CONFIG, lr=0.3, kl=0.0, out=out))


def test_the_best_weights_are_kept(whole, tmp_path):
    out, summary = whole
    folder = RunFolder(out)
    evaluations = folder.evaluated()
    chosen = best(evaluations)
    assert chosen.iteration < evaluations[-1].iteration == 4
    assert summary["held_out"]["best_iteration"] == chosen.iteration
    assert summary["held_out"]["best"]["mean"] == chosen.score.mean
    assert summary["held_out"]["last"]["mean"] == evaluations[-1].score.mean < chosen.score.mean
    stored = checkpoint.load(folder.best)
    assert stored["iteration"] == chosen.iteration
    assert not same_weights(stored["model"], weights(out))
    if chosen.iteration:  # they are those that the run had then
        short = replace(CONFIG, lr=0.3, kl=0.0, out=tmp_path)
        with pytest.raises(KeyboardInterrupt):
            train(short, watcher=Log(stop=chosen.iteration))
        assert same_weights(stored["model"], weights(tmp_path))


def test_the_table_has_the_last_and_the_best(whole):
    _, summary = whole
    for name in ("after", "greedy", "best", "best_greedy"):
        assert set(summary[name]["success"]) == {"mean", "low", "high", "n", "clusters", "exact"}
    assert summary["best_greedy"]["success"]["exact"]
    played = summarise("test:X", [episode(*paid(1.0))] * 3)
    titles = list(table({"best": played, "after": played, "best_greedy": played}).columns[0].cells)
    assert titles == ["random play", "trained, sampled", "best, sampled", "best, greedy", "solver"]


@pytest.mark.system
def test_an_interrupted_run_keeps_the_same_best(whole, tmp_path):
    out, _ = whole
    config = replace(CONFIG, lr=0.3, kl=0.0, save_every=4, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=3))
    train(config, resume=True)
    assert same_weights(
        checkpoint.load(RunFolder(tmp_path).best)["model"], checkpoint.load(RunFolder(out).best)["model"]
    )
    assert_same_run(out, tmp_path)


@pytest.mark.system
def test_the_best_weights_are_those_of_an_evaluation_that_is_kept(tmp_path, monkeypatch):
    """Weights that an interruption lost, and that the run does not find again, replace no others."""
    won = iter([1, 5, 1, 9, 0, 0])

    def measure(held_out, iteration):
        return evaluation(iteration, next(won))

    monkeypatch.setattr("gem.train.tasks.held_out.HeldOut.measure", measure)
    config = replace(CONFIG, save_every=2, out=tmp_path)
    folder = RunFolder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=3))
    assert (checkpoint.load(folder.best)["iteration"], folder.next_best.exists()) == (1, True)
    summary = train(config, resume=True)
    assert summary["held_out"]["best_iteration"] == checkpoint.load(folder.best)["iteration"] == 1
    assert not folder.next_best.exists()


def test_an_agent_is_the_last_or_the_best(whole):
    out, _ = whole
    one, other = local_agent(str(out)), local_agent(f"{out}@best")
    assert same_weights(one.model.state_dict(), weights(out))
    assert same_weights(other.model.state_dict(), checkpoint.load(RunFolder(out).best)["model"])
    with pytest.raises(BadArgument, match=r"accepted: .* \(with @best behind it"):
        local_agent(f"{out}@worst")


@pytest.mark.system
def test_a_run_without_evaluations_keeps_no_best(tmp_path):
    train(replace(QUICK, episodes=16, eval_episodes=1, out=tmp_path))
    with pytest.raises(StoreError, match=r"has no best weights .* \(--eval-every\)"):
        trained_agent(tmp_path, weights="best")


@pytest.mark.system
def test_where_the_last_are_the_best_they_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr("gem.train.learn.training.best", lambda evaluations: evaluations[-1])
    summary = train(replace(CONFIG, episodes=16, out=tmp_path))
    assert summary["held_out"]["best_iteration"] == 1
    assert "best" not in summary
    assert about_best([evaluation(0, 3), evaluation(5, 4)], 5).startswith("The last weights are the best")


class Second(Callback):
    """Ends a run after its second iteration."""

    def on_iteration(self, metrics):
        return "enough" if metrics.iteration == 2 else None


@pytest.mark.system
@pytest.mark.parametrize("stop", [None, 1])
def test_where_a_callback_ends_a_run_its_last_weights_are_evaluated(tmp_path, monkeypatch, stop):
    def measure(held_out, iteration):
        return evaluation(iteration, 3 + iteration)

    monkeypatch.setattr("gem.train.tasks.held_out.HeldOut.measure", measure)
    config = replace(CONFIG, eval_every=4, callback=(Second(),), out=tmp_path)
    if stop:
        with pytest.raises(KeyboardInterrupt):
            train(config, watcher=Log(stop=stop))
    summary = train(config, resume=bool(stop))
    assert [each.iteration for each in RunFolder(tmp_path).evaluated()] == [0, 2]
    assert summary["held_out"]["last_iteration"] == summary["held_out"]["best_iteration"] == 2
    assert same_weights(checkpoint.load(RunFolder(tmp_path).best)["model"], weights(tmp_path))


@pytest.mark.parametrize(
    ("kind", "words"), [("unseen", "other instances"), ("all", "other seeds"), ("seeds", "other seeds")]
)
def test_how_the_best_were_chosen_is_said(kind, words):
    said = about_best(
        [evaluation(0, 3, kind=kind), evaluation(5, 7, kind=kind), evaluation(10, 4, kind=kind)], 10
    )
    assert said.startswith(
        "The best weights are those of iteration 5: held-out success 70.0% (39.7% to 89.2%)."
    )
    assert f"chosen on {words} than the table" in said
    assert about_best([], 10) == ""
    later = about_best([evaluation(0, 3)], 10)  # of the last weights there is no evaluation
    assert later.startswith("The best weights are those of iteration 0")


# -- when it is enough


PATIENT = replace(CONFIG, patience=2)


@pytest.mark.parametrize(
    ("won", "patience", "since"),
    [
        ([10, 10, 10], 2, 0),
        ([10, 10], 2, None),
        ([10, 12, 10], 2, 0),  # more, within noise
        ([10, 30, 31], 2, None),  # the first is beyond it
        ([10, 30, 31, 30], 2, 1),
        ([30, 10, 12], 2, 0),  # worse is no improvement
        ([10, 12, 14, 16, 18], 4, None),  # little by little it adds up: 18 against 10
        ([10, None, 10, None], 2, None),  # those without score say nothing
        ([10, None, 10, 10], 2, 0),
        ([None, None, None], 2, None),
        ([], 2, None),
        ([10, 10, 10], 0, None),
    ],
)
def test_patience_counts_evaluations_without_improvement(won, patience, since):
    found = enough(
        [evaluation(at, each, of=40) for at, each in enumerate(won)], replace(CONFIG, patience=patience)
    )
    if since is None:
        assert found is None
    else:
        assert found == (
            f"{patience} held-out evaluations in a row are no improvement beyond noise on that of iteration "
            f"{since}"
        )


@pytest.mark.parametrize(
    ("earlier", "later", "better"), [(0, 5, True), (0, 2, False), (38, 40, False), (5, 0, False)]
)
def test_an_improvement_is_beyond_noise(earlier, later, better):
    """Of 40 pairs, 5 that are won and none that is lost are beyond chance; 2 are not."""
    assert is_better(evaluation(0, earlier, of=40), evaluation(1, later, of=40)) == better


def test_an_improvement_on_one_of_several_environments_may_be_undone_on_another():
    def both(at, *won):
        parts = {str(n): evaluation(at, each, of=40) for n, each in enumerate(won)}
        return replace(evaluation(at, 0), scores=(), parts=parts)

    assert is_better(both(0, 0, 10), both(1, 5, 10))
    assert is_better(both(0, 0, 10), both(1, 9, 8))
    assert not is_better(both(0, 0, 10), both(1, 5, 5))
    assert not is_better(both(0, 0, None), both(1, 5, 10))


def test_samples_of_an_instance_are_one_cluster():
    """Ten wins of one instance say less than ten wins of ten, unless there are no other instances."""
    earlier = evaluation(0, 0, of=40)
    later = replace(earlier, scores=tuple(float(at % 4 == 0) for at in range(40)))
    assert is_better(earlier, later)
    assert not is_better(replace(earlier, instances=4), replace(later, instances=4))
    few = replace(later, instances=4, held_out="all")
    assert is_better(replace(earlier, instances=4, held_out="all"), few)


@pytest.mark.system
def test_how_often_noise_alone_looks_like_an_improvement():
    """A policy that stays as it is: at 95% one comparison in twenty may say otherwise, and not many more."""
    draw = random.Random(0)

    def measured():
        scores = tuple(float(draw.random() < 0.3) for _ in range(100))
        return replace(evaluation(0, 30, of=100), scores=scores)

    wrong = sum(is_better(measured(), measured()) for _ in range(600))
    assert 15 <= wrong <= 48  # 30 expected, three and a half standard errors


@pytest.mark.parametrize(
    ("won", "target", "stops"), [(39, 0.8, True), (36, 0.8, False), (40, 0.95, False), (39, None, False)]
)
def test_a_target_is_reached_by_the_lower_bound(won, target, stops):
    found = enough([evaluation(3, won, of=40)], replace(CONFIG, target=target))
    assert (found is not None) == stops
    if stops:
        assert found == "the target of 0.8 is reached: held-out success is 0.975 (0.871 to 0.996)"


@pytest.mark.system
def test_a_stopped_run_is_finished(tmp_path):
    """Nothing is learnt with a step size of 0, so that two evaluations are enough."""
    config = replace(PATIENT, lr=0.0, episodes=160, save_every=7, watch=1, out=tmp_path)
    log = Log()
    summary = train(config, watcher=log)
    why = "2 held-out evaluations in a row are no improvement beyond noise on that of iteration 0"
    assert summary["stopped_early"] == why
    assert summary["episodes"] == 32
    assert log.iterations == [1, 2]
    assert f"stopped early at iteration 2: {why}" in log.stages
    assert checkpoint.load(RunFolder(tmp_path).checkpoint)["iteration"] == 2
    with EpisodeStore(RunFolder(tmp_path).watched, read_only=True) as store:
        assert [episode.job for episode in store] == ["0-0", "2-0"]
    again = Log()
    assert train(config, resume=True, watcher=again)["stopped_early"] == why
    assert again.iterations == []
    assert f"stopped early at iteration 2: {why}" in again.stages
    assert "training" not in again.stages


@pytest.mark.system
@pytest.mark.parametrize("staleness", [0, 1])
def test_an_interrupted_run_stops_where_it_would_have(tmp_path, staleness):
    config = replace(PATIENT, episodes=160, lr=1e-5, save_every=2, out=tmp_path / "whole")
    config = replace(config, patience=3, staleness=staleness, importance_cap=2.0)
    train(config)
    ended = len(RunFolder(config.out).history())
    assert 3 <= ended < 10
    other = replace(config, out=tmp_path / "other")
    for stop in range(1, ended + 1, 2):
        with suppress(KeyboardInterrupt):
            train(other, resume=stop > 1, watcher=Log(stop))
    train(other, resume=True)
    assert_same_run(config.out, other.out)


@pytest.mark.system
def test_a_target_that_is_reached_before_training_leaves_nothing_to_train(tmp_path):
    log = Log()
    summary = train(replace(CONFIG, target=-5.0, out=tmp_path), watcher=log)
    assert summary["stopped_early"].startswith("the target of -5 is reached: held-out success is ")
    assert (summary["episodes"], log.iterations) == (0, [])


@pytest.mark.system
def test_at_the_planned_end_a_run_is_not_stopped_early(tmp_path):
    assert train(replace(PATIENT, lr=0.0, episodes=32, out=tmp_path))["stopped_early"] is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"patience": 3}, "patience needs held-out evaluations; set how often they run"),
        ({"target": 0.9}, "target needs held-out evaluations; set how often they run"),
        ({"target": float("nan"), "eval_every": 1}, "target is nan; accepted: a number"),
    ],
)
def test_what_cannot_stop_a_run_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(**given)
