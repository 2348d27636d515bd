"""The schedule of a run: each task's environment, learner's seat and opponent, fixed before it is played.

It depends on the config and on complete iterations, never on which episodes end first. Its state is part of
the checkpoint, so a resumed run continues with the same tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from gem.evals.results import average_known, find_successes
from gem.record import Episode, StopReason, Turn
from gem.train.config import TrainConfig
from gem.train.config.env_part import EnvPart, Stage
from gem.train.tasks.curriculum import Curriculum
from gem.train.tasks.mixture import Shares, TokenShares
from gem.train.tasks.opponents import League


@dataclass(frozen=True, slots=True)
class Slot:
    """A task before it is played.

    `part`: the number of its environment. `seat`: the learner's; empty where the trained policy plays every
    seat. `opponent`: the name of the agent in the other seats.
    """

    part: int = 0
    seat: str = ""
    opponent: str = ""

    def stop(self, episode: Episode) -> StopReason:
        """Return how an episode ended for the learner."""
        end = episode.ends.get(self.seat)
        return episode.stop if end is None else end.stop

    def seat_in(self, episode: Episode) -> str | None:
        """Return the learner's seat in an episode; None where its success is that of the episode."""
        return self.seat if self.seat in episode.ends else None

    def reward(self, episode: Episode) -> float:
        """Return the learner's reward; the mean over the seats where it plays all of them."""
        return episode.reward(self.seat or None)

    def turns(self, episode: Episode) -> list[Turn]:
        """Return the learner's turns."""
        return episode.turns_of(self.seat) if self.seat else episode.turns

    def tokens(self, episode: Episode) -> int:
        """Return how many tokens the learner sampled, without the turns that a branch has from its source."""
        own = episode.turns[episode.origin.turns if episode.origin else 0 :]
        return sum(len(turn.token_ids) for turn in own if self.seat in ("", turn.seat))


class Schedule:
    """A scheduler that assigns the tasks of a run's iterations, one after the other."""

    def __init__(
        self, config: TrainConfig, seats: Sequence[Sequence[str]], league: League | None = None
    ) -> None:
        """Start a run; `seats` are those of each environment, `league` has the policy's opponents."""
        self.config, self.parts, self.league = config, config.parts, league
        self.seats = [tuple(each) for each in seats]
        self.shares = Shares()
        self.tokens = TokenShares() if config.mix_by == "tokens" else None
        self.curriculum: Curriculum | None = None
        if config.curriculum:
            stages = [part for part in config.parts if isinstance(part, Stage)]
            self.curriculum = Curriculum(stages, config.advance_at, config.advance_over, config.keep)
        self.places = {part.name: n for n, part in enumerate(self.parts)}
        self.dealt = [0] * len(self.parts)
        self.against: dict[str, Shares] = {}  # by environment and seat
        self.planned: dict[int, list[Slot]] = {}

    @property
    def weights(self) -> dict[str, float]:
        """The present share of each environment, by name, in episodes or tokens; they need not sum to 1."""
        if self.curriculum is not None:
            return self.curriculum.weights
        return {part.name: part.weight for part in self.parts}

    def plan(self, iteration: int) -> list[Slot]:
        """Return the tasks of an iteration, which are fixed at the first call."""
        if iteration not in self.planned:
            self.planned[iteration] = self._deal()
        return self.planned[iteration]

    def _deal(self) -> list[Slot]:
        count = self.config.batch // (self.config.group if self.config.grouped else 1)
        weights = self.weights
        if self.tokens is not None:
            weights = self.tokens.of_episodes(weights)
        return [self._slot(self.places[self.shares.deal(weights)]) for _ in range(count)]

    def _slot(self, part: int) -> Slot:
        """Return an environment's next task: seats in turn, and in each the opponents by their weights."""
        seats = self.seats[part]
        if self.league is None or len(seats) < 2:
            return Slot(part)
        seat = seats[self.dealt[part] % len(seats)]
        self.dealt[part] += 1
        against = self.against.setdefault(f"{part} {seat}", Shares())
        return Slot(part, seat, against.deal(self.league.weights))

    def take_in(self, iteration: int, slots: Sequence[Slot], episodes: Sequence[Episode]) -> Stage | None:
        """Add a complete iteration: its episodes, and the slot of each.

        Returns:
            The stage that starts, None where none does.
        """
        played = list(zip(slots, episodes, strict=True))
        self.planned = {number: plan for number, plan in self.planned.items() if number > iteration}
        if self.tokens is not None:
            self.tokens.take_in((self.parts[slot.part].name, slot.tokens(each)) for slot, each in played)
        if self.league is not None:
            self.league.take_in((slot.opponent, each, slot.seat) for slot, each in played if slot.seat)
        if self.curriculum is None:
            return None
        own = [(each, slot.seat_in(each)) for slot, each in played if slot.part == self.curriculum.stage]
        outcomes = [
            (each.job.partition("@")[0], won)
            for (each, _), won in zip(own, find_successes(own), strict=True)
            if won is not None
        ]
        return self.curriculum.stages[self.curriculum.stage] if self.curriculum.take_in(outcomes) else None

    def in_use(self) -> set[str]:
        """Return the opponents of tasks that were not played yet."""
        return {slot.opponent for plan in self.planned.values() for slot in plan if slot.opponent}

    def state(self) -> dict[str, Any]:
        """Return the state that load() restores, as plain values."""
        return {
            "behind": self.shares.behind,
            "tokens": None if self.tokens is None else self.tokens.sums,
            "curriculum": None if self.curriculum is None else self.curriculum.state(),
            "dealt": self.dealt,
            "against": {where: shares.behind for where, shares in self.against.items()},
            "planned": {number: [astuple(slot) for slot in plan] for number, plan in self.planned.items()},
            "league": None if self.league is None else self.league.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Restore the state that state() returned."""
        self.shares = Shares(state["behind"])
        if self.tokens is not None:
            self.tokens = TokenShares(state["tokens"])
        if self.curriculum is not None:
            self.curriculum.load(state["curriculum"])
        self.dealt = list(state["dealt"])
        self.against = {where: Shares(behind) for where, behind in state["against"].items()}
        self.planned = {number: [Slot(*each) for each in plan] for number, plan in state["planned"].items()}
        if self.league is not None:
            self.league.load(state["league"])


def measure_success(played: Iterable[tuple[Slot, Episode]]) -> float:
    """Return the learner's rate of success; NaN where no environment reports it."""
    by_part: dict[int, list[tuple[Episode, str | None]]] = {}
    for slot, episode in played:
        by_part.setdefault(slot.part, []).append((episode, slot.seat_in(episode)))
    return average_known(won for own in by_part.values() for won in find_successes(own))


def figures_of(
    parts: Sequence[EnvPart], slots: Sequence[Slot], episodes: Sequence[Episode]
) -> tuple[dict[str, dict[str, float | int | None]], dict[str, dict[str, float | int | None]]]:
    """Return an iteration's figures by environment, and by opponent.

    For each: the number of `episodes` and their `share`; the means of `success` (None where unknown),
    `reward` and `turns` over the episodes with a verdict. For environments also the policy's `tokens` and
    their share.
    """
    played = list(zip(slots, episodes, strict=True))
    tokens = sum(slot.tokens(episode) for slot, episode in played)

    def summarise(pairs: Sequence[tuple[Slot, Episode]]) -> dict[str, float | int | None]:
        scored = [(slot, episode) for slot, episode in pairs if episode.scored]
        success = measure_success(scored)
        count = len(scored)
        return {
            "episodes": len(pairs),
            "share": len(pairs) / len(played),
            "success": None if math.isnan(success) else success,
            "reward": sum(slot.reward(episode) for slot, episode in scored) / count if count else None,
            "turns": sum(len(slot.turns(episode)) for slot, episode in scored) / count if count else None,
        }

    by_part, by_opponent = {}, {}
    for number, part in enumerate(parts):
        pairs = [(slot, episode) for slot, episode in played if slot.part == number]
        if pairs:
            own = sum(slot.tokens(episode) for slot, episode in pairs)
            share = own / tokens if tokens else None
            by_part[part.name] = {**summarise(pairs), "tokens": own, "token_share": share}
    for name in dict.fromkeys(slot.opponent for slot in slots if slot.opponent):
        by_opponent[name] = summarise([each for each in played if each[0].opponent == name])
    return by_part, by_opponent
