"""One iteration's learning, the same for every algorithm (`gem.estimators.algorithms`).

Whole episodes come in. The algorithm turns their rewards into advantages, which is where most of the
difference between algorithms lies, and a few steps are taken on them. With a critic, its values go in too.

In a game of several seats the policy plays all of them, or one against an opponent. Each seat is trained on
its own turns, and its returns are compared with those of the same seat alone; only whitening, with a critic,
is over all seats. Likewise, each of several environments is compared with itself
(`gem.train.learn.seat_episodes`).

A turn is one action. A critic values the state before each turn, where the answer begins, and learns
lambda-returns in the same steps as the policy (PPO: arXiv 1707.06347). Where an episode was truncated, by an
outside limit or by its environment, its value of the last observation replaces the rewards that are missing
(the table in `gem.rollout.episode`). Where the task itself ended, no value is added.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean, pvariance
from typing import Any

import torch

from gem.content import Message
from gem.errors import BadArgument, GemError
from gem.estimators import View, normalised
from gem.estimators.algorithms import estimate_gae, make_view
from gem.record import Episode
from gem.rollout.rewards import compute_rewards
from gem.tokens.rows import Row
from gem.train.config import TrainConfig
from gem.train.learn.batch import Target, Weighted, weigh
from gem.train.learn.learner import Learner
from gem.train.learn.seat_episodes import split_by_seat
from gem.train.learn.steps import NAN, Progress, Steps, is_regularised, penalise, take_steps
from gem.train.tasks.schedule import Slot


def learn(
    learner: Learner,
    episodes: Sequence[Episode],
    config: TrainConfig,
    progress: Progress,
    slots: Sequence[Slot] | None = None,
    assembled: Collection[int] = (),
) -> Steps:
    """Take one iteration's steps on its episodes; without verdicts, or where nothing can be learnt, none.

    The statistics of no step have 0 positions.

    Nothing can be learnt where all advantages are 0, a critic is right, and there is neither an entropy bonus
    nor a divergence; see `gem.train.learn.steps.is_regularised`.

    Args:
        learner: what learns.
        episodes: those of the iteration.
        config: the settings of the run.
        progress: the finished and the planned iterations.
        slots: the environment and the trained seat of each episode; None: one environment, every seat.
        assembled: the numbers of the environments whose observations hold the whole conversation.
    """
    algorithm = config.algorithm_value
    by_part: dict[int, list[Weighted]] = {}
    selected: list[bool] = []
    views: list[View] = []
    gaps: dict[str, GemError] = {}
    for peers in split_by_seat(episodes, slots, config.normalise_by):
        branches = find_branches(peers.episodes) if algorithm.group == "turn" else {}
        pairs = zip(peers.episodes, peers.envs, strict=True)
        scored_envs, seat = [(episode, env) for episode, env in pairs if episode.scored], peers.seat
        rewards = None
        if config.reward:
            given = compute_rewards(config.reward, [episode for episode, _ in scored_envs], seat, gaps)
            if wrong := next((error for error in gaps.values() if isinstance(error, BadArgument)), None):
                raise wrong
            rewards = [
                row for row, (episode, _) in zip(given, scored_envs, strict=True) if episode.id not in gaps
            ]
            scored_envs = [(episode, env) for episode, env in scored_envs if episode.id not in gaps]
        scored_episodes = [episode for episode, _ in scored_envs]
        rows = weigh(scored_episodes, seat)
        if not rows:
            continue
        values = compute_values(learner, scored_episodes, rows, seat) if algorithm.critic else {}
        penalties = penalise(learner, scored_episodes, rows, seat, config, progress)
        if algorithm.critic:
            whole = [env in assembled for _, env in scored_envs]
            after = compute_bootstraps(learner, scored_episodes, rows, seat, whole)
            values["bootstraps"] = [after.get(source, 0.0) for source in range(len(scored_episodes))]
        view = make_view(
            scored_episodes,
            seat,
            config.gamma,
            rewards=rewards,
            lam=config.lam,
            penalties=penalties,
            starts=[branches.get(episode.group, 0) for episode in scored_episodes],
            **values,
        )
        views.append(view)
        targets = make_targets(config, view)
        if (chosen := algorithm.select_turns(view)) is not None:
            selected += chain.from_iterable(chosen)
            rows = [each for row in rows if (each := keep_turns(row, chosen[row.source])) is not None]
        kept = by_part.setdefault(peers.part, [])
        kept += [replace(row, targets=targets[row.source]) for row in rows]
    whiten = algorithm.critic and config.whiten
    weighted = [row for kept in by_part.values() for row in (whiten_advantages(kept) if whiten else kept)]
    steps = Steps()
    if weighted and (_has_signal(weighted) or is_regularised(learner, config, progress)):
        scored = sum(episode.scored for episode in episodes) - len(gaps)
        steps = take_steps(learner, weighted, scored, config, progress)
    steps.selected = fmean(selected) if selected else NAN
    steps.reward_std, flat = compare_returns(views)
    steps.flat_groups, steps.gaps = flat if config.grouped else NAN, gaps
    return steps


def compare_returns(views: Sequence[View]) -> tuple[float, float]:
    """Return the deviation of the returns from the mean of their view, and the share of flat groups.

    The return of an episode is that from the first turn that its group does not share. A group is flat where
    its returns are all equal. Both are NaN without episodes.
    """
    groups: list[list[float]] = []
    variances, counts = [], []
    for view in views:
        by_group: dict[str, list[float]] = {}
        for group, start, returns in zip(view.groups, view.starts, view.returns, strict=True):
            if start < len(returns):
                by_group.setdefault(group, []).append(returns[start])
        groups += by_group.values()
        if every := list(chain.from_iterable(by_group.values())):
            variances.append(pvariance(every))
            counts.append(len(every))
    if not groups:
        return NAN, NAN
    return math.sqrt(fmean(variances, counts)), fmean(len(set(earned)) == 1 for earned in groups)


def make_targets(config: TrainConfig, view: View) -> list[dict[int, Target]]:
    """Return the targets of each episode's turns; with a critic, the returns that it learns."""
    algorithm = config.algorithm_value
    advantages = algorithm.compute_advantages(view)
    if not algorithm.critic:
        return [{turn: Target(value) for turn, value in enumerate(each)} for each in advantages]
    return [
        {
            turn: Target(advantage, estimate + value, value)
            for turn, (advantage, estimate, value) in enumerate(zip(*each, strict=True))
        }
        for each in zip(advantages, estimate_gae(view), view.values, strict=True)
    ]


def _has_signal(weighted: Sequence[Weighted]) -> bool:
    """Return whether the policy or the critic has something to learn; without one, its targets are 0."""
    targets = (target for row in weighted for target in row.targets.values())
    return any(target.advantage or target.returns != target.value for target in targets)


def keep_turns(row: Weighted, chosen: Sequence[bool]) -> Weighted | None:
    """Return a row that learns on the chosen turns alone, and ends with them; None where it has none."""
    given = row.row
    mask = [int(learn and chosen[turn]) for learn, turn in zip(given.mask, given.turn, strict=True)]
    if 1 not in mask:
        return None
    end = len(mask) - mask[::-1].index(1)
    cut = given.first(end)
    kept = torch.tensor([mask[at] for at in given.learnt], dtype=torch.bool)
    outputs = {name: values[kept] for name, values in row.stored_outputs.items()}
    return replace(row, row=Row(cut.ids, mask[:end], cut.logprobs, cut.turn), stored_outputs=outputs)


def find_branches(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return the turn from which the samples of each group differ, by the group; 0 where it is not here."""
    return {episode.group: branch_turn(episode) for episode in episodes if episode.sample}


def branch_turn(episode: Episode) -> int:
    """Return the turn where an episode leaves its group's first one, from its job."""
    return int(episode.job.rpartition("@")[2])


# -- the critic's values


def compute_values(
    learner: Learner, episodes: Sequence[Episode], rows: Sequence[Weighted], seat: str
) -> dict[str, Any]:
    """Return the critic's value of the state before each turn, as fields of a view."""
    learner.store_outputs(rows)
    values = [[0.0] * len(episode.turns_of(seat)) for episode in episodes]
    for item in rows:
        for at, value in zip(item.row.learnt, item.stored_outputs.pop("value").tolist(), strict=True):
            values[item.source][item.row.turn[at]] = value
    return {"values": values}


def whiten_advantages(weighted: Sequence[Weighted]) -> list[Weighted]:
    """Return the rows with advantages of mean 0 and deviation 1 over all turns; 0 where they are equal."""
    turns = {
        (item.source, turn, id(item.targets)): t for item in weighted for turn, t in item.targets.items()
    }
    flat = normalised([target.advantage for target in turns.values()])
    advantages = dict(zip(turns, flat, strict=True))
    return [
        replace(
            item,
            targets={
                turn: replace(target, advantage=advantages[item.source, turn, id(item.targets)])
                for turn, target in item.targets.items()
            },
        )
        for item in weighted
    ]


def compute_bootstraps(
    learner: Learner,
    episodes: Sequence[Episode],
    rows: Sequence[Weighted],
    seat: str,
    assembled: Sequence[bool],
) -> dict[int, float]:
    """Return the critic's value of each truncated episode's last observation, by index in `episodes`.

    The state is the prompt that the agent would have seen: the conversation with that observation, or the
    observation alone where it holds the whole conversation (`assembled`, of each episode), and what begins
    every answer.
    """
    policy = learner.policy
    ends: list[Weighted] = []
    for source in dict.fromkeys(item.source for item in rows):
        episode = episodes[source]
        end = episode.ends[seat]
        if not end.truncated or end.observation is None:
            continue
        turn = episode.turns_of(seat)[-1]
        turn_ids = (*turn.prompt_ids, *turn.token_ids)
        messages = [Message("user", end.observation)]
        ids = (
            policy.renderer.prompt(messages)
            if assembled[source]
            else (*turn_ids, *policy.renderer.delta(turn_ids, messages))
        )
        ids = (*ids, *policy.prefix_ids)
        if policy.context is not None:
            ids = ids[-policy.context + 1 :]
        # The state wanted is that of the last token: a token is put behind it, which is never looked at.
        size = len(ids)
        row = Row((*ids, policy.pad), (*(0,) * size, 1), (0.0,) * (size + 1), (*(-1,) * size, 0))
        ends.append(Weighted(row, source=source))
    if not ends:
        return {}
    learner.store_outputs(ends)
    return {item.source: float(item.stored_outputs["value"][0]) for item in ends}
