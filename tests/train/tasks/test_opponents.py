"""Games against opponents: who holds which seat, what is learnt from, the pool, going on after a crash."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from records import episode as ended
from records import paid

torch = pytest.importorskip("torch")

from runs import QUICK, Log, assert_same_run, same_weights

from gem.errors import BadArgument
from gem.evals import EnvResult
from gem.record import SEAT, SeatEnd, StopReason
from gem.rollout import EpisodeStore, Runner
from gem.train.config import TrainConfig
from gem.train.learn import checkpoint
from gem.train.learn.learner import load_weights
from gem.train.learn.policy import make_policy
from gem.train.learn.preparation import warm
from gem.train.learn.trainer import Trainer
from gem.train.learn.training import make_trainer, train
from gem.train.report.callbacks import Callback
from gem.train.report.run_folder import RunFolder
from gem.train.tasks.opponents import PRIORITY, League

KUHN = "multi:KuhnPoker-v0"
AGAINST = replace(
    QUICK, env=KUHN, env_kwargs={}, opponent=("random",), max_tokens=10, eval_episodes=4, watch=1
)
POOL = replace(AGAINST, pool=2, pool_every=1, pool_by="hard", episodes=16 * 5)


def held(episode):
    """Who held which seat of an episode, as its record says."""
    return {seat: about.agent for seat, about in episode.run.seats.items()}


def hand(first, second):
    """A hand of which the seats earned so much."""
    ends = {seat: SeatEnd(StopReason.ENDED, True) for seat in ("player_0", "player_1")}
    turns = [*paid(first, seat="player_0"), *paid(second, seat="player_1")]
    return ended(*turns, ends=ends)


# -- who plays whom


def test_seats_and_opponents_are_dealt_evenly_and_seats_within_opponents(tmp_path):
    config = replace(AGAINST, opponent=("random", "solver"), batch=16, out=tmp_path)
    trainer = make_trainer(config)
    slots = [slot for iteration in range(5) for slot in trainer.schedule.plan(iteration)]
    trainer.close()
    assert Counter((slot.seat, slot.opponent) for slot in slots) == {
        (seat, name): 20 for seat in ("player_0", "player_1") for name in ("random", "solver")
    }
    assert Counter(slot.seat for slot in slots[:16]) == {"player_0": 8, "player_1": 8}


def test_the_record_says_who_held_which_seat_and_the_learner_alone_has_tokens(tmp_path):
    trainer = make_trainer(replace(AGAINST, opponent=("random", "solver"), out=tmp_path))
    episodes = trainer.sample()
    slots = trainer.slots_of(episodes)
    trainer.close()
    names = {"random": "RandomAgent", "solver": "SolverAgent"}
    for slot, episode in zip(slots, episodes, strict=True):
        other = {"player_0": "player_1", "player_1": "player_0"}[slot.seat]
        assert held(episode) == {slot.seat: "TinyAgent", other: names[slot.opponent]}
        assert not any(turn.token_ids for turn in episode.turns_of(other))
        assert all(turn.token_ids for turn in episode.turns_of(slot.seat))


def test_the_learners_turns_are_learnt_from_and_no_other(tmp_path):
    """The opponent is a copy of the policy, whose turns have tokens that could be learnt from too."""
    trainer = make_trainer(replace(POOL, opponent=(), kl=0.0, out=tmp_path))
    trainer.take_snapshot()
    episodes = trainer.sample()
    slots = trainer.slots_of(episodes)
    sampled = dict.fromkeys(("mine", "others"), 0)
    for slot, episode in zip(slots, episodes, strict=True):
        assert slot.opponent == "snapshot@0"
        for turn in episode.turns:
            sampled["mine" if turn.seat == slot.seat else "others"] += len(turn.token_ids)
    for n, episode in enumerate(episodes):  # noise of random weights: give it something to learn
        slots[n].turns(episode) and setattr(slots[n].turns(episode)[-1], "reward", float(n % 3))
    steps = trainer.learn(episodes)
    metrics = trainer.summarise(episodes, steps, 0.0, 0.0, slots)
    trainer.close()
    assert sampled["others"] > 0
    assert steps.sums["tokens"] == trainer.config.epochs * sampled["mine"]
    assert metrics.tokens_sampled == sampled["mine"]
    assert metrics.reward == pytest.approx(
        sum(episode.reward(slot.seat) for slot, episode in zip(slots, episodes, strict=True)) / len(episodes)
    )


def test_a_group_has_one_seat_and_one_opponent(tmp_path):
    trainer = make_trainer(replace(AGAINST, algorithm="grpo", opponent=("random", "solver"), out=tmp_path))
    episodes = trainer.sample()
    trainer.close()
    groups = {}
    for episode in episodes:
        groups.setdefault(episode.group, set()).add((episode.seed, str(held(episode))))
    assert [len(found) for found in groups.values()] == [1] * 4
    assert len(set.union(*groups.values())) == 4


@pytest.mark.system
def test_a_folder_of_a_run_is_an_opponent(tmp_path):
    first = tmp_path / "first"
    train(replace(QUICK, env=KUHN, env_kwargs={}, episodes=16, eval_episodes=1, out=first))
    trainer = make_trainer(replace(AGAINST, opponent=(str(first),), store="none", out=tmp_path))
    (episode, *_) = trainer.sample()
    agent = trainer.opponents.agent(str(first))
    trainer.close()
    assert set(held(episode).values()) == {"TinyAgent", str(first)}
    assert same_weights(agent.agent.model.state_dict(), checkpoint.load(first / "checkpoint.pt")["model"])


# -- whom it meets how often


def test_the_rate_of_wins_counts_ties_half_and_fades():
    league = League(("a",))
    assert league.rate("a") == 0.5
    league.take_in(
        [("a", hand(1, -1), "player_0"), ("a", hand(0, 0), "player_0"), ("a", hand(1, -1), "player_1")]
    )
    assert league.results == {"a": (1.5, 3.0)}
    assert league.rate("a") == (1.5 + 1) / (3 + 2)
    league.take_in([("a", hand(-2, 2), "player_1")])
    assert league.results == {"a": pytest.approx((0.9 * 1.5 + 1, 0.9 * 3 + 1))}
    broken = ended(stop=StopReason.ERROR)
    league.take_in([("a", broken, SEAT), ("gone", hand(1, -1), "player_0")])
    assert league.results == {"a": pytest.approx((0.81 * 1.5 + 0.9, 0.81 * 3 + 0.9))}


@pytest.mark.parametrize(("priority", "wanted"), [("uniform", 1.0), ("hard", 0.09), ("even", 0.21)])
def test_the_weights_are_those_of_the_formula(priority, wanted):
    assert PRIORITY[priority](0.7) == pytest.approx(wanted)


def test_a_league_meets_those_it_loses_to_more_often():
    league = League(("weak", "strong"), priority="hard")
    league.take_in([("weak", hand(1, -1), "player_0")] * 18 + [("strong", hand(-1, 1), "player_0")] * 18)
    assert league.weights == {"weak": pytest.approx(0.05**2), "strong": pytest.approx(0.95**2)}


def test_the_oldest_copy_makes_room_and_its_results_go_with_it():
    league = League(("a",), size=2)
    for number in (0, 5, 10):
        league.add(number)
        league.take_in([(name, hand(1, -1), "player_0") for name in league.members])
    assert league.members == ["a", "snapshot@5", "snapshot@10"]
    assert league.results.keys() == {"a", "snapshot@5", "snapshot@10"}


# -- a run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("pool")
    return out, train(replace(POOL, out=out))


@pytest.mark.system
def test_a_run_tells_the_figures_against_each(whole):
    out, summary = whole
    assert set(summary["environments"]) == {f"{KUHN} against random", f"{KUHN} against the pool"}
    fixed = summary["environments"][f"{KUHN} against random"]
    assert set(fixed) >= {"random", "before", "after", "greedy"}
    assert set(summary["environments"][f"{KUHN} against the pool"]) == {"after", "greedy"}
    found = EnvResult.from_json(fixed["after"])
    assert set(found.seats) == {"player_0", "player_1"}
    halves = [found.seats[seat].reward.mean for seat in ("player_0", "player_1")]
    assert found.reward.mean == pytest.approx(sum(halves) / 2)
    for number, metrics in enumerate(RunFolder(out).history()):
        copies = {f"snapshot@{n}" for n in range(max(0, number - 1), number + 1)}
        assert metrics.opponents.keys() <= {"random", *copies}
        assert sum(each["episodes"] for each in metrics.opponents.values()) == POOL.batch
        assert metrics.environments[KUHN]["tokens"] == metrics.tokens_sampled


class Second(Callback):
    """Ends a run after its second iteration."""

    def on_iteration(self, metrics):
        return "enough" if metrics.iteration == 2 else None


@pytest.mark.system
def test_a_run_that_ends_early_tells_the_figures_against_the_pool(tmp_path):
    summary = train(replace(POOL, eval_episodes=1, callback=(Second(),), out=tmp_path))
    assert set(summary["environments"][f"{KUHN} against the pool"]) == {"after", "greedy"}


def test_the_store_says_which_copy_played(whole):
    out, _ = whole
    with EpisodeStore(out / "episodes.jsonl", read_only=True) as store:
        found = [(episode.job, held(episode), episode) for episode in store]
    assert {name for _, names, _ in found for name in names.values()} >= {"TinyAgent", "snapshot@1"}
    for job, names, episode in found:
        assert list(names.values()).count("TinyAgent") == 1
        for seat, name in names.items():
            versions = {turn.policy_version for turn in episode.turns_of(seat)}
            if name == "TinyAgent":
                assert versions <= {int(job.partition("-")[0])}
            elif name.startswith("snapshot@"):
                assert versions <= {int(name.removeprefix("snapshot@"))}


@pytest.mark.system
def test_a_copy_is_the_policy_as_it_was(tmp_path):
    trainer = make_trainer(replace(POOL, out=tmp_path))
    warm(trainer)
    trainer.take_snapshot()
    jobs = [trainer._job(0, task, 0) for task in range(8)]
    with Runner(trainer.policy.agent, host="serial") as runner:
        mine = runner.play([replace(job, agents=None) for job in jobs])
        copied = runner.play([replace(job, agents=trainer.opponents.agent("snapshot@0")) for job in jobs])
    trainer.close()
    assert [each.transcript_hash() for each in mine] == [each.transcript_hash() for each in copied]


@pytest.mark.system
def test_files_of_copies_that_nobody_needs_are_removed(whole, tmp_path):
    out, _ = whole
    assert sorted(file.name for file in (out / "pool").iterdir()) == ["000004.pt", "000005.pt"]
    newest = checkpoint.load(out / "pool" / "000005.pt")
    policy = make_policy(POOL)
    load_weights(policy, newest, "it")
    assert same_weights(policy.model.state_dict(), checkpoint.load(out / "checkpoint.pt")["model"])
    train(replace(POOL, episodes=16, eval_episodes=1, out=tmp_path))
    RunFolder(tmp_path).clear()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize("stop", [1, 4])
def test_an_interrupted_run_with_a_pool_goes_on_as_the_same_run(whole, tmp_path, stop):
    with pytest.raises(KeyboardInterrupt):
        train(replace(POOL, out=tmp_path), watcher=Log(stop))
    train(replace(POOL, out=tmp_path), resume=True)
    assert_same_run(whole[0], tmp_path)


@pytest.mark.system
def test_a_crash_between_checkpoints_with_stale_samples_and_a_pool(tmp_path, monkeypatch):
    """The run that goes on needs copies that the one that crashed had replaced by newer ones."""
    config = replace(POOL, pool=1, staleness=1, importance_cap=2.0, save_every=2, watch=0, eval_episodes=2)
    train(replace(config, out=tmp_path / "whole"))
    keep = Trainer.take_snapshot

    def crash(trainer):
        keep(trainer)
        if trainer.iteration == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_snapshot", crash)
        with pytest.raises(KeyboardInterrupt):
            train(replace(config, out=tmp_path / "cut"))
    assert checkpoint.load(tmp_path / "cut" / "checkpoint.pt")["iteration"] == 2
    train(replace(config, out=tmp_path / "cut"), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.system
def test_a_mixture_of_a_game_and_an_environment_of_one_seat(tmp_path):
    config = replace(
        AGAINST,
        env=QUICK.env,
        environments=[{"id": KUHN}, {"id": QUICK.env, "kwargs": QUICK.env_kwargs}],
        episodes=16,
        out=tmp_path,
    )
    summary = train(config)
    assert set(summary["environments"]) == {f"{KUHN} against random", QUICK.env}
    (metrics,) = RunFolder(tmp_path).history()
    assert metrics.environments.keys() == {KUHN, QUICK.env}
    assert metrics.opponents["random"]["episodes"] == 8


# -- what cannot be


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"opponent": ("random", "random")}, "opponent is random random; give each name once"),
        ({"pool": -1}, "pool is -1; accepted: 0 or more"),
        ({"pool_every": 0}, "pool_every is 0; accepted: 1 or more"),
        ({"pool_by": "best"}, "pool_by is 'best'; accepted: uniform, hard, even"),
        ({"opponent": ("random",), "algorithm": "turn_grpo"}, "turn_grpo needs games of one seat"),
        ({"opponent": ("random",), "ray": "local"}, "opponents cannot be sampled on a Ray cluster"),
        ({"pool": 2, "model": "some", "sampler": "vllm:http://x"}, "holds one copy of the policy"),
    ],
)
def test_opponents_that_cannot_be_are_refused(given, words):
    with pytest.raises(BadArgument, match=words):
        TrainConfig(env=KUHN, **given)


def test_an_environment_without_seats_for_them_is_refused(tmp_path):
    with pytest.raises(BadArgument, match="opponents need a game of several seats"):
        make_trainer(replace(QUICK, opponent=("random",), out=tmp_path))


def test_turn_grpo_is_refused_for_several_seats(tmp_path):
    with pytest.raises(BadArgument, match="turn_grpo needs games of one seat"):
        make_trainer(replace(QUICK, env=KUHN, env_kwargs={}, algorithm="turn_grpo", out=tmp_path))


def test_an_opponent_that_nobody_knows_is_refused_at_once(tmp_path):
    with pytest.raises(
        BadArgument, match=r"no opponent is called 'randon'; .*path/file\.py.* Did you mean 'random'"
    ):
        make_trainer(replace(AGAINST, opponent=("randon",), out=tmp_path))


def test_a_config_of_opponents_comes_back_from_json():
    assert TrainConfig.from_json(json.loads(json.dumps(POOL.to_json()))) == POOL


@pytest.fixture
def terse():
    pytest.importorskip("tyro")
    from bench.self_play import TERSE, TerseKuhn
    from gem.envs.seats.kuhn_poker import KuhnPoker
    from gem.registry import ENV_REGISTRY, EnvSpec, register

    register(EnvSpec(TERSE, TerseKuhn, max_turns=3, seats=KuhnPoker.seats))
    yield
    del ENV_REGISTRY[TERSE]


def test_the_best_answer_to_random_play_is_that_of_the_rules():
    """Bet and call but fold a jack: enumerated by hand, 11/24 of a chip; the random actor itself wins 0."""
    from bench.opponents import best_answer, evenly, value

    assert value(evenly, evenly) == pytest.approx(0.0, abs=1e-12)
    assert best_answer(evenly) == pytest.approx(11 / 24)
    assert value(lambda spot: 1.0, evenly) == pytest.approx(3 / 8)  # always bold


@pytest.mark.slow
def test_against_random_play_its_value_comes_near_the_best_answers(terse, tmp_path):
    from bench.opponents import against, best_answer, evenly, own, value

    played = against(tmp_path, 30, 256, 0, kl=0.2, opponent=("random",))
    first, last = (value(own(sum(part, Counter())), evenly) for part in (played[:2], played[-5:]))
    assert first < 0.2
    assert last > 0.7 * best_answer(evenly)


@pytest.mark.slow
def test_against_a_pool_it_becomes_hard_to_beat(terse, tmp_path):
    from bench.opponents import against
    from bench.self_play import exploitability

    played = against(tmp_path, 70, 256, 0, kl=0.3, epochs=4, pool=12, pool_every=3)
    before, after = exploitability(played[0])[0], exploitability(sum(played[-40:], Counter()))[0]
    assert before > 0.8
    assert after < before / 2
