"""Evaluation on held-out instances, and training that does not know of it."""

import json
import math
from dataclasses import replace
from statistics import fmean

import pytest

torch = pytest.importorskip("torch")

from runs import QUICK, Log, assert_same_run, hashes, interrupt_before_checkpoint, same_weights, weights

from gem.envs.games.guess_the_number import GuessTheNumber
from gem.errors import BadArgument
from gem.evals import find_instances
from gem.registry import ENV_REGISTRY, EnvSpec, Maker, register
from gem.rollout import EpisodeStore
from gem.train.config import TrainConfig
from gem.train.config.env_part import EnvPart, Stage
from gem.train.learn.training import make_trainer as make
from gem.train.learn.training import train
from gem.train.report.loggers import heldout_of
from gem.train.report.progress import draw, format_evaluation
from gem.train.report.run_folder import Evaluation, RunFolder
from gem.train.tasks.held_out import HeldOut, held_out_instances
from gem.train.tasks.played_env import played_envs

EASY = Maker("game:GuessTheNumber-v0-easy")
MANY = Maker("game:Mastermind-v0-hard")
ADDED = {"held_out", "best", "best_greedy"}
CONFIG = replace(QUICK, eval_every=2, held_out=12)


class Told(Log):
    def __init__(self, stop=None):
        super().__init__(stop)
        self.told = []

    def evaluated(self, evaluation):
        self.told.append(evaluation.iteration)


def evaluations(out):
    """The evaluations of a run without their times."""
    return [replace(each, wall_s=0.0) for each in RunFolder(out).evaluated()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("held_out")
    train(replace(CONFIG, out=out))
    return out


# -- what is held out


def instances_of(maker, seeds):
    with maker() as env:
        dealt = []
        for seed in seeds:
            env.reset(seed=seed)
            dealt.append(env.instance())
        return set(dealt)


def test_few_instances_are_all_played_with_other_chance():
    found = held_out_instances(EASY, 0, 50, lambda: range(100))
    assert found.kind == "all"
    assert len(found.instances.seeds) == 10
    final = find_instances(EASY, 0)
    assert not {s for own in found.instances.seeds for s in own} & {s for own in final.seeds for s in own}


def test_unseen_instances_are_none_of_training_or_of_the_final_table():
    drawn = range(600)
    found = held_out_instances(MANY, 0, 64, lambda: drawn)
    assert found.kind == "unseen"
    assert not found.instances.complete
    assert len(found.instances.seeds) == 64
    final = [seed for (seed,) in find_instances(MANY, 0).seeds]
    met = instances_of(MANY, [*drawn, *final])
    assert not instances_of(MANY, [seed for (seed,) in found.instances.seeds]) & met
    taken = find_instances(MANY, 1).seeds  # else it would be no feat
    assert instances_of(MANY, [seed for (seed,) in taken]) & met


def test_where_training_draws_nearly_all_of_them_that_is_said():
    found = held_out_instances(MANY, 0, 64, lambda: range(20_000))
    assert found.kind == "seen"
    assert len(found.instances.seeds) == 64


def test_a_run_too_long_to_look_through_says_so(monkeypatch):
    monkeypatch.setattr("gem.train.tasks.held_out.LOOKED_THROUGH", 50)
    assert held_out_instances(MANY, 0, 64, lambda: range(51)).kind == "seeds"
    assert held_out_instances(MANY, 0, 64, lambda: range(50)).kind == "unseen"


def test_the_questions_of_a_data_set_are_told_apart():
    maker = Maker("math:Arithmetic-v0-easy")
    found = held_out_instances(maker, 0, 40, lambda: range(300))
    assert found.kind == "unseen"
    with maker() as env:
        trained = {env.reset(seed=seed).obs for seed in range(300)}
        assert not {env.reset(seed=seed).obs for (seed,) in found.instances.seeds} & trained


def test_where_instances_cannot_be_told_apart_seeds_are_other_seeds(monkeypatch):
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register("test:Echo", "gem.testing.doubles:EchoEnv")
    found = held_out_instances(Maker("test:Echo"), 0, 7, lambda: range(10))
    assert found.kind == "seeds"
    assert len(found.instances.seeds) == 7


# -- a run with evaluations


@pytest.mark.system
def test_the_evaluations_of_a_run(whole):
    found = evaluations(whole)
    assert [each.iteration for each in found] == [0, 2, 4]
    assert [each.episodes for each in found] == [0, 32, 64]
    for each in found:
        assert (each.held_out, each.instances, each.temperature) == ("all", 4, 1.0)
        assert len(each.scores) == each.result.episodes == 12
        assert each.score.mean == pytest.approx(sum(each.scores) / 12)
        assert each.score.low <= each.score.mean <= each.score.high
    assert len({each.scores for each in found}) > 1
    lines = [json.loads(line) for line in RunFolder(whole).evaluations.read_text().splitlines()]
    assert [line["score"] for line in lines] == [each.score.mean for each in found]


def test_no_seed_of_theirs_is_trained_on_or_of_the_final_table(whole):
    trainer = make(replace(CONFIG, out=whole))
    (part,) = trainer.held_out.parts
    held_out = {seed for own in part.instances.seeds for seed in own}
    final = {seed for own in trainer.instances.seeds for seed in own}
    trainer.close()
    with EpisodeStore(RunFolder(whole).episodes, read_only=True) as store:
        trained_on = {episode.seed for episode in store}
    assert not held_out & trained_on
    assert not held_out & final


@pytest.mark.system
@pytest.mark.parametrize("more", [{}, {"staleness": 1, "importance_cap": 2.0}, {"algorithm": "turn_grpo"}])
def test_training_does_not_know_of_them(tmp_path, more):
    without = replace(QUICK, **more, out=tmp_path / "without")
    train(without)
    train(replace(without, eval_every=1, held_out=5, out=tmp_path / "with"))
    summary = RunFolder(tmp_path / "with").summary
    summary.write_text(
        json.dumps({k: v for k, v in json.loads(summary.read_text()).items() if k not in ADDED})
    )
    assert_same_run(without.out, tmp_path / "with")
    assert hashes(without.out) == hashes(tmp_path / "with")
    assert not RunFolder(without.out).evaluations.exists()
    assert [each.iteration for each in evaluations(tmp_path / "with")] == [0, 1, 2, 3, 4]


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_run_has_the_same_evaluations(whole, tmp_path, stop):
    config = replace(CONFIG, out=tmp_path)
    first, second = Told(stop), Told()
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=first)
    train(config, resume=True, watcher=second)
    assert first.told + second.told == [0, 2, 4]
    assert_same_run(whole, tmp_path)
    assert evaluations(tmp_path) == evaluations(whole)


@pytest.mark.system
@pytest.mark.parametrize("torn", [b"", b'{"iteration": 2, "score"', b"null\n"])
def test_a_crash_between_evaluation_and_checkpoint(whole, tmp_path, torn):
    """The line of iteration 4 stands, the checkpoint is that of 3; or the line is torn."""
    config = replace(CONFIG, eval_every=1, out=tmp_path)
    with interrupt_before_checkpoint(4), pytest.raises(KeyboardInterrupt):
        train(config)
    file = RunFolder(tmp_path).evaluations
    assert [each.iteration for each in evaluations(tmp_path)] == [0, 1, 2, 3, 4]
    if torn:
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]) + torn)
    train(config, resume=True)
    assert [each.iteration for each in evaluations(tmp_path)] == [0, 1, 2, 3, 4]
    assert evaluations(tmp_path)[::2] == evaluations(whole)


@pytest.mark.system
def test_evaluations_need_not_be_at_checkpoints(whole, tmp_path):
    config = replace(CONFIG, save_every=3, out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop=2))
    assert [each.iteration for each in evaluations(tmp_path)] == [0, 2]
    log = Told()
    train(config, resume=True, watcher=log)
    assert log.told == [2, 4]  # the checkpoint is that of iteration 0
    assert evaluations(tmp_path) == evaluations(whole)


@pytest.mark.system
def test_the_temperature_may_be_another(whole, tmp_path):
    train(replace(CONFIG, eval_every=4, eval_temperature=0.0, out=tmp_path))
    assert same_weights(weights(whole), weights(tmp_path))
    greedy = evaluations(tmp_path)[-1]
    assert greedy.temperature == 0.0
    by_instance = [set(greedy.scores[i::4]) for i in range(4)]
    assert all(len(scores) == 1 for scores in by_instance)  # no chance is left
    assert greedy.scores != evaluations(whole)[-1].scores


class Fragile(GuessTheNumber):
    """Cannot be begun while `broken`."""

    broken = False

    def deal(self):
        if self.broken:
            raise OSError("the server is gone")
        return super().deal()


@pytest.fixture
def fragile(monkeypatch):
    """The id of an environment that breaks in the evaluation of iteration 2."""
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())
    register(EnvSpec("test:Fragile", Fragile, QUICK.env_kwargs, max_turns=3))
    measure = HeldOut.measure

    def broken(held_out, iteration):
        with monkeypatch.context() as patch:
            patch.setattr(Fragile, "broken", iteration == 2)
            return measure(held_out, iteration)

    monkeypatch.setattr(HeldOut, "measure", broken)
    return "test:Fragile"


@pytest.mark.system
def test_one_that_breaks_is_told_and_ends_nothing(tmp_path, fragile):
    log = Told()
    train(replace(CONFIG, env=fragile, env_kwargs={}, out=tmp_path), watcher=log)
    assert [each.score is None for each in evaluations(tmp_path)] == [False, True, False]
    (warning,) = log.warnings
    assert warning.startswith(
        "iteration 2: no held-out episode has a verdict; the first: the server is gone ("
    )


@pytest.mark.system
def test_they_are_drawn_with_their_intervals(whole, tmp_path):
    folder = RunFolder(whole)
    draw(folder.history(), {}, CONFIG, tmp_path / "without.png")
    draw(folder.history(), {}, CONFIG, tmp_path / "with.png", folder.evaluated())
    assert (tmp_path / "with.png").read_bytes() != (tmp_path / "without.png").read_bytes()


def test_one_comes_back_from_json(whole):
    for each in RunFolder(whole).evaluated():
        assert Evaluation.from_json(json.loads(json.dumps(each.to_json()))) == each


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_temperatures_that_cannot_be(value):
    with pytest.raises(BadArgument, match=r"eval_temperature is .*; accepted: 0"):
        TrainConfig(eval_temperature=value)


# -- several environments


FOUR = EnvPart("game:GuessTheNumber-v0-easy", kwargs=QUICK.env_kwargs, name="four")
TWO = EnvPart("game:GuessTheNumber-v0-easy", 3.0, {"max_number": 2, "max_turns": 2}, name="two")
MIXED = replace(CONFIG, env_kwargs={}, environments=(FOUR, TWO), held_out=11)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    out = tmp_path_factory.mktemp("mixed")
    return out, train(replace(MIXED, out=out))


@pytest.mark.system
def test_several_environments_are_evaluated_apart_and_weigh_the_same(mixed):
    out, summary = mixed
    found = evaluations(out)
    assert [each.iteration for each in found] == [0, 2, 4]
    for each in found:
        assert {name: part.result.episodes for name, part in each.parts.items()} == {"four": 8, "two": 6}
        assert (each.result.episodes, each.instances, each.scores) == (14, 6, ())
        means = {name: fmean(part.scores) for name, part in each.parts.items()}
        assert each.score.mean == pytest.approx(sum(means.values()) / 2)
        assert each.score.low <= each.score.mean <= each.score.high
        assert format_evaluation(each).endswith(f": four {means['four']:.1%}, two {means['two']:.1%}")
        assert heldout_of(each).keys() >= {"success", "four/success", "two/reward"}
        assert Evaluation.from_json(json.loads(json.dumps(each.to_json()))) == each
    chosen = next(each for each in found if each.iteration == summary["held_out"]["best_iteration"])
    best = {name: part.score.mean for name, part in chosen.parts.items()}
    assert {name: one["mean"] for name, one in summary["held_out"]["best_of"].items()} == best


@pytest.mark.system
def test_an_interrupted_run_of_several_has_the_same_evaluations(mixed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(replace(MIXED, out=tmp_path), watcher=Told(3))
    train(replace(MIXED, out=tmp_path), resume=True)
    assert_same_run(mixed[0], tmp_path)
    for one, other in zip(evaluations(mixed[0]), evaluations(tmp_path), strict=True):
        assert one.result == other.result
        assert {n: p.scores for n, p in one.parts.items()} == {n: p.scores for n, p in other.parts.items()}


LONG = EnvPart("game:Mastermind-v0-hard", kwargs={"max_turns": 4}, name="long")
"""An environment of many instances: those of training are looked up."""

STAGES = (Stage(TWO.id, kwargs=TWO.kwargs, name="two"), Stage(LONG.id, kwargs=LONG.kwargs, name="long"))


@pytest.mark.system
@pytest.mark.parametrize(
    "given",
    [
        {"environments": (FOUR, TWO)},
        {"environments": (LONG, TWO), "mix_by": "tokens"},
        {"curriculum": STAGES, "advance_at": 0.01, "advance_over": 1},
    ],
)
def test_training_on_several_does_not_know_of_them(tmp_path, given):
    without = replace(QUICK, env_kwargs={}, **given, out=tmp_path / "without")
    train(without)
    train(replace(without, eval_every=2, held_out=6, out=tmp_path / "with"))
    assert hashes(without.out) == hashes(tmp_path / "with")
    if "curriculum" in given:
        assert len({metrics.stage for metrics in RunFolder(without.out).history()}) == 2


@pytest.mark.system
def test_one_of_several_without_verdict_leaves_no_score(tmp_path, fragile):
    log = Told()
    parts = (FOUR, EnvPart(fragile, name="fragile"))
    train(replace(MIXED, environments=parts, out=tmp_path), watcher=log)
    assert [each.score is None for each in evaluations(tmp_path)] == [False, True, False]
    said = "iteration 2: no held-out episode of fragile has a verdict; the first: the server is gone ("
    assert any(warning.startswith(said) for warning in log.warnings)


def test_opponents_are_refused():
    with pytest.raises(BadArgument, match="held-out evaluations need a policy that plays every seat"):
        replace(CONFIG, env="multi:KuhnPoker-v0", env_kwargs={}, opponent=("random",))


@pytest.mark.parametrize(
    ("tools", "max_turns", "turns"), [((), None, 7), (("python",), None, 7 + 10 + 4), (("python",), 9, 9)]
)
def test_calls_of_tools_count_among_the_turns_that_an_episode_may_take(tools, max_turns, turns):
    config = TrainConfig(env="game:GuessTheNumber-v0-hard", tools=tools, max_turns=max_turns)
    assert [env.budget for env in played_envs(config)] == [turns]


def test_an_environment_of_a_file_states_its_turns_itself(tmp_path):
    file = tmp_path / "own.py"
    file.write_text("""
from gem import Env

class Own(Env):
    max_turns = 3

    def reset(self, seed=None):
        super().reset(seed)
        return "go", {}

    def step(self, action):
        return "", 0.0, True, False, {"success": False}
""")
    config = TrainConfig(env=f"{file}:Own", max_turns=None)
    assert [env.budget for env in played_envs(config)] == [3]
