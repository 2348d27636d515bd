import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import episode, turn

torch = pytest.importorskip("torch")

from gem.agents.tiny import TinyConfig
from gem.errors import BadArgument
from gem.record import SEAT, StopReason
from gem.tokens.rows import Row
from gem.train.batch import Weighted, collate, common_prefix, minibatches, weigh
from gem.train.policy import TinyPolicy

POLICY = TinyPolicy(TinyConfig(width=16, layers=2, heads=2), seed=0)
PAD = POLICY.pad
generator = torch.Generator().manual_seed(0)
with torch.no_grad():  # the residual branches start silent; here attention has to matter
    for parameter in POLICY.model.parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, 0.4, generator=generator)

tokens = st.integers(0, 30)


@st.composite
def training_rows(draw, prefix):
    """A row that begins with `prefix`; one token at least is learnt on, and never the first."""
    rest = draw(st.lists(tokens, min_size=1, max_size=12))
    ids = (*prefix, *rest)
    mask = (0, *draw(st.lists(st.integers(0, 1), min_size=len(ids) - 1, max_size=len(ids) - 1)))
    if not any(mask):
        mask = (*mask[:-1], 1)
    turn = tuple(t // 4 if learn else -1 for t, learn in enumerate(mask))
    logprobs = tuple(-0.5 - t / 10 if learn else 0.0 for t, learn in enumerate(mask))
    return Row(ids, mask, logprobs, turn)


@st.composite
def batches(draw):
    prefix = tuple(draw(st.lists(tokens, min_size=1, max_size=10)))
    made = draw(st.lists(training_rows(prefix), min_size=1, max_size=5))
    return [Weighted(row, {turn: draw(st.floats(-2, 2)) for turn in set(row.turn) - {-1}}) for row in made]


def unshared(batch):
    """The same batch with the prefix put back in front of each row."""
    count = len(batch.prefix)
    return dataclasses.replace(
        batch,
        prefix=batch.prefix[:0],
        ids=torch.cat((batch.prefix.expand(len(batch.ids), -1), batch.ids), 1),
        column=batch.column + count,
    )


def chosen(logp_NV, batch):
    return logp_NV.gather(-1, batch.target[:, None])[:, 0]


@given(batches())
@settings(max_examples=60)
def test_a_shared_prefix_changes_nothing(weighted):
    batch = collate(weighted, PAD)
    shared, alone = POLICY.distributions(batch), POLICY.distributions(unshared(batch))
    assert torch.allclose(shared, alone, atol=1e-5)
    weight = torch.linspace(-1, 1, len(batch.target))
    gradients = [
        torch.autograd.grad((chosen(logp_NV, batch) * weight).sum(), list(POLICY.model.parameters()))
        for logp_NV in (shared, alone)
    ]
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@given(batches())
@settings(max_examples=60)
def test_rows_do_not_see_one_another_nor_the_padding(weighted):
    together = POLICY.distributions(collate(weighted, PAD))
    each = [POLICY.distributions(collate([item], PAD)) for item in weighted]
    assert torch.allclose(together, torch.cat(each), atol=1e-5)


@given(batches())
def test_every_token_to_learn_on_stands_in_the_batch_once(weighted):
    batch = collate(weighted, PAD)
    whole = unshared(batch)
    expected = [
        (b, t, item.row.ids[t], item.row.logprobs[t], item.advantages[item.row.turn[t]])
        for b, item in enumerate(weighted)
        for t in range(len(item.row.ids))
        if item.row.mask[t]
    ]
    found = zip(
        *(x.tolist() for x in (whole.row, whole.column, batch.target, batch.old_logprob, batch.advantage)),
        strict=True,
    )
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other)
    for row, item in zip(whole.ids.tolist(), weighted, strict=True):
        assert tuple(row[: len(item.row.ids)]) == item.row.ids
        assert set(row[len(item.row.ids) :]) <= {PAD}
    assert (batch.column >= 1).all()  # the token before each one is in the batch: it predicts it
    assert torch.equal(whole.ids[whole.row, whole.column], batch.target)
    assert batch.turns == sum(len(item.advantages) for item in weighted)


def test_the_prefix_ends_before_the_token_that_predicts_the_first_answer():
    row = Row((5, 6, 7, 8), (0, 0, 1, 1), (0.0, 0.0, -1.0, -1.0), (-1, -1, 0, 0))
    batch = collate([Weighted(row, {0: 1.0})] * 2, PAD)
    assert batch.prefix.tolist() == [5]
    assert batch.ids.tolist() == [[6, 7, 8]] * 2
    assert batch.column.tolist() == [1, 2] * 2


def test_a_turn_without_advantage_counts_for_nothing_and_as_a_turn():
    row = Row((5, 6, 7), (0, 1, 1), (0.0, -1.0, -2.0), (-1, 0, 1))
    batch = collate([Weighted(row, {1: 3.0})], PAD)
    assert batch.advantage.tolist() == [0.0, 3.0]
    assert batch.turns == 2


@given(st.lists(st.lists(tokens, max_size=6).map(tuple), min_size=1, max_size=6))
def test_common_prefix(sequences):
    length = common_prefix(sequences)
    assert len({sequence[:length] for sequence in sequences}) == 1
    longer = {sequence[: length + 1] for sequence in sequences}
    assert len(longer) > 1 or min(map(len, sequences)) == length


@given(st.integers(1, 60), st.integers(1, 20))
def test_minibatches_are_even_and_hold_each_row_once(count, size):
    items = [Weighted(Row((i,)), {}) for i in range(count)]
    made = minibatches(items, size, torch.Generator().manual_seed(1))
    assert sorted(item.row.ids[0] for part in made for item in part) == list(range(count))
    sizes = {len(part) for part in made}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(made) == -(-count // size)


def test_minibatches_follow_from_the_generator():
    items = [Weighted(Row((i,)), {}) for i in range(30)]
    one, again, other = (minibatches(items, 8, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert one == again != other


def played(stop=StopReason.SOLVED, logprobs=(-0.2, -0.3)):
    first = turn((1, 2), (3,), logprobs=(-0.1,))
    return episode(first, turn((1, 2, 3, 4), (5, 6), logprobs=logprobs, after=[first]), stop=stop)


def test_episodes_without_verdict_are_left_out():
    episodes = [played(), played(StopReason.ERROR), played()]
    weighted = weigh(episodes, [[0.5, 1.0], None, [0.25, 2.0]], SEAT)
    assert [item.advantages for item in weighted] == [{0: 0.5, 1: 1.0}, {0: 0.25, 1: 2.0}]
    assert weigh(episodes[1:2], [None], SEAT) == []


def test_each_turn_keeps_its_own_advantage():
    (item,) = weigh([played()], [[0.5, 1.0]], SEAT)
    batch = collate([item], PAD)
    assert (batch.target.tolist(), batch.advantage.tolist()) == ([3, 5, 6], [0.5, 1.0, 1.0])
    assert batch.turns == 2


def test_a_policy_gradient_needs_the_log_probability_of_every_sampled_token():
    unknown = played(logprobs=None)
    with pytest.raises(BadArgument, match=f"episode {unknown.id!r} has turns without log probabilities"):
        weigh([played(), unknown], [[0.5, 1.0]] * 2, SEAT)
    assert len(weigh([played(), unknown], [[0.5, 1.0], None], SEAT)) == 1  # it is left out in any case
    silent = episode(turn((1, 2), ()), turn((1, 2, 4), (5,)))
    (item,) = weigh([silent], [[0.5, 1.0]], SEAT)  # nothing sampled, nothing to know
    assert item.row.turn.tolist() == [-1, -1, -1, 1]
