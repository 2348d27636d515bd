"""Several environments in one run: who is in a batch, what is compared with what, going on after a crash."""

import json
import math
import random
import time
from collections import Counter
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import records
from runs import QUICK, Log, assert_same_run, interrupt_before_checkpoint, same_weights

from gem.errors import BadArgument, UnknownEnv
from gem.record import StopReason
from gem.registry import ENV_REGISTRY, EnvSpec
from gem.rollout import EpisodeStore
from gem.testing.doubles import EchoEnv
from gem.train.config import TrainConfig
from gem.train.config.env_part import EnvPart
from gem.train.learn.learner import weights
from gem.train.learn.seat_episodes import split_by_seat
from gem.train.learn.training import make_trainer, train
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.mixture import Shares, TokenShares
from gem.train.tasks.schedule import Schedule, Slot, figures_of, measure_success

EASY = "game:GuessTheNumber-v0-easy"
FOUR = EnvPart(EASY, kwargs={"max_number": 4, "max_turns": 3}, name="four")
TWO = EnvPart(EASY, kwargs={"max_number": 2, "max_turns": 1}, name="two")
MIXED = replace(QUICK, env_kwargs={}, environments=(FOUR, TWO))


class Slow(EchoEnv):
    """Ten times the turns, and each takes its time."""

    def __init__(self):
        super().__init__(turns=10)

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


@pytest.fixture
def echoes(monkeypatch):
    registry = ENV_REGISTRY.copy()
    registry["test:Quick-v0"] = EnvSpec("test:Quick-v0", EchoEnv, {"turns": 1}, max_turns=1)
    registry["test:Long-v0"] = EnvSpec("test:Long-v0", EchoEnv, {"turns": 10}, max_turns=10)
    registry["test:Slow-v0"] = EnvSpec("test:Slow-v0", Slow, max_turns=10)
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", registry)


def plans(config, iterations):
    """The environments of so many iterations, where nothing has to be played to know them."""
    schedule = Schedule(config, [("agent",)] * len(config.parts))
    return [[slot.part for slot in schedule.plan(iteration)] for iteration in range(iterations)]


# -- shares of episodes


@pytest.mark.parametrize("seed", range(20))
def test_no_prefix_is_further_from_its_shares_than_tijdemans_bound(seed):
    draw = random.Random(seed)
    weights = {str(i): draw.choice([1, 1, 2, 3, draw.random()]) for i in range(draw.randint(2, 7))}
    total, shares, dealt = sum(weights.values()), Shares(), Counter()
    bound = 1 - 1 / (2 * len(weights) - 2)
    for number in range(1, 1500):
        dealt[shares.deal(weights)] += 1
        for name, weight in weights.items():
            assert abs(dealt[name] - number * weight / total) <= bound + 1e-6


def test_a_share_that_divides_the_batch_is_exact_in_every_batch():
    config = replace(MIXED, batch=16, environments=(FOUR, replace(TWO, weight=3)))
    assert [Counter(plan) for plan in plans(config, 50)] == [{0: 4, 1: 12}] * 50


def test_a_share_that_does_not_is_exact_in_the_long_run():
    third = EnvPart(EASY, 1, name="third")
    config = replace(MIXED, batch=16, environments=(FOUR, TWO, third))
    found = [Counter(plan) for plan in plans(config, 300)]
    assert {count for counts in found for count in counts.values()} == {5, 6}
    assert sum(found, Counter()) == {0: 1600, 1: 1600, 2: 1600}


def test_what_has_no_weight_is_never_dealt_and_nobody_is_owed_for_the_time_before():
    shares = Shares()
    assert {shares.deal({"a": 1, "b": 0}) for _ in range(20)} == {"a"}
    after = Counter(shares.deal({"a": 1, "b": 1}) for _ in range(20))
    assert after == {"a": 10, "b": 10}
    with pytest.raises(BadArgument, match="nothing has a weight"):
        shares.deal({"a": 0})


@pytest.mark.system
@pytest.mark.parametrize("host", ["serial", "thread", "process"])
def test_an_environment_that_takes_ten_times_as_long_has_its_share(echoes, tmp_path, host):
    config = replace(
        QUICK,
        env_kwargs={},
        environments=(EnvPart("test:Quick-v0", 3), EnvPart("test:Slow-v0", 1)),
        batch=8,
        host=host,
        out=tmp_path,
    )
    trainer = make_trainer(config)
    try:
        episodes = trainer.sample()
        assert Counter(episode.spec for episode in episodes) == {"test:Quick-v0": 6, "test:Slow-v0": 2}
        assert {len(each.turns) for each in episodes if each.spec == "test:Slow-v0"} == {10}
        # What a sampler that takes whatever is ready first would have had: none of the slow ones.
        jobs = [trainer._job(1, task, 0) for task in range(8)]
        first = [episode.spec for _, episode in zip(range(6), trainer.runner.stream(jobs), strict=False)]
        assert set(first) == {"test:Quick-v0"}
    finally:
        trainer.close()


# -- shares of tokens


def test_shares_of_episodes_follow_from_tokens_per_episode():
    shares = TokenShares()
    assert shares.of_episodes({"a": 1, "b": 1}) == {"a": 1.0, "b": 1.0}  # nobody has played
    shares.take_in([("a", 10), ("a", 30)])
    assert shares.of_episodes({"a": 1, "b": 2}) == {"a": 1 / 20, "b": 2 / 20}  # b: as long as a
    shares.take_in([("b", 5), ("b", 5), ("b", 5)])
    assert shares.of_episodes({"a": 1, "b": 2}) == {"a": pytest.approx(1 / 20), "b": 2 / 5}
    shares.take_in([("a", 40)] * 200)
    assert shares.of_episodes({"a": 1, "b": 1})["a"] == pytest.approx(1 / 40, rel=0.01)
    shares.take_in([("b", 0)] * 1000)  # nothing was ever sampled there
    assert 0 < shares.of_episodes({"a": 1, "b": 1})["b"] <= 1


@pytest.mark.system
def test_by_tokens_an_environment_of_long_episodes_is_played_less_often(echoes, tmp_path):
    parts = (EnvPart("test:Quick-v0", 1), EnvPart("test:Long-v0", 3))
    config = replace(QUICK, env_kwargs={}, environments=parts, mix_by="tokens", batch=32, out=tmp_path)
    trainer = make_trainer(config)
    shares, tokens = [], Counter()
    for iteration in range(6):
        trainer.iteration = iteration
        episodes = trainer.sample()
        slots = trainer.slots_of(episodes)
        trainer.schedule.take_in(iteration, slots, episodes)
        shares.append(sum(slot.part for slot in slots) / len(slots))
        if iteration > 1:
            for slot, episode in zip(slots, episodes, strict=True):
                tokens[slot.part] += slot.tokens(episode)
    trainer.close()
    assert shares[0] == 0.75  # nothing is known yet: shares of episodes
    assert max(shares[1:]) < 0.35
    assert tokens[1] / tokens.total() == pytest.approx(0.75, abs=0.05)


# -- what is compared with what


def mixed_episodes(tmp_path, **changes):
    """A trainer of two environments, and an iteration of episodes whose rewards are known."""
    trainer = make_trainer(replace(MIXED, kl=0.0, out=tmp_path, **changes))
    episodes = trainer.sample()
    draw = random.Random(0)
    for episode in episodes:
        for turn in episode.turns:
            turn.reward = draw.choice([0.0, 0.25, 1.0])
    return trainer, episodes


def test_an_environment_without_success_has_none_in_the_figures():
    """A limit cut some of its episodes: they are not lost."""
    cut, solved, failed = (
        records.episode(stop=stop) for stop in (StopReason.TURN_LIMIT, StopReason.SOLVED, StopReason.FAILED)
    )
    parts = [EnvPart("test:X", name=name) for name in ("score", "success")]
    played = [cut, cut, records.episode(stop=StopReason.ENDED), solved, failed]
    slots = [Slot(0)] * 3 + [Slot(1)] * 2
    assert measure_success(zip(slots, played, strict=True)) == 0.5
    assert [each["success"] for each in figures_of(parts, slots, played)[0].values()] == [None, 0.5]
    assert math.isnan(measure_success([(Slot(), records.episode(stop=StopReason.ENDED)), (Slot(), cut)]))


def learnt(tmp_path, scale, **changes):
    """The weights after a step on episodes of which the second environment's rewards are in another unit."""
    trainer, episodes = mixed_episodes(tmp_path, **changes)
    slots = trainer.slots_of(episodes)
    for slot, episode in zip(slots, episodes, strict=True):
        for turn in episode.turns:
            turn.reward *= scale if slot.part else 1.0
    assert trainer.learn(episodes).positions
    trainer.close()
    return {name: tensor.clone() for name, tensor in weights(trainer.policy)["model"].items()}


@pytest.mark.parametrize("algorithm", ["rebn", "turn_rebn", "ppo"])
@pytest.mark.system
def test_by_environment_the_unit_of_one_reward_changes_nothing(tmp_path, algorithm):
    """A power of two, so that not even the rounding differs."""
    how = {"algorithm": algorithm, "value_weight": 0.0}
    assert same_weights(learnt(tmp_path, 1.0, **how), learnt(tmp_path, 64.0, **how))
    batch = {**how, "normalise_by": "batch"}
    assert not same_weights(learnt(tmp_path, 1.0, **batch), learnt(tmp_path, 64.0, **batch))


@pytest.mark.parametrize("normalise_by", ["environment", "batch"])
def test_a_group_is_of_one_environment_and_compared_with_itself_alone(tmp_path, normalise_by):
    how = {"algorithm": "grpo", "normalise_by": normalise_by}
    trainer, episodes = mixed_episodes(tmp_path, **how)
    groups = {}
    for slot, episode in zip(trainer.slots_of(episodes), episodes, strict=True):
        groups.setdefault(episode.group, set()).add((slot.part, episode.seed, str(episode.kwargs)))
    trainer.close()
    assert [len(found) for found in groups.values()] == [1] * 4
    assert sorted(part for found in groups.values() for part, _, _ in found) == [0, 0, 1, 1]
    assert same_weights(learnt(tmp_path, 1.0, **how), learnt(tmp_path, 64.0, **how))


def test_a_batch_split_by_seat_holds_every_episode_once_for_each_seat_that_learns(tmp_path):
    trainer, episodes = mixed_episodes(tmp_path)
    slots = trainer.slots_of(episodes)
    trainer.close()
    by_part = list(split_by_seat(episodes, slots, "environment"))
    assert [(each.part, each.seat, len(each.episodes)) for each in by_part] == [
        (0, "agent", 8),
        (1, "agent", 8),
    ]
    (whole,) = split_by_seat(episodes, slots, "batch")
    assert whole.episodes == episodes
    assert whole.envs == [slot.part for slot in slots]
    (alone,) = split_by_seat(episodes, None, "environment")
    assert alone.episodes == episodes


@pytest.mark.system
@pytest.mark.parametrize("algorithm", ["rebn", "turn_grpo", "ppo"])
def test_algorithms_take_steps_in_a_mixture(tmp_path, algorithm):
    config = replace(MIXED, algorithm=algorithm, episodes=16, eval_episodes=1, watch=0, out=tmp_path)
    train(config)
    (metrics,) = RunFolder(tmp_path).history()
    assert metrics.step_kl > 0
    assert metrics.environments.keys() == {"four", "two"}


# -- a run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("mixed")
    return out, train(replace(MIXED, mix_by="tokens", out=out))


@pytest.mark.system
def test_a_run_tells_the_figures_of_each_environment(whole):
    out, summary = whole
    assert summary["env"] == "four + two"
    assert set(summary["environments"]) == {"four", "two"}
    for found in summary["environments"].values():
        assert set(found) == {"random", "optimum", "before", "before_greedy", "after", "greedy"}
    assert summary["environments"]["two"]["random"]["success"]["mean"] != 1
    for metrics in RunFolder(out).history():
        found = metrics.environments
        assert sum(each["episodes"] for each in found.values()) == MIXED.batch
        assert sum(each["tokens"] for each in found.values()) == metrics.tokens_sampled
        assert sum(each["share"] for each in found.values()) == pytest.approx(1)
        assert sum(each["token_share"] for each in found.values()) == pytest.approx(1)
        mean = sum(each["share"] * each["turns"] for each in found.values())
        assert mean == pytest.approx(metrics.turns)
        assert metrics.opponents == {}
    with EpisodeStore(out / "watched.jsonl", read_only=True) as store:
        assert len({episode.group for episode in store}) == 2 * MIXED.watch


@pytest.mark.system
def test_a_run_of_one_environment_has_no_figures_apart(tmp_path):
    train(replace(QUICK, episodes=16, eval_episodes=1, out=tmp_path))
    (line,) = map(json.loads, RunFolder(tmp_path).metrics.read_text().splitlines())
    assert not {"environments", "opponents", "stage"} & line.keys()


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_mixture_goes_on_as_the_same_run(whole, tmp_path, stop):
    config = replace(MIXED, mix_by="tokens", out=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(config, watcher=Log(stop))
    train(config, resume=True)
    assert_same_run(whole[0], tmp_path)


@pytest.mark.system
def test_a_crash_before_a_checkpoint_with_stale_samples(tmp_path):
    how = {"staleness": 1, "importance_cap": 2.0, "mix_by": "tokens", "save_every": 2, "watch": 0}
    config = replace(MIXED, **how, episodes=16 * 5, eval_episodes=2)
    train(replace(config, out=tmp_path / "whole"))
    with interrupt_before_checkpoint(4), pytest.raises(KeyboardInterrupt):
        train(replace(config, out=tmp_path / "cut"))
    train(replace(config, out=tmp_path / "cut"), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.system
def test_a_checkpoint_of_a_version_without_schedules_is_gone_on_with(tmp_path):
    from gem.train.learn import checkpoint

    config = replace(QUICK, episodes=32, eval_episodes=1)
    train(replace(config, out=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        train(replace(config, out=tmp_path / "cut"), watcher=Log(1))
    file = RunFolder(tmp_path / "cut").checkpoint
    state = checkpoint.load(file)
    del state["schedule"]
    checkpoint.save(file, state)
    train(replace(config, out=tmp_path / "cut"), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


# -- what is said of environments


def test_words_and_tables_say_the_same():
    part = EnvPart.parse('{"id": "game:X", "weight": 2, "kwargs": {"n": [1]}, "tools": ["python"]}')
    assert part == EnvPart("game:X", 2, {"n": [1]}, tools=("python",))
    assert EnvPart.parse("game:X=2.5") == EnvPart("game:X", 2.5)
    assert EnvPart.parse("game:X") == EnvPart("game:X")
    assert EnvPart.parse(part.to_word()) == part
    config = TrainConfig(environments=[{"id": "game:X", "weight": 2}, part])
    assert TrainConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    assert config.to_json()["env"] == "game:X + game:X(n=[1])"


def test_what_a_table_does_not_say_is_the_runs():
    config = TrainConfig(
        environments=[{"id": "game:X"}, {"id": "game:Y", "tools": [], "max_turns": 3}],
        tools=("python",),
        max_turns=7,
    )
    assert [(part.tools, part.max_turns) for part in config.parts] == [(("python",), 7), ((), 3)]


def test_equal_ids_are_told_apart_by_their_keywords():
    same = [{"id": "game:X", "kwargs": {"n": n}} for n in (1, 2)]
    assert [part.name for part in TrainConfig(environments=same).parts] == ["game:X(n=1)", "game:X(n=2)"]
    with pytest.raises(BadArgument, match="2 environments are called 'game:X'; give each a name"):
        TrainConfig(environments=[{"id": "game:X"}, {"id": "game:X"}])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"environments": [{"id": "a:A", "weigth": 2}]},
            "the table of a:A has 'weigth'.*Did you mean 'weight'",
        ),
        ({"environments": [{"weight": 2}]}, "accepted: a table with an id"),
        ({"environments": ["a:A"]}, "accepted: a table with an id"),
        ({"environments": "a:A"}, "accepted: a list of tables"),
        ({"environments": {"id": "a:A"}}, "accepted: a list of tables"),
        ({"environments": [{"id": ""}]}, "id is ''; accepted: text"),
        ({"environments": [{"id": "a:A", "weight": 0}]}, "weight of a:A is 0; accepted: a number above 0"),
        ({"environments": [{"id": "a:A", "weight": float("nan")}]}, "weight of a:A is nan"),
        ({"environments": [{"id": "a:A", "weight": "2"}]}, "weight of a:A is '2'"),
        ({"environments": [{"id": "a:A", "kwargs": 3}]}, "kwargs of a:A is 3; accepted: keywords and values"),
        ({"environments": [{"id": "a:A", "max_turns": 0}]}, "max_turns of a:A is 0"),
        ({"environments": [{"id": "a:A", "tools": "python"}]}, "tools of a:A is 'python'; accepted: a list"),
        ({"environments": [{"id": "a:A", "tools": ["shell"]}]}, "tools has 'shell'"),
        ({"environments": [{"id": "a:A", "name": 3}]}, "name of a:A is 3; accepted: text"),
        ({"environments": [{"id": "a:A"}], "env": "b:B"}, "env and environments both say what is played"),
        ({"environments": [{"id": "a:A"}], "env_kwargs": {"n": 1}}, "env_kwargs and environments both say"),
        ({"mix_by": "tokens"}, "mix_by tokens needs two environments or more"),
        ({"mix_by": "turns"}, "mix_by is 'turns'; accepted: episodes, tokens"),
        ({"normalise_by": "turn"}, "normalise_by is 'turn'; accepted: environment, batch"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(**given)


@pytest.mark.parametrize("word", ["game:X=", "game:X=two", "{", "=2"])
def test_a_word_that_says_nothing_is_refused(word):
    with pytest.raises(BadArgument):
        EnvPart.parse(word)


def test_an_environment_that_nobody_registered_is_refused_before_anything_is_made(tmp_path):
    with pytest.raises(UnknownEnv, match="no environment 'game:Gues'"):
        make_trainer(replace(MIXED, environments=(FOUR, EnvPart("game:Gues")), out=tmp_path))


def test_an_episode_without_seats_has_a_slot_all_the_same(tmp_path):
    """An environment that breaks in its reset has no seats, no turns and no verdict."""
    trainer, (first, *_) = mixed_episodes(tmp_path)
    trainer.close()
    broken = replace(first, ends={}, turns=[], stop=StopReason.ERROR)
    for slot in (Slot(), Slot(0, "player_0", "random")):
        assert slot.stop(broken) is StopReason.ERROR
        assert slot.turns(broken) == []
        assert slot.tokens(broken) == 0
