"""The web application of the environment server: its paths and their answers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import gem
from gem import registry
from gem.errors import BadArgument, UnknownArgument, needs_extra, replace_surrogates, text_of_error
from gem.hosts import wire
from gem.hosts.base import auto_kind, make_host
from gem.naming import without_digest
from gem.rollout.store import EpisodeStore
from gem.sandbox.choice import check_needs
from gem.serve.environments import openenv
from gem.serve.environments.carriers import Carrier, Inline, OnHost
from gem.serve.environments.limits import ServeLimits
from gem.serve.environments.mcp import Episodes, Tools, is_handshake
from gem.serve.environments.metrics import Metrics
from gem.serve.environments.native import Native
from gem.serve.environments.sessions import Offer, Session, Sessions
from gem.specs import parameters_of
from gem.tasks.base import Task, TaskSet

with needs_extra("serving environments", "starlette", "serve"):
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
    from starlette.types import Receive, Scope, Send

from gem.serve.environments.guard import Guard, check_origins
from gem.serve.mcp.http import SESSION_HEADER, answer_post, answer_request, refuse, refuse_version

STATUS = {"CAPACITY_REACHED": 503, "EXECUTION_ERROR": 409, "TOO_LONG": 413}
"""The HTTP statuses of error codes; any other code gives 422."""

SPLIT = {"name": "all", "type": "validation"}
"""The one split reported to OpenEnv's clients, because an id already names a split of its data."""

TASKS_AT_MOST = 1000
"""The most tasks in one answer."""

REAP_S = 5.0
"""Seconds between checks for sessions whose lease has expired."""


class Application:
    """The served environments, the sessions of clients, and the ASGI application `app` over both.

    Args:
        ids: the environments to serve. The first is also at the root, where OpenEnv's clients look.
        token: the token that clients must send; None: only this machine is answered.
        origins: origins of web pages that may connect, besides the server's own.
        limits: see ServeLimits.
        backend: where environments run: a host of `gem.hosts`. ``auto``: those that wait for something
            outside run on the thread host, the others in the server's own thread; ``serial``: all there.
        keywords: environment keywords that clients may set. wrappers: names that clients may add.
        store: where the episodes of MCP's clients are written. show_reward: such a client is told the reward
            when its episode is over.

    Raises:
        UnknownEnv, MissingExtra, MissingData, BadArgument: for an id that cannot be made here.
        BadArgument: for an origin that no page has.
        UnknownArgument: for a keyword that none of the environments takes. BadArgument: for a wrapper that
            goes around none of them.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        token: str | None = None,
        origins: Collection[str] = (),
        limits: ServeLimits | None = None,
        backend: str = "auto",
        keywords: Collection[str] = (),
        wrappers: Collection[str] = (),
        store: EpisodeStore | None = None,
        show_reward: bool = False,
    ) -> None:
        if not ids:
            raise BadArgument("no environment was named; give an id, as game:GuessTheNumber-v0-easy.")
        check_origins(origins)
        self.limits = limits or ServeLimits()
        self.metrics = Metrics()
        self.sessions = Sessions(self.limits, self.metrics)
        self.episodes = Episodes(self.sessions, store, show_reward)
        self._inline = Inline()
        self._hosts: dict[str, OnHost] = {}
        self.offers: dict[str, Offer] = {}
        fixed = frozenset(str(registry.fix_wrapper(each)) for each in wrappers)
        for env_id in ids:
            offer = self._offer(env_id, backend, frozenset(keywords), fixed)
            self.offers[offer.id] = offer
        for keyword in keywords:
            self._check_taken(keyword)
        for wrapper in fixed:
            self._check_fits(wrapper)
        first = next(iter(self.offers.values()))
        self.app = Starlette(
            routes=[
                Route("/metrics", self._metrics),
                Route("/list_environments", self._list),
                Route("/openapi.json", self._openapi),
                WebSocketRoute(wire.PATH, Native(self.sessions, self.offers)),
                *[route for offer in self.offers.values() for route in self._task_routes(offer)],
                *self._routes(first),
                *[Mount(f"/{offer.id}", routes=self._routes(offer)) for offer in self.offers.values()],
            ],
            middleware=[
                Middleware(
                    Guard,
                    token=token,
                    origins=origins,
                    metrics=self.metrics,
                    has_key=self.episodes.has_key,
                )
            ],
            exception_handlers={Exception: _hide_error},
            lifespan=self._lifespan,
        )

    def _offer(self, env_id: str, backend: str, keywords: frozenset[str], wrappers: frozenset[str]) -> Offer:
        spec = registry.spec_named(env_id)
        check_needs([spec], wrappers, keywords)
        kind = auto_kind([spec]) if backend == "auto" else backend
        carrier: Carrier = self._inline
        if kind != "serial":
            if kind not in self._hosts:
                self._hosts[kind] = OnHost(make_host(kind, call_s=self.limits.call_s))
            carrier = self._hosts[kind]
        with registry.make(spec) as env:  # what it lacks is told now, not to the first client
            about = inspect.getdoc(type(env.unwrapped)) or ""
            tools, marks = tuple(env.tool_specs), tuple(env.answer_marks)
            tasks = getattr(env.unwrapped, "tasks", None)
            if not isinstance(tasks, TaskSet):
                tasks = None
            return Offer(spec, carrier, about, tools, marks, tasks, keywords, wrappers)

    def _check_taken(self, keyword: str) -> None:
        """Refuse a keyword that none of the environments takes."""
        refusals = []
        for spec in (offer.spec for offer in self.offers.values()):
            try:
                registry.check_keywords(registry.load(spec.entry_point, spec.extra), [keyword], spec.id)
            except UnknownArgument as refusal:
                refusals.append(refusal)
        if len(refusals) == len(self.offers):
            raise refusals[0]

    def _check_fits(self, wrapper: str) -> None:
        """Refuse a wrapper that fits none of the environments; one that needs keywords is not tried."""
        factory = registry.find_wrapper(wrapper)
        _, *keywords = parameters_of(getattr(factory, "func", factory)).values()
        if any(each.default is each.empty and each.name not in ("args", "kwargs") for each in keywords):
            return
        errors = []
        for offer in self.offers.values():
            try:
                registry.Maker(offer.spec, {}, (wrapper,))().close()
            except Exception as error:  # whatever a stranger's wrapper raises
                errors.append(
                    f"around {offer.id}: {type(error).__name__}: {text_of_error(error).rstrip('.')}"
                )
        if len(errors) == len(self.offers):
            raise BadArgument(
                f"the wrapper {without_digest(wrapper)} cannot be put {errors[0]}. Accepted: a class or "
                "function that is called with the environment and returns one."
            )

    def _routes(self, offer: Offer) -> list[BaseRoute]:
        """Return the routes that clients of OpenEnv and MCP use."""
        methods = ["POST", "GET", "DELETE"]
        return [
            WebSocketRoute("/ws", Socket(self.sessions, offer)),
            WebSocketRoute("/mcp", Socket(self.sessions, offer, Tools(self.sessions, offer))),
            Route("/mcp", partial(self._mcp, offer), methods=methods),
            Route("/mcp/{key}", partial(self._mcp, offer), methods=methods),
            Route("/episodes", partial(self._open, offer), methods=["POST"]),
            Route("/reset", partial(self._reset, offer), methods=["POST"]),
            Route("/step", partial(self._step, offer), methods=["POST"]),
            Route("/state", partial(self._state, offer)),
            Route("/health", self._health),
            Route("/schema", partial(self._schema, offer)),
            Route("/metadata", partial(self._metadata, offer)),
        ]

    def _task_routes(self, offer: Offer) -> list[BaseRoute]:
        """Return the routes about tasks that OpenEnv's clients use."""

        def route(path: str, answer: Callable[[Offer, dict[str, Any]], Any]) -> BaseRoute:
            return Route(f"/{offer.id}/{path}", partial(self._tasks, offer, answer), methods=["POST"])

        return [
            Route(f"/{offer.id}/splits", partial(self._tasks, offer, lambda *_: [SPLIT])),
            route("num_tasks", lambda offer, _: {"num_tasks": len(_require_tasks(offer))}),
            route("tasks", lambda offer, _: {"tasks": tasks_of(offer, 0, None), "env_name": offer.id}),
            route("task", lambda offer, body: {"task": task_of(offer, body.get("index"))}),
            route(
                "task_range",
                lambda offer, body: {"tasks": tasks_of(offer, body.get("start"), body.get("stop"))},
            ),
        ]

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        reaper = asyncio.create_task(self._reap())
        try:
            yield
        finally:
            reaper.cancel()
            with suppress(asyncio.CancelledError):
                await reaper
            await self.sessions.close_all()
            for host in self._hosts.values():
                await asyncio.to_thread(host.close)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(REAP_S, self.limits.lease_s / 2))
            self.sessions.reap()

    # -- one answer for one request

    async def _reset(self, offer: Offer, request: Request) -> Response:
        async def answer(data: bytes) -> bytes:
            body = openenv.read_object(data)
            session_id = body.pop("session_id", None)
            session = self._session(offer, session_id)
            try:
                async with session.lock:
                    result = await openenv.reset(self.sessions, session, body)
            except BaseException:
                if session_id is None:
                    await self.sessions.close(session)
                raise
            result["metadata"]["session_id"] = session.id
            return openenv.encode(result)

        return await self._respond(request, answer)

    async def _step(self, offer: Offer, request: Request) -> Response:
        async def answer(data: bytes) -> bytes:
            body = openenv.read_object(data)
            action, request_id = body.get("action"), body.get("request_id")
            if not isinstance(action, dict):
                raise BadArgument('"action" is to be an object, as {"text": "..."}.')
            if request_id is not None and not isinstance(request_id, str):
                raise BadArgument('"request_id" is to be a text.')
            if "session_id" not in body:
                raise BadArgument('"session_id" is missing; POST /reset gives one, in its metadata.')
            session = self._session(offer, body["session_id"])

            async def step() -> bytes:
                return openenv.encode(await openenv.step(self.sessions, session, action))

            async with session.lock:
                return await self.sessions.answer_once(session, request_id, "step", action, step)

        return await self._respond(request, answer)

    async def _mcp(self, offer: Offer, request: Request) -> Response:
        try:
            return await self._answer_mcp(offer, request)
        except openenv.CALLERS_FAULT as error:
            return refuse(openenv.describe_error(error), STATUS.get(openenv.code_of(error), 422))

    async def _answer_mcp(self, offer: Offer, request: Request) -> Response:
        named, session_id = request.path_params.get("key"), request.headers.get(SESSION_HEADER)
        key = named or session_id
        opened = None if key is None else self.episodes.find(key)
        if key is not None and (opened is None or opened.offer is not offer):
            return refuse("there is no such episode: its time has run out, or the key is wrong.", 404)
        if opened is not None and named is None and request.method == "DELETE":
            await opened.leave()
            await self.sessions.close(opened.session)
            return Response(status_code=204)
        if opened is not None:
            return await answer_request(opened.endpoint, request, self.limits.message_bytes)
        if request.method != "POST":
            return refuse("accepted: POST; and DELETE, to end an episode that a handshake began.", 405)
        body = await self._body(request)
        if is_handshake(body):
            if (refused := refuse_version(request.headers)) is not None:
                return refused  # before an episode begins
            key, opened = await self.episodes.open(offer)
            answered = await answer_post(opened.endpoint, request.headers, body)
            answered.headers[SESSION_HEADER] = key
            return answered
        result = await Tools(self.sessions, offer).answer(body)
        return Response(status_code=202) if result is None else _json(result)

    async def _open(self, offer: Offer, request: Request) -> Response:
        async def answer(data: bytes) -> bytes:
            body = openenv.read_object(data)
            seed = body.pop("seed", None)
            if body or (seed is not None and (isinstance(seed, bool) or not isinstance(seed, int))):
                raise BadArgument('the body is to be {"seed": 3}, a non-negative whole number, or {}.')
            key, opened = await self.episodes.open(offer, seed)
            place = f"{request.url.scheme}://{request.url.netloc}/{offer.id}/mcp/{key}"
            about = {"id": opened.endpoint.episode.episode.id, "seed": opened.session.seed, "url": place}
            return openenv.encode(about)

        return await self._respond(request, answer)

    async def _tasks(
        self, offer: Offer, about: Callable[[Offer, dict[str, Any]], Any], request: Request
    ) -> Response:
        if offer.tasks is None:
            why = f"{offer.id} has no list of tasks; a seed stands for each of its episodes."
            return _json(openenv.encode({"detail": why}), 501)

        async def answer(body: bytes) -> bytes:
            asked = openenv.read_object(body)
            if asked.get("split", SPLIT["name"]) != SPLIT["name"]:
                raise BadArgument(f"split is {asked['split']!r:.80}; there is {SPLIT['name']!r}.")
            return openenv.encode(await asyncio.to_thread(about, offer, asked))

        return await self._respond(request, answer)

    async def _state(self, offer: Offer, request: Request) -> Response:
        async def answer(_: bytes) -> bytes:
            session_id = request.query_params.get("session_id")
            if session_id is None:
                return openenv.encode({"episode_id": None, "step_count": 0, "env_id": offer.id})
            return openenv.encode(openenv.state(self._session(offer, session_id)))

        return await self._respond(request, answer)

    def _session(self, offer: Offer, session_id: Any) -> Session:
        if session_id is None:
            return openenv.open_session(self.sessions, offer)
        return self.sessions.of(offer, session_id)

    async def _respond(self, request: Request, answer: Callable[[bytes], Awaitable[bytes]]) -> Response:
        """Return the answer to a request, or an error response."""
        try:
            return _json(await answer(await self._body(request)))
        except openenv.CALLERS_FAULT as error:
            status = STATUS.get(openenv.code_of(error), 422)
            return _json(openenv.encode({"detail": openenv.describe_error(error)}), status)

    async def _body(self, request: Request) -> bytes:
        received = bytearray()
        with suppress(ClientDisconnect):
            async for part in request.stream():
                received += part
                if len(received) > self.limits.message_bytes:
                    at_most = f"a request has {self.limits.message_bytes:,} bytes at most."
                    raise openenv.Unreadable("TOO_LONG", at_most)
        return bytes(received)

    # -- about the server

    async def _health(self, request: Request) -> Response:
        failed = any(host.failure for host in self._hosts.values())
        status, code = ("unhealthy", 503) if failed or self.sessions.draining else ("healthy", 200)
        return _json(openenv.encode({"status": status}), code)

    async def _metrics(self, request: Request) -> Response:
        gauges = {"sessions": len(self.sessions), "episodes_running": self.sessions.running}
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def _list(self, request: Request) -> Response:
        return _json(openenv.encode([*self.offers]))

    async def _schema(self, offer: Offer, request: Request) -> Response:
        return _json(openenv.encode(openenv.SCHEMA))

    async def _metadata(self, offer: Offer, request: Request) -> Response:
        about = {"name": offer.id, "description": replace_surrogates(offer.about), "version": gem.__version__}
        return _json(openenv.encode(about))

    async def _openapi(self, request: Request) -> Response:
        paths: dict[str, Any] = {}
        for route in request.app.routes:
            if isinstance(route, Route):
                methods = sorted((route.methods or set()) - {"HEAD"})
                paths[route.path] = {method.lower(): {"responses": {"200": {}}} for method in methods}
        info = {"title": "gem environments", "version": gem.__version__}
        return _json(openenv.encode({"openapi": "3.1.0", "info": info, "paths": paths}))


class Socket:
    """A WebSocket with one session: OpenEnv's messages, or with `tools` JSON-RPC.

    The session is opened and closed with the connection. A session that was opened over HTTP, and is named in
    the address, stays open.
    """

    def __init__(self, sessions: Sessions, offer: Offer, tools: Tools | None = None) -> None:
        """Open sessions of `offer`."""
        self.sessions, self.offer, self.tools = sessions, offer, tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer messages in order, until one side closes the connection."""
        await receive()
        await send({"type": "websocket.accept"})
        task = asyncio.current_task()
        session = None
        try:
            session = self._session(scope, task)
            while (message := await receive())["type"] != "websocket.disconnect":
                text = message.get("text") or message.get("bytes") or ""
                if self.tools is None:
                    answer = await openenv.answer(self.sessions, session, text)
                    if answer is None:
                        break
                else:
                    answer = await self.tools.answer(text, session)
                    if answer is None:
                        continue
                await send({"type": "websocket.send", "text": answer.decode()})
            else:
                return
        except openenv.CALLERS_FAULT as error:  # no room, or no such session
            await send({"type": "websocket.send", "text": openenv.error_message(error).decode()})
        except asyncio.CancelledError:  # its lease ran out
            if task is None or task.uncancel():
                raise
        finally:
            if session is not None:
                await self.sessions.leave(session)
        await send({"type": "websocket.close", "code": 1000})

    def _session(self, scope: Scope, task: asyncio.Task[Any] | None) -> Session:
        named = parse_qs(scope["query_string"]).get(b"session_id")
        if named is None:
            return openenv.open_session(self.sessions, self.offer, task)
        session = self.sessions.get(named[0].decode("latin-1"))
        if session.offer is not self.offer or session.owner is not None:
            raise BadArgument(f"that session is of {session.offer.id}, or another web socket holds it.")
        session.owner = task
        return session


def _require_tasks(offer: Offer) -> TaskSet:
    """Return the task list of an environment that has one."""
    assert offer.tasks is not None, "asked only where there are tasks"
    return offer.tasks


def task_of(offer: Offer, index: Any) -> dict[str, Any]:
    """Return a task in the form for clients, without its answer and the other columns of its row.

    Raises:
        BadArgument: for an index that no task has.
    """
    openenv.check_index(offer, index)
    task: Task = _require_tasks(offer)[index]
    return {"id": replace_surrogates(task.id), "index": index, **openenv.observation(task.question)}


def tasks_of(offer: Offer, start: Any, stop: Any) -> list[dict[str, Any]]:
    """Return tasks from `start` to before `stop`, at most TASKS_AT_MOST.

    Raises:
        BadArgument: for bounds that are not whole numbers.
    """
    for bound in (start, stop):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise BadArgument(f"start and stop are to be whole numbers; got {bound!r:.40}.")
    chosen = range(len(_require_tasks(offer)))[start:stop][:TASKS_AT_MOST]
    return [task_of(offer, index) for index in chosen]


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


async def _hide_error(request: Request, error: Exception) -> Response:
    """Return a response without details; the server logs the error."""
    return _json(b'{"detail":"internal error"}', 500)
