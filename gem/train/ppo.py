"""PPO with a turn-level critic: one iteration's learning.

A turn is one action. The critic values the state before each turn, where the answer begins. Generalised
advantage estimates over turns (arXiv 1506.02438) replace returns. The critic is trained towards advantage
plus old value, in the same steps as the policy (arXiv 1707.06347).

Where an outside limit truncated an episode, the critic's value of the last observation replaces the rewards
that are missing (the table in `gem.rollout.episode`). Where the task itself ended, no value is added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from gem.content import Message
from gem.estimators import gae, turn_rewards
from gem.estimators.advantages import normalised
from gem.record import Episode
from gem.tokens.rows import Row
from gem.train.batch import Target, Weighted, weigh
from gem.train.config import TrainConfig
from gem.train.learner import Learner
from gem.train.schedule import Slot
from gem.train.steps import Progress, Steps, is_regularised, penalise, take_steps
from gem.train.strata import strata


def learn(
    learner: Learner,
    episodes: Sequence[Episode],
    config: TrainConfig,
    progress: Progress,
    slots: Sequence[Slot] | None = None,
    assembled: Collection[int] = (),
) -> Steps | None:
    """Take one iteration's steps on its episodes; None without verdicts, or where nothing can be learnt.

    Nothing can be learnt where all advantages are 0, the critic is right, and there is neither an entropy
    bonus nor a divergence; see `gem.train.steps.is_regularised`.

    Args:
        learner: what learns.
        episodes: those of the iteration.
        config: the settings of the run.
        progress: the finished and the planned iterations.
        slots: the environment and the trained seat of each episode; None: one environment, every seat.
        assembled: the numbers of the environments whose observations hold the whole conversation.
    """
    by_part: dict[int, list[Weighted]] = {}
    for stratum in strata(episodes, slots, config.normalise_by):
        mine, seat = stratum.episodes, stratum.seat
        rows = weigh(mine, seat)
        if not rows:
            continue
        learner.note(rows)
        penalties = penalise(learner, mine, rows, seat, config, progress)
        values = [[0.0] * len(episode.turns_of(seat)) for episode in mine]
        for item in rows:
            for at, value in zip(item.row.learnt, item.noted.pop("value").tolist(), strict=True):
                values[item.source][item.row.turn[at]] = value
        after = bootstraps(learner, mine, rows, seat, stratum.part in assembled)
        targets: list[dict[int, Target]] = []
        for source, episode in enumerate(mine):
            if not episode.scored:
                targets.append({})
                continue
            rewards = turn_rewards(episode, seat)
            if penalties is not None:
                rewards = [reward - less for reward, less in zip(rewards, penalties[source], strict=True)]
            advantages = gae(rewards, values[source], config.gamma, config.lam, after.get(source, 0.0))
            targets.append(
                {
                    turn: Target(advantage, advantage + value, value)
                    for turn, (advantage, value) in enumerate(zip(advantages, values[source], strict=True))
                }
            )
        kept = by_part.setdefault(stratum.part, [])
        kept += [replace(row, targets=targets[row.source]) for row in rows]
    if not by_part:
        return None
    weighted = [row for kept in by_part.values() for row in (whitened(kept) if config.whiten else kept)]
    if not _has_signal(weighted) and not is_regularised(learner, config, progress):
        return None
    scored = sum(episode.scored for episode in episodes)
    return take_steps(learner, weighted, scored, config, progress)


def _has_signal(weighted: Sequence[Weighted]) -> bool:
    """Return whether the policy or the critic has something to learn."""
    targets = (target for row in weighted for target in row.targets.values())
    return any(target.advantage or target.returns != target.value for target in targets)


def whitened(weighted: Sequence[Weighted]) -> list[Weighted]:
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


def bootstraps(
    learner: Learner,
    episodes: Sequence[Episode],
    rows: Sequence[Weighted],
    seat: str,
    assembled: bool = False,
) -> dict[int, float]:
    """Return the critic's value of each truncated episode's last observation, by index in `episodes`.

    The state is the prompt that the agent would have seen: the conversation with that observation, or the
    observation alone where it holds the whole conversation (`assembled`), and what begins every answer.
    """
    policy = learner.policy
    ends: list[Weighted] = []
    for source in dict.fromkeys(item.source for item in rows):
        episode = episodes[source]
        end = episode.ends[seat]
        if not end.truncated or end.observation is None:
            continue
        turn = episode.turns_of(seat)[-1]
        held = (*turn.prompt_ids, *turn.token_ids)
        said = [Message("user", end.observation)]
        ids = policy.renderer.prompt(said) if assembled else (*held, *policy.renderer.delta(held, said))
        ids = (*ids, *policy.prefix_ids)
        if policy.context is not None:
            ids = ids[-policy.context + 1 :]
        # The state wanted is that of the last token: a token is put behind it, which is never looked at.
        size = len(ids)
        row = Row((*ids, policy.pad), (*(0,) * size, 1), (0.0,) * (size + 1), (*(-1,) * size, 0))
        ends.append(Weighted(row, source=source))
    if not ends:
        return {}
    learner.note(ends)
    return {item.source: float(item.noted["value"][0]) for item in ends}
