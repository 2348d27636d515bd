"""The limits of an environment server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gem.errors import check_argument


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """The limits for clients.

    `sessions`: the most environments at a time, of all clients together. `message_bytes`: the most bytes of
    one message or request. `rate`: the most calls per second of one session, on average; faster clients wait.
    `steps`: the most steps of one episode; then it is truncated. `lease_s`: seconds after which an unused
    session is closed. `call_s`: the most seconds of one call on a host; calls in the server's own thread
    cannot be interrupted. `drain_s`: seconds that running episodes get when the server is told to stop.
    `unread_s`: seconds for which a client may leave its answers unread. `request_s`: seconds within which an
    HTTP request must have arrived, head and body; then its connection is closed.
    """

    sessions: int = 4096
    message_bytes: int = 1 << 20
    rate: float = 2000.0
    steps: int = 10_000
    lease_s: float = 600.0
    call_s: float = 60.0
    drain_s: float = 30.0
    unread_s: float = 60.0
    request_s: float = 20.0

    def __post_init__(self) -> None:
        """Refuse limits of 0 or less."""
        for each in fields(self):
            value = getattr(self, each.name)
            check_argument(each.name, value, value > 0, "more than 0")
