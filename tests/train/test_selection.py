"""What follows from held-out evaluations: the best weights."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")
from records import episode, paid

from gem.cli.players import local_agent
from gem.errors import BadArgument, StoreError
from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.train import checkpoint
from gem.train.progress import about_best, table
from gem.train.run import Evaluation, RunFolder
from gem.train.selection import best
from gem.train.trainer import train, trained_agent

from .test_trainer import QUICK, Log, assert_same_run, same_weights, weights

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
    assert titles == ["trained, sampled", "best, sampled", "best, greedy"]


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


def test_an_agent_is_the_last_or_the_best(whole):
    out, _ = whole
    one, other = local_agent(str(out)), local_agent(f"{out}@best")
    assert same_weights(one.model.state_dict(), weights(out))
    assert same_weights(other.model.state_dict(), checkpoint.load(RunFolder(out).best)["model"])
    with pytest.raises(BadArgument, match=r"accepted: .* \(with @best behind it"):
        local_agent(f"{out}@worst")


def test_a_run_without_evaluations_keeps_no_best(tmp_path):
    train(replace(QUICK, episodes=16, eval_episodes=1, out=tmp_path))
    with pytest.raises(StoreError, match=r"keeps no best weights .* \(--eval-every\)"):
        trained_agent(tmp_path, weights="best")


def test_where_the_last_are_the_best_they_are_measured_once(tmp_path, monkeypatch):
    monkeypatch.setattr("gem.train.trainer.best", lambda evaluations: evaluations[-1])
    summary = train(replace(CONFIG, episodes=16, out=tmp_path))
    assert summary["held_out"]["best_iteration"] == 1
    assert "best" not in summary
    assert about_best([evaluation(0, 3), evaluation(5, 4)]).startswith("The last weights are the best")


@pytest.mark.parametrize(
    ("kind", "words"), [("unseen", "other instances"), ("all", "other seeds"), ("seeds", "other seeds")]
)
def test_how_the_best_were_chosen_is_said(kind, words):
    said = about_best(
        [evaluation(0, 3, kind=kind), evaluation(5, 7, kind=kind), evaluation(10, 4, kind=kind)]
    )
    assert said.startswith(
        "The best weights are those of iteration 5: held-out success 70.0% (39.7% to 89.2%)."
    )
    assert f"chosen on {words} than the table" in said
    assert about_best([]) == ""
