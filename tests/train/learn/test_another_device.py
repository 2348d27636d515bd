"""The model on another device than the CPU, without one: torch's meta device has shapes and no values.

Two tensors of one operation on different devices are an error there, as on a GPU, and so is reading a value.
What is copied to the CPU on purpose becomes ones.
"""

import copy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from random_models import RENDERER, make_model

from gem.agents.hugging_face import HuggingFaceAgent
from gem.agents.kv_cache import CachedForward
from gem.content import Message
from gem.record import Ask
from gem.tokens.rows import Row
from gem.train.learn import output_head
from gem.train.learn.batch import REFERENCE_STATES, Target, Weighted, make_batches
from gem.train.learn.learner import Critic, Learner, Settings
from gem.train.learn.policy import CausalPolicy, twin

META = torch.device("meta")


class Copy(torch.autograd.Function):
    """A copy of a tensor without values to the CPU."""

    @staticmethod
    def forward(ctx, tensor):
        return torch.ones(tensor.shape, dtype=tensor.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.to(META)


@pytest.fixture(autouse=True)
def reads(monkeypatch):
    """Lets values be read in conditions, as true; returns the files that do."""
    made = []

    def read(tensor):
        assert tensor.is_meta
        made.append(Path(sys._getframe(2).f_code.co_filename).name)
        return True

    value = torch.Tensor.__bool__
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda each: read(each) if each.is_meta else value(each))
    return made


@pytest.fixture
def copies(monkeypatch):
    """Lets tensors be copied to the CPU; returns the shapes of those that were."""
    made, to = [], torch.Tensor.to

    def copy_out(tensor, *where, **how):
        if tensor.is_meta and where and str(where[0]) == "cpu":
            made.append(tuple(tensor.shape))
            return Copy.apply(tensor)
        return to(tensor, *where, **how)

    monkeypatch.setattr(torch.Tensor, "to", copy_out)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: copy_out(tensor, "cpu"))
    return made


def make_rows():
    rows = []
    for n, size in enumerate((9, 12, 12, 7)):
        ids = tuple((7 * at + n * (at > 5)) % 50 for at in range(size))
        mask = (0,) * 3 + (1,) * (size - 3)
        row = Row(ids, mask, (-1.0,) * size, tuple(each - 1 for each in mask))
        rows.append(Weighted(row, {0: Target(1.0 + n, 1.0)}, n))
    return rows


@pytest.mark.system
@pytest.mark.parametrize("block", [1 << 25, 1000])
@pytest.mark.parametrize("flat", [False, True])
def test_a_step_of_the_learner_stays_on_the_device(flat, block, copies, reads, monkeypatch):
    monkeypatch.setattr(output_head, "BLOCK", block)
    model = make_model().to(torch.bfloat16)
    policy = CausalPolicy(model, RENDERER)
    policy._flat, policy.capacity = flat, None if flat else 256
    reference = twin(policy)
    for each in (policy, reference):
        each.model.to(META)
    learner = Learner(
        policy, Settings(pass_tokens=20, logits=200), critic=Critic(policy.width), reference=reference
    )
    rows = [replace(item, stored_outputs={}) for item in make_rows()]
    learner.store_outputs(rows)
    learner.store_reference(rows, full=True)
    assert {"present", "value", REFERENCE_STATES} == set(rows[0].stored_outputs)
    places = sum(sum(item.row.mask) for item in rows)
    copies.clear()
    reads.clear()

    def objective(batch, outputs):
        loss = -(outputs.logprob * batch.advantage[batch.turn]).sum() + outputs.kl.sum() + outputs.value.sum()
        return loss, {}

    learner.step = lambda: 0.0  # clipping reads the norm, once a step
    learner.update(rows, objective, len(rows))
    assert all(each is None or each.is_meta for each in learner.gradients)
    assert sum(each is not None for each in learner.gradients) > 10
    assert max(map(len, copies)) <= 1  # values of tokens, no logits or states
    assert sum(map(sum, copies)) <= 5 * places
    passes = len(list(make_batches(rows, policy.pad, policy.capacity, 20, bare=True)))
    assert passes > 1
    assert len(reads) <= passes  # transformers looks at the positions of each pass once


@pytest.mark.system
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_read_between_two_looks_of_the_sampler(temperature, copies, reads):
    model, renderer = make_model(), copy.copy(RENDERER)
    renderer.stop_ids = {0}
    agent = HuggingFaceAgent(
        model, renderer, temperature=temperature, max_tokens=20, check_every=8, entropy=True
    )
    asks = [Ask("e", "agent", 0, (Message("user", text),), seed=n) for n, text in enumerate("aabc")]
    agent(asks)  # finds out how logits follow from states
    model.to(META)
    agent.publish(1)
    shape = replace(agent._cached.shape, device=META)
    agent._cached = CachedForward(agent._forward, shape, 1 << 30)
    agent._probed = META, model.dtype
    reads.clear()
    replies = agent(asks)
    assert reads == ["masking_utils.py"] * len(reads)  # transformers, of a prompt's mask
    assert len(reads) <= 3
    assert {reply.token_ids for reply in replies} == {(1,) * 20}
    assert [(shape[1:]) for shape in copies] == [(4, 8), (4, 8), (4, 4)]  # answers, tokens
