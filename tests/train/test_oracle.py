"""The oracle: episodes listed with their probabilities, exact gradients, and what learn steps estimate."""

import math

import pytest

torch = pytest.importorskip("torch")

from gem.errors import BadArgument
from gem.rollout import Job, Runner
from gem.train.oracle.envs import SETTINGS
from gem.train.oracle.exact import Exact, Listing


@pytest.fixture(scope="module")
def listings():
    return {name: Listing(setting) for name, setting in SETTINGS.items()}


def exact(listing, seed=0):
    policy = listing.policy(seed)
    return Exact(policy, listing.outcomes(policy), listing.law)


def differences(objective, table, step=1e-5):
    """The gradient of a function of a table by central differences."""
    found = torch.zeros_like(table)
    for v in range(table.shape[0]):
        for d in range(table.shape[1]):
            ends = []
            for side in (1, -1):
                moved = table.clone()
                moved[v, d] += side * step
                ends.append(objective(moved))
            found[v, d] = (ends[0] - ends[1]) / (2 * step)
    return found


# -- the listing


@pytest.mark.parametrize("name", SETTINGS)
def test_every_episode_is_listed_once_and_the_probabilities_sum_to_one(listings, name):
    listing = listings[name]
    outcomes = listing.outcomes(listing.policy(3))
    told = {(o.world, tuple(turn.action for turn in o.episode.turns)) for o in outcomes}
    actions = {(o.world, tuple(tuple(turn.token_ids) for turn in o.episode.turns)) for o in outcomes}
    assert len(actions) == len(outcomes) >= len(told)
    assert math.fsum(o.probability for o in outcomes) == pytest.approx(1, abs=1e-12)
    assert math.fsum(listing.law.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("name", "count"), [("bandit", 4), ("words", 7), ("dense", 27), ("early", 15)])
def test_the_numbers_of_episodes_are_those_of_the_rules(listings, name, count):
    assert len(listings[name].paths) == count


@pytest.mark.parametrize("name", ["words", "early", "noisy", "broken"])
def test_sampled_episodes_come_as_often_as_the_listing_says(listings, name):
    listing = listings[name]
    policy = listing.policy(1)
    outcomes = listing.outcomes(policy)
    known = {o.episode.transcript_hash(): o.probability for o in outcomes}
    probability = {}
    for o in outcomes:  # of episodes that read alike, as `a` and the cut `a` do
        key = o.episode.transcript_hash()
        probability[key] = probability.get(key, 0.0) + o.probability
    assert probability.keys() == known.keys()
    count = 800
    with Runner(policy.agent, host="serial", retries=0, concurrency=500) as runner:
        played = runner.play([Job(listing.setting.make, seed) for seed in range(count)])
    counted = dict.fromkeys(probability, 0)
    for episode in played:
        counted[episode.transcript_hash()] += 1
    chi2 = sum((counted[key] - count * p) ** 2 / (count * p) for key, p in probability.items())
    free = len(probability) - 1
    assert chi2 < free + 5 * math.sqrt(2 * free)


def test_a_listed_episode_holds_the_tables_log_probabilities(listings):
    listing = listings["words"]
    policy = listing.policy(2)
    for outcome in listing.outcomes(policy):
        (turn,) = outcome.episode.turns
        assert math.exp(math.fsum(turn.logprobs)) == pytest.approx(outcome.probability, rel=1e-6)


def test_a_history_that_no_episode_has_is_refused(listings):
    with pytest.raises(BadArgument, match="no episode has the history"):
        listings["bandit"].policy(0).find((0, 0))


# -- exact gradients


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_the_gradient_of_the_mean_return_is_that_of_finite_differences(listings, name, gamma):
    found = exact(listings[name])
    table = found.policy.model.logits.detach()
    gradient = found.gradient(lambda table: found.mean_return(table, gamma))
    assert gradient.norm() > 0.01
    wanted = differences(lambda table: found.mean_return(table, gamma), table)
    assert torch.allclose(gradient, wanted, rtol=0, atol=1e-9)


def test_gradients_of_divergence_and_entropy_are_those_of_finite_differences(listings):
    found = exact(listings["early"])
    table = found.policy.model.logits.detach()
    other = listings["early"].policy(9).model.logits.detach()
    for objective in (lambda table: found.mean_kl(table, other), found.mean_entropy):
        gradient = found.gradient(objective)
        assert torch.allclose(gradient, differences(objective, table), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SETTINGS)
def test_without_discount_returns_to_go_give_the_exact_gradient(listings, name):
    found = exact(listings[name])
    gradient = found.gradient(lambda table: found.mean_return(table, 1.0))
    to_go = found.gradient(lambda table: found.to_go(table, 1.0))
    assert torch.allclose(gradient, to_go, rtol=0, atol=1e-14)


def test_with_discount_returns_to_go_weigh_later_turns_too_much(listings):
    found = exact(listings["dense"])
    gradient = found.gradient(lambda table: found.mean_return(table, 0.3))
    to_go = found.gradient(lambda table: found.to_go(table, 0.3))
    lengths = [len(ids) for ids in listings["dense"].histories]
    for d, length in enumerate(lengths):
        turn = (length - 2) // 3  # two digits, then an answer and two digits for each turn
        assert torch.allclose(gradient[:, d], 0.3**turn * to_go[:, d], rtol=0, atol=1e-14)
    assert sorted(set(lengths)) == [2, 5, 8]
