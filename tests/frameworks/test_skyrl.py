"""SkyRL's own data set and trainer around gem's generator, over a small model in place of vLLM."""

import asyncio
import sys
import typing
from types import SimpleNamespace

import pytest

pytest.importorskip("skyrl")
pytestmark = pytest.mark.framework
if sys.version_info < (3, 12):  # pydantic takes no other of SkyRL's types there
    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict

import torch
from engines import RENDERER, TinyEngine
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.dataset.dataset import PromptDataset
from skyrl.train.generators.base import BatchMetadata
from skyrl.train.generators.utils import prepare_generator_input
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.trainer_utils import validate_generator_output

from gem.adapters.skyrl import GemGenerator, write_dataset
from gem.errors import BadArgument, NoVerdict
from gem.history import HistoryPolicy
from gem.rollout import EpisodeStore
from gem.specs import TaskRef

SAMPLES = 4


class Client:
    """SkyRL's client of its engines; the small model answers."""

    weight_version = 3

    def __init__(self, stop_reason="stop"):
        self.engine, self.stop_reason, self.sessions, self.salts = TinyEngine(), stop_reason, [], set()

    async def generate(self, batch, model=None):
        params = batch["sampling_params"]
        made = [
            await self.engine.sample_soon(
                prompt, min(8, params["max_tokens"]), params["temperature"], params["stop_token_ids"]
            )
            for prompt in batch["prompt_token_ids"]
        ]
        self.salts.add(batch["cache_salt"])
        return {
            "responses": [RENDERER.decode(ids) for ids, _ in made],
            "response_ids": [ids for ids, _ in made],
            "stop_reasons": [self.stop_reason] * len(made),
            "response_logprobs": [logprobs for _, logprobs in made]
            if params["logprobs"] is not None
            else None,
        }

    async def finish_session(self, session):
        self.sessions.append(session)


@pytest.fixture
def config():
    config = SkyRLTrainConfig()
    config.generator.max_turns, config.generator.max_input_length = 10, 200
    config.generator.n_samples_per_prompt = SAMPLES
    config.trainer.algorithm.advantage_estimator = "grpo"
    config.trainer.algorithm.grpo_norm_by_std = False
    config.trainer.algorithm.max_seq_len = 400
    return config


def batch_of(tmp_path, seeds, breaks=()):
    """What the trainer gives its generator for a data set, and the uids it keeps."""
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
    assert write_dataset(path, TaskRef("engines:Letters", {"breaks": list(breaks)}), seeds) == len(seeds)
    data = PromptDataset(str(path), RENDERER.tokenizer, 100, num_workers=1)
    prompts = data.collate_fn([data[number] for number in range(len(data))])
    return prepare_generator_input(prompts, SAMPLES, None, "gsm8k", "train", 7)


def generate(config, client, batch, **settings):
    generator = GemGenerator(config.generator, client, RENDERER.tokenizer, **settings)
    told = asyncio.run(generator.generate(batch))
    validate_generator_output(len(batch["prompts"]), told, step_wise=config.generator.step_wise_trajectories)
    return told


def trained_on(config, told, uids):
    """What SkyRL's trainer makes of a generator's output: tensors, with advantages."""
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg, trainer.all_metrics, trainer.tokenizer = config, {}, RENDERER.tokenizer
    trainer.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 1)
    config.trainer.train_batch_size = config.trainer.policy_mini_batch_size = len(set(uids))
    if config.generator.step_wise_trajectories:
        uids = [each.instance_id for each in told["trajectory_ids"]]
    told, uids = trainer.postprocess_generator_output(told, uids)
    batch = trainer.convert_to_training_input(told, uids)
    batch["values"] = None
    return trainer.compute_advantages_and_returns(batch)


def test_tokens_rewards_and_advantages(config, tmp_path):
    client = Client()
    batch, uids = batch_of(tmp_path, (0, 1))
    with EpisodeStore(tmp_path / "store") as store:
        told = generate(config, client, batch, store=store)
        episodes = {episode.id: episode for episode in store}
    asked = {tuple(prompt) for prompt in client.engine.asked}
    for row, about in enumerate(told["env_metrics"]):
        prompt, ids, mask = (told[name][row] for name in ("prompt_token_ids", "response_ids", "loss_masks"))
        starts = [at for at in range(len(ids)) if mask[at] and not (at and mask[at - 1])]
        ends = [at for at in range(len(ids)) if mask[at] and not (at + 1 < len(ids) and mask[at + 1])]
        assert {tuple(prompt + ids[:at]) for at in starts} <= asked
        known = client.engine.logprobs(prompt + ids)[len(prompt) - 1 :]
        gaps = [abs(a - b) for a, b, m in zip(known, told["rollout_logprobs"][row], mask, strict=True) if m]
        assert max(gaps) < 1e-5
        episode = episodes[about["episode"]]
        rewards = told["rewards"][row]
        assert [rewards[at] for at in ends] == pytest.approx([turn.reward for turn in episode.turns])
        assert sum(rewards) == pytest.approx(episode.reward())
        assert (episode.policy_version, episode.salt, episode.sample) == (3, 7, row % SAMPLES)
    assert client.salts == {"@3"}
    assert len(set(client.sessions)) == len(client.sessions) == 2 * SAMPLES
    assert told["rollout_metrics"]["environment/gem/no_verdict"] == 0

    returns = torch.tensor([sum(rewards) for rewards in told["rewards"]]).reshape(2, SAMPLES)
    wanted = (returns - returns.mean(1, keepdim=True)).flatten()
    made = trained_on(config, told, uids)
    for row in range(2 * SAMPLES):
        found = made["advantages"][row][made["loss_mask"][row].bool()]
        assert found.tolist() == pytest.approx([wanted[row].item()] * len(found), abs=1e-5)


def test_an_episode_without_verdict_is_masked_and_moves_no_mean(config, tmp_path):
    batch, uids = batch_of(tmp_path, (0, 1, 2), breaks=(1,))
    batch["env_extras"][1] = batch["env_extras"][SAMPLES]  # the group of seed 0 has one as well
    told = generate(config, Client(), batch)
    blank = [not any(mask) for mask in told["loss_masks"]]
    assert blank == [row == 1 or row // SAMPLES == 1 for row in range(3 * SAMPLES)]
    returns = [sum(rewards) for rewards in told["rewards"]]
    assert returns[1] == pytest.approx((returns[0] + returns[2] + returns[3]) / 3)
    assert told["rollout_metrics"]["environment/gem/no_verdict"] == pytest.approx(5 / 12)
    made = trained_on(config, told, uids)
    mean = returns[1]
    for row in (0, 2, 3):
        found = made["advantages"][row][made["loss_mask"][row].bool()]
        assert found.tolist() == pytest.approx([returns[row] - mean] * len(found), abs=1e-5)
    with pytest.raises(NoVerdict, match="any of 12 episodes"):
        generate(config, Client("abort"), batch)


def test_step_wise_takes_every_row_and_leaves_out_what_broke(config, tmp_path):
    config.generator.step_wise_trajectories = True
    batch, uids = batch_of(tmp_path, (0, 1), breaks=(1,))
    batch["env_extras"][2] = batch["env_extras"][SAMPLES]
    told = generate(config, Client(), batch, history=HistoryPolicy(window=1))
    ids = [each.to_string() for each in told["trajectory_ids"]]
    assert set(ids) == {"0_0", "0_1", "0_3", "1_0"}  # one of the group that broke, masked
    assert [not any(mask) for mask in told["loss_masks"]] == [each == "1_0" for each in ids]
    for number, each in enumerate(ids):
        turns = told["env_metrics"][number]["turns"]
        assert each == "1_0" or ids.count(each) == turns  # a window of one: each turn is a row
    assert [sum(each) != 0 for each in told["rewards"]] == told["is_last_step"]
    last = [row for row, is_last in enumerate(told["is_last_step"]) if is_last][:3]
    returns = torch.tensor([sum(told["rewards"][row]) for row in last])
    made = trained_on(config, told, uids)
    for row, each in enumerate(ids[: ids.index("1_0")]):
        wanted = (returns - returns.mean())[("0_0", "0_1", "0_3").index(each)].item()
        found = made["advantages"][row][made["loss_mask"][row].bool()]
        assert found.tolist() == pytest.approx([wanted] * len(found), abs=1e-5)


def test_one_row_of_a_rewritten_past_carries_the_return(config, tmp_path):
    batch, _ = batch_of(tmp_path, (0,))
    told = generate(config, Client(), batch, history=HistoryPolicy(window=1))
    for rewards, mask in zip(told["rewards"], told["loss_masks"], strict=True):
        assert len({at - sum(mask[:at]) for at in range(len(mask)) if mask[at]}) == 1  # one turn
        assert [at for at, reward in enumerate(rewards) if reward] in ([], [len(rewards) - 1])


def test_settings(config, tmp_path):
    batch, _ = batch_of(tmp_path, (0,))
    config.generator.max_turns = 1
    config.generator.sampling_params.logprobs = None
    config.generator.sampling_params.max_generate_length = 3
    config.generator.apply_overlong_filtering = True
    told = generate(config, Client(), batch)
    assert {each["turns"] for each in told["env_metrics"]} == {1}
    assert told["rollout_logprobs"] is None
    assert {len(ids) for ids in told["response_ids"]} <= {1, 2, 3}
    assert told["stop_reasons"].count("length") == [any(mask) for mask in told["loss_masks"]].count(False) > 0
    batch["batch_metadata"] = BatchMetadata(0, "eval")
    batch["env_extras"] = [{"task": "nothing"}] * SAMPLES
    with pytest.raises(BadArgument, match="not a task of an episode"):
        generate(config, Client(), batch)
    config.generator.zero_reward_on_non_stop = True
    with pytest.raises(BadArgument, match="zero_reward_on_non_stop"):
        generate(config, Client(), batch)
