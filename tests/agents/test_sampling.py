import math

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from gem.agents.answer_shape import stops_of
from gem.agents.sampling import (
    sample,
    sample_with_entropy,
    sample_without_waiting,
    uniforms,
    uniforms_of_steps,
)
from gem.errors import BadArgument
from gem.record import Ask

SEEDS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=8)


def splitmix64(state):
    """The reference generator, in Python's integers."""
    mask = (1 << 64) - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    state = mix(state & mask)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        yield mix(state)


@given(seeds=SEEDS)
def test_uniforms_are_splitmix64(seeds):
    streams = [splitmix64(seed) for seed in seeds]
    for step in range(3):
        expected = [(next(stream) >> 11) / 2**53 for stream in streams]
        assert uniforms(seeds, step).tolist() == expected


@given(seeds=SEEDS, step=st.integers(0, 10_000))
def test_a_uniform_does_not_depend_on_the_batch(seeds, step):
    assert uniforms(seeds, step).tolist() == [uniforms([seed], step).item() for seed in seeds]


def test_uniforms_of_neighbouring_seeds_and_steps_are_uniform_and_uncorrelated():
    u = torch.stack([uniforms(range(1000), step) for step in range(50)])
    n = u.numel()
    assert ((u >= 0) & (u < 1)).all()
    assert abs(u.mean() - 1 / 2) < 4 / math.sqrt(12 * n)
    assert abs(torch.corrcoef(torch.stack([u[:, 1:].flatten(), u[:, :-1].flatten()]))[0, 1]) < 4 / n**0.5
    assert abs(torch.corrcoef(torch.stack([u[1:].flatten(), u[:-1].flatten()]))[0, 1]) < 4 / n**0.5


def test_no_seeds_give_no_uniforms():
    assert uniforms([], 0).shape == (0,)


def test_sampling_inverts_the_cumulative_distribution():
    logits = torch.tensor([[0.25, 0.5, 0.25]]).log()
    for u, token in [(0.0, 0), (0.24, 0), (0.26, 1), (0.74, 1), (0.76, 2), (1 - 2**-53, 2)]:
        ids, logprobs = sample(logits, 1.0, torch.tensor([u], dtype=torch.float64))
        assert ids.tolist() == [token]
        assert logprobs.item() == pytest.approx(logits[0, token].item(), abs=1e-7)


def test_temperature_reshapes_the_distribution_and_its_logprobs():
    logits = torch.tensor([[0.2, 0.8]]).log().expand(20_000, 2)
    ids, logprobs = sample(logits, 0.5, uniforms(range(20_000), 0))
    rare = 0.2**2 / (0.2**2 + 0.8**2)
    assert (ids == 0).double().mean().item() == pytest.approx(rare, abs=4 * math.sqrt(rare / 20_000))
    assert logprobs[ids == 0].unique().item() == pytest.approx(math.log(rare), abs=1e-6)


def test_greedy_takes_the_largest_logit_with_probability_one():
    ids, logprobs = sample(torch.tensor([[0.0, 3.0, 1.0], [5.0, 5.0, 0.0]]), 0.0, uniforms([1, 2], 0))
    assert ids.tolist() == [1, 0]
    assert logprobs.tolist() == [0.0, 0.0]


@given(seed=st.integers(0, 2**63 - 1), allowed=st.lists(st.booleans(), min_size=2, max_size=6).filter(any))
def test_a_forbidden_token_is_never_sampled(seed, allowed):
    logits = torch.where(torch.tensor(allowed), 0.0, -torch.inf)[None]
    for u in (0.0, uniforms([seed], 0).item(), 1 - 2**-53):
        ids, logprobs = sample(logits, 1.0, torch.tensor([u], dtype=torch.float64))
        assert allowed[ids.item()]
        assert logprobs.isfinite().all()


def test_half_precision_logits_of_a_large_vocabulary_keep_their_tail():
    logits = torch.zeros(1, 150_000, dtype=torch.bfloat16)
    ids, logprobs = sample(logits, 1.0, torch.tensor([1 - 1e-9], dtype=torch.float64))
    assert ids.item() == 149_999
    assert logprobs.item() == pytest.approx(-math.log(150_000), rel=1e-9)


@pytest.mark.parametrize("row", [[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf]])
def test_a_row_that_is_no_distribution_is_refused(row):
    with pytest.raises(BadArgument, match="diverged"):
        sample(torch.tensor([row]), 1.0, uniforms([0], 0))


def test_a_diverged_model_is_refused_when_greedy():
    with pytest.raises(BadArgument, match="diverged"):
        sample(torch.tensor([[math.nan, 0.0]]), 0.0, uniforms([0], 0))


@pytest.mark.parametrize("temperature", [-1.0, math.nan])
def test_a_temperature_below_zero_is_refused(temperature):
    with pytest.raises(BadArgument, match="temperature"):
        sample(torch.zeros(1, 2), temperature, uniforms([0], 0))


def test_entropies_are_of_the_tempered_distribution_and_sampling_is_the_same():
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, -torch.inf, 1.0, -torch.inf], [3.0, 1.0, 0.0, -9.0]])
    u = uniforms(range(6), 0).reshape(3, 2)
    ids, logprobs, entropy = sample_with_entropy(logits, 0.5, u)
    assert torch.equal(ids, sample(logits, 0.5, u)[0])
    assert torch.equal(logprobs, sample(logits, 0.5, u)[1])
    wanted = torch.distributions.Categorical(logits=logits[2].double() / 0.5).entropy().item()
    expected = [math.log(4), math.log(4), math.log(2), math.log(2), wanted, wanted]
    assert entropy.flatten().tolist() == pytest.approx(expected)
    assert sample_with_entropy(logits, 0.5, u[:, 0])[2].tolist() == pytest.approx(expected[::2])
    assert sample_with_entropy(logits, 0.0, u)[2].tolist() == [[0.0, 0.0]] * 3


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_without_a_wait_are_those_of_float64(temperature, dtype):
    logits = (3 * torch.randn(4000, 500, generator=torch.Generator().manual_seed(0))).to(dtype)
    u = uniforms(range(4000), 0)
    ids, logprobs, all_logprobs, fine = sample_without_waiting(logits, temperature, u)
    wanted, wanted_logprobs, entropy = sample_with_entropy(logits, temperature, u)
    assert torch.equal(ids, wanted)
    assert torch.allclose(logprobs.double(), wanted_logprobs, atol=1e-5)
    assert fine.all()
    if temperature:
        assert torch.allclose(torch.special.entr(all_logprobs.exp()).sum(-1).double(), entropy, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_that_is_no_distribution_is_told_without_a_wait(temperature):
    rows = torch.tensor([[math.nan, 0.0], [math.inf, 0.0], [-math.inf, -math.inf], [0.0, -math.inf]])
    u = torch.full((4,), 0.9, dtype=torch.float64)
    ids, _, _, fine = sample_without_waiting(rows, temperature, u)
    assert fine.tolist() == [False, False, False, True]
    assert ((ids >= 0) & (ids < 2)).all()
    assert ids[3] == 0


def test_uniforms_of_several_steps_are_those_of_each():
    assert uniforms_of_steps([1, 2**64 - 1], 3, 4).tolist() == [
        uniforms([1, 2**64 - 1], step).tolist() for step in range(3, 7)
    ]


@pytest.mark.parametrize(
    ("sampling", "stops"), [(None, []), ({"stop": "END"}, ["END"]), ({"stop": ["a", "", "b"]}, ["a", "b"])]
)
def test_an_ask_may_name_one_text_that_ends_its_answer_or_several(sampling, stops):
    assert stops_of(Ask("e", "agent", 0, (), sampling=sampling)) == stops
