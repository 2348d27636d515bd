import asyncio
import importlib.util
import pickle
from array import array
from functools import partial
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("tinker")
pytest.importorskip("tinker_cookbook")
pytestmark = pytest.mark.framework

from tinker_cookbook.completers import TinkerTokenCompleter
from tinker_cookbook.rl import train
from tinker_cookbook.rl.data_processing import compute_advantages, trajectory_to_data
from tinker_cookbook.rl.metric_util import compute_trajectory_metrics
from tinker_cookbook.rl.rollout_strategy import FailFast, MinViableGroup, RetryOnFailure
from tinker_cookbook.rl.rollouts import do_group_rollout, do_group_rollout_and_filter_constant_reward
from tinker_cookbook.rl.types import StopReason

import gem
from gem.adapters.tinker import GemDataset, GemDatasetBuilder, GemEnv, GemGroupBuilder
from gem.errors import BadArgument, NoVerdict, UnknownEnv
from gem.estimators.advantages import grpo
from gem.history import HistoryPolicy
from gem.record import Limits
from gem.rollout import EpisodeStore
from gem.rollout.conversation import Conversation
from gem.specs import TaskRef
from gem.tokens.rows import rows
from tests.shared.random_models import RENDERER, Chatter, make_model

gem.register("tinker-test:Chatter-v0", Chatter)
CHATTER = "tinker-test:Chatter-v0"
SEED = 2  # four turns


def example():
    path = Path(__file__).parents[2] / "examples/researcher" / "tinker_train.py"
    spec = importlib.util.spec_from_file_location("tinker_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def policy():
    return TinkerTokenCompleter(example().Local(make_model()), max_tokens=6)


def played(builder, policy, strategy=None):
    return asyncio.run(do_group_rollout(builder, policy, strategy))


def numbers(datum, name):
    return datum.loss_fn_inputs[name].to_torch().tolist()


@pytest.mark.parametrize("history", [None, HistoryPolicy("chat", window=1)], ids=["whole", "window"])
def test_the_data_of_the_cookbook_are_the_rows_of_the_record(policy, history):
    episodes = []
    builder = GemGroupBuilder(CHATTER, SEED, 4, RENDERER, history=history, on_episode=episodes.append)
    group = played(builder, policy)
    (advantages,) = compute_advantages([group])
    expected = grpo([episode.reward() for episode in episodes], ["one"] * 4, scale=False)
    assert advantages.tolist() == pytest.approx(expected)
    for episode, trajectory, advantage in zip(episodes, group.trajectories_G, advantages, strict=True):
        data = trajectory_to_data(trajectory, advantage.item())
        made = rows(episode)
        assert len(episode.turns) > 1
        assert len(made) == (1 if history is None else len(episode.turns))
        for datum, row in zip(data, made, strict=True):
            assert datum.model_input.to_ints() == list(row.ids[:-1])
            assert numbers(datum, "target_tokens") == list(row.ids[1:])
            assert numbers(datum, "mask") == list(row.mask[1:])
            assert array("f", numbers(datum, "logprobs")) == row.logprobs[1:]
            wanted = [advantage.item() * learned for learned in row.mask[1:]]
            assert numbers(datum, "advantages") == pytest.approx(wanted)


def test_a_group_is_fresh_environments_of_one_seed(policy):
    episodes = []
    group = played(GemGroupBuilder(CHATTER, 5, 3, RENDERER, on_episode=episodes.append), policy)
    assert [episode.seed for episode in episodes] == [5, 5, 5]
    assert len({episode.id for episode in episodes}) == 3
    assert len({str(episode.turns[0].observation) for episode in episodes}) == 1
    assert len({tuple(episode.turns[0].token_ids) for episode in episodes}) == 3
    assert group.get_total_rewards() == [episode.reward() for episode in episodes]
    for episode, trajectory in zip(episodes, group.trajectories_G, strict=True):
        assert [step.reward for step in trajectory.transitions] == [turn.reward for turn in episode.turns]


class Broken(gem.Env):
    """Breaks on its second step as long as `left` says, as a dead sandbox would."""

    left = 0

    def reset(self, seed=None):
        super().reset(seed)
        self.turn = 0
        return gem.Start("go on", {})

    def step(self, action):
        self.turn += 1
        if self.turn == 2 and Broken.left:
            Broken.left -= 1
            raise NoVerdict("the sandbox is <b>gone</b>")
        return gem.Step("more", 1.0, self.turn == 2, False, {"stop": "solved"} if self.turn == 2 else {})


gem.register("tinker-test:Broken-v0", Broken)


def broken_group(times, **options):
    Broken.left = times
    return GemGroupBuilder("tinker-test:Broken-v0", 0, 3, RENDERER, **options)


def test_no_verdict_is_an_error_of_the_rollout_and_no_reward(policy):
    with pytest.raises(NoVerdict, match="no verdict"):
        played(broken_group(1), policy, FailFast())
    episodes = []
    group = played(broken_group(1, on_episode=episodes.append), policy, RetryOnFailure())
    (error,) = group.rollout_errors
    assert error.error_type == "NoVerdict"
    assert "sandbox is <b>gone</b>" in error.error_message
    assert group.get_total_rewards() == [2.0, 2.0, 2.0]
    assert [episode.scored for episode in episodes].count(False) == 1
    assert len({episode.id for episode in episodes}) == len(episodes) == 4
    partial_group = played(broken_group(1), policy, MinViableGroup(2, max_retries=0))
    assert partial_group.get_total_rewards() == [2.0, 2.0]
    assert len(partial_group.rollout_errors) == 1


def test_a_group_without_verdicts_is_left_out(policy):
    client = policy.sampling_client
    got = asyncio.run(
        do_group_rollout_and_filter_constant_reward(
            client, broken_group(99), 4, 1.0, False, False, MinViableGroup()
        )
    )
    assert got is None


def test_an_answer_without_tokens_has_no_verdict():
    async def silent():
        (env,) = await GemGroupBuilder(CHATTER, 0, 1, RENDERER).make_envs()
        await env.initial_observation()
        with pytest.raises(NoVerdict, match="no token"):
            await env.step([])
        return env.episode

    assert not asyncio.run(silent()).scored


def last_metrics(group):
    return [trajectory.transitions[-1].metrics for trajectory in group.trajectories_G]


def test_limits_end_an_episode_with_what_was_earned(policy):
    class Endless(Chatter):
        def step(self, action):
            return gem.Step("higher or lower", 1.0, False, False, {"rewards": {"talk": 1.0}})

    gem.register("tinker-test:Endless-v0", Endless)
    turns = played(GemGroupBuilder("tinker-test:Endless-v0", 0, 2, RENDERER, Limits(turns=3)), policy)
    assert turns.get_total_rewards() == [3.0, 3.0]
    assert [each.stop_reason for each in turns.trajectories_G] == [StopReason.MAX_TURNS] * 2
    metrics = compute_trajectory_metrics([turns], [["x"]])
    assert metrics["env/all/reward/talk"] == metrics["env/all/truncated"] == 1.0

    limits = Limits(context=150, turn_tokens=6)
    context = played(GemGroupBuilder("tinker-test:Endless-v0", 0, 2, RENDERER, limits), policy)
    for trajectory in context.trajectories_G:
        assert trajectory.stop_reason == StopReason.CONTEXT_OVERFLOW
        longest = trajectory.transitions[-1].ob.length
        assert longest + 6 <= 150 < longest + 60

    never = played(GemGroupBuilder("tinker-test:Endless-v0", 0, 2, RENDERER, Limits(context=9)), policy)
    assert never.get_total_rewards() == [0.0, 0.0]
    assert [each.stop_reason for each in never.trajectories_G] == [StopReason.CONTEXT_OVERFLOW] * 2
    assert trajectory_to_data(never.trajectories_G[0], 1.0) == []


def test_a_cut_answer_is_closed_in_the_next_prompt():
    async def cut():
        builder = GemGroupBuilder(CHATTER, SEED, 1, RENDERER)
        (env,) = await builder.make_envs()
        prompt, stop = await env.initial_observation()
        assert stop == sorted(RENDERER.stop_ids)
        result = await env.step([20, 21], extra={"stop_reason": "length"})
        assert env.episode.turns[0].finish == "length"
        await builder.cleanup()
        return prompt.to_ints(), result.next_observation.to_ints()

    first, second = asyncio.run(cut())
    assert second[: len(first) + 2] == [*first, 20, 21]
    close = RENDERER.tokenizer.convert_tokens_to_ids("<|end|>")
    assert second[len(first) + 2] == close


class Slow(Chatter):
    """Waits in its step until it is released; tells whether it was closed while a call ran."""

    def __init__(self):
        self.in_call, self.release = Event(), Event()
        self.closed_in_call = None

    def step(self, action):
        self.in_call.set()
        assert self.release.wait(20)
        result = super().step(action)
        self.in_call.clear()
        return result

    def close(self):
        self.closed_in_call = self.in_call.is_set()
        super().close()


def test_a_cancelled_rollout_closes_its_environment_when_the_call_has_ended():
    async def cancelled():
        env = Slow()
        one = GemEnv(partial(Conversation, env, 0), RENDERER, waits=True)
        await one.initial_observation()
        step = asyncio.ensure_future(one.step([20]))
        await asyncio.to_thread(env.in_call.wait, 20)
        step.cancel()
        closing = asyncio.ensure_future(one.close())
        await asyncio.sleep(0)
        assert not closing.done()
        env.release.set()
        await closing
        env.close()
        return env.closed_in_call, one.episode

    closed_in_call, episode = asyncio.run(cancelled())
    assert closed_in_call is False
    assert not episode.scored


def test_data_sets_deal_the_same_groups_again():
    data = GemDataset(
        [CHATTER, "game:GuessTheNumber-v0-easy"], RENDERER, 3, batch_size=4, group_size=2, seed=7
    )
    assert len(data) == 3
    one, again = data.get_batch(1), data.get_batch(1)
    assert [(each.seed, each.job, each.logging_tags()) for each in one] == [
        (each.seed, each.job, each.logging_tags()) for each in again
    ]
    assert [each.logging_tags() for each in one] == [[CHATTER], ["game:GuessTheNumber-v0-easy"]] * 2
    seeds = {each.seed for index in range(3) for each in data.get_batch(index)}
    assert len(seeds) == 12
    with pytest.raises(IndexError):
        data.get_batch(3)


def test_wrong_settings_are_told_at_once():
    with pytest.raises(UnknownEnv):
        GemDataset(["game:Nothing-v0"], RENDERER, 1)
    with pytest.raises(BadArgument, match="sequence"):
        GemDataset(CHATTER, RENDERER, 1)
    with pytest.raises(BadArgument, match="1 or more"):
        GemDataset([CHATTER], RENDERER, 0)
    with pytest.raises(BadArgument, match="several seats"):
        GemDataset(["multi:ConnectFour-v0"], RENDERER, 1)
    with pytest.raises(BadArgument, match="1 environment"):
        GemGroupBuilder(CHATTER, 0, 0, RENDERER)

    async def twice():
        (env,) = await GemGroupBuilder(CHATTER, 0, 1, RENDERER).make_envs()
        with pytest.raises(BadArgument, match="before"):
            await env.step([1])
        await env.initial_observation()
        with pytest.raises(BadArgument, match="once"):
            await env.initial_observation()
        await env.close()

    asyncio.run(twice())


def test_keywords_travel_in_a_task_and_groups_pickle(policy):
    task = TaskRef("game:GuessTheNumber-v0-easy", {"max_turns": 2})
    (builder,) = GemDataset([task], RENDERER, 1, 1, 2).get_batch(0)
    group = played(pickle.loads(pickle.dumps(builder)), policy)
    assert max(len(each.transitions) for each in group.trajectories_G) <= 2


def test_the_store_keeps_every_episode(policy, tmp_path):
    with EpisodeStore(tmp_path / "store") as store:
        played(broken_group(1, on_episode=store.append), policy, RetryOnFailure())
    kept = list(EpisodeStore(tmp_path / "store"))
    assert [episode.scored for episode in kept].count(True) == 3
    for episode in kept:
        if episode.scored:
            assert all(turn.logprobs is not None for turn in episode.turns)


def test_training_takes_the_settings(monkeypatch, tmp_path):
    monkeypatch.setattr("gem.adapters.tinker.get_tokenizer", lambda name: RENDERER.tokenizer)
    builder = GemDatasetBuilder(
        envs=[CHATTER],
        model_name="tests/tiny",
        batches=2,
        batch_size=3,
        group_size=4,
        test_groups=5,
        context=99,
    )
    config = train.Config(
        learning_rate=1e-4,
        dataset_builder=builder,
        model_name="tests/tiny",
        recipe_name="gem",
        max_tokens=8,
        log_path=str(tmp_path),
        rollout_error_tolerance=True,
    )
    training, test = asyncio.run(config.dataset_builder())
    assert [len(training), len(test), len(test.get_batch(0))] == [2, 1, 5]
    assert not {each.seed for each in training.get_batch(0)} & {each.seed for each in test.get_batch(0)}
    assert asyncio.run(training.get_batch(0)[0].make_envs())[0].episode is None


@pytest.mark.slow
def test_the_example_learns():
    returns = asyncio.run(example().learn(steps=8))
    assert sum(returns[-2:]) / 2 > returns[0] + 0.15
