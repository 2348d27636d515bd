import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import episode, turn

torch = pytest.importorskip("torch")

from gem.agents.tiny import TinyConfig
from gem.errors import BadArgument
from gem.record import SEAT, StopReason
from gem.tokens.rows import Row
from gem.train.learn.batch import Target, Weighted, collate, make_batches, microbatches, minibatches, weigh
from gem.train.learn.learner import Learner
from gem.train.learn.policy import TinyPolicy

POLICY = TinyPolicy(TinyConfig(width=16, layers=2, heads=2), seed=0)
PAD = POLICY.pad
generator = torch.Generator().manual_seed(0)
with torch.no_grad():  # the residual branches start silent; here attention has to matter
    for parameter in POLICY.model.parameters():
        if parameter.dim() == 2:
            parameter.normal_(0.0, 0.4, generator=generator)
LEARNER = Learner(POLICY)

tokens = st.integers(0, 2)  # few, so that rows have beginnings in common, and are the same
capacities = st.sampled_from([None, 0, 8, 100])


@st.composite
def training_rows(draw, prefix):
    """A row that begins with `prefix`; one token at least is learnt on, and never the first."""
    rest = draw(st.lists(tokens, min_size=1, max_size=8))
    ids = (*prefix, *rest)
    mask = (0, *draw(st.lists(st.integers(0, 1), min_size=len(ids) - 1, max_size=len(ids) - 1)))
    if not any(mask):
        mask = (*mask[:-1], 1)
    turn = tuple(t // 4 if learn else -1 for t, learn in enumerate(mask))
    logprobs = tuple(-0.5 - t / 10 if learn else 0.0 for t, learn in enumerate(mask))
    return Row(ids, mask, logprobs, turn)


@st.composite
def batches(draw):
    prefix = tuple(draw(st.lists(tokens, min_size=1, max_size=6)))
    made = draw(st.lists(training_rows(prefix), min_size=1, max_size=7))
    value = st.floats(-2, 2, width=32)
    targets = st.builds(Target, value, value, value)
    return [Weighted(row, {turn: draw(targets) for turn in set(row.turn) - {-1}}) for row in made]


def answers(prompts, count):
    """Rows of two sampled tokens, `count` to each prompt."""
    return [
        Weighted(Row((*prompt, 7 + n, 7), (0,) * len(prompt) + (1, 1), (0.0,) * (len(prompt) + 2), turn))
        for prompt in prompts
        for n in range(count)
        for turn in [(-1,) * len(prompt) + (0, 0)]
    ]


@st.composite
def groups(draw):
    """Prompts, some with a beginning in common, and answers to each."""
    begun = st.sampled_from([(), (1,) * 9, (1,) * 30])
    prompts = draw(st.lists(st.tuples(begun, st.integers(0, 2), st.integers(1, 20)), min_size=1, max_size=4))
    return answers(
        [(0, *start, *(token,) * size) for start, token, size in prompts], draw(st.integers(1, 12))
    )


def by_row(batch, values_N):
    """Values per token in the order of the rows, as a plain loop over them would list them."""
    return values_N[batch.row.argsort(stable=True)]


def alone(item):
    """What the model says of one row, without prefix, tree or padding."""
    return LEARNER.forward(collate([item], PAD, None))


@pytest.mark.system
@given(batches() | groups(), capacities)
@settings(max_examples=80, deadline=None)
def test_a_tree_says_what_each_row_says_by_itself(weighted, capacity):
    batch = collate(weighted, PAD, capacity)
    together, each = LEARNER.forward(batch), [alone(item) for item in weighted]
    for found, wanted in (
        (together.logprob, torch.cat([one.logprob for one in each])),
        (together.entropy, torch.cat([one.entropy for one in each])),
    ):
        assert torch.allclose(by_row(batch, found), wanted, atol=1e-5)
    weight = torch.linspace(-1, 1, len(batch.target))
    parameters = list(POLICY.model.parameters())
    one = torch.autograd.grad((by_row(batch, together.logprob) * weight).sum(), parameters)
    other = torch.autograd.grad((torch.cat([o.logprob for o in each]) * weight).sum(), parameters)
    for a, b in zip(one, other, strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@given(batches(), capacities)
@settings(deadline=None)
@pytest.mark.system
def test_every_token_to_learn_on_stands_in_the_batch_once(weighted, capacity):
    batch = collate(weighted, PAD, capacity)
    expected = [
        (b, item.row.ids[t], item.row.logprobs[t], *_of(item.targets[item.row.turn[t]]))
        for b, item in enumerate(weighted)
        for t in range(len(item.row.ids))
        if item.row.mask[t]
    ]
    columns = (batch.row, batch.target, batch.old_logprob, *(
        of_turn[batch.turn] for of_turn in (batch.advantage, batch.returns, batch.value)
    ))  # fmt: skip
    found = zip(*(by_row(batch, column).tolist() for column in columns), strict=True)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other)
    assert batch.turns == sum(len(item.targets) for item in weighted)
    assert torch.equal(batch.of.sort().values, batch.of)
    firsts = [
        (b, min(t for t, mine in enumerate(item.row.turn) if mine == turn))
        for b, item in enumerate(weighted)
        for turn in sorted(item.targets)
    ]
    assert sorted(by_turn(batch)) == sorted((b, weighted[b].row.ids[t]) for b, t in firsts)


def by_turn(batch):
    return list(zip(batch.row[batch.first].tolist(), batch.target[batch.first].tolist(), strict=True))


def _of(target):
    return target.advantage, target.returns, target.value


@pytest.mark.system
@given(batches())
def test_each_distinct_token_behind_its_history_is_computed_once(weighted):
    batch = collate(weighted, PAD, 1000)  # one pack holds all
    histories = {item.row.ids[:t] for item in weighted for t in range(1, len(item.row.ids) + 1)}
    assert batch.ids.shape[0] == 1
    assert len(batch.prefix) + batch.ids.shape[1] == len(histories)


@pytest.mark.system
@given(batches())
def test_a_chain_is_one_row_and_its_beginnings(weighted):
    batch = collate(weighted, PAD, None)
    assert batch.sees is None
    assert len(batch.prefix) == 0
    longest = {item.row.ids for item in weighted}
    maximal = [ids for ids in longest if not any(o != ids and o[: len(ids)] == ids for o in longest)]
    assert len(batch.ids) == len(maximal)


def test_the_prefix_ends_before_the_token_that_predicts_the_first_answer():
    row = Row((5, 6, 7, 8), (0, 0, 1, 1), (0.0, 0.0, -1.0, -1.0), (-1, -1, 0, 0))
    batch = collate([Weighted(row, {0: Target(1.0)})] * 2, PAD)
    assert batch.prefix.tolist() == [5]
    assert batch.ids.tolist() == [[6, 7, 8]]
    assert batch.position.tolist() == [[1, 2, 3]]
    assert batch.place.tolist() == [0, 1]
    assert batch.of.tolist() == [0, 0, 1, 1]


def test_a_pack_is_longer_where_that_leaves_less_padding():
    rows = [Row((first,) * 4, (0, 0, 0, 1), (0.0,) * 4, (-1, -1, -1, 0)) for first in (1, 2, 3)]
    assert collate([Weighted(row) for row in rows], PAD, 8).ids.shape == (1, 12)  # 8 would leave 4 of 16
    assert collate([Weighted(row) for row in rows[:2]], PAD, 8).ids.shape == (1, 8)
    assert collate([Weighted(row) for row in rows], PAD, 0).ids.shape == (3, 4)


def test_answers_share_prompts_that_are_longer_than_a_pack():
    rows = answers([(1,) * 40, (2,) * 40], 10)
    assert collate(rows, PAD, 8).ids.shape == (2, 60)  # packs of 8 would hold one row of 42 each


def test_packs_behind_a_long_prefix_are_few():
    batch = collate(answers([(1,) * 101], 32), PAD, 8)  # eight packs would hold the prefix eight times
    assert (len(batch.prefix), batch.ids.shape) == (100, (1, 65))
    assert collate(answers([(1,) * 21], 32), PAD, 8).ids.shape == (8, 9)


@given(groups(), st.integers(1, 20))
@settings(deadline=None)
@pytest.mark.system
def test_a_batch_has_few_places_for_its_distinct_tokens(weighted, capacity):
    batch = collate(weighted, PAD, capacity)
    histories = {item.row.ids[:t] for item in weighted for t in range(1, len(item.row.ids) + 1)}
    assert batch.positions <= 5 * len(histories)  # of 20,000 the worst had 3.1 times as many


def test_a_turn_without_target_counts_for_nothing_and_as_a_turn():
    row = Row((5, 6, 7), (0, 1, 1), (0.0, -1.0, -2.0), (-1, 0, 1))
    batch = collate([Weighted(row, {1: Target(3.0)})], PAD)
    assert batch.advantage.tolist() == [0.0, 3.0]
    assert batch.turns == 2


def test_what_was_noted_follows_its_token():
    rows = [
        Row((5, 1, 2), (0, 1, 1), (0.0, -1.0, -2.0), (-1, 0, 0)),
        Row((5, 1), (0, 1), (0.0, -3.0), (-1, 0)),
    ]
    items = [Weighted(row, stored_outputs={"x": torch.tensor(row.logprobs[1:])}) for row in rows]
    batch = collate(items, PAD)
    assert torch.equal(batch.stored_outputs["x"], batch.old_logprob)


@given(st.integers(1, 60), st.integers(1, 20))
def test_minibatches_are_even_and_hold_each_row_once(count, size):
    items = [Weighted(Row((i,))) for i in range(count)]
    made = minibatches(items, size, torch.Generator().manual_seed(1))
    assert sorted(item.row.ids[0] for part in made for item in part) == list(range(count))
    sizes = {len(part) for part in made}
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(made) == -(-count // size)


def test_minibatches_follow_from_the_generator():
    items = [Weighted(Row((i,))) for i in range(30)]
    one, again, other = (minibatches(items, 8, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert one == again != other


@pytest.mark.system
@given(batches(), st.integers(1, 30))
def test_a_step_may_take_several_passes_of_a_bounded_size(weighted, limit):
    parts = microbatches(weighted, limit, 0)
    assert sorted(id(item) for part in parts for item in part) == sorted(map(id, weighted))
    for part in parts:
        distinct = {item.row.ids[:t] for item in part for t in range(1, len(item.row.ids) + 1)}
        assert len(distinct) <= max(limit, *(len(item.row.ids) for item in part))
    assert microbatches(weighted, None, 0) == [weighted]


@pytest.mark.system
@given(batches() | groups(), st.integers(1, 90), st.sampled_from([None, 1, 8, 64]))
@settings(deadline=None)
def test_a_pass_computes_little_more_than_its_tokens(weighted, limit, capacity):
    made = list(make_batches(weighted, PAD, capacity, limit, bare=True))
    assert sorted(id(item) for _, part in made for item in part) == sorted(map(id, weighted))
    for batch, part in made:
        longest = max(len(item.row.ids) for item in part)
        assert batch.positions <= batch.memory <= 1.1 * max(limit, longest) or len(part) == 1


def test_a_pass_that_would_not_fit_has_longer_packs():
    rows = answers([(1,) * 41], 32)
    assert collate(rows, PAD, 8).ids.shape == (8, 9)  # with eight copies of a prefix of 40
    assert [batch.ids.shape for batch, _ in make_batches(rows, PAD, 8, 105, bare=True)] == [(1, 65)]


def test_equal_rows_are_one_pass_however_long():
    (made,) = make_batches(answers([(1,) * 40], 1) * 3, PAD, 8, 10, bare=True)
    assert len(made[1]) == 3


def test_rows_that_share_nothing_have_passes_of_similar_length():
    rows = answers([(1,) * size for size in (2, 90, 3, 91, 2, 92)], 1)
    passes = [part for _, part in make_batches(rows, PAD, None, 100, bare=True)]
    assert [[len(item.row.ids) for item in part] for part in passes] == [[4, 4, 5], [92], [93], [94]]


def played(stop=StopReason.SOLVED, logprobs=(-0.2, -0.3)):
    first = turn((1, 2), (3,), logprobs=(-0.1,))
    return episode(first, turn((1, 2, 3, 4), (5, 6), logprobs=logprobs, after=[first]), stop=stop)


def test_episodes_without_verdict_are_left_out():
    episodes = [played(), played(StopReason.ERROR), played()]
    assert [item.source for item in weigh(episodes, SEAT)] == [0, 2]
    assert weigh(episodes[1:2], SEAT) == []


def test_a_policy_gradient_needs_the_log_probability_of_every_sampled_token():
    unknown = played(logprobs=None)
    with pytest.raises(BadArgument, match=f"episode {unknown.id!r} has turns without log probabilities"):
        weigh([played(), unknown], SEAT)
    broken = played(StopReason.ERROR, logprobs=None)
    assert len(weigh([played(), broken], SEAT)) == 1  # it is left out in any case
    silent = episode(turn((1, 2), ()), turn((1, 2, 4), (5,)))
    (item,) = weigh([silent], SEAT)  # nothing sampled, nothing to know
    assert item.row.turn.tolist() == [-1, -1, -1, 1]
