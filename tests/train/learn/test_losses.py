"""The loss by hand, and a proof by enumeration that its gradient is the policy gradient.

The convention of the discount, stated once: an advantage is the return from its own turn on,
``G_t = r_t + gamma r_{t+1} + ...``, and every turn of an episode weighs the same. The gradient of the
discounted return from the start weighs turn t by ``gamma**t`` (Sutton and Barto, 2nd ed., 13.3); that factor
is left out, as usual in practice, so that late turns are learnt as eagerly as early ones. With gamma 1 both
are the same.
"""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from gem.estimators import discounted_returns, rebn
from gem.train.learn.losses import clipped_surrogate, importance_weights, kl_estimate, value_loss


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


CLIP = {"clip_low": 0.2, "clip_high": 0.2}


# -- by hand


def test_value_by_hand():
    old = tensor(0.4, 0.4, 0.4, 0.4)
    ratio = tensor(1.5, 1.5, 0.5, 0.5)
    advantage = tensor(2.0, -2.0, 2.0, -2.0)
    # min(r A, clip(r) A): 1.2 * 2 (held), 1.5 * -2, 0.5 * 2, 0.8 * -2 (held)
    found = clipped_surrogate((old * ratio).log(), old.log(), advantage, **CLIP)
    assert float(found.loss) == pytest.approx(-(2.4 - 3.0 + 1.0 - 1.6))
    assert float(found.clipped) == 2
    assert float(found.step_kl) == pytest.approx(sum(r - 1 - math.log(r) for r in (1.5, 1.5, 0.5, 0.5)))


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.3, 1.0, False), (1.3, -1.0, True), (0.7, 1.0, True), (0.7, -1.0, False), (1.1, 1.0, True)],
)
def test_a_ratio_that_went_too_far_the_good_way_is_held(ratio, advantage, moves):
    logprob = tensor(0.4 * ratio).log().requires_grad_()
    clipped_surrogate(logprob, tensor(0.4).log(), tensor(advantage), **CLIP).loss.backward()
    assert float(logprob.grad[0]) == pytest.approx(-ratio * advantage if moves else 0.0)


def test_clip_higher_holds_later():
    logprob, old = tensor(0.4 * 1.25).log(), tensor(0.4).log()
    assert float(clipped_surrogate(logprob, old, tensor(1.0), clip_low=0.2, clip_high=0.28).clipped) == 0
    assert float(clipped_surrogate(logprob, old, tensor(1.0), clip_low=0.2, clip_high=0.2).clipped) == 1


@pytest.mark.parametrize("unit", [None, [0, 0, 1], [0, 0, 0]])
def test_on_policy_the_gradient_is_that_of_reinforce(unit):
    logprob, advantage = tensor(0.7, 0.3, 0.1).log().requires_grad_(), tensor(1.5, -0.5, 4.0)
    unit = None if unit is None else torch.tensor(unit)
    found = clipped_surrogate(logprob, logprob.detach(), advantage, unit_N=unit, **CLIP)
    found.loss.backward()
    assert torch.allclose(logprob.grad, -advantage)
    assert float(found.clipped) == 0.0
    assert float(found.step_kl) == pytest.approx(0.0, abs=1e-12)


def test_the_ratio_of_a_unit_is_the_geometric_mean_of_its_tokens_and_is_held_as_one():
    ratio = tensor(1.5, 0.9, 1.1)
    logprob, old = ratio.log().requires_grad_(), tensor(1.0, 1.0, 1.0).log()
    advantage, unit = tensor(1.0, 1.0, 2.0), torch.tensor([0, 0, 1])
    found = clipped_surrogate(logprob, old, advantage, clip_low=0.1, clip_high=0.15, unit_N=unit)
    found.loss.backward()
    mean = math.sqrt(1.5 * 0.9)  # 1.16: held, though its second token alone would not be
    assert mean > 1.15
    assert found.loss.item() == pytest.approx(-(1.15 + 1.15 + 1.1 * 2.0))
    assert logprob.grad.tolist() == pytest.approx([0.0, 0.0, -2.2])


def test_importance_weights_are_cut_and_have_no_gradient():
    present = tensor(0.5, 0.9).log().requires_grad_()
    weight = importance_weights(present, tensor(0.4, 0.1).log(), 2.0)
    assert weight.tolist() == pytest.approx([1.25, 2.0])
    assert not weight.requires_grad
    found = clipped_surrogate(present, present.detach(), tensor(1.0, -1.0), weight_N=weight, **CLIP)
    found.loss.backward()
    assert present.grad.tolist() == pytest.approx([-1.25, 2.0])


def test_estimates_of_a_divergence_agree_on_average_and_in_gradient_where_they_say():
    """Over a whole distribution p, with reference q, enumerated."""
    logits = tensor(0.3, -0.8, 1.1).requires_grad_()
    reference = tensor(0.5, 0.2, -0.4).log_softmax(-1)
    logp = logits.log_softmax(-1)
    p = logp.detach().exp()
    exact = (logp.exp() * (logp - reference)).sum()
    (gradient,) = torch.autograd.grad(exact, logits, retain_graph=True)
    for name in ("k1", "k3"):
        assert (p * kl_estimate(logp, reference, name)).sum().item() == pytest.approx(exact.item())
    of = {
        name: torch.autograd.grad((p * kl_estimate(logp, reference, name)).sum(), logits, retain_graph=True)[
            0
        ]
        for name in ("k1", "k2", "k3")
    }
    assert torch.allclose(of["k1"], torch.zeros(3, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(of["k2"], gradient, atol=1e-12)
    backward = (reference.exp() * (reference - logp)).sum()
    assert torch.allclose(of["k3"], torch.autograd.grad(backward, logits)[0], atol=1e-12)


def test_the_loss_of_values_by_hand():
    value, old, returns = tensor(1.0, 0.0).requires_grad_(), tensor(0.0, 0.0), tensor(2.0, 1.0)
    assert value_loss(value, old, returns, None).item() == pytest.approx(0.5 * (1 + 1))
    held = value_loss(value, old, returns, 0.5)  # the first moved too far: as if it stood at 0.5
    assert held.item() == pytest.approx(0.5 * (1.5**2 + 1))
    (gradient,) = torch.autograd.grad(held, value)
    assert gradient.tolist() == pytest.approx([0.0, -1.0])


# -- a whole problem, enumerated

ACTIONS, TURNS = 3, 3
STOP = 2  # ends the episode


def reward(history):
    """What the last action of a history earns: anything, as long as it depends on all of it."""
    return math.sin(1.0 + sum((place + 1) * (action + 1) ** 2 for place, action in enumerate(history)))


def trajectories():
    """Every sequence of actions: the episode ends with STOP or after TURNS turns."""
    for length in range(1, TURNS + 1):
        for actions in itertools.product(range(ACTIONS), repeat=length):
            ended = actions[-1] == STOP or length == TURNS
            if ended and STOP not in actions[:-1]:
                yield actions


TRAJECTORIES = list(trajectories())
HISTORIES = sorted({actions[:t] for actions in TRAJECTORIES for t in range(len(actions))})


def make_logits():
    """One row of logits per history: a policy that may depend on all it was shown."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(HISTORIES), ACTIONS, generator=generator, dtype=torch.float64).requires_grad_()


def distributions(logits, actions):
    """Log probabilities of every action at each turn of a trajectory."""
    return logits.log_softmax(-1)[[HISTORIES.index(actions[:t]) for t in range(len(actions))]]


def logprobs_of(logits, actions):
    """Log probability of each action of a trajectory."""
    return distributions(logits, actions)[range(len(actions)), actions]


def ascent(logp_NV, actions, advantages, turns):
    """The surrogate of one step, on policy, over `turns`."""
    logprob = logp_NV.gather(-1, torch.tensor(actions)[:, None])[:, 0]
    return -clipped_surrogate(logprob, logprob.detach(), tensor(*advantages), **CLIP).loss / turns


def rewards_of(actions):
    return [reward(actions[: t + 1]) for t in range(len(actions))]


def expected_surrogate_gradient(logits, advantages):
    """E over all trajectories of the gradient of the surrogate, each trajectory a batch with turns=1."""
    total = torch.zeros(())
    for actions in TRAJECTORIES:
        weight = logprobs_of(logits, actions).detach().sum().exp()
        total = total + weight * ascent(distributions(logits, actions), actions, advantages(actions), 1)
    return torch.autograd.grad(total, logits)[0]


def gradient_of_return(logits, gamma):
    """Autograd of the exact expected discounted return."""
    total = torch.zeros(())
    for actions in TRAJECTORIES:
        probability = logprobs_of(logits, actions).sum().exp()
        total = total + probability * discounted_returns(rewards_of(actions), gamma)[0]
    return torch.autograd.grad(total, logits)[0]


def test_the_problem_is_whole():
    logits = make_logits()
    total = sum(float(logprobs_of(logits, actions).detach().sum().exp()) for actions in TRAJECTORIES)
    assert total == pytest.approx(1.0)
    assert len(TRAJECTORIES) == 1 + 2 * 1 + 4 * 3


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 1.0])
def test_with_the_factor_of_its_turn_the_gradient_is_that_of_the_discounted_return(gamma):
    logits = make_logits()

    def advantages(actions):
        returns = discounted_returns(rewards_of(actions), gamma)
        return [gamma**t * value for t, value in enumerate(returns)]

    expected = gradient_of_return(logits, gamma)
    assert torch.allclose(expected_surrogate_gradient(logits, advantages), expected, atol=1e-12)


def test_without_discount_the_gradient_is_that_of_the_return():
    logits = make_logits()
    found = expected_surrogate_gradient(logits, lambda a: discounted_returns(rewards_of(a), 1.0))
    assert torch.allclose(found, gradient_of_return(logits, 1.0), atol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_without_the_factor_each_history_climbs_its_own_discounted_return(gamma):
    """The convention used: history h, met with probability d(h), moves along d(h) times the gradient of its
    own expected return from there on, where the choices that led there and those that follow are held."""
    logits = make_logits()
    probabilities = logits.softmax(-1)
    held = probabilities.detach()

    def met(history):
        return math.prod(float(held[HISTORIES.index(history[:t]), a]) for t, a in enumerate(history))

    def value_of(history, action):
        """Expected discounted return of an action, all later choices held."""
        following = (*history, action)
        if following not in HISTORIES:
            return reward(following)
        row = held[HISTORIES.index(following)]
        return reward(following) + gamma * sum(float(row[a]) * value_of(following, a) for a in range(ACTIONS))

    total = torch.zeros(())
    for number, history in enumerate(HISTORIES):
        own = sum(probabilities[number, a] * value_of(history, a) for a in range(ACTIONS))
        total = total + met(history) * own
    expected = torch.autograd.grad(total, logits)[0]
    found = expected_surrogate_gradient(logits, lambda a: discounted_returns(rewards_of(a), gamma))
    assert torch.allclose(found, expected, atol=1e-12)
    assert not torch.allclose(found, gradient_of_return(logits, gamma), atol=1e-3)


def test_a_constant_baseline_changes_nothing_in_expectation():
    logits = make_logits()
    plain = expected_surrogate_gradient(logits, lambda a: discounted_returns(rewards_of(a), 0.9))
    based = expected_surrogate_gradient(
        logits, lambda a: [value - 7.5 for value in discounted_returns(rewards_of(a), 0.9)]
    )
    assert torch.allclose(plain, based, atol=1e-12)


def batch_gradient(logits, batch, advantages):
    """The gradient of one step on a batch of trajectories, as the trainer takes it."""
    logp = torch.cat([distributions(logits, actions) for actions in batch])
    taken, values = (list(itertools.chain.from_iterable(parts)) for parts in (batch, advantages))
    return torch.autograd.grad(ascent(logp, taken, values, len(values)), logits)[0]


def test_rebn_centres_a_batch_and_scales_it():
    logits = make_logits()
    batch = [TRAJECTORIES[i] for i in (0, 3, 5, 5, 9)]
    returns = [discounted_returns(rewards_of(actions), 0.9) for actions in batch]
    flat = list(itertools.chain.from_iterable(returns))
    mean = sum(flat) / len(flat)
    std = math.sqrt(sum((value - mean) ** 2 for value in flat) / len(flat))
    ones = [[1.0] * len(values) for values in returns]
    plain, along = batch_gradient(logits, batch, returns), batch_gradient(logits, batch, ones)
    found = batch_gradient(logits, batch, rebn(returns))
    assert torch.allclose(found, (plain - mean * along) / std, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_the_mean_of_the_batch_itself_only_shortens_the_gradient(size):
    """A batch's mean holds each sample's own return: over all batches of n one-turn episodes the centred
    gradient is (n - 1) / n of the exact one, so its direction is right."""
    values = [0.3, -1.0, 2.0]
    logits = tensor(0.2, -0.4, 0.1).requires_grad_()
    logp = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((logp.exp() * tensor(*values)).sum(), logits, retain_graph=True)
    total = torch.zeros(())
    for batch in itertools.product(range(ACTIONS), repeat=size):
        mean = sum(values[a] for a in batch) / size
        centred = [values[a] - mean for a in batch]
        weight = logp.detach()[list(batch)].sum().exp()
        total = total + weight * ascent(logp.expand(size, -1), batch, centred, size)
    (found,) = torch.autograd.grad(total, logits)
    assert torch.allclose(found, exact * (size - 1) / size, atol=1e-12)
