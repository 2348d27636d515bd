"""All episodes of a small environment, with its objectives and their exact gradients.

The episodes are played by the real runner, with every answer and in every world. The probability of an
episode follows from its world's and from those of its tokens in the table. Gradients are of sums over all
episodes, by automatic differentiation in float64.

D: histories. V: tokens that can be sampled. E: episodes. L: tokens of the longest episode. T: its turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, product

import torch
from torch import Tensor

from gem import seeding
from gem.estimators import discounted_returns
from gem.record import Episode, Limits
from gem.rollout import Job, Runner
from gem.train.oracle.envs import Setting, World
from gem.train.oracle.table import Ids, LetterRenderer, TableAgent, TablePolicy


@dataclass(frozen=True, slots=True)
class Outcome:
    """One possible episode: its world, its probability (including its world's), and its record."""

    world: World
    probability: float
    episode: Episode


class Listing:
    """All episodes of a setting: its worlds, and the answers that are possible in each."""

    def __init__(self, setting: Setting) -> None:
        """Play them all once, without a policy."""
        self.setting = setting
        self.renderer = LetterRenderer(setting.letters)
        self.law = setting.make().worlds()
        self.seeds = _seeds(setting, self.law)
        self.paths = [(world, path) for world in self.law for path in self._paths(world)]
        episodes = self._play(self.renderer, self.paths)
        self.histories = sorted({ids for episode in episodes for ids, _, _ in _tokens(episode)})

    def policy(self, seed: int, spread: float = 1.0) -> TablePolicy:
        """Return a policy with normally distributed logits of standard deviation `spread`."""
        generator = torch.Generator().manual_seed(seeding.derive(seed, "oracle") & (1 << 63) - 1)
        shape = (self.renderer.sampled, len(self.histories))
        logits_VD = spread * torch.randn(shape, generator=generator, dtype=torch.float64)
        return self.with_logits(logits_VD)

    def with_logits(self, logits_VD: Tensor) -> TablePolicy:
        """Return a policy of these logits."""
        return TablePolicy(self.renderer, self.histories, logits_VD, self.setting.max_tokens)

    def outcomes(self, policy: TablePolicy) -> list[Outcome]:
        """Return every episode as `policy` plays it; the probabilities sum to 1."""
        episodes = self._play(policy, self.paths)
        probability_DV = policy.model.logits.detach().softmax(0).T.tolist()
        outcomes = []
        for (world, _), episode in zip(self.paths, episodes, strict=True):
            share = self.law[world]
            for ids, token, _ in _tokens(episode):
                share *= probability_DV[policy.find(ids)][token]
            outcomes.append(Outcome(world, share, episode))
        return outcomes

    def answers(self) -> list[Ids]:
        """Return every answer: letters and the end, or as many letters as tokens are allowed."""
        end, longest = self.renderer.end, self.setting.max_tokens
        ended = [(*letters, end) for n in range(longest) for letters in product(range(end), repeat=n)]
        return [*ended, *product(range(end), repeat=longest)]

    def _paths(self, world: World) -> list[tuple[Ids, ...]]:
        """Return the answers of every episode in a world, by playing on from each beginning."""
        answers = self.answers()
        open_paths: list[tuple[Ids, ...]] = [()]
        paths: list[tuple[Ids, ...]] = []
        while open_paths:
            tried = [(*path, answer) for path in open_paths for answer in answers]
            episodes = self._play(self.renderer, [(world, path) for path in tried])
            open_paths = []
            for path, episode in zip(tried, episodes, strict=True):
                # The script is followed by empty answers: an episode of more turns goes on behind it.
                (paths if len(episode.turns) == len(path) else open_paths).append(path)
        return paths

    def _play(
        self, policy: TablePolicy | LetterRenderer, paths: Sequence[tuple[World, tuple[Ids, ...]]]
    ) -> list[Episode]:
        longest = self.setting.max_tokens
        jobs = [
            Job(self.setting.make, self.seeds[world], agents=TableAgent(policy, longest, path), key=str(n))
            for n, (world, path) in enumerate(paths)
        ]
        limits = Limits(turns=self.setting.turn_limit)
        agent, history = TableAgent(policy, longest), self.setting.history
        with Runner(agent, host="serial", retries=0, limits=limits, history=history) as runner:
            return runner.play(jobs)


class Exact:
    """Objectives of a policy over all its episodes that have a verdict, and their gradients (V, D).

    `table` in every method: logits (V, D), with gradient where one is wanted.
    """

    def __init__(self, policy: TablePolicy, outcomes: Sequence[Outcome], law: dict[World, float]) -> None:
        """Arrange the episodes as tensors."""
        scored = [outcome for outcome in outcomes if outcome.episode.scored]
        self.policy = policy
        tokens = [_tokens(outcome.episode) for outcome in scored]
        longest = max(map(len, tokens))
        turns = max(len(outcome.episode.turns) for outcome in scored)
        self.column_EL = torch.zeros((len(scored), longest), dtype=torch.long)
        self.token_EL = torch.zeros_like(self.column_EL)
        self.turn_EL = torch.zeros_like(self.column_EL)
        self.there_EL = torch.zeros(self.column_EL.shape, dtype=torch.float64)
        self.reward_ET = torch.zeros((len(scored), turns), dtype=torch.float64)
        self.law_E = torch.tensor([law[outcome.world] for outcome in scored], dtype=torch.float64)
        for e, (outcome, own_tokens) in enumerate(zip(scored, tokens, strict=True)):
            for at, (ids, token, turn) in enumerate(own_tokens):
                self.column_EL[e, at] = policy.find(ids)
                self.token_EL[e, at], self.turn_EL[e, at], self.there_EL[e, at] = token, turn, 1.0
            for t, played in enumerate(outcome.episode.turns):
                self.reward_ET[e, t] = played.reward or 0.0

    # -- objectives

    def shares(self, table: Tensor) -> Tensor:
        """Return the probability of each episode among those with a verdict, (E,)."""
        share_E = self.law_E * self.logprobs(table).sum(1).exp()
        return share_E / share_E.sum()

    def logprobs(self, table: Tensor) -> Tensor:
        """Return the log probability of each token, (E, L); 0 after an episode's end."""
        return table.log_softmax(0)[self.token_EL, self.column_EL] * self.there_EL

    def mean_return(self, table: Tensor, gamma: float) -> Tensor:
        """Return ``J = E[sum_t gamma^t r_t]``."""
        return self.shares(table) @ (self.reward_ET @ self._powers(gamma))

    def mean_kl(self, table: Tensor, reference: Tensor, gamma: float = 1.0) -> Tensor:
        """Return the mean over episodes of the sum of KL(policy, reference) at their tokens' histories.

        Those of turn t are weighted by gamma^t.
        """
        weight_EL = self._powers(gamma)[self.turn_EL] * self.there_EL
        return self.shares(table) @ (self._kl(table, reference)[self.column_EL] * weight_EL).sum(1)

    def mean_entropy(self, table: Tensor) -> Tensor:
        """Return the mean over episodes of the sum of the entropy at their tokens' histories, in nats."""
        return self.shares(table) @ (self._entropy(table)[self.column_EL] * self.there_EL).sum(1)

    # -- what estimators estimate instead

    def to_go(
        self, table: Tensor, gamma: float, reference: Tensor | None = None, weight: float = 0.0
    ) -> Tensor:
        """Return a scalar whose gradient is ``E[sum_t grad log pi_t * G_t]``.

        With ``G_t = sum_k gamma^(k-t) r_k``: the policy gradient without the factor gamma^t of turn t, which
        nearly all implementations leave out (Thomas, Bias in natural actor-critic algorithms, ICML 2014).
        With `reference`, `weight` times ``log pi - log reference`` of a turn's tokens is subtracted from its
        reward.
        """
        reward_ET = self.reward_ET
        if reference is not None:
            ratio_EL = (self.logprobs(table) - self.logprobs(reference)).detach()
            reward_ET = reward_ET.scatter_add(1, self.turn_EL, -weight * ratio_EL)
        rows = [discounted_returns(row, gamma) for row in reward_ET.tolist()]
        returns_ET = torch.tensor(rows, dtype=torch.float64)
        weight_EL = returns_ET.gather(1, self.turn_EL)
        return self.shares(table).detach() @ (self.logprobs(table) * weight_EL).sum(1)

    def surrogate(
        self, table: Tensor, older: Tensor, gamma: float, *, clip: float = 1e9, cap: float = 1e9
    ) -> Tensor:
        """Return the mean of PPO's clipped surrogate over episodes that the table `older` sampled.

        Each token has the ratio of its own probabilities, clipped by `clip`, or held to at most `cap`.
        """
        rows = [discounted_returns(row, gamma) for row in self.reward_ET.tolist()]
        advantage_EL = torch.tensor(rows, dtype=torch.float64).gather(1, self.turn_EL) * self.there_EL
        logprob_EL = self.logprobs(table)
        weight_EL = (logprob_EL - self.logprobs(older)).exp().detach()
        ratio_EL = weight_EL * (logprob_EL - logprob_EL.detach()).exp()
        held_EL = ratio_EL.clamp(1 - clip, 1 + clip)
        surrogate_EL = torch.minimum(ratio_EL * advantage_EL, held_EL * advantage_EL)
        cut_EL = weight_EL.clamp(max=cap) / weight_EL
        return self.shares(older).detach() @ (surrogate_EL * cut_EL).sum(1)

    def kl_at_visited(self, table: Tensor, reference: Tensor) -> Tensor:
        """Return mean_kl() with the visited histories held fixed, as a KL term in a loss has them."""
        at_EL = self._kl(table, reference)[self.column_EL] * self.there_EL
        return self.shares(table).detach() @ at_EL.sum(1)

    def reverse_kl_at_visited(self, table: Tensor, reference: Tensor) -> Tensor:
        """Return the mean of KL(reference, policy) with the visited histories held fixed."""
        at_EL = self._kl(reference, table)[self.column_EL] * self.there_EL
        return self.shares(table).detach() @ at_EL.sum(1)

    def entropy_at_visited(self, table: Tensor) -> Tensor:
        """Return mean_entropy() with the visited histories held fixed."""
        return self.shares(table).detach() @ (self._entropy(table)[self.column_EL] * self.there_EL).sum(1)

    # -- values

    def values(self, gamma: float) -> dict[int, float]:
        """Return the policy's value of the state before each turn, by the column of its first token."""
        share_E = self.shares(self.policy.model.logits.detach())
        rows = [discounted_returns(row, gamma) for row in self.reward_ET.tolist()]
        weight: dict[int, float] = {}
        total: dict[int, float] = {}
        for e, share in enumerate(share_E.tolist()):
            counted: set[int] = set()
            for at in range(int(self.there_EL[e].sum())):
                turn, column = int(self.turn_EL[e, at]), int(self.column_EL[e, at])
                if turn not in counted:
                    counted.add(turn)
                    weight[column] = weight.get(column, 0.0) + share
                    total[column] = total.get(column, 0.0) + share * rows[e][turn]
        return {column: total[column] / weight[column] for column in weight}

    # -- gradients

    def gradient(self, objective: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the gradient of an objective of the table, (V, D), at the policy's table."""
        table = self.policy.model.logits.detach().clone().requires_grad_()
        (gradient_VD,) = torch.autograd.grad(objective(table), table)
        return gradient_VD

    def _powers(self, gamma: float) -> Tensor:
        exponents = torch.arange(self.reward_ET.shape[1], dtype=torch.float64)
        return torch.tensor(gamma, dtype=torch.float64) ** exponents

    @staticmethod
    def _kl(one: Tensor, other: Tensor) -> Tensor:
        """Return KL(one, other) of each history, (D,)."""
        logp, logq = one.log_softmax(0), other.log_softmax(0)
        return (logp.exp() * (logp - logq)).sum(0)

    @staticmethod
    def _entropy(table: Tensor) -> Tensor:
        logp = table.log_softmax(0)
        return -(logp.exp() * logp).sum(0)


def _tokens(episode: Episode) -> list[tuple[Ids, int, int]]:
    """Return, of each sampled token, the history before it, the token, and its turn."""
    tokens = []
    for number, turn in enumerate(episode.turns):
        before = tuple(turn.prompt_ids)
        for at, token in enumerate(turn.token_ids):
            tokens.append(((*before, *turn.token_ids[:at]), token, number))
    return tokens


def _seeds(setting: Setting, law: dict[World, float]) -> dict[World, int]:
    """Return for each world a seed that draws it."""
    env = setting.make()
    seeds: dict[World, int] = {}
    for seed in count():
        env.reset(seed=seed)
        seeds.setdefault(env.world, seed)
        if len(seeds) == len(law):
            return seeds
    raise AssertionError  # count() does not end
