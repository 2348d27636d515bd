"""The mixture of several environments in one run: how the tasks of an iteration are shared out.

The environments of a batch are fixed before any of it is played, so one whose episodes take ten times as long
still gets its share. A sampler that fills its batch with whatever ends first would favour short episodes.
Within an environment it would favour policies and tasks that end soon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gem.errors import BadArgument

MEMORY = 0.8
"""Factor by which the weight of past tokens per episode falls in each iteration."""


@dataclass
class Shares:
    """A deterministic choice of items, one after the other, in proportion to their weights.

    After any number of choices each item was chosen within 1 of its share of them. While the weights stay the
    same, ``|dealt - share * all| <= 1 - 1 / (2k - 2)`` for k items, which is the best possible bound. So
    shares that divide a batch are exact in every batch, and nothing drifts. Among the items that are far
    enough behind their share, the one that would be too far behind soonest is chosen first.

    `behind`: how far each item is behind its share. Source: Tijdeman, The chairman assignment problem,
    Discrete Mathematics 32 (1980).
    """

    behind: dict[str, float] = field(default_factory=dict)

    def deal(self, weights: Mapping[str, float]) -> str:
        """Return the next item; one of weight 0 is never chosen, and its distance from its share is dropped.

        Raises:
            BadArgument: where no weight is above 0.
        """
        total = math.fsum(weights.values())
        wanted = {name: weight / total for name, weight in weights.items() if weight > 0}
        if not wanted:
            raise BadArgument("nothing has a weight above 0.")
        self.behind = {name: self.behind.get(name, 0.0) + share for name, share in wanted.items()}
        least = 1 / max(1, 2 * len(wanted) - 2)
        late = [name for name, behind in self.behind.items() if behind >= least - 1e-9]
        if late:
            chosen = min(late, key=lambda name: (1 - least - self.behind[name]) / wanted[name])
        else:  # the weights have changed
            chosen = max(self.behind, key=self.behind.__getitem__)
        self.behind[chosen] -= 1
        return chosen


class TokenShares:
    """A converter of shares of tokens into shares of episodes, from the tokens of past episodes.

    An environment's share of episodes is proportional to its weight divided by its mean tokens per episode.
    The mean is over complete iterations, where every episode counts, however long it took. Each iteration
    counts `MEMORY` times as much as the one after it. An environment that was not played yet gets the mean of
    the others, so the first iteration is shared out by episodes.
    """

    def __init__(self, sums: Mapping[str, Sequence[float]] | None = None) -> None:
        """Start from zero, or continue from `sums`: tokens and episodes by name."""
        self.sums = {name: (each[0], each[1]) for name, each in (sums or {}).items()}

    def take_in(self, played: Iterable[tuple[str, int]]) -> None:
        """Add a complete iteration: each episode's environment and the policy's tokens in it."""
        self.sums = {name: (MEMORY * t, MEMORY * n) for name, (t, n) in self.sums.items()}
        for name, tokens in played:
            before = self.sums.get(name, (0.0, 0.0))
            self.sums[name] = before[0] + tokens, before[1] + 1

    def of_episodes(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return the shares of episodes that give these shares of tokens; they need not sum to 1."""
        means = {name: max(1.0, tokens / n) for name, (tokens, n) in self.sums.items() if name in weights}
        unknown = math.fsum(means.values()) / len(means) if means else 1.0
        return {name: weight / means.get(name, unknown) for name, weight in weights.items()}
