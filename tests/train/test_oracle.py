"""The oracle: episodes listed with their probabilities, exact gradients, and what learn steps estimate."""

import importlib.util
import json
import math
import re
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gem import cli
from gem.errors import BadArgument
from gem.estimators import ALGORITHMS, algorithms, grpo
from gem.record import StopReason
from gem.rollout import Branch, Job, Runner
from gem.tokens.rows import rows
from gem.train.learn import policy_gradient, steps
from gem.train.learn.batch import weigh
from gem.train.oracle import CASES, SETTINGS, Case, Exact, Judge, Listing, judge
from gem.train.oracle.cases import learn_step
from gem.train.oracle.measure import batches, branches, groups, measure
from gem.train.oracle.table import TableAgent


@pytest.fixture(scope="module")
def listings():
    return {name: Listing(setting) for name, setting in SETTINGS.items()}


class Judges(dict):
    def __missing__(self, name):
        return self.setdefault(name, Judge(name))


@pytest.fixture(scope="module")
def judges():
    return Judges()


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


@pytest.mark.parametrize(("name", "count"), [("bandit", 4), ("words", 7), ("early", 15), ("chat", 13)])
def test_the_numbers_of_episodes_are_those_of_the_rules(listings, name, count):
    assert len(listings[name].paths) == count


@pytest.mark.system
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


def test_the_value_of_the_first_state_is_the_mean_return(listings):
    found = exact(listings["dense"])
    (start,) = (ids for ids in listings["dense"].histories if len(ids) == 2)
    wanted = float(found.mean_return(found.policy.model.logits.detach(), 0.9))
    assert found.values(0.9)[found.policy.find(start)] == pytest.approx(wanted, abs=1e-12)


# -- batches


def test_the_listed_batches_have_all_the_probability(listings):
    listing = listings["noisy"]
    outcomes = listing.outcomes(listing.policy(0))
    for choices in (
        groups(outcomes, listing.law, 1),
        groups(outcomes, listing.law, 2),
        branches(outcomes, 2),
    ):
        assert math.fsum(chance for chance, _, _ in choices) == pytest.approx(1, abs=1e-12)
    for ordered in (False, True):
        every = batches(groups(outcomes, listing.law, 1), 2, ordered=ordered)
        assert math.fsum(chance for chance, _ in every) == pytest.approx(1, abs=1e-12)


def test_a_listed_branch_gives_the_rows_of_one_that_was_played(listings):
    listing = listings["noisy"]
    policy = listing.policy(0)
    outcomes = listing.outcomes(policy)
    first, other = (o for o in outcomes[:3] if o.world == outcomes[0].world and o is not outcomes[1])
    start = Branch(first.episode, 1)
    script = [tuple(turn.token_ids) for turn in other.episode.turns]
    assert script[0] == tuple(first.episode.turns[0].token_ids)
    job = Job(listing.setting.make, other.episode.seed, agents=TableAgent(policy, 1, script), start=start)
    with Runner(policy.agent, host="serial") as runner:
        (branch,) = runner.play([job])
    assert branch.origin is not None
    (mine,), (wanted,) = rows(branch), rows(other.episode)
    assert (mine.ids, mine.turn, mine.logprobs) == (wanted.ids, wanted.turn, wanted.logprobs)
    after = [t >= 1 for t in wanted.turn]
    assert list(mine.mask) == [learn and late for learn, late in zip(wanted.mask, after, strict=True)]


# -- what learn steps estimate


@pytest.mark.system
@pytest.mark.parametrize(
    ("env", "name", "gamma", "verdict"),
    [
        ("bandit", "reinforce", 0.9, "unbiased"),
        ("bandit", "grpo", 0.9, "biased by design: divides by the group's deviation"),
        ("bandit", "minibatches", 0.9, "unbiased"),
        ("bandit", "kl-loss", 0.9, "unbiased"),
        ("bandit", "kl-loss-k1", 0.9, "biased by design: k1 in a loss has no gradient on average"),
        ("bandit", "kl-loss-k3", 0.9, "biased by design: k3 in a loss follows KL(reference, policy)"),
        ("bandit", "stale-weighted", 0.9, "unbiased"),
        ("bandit", "dr_grpo", 0.9, "scaled by 0.75"),
        ("early", "reinforce", 1.0, "unbiased"),
        ("early", "reinforce", 0.3, "biased by design: ignores gamma^t"),
        ("early", "rloo", 0.3, "unbiased"),
        ("early", "kl-reward", 1.0, "unbiased"),
        ("early", "entropy", 1.0, "biased by design: a bonus in the loss does not count"),
        ("early", "ppo-exact-critic", 1.0, "unbiased"),
        ("early", "ppo-lambda-1", 1.0, "unbiased"),
        ("early", "mean-over-turns", 1.0, "biased by design: divides by the turns"),
        ("early", "stale", 1.0, "biased by design: clips; each token counts by its own ratio alone"),
        ("words", "mean-over-tokens", 0.9, "biased by design: divides by the tokens"),
        ("chat", "rloo", 0.9, "unbiased"),
        ("chat", "kl-reward", 1.0, "unbiased"),
        ("chat", "ppo-exact-critic", 1.0, "unbiased"),
        ("broken", "reinforce", 1.0, "scaled by 0.91"),
        ("broken", "rloo", 1.0, "scaled by 0.7"),
        ("noisy", "reinforce", 1.0, "unbiased"),
        ("blind", "reinforce", 1.0, "unbiased"),
        ("blind", "rloo", 0.3, "unbiased"),
        ("blind", "kl-loss", 1.0, "unbiased"),
        ("blind", "ppo-exact-critic", 1.0, "unbiased"),
    ],
)
def test_the_real_learn_step_estimates_what_is_said(judges, env, name, gamma, verdict):
    row = judges[env].row(name, gamma)
    assert row.verdict.startswith(verdict)
    assert row.expected
    if verdict == "unbiased":
        assert row.bias < 1e-5
        assert row.cosine == pytest.approx(1, abs=1e-9)
    elif not verdict.startswith("scaled"):
        assert row.bias > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("env", ["bandit", "words", "early", "chat", "noisy", "broken", "blind"])
@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_no_case_is_unexpected(judges, env, gamma):
    found = [judges[env].row(name, gamma) for name in CASES]
    assert [row for row in found if not row.expected] == []


@pytest.mark.system
def test_where_turns_look_alike_a_small_gamma_follows_the_return_without_discount(judges):
    row = judges["blind"].row("reinforce", 0.3)
    assert row.undiscounted == pytest.approx(1, abs=1e-9)
    assert abs(row.cosine) < 0.1


@pytest.mark.system
def test_whitening_two_episodes_is_what_turns_ppos_step(judges, monkeypatch):
    judged = judges["early"]
    monkeypatch.setitem(CASES, "whitened", Case({"algorithm": "ppo"}, critic="exact", reason="few turns"))
    ppo = judged.row("ppo", 0.9)
    assert judged.row("ppo-plain", 0.9).cosine > 0.99 > 0.9 > judged.row("whitened", 0.9).cosine > ppo.cosine
    assert ppo.cosine < 0.7
    assert judged.row("ppo", 0.9, batch=16, samples=200).cosine > 0.98


def test_a_batch_of_equal_advantages_takes_no_step(judges):
    judged = judges["early"]
    case = CASES["ppo"]
    step = learn_step(judged.listing, judged.policy, judged.exact, case, case.config(0.9, 2), 0)
    outcomes = judged.listing.outcomes(judged.policy)
    stops = [o for o in outcomes if len(o.episode.turns) == 1]
    assert sum(o.probability**2 for o in stops) == pytest.approx(0.49, abs=0.01)
    still = [
        share for share, batch in batches(groups(outcomes, judged.listing.law, 1), 2) if not step(batch).any()
    ]
    assert math.fsum(still) == pytest.approx(0.49, abs=0.01)


def formula(exact, advantages_of, divisor_of, choices, count):
    """The mean step by the textbook: sum of A * grad log pi over a batch, divided, weighed by probability."""
    policy = exact.policy
    table = policy.model.logits.detach().clone().requires_grad_()
    total = 0.0
    for chance, episodes in batches(choices, count):
        advantages = advantages_of([[turn.reward for turn in episode.turns] for episode in episodes])
        loss = 0.0
        for episode, values in zip(episodes, advantages, strict=True):
            for turn, value in zip(episode.turns, values, strict=True):
                held = tuple(turn.prompt_ids)
                for at, token in enumerate(turn.token_ids):
                    column = policy.find((*held, *turn.token_ids[:at]))
                    loss = loss + value * table[:, column].log_softmax(0)[token]
        total = total + chance * loss / divisor_of(episodes)
    (gradient,) = torch.autograd.grad(total, table)
    return gradient


def to_go(rewards):
    return [sum(rewards[t:]) for t in range(len(rewards))]


def group_relative(batch):
    returns = [sum(rewards) for rewards in batch]
    mean, deviation = statistics.fmean(returns), statistics.pstdev(returns)
    return [
        [(total - mean) / deviation if deviation > 1e-9 else 0.0] * len(rewards)
        for total, rewards in zip(returns, batch, strict=True)
    ]


def batch_normalised(batch):
    returns = [to_go(rewards) for rewards in batch]
    flat = [value for turns in returns for value in turns]
    mean, deviation = statistics.fmean(flat), statistics.pstdev(flat)
    return [[(value - mean) / deviation if deviation > 1e-9 else 0.0 for value in turns] for turns in returns]


@pytest.mark.parametrize(
    ("name", "advantages", "divisor"),
    [
        ("grpo", group_relative, len),
        ("rebn", batch_normalised, len),
        ("mean-over-turns", lambda b: list(map(to_go, b)), lambda b: sum(len(e.turns) for e in b)),
    ],
)
def test_a_bias_by_design_is_that_of_the_formula(judges, name, advantages, divisor):
    judged = judges["early"]
    outcomes = judged.listing.outcomes(judged.policy)
    config = CASES[name].config(1.0, 2)
    single = groups(outcomes, judged.listing.law, 1)
    step = learn_step(judged.listing, judged.policy, judged.exact, CASES[name], config, 0)
    found = measure(step, batches(single, 2) if name != "grpo" else one_group(judged, 2), listed=True)
    wanted = formula(judged.exact, advantages, divisor, single, 2)
    assert torch.allclose(found.mean, wanted, rtol=0, atol=1e-6 * float(wanted.norm()))
    assert float(wanted.norm()) > 0.01


def one_group(judged, size):
    return batches(groups(judged.listing.outcomes(judged.policy), judged.listing.law, size), 1)


@pytest.mark.system
def test_turn_level_grpo_without_its_deviation_is_returns_to_go_scaled(judges, monkeypatch):
    monkeypatch.setattr(algorithms, "grpo", partial(grpo, scale=False))
    judged = judges["early"]
    outcomes = judged.listing.outcomes(judged.policy)
    config = CASES["turn_grpo"].config(0.5, 2)
    step = learn_step(judged.listing, judged.policy, judged.exact, CASES["turn_grpo"], config, 0)
    found = measure(step, batches(branches(outcomes, 2), 1), listed=True)
    wanted = 0.5 * judged.exact.gradient(lambda table: judged.exact.to_go(table, 0.5))
    assert torch.allclose(found.mean, wanted, rtol=0, atol=1e-6 * float(wanted.norm()))


def test_where_episodes_are_cut_off_an_exact_critic_stands_in_for_what_would_have_come(listings):
    whole = listings["dense"]
    policy = whole.policy(0)
    full = Exact(policy, whole.outcomes(policy), whole.law)
    cut = Listing(replace(whole.setting, turn_limit=2))
    outcomes = cut.outcomes(policy)
    assert {o.episode.stop for o in outcomes} == {StopReason.TURN_LIMIT}
    case = CASES["ppo-exact-critic"]
    step = learn_step(cut, policy, full, case, case.config(0.9, 2), 0)
    found = measure(step, batches(groups(outcomes, cut.law, 1), 2), listed=True)
    wanted = full.gradient(lambda table: full.to_go(table, 0.9))
    played = torch.tensor([ids in cut.histories for ids in whole.histories])
    assert 0 < int(played.sum()) < len(played)
    assert torch.allclose(found.mean[:, played], wanted[:, played], rtol=0, atol=1e-6)
    assert found.mean[:, ~played].abs().max() == 0


def test_the_spread_of_drawn_batches_is_estimated_without_bias():
    drawn = [torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, 0.0]]), torch.tensor([[2.5, 0.5]])]
    measured = measure(lambda batch: batch, ((1 / 3, each) for each in drawn), listed=False)
    every = torch.stack(drawn)
    trace = float(every.var(0, unbiased=True).sum())
    assert measured.mean[0].tolist() == pytest.approx(every.mean(0)[0].tolist())
    assert (measured.trace, measured.batches) == (pytest.approx(trace, rel=1e-5), 3)
    assert measured.error == pytest.approx(math.sqrt(trace / 3), rel=1e-5)
    listed = measure(lambda batch: batch, ((1 / 3, each) for each in drawn), listed=True)
    assert (listed.trace, listed.error) == (pytest.approx(trace * 2 / 3, rel=1e-5), 0.0)


@pytest.mark.system
def test_drawn_batches_agree_with_listed_ones(judges):
    listed = judges["bandit"].row("reinforce", 1.0, batch=2)
    drawn = judges["bandit"].row("reinforce", 1.0, batch=16, samples=200)
    assert listed.listed
    assert not drawn.listed
    assert drawn.batches == 200
    assert drawn.verdict == "unbiased"
    assert 0 < drawn.bias < 4 * drawn.error < 0.5
    assert drawn.variance == pytest.approx(listed.variance, rel=0.3)  # of an episode, whatever the batch


# -- planted bugs


def negated(advantages):
    return [[-value for value in turns] for turns in advantages]


def a_turn_late(advantages):
    return [[0.0, *turns[:-1]] for turns in advantages]


@pytest.mark.parametrize("bug", [negated, a_turn_late])
def test_wrong_advantages_are_caught(judges, monkeypatch, bug):
    right = ALGORITHMS["reinforce"]
    wrong = replace(right, advantages=lambda view: bug(right.advantages(view)))
    monkeypatch.setitem(ALGORITHMS, "reinforce", wrong)
    row = judges["early"].row("reinforce", 1.0)
    assert not row.expected
    assert row.bias > 0.3


@pytest.mark.system
def test_a_token_that_is_left_out_is_caught(judges, monkeypatch):
    def lacking(episodes, seat):
        return [
            replace(item, row=replace(item.row, mask=mask))
            for item in weigh(episodes, seat)
            if 1 in (mask := [0, 0, 0, *item.row.mask[3:]])  # the prompt has two tokens
        ]

    monkeypatch.setattr(policy_gradient, "weigh", lacking)
    row = judges["words"].row("reinforce", 1.0)
    assert not row.expected
    assert row.bias > 0.3


def test_a_divisor_that_is_off_is_caught(judges, monkeypatch):
    monkeypatch.setattr(steps, "_divisor", lambda rows, episodes, config: episodes + 1)
    row = judges["bandit"].row("reinforce", 1.0)
    assert row.verdict == "UNEXPECTED: scaled by 0.8"
    assert not row.expected


def test_a_baseline_that_knows_the_sample_is_caught(judges, monkeypatch):
    monkeypatch.setitem(CASES, "own-baseline", Case({"algorithm": "dr_grpo"}))
    row = judges["early"].row("own-baseline", 1.0)
    assert row.verdict == "UNEXPECTED: scaled by 0.5"


# -- the command


def test_the_command_prints_a_row_of_each_case(capsys):
    assert cli.main(["oracle", "--env", "bandit", "--algorithm", "reinforce", "dr_grpo"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "bandit: one turn of one token"
    assert lines[3].split()[:2] == ["reinforce", "0.9"]
    assert lines[3].endswith("unbiased")
    assert lines[4].endswith("scaled by 0.75")


def test_the_command_gives_json_and_fails_where_something_is_unexpected(capsys, monkeypatch):
    monkeypatch.setattr(steps, "_divisor", lambda rows, episodes, config: episodes / 2)
    args = ["oracle", "--env", "bandit", "--algorithm", "reinforce", "--json", "--gamma", "0.3", "1"]
    assert cli.main(args) == cli.FAILED
    (row,) = json.loads(capsys.readouterr().out)  # one turn: one discount is as good as another
    assert row["algorithm"] == "reinforce"
    assert row["length"] == pytest.approx(2)
    assert row["expected"] is False


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"envs": ("bandits",)}, "did you mean 'bandit'|no environment 'bandits'"),
        ({"algorithms": ("sarsa",)}, "no algorithm 'sarsa'"),
        ({"gammas": (1.5,)}, "gamma is 1.5"),
        ({"batch": 1}, "batch is 1"),
        ({"samples": 1}, "samples is 1"),
    ],
)
def test_what_cannot_be_judged_is_refused(given, match):
    with pytest.raises(BadArgument, match=match):
        next(judge(**given))


# -- the page


@pytest.mark.system
@pytest.mark.parametrize("name", ["reinforce", "rloo", "grpo", "ppo", "mean-over-turns", "kl-loss"])
def test_the_pages_rows_are_what_the_oracle_says_now(judges, name):
    row = " | ".join(judges["early"].row(name, 0.9).cells())
    page = (Path(__file__).parents[2] / "docs/guides/estimators.md").read_text(encoding="utf-8")
    assert f"\n| {row} |\n" in page, "run `python scripts/oracle_page.py` again"


@pytest.mark.system
@pytest.mark.parametrize(("name", "gamma"), [("reinforce", 0.3), ("rloo", 0.3), ("rebn", 1.0)])
def test_the_pages_rows_of_turns_that_look_alike_are_right(judges, name, gamma):
    row = " | ".join(judges["blind"].row(name, gamma).cells())
    page = (Path(__file__).parents[2] / "docs/guides/estimators_discount.md").read_text(encoding="utf-8")
    assert f"\n| {row} |\n" in page, "run `python scripts/oracle_page.py` again"


def test_the_page_has_each_row_once_in_the_order_of_the_table():
    page = (Path(__file__).parents[2] / "docs/guides/estimators.md").read_text(encoding="utf-8")
    table = page.partition("<!-- algorithms: ")[2].partition("<!-- end -->")[0]
    assert re.findall(r"^\| ([\w-]+) \| 0", table, re.MULTILINE) == list(CASES)


@pytest.mark.slow
def test_the_pages_are_what_the_oracle_says_now():
    file = Path(__file__).parents[2] / "scripts/oracle_page.py"
    spec = importlib.util.spec_from_file_location("oracle_page", file)
    oracle_page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle_page)
    for path in oracle_page.PAGES:
        page = path.read_text(encoding="utf-8")
        assert oracle_page.fill_page(page) == page, "run `python scripts/oracle_page.py` again"
