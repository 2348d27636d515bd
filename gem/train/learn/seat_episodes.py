"""Groups of episodes that advantages are computed in: those of one seat, in one environment or in all.

Returns of different environments have different scales and means. Normalised over a whole batch, the
environment with the widest returns would dominate the gradient. In an environment with low returns even good
play would be discouraged. Within one environment the mean is a suitable baseline, and each environment counts
by its share of the batch, whatever the unit of its reward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gem.record import Episode
from gem.train.config.env_part import NormaliseBy
from gem.train.tasks.schedule import Slot


@dataclass(frozen=True, slots=True)
class SeatEpisodes:
    """Episodes whose turns of one seat are compared.

    `part` is the number of what they are normalised with: their environment, or 0 for the whole batch. `envs`
    has the number of each episode's environment.
    """

    part: int
    seat: str
    episodes: Sequence[Episode]
    envs: Sequence[int]


def split_by_seat(
    episodes: Sequence[Episode], slots: Sequence[Slot] | None, normalise_by: NormaliseBy
) -> Iterator[SeatEpisodes]:
    """Yield the parts of a batch whose turns are compared; each turn of the trained policy is in exactly one.

    `slots`: that of each episode; None: one environment, where the policy plays every seat. With
    ``normalise_by="batch"`` all environments are one part, of number 0.
    """
    slots = slots or [Slot()] * len(episodes)
    parts = [slot.part if normalise_by == "environment" else 0 for slot in slots]
    for part in sorted(set(parts)):
        pairs = [
            (slot, episode) for slot, episode, of in zip(slots, episodes, parts, strict=True) if of == part
        ]
        seats = (seat for slot, each in pairs for seat in ((slot.seat,) if slot.seat else each.seats))
        for seat in dict.fromkeys(seats):
            own = [(each, slot.part) for slot, each in pairs if slot.seat in ("", seat)]
            yield SeatEpisodes(part, seat, [each for each, _ in own], [env for _, env in own])
