"""Environments so small that every episode can be listed, with its probability.

Their randomness (the task, and coins that are tossed during an episode) is drawn at reset, so an episode
depends on its world and the answers alone. `Walk.worlds` returns the probabilities of the worlds, `SETTINGS`
has the environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from gem.core import Env, Start, Step
from gem.history import CHAT, LAST, HistoryPolicy
from gem.record import StopReason

LETTERS = "abc"
PAYS = (0.1, 1.0, -0.4, 0.5, 0.2)
"""The reward of each state; all differ, so that an error in a place, a sign or a turn shows."""
STOP_PAY = 0.3
"""The reward of an early end."""
FIRST_PAY, LATER_PAY = 1.0, 0.6
"""With `blind`: the reward of ``a`` in the first turn, and of ``b`` in each later one."""
HEADS = 0.3
"""Probability that a coin moves the walk one state further, or that a world breaks."""

World = tuple[int, ...]
"""The task, a coin for each turn but the last, and whether the world breaks."""


class Walk(Env):
    """Walk on a ring of five states, by letters.

    Task:
        The observation names a task and a state; each answer moves the walk on.
    Action:
        Letters, or nothing. ``a`` is 1 and ``b`` is 2 and ``c`` is 3, read as a number of base 3.
    Observation:
        Two digits: the task and the state, which `blind` hides.
    Reward:
        The reward of the state in this task, after each turn, or with `sparse` after the last alone. With
        `blind` the first turn pays for ``a`` and every later one for ``b``.
    End:
        After `turns` turns; with `early` also by an empty answer. With `breaks` some worlds break in their
        last turn and give no verdict.
    Source:
        A test environment for `gem-gym oracle`.
    """

    def __init__(
        self,
        turns: int = 1,
        tasks: int = 1,
        sparse: bool = False,
        early: bool = False,
        noisy: bool = False,
        breaks: bool = False,
        blind: bool = False,
    ) -> None:
        """Set the options of the environment."""
        self.turns, self.tasks = turns, tasks
        self.sparse, self.early, self.noisy, self.breaks = sparse, early, noisy, breaks
        self.blind = blind
        self.turn = self.state = 0
        self.world: World = ()

    def worlds(self) -> dict[World, float]:
        """Return the probability of every world."""
        law: dict[World, float] = {}
        sides = (0, 1) if self.noisy else (0,)
        for task, *coins, broken in product(
            range(self.tasks), *[sides] * (self.turns - 1), (0, 1) if self.breaks else (0,)
        ):
            share = 1 / self.tasks
            for side in coins if self.noisy else ():
                share *= HEADS if side else 1 - HEADS
            if self.breaks:
                share *= HEADS if broken else 1 - HEADS
            law[task, *coins, broken] = share
        return law

    def reset(self, seed: int | None = None) -> Start:
        """Draw a world and return the first observation."""
        super().reset(seed)
        law = self.worlds()
        (self.world,) = self.rng.choices(list(law), list(law.values()))
        self.turn = self.state = 0
        return Start(self._observe(), {})

    def step(self, action: str) -> Step:
        """Move by an answer."""
        self.turn += 1
        if self.early and not action:
            return self._end(STOP_PAY)
        move = 0
        for letter in action:
            move = 3 * move + LETTERS.index(letter) + 1
        last = self.turn == self.turns
        if not last:
            move += self.world[self.turn]
        self.state = (self.state + move) % len(PAYS)
        if last:
            if self.world[-1]:
                return Step("", 0.0, False, True, {"stop": StopReason.ERROR.value})
            return self._end(self._pay(action))
        return Step(self._observe(), 0.0 if self.sparse else self._pay(action), False, False, {})

    def _pay(self, action: str) -> float:
        if self.blind:
            return FIRST_PAY * (action == "a") if self.turn == 1 else LATER_PAY * (action == "b")
        return PAYS[(self.state + self.world[0]) % len(PAYS)]

    def _end(self, reward: float) -> Step:
        return Step(self._observe(), reward, True, False, {"stop": StopReason.ENDED.value})

    def _observe(self) -> str:
        return f"{self.world[0]}{0 if self.blind else self.state}"


@dataclass(frozen=True)
class Setting:
    """An environment, and the answers to it: of up to `max_tokens` tokens, each a letter or the end.

    `turn_limit`: turns after which an episode is truncated. `history`: what the policy sees of past turns.
    """

    summary: str
    letters: int = 2
    max_tokens: int = 1
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    turn_limit: int | None = None
    history: HistoryPolicy = CHAT

    def make(self) -> Walk:
        """Return the environment."""
        return Walk(**self.kwargs)


SETTINGS: dict[str, Setting] = {
    "bandit": Setting("one turn of one token", letters=3),
    "words": Setting("one turn of one or two tokens", max_tokens=2),
    "tasks": Setting("one turn; three tasks", kwargs={"tasks": 3}),
    "dense": Setting("three turns, each paid", kwargs={"turns": 3}),
    "sparse": Setting("three turns, the last paid", kwargs={"turns": 3, "sparse": True}),
    "early": Setting("up to three paid turns; the policy may stop", kwargs={"turns": 3, "early": True}),
    "chat": Setting(
        "up to two paid turns of up to three tokens; the policy may stop",
        letters=1,
        max_tokens=3,
        kwargs={"turns": 2, "early": True},
    ),
    "noisy": Setting("two paid turns; chance moves too", kwargs={"turns": 2, "noisy": True}),
    "broken": Setting("two paid turns; some end without verdict", kwargs={"turns": 2, "breaks": True}),
    "blind": Setting(
        "three paid turns that look alike; what pays first does not pay later",
        kwargs={"turns": 3, "blind": True},
        history=LAST,
    ),
}
"""The environments of the oracle, by name."""
