"""The same seeds at every checkpoint, and training that does not know of them."""

import json
import math
from dataclasses import replace
from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log, assert_same_run, hashes

from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.learn.training import make_trainer as make
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.watched_seeds import TIMES
from gem.viewer.conversation import entropies

CONFIG = replace(QUICK, watch=3)


def watched(out):
    """The watched episodes by job; each job stands there once."""
    with EpisodeStore(RunFolder(out).watched, read_only=True) as store:
        found = {episode.job: episode for episode in store}
        assert len(found) == len(store)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("watched")
    train(replace(CONFIG, out=out))
    return out


@pytest.mark.system
def test_each_seed_is_played_at_each_checkpoint(whole):
    episodes = watched(whole)
    assert set(episodes) == {f"{iteration}-{number}" for iteration in range(5) for number in range(3)}
    with EpisodeStore(RunFolder(whole).episodes, read_only=True) as store:
        trained_on = {episode.seed for episode in store}
    for job, episode in episodes.items():
        iteration, number = job.split("-")
        assert episode.policy_version == int(iteration)
        assert episode.seed == episodes[f"0-{number}"].seed
        assert episode.seed not in trained_on
        for turn in episode.turns:
            assert len(turn.token_ids) == len(turn.logprobs) == len(entropies(turn)) > 0
            assert all(each >= 0 for each in entropies(turn))
    assert len({episode.seed for episode in episodes.values()}) == 3
    assert len({episode.transcript_hash() for job, episode in episodes.items() if job[2:] == "0"}) > 1


@pytest.mark.system
@pytest.mark.parametrize("staleness", [0, 1])
def test_training_does_not_know_of_them(whole, tmp_path, staleness):
    without = replace(CONFIG, watch=0, out=tmp_path / "without")
    if not staleness:
        train(without)
        assert_same_run(whole, without.out)
        assert hashes(whole) == hashes(without.out)
        assert not RunFolder(without.out).watched.exists()
        return
    stale = {"staleness": 1, "importance_cap": 2.0, "episodes": 48}
    train(replace(without, **stale))
    train(replace(CONFIG, **stale, out=tmp_path / "with"))
    assert_same_run(without.out, tmp_path / "with")
    assert len(watched(tmp_path / "with")) == 4 * 3


@pytest.mark.system
@pytest.mark.parametrize("iteration", [0, 2, 4])
def test_an_interrupted_run_has_each_once(whole, tmp_path, monkeypatch, iteration):
    config = replace(CONFIG, out=tmp_path)
    append = EpisodeStore.append

    def crash(store, episode):
        if store.path.name == "watched.jsonl" and episode.job == f"{iteration}-1":
            raise KeyboardInterrupt
        append(store, episode)

    with monkeypatch.context() as patch:
        patch.setattr(EpisodeStore, "append", crash)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    assert 3 * iteration <= len(watched(tmp_path)) < 3 * iteration + 3
    train(config, resume=True)
    assert_same_run(whole, tmp_path)
    wanted = watched(whole)
    for job, episode in watched(tmp_path).items():
        assert episode.transcript_hash() == wanted[job].transcript_hash()
        for turn, same in zip(episode.turns, wanted[job].turns, strict=True):
            # What else was in the batch, which is smaller here, changes the rounding.
            assert turn.logprobs.tolist() == pytest.approx(same.logprobs.tolist(), abs=1e-4)


@pytest.mark.system
def test_a_run_from_before_there_were_any_goes_on_with_them(whole, tmp_path):
    config = replace(CONFIG, out=tmp_path, watch=TrainConfig.watch)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=2))
    folder = RunFolder(tmp_path)
    stored = json.loads(folder.config.read_text())
    del stored["watch"]
    folder.config.write_text(json.dumps(stored))
    for file in tmp_path.glob("watched*"):
        file.unlink()
    train(config, resume=True)
    assert_same_run(whole, tmp_path)
    assert {job.split("-")[0] for job in watched(tmp_path)} == {"2", "3", "4"}


@pytest.mark.parametrize(
    ("iterations", "save_every"), [(1, 1), (7, 1), (45, 1), (1000, 1), (997, 10), (70, 100)]
)
def test_they_are_played_a_few_times_evenly_spread_at_checkpoints(tmp_path, iterations, save_every):
    config = replace(CONFIG, episodes=iterations * CONFIG.batch, save_every=save_every, out=tmp_path)
    trainer = make(config)
    trainer.folder.path.mkdir(exist_ok=True)
    due = [each for each in range(iterations + 1) if trainer.watched.due(each)]
    trainer.close()
    assert due[0] == 0
    assert due[-1] == iterations
    assert len(due) <= TIMES + 2
    between = [later - one for one, later in pairwise(due[:-1])]
    assert len(set(between)) <= 1
    assert all(each % save_every == 0 for each in due[:-1])
    assert len(due) >= min(TIMES / 2, math.ceil(iterations / save_every) + 1)
