"""The algorithms that the oracle judges, as configs of the trainer, and what each is known to estimate.

A case states its objective, then what it may estimate instead. Each of these is a function whose gradient is
compared with the mean of the real learn step. Last comes the reason why the step may match none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from gem import seeding
from gem.estimators.algorithms import ALGORITHMS, GROUP_STD, find_algorithm
from gem.record import Episode
from gem.train.config import TrainConfig
from gem.train.learn import policy_gradient
from gem.train.learn.learner import Critic
from gem.train.learn.steps import Progress
from gem.train.oracle.exact import Exact, Listing
from gem.train.oracle.measure import LearnStep, Probe
from gem.train.oracle.table import TablePolicy

Scalar = Callable[[Tensor], Tensor]
"""A function of a table; the gradient of its result is computed."""

NO_GAMMA = "ignores gamma^t"
KL, ENTROPY = 0.2, 0.1
"""Weights of the divergence and of the entropy, where a case has them."""
STALE = 0.2
"""The standard deviation of the sampler's logits from the learner's, where samples are stale."""


@dataclass(frozen=True)
class Case:
    """An algorithm with its settings, and what it may estimate.

    `settings`: those of TrainConfig. `stale`: whether older weights sampled. `critic`: whether values are
    exact, wrong, or none. `objective` and `instead`: names of methods of Aims, the latter by what is wrong
    with them. `reason`: why the mean step may match none of these; None: it must match one. `scale`: the
    known length of the mean step over that of its aim, as a function of the batch's size. `split`: a batch is
    taken in two minibatches, so that its order matters.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    objective: str = "mean_return"
    instead: Mapping[str, str] = field(default_factory=lambda: {NO_GAMMA: "to_go"})
    reason: str | None = None
    stale: bool = False
    critic: Literal["none", "exact", "wrong"] = "none"
    scale: Callable[[int], float] = lambda batch: 1.0
    split: bool = False

    def config(self, gamma: float, batch: int) -> TrainConfig:
        """Return the trainer's config; algorithms that compare episodes compare those of the whole batch."""
        given: dict[str, Any] = {"algorithm": "reinforce", "kl": 0.0, "epochs": 1, **self.settings}
        if self.split:
            given["minibatch"] = batch - 1
        return TrainConfig.fit(**{**given, "gamma": gamma, "batch": batch, "group": batch})


class Aims:
    """Objectives at one gamma, and what may be estimated instead, each a scalar function of the table."""

    def __init__(self, exact: Exact, gamma: float, reference: Tensor, older: Tensor) -> None:
        """Take the exact sums; `reference`: for divergence, `older`: the sampler's table, each (V, D)."""
        self.exact, self.gamma, self.reference, self.older = exact, gamma, reference, older

    def mean_return(self, table: Tensor) -> Tensor:
        """Return the mean discounted return."""
        return self.exact.mean_return(table, self.gamma)

    def to_go(self, table: Tensor) -> Tensor:
        """Return the objective that lacks the factor gamma^t; see Exact.to_go."""
        return self.exact.to_go(table, self.gamma)

    def clipped_surrogate(self, table: Tensor) -> Tensor:
        """Return PPO's clipped surrogate on stale samples."""
        return self.exact.surrogate(table, self.older, self.gamma, clip=TrainConfig.clip)

    def weighed_surrogate(self, table: Tensor) -> Tensor:
        """Return the surrogate with each token's own importance weight."""
        return self.exact.surrogate(table, self.older, self.gamma)

    def weighed_to_one(self, table: Tensor) -> Tensor:
        """Return the surrogate with importance weights of at most 1."""
        return self.exact.surrogate(table, self.older, self.gamma, cap=1.0)

    def less_kl(self, table: Tensor) -> Tensor:
        """Return the mean return minus the weighted divergence."""
        return self.mean_return(table) - KL * self.exact.mean_kl(table, self.reference)

    def less_kl_at_visited(self, table: Tensor) -> Tensor:
        """Return to_go() minus the weighted divergence at the visited histories."""
        return self.to_go(table) - KL * self.exact.kl_at_visited(table, self.reference)

    def less_reverse_kl(self, table: Tensor) -> Tensor:
        """Return to_go() minus the weighted KL(reference, policy) at the visited histories."""
        return self.to_go(table) - KL * self.exact.reverse_kl_at_visited(table, self.reference)

    def less_discounted_kl(self, table: Tensor) -> Tensor:
        """Return the mean return minus the weighted divergence, which is discounted too."""
        return self.mean_return(table) - KL * self.exact.mean_kl(table, self.reference, self.gamma)

    def less_kl_to_go(self, table: Tensor) -> Tensor:
        """Return less_discounted_kl() without the factor gamma^t."""
        return self.exact.to_go(table, self.gamma, self.reference, KL)

    def with_entropy(self, table: Tensor) -> Tensor:
        """Return the mean return plus the weighted entropy."""
        return self.mean_return(table) + ENTROPY * self.exact.mean_entropy(table)

    def with_entropy_at_visited(self, table: Tensor) -> Tensor:
        """Return to_go() plus the weighted entropy at the visited histories."""
        return self.to_go(table) + ENTROPY * self.exact.entropy_at_visited(table)


def case_of(name: str) -> Case:
    """Return the case of an algorithm with its own defaults; it says itself what it estimates.

    Raises:
        BadArgument: where there is none.
    """
    algorithm = find_algorithm(name)
    return Case(
        {"algorithm": name},
        critic="wrong" if algorithm.critic else "none",
        reason=algorithm.bias or None,
        scale=algorithm.scale,
    )


AT_VISITED = "a bonus in the loss does not count where the policy goes"
OWN_RATIO = "each token counts by its own ratio alone"
CASES: dict[str, Case] = {
    **{name: case_of(name) for name in ALGORITHMS},
    "ppo-plain": Case(
        {"algorithm": "ppo", "whiten": False}, critic="wrong", reason="lambda below 1 trusts a wrong critic"
    ),
    "ppo-lambda-1": Case({"algorithm": "ppo", "whiten": False, "lam": 1.0}, critic="wrong"),
    "ppo-exact-critic": Case({"algorithm": "ppo", "whiten": False}, critic="exact"),
    "minibatches": Case(split=True),
    "mean-over-turns": Case(
        {"normalise": "turn"}, reason="divides by the turns of the batch, which the policy controls"
    ),
    "mean-over-tokens": Case(
        {"normalise": "token"}, reason="divides by the tokens of the batch, which the policy controls"
    ),
    "stale": Case(stale=True, instead={f"{NO_GAMMA}; clips; {OWN_RATIO}": "clipped_surrogate"}),
    "stale-weighted": Case(
        {"importance_cap": 1e9}, stale=True, instead={f"{NO_GAMMA}; {OWN_RATIO}": "weighed_surrogate"}
    ),
    "stale-cut": Case(
        {"importance_cap": 1.0},
        stale=True,
        instead={f"{NO_GAMMA}; cuts weights; {OWN_RATIO}": "weighed_to_one"},
    ),
    "rloo-stale": Case({"algorithm": "rloo"}, stale=True, reason=f"clips; {OWN_RATIO}"),
    "gspo-stale": Case({"algorithm": "gspo"}, stale=True, reason=f"{GROUP_STD}; clips all but tiny ratios"),
    "kl-loss": Case(
        {"kl": KL}, objective="less_kl", instead={f"{NO_GAMMA}; {AT_VISITED}": "less_kl_at_visited"}
    ),
    "kl-loss-k1": Case(
        {"kl": KL, "kl_estimator": "k1"},
        objective="less_kl",
        instead={f"{NO_GAMMA}; k1 in a loss has no gradient on average": "to_go"},
    ),
    "kl-loss-k2": Case(
        {"kl": KL, "kl_estimator": "k2"},
        objective="less_kl",
        instead={f"{NO_GAMMA}; {AT_VISITED}": "less_kl_at_visited"},
    ),
    "kl-loss-k3": Case(
        {"kl": KL, "kl_estimator": "k3"},
        objective="less_kl",
        instead={f"{NO_GAMMA}; k3 in a loss follows KL(reference, policy)": "less_reverse_kl"},
    ),
    "kl-reward": Case(
        {"kl": KL, "kl_reward": True},
        objective="less_discounted_kl",
        instead={NO_GAMMA: "less_kl_to_go"},
    ),
    "entropy": Case(
        {"entropy": ENTROPY},
        objective="with_entropy",
        instead={f"{NO_GAMMA}; {AT_VISITED}": "with_entropy_at_visited"},
    ),
}
"""The algorithms that the oracle judges, by name."""


def reference(listing: Listing, seed: int) -> TablePolicy:
    """Return the policy that divergence is measured from."""
    return listing.policy(seeding.derive(seed, "reference"))


def sampler(listing: Listing, policy: TablePolicy, case: Case, seed: int) -> TablePolicy:
    """Return the policy that samples: the trained one, or an older one."""
    if not case.stale:
        return policy
    older = listing.policy(seeding.derive(seed, "stale"), STALE)
    return listing.with_logits(policy.model.logits + older.model.logits)


def learn_step(
    listing: Listing, policy: TablePolicy, exact: Exact, case: Case, config: TrainConfig, seed: int
) -> LearnStep:
    """Return the real learn step of a case, as a function from a batch to the step's direction."""
    critic = None
    if case.critic != "none":
        critic = Critic(policy.width).double()
        with torch.no_grad():
            for column, value in exact.values(config.gamma).items():
                critic.head.weight[0, column] = value
            if case.critic == "wrong":
                generator = torch.Generator().manual_seed(seed)
                noise = torch.randn(policy.width, generator=generator, dtype=torch.float64)
                critic.head.weight[0] += 0.5 * noise
    learner = Probe(policy, critic=critic, reference=reference(listing, seed) if config.kl else None)
    start = Progress(0, 1)

    def step(episodes: Sequence[Episode]) -> Tensor:
        learner.step_gradients = []
        policy_gradient.learn(learner, episodes, config, start)
        if not learner.step_gradients:  # no advantage differs from 0
            return torch.zeros_like(policy.model.logits)
        return torch.stack(learner.step_gradients).mean(0)

    return step
