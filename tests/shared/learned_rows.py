"""What a trainer learns on, in one form for every framework: gem's; a framework's test brings its own.

A framework is a function that returns the `Learned` of each episode, by its id; `assert_same` compares two.
"""

from typing import NamedTuple

import torch
from random_models import BODY
from transformers import Qwen3Config, Qwen3ForCausalLM

from gem.agents.hugging_face import HuggingFaceAgent
from gem.estimators import turn_advantages
from gem.train.config import TrainConfig
from gem.train.learn.batch import Target, Weighted, collate, weigh
from gem.train.learn.learner import Learner
from gem.train.learn.policy import CausalPolicy
from gem.train.learn.steps import Progress, make_objective


class Learned(NamedTuple):
    """One row: the tokens, 1 where one is learned on; of those, log probabilities and the row's advantage."""

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    advantage: float


def make_plain_model():
    """A small Qwen3 without dropout, of random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**BODY))
        torch.nn.init.normal_(model.get_output_embeddings().weight, std=0.1)
    return model.float().eval()


def of_gem(model, renderer, episodes, kind="dr_grpo"):
    """Gem's own rows, and the gradient of its loss by the name of the parameter."""
    learner = Learner(CausalPolicy(model, renderer, HuggingFaceAgent(model, renderer)))
    advantages = turn_advantages(episodes, kind, 1.0)
    weighted = []
    for row in weigh(episodes, "agent"):
        targets = {turn: Target(value) for turn, value in enumerate(advantages[row.source])}
        weighted.append(Weighted(row.row, targets, row.source))
    batch = collate(weighted, learner.policy.pad, learner.policy.capacity)
    outputs = learner.forward(batch)
    learned = {}
    for number, item in enumerate(weighted):
        learned[episodes[item.source].id] = Learned(
            list(item.row.ids),
            list(item.row.mask),
            outputs.logprob[batch.row == number].tolist(),
            advantages[item.source][0],
        )
    config = TrainConfig.fit(algorithm=kind, normalise="token", kl=0.0)
    loss, _ = make_objective(config, Progress(0, 1), config.value_clip)(batch, outputs)
    model.zero_grad()
    (loss / sum(sum(item.row.mask) for item in weighted)).backward()
    return learned, {name: each.grad.clone() for name, each in model.named_parameters()}


def assert_same(found, wanted, tolerance=1e-5):
    """Compare two frameworks: tokens and masks exactly, log probabilities and advantages to `tolerance`."""
    assert found.keys() == wanted.keys()
    for name, mine in wanted.items():
        theirs = found[name]
        assert theirs.ids == mine.ids
        assert theirs.mask == mine.mask
        assert max(abs(a - b) for a, b in zip(theirs.logprobs, mine.logprobs, strict=True)) < tolerance
        assert abs(theirs.advantage - mine.advantage) < tolerance
