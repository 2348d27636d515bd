"""Negotiation: two seats divide a few things that they value differently, before a deadline."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from itertools import product
from typing import TypeAlias

from gem.content import printable
from gem.envs.kit.text_game import read_form, split_move
from gem.envs.seats.seated_game import SeatedGame
from gem.errors import check_count
from gem.parsing import drop_all_thinking, read_box, tagged
from gem.record import StopReason

ITEMS = ("books", "hats", "balls")
SHARE_FORM = " ".join(f"# {item}|{item[:-1]}" for item in ITEMS)
_NAMED = re.compile(r"(\d+) ([a-z]+)", re.ASCII)
TOTAL = 10
"""The points of all things together for each seat."""

GOOD = 5
"""The least points of an agreement that is a success for a seat."""

LONGEST_MESSAGE = 300
UNREADABLE_REWARD = -0.1

Share: TypeAlias = tuple[int, ...]
"""How many of each item a seat takes."""

RULES = """\
You are {name} and negotiate with one other player how to divide these things: {pool}. To you {values}; \
everything together is worth 10 points. To the other everything is worth 10 points too, but single things \
are worth another number of points, which you do not know, nor the other yours. Each of you keeps what your \
share is worth to yourself. Without agreement nobody gets anything.
You make offers in turn, {turns} moves altogether, and player_0 begins. A move is one of these, inside \
\\boxed{{}}:
- \\boxed{{take {example}}}: you want to take so many {items}, in this order; the other gets the rest.
- \\boxed{{accept}}: you agree to the other's last offer.
- \\boxed{{leave}}: you break off, and nobody gets anything.
Before it you may write a message to the other, up to {longest} characters, between <say> and </say>. An \
offer that cannot be made costs the move. An answer that is no move ends the talks and costs you a point."""


class Negotiation(SeatedGame):
    r"""Agree on a division of things that both value differently.

    Task:
        Divide books, hats and balls with another player. Each player knows only its own values. Both can gain
        from an agreement, and their interests conflict in part.
    Action:
        ``\boxed{take 1 0 2}`` or ``\boxed{take 1 book, 0 hats, 2 balls}``, ``\boxed{accept}`` or
        ``\boxed{leave}``. A message between ``<say>`` and ``</say>`` may come before it.
    Observation:
        First the rules, the things to divide, and the player's own values. Then the other's message, its
        offer, and the points of that offer for the reader.
    Reward:
        With an agreement, the points of the player's own share, divided by 10: a number in [0, 1]. Without
        one, 0. An offer of more than there is, or to accept before one, costs the move. An unreadable answer
        ends the negotiation and earns -0.1.
    End:
        With an agreement, when a player leaves, or after `max_turns` moves. An agreement of 5 points or more
        is a success for that seat. At the end info holds `deal` (each seat's points, or None), `pareto`
        (whether no division is better for one and at least as good for the other), `joint` and `nash` (the
        sum and the product of the points, divided by the largest that a division gives).
    Source:
        The task of D. DeVault, J. Mell and J. Gratch (2015), in the form of M. Lewis and others, "Deal or No
        Deal?", arXiv 1706.05125, with new deals. The expert concedes over time (P. Faratin, C. Sierra and N.
        Jennings, 1998), but not below 5 points. Of the shares that it would accept, it asks for the one that
        probably costs the other least, estimated from the other's offers.
    """

    answer_marks = ("<say>",)
    seats = ("player_0", "player_1")

    def __init__(self, max_turns: int = 8) -> None:
        """Choose the largest number of moves."""
        check_count("max_turns", max_turns, 2)  # an offer and an answer
        super().__init__(max_turns)

    # -- the instance

    def deal(self) -> None:
        """Draw the things, and their values for each seat."""
        while True:
            pool = tuple(self.rng.randint(1, 4) for _ in ITEMS)
            worths = _worths(pool)
            if 5 <= sum(pool) <= 7 and len(worths) > 1:
                one, two = self.rng.sample(worths, 2)
                if all(map(max, one, two)):  # nothing is worthless to both
                    break
        self.pool: Share = pool
        self.values: dict[str, Share] = dict(zip(self.seats, (one, two), strict=True))
        self.offers: list[tuple[str, Share]] = []
        for name, values in self.values.items():
            worth = ", ".join(
                f"each of the {item} is worth {v}" for item, v in zip(ITEMS, values, strict=True)
            )
            text = RULES.format(
                name=name,
                pool=self._list_items(pool),
                values=worth,
                turns=self.max_turns,
                example=" ".join(["1", *["0"] * (len(ITEMS) - 1)]),
                items=", ".join(ITEMS),
                longest=LONGEST_MESSAGE,
            )
            self.tell(name, text)
        self._ask()

    def instance(self) -> str:
        """Return the deal in a form that can be compared."""
        return repr((self.pool, *self.values.values()))

    def worth(self, seat: str, share: Share) -> int:
        """Return the points of a share to a seat."""
        return sum(map(int.__mul__, share, self.values[seat]))

    def rest(self, share: Share) -> Share:
        """Return the share that is left for the other."""
        return tuple(map(int.__sub__, self.pool, share))

    # -- moves

    def play(self, moves: dict[str, str]) -> None:
        """Take an offer, accept one, or leave."""
        ((player, text),) = moves.items()
        other = self._other(player)
        message = _message(text)
        word, share = self._read_move(text)
        if message:
            self.tell(other, f'{player} says: "{message}"')
        if word == "accept" and self.offers:
            proposer, asked = self.offers[-1]
            self.tell(other, f"{player} accepts your offer.")
            self._close({proposer: asked, player: self.rest(asked)})
        elif word == "leave":
            self.tell(other, f"{player} breaks off the talks.")
            self._close(None)
        elif share is not None:
            self.offers.append((player, share))
            left = self.rest(share)
            self.tell(
                other,
                f"{player} wants to take {self._list_items(share)}. To you would be left "
                f"{self._list_items(left)}, worth {self.worth(other, left)} points to you.",
            )
            self._pass_on()
        elif word:
            why = "there is no offer yet" if word == "accept" else f"there are {self._list_items(self.pool)}"
            self.tell(player, f"You cannot {word} that: {why}. It cost you the move.")
            self.tell(other, f"{player} made no offer.")
            self.note(player, legal=False)
            self._pass_on()
        else:
            self.tell(player, "Your answer could not be read, which ends the talks without agreement.")
            self.pay(player, UNREADABLE_REWARD)
            self.note(player, legal=False)
            self._close(None, **{player: StopReason.UNREADABLE})

    def _pass_on(self) -> None:
        if self.turn >= self.max_turns:
            self._close(None, StopReason.TURN_BUDGET)
        else:
            self.selector.next()
            self._ask()

    def _close(
        self, shares: dict[str, Share] | None, stop: StopReason = StopReason.FAILED, **stops: StopReason
    ) -> None:
        points = {name: 0 if shares is None else self.worth(name, shares[name]) for name in self.seats}
        measures = self.measures(points) if shares else {"pareto": False, "joint": 0.0, "nash": 0.0}
        for name in self.seats:
            if shares is None:
                self.tell(name, "There is no agreement: nobody gets anything.")
            else:
                self.tell(
                    name, f"You agreed. You take {self._list_items(shares[name])}: {points[name]} points."
                )
            self.pay(name, points[name] / TOTAL)
            self.note(name, deal=dict(points) if shares else None, **measures)
            if name not in stops:
                stops[name] = stop if points[name] < GOOD else StopReason.SOLVED
        self.finish(stops)

    def measures(self, points: dict[str, int]) -> dict[str, bool | float]:
        """Return the quality of an agreement: `pareto`, `joint`, `nash`."""
        one, two = self.seats
        all_ = [(self.worth(one, s), self.worth(two, self.rest(s))) for s in _shares(self.pool)]
        a, b = points[one], points[two]
        return {
            "pareto": not any(x >= a and y >= b and (x, y) != (a, b) for x, y in all_),
            "joint": (a + b) / max(x + y for x, y in all_),
            "nash": a * b / max(x * y for x, y in all_),
        }

    def _read_move(self, text: str) -> tuple[str, Share | None]:
        """Return the word of a move, and the share that is to be taken, None where there is too little."""
        for inside in read_box(text):
            word, *rest = split_move(inside) or [""]
            if word in ("accept", "leave") and not rest:
                return word, None
            if word == "take":
                with suppress(ValueError):
                    share = _read_share(" ".join(rest))
                    fits = all(n <= m for n, m in zip(share, self.pool, strict=True))
                    return word, share if fits else None
        return "", None

    def _ask(self) -> None:
        left = self.max_turns - self.turn
        last = " It is the last: no offer can be answered after it." if left == 1 else ""
        answer = "Offer, accept or leave." if self.offers else "Make an offer, or leave."
        plural = "s are" if left != 1 else " is"
        self.tell(self.selector.selected, f"{left} move{plural} left, the next is yours.{last} {answer}")

    def _list_items(self, share: Share) -> str:
        return ", ".join(f"{n} {item if n != 1 else item[:-1]}" for n, item in zip(share, ITEMS, strict=True))

    def _other(self, player: str) -> str:
        return self.seats[player == self.seats[0]]

    # -- the random actor and the expert

    def random_action(self, seat: str) -> str:
        """Return a random offer, or sometimes an acceptance."""
        rng = self.actor_rng_of(seat)
        if self.offers and rng.random() < 0.25:
            return "\\boxed{accept}"
        return _take(tuple(rng.randint(0, most) for most in self.pool))

    def expert_action(self, seat: str) -> str:
        """Accept an offer that is as good as what the expert would ask for; otherwise ask for that."""
        offered = self.worth(seat, self.rest(self.offers[-1][1])) if self.offers else 0
        left = self.max_turns - self.turn
        if left == 1 and self.offers:
            # Accepting any last offer would teach the other to repeat its greedy offer.
            return "\\boxed{accept}" if offered >= GOOD else "\\boxed{leave}"
        aspiration = GOOD + (TOTAL - GOOD) * max(0, left - 2) / self.max_turns
        asks = [1] * len(self.pool)
        for proposer, share in self.offers:
            if proposer != seat:
                asks = [a + n for a, n in zip(asks, share, strict=True)]
        weights = [a / most for a, most in zip(asks, self.pool, strict=True)]

        def preference(share: Share) -> tuple[float, int]:
            cost = math.fsum(n * w for n, w in zip(share, weights, strict=True))
            return -cost, self.worth(seat, share)

        enough = [s for s in _shares(self.pool) if self.worth(seat, s) >= aspiration]
        wanted = max(enough, key=preference)
        if offered >= min(self.worth(seat, wanted), math.ceil(aspiration)):
            return "\\boxed{accept}"
        return _take(wanted)


def _worths(pool: Share) -> list[Share]:
    """Return all values of single things for which the pool is worth 10 points."""
    return [
        values
        for values in product(*(range(TOTAL // n + 1) for n in pool))
        if sum(map(int.__mul__, pool, values)) == TOTAL
    ]


def _read_share(text: str) -> Share:
    """Return how many of each item; with their names they may come in any order.

    Raises:
        ValueError: for anything else.
    """
    named = {name.removesuffix("s") + "s": number for number, name in _NAMED.findall(text)}
    if set(named) == set(ITEMS) and len(text.split()) == 2 * len(ITEMS):
        text = " ".join(named[item] for item in ITEMS)
    return tuple(map(int, read_form(SHARE_FORM, text)))


def _shares(pool: Share) -> list[Share]:
    return list(product(*(range(n + 1) for n in pool)))


def _take(share: Share) -> str:
    return f"\\boxed{{take {' '.join(map(str, share))}}}"


def _message(text: str) -> str:
    """Return a player's message: one line, without control characters, cut to the longest length."""
    line = " ".join((tagged(drop_all_thinking(text), "say") or "")[: 4 * LONGEST_MESSAGE].split())
    return printable(line)[:LONGEST_MESSAGE]
