"""OpenRLHF's own rollout actor, samples, advantages and loss over a small model in place of vLLM."""

import asyncio
import json
import math
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("openrlhf")
pytestmark = pytest.mark.framework

import torch
from engines import RENDERER, TinyEngine

from gem.adapters.openrlhf import GemExecutor, write_dataset
from gem.adapters.prompts import task_text
from gem.errors import BadArgument, NoVerdict
from gem.estimators import grpo
from gem.specs import TaskRef


def absent(name, **names):
    """Put an empty module where a package of GPUs would be, with the names that an import asks for."""
    module = ModuleType(name)
    module.__spec__, module.__path__ = ModuleSpec(name, None), []
    module.__dict__.update(names)
    sys.modules[name] = module


absent("vllm", SamplingParams=object)
absent("vllm.inputs", TokensPrompt=dict)
absent("vllm.utils", random_uuid=str)
absent("deepspeed")
absent("flash_attn")
absent("flash_attn.bert_padding", index_first_axis=None, pad_input=None, rearrange=None, unpad_input=None)
absent("flash_attn.utils")
absent("flash_attn.utils.distributed", all_gather=None)
absent("openrlhf.trainer.ray.launcher", RayActorGroup=None)  # starts DeepSpeed

from openrlhf.datasets.prompts_dataset import PromptDataset
from openrlhf.models.loss import PolicyLoss
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor, _load_agent_executor

SAMPLES, MAX_LEN = 4, 200
AGENT = """
from gem.adapters.openrlhf import GemExecutor
from gem.history import HistoryPolicy
from gem.record import Limits

class AgentExecutor(GemExecutor):
    {settings}
"""


class VLLM:
    """The part of vLLM's engine that OpenRLHF's actor uses; the small model samples."""

    def __init__(self, finish=None):
        self.engine, self.finish, self.stops = TinyEngine(), finish, None

    async def generate(self, prompt, params, request_id):
        self.stops = params.stop_token_ids
        ids, logprobs = await self.engine.sample_soon(
            prompt["prompt_token_ids"], min(8, params.max_tokens), params.temperature, RENDERER.stop_ids
        )
        told = [
            {token: SimpleNamespace(logprob=logprob)} for token, logprob in zip(ids, logprobs, strict=True)
        ]
        said = SimpleNamespace(token_ids=ids, logprobs=told, finish_reason=self.finish or "stop")
        yield SimpleNamespace(outputs=[said])


def params(**settings):
    plain = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "max_tokens": None,
        "logprobs": 1,
        "stop_token_ids": None,
    }
    return SimpleNamespace(**plain | settings)


@pytest.fixture
def actor(tmp_path):
    """OpenRLHF's actor, without Ray around it, with an agent file that it loads itself."""

    def make(settings="pass", finish=None):
        path = tmp_path / "agent.py"
        path.write_text(AGENT.format(settings=settings))
        actor = object.__new__(RolloutRayActor.__ray_metadata__.modified_class)
        actor.executor, actor.llm, actor._mm_pad_token_ids = (
            _load_agent_executor(str(path)),
            VLLM(finish),
            None,
        )
        return actor

    return make


def letters(seed, breaks=()):
    return TaskRef("engines:Letters", {"breaks": list(breaks)}, seed=seed)


def responses(actor, task, max_length=MAX_LEN, **settings):
    return asyncio.run(
        actor.generate_responses(
            "a prompt", task_text(task), params(**settings), max_length, RENDERER.tokenizer, SAMPLES
        )
    )


def experiences(told):
    return [SamplesGenerator._process_response_into_experience(None, each, max_len=MAX_LEN) for each in told]


def test_what_was_sampled_is_what_is_trained_on(actor):
    actor = actor()
    told = responses(actor, letters(1))
    engine = actor.llm.engine
    assert actor.llm.stops == [RENDERER.tokenizer.eos_token_id]  # where the chat template ends a turn
    asked = {tuple(prompt) for prompt in engine.asked}
    for each, experience in zip(told, experiences(told), strict=True):
        ids = each["observation_tokens"]
        assert {tuple(ids[:start]) for start, _ in each["action_ranges"]} <= asked
        assert len(each["action_ranges"]) == each["extra_logs"]["turns"]
        known = torch.tensor(engine.logprobs(ids))
        mask = experience.action_mask[0].bool()
        assert mask.sum() == sum(end - start for start, end in each["action_ranges"])
        assert (known - experience.rollout_log_probs[0])[mask].abs().max() < 1e-5
        assert experience.sequences[0].tolist() == ids
    assert len({each["reward"] for each in told}) > 1
    assert responses(actor, letters(1), logprobs=None)[0]["rollout_log_probs"] is None


@pytest.mark.parametrize("estimator", ["dr_grpo", "group_norm"])
def test_its_advantages_and_loss(actor, estimator):
    actor = actor()
    told = [each for seed in (0, 1) for each in responses(actor, letters(seed))]
    made = experiences(told)
    for number, experience in enumerate(made):
        experience.index, experience.kl = (
            [number],
            torch.zeros_like(experience.action_mask, dtype=torch.float32),
        )
    args = SimpleNamespace(
        rollout=SimpleNamespace(n_samples_per_prompt=SAMPLES),
        reward=SimpleNamespace(clip_range=None, overlong_buffer_len=None, stop_properly_penalty_coef=None),
        algo=SimpleNamespace(advantage=SimpleNamespace(estimator=estimator, gamma=1.0, no_std_norm=False)),
    )
    maker = object.__new__(RemoteExperienceMaker)
    maker.strategy, maker.advantage_estimator = SimpleNamespace(args=args), estimator
    maker.kl_ctl = SimpleNamespace(value=0.0)
    maker.compute_advantages_and_returns(made)
    scale = math.sqrt((SAMPLES - 1) / SAMPLES) if estimator == "group_norm" else 1.0  # of a sample of samples
    groups = [number // SAMPLES for number in range(len(told))]
    wanted = grpo([each["reward"] for each in told], groups, scale=estimator == "group_norm")
    for experience, advantage in zip(made, wanted, strict=True):
        found = experience.advantages[experience.action_mask.bool()]
        assert found.tolist() == pytest.approx([advantage * scale] * len(found), abs=1e-5)
        loss = PolicyLoss()(
            experience.rollout_log_probs,
            experience.rollout_log_probs,
            experience.advantages,
            experience.action_mask,
        )[0]
        assert loss.item() == pytest.approx(-advantage * scale, abs=1e-5)


@pytest.mark.parametrize(("broken", "finish"), [((1,), None), ((), "abort")])
def test_no_verdict_is_an_error_or_drops_the_prompt(actor, broken, finish):
    with pytest.raises(NoVerdict, match="dynamic_filtering_enable"):
        responses(actor(finish=finish), letters(1, broken))
    told = responses(actor("filtered = True", finish), letters(1, broken))
    made = experiences(told)
    assert all(math.isnan(each.rewards.item()) and not each.action_mask.any() for each in made)
    score = sum(each.scores[0].item() for each in made) / len(made)  # as its filter computes it
    assert not 0 < score < 1


def test_a_rewritten_past_gives_one_of_its_rows(actor):
    actor = actor("history = HistoryPolicy(window=1)")
    told = responses(actor, letters(1))
    assert {len(each["action_ranges"]) for each in told} == {1}
    assert all(each["extra_logs"]["turns"] > 1 for each in told)


def test_limits(actor):
    one = responses(actor("limits = Limits(turns=1)"), letters(1), max_tokens=3)
    assert {each["extra_logs"]["turns"] for each in one} == {1}
    assert all(end - start <= 3 for each in one for start, end in each["action_ranges"])
    whole = responses(actor(), letters(1))[0]["observation_tokens"]
    short = responses(actor(), letters(1), max_length=len(whole) - 10)
    assert all(len(each["observation_tokens"]) <= len(whole) - 10 for each in short)


def test_rows_of_the_data_set(tmp_path, actor):
    path = tmp_path / "train.jsonl"
    assert write_dataset(path, "engines:Letters", range(3)) == 3
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    data = SimpleNamespace(
        input_key="input", label_key="label", apply_chat_template=False, image_key="images"
    )
    strategy = SimpleNamespace(args=SimpleNamespace(data=data), is_rank_0=lambda: False)
    _, prompt, label, images = PromptDataset(lines, RENDERER.tokenizer, strategy)[2]
    assert (prompt, images) == ("engines:Letters, seed 2", None)
    told = asyncio.run(actor().generate_responses(prompt, label, params(), MAX_LEN, RENDERER.tokenizer, 1))
    assert told[0]["prompt"] == prompt
    with pytest.raises(BadArgument, match="not a task of an episode"):
        asyncio.run(GemExecutor().execute("p", "a label", params(), MAX_LEN, RENDERER.tokenizer, None))
