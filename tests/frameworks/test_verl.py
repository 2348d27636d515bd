"""verl's own workers and trainer over a small model in place of its servers: rows, groups, ReBN, the loss."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("verl")
pytestmark = pytest.mark.framework

import numpy as np
import ray
import torch
import transfer_queue as tq
import verl
from engines import RENDERER, TinyEngine
from learned_rows import Learned, assert_same, make_plain_model, of_gem
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, get_adv_estimator_fn
from verl.trainer.ppo.utils import create_rl_dataset
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.torch_functional import logprobs_from_logits
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from gem.adapters import verl as adapter
from gem.adapters.prompts import task_text
from gem.errors import BadArgument, NoVerdict
from gem.estimators import discounted_returns, rebn
from gem.specs import TaskRef
from gem.tokens.chat_template import ChatTemplateRenderer

TURN_TOKENS = 8
TEMPERATURE = 0.7


class Client(LLMServerClient):
    """verl's client; its server is the small model in this process."""

    def __init__(self, config, engine, stop_reason="completed"):
        super().__init__(config)
        self.engine, self.stop_reason, self.routes = engine, stop_reason, False
        self.server = SimpleNamespace(generate=SimpleNamespace(remote=self.answer))

    async def _acquire_server(self, request_id, **extra):
        return "0", self.server

    def _release_server(self, server_id, request_id=None):
        pass

    async def answer(self, *, request_id, prompt_ids, sampling_params, image_data, video_data):
        ids, logprobs = await self.engine.sample_soon(
            prompt_ids,
            min(TURN_TOKENS, sampling_params["max_tokens"]),
            sampling_params["temperature"],
            sampling_params["stop_token_ids"],
        )
        return TokenOutput(
            token_ids=ids,
            log_probs=logprobs if sampling_params["logprobs"] else None,
            stop_reason=self.stop_reason,
            routed_experts=self.experts(len(prompt_ids) + len(ids)) if self.routes else None,
            extra_fields={"global_steps": 7},
        )

    def experts(self, count):
        """For each token the model was shown or sampled, two layers of one expert each; here its place."""
        return np.arange(count)[:, None, None].repeat(2, axis=1)


@pytest.fixture
def engine():
    return TinyEngine()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    TinyEngine().save(folder)
    return folder


@pytest.fixture
def config(checkpoint, tmp_path):
    """verl's own configuration; two more agent loops come from a file."""
    loops = tmp_path / "loops.yaml"
    loops.write_text(
        "- {name: turns, _target_: gem.adapters.verl.GemAgentLoop, rewards: turn}\n"
        "- {name: window, _target_: gem.adapters.verl.GemAgentLoop, rewards: turn, history: {window: 1}}\n"
        "- {name: short, _target_: gem.adapters.verl.GemAgentLoop, limits: {turns: 1, turn_tokens: 3}, "
        "host: thread}\n"
        "- {name: wrong, _target_: gem.adapters.verl.GemAgentLoop, limits: {turnips: 1}}\n"
    )
    config = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml")
    with open_dict(config):
        config.actor_rollout_ref.model.path = str(checkpoint)
        rollout = config.actor_rollout_ref.rollout
        rollout.name, rollout.calculate_log_probs, rollout.temperature = "vllm", True, TEMPERATURE
        rollout.prompt_length, rollout.response_length, rollout.n = 96, 160, 4
        rollout.agent.agent_loop_config_path = str(loops)
        config.algorithm.gamma = 0.9
    return config


def letters(seed, breaks=()):
    return TaskRef("engines:Letters", {"breaks": list(breaks)}, seed=seed)


# -- the worker of the older trainer


def generate(config, client, tasks, name="gem"):
    columns = {
        "agent_name": [name] * len(tasks),
        "raw_prompt": [[{"role": "user", "content": ""}]] * len(tasks),
        "task": [task_text(task) for task in tasks],
        "uid": [str(task.seed) for task in tasks],
    }
    arrays = {key: np.empty(len(tasks), dtype=object) for key in columns}
    for key, values in columns.items():
        arrays[key][:] = values
    batch = DataProto.from_dict(tensors={"dummy": torch.zeros(len(tasks), 1)}, non_tensors=arrays)
    return asyncio.run(AgentLoopWorker(config, client).generate_sequences(batch))


def test_a_batch_of_the_worker_holds_what_was_sampled(config, engine):
    out = generate(config, Client(config, engine), [letters(seed) for seed in (0, 1, 2) for _ in range(2)])
    batch, columns = out.batch, out.non_tensor_batch
    mask = batch["response_mask"]
    asked = {tuple(prompt) for prompt in engine.asked}
    for row in range(len(out)):
        prompt = batch["prompts"][row][batch["attention_mask"][row, :96].bool()].tolist()
        response = batch["responses"][row].tolist()
        starts = [at for at in range(160) if mask[row, at] and not (at and mask[row, at - 1])]
        assert {tuple(prompt + response[:at]) for at in starts} <= asked  # no token was made again
        assert len(starts) == columns["turns"][row] == len(columns["turn_scores"][row])
        last = int(batch["attention_mask"][row, 96:].sum()) - 1
        assert mask[row, last] == 1
        assert batch["rm_scores"][row, last] == pytest.approx(sum(columns["turn_scores"][row]))
        assert batch["rm_scores"][row].count_nonzero() <= 1
    assert set(columns["min_global_steps"]) == set(columns["max_global_steps"]) == {7}
    assert len(set(columns["episode"])) == len(out)

    logits = engine.model(
        batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"]
    ).logits
    known = logprobs_from_logits(logits[:, 95:-1] / TEMPERATURE, batch["responses"])
    assert ((known - batch["rollout_log_probs"]) * mask).abs().max() < 1e-5


def test_routed_experts_stand_at_their_tokens(config, engine):
    client = Client(config, engine)
    client.routes = True
    out = generate(config, client, [letters(0), letters(1)])
    attended = out.batch["attention_mask"].bool()
    for row in range(2):
        experts = out.batch["routed_experts"][row][attended[row]]
        assert experts.shape[1:] == (2, 1)
        assert experts[:, 0, 0].tolist() == list(range(len(experts)))


def test_settings_come_from_the_file(config, engine):
    out = generate(config, Client(config, engine), [letters(0), letters(1)], "short")
    assert out.non_tensor_batch["turns"].tolist() == [1, 1]
    assert out.non_tensor_batch["stop"].tolist() == ["turn_limit", "turn_limit"]
    assert out.batch["response_mask"].sum(1).tolist() == [3, 3]
    with pytest.raises(Exception, match="turnips"):
        generate(config, Client(config, engine), [letters(0)], "wrong")


@pytest.mark.parametrize(
    ("name", "task", "stop_reason", "error", "told"),
    [
        ("gem", letters(1, breaks=(1,)), "completed", NoVerdict, "the tool server is gone.*use_v1=true"),
        ("gem", letters(1), "aborted", NoVerdict, "aborted the request"),
        ("turns", letters(1), "completed", BadArgument, "use_v1=true"),
    ],
)
def test_the_older_trainer_takes_no_episode_without_verdict(
    config, engine, name, task, stop_reason, error, told
):
    with pytest.raises(error, match=told):
        generate(config, Client(config, engine, stop_reason), [task], name)


# -- the V1 trainer


@pytest.fixture(scope="module")
def cluster():
    """verl's transfer queue, on a Ray of its own."""
    folder = tempfile.mkdtemp(prefix="gem-ray-")  # pytest's own are too long for the names of sockets
    quiet = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    ray.init("local", num_cpus=4, _temp_dir=folder, **quiet)
    tq.init()
    yield
    tq.close()
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def queue(cluster):
    """The same, empty."""
    for partition, held in (tq.kv_list() or {}).items():
        tq.kv_clear(keys=list(held), partition_id=partition)


def sampled(config, client, dataset, uids):
    """Play a data set as the V1 trainer does, up to the batch that its replay buffer gives."""
    rows = [dataset[index] for index in range(len(dataset))]
    columns = collate_fn(rows)
    columns["uid"] = np.array(uids, dtype=object)
    batch = tu.get_tensordict(columns)
    tu.assign_non_tensor_data(batch, "global_steps", 3)
    tags = [{"is_prompt": True, "status": "pending", "global_steps": 3}] * len(uids)
    tq.kv_batch_put(keys=uids, partition_id="train", tags=tags)

    async def play():
        worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(config, client)
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(play())
    sampler = config.trainer.v1.sampler
    buffer = ReplayBuffer(
        "sync", config.trainer.v1.sync, sampler.max_off_policy_threshold, sampler.max_off_policy_strategy, {}
    )
    return buffer.sample(global_steps=3, partition_id="train", batch_size=len(uids))[0]


def read(batch, *names):
    data = tq.kv_batch_get(keys=batch.keys, partition_id="train", select_fields=list(names))
    return [list(data[name]) for name in names]


def recompute(engine, batch, temperature):
    """Write what the actor says of the sampled tokens; return how far that is from what the sampler said."""
    prompts, responses, mask, sampled = read(
        batch, "prompts", "responses", "response_mask", "rollout_log_probs"
    )
    known = []
    for prompt, response in zip(prompts, responses, strict=True):
        with torch.inference_mode():
            logits = engine.model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        known.append(logprobs_from_logits(logits / temperature, response))
    fields = TensorDict({"old_log_probs": torch.nested.as_nested_tensor(known, layout=torch.jagged)})
    fields.batch_size = [len(known)]
    tq.kv_batch_put(keys=batch.keys, partition_id="train", fields=fields)
    gaps = [((a - b) * m).abs().max() for a, b, m in zip(known, sampled, mask, strict=True)]
    return max(gaps).item()


def advantages(config, engine, batch, estimator):
    """Have the V1 trainer compute advantages."""
    assert recompute(engine, batch, config.actor_rollout_ref.rollout.temperature) < 1e-5
    with open_dict(config):
        config.algorithm.adv_estimator = estimator
    PPOTrainer._compute_advantage(SimpleNamespace(config=config), batch, {})
    (found,) = read(batch, "advantages")
    return [each.tolist() for each in found]


def play_v1(config, engine, tmp_path, name, seeds, breaks=(), stop_reason="completed"):
    path = tmp_path / "train.parquet"
    task = TaskRef("engines:Letters", {"breaks": list(breaks)})
    assert adapter.write_dataset(path, task, seeds, name) == len(seeds)
    dataset = create_rl_dataset(str(path), config.data, RENDERER.tokenizer, None)
    uids = [f"{name}-{seed}-{stop_reason}" for seed in seeds]
    return sampled(config, Client(config, engine, stop_reason), dataset, uids)


def ends(mask):
    """Return where turns end."""
    return [at for at in range(len(mask)) if mask[at] and not mask[at + 1 : at + 2].sum()]


def test_v1_rows_and_rebn(config, engine, tmp_path, queue, caplog):
    batch = play_v1(config, engine, tmp_path, "turns", (0, 1, 2), breaks=(1,))
    mask, rewards, extra = read(batch, "response_mask", "rm_scores", "extra_fields")
    assert len(batch.keys) == 8  # 4 of each seed, and none of the one that breaks
    assert not any("turns-1" in key for key in batch.keys)
    assert (
        caplog.text.count("seed 1: env: NoVerdict: the tool server is gone.; the episode is left out.") == 4
    )
    for row, fields in enumerate(extra):
        assert rewards[row][ends(mask[row])].tolist() == pytest.approx(fields["turn_scores"])
        assert rewards[row].sum().item() == pytest.approx(sum(fields["turn_scores"]))

    found = advantages(config, engine, batch, "gem_rebn")
    wanted = rebn([discounted_returns(fields["turn_scores"], 0.9) for fields in extra])
    for row, turns in enumerate(wanted):
        assert [found[row][at] for at in ends(mask[row])] == pytest.approx(turns, abs=1e-5)
        assert not torch.tensor(found[row])[~mask[row].bool()].any()


def test_v1_grpo_knows_nothing_of_an_episode_without_verdict(config, engine, tmp_path, queue):
    config.actor_rollout_ref.rollout.n = 3
    batch = play_v1(config, engine, tmp_path, "gem", (4, 5), breaks=(5,))
    rewards, extra, mask = read(batch, "rm_scores", "extra_fields", "response_mask")
    scores = torch.tensor([sum(fields["turn_scores"]) for fields in extra])
    assert [each.sum().item() for each in rewards] == pytest.approx(scores.tolist())
    found = advantages(config, engine, batch, "grpo")
    wanted = (scores - scores.mean()) / (scores.std() + 1e-6)
    for row, advantage in enumerate(wanted.tolist()):
        assert torch.tensor(found[row])[mask[row].bool()].tolist() == pytest.approx(
            [advantage] * int(mask[row].sum()), abs=1e-5
        )


def test_v1_takes_every_row_of_a_rewritten_past(config, engine, tmp_path, queue):
    config.actor_rollout_ref.rollout.n = 2
    batch = play_v1(config, engine, tmp_path, "window", (0, 2))
    extra, mask = read(batch, "extra_fields", "response_mask")
    by_episode = {}
    for row, fields in enumerate(extra):
        by_episode.setdefault(fields["episode"], []).append((row, *fields["turn_scores"]))
    assert len(by_episode) == 4
    assert len(extra) > 4
    returns, rows = [], []
    for turns in by_episode.values():  # a window of one observation: each turn is a row
        assert all(len(turn) == 2 for turn in turns)
        returns.append(discounted_returns([score for _, score in turns], 0.9))
        rows.append([row for row, _ in turns])
    found = advantages(config, engine, batch, "gem_rebn")
    for numbers, wanted in zip(rows, rebn(returns), strict=True):
        for row, advantage in zip(numbers, wanted, strict=True):
            assert torch.tensor(found[row])[mask[row].bool()].tolist() == pytest.approx(
                [advantage] * int(mask[row].sum()), abs=1e-5
            )


def test_v1_says_so_when_nothing_at_all_is_left(config, engine, tmp_path, queue):
    with pytest.raises(RuntimeError, match="no materializable trajectories"):
        play_v1(config, engine, tmp_path, "gem", (0,), stop_reason="aborted")


def test_v1_learns_what_gem_learns(config, tmp_path, queue, monkeypatch):
    """The same episodes in gem's learner: rows, masks, log probabilities, advantages, gradient."""
    model = make_plain_model()
    episodes = []
    rows_of = adapter.outputs
    monkeypatch.setattr(adapter, "outputs", lambda each, **how: episodes.append(each) or rows_of(each, **how))
    with open_dict(config):
        config.actor_rollout_ref.rollout.temperature = 1.0
        config.algorithm.norm_adv_by_std_in_grpo = False
        config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 4
    engine = TinyEngine(model)
    batch = play_v1(config, engine, tmp_path, "gem", (0, 1, 2, 3), breaks=(1,))
    advantage = advantages(config, engine, batch, "grpo")
    names = ("prompts", "responses", "response_mask", "extra_fields", "old_log_probs")
    rows = list(zip(*read(batch, *names), advantage, strict=True))
    found = {}
    for prompt, response, mask, extra, logprobs, advantage_T in rows:
        learned = mask.bool()
        (value,) = set(torch.tensor(advantage_T)[learned].tolist())
        whole = [0] * len(prompt) + mask.tolist()
        ids = torch.cat([prompt, response]).tolist()
        found[extra["episode"]] = Learned(ids, whole, logprobs[learned].tolist(), value)
    scored = [episode for episode in episodes if episode.scored]
    assert (len(episodes), len(scored)) == (16, 12)
    wanted, own_gradient = of_gem(model, ChatTemplateRenderer(RENDERER.tokenizer), episodes)
    assert_same(found, wanted)
    assert len({row.advantage for row in wanted.values()}) > 4

    pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
    logprobs = []
    for prompt, response, *_ in rows:
        logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        logprobs.append(logprobs_from_logits(logits, response))
    loss, _ = compute_policy_loss_vanilla(
        pad([row[4] for row in rows]),
        pad(logprobs),
        pad([torch.tensor(row[5]) for row in rows]),
        pad([row[2] for row in rows]),
        "token-mean",
        omega_conf_to_dataclass(config.actor_rollout_ref.actor),
    )
    model.zero_grad()
    loss.backward()
    assert max(float(each.abs().max()) for each in own_gradient.values()) > 1e-3
    for name, each in model.named_parameters():
        assert float((each.grad - own_gradient[name]).abs().max()) < 1e-5, name


# -- the estimator and the loss


def test_one_variable_registers_the_loop_and_the_estimator():
    program = (
        "import verl; from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as advantages; "
        "from verl.experimental.agent_loop.agent_loop import _agent_loop_registry as loops; "
        "assert 'gem_rebn' in advantages and 'gem' in loops"
    )
    variables = os.environ | {"VERL_USE_EXTERNAL_MODULES": "gem.adapters.verl"}
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], env=variables, check=True)


def test_the_estimator_leaves_out_rows_without_a_mask():
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]])
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [9.0, 9.0, 9.0, 9.0], [0.0, 4.0, 0.0, 0.0]])
    config = SimpleNamespace(gamma=0.5)
    made, returns = get_adv_estimator_fn("gem_rebn")(
        token_level_rewards=rewards, response_mask=mask, config=config, index=np.array(["a", "a", "a"])
    )
    assert returns.tolist() == [[2.0, 2.0, 0.0, 2.0], [0.0] * 4, [0.0, 4.0, 0.0, 0.0]]
    (one, two), (), (three,) = rebn([[2.0, 2.0], [], [4.0]])
    wanted = torch.tensor([[one, one, 0.0, two], [0.0] * 4, [0.0, three, 0.0, 0.0]])
    torch.testing.assert_close(made, wanted)
    assert made.dtype == rewards.dtype


def test_verls_loss_steps_up_what_was_good(config, engine):
    out = generate(config, Client(config, engine), [letters(seed) for seed in (0, 1, 2, 3)])
    batch, mask = out.batch, out.batch["response_mask"]
    made, _ = get_adv_estimator_fn("gem_rebn")(
        token_level_rewards=batch["rm_scores"], response_mask=mask, config=SimpleNamespace(gamma=1.0)
    )
    assert made.count_nonzero()

    with open_dict(config):
        config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 4
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)

    def surrogate():
        logits = engine.model(
            batch["input_ids"], attention_mask=batch["attention_mask"], position_ids=batch["position_ids"]
        ).logits
        logprobs = logprobs_from_logits(logits[:, 95:-1] / TEMPERATURE, batch["responses"])
        loss, told = compute_policy_loss_vanilla(
            batch["rollout_log_probs"], logprobs, made, mask, "token-mean", actor
        )
        assert told["actor/ppo_kl"] == pytest.approx(0.0, abs=1e-2)
        return loss, ((logprobs * made * mask).sum() / mask.sum()).item()

    optimiser = torch.optim.SGD(engine.model.parameters(), lr=1e-3)
    loss, before = surrogate()
    assert loss.item() == pytest.approx(-(made * mask).sum().item() / mask.sum().item(), abs=1e-5)
    loss.backward()
    optimiser.step()
    assert surrogate()[1] > before
