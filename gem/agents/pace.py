"""Pace: adapt the number of parallel requests to an endpoint's answers, and detect that it is gone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from weakref import WeakSet

from gem.waiting import add_source

FIRST = 8.0
"""Initial limit of requests in flight."""

BACK = 0.5
"""Factor applied to the limit when the endpoint is too busy."""


SERVED_S = 5.0
"""Seconds in flight after which a request was not refused, and may still be answered."""


class Pace:
    """A limiter of parallel requests that adapts to the endpoint, up to `most`; one per endpoint and loop.

    Additive increase, multiplicative decrease, as in TCP (Jacobson, Congestion Avoidance and Control, 1988;
    RFC 5681). It starts with a few requests. Each answer allows one more, which doubles the limit per round,
    until the endpoint is too busy for the first time; after that, each round of answers allows one more. When
    the endpoint is too busy, the limit is halved, once for all requests that were in flight together.

    When the endpoint says how long to wait, no request starts until then: one timer wakes all.
    """

    def __init__(self, most: int, now: Callable[[], float] = perf_counter) -> None:
        """Allow at most `most` requests at a time; `now` is the clock."""
        self.most = most
        self.limit = min(FIRST, float(most))
        self.inside = 0
        """The number of requests in flight."""
        self._slow_start = True
        self._now = now
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._halved = float("-inf")  # when
        self._sent: dict[object, float] = {}  # requests in flight, and when they were sent
        self._silent_since: float | None = None
        self.answered_at = float("-inf")
        """The time of the last answer."""
        self.asks = 0
        """The number of asks that wait for an answer, in flight or between two tries."""
        self.retries = 0
        """The number of requests that were sent again."""
        self.took_s: float | None = None
        """The seconds that the last answered request took."""
        _PACES.add(self)

    async def __aenter__(self) -> None:
        """Wait until a request is allowed."""
        if self._free and not self._waiting:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # it was given a place at the same moment
                self.inside -= 1
            else:
                with suppress(ValueError):
                    self._waiting.remove(place)
            self._let_in()
            raise

    async def __aexit__(self, *exc: object) -> None:
        """Allow another request in its place."""
        self.inside -= 1
        self._let_in()

    def send(self, request: object) -> float:
        """Record that a request is sent now; return the time."""
        now = self._sent[request] = self._now()
        return now

    def end(self, request: object) -> None:
        """Record that a request is no longer in flight."""
        self._sent.pop(request, None)

    def note_failure(self) -> None:
        """Record that a request got no answer."""
        if self._silent_since is None:
            self._silent_since = self._now()

    def silent(self, seconds: float) -> bool:
        """Return whether no request was answered for `seconds`, and none in flight may still be answered."""
        now = self._now()
        if self._silent_since is None or now - self._silent_since < seconds:
            return False
        return all(now - began < SERVED_S for began in self._sent.values())

    def note_answer(self, began: float | None = None) -> None:
        """Record that a request was answered; `began`: when it was sent."""
        self.answered_at, self._silent_since = self._now(), None
        if began is not None:
            self.took_s = self.answered_at - began
        self.limit = min(float(self.most), self.limit + (1.0 if self._slow_start else 1.0 / self.limit))
        self._let_in()

    def busy(self, began: float, wait_s: float = 0.0) -> None:
        """Record that the endpoint was too busy for a request, which has already left the limiter.

        Args:
            began: when the request was sent.
            wait_s: the seconds for which the endpoint asks to wait.
        """
        now = self._now()
        if began >= self._halved:
            self._slow_start, self._halved = False, now
            self.limit = max(1.0, min(self.limit, self.inside + 1) * BACK)
        if now + wait_s > self._closed_until:
            self._closed_until = now + wait_s
            if wait_s:
                self._wake_in(wait_s)

    @property
    def _free(self) -> bool:
        return self.inside < int(self.limit) and self._now() >= self._closed_until

    def _wake_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        left = self._closed_until - self._now()
        if left > 0:  # the loop's clock ran ahead of this one
            self._wake_in(left)
        else:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._free:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)

    def describe_pause(self) -> str:
        """Return how long no request is sent because the endpoint asked for it; empty if none waits."""
        left_s = self._closed_until - self._now()
        waits = self.asks and left_s > 0
        return f"the end of a pause that the server asked for ({left_s:.0f} s left)" if waits else ""

    def describe(self) -> str:
        """Return the retries so far, and the seconds of the last answer; empty if no ask waits."""
        parts = [f"retries {self.retries}"] * bool(self.retries)
        parts += [f"last answer took {self.took_s:.1f} s"] if self.took_s is not None else []
        return ", ".join(parts) if self.asks else ""


_PACES: WeakSet[Pace] = WeakSet()


def describe_requests() -> str:
    """Return the retries and the latency of the endpoints that are asked now; for any thread."""
    return _describe_paces(Pace.describe)


def _describe_paces(describe: Callable[[Pace], str]) -> str:
    with suppress(RuntimeError):  # an agent began or ended meanwhile
        return "; ".join(filter(None, map(describe, list(_PACES))))
    return ""


add_source(lambda: _describe_paces(Pace.describe_pause), last=True)
