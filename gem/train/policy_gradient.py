"""REINFORCE, ReBN, RLOO, GRPO, Dr. GRPO, GSPO and turn-level GRPO: one iteration's learning.

Whole episodes come in; their returns become advantages (`gem.estimators`: here lies most of the difference
between the algorithms), and a few clipped steps are taken on them. A critic is another file: `gem.train.ppo`.

In a game of several seats the policy holds them all, or one of them against an opponent, and each seat is
trained on its own turns: its returns are compared with those of the same seat alone. Of several environments
too, each is compared with itself (`gem.train.strata`).
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
from gem.train.steps import Progress, Steps, penalise, take_steps
from gem.train.strata import strata

KIND: dict[str, Kind] = {**{kind: kind for kind in get_args(Kind)}, "gspo": "grpo"}
"""How an algorithm's returns become advantages."""


def learn(
    learner: Learner,
    episodes: Sequence[Episode],
    config: TrainConfig,
    progress: Progress,
    slots: Sequence[Slot] | None = None,
) -> Steps | None:
    """Take one iteration's steps on its episodes; None where nothing can be learnt from them.

    `slots`: of each episode its environment, and the seat that is trained; None: one environment, every seat.

    Nothing can where no advantage differs from 0, no entropy is weighed, and no divergence, or the policy is
    the reference still: its gradient is rounding then, which Adam would make steps of full size of.
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
    diverged = config.kl and not config.kl_reward and learner.moved
    if not weighted or not (signal or progress.left * config.entropy or progress.left * diverged):
        return None
    scored = sum(episode.scored for episode in episodes)
    return take_steps(learner, weighted, scored, config, progress)


def branch_advantages(
    episodes: Sequence[Episode], rows: Sequence[Weighted], gamma: float
) -> tuple[list[list[float] | None], list[Weighted]]:
    """Return turn-level GRPO's advantages, and the rows with nothing but the turns that they are of.

    The episodes of a group share their beginning up to a turn, which each then took anew: a Monte-Carlo
    sample of what that turn is worth, in the state that all of them were in. Its advantage is the return from
    there on less the group's mean, over the group's deviation; every other turn has none. One turn of the
    group's first episode was drawn for all of its turns, so its advantage counts as often as there are turns.
    Source: the Monte-Carlo values of VinePPO (Kazemnejad et al., arXiv 2410.01679), relative to their group.
    """
    started = [branch_turn(episode) for episode in episodes]
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
    """Return the turn at which an episode of turn-level GRPO left its group's first one, as its job says."""
    return int(episode.job.rpartition("@")[2])


def _only(row: Weighted, turn: int) -> Weighted | None:
    """Return a row that learns on one turn alone, and ends with it; None where it has no token of it."""
    mask = [int(bool(learn) and t == turn) for learn, t in zip(row.row.mask, row.row.turn, strict=True)]
    if 1 not in mask:
        return None
    end = len(mask) - mask[::-1].index(1)
    cut = row.row.first(end)
    return replace(row, row=Row(cut.ids, mask[:end], cut.logprobs, cut.turn), noted={})
