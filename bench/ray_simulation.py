"""A discrete-event simulation of a RayRunner, with the times that `bench.ray` measures.

One driver gives jobs to players and collects finished episodes; a player plays several episodes at once. The
driver and each player do one thing at a time, and messages have a delay. The model has no failures and no
other load on nodes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

LINGER_S = 0.005
AHEAD = 0.25


class Costs(NamedTuple):
    """Seconds: an episode of the driver and of its player; a message, and its way."""

    driver_s: float
    player_s: float
    message_s: float
    latency_s: float


class _Player:
    """What a player has: jobs that wait, lanes that are free, episodes that have ended."""

    def __init__(self, lanes: int) -> None:
        self.queue, self.free, self.ended, self.has = 0, lanes, 0, 0
        self.core_free = 0.0
        self.asked = False  # the driver's call is here, and waits
        self.replying = False


def simulate(
    costs: Costs,
    players: int,
    in_flight: int,
    episodes: int,
    steps: int,
    step_s: float,
    *,
    at_once: int = 1,
) -> float:
    """Return the seconds that episodes take.

    Args:
        costs: what the parts cost.
        players: how many there are, each with a core of its own.
        in_flight: episodes in flight in each.
        episodes: how many are played.
        steps: of an episode.
        step_s: how long a step takes, of no processor.
        at_once: how many of a player's steps go on at the same time: 1 on the serial host.
    """
    events: list[tuple[float, int, str, int]] = []
    order = 0
    crew = [_Player(at_once) for _ in range(players)]
    left, done, driver_free = episodes, 0, 0.0
    room = in_flight + max(1, int(in_flight * AHEAD))

    def later(at: float, what: str, who: int) -> None:
        nonlocal order
        order += 1
        heappush(events, (at, order, what, who))

    def begin(now: float, who: int) -> None:
        player = crew[who]
        while player.queue and player.free:
            player.queue -= 1
            player.free -= 1
            start = max(now, player.core_free)
            player.core_free = start + costs.player_s
            later(player.core_free + steps * step_s, "end", who)

    def give(now: float, who: int) -> None:
        """The driver gives a player what it has room for."""
        nonlocal left, driver_free
        player = crew[who]
        count = min(left, room - player.has)
        left -= count
        player.has += count
        driver_free = max(now, driver_free) + costs.message_s
        if player.has:
            later(driver_free + costs.latency_s, f"jobs {count}", who)

    def reply(now: float, who: int) -> None:
        player = crew[who]
        if player.asked and player.ended and not player.replying:
            player.replying = True
            idle = not player.queue and player.free == at_once
            enough = player.ended > in_flight // 4
            later(now + (0.0 if idle or enough else LINGER_S), "reply", who)

    for who in range(players):
        give(0.0, who)
    now = 0.0
    while done < episodes:
        now, _, what, who = heappop(events)
        player = crew[who]
        if what == "end":
            player.free += 1
            player.ended += 1
            begin(now, who)
            reply(now, who)
        elif what == "reply":
            player.asked = player.replying = False
            count, player.ended = player.ended, 0
            later(now + costs.latency_s, f"heard {count}", who)
        elif what.startswith("jobs"):
            player.queue += int(what.split()[1])
            player.asked = True
            begin(now, who)
            reply(now, who)
        else:
            count = int(what.split()[1])
            player.has -= count
            driver_free = max(now, driver_free) + count * costs.driver_s
            done += count
            give(now, who)
    return max(now, driver_free)
