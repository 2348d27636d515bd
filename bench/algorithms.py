"""Algorithms on one exact game with policies whose optimum is known: a table, and a linear one.

``python -m bench.algorithms``. The game is ``game:GuessTheNumber-v0-easy`` with its dense rewards. A policy
sees the turn and the numbers that are still possible, and draws one of the ten guesses or an unreadable
answer, in one token. The table has logits for each state; the linear policy shares weights between states.
Both start from uniform play with a small share of unreadable answers.

Advantages are those of `gem.estimators.ALGORITHMS`; batch, epochs, clip and divergence are those of the study
``baselines/dense.toml``. Each algorithm has at each discount the step size that is best on four other seeds.
``--against NAME:GAMMA`` names the cell that the others are compared with, paired by seed.
Success, unreadable share and turns are exact: computed over the game's tree, as the secret is uniform among
what is possible. Rows go into ``bench/rows/algorithms.jsonl``, each when its run ends; the command goes on
from there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

import gem
from bench.common import HERE, OUT, SMALLEST, choose_size, parse_args, table, write_json
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

ALGORITHMS = choose_size(
    ("reinforce", "rebn", "turn_rebn", "rloo", "grpo", "dr_grpo", "ppo"), ("reinforce", "grpo", "ppo")
)
GAMMAS = choose_size((0.3, 0.9, 1.0), (0.9,))
EPISODES = choose_size(12_800, 256)
SEEDS = choose_size(range(1, 11), range(1, 3))
SEARCH_SEEDS = choose_size((101, 102, 103, 104), (101,))
RATES = choose_size((0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (0.3, 1.0))
ROWS = (OUT if SMALLEST else HERE / "rows") / "algorithms.jsonl"
"""The file of the rows: a line for each run. Runs that have one are not run again."""


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


def train(kind: str, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """Train a policy; return its exact figures, and those of the last step."""
    config = TrainConfig.fit(**settings, batch=128, seed=seed, episodes=EPISODES)
    torch.manual_seed(seed)
    policy = make_policy(kind)
    with torch.no_grad():
        reference_SA = policy.logprobs()
    optimiser = torch.optim.AdamW(
        policy.parameters(), config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )
    envs = [gem.make(GAME).unwrapped for _ in range(config.batch)]
    iterations = EPISODES // config.batch
    order = torch.Generator().manual_seed(seed)
    entropy = divergence = norm = 0.0
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
                kl_n = (probability_nA * (logp_SA[at_n] - reference_SA[at_n])).sum(-1)
                loss = step.loss + progress.kl(config) * kl_n.sum()
                if config.algorithm_value.critic:
                    error = value_loss(policy.values()[at_n], value_N[n], returns_N[n], config.value_clip)
                    loss = loss + config.value_weight * error
                optimiser.zero_grad()
                (loss / len(part)).backward()
                norm = float(nn.utils.clip_grad_norm_(policy.parameters(), config.max_grad_norm))
                optimiser.step()
        entropy = -(probability_nA * logp_SA[at_n]).sum(-1).mean().item()
        divergence = kl_n.mean().item()
    last = {"entropy": entropy, "kl": divergence, "grad_norm": norm}
    return {**measure(policy), **last}


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
def measure(policy: Policy) -> dict[str, float]:
    """Return the exact chances that an episode succeeds and that it ends unreadable, and its mean turns."""
    probability_SA = policy.logprobs().double().exp().tolist()
    index = states().index

    @cache
    def ends(turn: int, low: int, high: int) -> tuple[float, float, float]:
        if turn == TURNS:
            return 0.0, 0.0, 0.0
        chances, size = probability_SA[index[turn, low, high]], high - low + 1
        success, unreadable, turns = 0.0, chances[UNREADABLE], 1.0
        for guess, chance in enumerate(chances[:UNREADABLE], 1):
            success += chance * (low <= guess <= high) / size
            for first, last in ((low, min(guess - 1, high)), (max(guess + 1, low), high)):
                if first <= last:
                    share = chance * (last - first + 1) / size
                    later = ends(turn + 1, first, last)
                    success += share * later[0]
                    unreadable += share * later[1]
                    turns += share * later[2]
        return success, unreadable, turns

    return dict(zip(("success", "unreadable", "turns"), ends(0, 1, NUMBERS), strict=True))


@dataclass
class Rows:
    """The runs that a file holds, by their settings; others are run and added to it."""

    path: Path
    runs: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.runs = {json.dumps(row["run"]): row["figures"] for row in map(json.loads, lines)}

    def run(self, kind: str, settings: dict[str, Any], seed: int) -> dict[str, float]:
        """Return the figures of a run."""
        run = {"policy": kind, **settings, "episodes": EPISODES, "seed": seed}
        key = json.dumps(run)
        if key not in self.runs:
            figures = {name: float(f"{value:.6g}") for name, value in train(kind, settings, seed).items()}
            self.runs[key] = figures
            with self.path.open("a") as file:
                file.write(json.dumps({"run": run, "figures": figures}) + "\n")
        return self.runs[key]

    def best(self, kind: str, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with the step size of the best mean success on the seeds of the search."""
        tried = [{**settings, "lr": lr} for lr in RATES]
        return max(
            tried, key=lambda each: fmean(self.run(kind, each, seed)["success"] for seed in SEARCH_SEEDS)
        )


def write_interval(values: Sequence[float], most: float = inf) -> str:
    """Return a mean and its interval in percent, cut at `most`."""
    interval = mean_interval([100 * value for value in values])
    return f"{interval.mean:.1f} ({interval.low:.1f} to {min(most, interval.high):.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kl", type=float, default=0.05, help="weight of the divergence")
    cells = {f"{name}:{gamma:g}": (name, gamma) for name, gamma in product(ALGORITHMS, GAMMAS)}
    parser.add_argument("--against", default=next(iter(cells)), choices=cells, metavar="NAME:GAMMA")
    settings = parse_args(parser)
    torch.set_num_threads(1)
    known, lines, results = Rows(ROWS), [], []

    def best_runs(kind: str, name: str, gamma: float) -> tuple[dict[str, Any], list[dict[str, float]]]:
        best = known.best(kind, {"algorithm": name, "gamma": gamma, "kl": settings.kl})
        return best, [known.run(kind, best, seed) for seed in SEEDS]

    for kind, (name, gamma) in product(("table", "linear"), cells.values()):
        best, runs = best_runs(kind, name, gamma)
        _, others = best_runs(kind, *cells[settings.against])
        results.append({"policy": kind, **best, "runs": runs})
        figures = {each: fmean(run[each] for run in runs) for each in runs[0]}
        edge = "*" if best["lr"] in (RATES[0], RATES[-1]) else ""
        success = write_interval([run["success"] for run in runs], most=100)
        pairs = zip(runs, others, strict=True)
        less = write_interval([run["success"] - other["success"] for run, other in pairs])
        step = f"{best['lr']:g}{edge}"
        lines.append((f"{kind}: {name}", gamma, step, success, less, *list(figures.values())[1:]))
    heads = ("policy", "gamma", "lr", "success, %", f"minus {settings.against}")
    heads = (*heads, "unreadable", "turns", "entropy", "kl", "gradient")
    table(f"guess 1 to {NUMBERS}, {EPISODES} episodes, {len(SEEDS)} seeds; *: edge of the grid", heads, lines)
    write_json("algorithms", results)


if __name__ == "__main__":
    main()
