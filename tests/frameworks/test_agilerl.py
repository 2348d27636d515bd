"""AgileRL's own rollout harness and training on what `gem.make` makes, in both ways in which it names it."""

import asyncio
import runpy
from pathlib import Path

import pytest

agilerl = pytest.importorskip("agilerl")
pytestmark = pytest.mark.framework

# It looks for liger-kernel and bitsandbytes, which need a GPU, before it imports OpenEnv.
agilerl.HAS_LLM_DEPENDENCIES = True

import torch
from agilerl.llm_envs import RolloutHarness
from engines import RENDERER, TinyEngine
from learned_rows import make_plain_model

import gem
from gem import Env, Start, Step
from gem.adapters.engine import EngineAgent
from gem.errors import NoVerdict
from gem.record import Limits, Reply
from gem.rollout import Job, rollout_async
from gem.tokens.chat_template import ChatTemplateRenderer
from gem.tokens.rows import rows

EASY, LETTERS = "game:GuessTheNumber-v0-easy", "engines:Letters-v0"
gem.register(LETTERS, "engines:Letters")
TURNS = 3


def harness(form, env, config, **settings):
    if form == "entrypoint":
        return RolloutHarness.from_spec(
            "gem:make", {"env_id": env, **config}, RENDERER.tokenizer, TURNS, **settings
        )
    return RolloutHarness.from_spec(env, config, RENDERER.tokenizer, TURNS, factory="gem:make", **settings)


def play(env, engine, seed):
    """Play an episode as AgileRL's collector does; return what it trains on, and the answers."""
    prompt, _ = env.reset(seed=seed)
    answers = []
    while not env.done:
        ids = prompt["input_ids"]
        answer, logprobs = engine.sample(ids[0].tolist(), 8, stop_ids=RENDERER.stop_ids)
        answers.append((tuple(answer), logprobs))
        whole = torch.cat([ids, torch.tensor([answer])], dim=1)
        prompt, *_ = env.step(whole, torch.tensor(logprobs))
    return env.get_episode_data(), answers


class Replay(EngineAgent):
    """Gives the answers that were sampled before."""

    def __init__(self, answers):
        super().__init__(ChatTemplateRenderer(RENDERER.tokenizer))
        self.answers = iter(answers)

    async def sample(self, ask, prompt_ids, max_tokens):
        ids, logprobs = next(self.answers)
        return Reply("", token_ids=ids, logprobs=logprobs)


@pytest.mark.parametrize("form", ["entrypoint", "factory"])
@pytest.mark.parametrize("env", [EASY, LETTERS])
def test_the_harness_trains_on_what_gem_would(form, env):
    ids_, mask, turn_ids, turn_rewards, logprobs, pixels, segments = range(7)
    data, answers = play(harness(form, env, {}), TinyEngine(), seed=1)
    limits = Limits(turns=TURNS)
    (episode,) = asyncio.run(rollout_async([Job(env, 1)], Replay(answers), limits=limits))
    (row,) = rows(episode)
    assert data[ids_][0].tolist() == list(row.ids)
    assert data[mask][0].int().tolist() == list(row.mask)[1:]
    assert data[turn_ids][0].tolist() == list(row.turn)[1:]
    assert data[logprobs].tolist() == pytest.approx(
        [p for p, m in zip(row.logprobs, row.mask, strict=True) if m]
    )
    rewards = data[turn_rewards].tolist()[: len(episode.turns)]
    assert rewards == pytest.approx([turn.reward for turn in episode.turns])
    assert data[pixels] is None
    assert data[segments] is None


@pytest.mark.parametrize("form", ["entrypoint", "factory"])
def test_a_system_prompt_is_set_on_the_environment(form):
    env = harness(form, EASY, {"system_prompt": "the secret is higher"})
    prompt, info = env.reset(seed=1)
    text = RENDERER.tokenizer.decode(prompt["input_ids"][0])
    assert text.startswith("<|im_start|>system\nthe secret is higher<|im_end|>")
    assert info["system_prompt"] == "the secret is higher"


@pytest.mark.parametrize("form", ["entrypoint", "factory"])
def test_keywords_reach_the_environment(form):
    prompt, _ = harness(form, EASY, {"max_number": 9}).reset(seed=1)
    assert "between 1 an 9" in RENDERER.tokenizer.decode(prompt["input_ids"][0])  # it knows few letters


def test_no_verdict_is_an_error():
    env = harness("factory", LETTERS, {"breaks": [1]})
    with pytest.raises(NoVerdict, match="the tool server is gone"):
        play(env, TinyEngine(), seed=1)


class Vowels(Env):
    """Pays for the vowels of two answers."""

    earned: list[float] = []  # noqa: RUF012

    def reset(self, seed=None):
        super().reset(seed)
        self.left = 2
        return Start("the secret number", {})

    def step(self, action):
        self.left -= 1
        reward = sum(letter in "aeiou" for letter in action) / 8
        self.earned.append(reward)
        return Step("higher or lower", reward, self.left == 0, False, {})


def test_training_raises_the_return():
    gem.register("engines:Vowels-v0", Vowels)
    torch.manual_seed(0)
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples/researcher/agilerl_grpo.py"))
    example["train"](
        make_plain_model(),
        RENDERER.tokenizer,
        "engines:Vowels-v0",
        steps=8,
        turns=2,
        groups=4,
        answer_tokens=8,
        context=200,
        lr=5e-3,
        beta=0.0,
        max_grad_norm=1.0,
        device="cpu",
        use_liger_loss=False,
        gradient_checkpointing=False,
    )
    earned, quarter = Vowels.earned, len(Vowels.earned) // 4
    assert quarter == 2 * 4 * 8 * 2
    first, last = sum(earned[:quarter]) / quarter, sum(earned[-quarter:]) / quarter
    assert last > 1.25 * first
