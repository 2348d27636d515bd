"""Algorithms on one exact game with policies whose optimum is known: a table, and a linear one.

``python -m bench.algorithms``. The game is ``game:GuessTheNumber-v0-easy`` with its dense rewards. A policy
sees the turn and the numbers that are still possible, and draws one of the ten guesses or an unreadable
answer, in one token. The table has logits for each state; the linear policy shares weights between states.
Both start from uniform play with a small share of unreadable answers.

Advantages are those of `gem.estimators.ALGORITHMS`; batch, epochs, clip and divergence are those of the study
``baselines/dense.toml``. Each variant gets the step size that is best on two other seeds. Success and
unreadable share are exact: computed over the game's tree, as the secret is uniform among what is possible.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import gem
from bench.common import choose_size, parse_args, table, write_json
from gem import seeding
from gem.estimators import View, discounted_returns, normalised
from gem.statistics import mean_interval
from gem.train.config import TrainConfig
from gem.train.learn.losses import clipped_surrogate, value_loss
from gem.train.learn.policy_gradient import make_targets
from gem.train.learn.steps import Progress

GAME = "game:GuessTheNumber-v0-easy"
NUMBERS, TURNS = 10, 4
UNREADABLE = NUMBERS
"""The action that is no guess; the others are a guess less 1."""
START_UNREADABLE = 0.015
"""The share of unreadable answers before RL, as the tiny model's warm-up leaves it."""

VARIANTS: dict[str, dict[str, Any]] = {
    "reinforce": {"algorithm": "reinforce", "gamma": 0.9},
    "reinforce, gamma 1": {"algorithm": "reinforce", "gamma": 1.0},
    "rebn": {"algorithm": "rebn", "gamma": 0.9},
    "rebn, gamma 0.3": {"algorithm": "rebn", "gamma": 0.3},
    "turn_rebn": {"algorithm": "turn_rebn", "gamma": 0.9},
    "turn_rebn, gamma 0.3": {"algorithm": "turn_rebn", "gamma": 0.3},
    "rloo": {"algorithm": "rloo"},
    "grpo": {"algorithm": "grpo"},
    "grpo, gamma 0.9": {"algorithm": "grpo", "gamma": 0.9},
    "dr_grpo": {"algorithm": "dr_grpo"},
    "ppo": {"algorithm": "ppo", "gamma": 0.9},
}
EPISODES = choose_size(12_800, 256)
SEEDS = choose_size(range(1, 11), range(1, 2))
SEARCH_SEEDS = choose_size((101, 102), ())
RATES = (0.03, 0.1, 0.3, 1.0)
"""The step sizes of the search; the smallest form takes the last."""


@dataclass(frozen=True)
class States:
    """The states of the game, by turn and possible numbers, and what the policies know of them.

    S: states. F: features. `index`: the number of a state. `table_SF`, `linear_SF`: features, of which the
    linear ones are the turn, the lowest and the highest possible number, each one-hot.
    """

    index: dict[tuple[int, int, int], int]
    table_SF: Tensor
    linear_SF: Tensor


@cache
def states() -> States:
    """Return all states."""
    pairs = [(low, high) for low in range(1, NUMBERS + 1) for high in range(low, NUMBERS + 1)]
    index = {(turn, *pair): 0 for turn in range(TURNS) for pair in pairs}
    index = {state: number for number, state in enumerate(index)}
    rows = torch.tensor(list(index))
    parts = [
        nn.functional.one_hot(rows[:, 0], TURNS),
        nn.functional.one_hot(rows[:, 1] - 1, NUMBERS),
        nn.functional.one_hot(rows[:, 2] - 1, NUMBERS),
    ]
    return States(index, torch.eye(len(index)), torch.cat(parts, 1).float())


class Policy(nn.Module):
    """Logits (S, A) and values (S,) that are linear in features of the states."""

    def __init__(self, features_SF: Tensor, shares: int) -> None:
        """Start uniform; `shares`: the number of leading features of which each state has exactly one."""
        super().__init__()
        self.features_SF = features_SF
        self.head = nn.Linear(features_SF.shape[1], NUMBERS + 1, bias=False)
        self.critic = nn.Linear(features_SF.shape[1], 1, bias=False)
        with torch.no_grad():
            self.head.weight.zero_()
            self.critic.weight.zero_()
            odds = NUMBERS * START_UNREADABLE / (1 - START_UNREADABLE)
            self.head.weight[UNREADABLE, :shares] = torch.tensor(odds).log()

    def logprobs(self) -> Tensor:
        """Return the log probability of each action in each state, (S, A)."""
        return self.head(self.features_SF).log_softmax(-1)

    def values(self) -> Tensor:
        """Return the critic's value of each state, (S,)."""
        return self.critic(self.features_SF)[:, 0]


def make_policy(kind: str) -> Policy:
    """Return a policy that has learnt nothing."""
    known = states()
    return Policy(known.table_SF, len(known.index)) if kind == "table" else Policy(known.linear_SF, TURNS)


@dataclass
class Played:
    """Episodes as a batch: lists over episodes of their turns' states, actions and rewards, and a group."""

    states: list[list[int]]
    actions: list[list[int]]
    rewards: list[list[float]]
    groups: list[str]


def play(policy: Policy, config: TrainConfig, iteration: int, envs: Sequence[Any]) -> Played:
    """Play a batch; with a grouped algorithm `config.group` episodes have the same secret."""
    index = states().index
    with torch.no_grad():
        probability_SA = policy.logprobs().exp()
    generator = torch.Generator().manual_seed(seeding.derive(config.seed, "actions", iteration) >> 1)
    samples = config.group if config.grouped else 1
    tasks = [seeding.derive(config.seed, iteration, each // samples) for each in range(len(envs))]
    played = Played([[] for _ in envs], [[] for _ in envs], [[] for _ in envs], list(map(str, tasks)))
    for env, task in zip(envs, tasks, strict=True):
        env.reset(seed=task)
    going = list(range(len(envs)))
    for turn in range(TURNS):
        at = [index[turn, envs[e].low, envs[e].high] for e in going]
        actions = torch.multinomial(probability_SA[at], 1, generator=generator)[:, 0].tolist()
        left = []
        for e, state, action in zip(going, at, actions, strict=True):
            text = "none" if action == UNREADABLE else f"\\boxed{{{action + 1}}}"
            _, reward, terminated, truncated, _ = envs[e].step(text)
            played.states[e].append(state)
            played.actions[e].append(action)
            played.rewards[e].append(float(reward))
            if not (terminated or truncated):
                left.append(e)
        going = left
        if not going:
            break
    return played


def train(kind: str, settings: dict[str, Any], lr: float, seed: int) -> dict[str, float]:
    """Train a policy, and return its exact success and unreadable share, and the entropy of its play."""
    config = TrainConfig.fit(**{"batch": 128, "kl": 0.05, **settings}, lr=lr, seed=seed, episodes=EPISODES)
    torch.manual_seed(seed)
    policy = make_policy(kind)
    with torch.no_grad():
        reference_SA = policy.logprobs()
    optimiser = torch.optim.AdamW(
        policy.parameters(), lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )
    envs = [gem.make(GAME).unwrapped for _ in range(config.batch)]
    iterations = EPISODES // config.batch
    order = torch.Generator().manual_seed(seed)
    entropy = norm = 0.0
    for iteration in range(iterations):
        played = play(policy, config, iteration, envs)
        turns = [(e, t) for e, each in enumerate(played.states) for t in range(len(each))]
        episode_N = torch.tensor([e for e, _ in turns])
        state_N = torch.tensor([played.states[e][t] for e, t in turns])
        action_N = torch.tensor([played.actions[e][t] for e, t in turns])
        with torch.no_grad():
            old_SA, values = policy.logprobs(), policy.values().tolist()
        targets = make_targets(config, view_of(played, config, values))
        flat = [targets[e][t] for e, t in turns]
        advantages = [target.advantage for target in flat]
        if config.algorithm_value.critic and config.whiten:
            advantages = normalised(advantages)
        advantage_N = torch.tensor(advantages)
        returns_N = torch.tensor([target.returns for target in flat])
        value_N = torch.tensor([target.value for target in flat])
        progress = Progress(iteration, iterations)
        for group in optimiser.param_groups:
            group["lr"] = config.lr_at(iteration, 0)
        for _ in range(config.epochs):
            for part in torch.randperm(config.batch, generator=order).split(config.minibatch):
                n = torch.isin(episode_N, part).nonzero()[:, 0]
                logp_SA = policy.logprobs()
                at_n, act_n = state_N[n], action_N[n]
                step = clipped_surrogate(
                    logp_SA[at_n, act_n],
                    old_SA[at_n, act_n],
                    advantage_N[n],
                    clip_low=config.clip,
                    clip_high=config.clip_high or config.clip,
                )
                probability_nA = logp_SA[at_n].exp()
                divergence = (probability_nA * (logp_SA[at_n] - reference_SA[at_n])).sum()
                entropy = -(probability_nA * logp_SA[at_n]).sum(-1).mean().item()
                loss = step.loss + progress.kl(config) * divergence
                if config.algorithm_value.critic:
                    error = value_loss(policy.values()[at_n], value_N[n], returns_N[n], config.value_clip)
                    loss = loss + config.value_weight * error
                optimiser.zero_grad()
                (loss / len(part)).backward()
                norm = float(nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm))
                optimiser.step()
    success, unreadable = measure(policy)
    return {"success": success, "unreadable": unreadable, "entropy": entropy, "grad_norm": norm}


def view_of(played: Played, config: TrainConfig, values: Sequence[float]) -> View:
    """Return what an algorithm sees of a batch; `values`: the critic's, by state."""
    critic = config.algorithm_value.critic
    return View(
        episodes=(),
        seat="",
        rewards=played.rewards,
        returns=[discounted_returns(rewards, config.gamma) for rewards in played.rewards],
        groups=played.groups,
        starts=[0] * len(played.rewards),
        gamma=config.gamma,
        lam=config.lam,
        values=[[values[state] for state in own] for own in played.states] if critic else (),
        bootstraps=[0.0] * len(played.rewards) if critic else (),
    )


@torch.no_grad()
def measure(policy: Policy) -> tuple[float, float]:
    """Return the exact probabilities that an episode succeeds, and that it ends unreadable."""
    probability_SA = policy.logprobs().double().exp().tolist()
    index = states().index

    @cache
    def ends(turn: int, low: int, high: int) -> tuple[float, float]:
        if turn == TURNS:
            return 0.0, 0.0
        chances = probability_SA[index[turn, low, high]]
        success, unreadable = 0.0, chances[UNREADABLE]
        for guess in range(1, NUMBERS + 1):
            size, chance = high - low + 1, chances[guess - 1]
            parts = [(max(0, min(guess - 1, high) - low + 1), low, min(guess - 1, high))]
            parts.append((max(0, high - max(guess + 1, low) + 1), max(guess + 1, low), high))
            success += chance * (low <= guess <= high) / size
            for count, first, last in parts:
                if count:
                    won, lost = ends(turn + 1, first, last)
                    success += chance * count / size * won
                    unreadable += chance * count / size * lost
        return success, unreadable

    return ends(0, 1, NUMBERS)


def find_rate(kind: str, settings: dict[str, Any]) -> float:
    """Return the step size with the best mean success on the seeds of the search."""
    if not SEARCH_SEEDS:
        return RATES[-1]
    return max(
        RATES, key=lambda lr: fmean(train(kind, settings, lr, seed)["success"] for seed in SEARCH_SEEDS)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kl", type=float, default=0.05, help="weight of the divergence")
    args = parse_args(parser)
    torch.set_num_threads(1)
    rows, results = [], []
    for kind in ("table", "linear"):
        base: list[float] = []
        for name, own in VARIANTS.items():
            settings = {**own, "kl": args.kl}
            lr = find_rate(kind, settings)
            runs = [train(kind, settings, lr, seed) for seed in SEEDS]
            success = [run["success"] for run in runs]
            base = base or success
            ahead = mean_interval([one - other for one, other in zip(success, base, strict=True)])
            figures = {each: fmean(run[each] for run in runs) for each in runs[0]}
            results.append({"policy": kind, "variant": name, "lr": lr, "runs": runs})
            against = f"{100 * ahead.mean:+.1f} ({100 * ahead.low:+.1f} to {100 * ahead.high:+.1f})"
            rows.append((f"{kind}: {name}", lr, *figures.values(), against if name != "reinforce" else ""))
            print(*rows[-1], flush=True)
    heads = ("policy: variant", "lr", "success", "unreadable", "entropy", "gradient", "minus reinforce")
    table(f"guess 1 to {NUMBERS}, {EPISODES} episodes, {len(SEEDS)} seeds", heads, rows)
    write_json("algorithms", results)


if __name__ == "__main__":
    main()
