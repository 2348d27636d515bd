"""gem's own protocol over one WebSocket, for any number of sessions; see `gem.hosts.wire`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from gem import codec, seeding
from gem.content import written_tools
from gem.errors import BadArgument, NoVerdict, UnknownArgument, UnknownEnv
from gem.hosts import wire
from gem.serve.environments import openenv
from gem.serve.environments.sessions import Offer, Session, Sessions, missing_session
from gem.specs import TaskRef, write_value

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

SNAPSHOTS = 16
"""The most states that a session keeps for its client; then the oldest is dropped."""

SESSION_AT_MOST = 128
TURN_S = 0.005
"""Seconds of work for one connection before others get their turn."""


PLAIN_VERBS: dict[str, dict[bool, list[type]]] = {
    "seed_actor": {False: [int], True: [int]},
    "sample_random_action": {False: []},
    "solve": {False: []},
    "random_action": {True: [str]},
    "expert_action": {True: [str]},
    "describe": {False: [], True: []},
    "introduce": {False: [], True: []},
}
"""The other verbs, with their numbers of arguments for one seat and for several seats."""


class SessionGone(BadArgument):
    """A session that does not exist, or no longer exists."""


class Native:
    """The ASGI application at `wire.PATH`."""

    def __init__(self, sessions: Sessions, offers: Mapping[str, Offer]) -> None:
        """Open sessions of the served environments."""
        self.sessions, self.offers = sessions, offers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await _Connection(self, send).serve(receive)


class _Connection:
    """A connection, and the calls that it waits for."""

    def __init__(self, native: Native, send: Send) -> None:
        self._native, self._sessions, self._send = native, native.sessions, send
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, receive: Receive) -> None:
        await receive()
        await self._send({"type": "websocket.accept"})
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                try:
                    requests = wire.REQUESTS.decode(message.get("text") or message.get("bytes") or "")
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    break  # whoever sends this is no client of gem's
                await self._answer_all(requests)
            else:
                return
        finally:
            # What is in flight goes on: who connects again, asks again, and is answered from memory.
            self._sessions.release(self)
        await self._send({"type": "websocket.close", "code": 1007})

    async def _answer_all(self, requests: list[wire.Request]) -> None:
        answers: list[bytes] = []
        began = perf_counter()
        for request in requests:
            session = self._sessions.find(request.session)
            offer = self._native.offers.get(_spec_of(request)) if session is None else session.offer
            if (offer is None or offer.carrier.inline) and (session is None or not session.lock.locked()):
                answers.append(await self._answer(request))
                if perf_counter() - began > TURN_S:
                    await self._deliver(answers)
                    answers, began = [], perf_counter()
                    await asyncio.sleep(0)
            else:
                if len(self._tasks) >= self._sessions.limits.sessions:  # as many as can be called at a time
                    await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
                task = asyncio.create_task(self._answer_later(request))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        await self._deliver(answers)

    async def _answer_later(self, request: wire.Request) -> None:
        await self._deliver([await self._answer(request)])

    async def _deliver(self, answers: list[bytes]) -> None:
        if answers:
            with suppress(OSError, RuntimeError):  # the client is gone; it may come again and ask again
                await self._send({"type": "websocket.send", "text": f"[{b','.join(answers).decode()}]"})

    async def _answer(self, request: wire.Request) -> bytes:
        try:
            if request.verb == wire.CLOSE:
                session = self._sessions.find(request.session)
                if session is not None:
                    await self._sessions.close(session)
                return wire.ENCODER.encode(wire.Answer(request.id))
            session = self._session(request)
            session.owner = self
            async with session.lock:
                carry_out = partial(self._carry_out, session, request)
                content = request.args, request.kwargs, request.origin
                return await self._sessions.answer_once(session, request.id, request.verb, content, carry_out)
        except Exception as error:  # of the session: nothing was carried out, and nothing is remembered
            return wire.ENCODER.encode(wire.Answer(request.id, error=_error(error)))

    def _session(self, request: wire.Request) -> Session:
        session = self._sessions.find(request.session)
        if session is not None:
            return session
        if not wire.SESSION_AT_LEAST <= len(request.session) <= SESSION_AT_MOST:
            raise BadArgument(f"a session's id has {wire.SESSION_AT_LEAST} to {SESSION_AT_MOST} characters.")
        if request.origin is not None:
            origin = self._sessions.find(request.origin)
            if origin is None:
                raise SessionGone(str(missing_session()))
            return self._sessions.open(origin.offer, origin.recipe, self, request.session)
        if request.open is UNSET:
            raise SessionGone(str(missing_session()))
        task = _read(lambda data: codec.unpack(bytes(data), TaskRef), request.open)
        offer = self._native.offers.get(task.spec)
        if offer is None:
            raise UnknownEnv(
                f"this server offers no {task.spec!r:.80}; it offers {', '.join(self._native.offers)}."
            )
        for value in (task.kwargs, *(wrapper.kwargs for wrapper in task.wrappers)):
            _check_plain(value)
        own = offer.spec.kwargs  # a task that was recorded names them all
        changed = {
            name: value
            for name, value in task.kwargs.items()
            if name not in own or value != write_value(own[name])
        }
        recipe = offer.recipe(changed, task.wrappers)
        return self._sessions.open(offer, recipe, self, request.session)

    async def _carry_out(self, session: Session, request: wire.Request) -> bytes:
        try:
            value = wire.pack(request.verb, await self._call(session, request))
            return wire.ENCODER.encode(wire.Answer(request.id, value))
        except Exception as error:
            return wire.ENCODER.encode(wire.Answer(request.id, error=_error(error)))

    async def _call(self, session: Session, request: wire.Request) -> Any:
        sessions, verb = self._sessions, request.verb
        args, kwargs = _read(codec.restored, request.args), _read(codec.restored, request.kwargs)
        if not isinstance(kwargs, dict):
            raise BadArgument("the keywords are to be an object.")
        options = {name: value for name, value in kwargs.items() if name != "seed" or verb != "reset"}
        if strangers := sorted(set(map(str, options)) - session.offer.keywords):
            raise UnknownArgument(f"this server takes no keyword {strangers[0]!r:.80} of {verb}().")
        match verb, args:
            case "reset", []:
                return await sessions.reset(session, kwargs.get("seed"), options)
            case "reset", [seed]:
                return await sessions.reset(session, seed, options)
            case "step", [action]:
                return await sessions.step(session, action)
            case "advance", [action, next_seed]:
                next_seed = None if next_seed is None else seeding.check(next_seed)
                return await sessions.advance(session, action, next_seed)
            case "get_state", []:
                return await self._save(session)
            case "set_state", [name]:
                return await self._restore(session, name)
            case wire.ABOUT, []:
                return about(session.offer)
            case wire.FORK, [seed]:
                return await self._fork(session, request, seed)
        wanted = PLAIN_VERBS.get(verb) or {}
        if session.offer.several not in wanted or [*map(type, args)] != wanted[session.offer.several]:
            raise BadArgument(
                f"{verb!r:.80} with {len(args)} such arguments is no call of {session.offer.id}."
            )
        return await sessions.call(session, verb, tuple(args), kwargs)

    # -- states, which stay here: what a client sent could not be trusted with making objects

    async def _save(self, session: Session) -> dict[str, str]:
        state = await self._sessions.call(session, "get_state")
        if session.snapshots is None:
            session.snapshots = {}
        number = session.snapshots_made = session.snapshots_made + 1
        session.snapshots[str(number)] = state, session.progress()
        if len(session.snapshots) > SNAPSHOTS:
            del session.snapshots[next(iter(session.snapshots))]
        return {"snapshot": f"{session.id}/{number}"}

    async def _restore(self, session: Session, name: Any) -> None:
        snapshot = name.get("snapshot") if isinstance(name, dict) else None
        if not isinstance(snapshot, str):
            raise BadArgument('a state is {"snapshot": ...}, as get_state() returned it.')
        owner = self._sessions.find(snapshot.partition("/")[0])
        saved = (
            None
            if owner is None or owner.snapshots is None
            else owner.snapshots.get(snapshot.partition("/")[2])
        )
        if saved is None or owner is None or owner.offer is not session.offer:
            raise BadArgument(
                f"that state is kept no more: a session keeps its last {SNAPSHOTS}, as long as it is open."
            )
        state, progress = saved
        await self._sessions.call(session, "set_state", (state,))
        session.resume(progress)

    async def _fork(self, session: Session, request: wire.Request, seed: Any) -> dict[str, Any]:
        origin = self._sessions.find(request.origin)
        if origin is None or origin is session:
            raise SessionGone(str(missing_session()))
        async with origin.lock:
            progress = origin.progress()
            if seed is None:
                state = await self._sessions.call(origin, "get_state")
            else:
                forked = await self._sessions.call(origin, "fork_state", (seeding.check(seed),))
                state, progress.seed = forked
        await self._sessions.call(session, "set_state", (state,))
        session.resume(progress)
        return {}


def about(offer: Offer) -> dict[str, Any]:
    """Return the claims of an environment's spec, its tools, and what it reads itself."""
    spec = offer.spec
    claims = {name: getattr(spec, name) for name in wire.CLAIMS}
    own = {"tools": written_tools(offer.tools), "answer_marks": offer.answer_marks}
    return {**claims, **own, "seats": list(spec.seats)}


def _read(how: Callable[[Any], Any], what: Any) -> Any:
    """Return what a client wrote.

    Raises:
        BadArgument: for what cannot be read.
    """
    try:
        return how(what)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadArgument(f"the request cannot be read: {error!s:.200}") from error


def _spec_of(request: wire.Request) -> str:
    """Return the id that a request opens a session of, or ""."""
    if request.open is UNSET:
        return ""
    try:
        return codec.unpack(bytes(request.open), TaskRef).spec
    except ValueError:
        return ""


def _check_plain(value: Any) -> None:
    """Refuse what names a class or a function: clients choose among values, not what is imported.

    Raises:
        BadArgument: for a mapping with a key that begins with $.
    """
    if isinstance(value, Mapping):
        for key, each in value.items():
            if str(key).startswith("$"):
                raise BadArgument(f"this server takes plain values; {key!r:.40} is none.")
            _check_plain(each)
    elif isinstance(value, list | tuple):
        for each in value:
            _check_plain(each)


def _error(error: Exception) -> wire.Error:
    kind = "BadArgument" if isinstance(error, openenv.Unreadable) else type(error).__name__
    return wire.Error(kind, openenv.describe_error(error), isinstance(error, NoVerdict))
