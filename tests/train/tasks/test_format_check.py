"""A warm-up that stops when the format is learnt, and a run that begins below random play and says so."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
from records import episode, paid
from runs import QUICK, Log, assert_same_run, same_weights, weights

from gem.errors import BadArgument
from gem.evals import summarise
from gem.record import Failure, StopReason
from gem.train.config import TrainConfig
from gem.train.learn.preparation import warn_below_random
from gem.train.learn.training import train
from gem.train.learn.warmup import warm_up_seed
from gem.train.learn.warmup_cache import WarmUps
from gem.train.report.run_folder import RunFolder
from gem.train.tasks import format_check
from gem.train.tasks.format_check import FormatCheck, FormatVerdict, compare_with_random, is_below

CONFIG = replace(QUICK, episodes=16, warmup_steps=60, warmup_check=10, eval_episodes=40)
WON = episode(*paid(1.0))
LOST = episode(*paid(0.0), stop=StopReason.FAILED)
GARBLED = episode(*paid(0.0), stop=StopReason.UNREADABLE)
BROKEN = episode(*paid(None), stop=StopReason.ERROR, error=Failure("host", "WorkerDied", "gone"))
RANDOM = [WON] * 30 + [LOST] * 70


@pytest.mark.parametrize(
    ("played", "readable", "learnt"),
    [
        (RANDOM, 1.0, True),
        ([WON] * 30 + [LOST] * 69 + [GARBLED], 0.99, True),
        ([WON] * 30 + [LOST] * 64 + [GARBLED] * 6, 0.94, False),  # too often unreadable
        ([WON] * 29 + [LOST] * 71, 1.0, False),  # earns less
        ([WON] * 60 + [GARBLED] * 40, 0.6, False),  # earns more, and is unreadable
        ([GARBLED] * 100, 0.0, False),
        ([WON] * 30 + [LOST] * 20 + [BROKEN] * 50, 1.0, False),  # fifty pairs do not tell so much
        ([BROKEN] * 100, 0.0, False),
    ],
)
def test_the_format_is_learnt_where_play_is_as_readable_and_earns_as_much(played, readable, learnt):
    found = compare_with_random(played, RANDOM)
    assert (found.readable, found.learnt) == (readable, learnt)


def test_random_play_that_is_unreadable_itself_is_what_counts():
    random = [LOST] * 150 + [GARBLED] * 150
    assert compare_with_random(random, random) == FormatVerdict(0.5, 0.5, True)
    assert not compare_with_random([LOST] * 120 + [GARBLED] * 180, random).learnt


# -- a warm-up


@pytest.mark.slow
def test_it_stops_when_the_format_is_learnt(tmp_path):
    log = Log()
    config = replace(CONFIG, warmup_steps=400, warmup_check=20, out=tmp_path)
    summary = train(config, watcher=log)
    steps = RunFolder(tmp_path).warmed()
    assert [each.step for each in steps] == list(range(1, len(steps) + 1))
    assert 40 <= len(steps) < 400  # two looks in a row
    looked = [each for each in steps if each.readable is not None]
    assert [each.step for each in looked] == list(range(20, len(steps) + 1, 20))
    assert looked[0].readable < 0.95 < looked[-1].readable
    assert {each.random_readable for each in looked} == {1.0}
    assert summary["warmup"]["step"] == len(steps)
    assert any(stage.startswith(f"the format is learnt, after step {len(steps)}: ") for stage in log.stages)
    assert log.warnings == []
    again = replace(config, out=tmp_path / "again")
    train(again)
    assert_same_run(tmp_path, again.out)


def test_a_look_alone_may_be_lucky(tmp_path, monkeypatch):
    found = iter([True, False, True, True, True])
    monkeypatch.setattr(format_check, "EPISODES", 2)
    monkeypatch.setattr(
        format_check, "compare_with_random", lambda played, random: FormatVerdict(1.0, 1.0, next(found))
    )
    train(replace(CONFIG, warmup_check=2, warmup_steps=20, out=tmp_path))
    assert len(RunFolder(tmp_path).warmed()) == 8


def test_each_look_has_seeds_of_its_own(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(format_check, "rollout", lambda jobs, agent, **how: seen.append(jobs))
    monkeypatch.setattr(
        format_check, "compare_with_random", lambda played, random: FormatVerdict(1.0, 1.0, False)
    )
    train(replace(CONFIG, warmup_check=2, warmup_steps=4, out=tmp_path))
    mine, random, later, _ = ([job.seed for job in jobs] for jobs in seen)
    cloned = {warm_up_seed(CONFIG.seed, step, i) for step in range(4) for i in range(CONFIG.warmup_batch)}
    assert mine == random
    assert not set(mine) & cloned
    assert not set(mine) & set(later)


@pytest.mark.system
def test_looking_changes_no_step(tmp_path, monkeypatch):
    check = FormatCheck.check
    monkeypatch.setattr(FormatCheck, "check", lambda one, step: replace(check(one, step), learnt=False))
    train(replace(CONFIG, warmup_check=30, out=tmp_path / "looked"))
    train(replace(CONFIG, warmup_check=0, out=tmp_path / "not"))
    assert same_weights(weights(tmp_path / "looked"), weights(tmp_path / "not"))


def test_steps_that_are_too_few_are_told(tmp_path):
    log = Log()
    train(replace(CONFIG, warmup_steps=3, out=tmp_path), watcher=log)
    (last,) = (each for each in RunFolder(tmp_path).warmed() if each.readable is not None)
    assert last.step == 3  # the last one is looked at in any case
    assert log.warnings[0].startswith("the warm-up ends before the format is learnt: ")
    assert "take more --warmup-steps" in log.warnings[0]


@pytest.mark.system
def test_one_that_is_looked_at_is_shared(tmp_path):
    shared = WarmUps(tmp_path / "shared")
    config = replace(CONFIG, warmup_steps=2, out=tmp_path / "made")
    made = train(config, warm_ups=shared)
    taken = train(replace(config, out=tmp_path / "taken"), warm_ups=shared)
    assert len(list((tmp_path / "shared").glob("*.pt"))) == 1
    assert (taken["before"], taken["after"]) == (made["before"], made["after"])


@pytest.mark.system
def test_it_takes_all_its_steps_and_more_until_the_format_is_learnt(tmp_path):
    log = Log()
    config = replace(CONFIG, warmup_steps=3, warmup_check=2, warmup_most=8, out=tmp_path)
    train(config, watcher=log)
    steps = RunFolder(tmp_path).warmed()
    assert [each.step for each in steps] == list(range(1, 9))
    assert [each.step for each in steps if each.readable is not None] == [3, 4, 6, 8]
    assert any("ends before the format is learnt" in warning for warning in log.warnings)


@pytest.mark.parametrize("given", [{"warmup_check": 0}, {"warmup_most": 79}])
def test_a_maximum_that_cannot_be_is_refused(given):
    with pytest.raises(BadArgument, match=r"warmup_most is .* at least warmup_steps"):
        TrainConfig(**{"warmup_check": 10, "warmup_most": 100, **given})


def test_demonstrations_are_cloned_to_the_end():
    with pytest.raises(BadArgument, match="warmup_check tests the format alone"):
        TrainConfig(demos="x", warmup_check=5)


# -- below random play


def measured(won, of):
    return summarise("test:X", [WON] * won + [LOST] * (of - won))


@pytest.mark.parametrize(
    ("mine", "other", "of", "worse"),
    [(0, 30, 100, True), (20, 36, 100, True), (30, 36, 100, False), (36, 30, 100, False), (2, 4, 10, False)],
)
def test_below_is_beyond_noise(mine, other, of, worse):
    assert is_below(measured(mine, of), measured(other, of)) == worse


def test_where_success_is_unknown_returns_are_compared():
    paid_out = [episode(*paid(float(at % 3)), stop=StopReason.ENDED) for at in range(60)]
    nothing = [episode(*paid(0.0), stop=StopReason.ENDED)] * 60
    assert is_below(summarise("test:X", nothing), summarise("test:X", paid_out))
    assert not is_below(summarise("test:X", paid_out), summarise("test:X", nothing))
    assert not is_below(summarise("test:X", [BROKEN]), summarise("test:X", paid_out))
    few = [episode(*paid(0.0), stop=StopReason.ENDED)] * 2  # which random play could earn, too
    assert not is_below(summarise("test:X", few), summarise("test:X", paid_out))
    most = [episode(*paid(2.0), stop=StopReason.ENDED)] * 60
    assert is_below(summarise("test:X", paid_out), summarise("test:X", most))
    assert not is_below(summarise("test:X", nothing), summarise("test:X", most))  # neither has a spread


def test_each_environment_that_begins_below_random_play_is_named():
    below = {"before": measured(0, 100).to_json(), "random": measured(30, 100).to_json()}
    above = {"before": below["random"], "random": below["before"]}
    log = Log()

    def warn(figures):
        log.warnings.clear()
        warn_below_random(SimpleNamespace(figures=figures, watcher=log))
        return [text.partition("before any RL")[0] for text in log.warnings]

    assert warn(below) == [""]
    assert warn(above) == []
    assert warn({"before": below["before"]}) == []
    assert warn({"environments": {"a": below, "b": above, "c": {"random": below["random"]}, "d": below}}) == [
        "a: ",
        "d: ",
    ]


@pytest.mark.system
def test_a_run_that_begins_below_random_play_says_so(tmp_path):
    log = Log()
    train(replace(CONFIG, warmup_steps=1, warmup_check=0, out=tmp_path), watcher=log)
    assert log.warnings[0].startswith("before any RL the policy plays worse than random, beyond noise;")
    fresh = Log()
    train(replace(CONFIG, warmup_steps=0, warmup_check=0, out=tmp_path / "none"), watcher=fresh)
    assert not any(
        "worse than random" in text for text in fresh.warnings
    )  # without a warm-up it is no surprise
