"""Sessions: the environments of clients, and the stored answers for repeated requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from hashlib import blake2b
from time import monotonic
from typing import Any

import msgspec

from gem import seeding
from gem.content import ToolSpec
from gem.core import Step, check_start, check_step
from gem.errors import BadArgument, EpisodeOver, NoVerdict, UnknownArgument
from gem.hosts.base import NO_KWARGS
from gem.hosts.verbs import describe_failure
from gem.record import StopReason
from gem.registry import Maker, Wrapper
from gem.serve.environments.carriers import Carrier
from gem.serve.environments.limits import ServeLimits
from gem.serve.environments.metrics import Metrics
from gem.specs import EnvSpec
from gem.tasks.base import TaskSet

REMEMBERED = 2
"""The most answers that a session keeps for repeated requests."""

FORSAKEN_S = 60.0
"""Seconds without use after which a full server may close a session that no connection holds."""

_SORTED = msgspec.json.Encoder(order="sorted")


class Full(NoVerdict):
    """There is no room for another session."""


class Draining(NoVerdict):
    """The server is stopping: running episodes may finish, and nothing new starts."""


@dataclass(frozen=True, slots=True)
class Offer:
    """An environment that clients may open.

    `tasks`: the tasks of its episodes, if it has a list of them. `keywords` and `wrappers`: the names that a
    client may set or add; by default none.
    """

    spec: EnvSpec
    carrier: Carrier
    about: str
    tools: tuple[ToolSpec, ...]
    answer_marks: tuple[str, ...]
    tasks: TaskSet | None = None
    keywords: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The environment's id."""
        return self.spec.id

    @property
    def several(self) -> bool:
        """Whether it has several seats, which OpenEnv's protocol does not support."""
        return self.spec.seats != ("agent",)

    def recipe(self, kwargs: Mapping[str, Any] = NO_KWARGS, wrappers: Collection[Wrapper] = ()) -> Maker:
        """Return the maker of the environment.

        Raises:
            UnknownArgument: for a keyword or a wrapper that clients may not use.
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
    """The progress of an episode: what a session stores besides the environment's state."""

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
        "on_close",
        "over",
        "owner",
        "place",
        "recipe",
        "running",
        "seed",
        "snapshots",
        "snapshots_made",
        "step_ids",
        "steps",
        "touched",
    )

    def __init__(self, name: str, offer: Offer, recipe: Maker, owner: object) -> None:
        """Start without an episode; `owner`: the connection that holds the session, None over HTTP."""
        self.id, self.offer, self.recipe, self.owner = name, offer, recipe, owner
        self.place: Any = offer.carrier.add(recipe)
        self.ends_with_its_owner = owner is not None
        self.lock = asyncio.Lock()
        self.free_at = 0.0
        self.touched = monotonic()
        self.kwargs: Mapping[str, Any] = NO_KWARGS
        self.seed: int | None = None
        self.episode_id: str | None = None
        self.running = self.over = False
        self.steps = 0
        self.answers: dict[str | int, tuple[bytes, bytes]] | None = None
        """The last answers of this episode by request id, each with the digest of its request."""
        self.step_ids: set[int] | None = None
        """The hashes of the request ids of this episode's steps; their answers may be kept no more."""
        self.snapshots: dict[str, tuple[Any, Progress]] | None = None
        self.snapshots_made = 0
        self.on_close: Callable[[bool], None] | None = None
        """Called when the session is closed; its argument: whether the lease has expired. A full server
        closes no such session: an agent may think for long, and its episode cannot be played again."""

    def progress(self) -> Progress:
        """Return the progress of the episode."""
        return Progress(self.seed, self.steps, self.running, self.over)

    def resume(self, progress: Progress) -> None:
        """Continue from the progress of another session."""
        self.seed, self.steps, self.running, self.over = astuple(progress)

    def find_answer(self, request: str | int, digest: bytes, resets: bool) -> bytes | None:
        """Return the stored answer to a repeated request of this episode; None if there is none.

        A reset (`resets`) repeats the one that began the episode only before its first step; else it is new.

        Raises:
            BadArgument: when the id is that of another request, or of a step whose answer is kept no more.
        """
        known, answer = (self.answers or {}).get(request, (None, None))
        if known == digest:
            return None if resets and self.steps else answer
        if resets or (known is None and hash(request) not in (self.step_ids or ())):
            return None
        why = (
            f"before the last {REMEMBERED} requests" if known is None else "for a request with other content"
        )
        raise BadArgument(
            f"the request id {request!r:.80} was used in this episode {why}, and nothing was done. "
            "Accepted: the same request again, which gets the same answer, or an id that is new in the "
            "episode. Give each request an id of its own."
        )

    def remember(self, request: str | int, digest: bytes, answer: bytes, steps: bool) -> None:
        """Store an answer, in case the request is repeated; of a step (`steps`) the id stays known.

        The ids of gem's own client are numbers; it repeats only requests that it has no answer to.
        """
        if steps and isinstance(request, str):
            self.step_ids = self.step_ids or set()
            self.step_ids.add(hash(request))
        if self.answers is None:
            self.answers = {}
        self.answers[request] = digest, answer
        if len(self.answers) > REMEMBERED:
            del self.answers[next(iter(self.answers))]


def missing_session() -> BadArgument:
    """Return the error for a session that does not exist."""
    return BadArgument(
        "there is no such session: it was closed, its lease expired, or the server was restarted."
    )


class Sessions:
    """All sessions of a server."""

    def __init__(self, limits: ServeLimits, metrics: Metrics) -> None:
        """Start without sessions."""
        self.limits, self.metrics = limits, metrics
        self.draining = False
        self._sessions: dict[str, Session] = {}
        self._interval = 1.0 / limits.rate

    def __len__(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    @property
    def running(self) -> int:
        """The number of sessions with an episode in progress."""
        return sum(session.running for session in self._sessions.values())

    def open(self, offer: Offer, recipe: Maker, owner: object = None, name: str | None = None) -> Session:
        """Open a session, under a name that the client may choose.

        Raises:
            Full: when there is no room. Draining: when the server is stopping.
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
        forsaken = [
            each
            for each in self._sessions.values()
            if each.owner is None and each.on_close is None and not each.lock.locked()
        ]
        oldest = min(forsaken, key=lambda each: each.touched, default=None)
        if oldest is None or monotonic() - oldest.touched < FORSAKEN_S:
            self.metrics.count("sessions_refused_total")
            raise Full(f"the server has {len(self)} sessions, its maximum; close one, or try again later.")
        self._drop(oldest)

    def get(self, session_id: Any) -> Session:
        """Return a session.

        Raises:
            BadArgument: when there is no session of that id.
        """
        session = self.find(session_id)
        if session is None:
            raise missing_session()
        return session

    def of(self, offer: Offer, session_id: Any) -> Session:
        """Return a session of an environment.

        Raises:
            BadArgument: when there is no session of that id, or it is of another environment.
        """
        session = self.get(session_id)
        if session.offer is not offer:
            raise BadArgument(f"that session is of {session.offer.id}, not of {offer.id}.")
        return session

    def find(self, session_id: Any) -> Session | None:
        """Return a session; None if there is none of that id."""
        return self._sessions.get(session_id) if isinstance(session_id, str) else None

    async def answer_once(
        self,
        session: Session,
        request: str | int | None,
        verb: str,
        content: Any,
        answer: Callable[[], Awaitable[bytes]],
    ) -> bytes:
        """Return the stored answer to a repeated request; else make the answer and store it.

        Args:
            session: its answers are searched; the caller holds its lock.
            request: the client's id of the request; None: nothing is stored.
            verb: what is asked for; `reset` begins another episode, with ids of its own.
            content: the rest of the request, as plain data.
            answer: makes the answer.

        Raises:
            BadArgument: when the id is that of another request in this episode. Or what `answer` raised.
        """
        if request is None:
            return await answer()
        digest = blake2b(_SORTED.encode((verb, content)), digest_size=16).digest()
        known = session.find_answer(request, digest, resets=verb == "reset")
        if known is not None:
            self.metrics.count("answers_repeated_total")
            return known
        sent = await answer()
        session.remember(request, digest, sent, steps=verb == "step")
        return sent

    async def leave(self, session: Session) -> None:
        """Handle a lost connection: close its session, unless it was opened before the connection."""
        session.owner = None
        if session.ends_with_its_owner:
            await self.close(session)

    async def close(self, session: Session) -> None:
        """Close a session after its current call; calling it twice is harmless."""
        async with session.lock:
            self._drop(session)

    def _drop(self, session: Session, expired: bool = False) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.running = False
            if session.on_close is not None:
                session.on_close(expired)
            session.offer.carrier.remove(session.place)
            self.metrics.count("sessions_closed_total")

    def forget(self) -> None:
        """Drop every session at once, as if the server was restarted."""
        for session in [*self._sessions.values()]:
            self._drop(session)

    def release(self, owner: object) -> None:
        """Keep the sessions of a lost connection until their lease expires."""
        for session in self._sessions.values():
            if session.owner is owner:
                session.owner = None

    def reap(self) -> None:
        """Close the sessions whose lease has expired."""
        late = monotonic() - self.limits.lease_s
        for session in [each for each in self._sessions.values() if each.touched < late]:
            if not session.lock.locked():
                self.metrics.count("sessions_expired_total")
                self._drop(session, expired=True)
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
        """Run one call, limited to the session's rate.

        Raises:
            Exception: what the environment, or its host, raised.
        """
        if session.id not in self._sessions:
            raise missing_session()
        began = session.touched = monotonic()
        session.free_at = max(session.free_at + self._interval, began - 1.0)  # a second's worth at a time
        if session.free_at > began:
            self.metrics.count("calls_slowed_total")
            await asyncio.sleep(session.free_at - began)
            began = monotonic()
        outcome = await session.offer.carrier.call(session.place, verb, args, kwargs)
        now = session.touched = monotonic()
        self.metrics.count_call(verb, now - began, outcome.error)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    async def reset(
        self,
        session: Session,
        seed: int | None = None,
        options: Mapping[str, Any] = NO_KWARGS,
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Start an episode; a refused reset leaves the earlier episode as it was.

        Args:
            session: its lock is held by the caller.
            seed: the episode's seed; None: a new one.
            options: further keywords of the environment's reset.
            kwargs: the keywords of a new environment, which replaces the session's; None: keep that.

        Raises:
            Draining, BadArgument, or what the environment raised.
        """
        if self.draining:
            raise Draining("the server is about to end and begins nothing new.")
        seed = seeding.fresh() if seed is None else seeding.check(seed)
        carrier, unused = session.offer.carrier, session.place
        earlier = session.progress(), session.answers, session.step_ids, session.kwargs, session.place
        if kwargs is not None:
            session.place, session.kwargs = carrier.add(session.offer.recipe(kwargs)), kwargs
        session.resume(Progress(seed, 0, False, False))
        session.answers = session.step_ids = None  # clients may number the requests of each episode from 1
        try:
            start = await self.call(session, "reset", (seed,), options)
        except BadArgument as error:
            unused = session.place
            progress, session.answers, session.step_ids, session.kwargs, session.place = earlier
            session.resume(progress)
            if kwargs is None and not isinstance(error, UnknownArgument):  # found in the midst of its reset
                session.running = False
            raise
        finally:
            if kwargs is not None:
                carrier.remove(unused)
        session.running = True
        return start

    async def step(self, session: Session, action: Any) -> Any:
        """Take one step; the last allowed step is truncated.

        Raises:
            EpisodeOver: after that one. Others: what the environment raised.
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
        """Take one step, and if it ends the episode start the next; see `gem.hosts.verbs.advance`."""
        if next_seed is None:
            return check_step(await self.step(session, action))
        if not session.over and not self.draining and session.steps + 1 < self.limits.steps:
            step = await self.call(session, "advance", (action, next_seed))
            session.steps += 1
            if step[2] or step[3]:
                session.steps, session.seed, session.answers = 0, next_seed, None
            return tuple(step)
        step = check_step(await self.step(session, action))
        final = {"final_obs": step[0], "final_info": step[4]}
        try:
            obs, info = check_start(await self.reset(session, next_seed))
        except Exception as error:  # the end of this episode stands all the same
            obs, info = None, {"error": describe_failure(error)}
        return obs, *step[1:4], {**info, **final}


def _cut(step: Any) -> Any:
    """Return a step that the server's limit cuts off."""
    if type(step) is Step:
        return step._replace(truncated=True, info={**step.info, "stop": StopReason.TURN_LIMIT.value})
    return step._replace(truncations={seat: not step.terminations[seat] for seat in step.truncations})
