"""What a server of environments allows."""

from __future__ import annotations

from dataclasses import dataclass, fields

from gem.errors import BadArgument


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """What clients may use up.

    `sessions`: environments at a time, of all clients together. `message_bytes`: of one message or request.
    `rate`: calls per second of one session, on average; who asks faster waits. `steps`: of one episode; then
    it is truncated. `lease_s`: a session that nobody used for so long is closed. `call_s`: what one call may
    take, where environments live on a host; in the server's own thread nothing can be cut short. `drain_s`:
    how long episodes may go on once the server was told to end. `unread_s`: how long a client may leave its
    answers unread.
    """

    sessions: int = 4096
    message_bytes: int = 1 << 20
    rate: float = 2000.0
    steps: int = 10_000
    lease_s: float = 600.0
    call_s: float = 60.0
    drain_s: float = 30.0
    unread_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse a limit that allows nothing."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise BadArgument(f"{each.name} is {value}; accepted: more than 0.")
