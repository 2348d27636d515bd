"""REINFORCE, ReBN, RLOO, GRPO, Dr. GRPO, GSPO and turn-level GRPO: one iteration's learning.

Whole episodes come in. Their returns become advantages (`gem.estimators`, where most of the difference
between the algorithms lies), and a few clipped steps are taken on them. Training with a critic is in
`gem.train.ppo`.

In a game of several seats the policy plays all of them, or one against an opponent. Each seat is trained on
its own turns, and its returns are compared with those of the same seat alone. Likewise, each of several
environments is compared with itself (`gem.train.strata`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from gem.estimators import Kind, discounted_returns, grpo, has_signal, turn_advantages, turn_rewards
from gem.record import SEAT, Episode
from gem.tokens.rows import Row
from gem.train.batch import Target, Weighted, weigh
from gem.train.config import TrainConfig
from gem.train.learner import Learner
from gem.train.schedule import Slot
from gem.train.steps import Progress, Steps, is_regularised, penalise, take_steps
from gem.train.strata import strata

KIND: dict[str, Kind] = {**{kind: kind for kind in get_args(Kind)}, "gspo": "grpo"}
"""The estimator that turns an algorithm's returns into advantages."""


def learn(
    learner: Learner,
    episodes: Sequence[Episode],
    config: TrainConfig,
    progress: Progress,
    slots: Sequence[Slot] | None = None,
) -> Steps | None:
    """Take one iteration's steps on its episodes; None where nothing can be learnt from them.

    `slots`: the environment and the trained seat of each episode; None: one environment, every seat.

    Nothing can be learnt where all advantages are 0 and there is neither an entropy bonus nor a divergence;
    see `gem.train.steps.is_regularised`.
    """
    weighted: list[Weighted] = []
    signal = False
    for stratum in strata(episodes, slots, config.normalise_by):
        mine, seat = stratum.episodes, stratum.seat
        rows = weigh(mine, seat)
        if config.algorithm == "turn_grpo":
            advantages, rows = branch_advantages(mine, rows, config.gamma)
        else:
            penalties = penalise(learner, mine, rows, seat, config, progress)
            advantages = turn_advantages(mine, KIND[config.algorithm], config.gamma, seat, penalties)
        signal = signal or has_signal(advantages)
        for row in rows:
            values = advantages[row.source]
            assert values is not None  # a row is of an episode with verdict
            weighted.append(replace(row, targets={t: Target(value) for t, value in enumerate(values)}))
    if not weighted or not (signal or is_regularised(learner, config, progress)):
        return None
    scored = sum(episode.scored for episode in episodes)
    return take_steps(learner, weighted, scored, config, progress)


def branch_advantages(
    episodes: Sequence[Episode], rows: Sequence[Weighted], gamma: float
) -> tuple[list[list[float] | None], list[Weighted]]:
    """Return turn-level GRPO's advantages, and the rows cut to the turns that have one.

    The episodes of a group are the same up to a turn, which each then samples again: a Monte-Carlo sample of
    that turn's value in the same state. The turn's advantage is the return from there on, minus the group's
    mean, divided by the group's deviation; every other turn has none. The turn was drawn from all turns of
    the group's first episode, so its advantage is multiplied by their number.

    Source: the Monte-Carlo values of VinePPO (Kazemnejad et al., arXiv 2410.01679), relative to their group.
    """
    left = {episode.group: branch_turn(episode) for episode in episodes if episode.sample}
    started = [left.get(episode.group, 0) for episode in episodes]
    turns = {episode.group: len(episode.turns) for episode in episodes if episode.sample == 0}
    usable = [i for i, episode in enumerate(episodes) if episode.scored and len(episode.turns) > started[i]]
    returns = [discounted_returns(turn_rewards(episodes[i], SEAT), gamma)[started[i]] for i in usable]
    relative = dict(
        zip(usable, grpo(returns, [(episodes[i].group, started[i]) for i in usable]), strict=True)
    )
    advantages: list[list[float] | None] = [
        [
            relative.get(i, 0.0) * turns.get(episode.group, 1) if number == started[i] else 0.0
            for number in range(len(episode.turns))
        ]
        if episode.scored
        else None
        for i, episode in enumerate(episodes)
    ]
    return advantages, [kept for row in rows if (kept := _only(row, started[row.source])) is not None]


def branch_turn(episode: Episode) -> int:
    """Return the turn where an episode of turn-level GRPO leaves its group's first one, from its job."""
    return int(episode.job.rpartition("@")[2])


def _only(row: Weighted, turn: int) -> Weighted | None:
    """Return a row that learns on one turn alone, and ends with it; None where it has no token of it."""
    mask = [int(bool(learn) and t == turn) for learn, t in zip(row.row.mask, row.row.turn, strict=True)]
    if 1 not in mask:
        return None
    end = len(mask) - mask[::-1].index(1)
    cut = row.row.first(end)
    return replace(row, row=Row(cut.ids, mask[:end], cut.logprobs, cut.turn), noted={})
