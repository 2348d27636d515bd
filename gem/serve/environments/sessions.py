"""Sessions: the environments that clients hold, and what is kept to answer a client again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, astuple, dataclass
from time import monotonic
from typing import Any

from gem import seeding
from gem.content import ToolSpec
from gem.core import Step
from gem.errors import BadArgument, EpisodeOver, NoVerdict, UnknownArgument
from gem.hosts.base import NO_KWARGS
from gem.hosts.verbs import failure_of
from gem.record import StopReason
from gem.registry import Maker, Wrapper
from gem.serve.environments.carriers import Carrier
from gem.serve.environments.limits import ServeLimits
from gem.serve.environments.metrics import Metrics
from gem.specs import EnvSpec
from gem.tasks.base import TaskSet

REMEMBERED = 2
"""How many answers of a session are kept for requests that come again."""

FORSAKEN_S = 60.0
"""When the server is full, a session that no connection holds may be closed after so long without use."""


class Full(NoVerdict):
    """There is no room for another session."""


class Draining(NoVerdict):
    """The server ends: what runs may finish, and nothing new begins."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An environment that clients may ask for.

    `tasks`: what it draws its episodes from, where it has a list of that. `keywords` and `wrappers`: the
    names that a client may change or add; none unless they are listed.
    """

    spec: EnvSpec
    carrier: Carrier
    about: str
    tools: tuple[ToolSpec, ...]
    tasks: TaskSet | None = None
    keywords: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The environment's id."""
        return self.spec.id

    @property
    def several(self) -> bool:
        """Whether it has several seats, which OpenEnv's protocol knows nothing of."""
        return self.spec.seats != ("agent",)

    def recipe(self, kwargs: Mapping[str, Any] = NO_KWARGS, wrappers: Collection[Wrapper] = ()) -> Maker:
        """Return what makes it.

        Raises:
            UnknownArgument: for a keyword or a wrapper that clients may not give.
        """
        strangers = sorted(set(kwargs) - self.keywords)
        if strangers:
            listed = ", ".join(sorted(self.keywords)) or "none"
            raise UnknownArgument(
                f"this server takes no keyword {strangers[0]!r} of {self.id}; listed: {listed}."
            )
        for wrapper in wrappers:
            name = getattr(wrapper, "name", wrapper)
            if name not in self.wrappers:
                listed = ", ".join(sorted(self.wrappers)) or "none"
                raise UnknownArgument(
                    f"this server puts no wrapper {name!r:.80} around {self.id}; listed: {listed}."
                )
        return Maker(self.spec, kwargs, tuple(wrappers))


@dataclass(slots=True)
class Progress:
    """How far an episode is: what a session knows of it beside its environment's state."""

    seed: int | None
    steps: int
    running: bool
    over: bool


class Session:
    """One environment of one client."""

    __slots__ = (
        "answers",
        "ends_with_its_owner",
        "episode_id",
        "free_at",
        "id",
        "kwargs",
        "lock",
        "offer",
        "over",
        "owner",
        "place",
        "recipe",
        "running",
        "seed",
        "snapshots",
        "snapshots_made",
        "steps",
        "touched",
    )

    def __init__(self, name: str, offer: Offer, recipe: Maker, owner: object) -> None:
        """Begin without an episode; `owner`: the connection that holds it, None over HTTP."""
        self.id, self.offer, self.recipe, self.owner = name, offer, recipe, owner
        self.place = offer.carrier.add(recipe)
        self.ends_with_its_owner = owner is not None
        self.lock = asyncio.Lock()
        self.free_at = 0.0
        self.touched = monotonic()
        self.kwargs: Mapping[str, Any] = NO_KWARGS
        self.seed: int | None = None
        self.episode_id: str | None = None
        self.running = self.over = False
        self.steps = 0
        self.answers: dict[str | int, bytes] | None = None
        self.snapshots: dict[str, tuple[Any, Progress]] | None = None
        self.snapshots_made = 0

    def progress(self) -> Progress:
        """Return how far the episode is."""
        return Progress(self.seed, self.steps, self.running, self.over)

    def resume(self, progress: Progress) -> None:
        """Be as far as another session was."""
        self.seed, self.steps, self.running, self.over = astuple(progress)

    def recalled(self, request: str | int | None) -> bytes | None:
        """Return the answer to a request that came before."""
        return None if request is None or self.answers is None else self.answers.get(request)

    def remember(self, request: str | int | None, answer: bytes) -> None:
        """Keep an answer, for when the request comes again."""
        if request is None:
            return
        if self.answers is None:
            self.answers = {}
        self.answers[request] = answer
        if len(self.answers) > REMEMBERED:
            del self.answers[next(iter(self.answers))]


def gone() -> BadArgument:
    """Build the error for a session that is not there."""
    return BadArgument(
        "there is no such session: it was closed, its lease ran out, or the server began anew."
    )


class Sessions:
    """Every session of a server."""

    def __init__(self, limits: ServeLimits, metrics: Metrics) -> None:
        """Begin without any."""
        self.limits, self.metrics = limits, metrics
        self.draining = False
        self._sessions: dict[str, Session] = {}
        self._interval = 1.0 / limits.rate

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    @property
    def running(self) -> int:
        """How many of them are in the middle of an episode."""
        return sum(session.running for session in self._sessions.values())

    def open(self, offer: Offer, recipe: Maker, owner: object = None, name: str | None = None) -> Session:
        """Open a session, under the name that a client drew for it.

        Raises:
            Full: when there is no room. Draining: when the server is about to end.
        """
        if self.draining:
            raise Draining("the server is about to end and begins nothing new.")
        if len(self._sessions) >= self.limits.sessions:
            self._make_room()
        session = Session(name or secrets.token_urlsafe(16), offer, recipe, owner)
        self._sessions[session.id] = session
        self.metrics.count("sessions_opened_total")
        return session

    def _make_room(self) -> None:
        forsaken = [each for each in self._sessions.values() if each.owner is None and not each.lock.locked()]
        oldest = min(forsaken, key=lambda each: each.touched, default=None)
        if oldest is None or monotonic() - oldest.touched < FORSAKEN_S:
            self.metrics.count("sessions_refused_total")
            raise Full(f"the server has {len(self)} sessions and room for no more; close one, or ask later.")
        self._drop(oldest)

    def get(self, session_id: Any) -> Session:
        """Return a session.

        Raises:
            BadArgument: when there is none of that id, or no longer.
        """
        session = self.find(session_id)
        if session is None:
            raise gone()
        return session

    def find(self, session_id: Any) -> Session | None:
        """Return a session; None where there is none of that id, or no longer."""
        return self._sessions.get(session_id) if isinstance(session_id, str) else None

    async def leave(self, session: Session) -> None:
        """Note that the connection of a session is gone: close the session, unless it was there before."""
        session.owner = None
        if session.ends_with_its_owner:
            await self.close(session)

    async def close(self, session: Session) -> None:
        """Close a session, behind the call that may be in flight; twice is harmless."""
        async with session.lock:
            self._drop(session)

    def _drop(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.running = False
            session.offer.carrier.remove(session.place)
            self.metrics.count("sessions_closed_total")

    def forget(self) -> None:
        """Close every session at once, as a server that begins anew has."""
        for session in [*self._sessions.values()]:
            self._drop(session)

    def release(self, owner: object) -> None:
        """Leave the sessions of a connection that is gone to their lease."""
        for session in self._sessions.values():
            if session.owner is owner:
                session.owner = None

    def reap(self) -> None:
        """Close the sessions that nobody used for the length of their lease."""
        late = monotonic() - self.limits.lease_s
        for session in [each for each in self._sessions.values() if each.touched < late]:
            if not session.lock.locked():
                self.metrics.count("sessions_expired_total")
                self._drop(session)
                if isinstance(session.owner, asyncio.Task):  # a connection for this session alone
                    session.owner.cancel()

    async def close_all(self) -> None:
        """Close every session."""
        for session in [*self._sessions.values()]:
            await self.close(session)

    # -- calls; the caller holds the session's lock

    async def call(
        self, session: Session, verb: str, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] = NO_KWARGS
    ) -> Any:
        """Carry out one call, at the rate that a session may have.

        Raises:
            What the environment, or its host, raised.
        """
        if session.id not in self._sessions:
            raise gone()
        began = session.touched = monotonic()
        session.free_at = max(session.free_at + self._interval, began - 1.0)  # a second's worth at a time
        if session.free_at > began:
            self.metrics.count("calls_slowed_total")
            await asyncio.sleep(session.free_at - began)
            began = monotonic()
        outcome = await session.offer.carrier.call(session.place, verb, args, kwargs)
        now = session.touched = monotonic()
        self.metrics.called(verb, now - began, outcome.error)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    async def reset(
        self, session: Session, seed: int | None = None, options: Mapping[str, Any] = NO_KWARGS
    ) -> Any:
        """Begin an episode; without a seed, a fresh one.

        Raises:
            Draining, BadArgument, or what the environment raised.
        """
        if self.draining:
            raise Draining("the server is about to end and begins nothing new.")
        session.seed = seeding.fresh() if seed is None else seeding.check(seed)
        session.steps, session.running, session.over = 0, False, False
        start = await self.call(session, "reset", (session.seed,), options)
        session.running = True
        return start

    async def step(self, session: Session, action: Any) -> Any:
        """Take one step; the last one that is allowed is truncated.

        Raises:
            EpisodeOver: behind that one. Or what the environment raised.
        """
        if session.over:
            raise EpisodeOver(f"the episode of {session.offer.id} is over; reset before the next step.")
        step = await self.call(session, "step", (action,))
        session.steps += 1
        if step.done:
            session.running = False
        elif session.steps >= self.limits.steps:
            step = _cut(step)
            session.running, session.over = False, True
        return step

    async def advance(self, session: Session, action: Any, next_seed: int | None) -> tuple[Any, ...]:
        """Take one step, and where that ends the episode begin the next; see `gem.hosts.verbs.advance`."""
        if next_seed is None:
            return tuple(await self.step(session, action))
        if not session.over and not self.draining and session.steps + 1 < self.limits.steps:
            step = await self.call(session, "advance", (action, next_seed))
            session.steps += 1
            if step[2] or step[3]:
                session.steps, session.seed = 0, next_seed
            return tuple(step)
        step = await self.step(session, action)
        try:
            obs, info = await self.reset(session, next_seed)
        except Exception as error:  # the end of this episode stands all the same
            obs, info = None, {"error": asdict(failure_of(error))}
        return obs, *step[1:4], {**info, "final_obs": step[0], "final_info": step[4]}


def _cut(step: Any) -> Any:
    """Return a step that the server's limit cuts off."""
    if type(step) is Step:
        return step._replace(truncated=True, info={**step.info, "stop": StopReason.TURN_LIMIT.value})
    return step._replace(truncations={seat: not step.terminations[seat] for seat in step.truncations})
