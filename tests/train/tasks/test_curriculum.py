"""Curricula: when a stage begins, what is kept of those before, and going on after a crash."""

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log, assert_same_run

from gem.errors import BadArgument
from gem.train.config import TrainConfig
from gem.train.config.env_part import Stage
from gem.train.learn.training import train
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.curriculum import Curriculum

EASY = "game:GuessTheNumber-v0-easy"
STAGES = tuple(Stage(EASY, kwargs={"max_number": n, "max_turns": 3}, name=f"to {n}") for n in (2, 4, 8))


def climbing(over=2, until=0.8, keep=0.2, stages=STAGES):
    return Curriculum(stages, until, over, keep)


def batch(iteration, wins, losses):
    return [(f"{iteration}-{n}", n < wins) for n in range(wins + losses)]


def test_a_stage_ends_when_the_lower_bound_is_above_what_is_wanted():
    found = climbing()
    assert found.weights == {"to 2": 1.0, "to 4": 0.0, "to 8": 0.0}
    assert not found.take_in(batch(0, 64, 0))  # one iteration of two
    assert not found.take_in(batch(1, 44, 20))  # 84% of 128: at least 77%
    assert 0.7 < found.low < 0.8 < 108 / 128
    assert not found.take_in(batch(2, 64, 0))
    assert found.take_in(batch(3, 60, 4))  # 97% of 128: at least 92%
    assert found.stage == 1


def test_luck_in_a_small_batch_is_not_enough():
    found = climbing(over=1)
    assert not found.take_in(batch(0, 4, 0))  # 4 of 4: the lower bound is 51%
    assert not found.take_in(batch(1, 15, 1))  # 94%: 72%
    assert found.low < 0.8
    assert found.take_in(batch(2, 64, 0))
    assert found.stage == 1


def test_samples_of_one_task_are_no_evidence_of_their_own():
    found = climbing(over=1)
    one_task = [("0-0", True)] * 60 + [("0-1", False)] * 4
    assert not found.take_in(one_task)
    assert found.low < 0.5


def test_what_counts_is_the_present_stage_and_the_last_iterations():
    found = climbing()
    for iteration in range(3):
        assert not found.take_in(batch(iteration, 0, 64))
    assert not found.take_in(batch(3, 64, 0))
    assert found.take_in(batch(4, 64, 0))  # the losses are out of sight
    assert found.recent == []
    assert not found.take_in([])  # an iteration without a word of the stage
    assert not found.take_in(batch(6, 64, 0))
    assert found.take_in(batch(7, 64, 0))
    assert found.stage == 2
    for iteration in range(8, 12):
        assert not found.take_in(batch(iteration, 64, 0))  # there is no further one


def test_earlier_stages_keep_their_share():
    found = climbing(stages=(STAGES[0], replace(STAGES[1], weight=3), STAGES[2]))
    found.stage = 1
    assert found.weights == pytest.approx({"to 2": 0.2, "to 4": 0.8, "to 8": 0.0})
    found.stage = 2
    assert found.weights == pytest.approx({"to 2": 0.05, "to 4": 0.15, "to 8": 0.8})
    forgetting = climbing(keep=0.0)
    forgetting.stage = 1
    assert forgetting.weights == {"to 2": 0.0, "to 4": 1.0, "to 8": 0.0}


def test_a_stage_may_have_a_threshold_of_its_own():
    found = climbing(over=1, stages=(replace(STAGES[0], until=0.0), *STAGES[1:]))
    assert not found.take_in(batch(0, 0, 64))
    assert found.take_in(batch(1, 1, 63))
    assert not found.take_in(batch(2, 32, 32))


# -- a run


class Stages(Log):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.climbed = []

    def advanced(self, stage, iteration):
        self.climbed.append((stage, iteration))


CLIMB = replace(
    QUICK,
    env_kwargs={},
    curriculum=(replace(STAGES[0], until=0.3), replace(STAGES[1], until=0.1), STAGES[2]),
    advance_over=2,
    keep=0.25,
    episodes=16 * 8,
    warmup_steps=60,
    eval_episodes=2,
    watch=0,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("climb")
    log = Stages()
    return out, train(replace(CLIMB, out=out), watcher=log), log


@pytest.mark.system
def test_a_run_climbs_and_tells(whole):
    out, summary, log = whole
    history = RunFolder(out).history()
    assert summary["env"] == "to 2 -> to 4 -> to 8"
    assert log.climbed
    assert [name for name, _ in log.climbed] == [stage.name for stage in STAGES[1 : 1 + len(log.climbed)]]
    for name, first in log.climbed:
        before, after = history[first - 2], history[first - 1]
        assert (before.stage != name, after.stage) == (True, name)
        assert after.environments[name]["episodes"] == 12
        assert after.environments["to 2"]["episodes"] + after.environments.get("to 4", {}).get(
            "episodes", 0
        ) in (4, 16)
    assert history[0].environments.keys() == {"to 2"}


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 3, 6])
def test_an_interrupted_curriculum_goes_on_as_the_same_run(whole, tmp_path, stop):
    with pytest.raises(KeyboardInterrupt):
        train(replace(CLIMB, out=tmp_path), watcher=Log(stop))
    log = Stages()
    train(replace(CLIMB, out=tmp_path), resume=True, watcher=log)
    assert_same_run(whole[0], tmp_path)
    assert log.climbed == [each for each in whole[2].climbed if each[1] > stop + 1]


def test_stages_that_do_not_say_what_success_is_are_refused(tmp_path):
    config = replace(CLIMB, curriculum=(STAGES[0], Stage("multi:KuhnPoker-v0")), out=tmp_path)
    with pytest.raises(BadArgument, match="needs success, which multi:KuhnPoker-v0 does not report"):
        train(config)


# -- what is said of stages


def test_words_and_tables_say_the_same():
    assert Stage.parse("game:X=0.5") == Stage("game:X", until=0.5)
    stage = Stage("game:X", kwargs={"n": 3}, until=0.5)
    assert Stage.parse(stage.to_word()) == stage
    config = TrainConfig(curriculum=[{"id": "game:X", "until": 0.5}, {"id": "game:Y"}])
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"curriculum": [{"id": "a:A"}]}, "a curriculum has one stage; accepted: two or more"),
        ({"curriculum": [{"id": "a:A", "until": 1}, {"id": "b:B"}]}, "until of a:A is 1; accepted: a rate"),
        ({"curriculum": [{"id": "a:A", "until": "x"}, {"id": "b:B"}]}, "until of a:A is 'x'"),
        ({"environments": [{"id": "a:A", "until": 0.5}]}, "the table of a:A has 'until'"),
        (
            {"environments": [{"id": "a:A"}], "curriculum": [{"id": "a:A"}, {"id": "b:B"}]},
            "environments are played together, a curriculum in sequence; give one of them",
        ),
        ({"curriculum": [{"id": "a:A"}, {"id": "b:B"}], "env": "c:C"}, "env and curriculum both say"),
        ({"advance_at": 1.0}, "advance_at is 1.0; accepted: 0 or more, and less than 1"),
        ({"keep": -0.1}, "keep is -0.1; accepted: 0 or more, and less than 1"),
        ({"keep": float("nan")}, "keep is nan"),
        ({"advance_over": 0}, "advance_over is 0; accepted: 1 or more"),
    ],
)
def test_a_curriculum_that_cannot_be_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(**given)
