"""The proxy's web application: model APIs for agent programs, and addresses to open and reward episodes."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from gem import seeding
from gem.agents.wire import data_url
from gem.content import Image, Obs, Text, written_tools
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    GemError,
    NoVerdict,
    UnknownEnv,
    needs_extra,
    text_of_error,
)
from gem.graders.base import Grader, check_score
from gem.record import Agent, AgentInfo, Attempts, Episode, Limits, RunInfo, SeatEnd, StopReason
from gem.rollout.episode import versions
from gem.rollout.store import EpisodeStore

with needs_extra("the proxy", "starlette", "serve"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

from gem.serve.listening import refuse_sender
from gem.serve.mcp.http import answer_request
from gem.serve.mcp.messages import Endpoint
from gem.serve.proxy import chat, responses
from gem.serve.proxy.answering import Answering
from gem.serve.proxy.played import Played
from gem.serve.proxy.recording import CUT, Begun, Call, Recording
from gem.serve.proxy.request import (
    Answer,
    NoKey,
    NotNow,
    NotThere,
    OverBudget,
    Refused,
    Request,
    TooLarge,
    TooMany,
    a_text,
    an_object,
)
from gem.specs import TaskRef

log = logging.getLogger(__name__)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""The accepted names of episodes."""

KEY = "gem-"
"""The prefix of the keys of opened episodes; an unknown key with this prefix never opens an episode."""

ONLY_KEY = "gem_only_key"
"""The entry in the state of a request that names the only key which its listener accepts."""

WORD = re.compile(r"(?:[A-Z]+|[A-Z]?[a-z]+|[a-z]*(?:[A-Z][a-z]{2,})+)?(?:[0-9]{1,8}[A-Za-z]?)?")
"""A word of a name that a person chose, such as ``try``, ``gsm8k``, ``v0`` or ``TicTacToe``."""

LONGEST_WORD = 16
"""The most letters and digits in a row of such a name."""

DEEPEST, MOST_NESTED = 64, 500_000
"""The most levels of nesting in a request's JSON, and the most lists and objects, which take time to read."""

STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
BODIES = 4
"""How many bodies of the longest kind may be arriving at a time from one episode."""

PROTOCOLS = {"chat/completions": chat, "responses": responses}
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The limits of a proxy.

    `sessions`: open sessions. `body_bytes`: bytes of a request. `episode_bytes`: bytes of all messages of an
    episode, each counted once, and of the tools and settings that its record keeps. `idle_s`: seconds
    without a call per session. `request_s`: seconds within which a request must have arrived whole.
    """

    sessions: int = 1000
    body_bytes: int = 16 << 20
    episode_bytes: int = 128 << 20
    idle_s: float = 900.0
    request_s: float = 60.0

    def __post_init__(self) -> None:
        """Refuse limits that allow no session."""
        counts = min(self.sessions, self.body_bytes, self.episode_bytes)
        if counts < 1 or not (self.idle_s > 0 and self.request_s > 0):
            raise BadArgument(f"got {self}; accepted: 1 or more, seconds above 0.")


@dataclass(slots=True)
class Session:
    """An open episode: its key, its recording, and its calls in progress."""

    name: str
    key: str
    recording: Recording
    last_call: float
    reference: Any = None
    played: Played | None = None
    answers: dict[str, Call] = field(default_factory=dict)
    busy: int = 0
    running: dict[asyncio.Task[Answer], Begun] = field(default_factory=dict)
    attempts: list[Attempts] = field(default_factory=list)
    """How its calls fare at the model's endpoint."""
    endpoint: Endpoint | None = None
    """Plays the environment of the episode by MCP."""
    stop: Callable[[str], None] | None = None
    """Called with a reason when no further call of the episode will be answered. It is not ended as idle."""
    given_up: set[str] = field(default_factory=set)
    failure: AgentUnavailable | None = None
    unheard: dict[bytes, list[tuple[Begun, asyncio.Task[Answer]]]] = field(default_factory=dict)
    """Calls whose client disconnected, by request: it gets the answer when it repeats the request."""

    def give_up(self, why: str) -> None:
        """Report that no further call will be answered; each reason once, however often calls come."""
        if self.stop is not None and why not in self.given_up:
            self.given_up.add(why)
            self.stop(why)

    def delay_s(self) -> float:
        """Return the seconds in which a call waited to be taken by its endpoint, or failed there.

        The last request of a call is none of it: a model that answers slowly is slow. Seconds in which
        several calls waited count once. For any thread.
        """
        now, total, reached = time.perf_counter(), 0.0, 0.0
        for each in list(self.attempts):  # in the order in which they were asked
            until = now if each.until is None else each.until
            total += max(0.0, until - max(each.asked, reached))
            reached = max(reached, until)
        return total

    def again(self, key: bytes) -> tuple[Begun, asyncio.Task[Answer]] | None:
        """Return the call that was started for the same request of a client that disconnected."""
        left = self.unheard.get(key, [])
        while left:
            begun, task = left.pop(0)
            if not task.done() or (not task.cancelled() and task.exception() is None):
                return begun, task
        return None


class Proxy:
    """A recording proxy between agent programs and a model; a server runs its `app`.

    The session of a call is named by its API key, or by the path ``/s/KEY/v1``. The key comes from `open`;
    with `any_key`, any other key opens an episode of that name. Over HTTP, episodes are opened, listed,
    stepped, rewarded and cancelled with the token alone. Everything runs in one event loop; from other
    threads, use `server.Server`.
    """

    def __init__(
        self,
        agent: Agent,
        store: EpisodeStore | None = None,
        *,
        limits: Limits | None = None,
        allowed: Allowed | None = None,
        task: str = "proxy:agent",
        grader: Grader | None = None,
        seed: int = 0,
        token: str | None = None,
        any_key: bool = False,
        loopback: bool = True,
        ended: Callable[[Episode], None] | None = None,
    ) -> None:
        """Answer with `agent`.

        Args:
            agent: the agent that answers. Episodes can be trained on if it returns tokens, as an OpenAIAgent
                with `token_ids` does.
            store: episodes are written there when they end.
            limits: limits of each episode: `turns` counts its calls, `tokens` its sampled tokens.
            allowed: the limits of the proxy.
            task: the task name of episodes that play no environment.
            grader: scores the last answer against the `reference` that an episode was opened with.
            seed: the seed of sampling.
            token: the bearer token required to open and reward episodes; by default a random one.
            any_key: a model call with an unknown key opens an episode. Any program that reaches the proxy can
                then open episodes, and call the model in those whose key it guesses.
            loopback: refuse requests sent to other host names than this machine's own.
            ended: called with each episode that ends.
        """
        self.answering = Answering(agent)
        self.store, self.grader, self.seed, self.any_key = store, grader, seed, any_key
        self.token = token or secrets.token_urlsafe(24)
        self.limits, self.allowed = limits or Limits(), allowed or Allowed()
        self.task = TaskRef(task)
        self.loopback = loopback
        self.ended = ended
        info = getattr(agent, "info", None) or AgentInfo(type(agent).__name__)
        self.model = info.model or "gem"
        self.run = RunInfo(
            agent=info.agent,
            model=info.model,
            sampling=info.sampling,
            vocabulary=info.vocabulary,
            address=info.address,
            limits=self.limits,
            versions=versions(),
        )
        self.sessions: dict[str, Session] = {}
        self._by_key: dict[str, Session] = {}
        self._samples: dict[str, int] = {}
        self._arriving = Counter[str]()
        handlers = {HTTPException: _http_error, Refused: _refusal, _Failed: _failure, Exception: _bug}
        calls = [
            Route(f"{base}/{path}", self._call, methods=["POST"])
            for base in ("/v1", "/s/{key}/v1")
            for path in PROTOCOLS
        ]
        self.app = Starlette(
            routes=[
                *calls,
                *(
                    Route(path, self._play_by_mcp, methods=["GET", "POST", "DELETE"])
                    for path in ("/mcp", "/s/{key}/mcp")
                ),
                Route("/v1/models", self._models),
                Route("/s/{key}/v1/models", self._models),
                Route("/episodes", self._list, methods=["GET"]),
                Route("/episodes", self._open, methods=["POST"]),
                Route("/episodes/{name}", self._show, methods=["GET"]),
                Route("/episodes/{name}", self._cancel, methods=["DELETE"]),
                Route("/episodes/{name}/reward", self._reward, methods=["POST"]),
                Route("/episodes/{name}/step", self._step, methods=["POST"]),
            ],
            exception_handlers=handlers,  # type: ignore[arg-type]  # each takes the errors of its row
            lifespan=self._lifespan,
        )

    # -- episodes

    def open(
        self,
        name: str | None = None,
        *,
        group: str | None = None,
        reference: Any = None,
        key: str | None = None,
        episode: Episode | None = None,
    ) -> Session:
        """Open an episode, and return its session.

        Args:
            name: the episode's name; several episodes of one name are samples of one job.
            group: the name of the task that several episodes share; `name` by default.
            reference: what the grader compares the last answer with.
            key: what programs send as their API key; a random one by default.
            episode: the record to write, of an episode that is played elsewhere too; a new one by default.

        Raises:
            Refused: for an invalid name, or one that is in use. TooMany: when too many are open.
        """
        if name is None:
            name = f"episode-{len(self._samples)}"
            while name in self._samples:
                name += "x"
        if not NAME.fullmatch(name):
            raise Refused(f"name is {name!r:.80}; accepted: up to 64 letters, digits, '_', '-' and '.'.")
        if group is not None and not NAME.fullmatch(group):
            raise Refused(f"group is {group!r:.80}; accepted: up to 64 letters, digits, '_', '-' and '.'.")
        if name in self.sessions:
            raise NotNow(f"the episode {name!r} is open already.")
        if len(self.sessions) >= self.allowed.sessions:
            raise TooMany(f"{self.allowed.sessions} sessions are open, the maximum; try again later.")
        sample = self._samples[name] = self._samples.get(name, -1) + 1
        if episode is None:
            episode = Episode(self.task, self.run, name, sample, salt=self.seed, group=group or name)
        key = key or KEY + secrets.token_urlsafe(18)
        session = Session(
            name, key, Recording(episode, room=self.allowed.episode_bytes), time.monotonic(), reference
        )
        self.sessions[name] = self._by_key[key] = session
        return session

    async def reward(
        self, name: str, value: float | None = None, *, success: bool | None = None, done: bool = True
    ) -> Session:
        """Give an episode a reward; `done` ends it. Without a value, the grader computes it.

        Raises:
            Refused: for an episode that is not open, or without a value and a grader.
        """
        session = self._session(name)
        recording = session.recording
        if session.played is not None:
            raise NotNow(f"{name!r} plays an environment, which rewards it.")
        info: dict[str, Any] = {}
        if session.reference is not None:
            info["reference"] = session.reference
        if value is None:
            if not done or self.grader is None or session.reference is None:
                raise Refused("reward is missing; accepted: a number, or none where a grader has one.")
            if not recording.calls:
                raise NotNow(f"{name!r} has no answer to grade yet.")
            answer = recording.calls[-1].answer.text
            why, score = "", None
            try:
                score = check_score(await asyncio.to_thread(self.grader, answer, session.reference))
            except NoVerdict as error:
                why = f"no verdict of the grader: {error}"
            if self.sessions.get(name) is not session:
                raise NotNow(f"the episode {name!r} has ended meanwhile.")
            if score is None:
                await self._end(session, recording.cancel(why))
                return session
            value, success = score.value, score.correct
            info |= {"correct": score.correct, "why": score.why}
        recording.reward(value)
        if done:
            ends = {True: StopReason.SOLVED, False: StopReason.FAILED, None: StopReason.ENDED}
            await self._end(session, recording.finish(ends[success], info=info))
        return session

    async def end_program(self, name: str, reward: float, end: SeatEnd) -> None:
        """End the episode of a program as the environment judged it; see Recording.finish_program."""
        session = self._session(name)
        session.recording.reward(reward)
        await self._end(session, session.recording.finish_program(end))

    async def settle(self, session: Session, most_s: float) -> None:
        """Decide about the calls in flight of a program that has ended; one that is not answered failed.

        A model that answers slowly is told from an endpoint that does not answer by waiting for what is
        before the endpoint, at most `most_s` seconds. Nothing is sent again.
        """
        for attempts in session.attempts:
            attempts.last = True
        failed = [begun for begun in session.running.values() if _failure_of(begun)]
        if session.running and not failed:
            await asyncio.wait(session.running, timeout=most_s)
        for task, begun in list(session.running.items()):
            if not task.done() and (_failure_of(begun) or not failed):
                why = _failure_of(begun) or f"no answer within {most_s:g} s of the program's end"
                session.recording.note_failure(begun, why)

    async def cancel(self, name: str, why: str = "nobody said what it is worth.") -> None:
        """End an episode without a verdict; if an environment is played and a limit was reached, scored.

        Raises:
            NotThere: when it is not open.
        """
        session = self._session(name)
        recording, played = session.recording, session.played
        if played is not None and recording.spent:
            await self._end(session, recording.finish_played(played.episode))
        else:
            await self._end(session, recording.cancel(why))

    async def leave(self, session: Session) -> None:
        """Close the session of an episode that has ended elsewhere, if it is open."""
        if self.sessions.get(session.name) is session:
            await self._end(session, session.recording.episode)

    async def _end(self, session: Session, episode: Episode) -> None:
        """Close a session, and pass its episode on."""
        if self.sessions.get(session.name) is session:
            del self.sessions[session.name]
            self._by_key.pop(session.key, None)
        for task in session.running:
            task.cancel()
        self.answering.forget(episode.id)
        try:
            if self.store is not None:
                self.store.append(episode)
        finally:
            if self.ended is not None:
                self.ended(episode)
            if session.played is not None:
                await session.played.close()

    def _session(self, name: str) -> Session:
        try:
            return self.sessions[name]
        except KeyError:
            raise NotThere(f"no episode {name!r:.80} is open.") from None

    def _require_key(self, http: HttpRequest) -> str:
        """Return the key of a request that has a session, or may open one (with `any_key`)."""
        key = http.path_params.get("key") or _bearer(http)
        if not key:
            raise NoKey("No API key was sent; it says which episode the call belongs to.")
        if http.scope.get("state", {}).get(ONLY_KEY, key) != key:
            raise NoKey("The API key opens no episode here.")
        if key not in self._by_key and (not self.any_key or key.startswith(KEY) or self._is_token(key)):
            raise NoKey("The API key opens no episode; `POST /episodes` gives one that does.")
        return key

    def _of_key(self, key: str) -> Session:
        """Return the session of a key; if there is none, open one of that name."""
        session = self._by_key.get(key)
        if session is not None:
            return session
        name = name_of_key(key)
        if name in self.sessions:
            raise NoKey("The API key is the name of an episode that has another key.")
        return self.open(name, key=key)

    # -- calls of models

    async def _call(self, http: HttpRequest) -> Response:
        self._check_sender(http)
        protocol = PROTOCOLS[http.url.path.rpartition("/v1/")[2]]
        body = await self._body(http, self._require_key(http))
        request = protocol.read(_json(body))
        if request.schema and not self.answering.passes:
            raise Refused("This model cannot be held to the form of an answer; leave that out.")
        key = blake2b(http.url.path.encode() + b"\0" + body, digest_size=16).digest()
        session = self._of_key(self._require_key(http))
        session.busy += 1
        try:
            begun, task = session.again(key) or self._begin(session, key, request)
            gone = asyncio.ensure_future(_wait_until_gone(http))
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                session.unheard.setdefault(key, []).append((begun, task))
                return Response(status_code=499)  # which nobody reads
        finally:
            session.busy -= 1
            session.last_call = time.monotonic()
        try:
            answer = task.result()
        except asyncio.CancelledError:
            gone.cancel()
            raise NotNow(f"the episode {session.name!r} has ended meanwhile.") from None
        except BaseException:
            gone.cancel()
            raise

        def note_delivery(heard: bool) -> None:
            session.last_call = time.monotonic()
            if heard:
                session.recording.note_heard(begun)
            else:
                session.unheard.setdefault(key, []).append((begun, task))

        if request.stream:
            events = [_event(*event) for event in protocol.events(answer, request)]
            return _Delivery(events, "text/event-stream", gone, note_delivery)
        return _Delivery([_bytes(protocol.write(answer, request))], "application/json", gone, note_delivery)

    def _begin(self, session: Session, key: bytes, request: Request) -> tuple[Begun, asyncio.Task[Answer]]:
        if request.previous is not None:
            before = session.answers.get(request.previous)
            if before is None:
                raise NotThere(f"no response {request.previous!r:.80} is known here; send the whole input.")
            request = _behind(request, before)
        sampling = self.answering.sampling(request)
        now = time.perf_counter()
        attempts = Attempts(now, now)
        try:
            begun = session.recording.begin(key, request, sampling, self.seed, attempts)
        except OverBudget:
            session.give_up("limit")
            raise
        task = asyncio.create_task(self._answer(session, begun))
        session.running[task] = begun
        session.attempts.append(attempts)
        task.add_done_callback(session.running.pop)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # heard, whoever is gone
        return begun, task

    async def _answer(self, session: Session, begun: Begun) -> Answer:
        """Ask the model, and record what it answers."""
        recording, began = session.recording, time.perf_counter()
        try:
            try:
                reply = await self.answering.ask(begun.ask)
            except NoVerdict as error:
                if not error.refused:
                    raise
                recording.note_discarded(error.usage)
                plain = await self.answering.ask_plainly(begun.ask)  # or the server refuses everything
                recording.note_discarded({self.run.model or "": plain})
                raise Refused(text_of_error(error)[:500]) from error
            except BadArgument as error:  # messages that the chat template refuses
                raise Refused(text_of_error(error)) from error
            call = recording.take(begun, reply, time.perf_counter() - began)
        except Refused:
            recording.note_refusal(begun)
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {text_of_error(error)[:300]}"
            recording.note_failure(begun, why, error.usage if isinstance(error, NoVerdict) else {})
            if isinstance(error, AgentUnavailable):
                session.failure = error
                session.give_up("model")
            if not isinstance(error, NoVerdict):
                log.exception("the model failed")
            raise _Failed(error) from error
        finally:
            if (attempts := begun.ask.attempts) is not None and attempts.until is None:
                attempts.until = time.perf_counter()  # it waits no longer
        answer = Answer(
            f"gem-{session.name}-{secrets.token_hex(8)}",
            begun.request.model or self.model,
            call.answer,
            "stop" if CUT in (call.turn.extra or {}) else reply.finish,
            call.turn.usage or {},
            reply.prompt_ids,
            reply.token_ids,
            reply.logprobs or (),
            int(time.time()),
        )
        session.answers[answer.id] = call
        return answer

    async def _play_by_mcp(self, http: HttpRequest) -> Response:
        self._check_sender(http)
        session = self._by_key.get(self._require_key(http))
        if session is None or session.endpoint is None:
            raise NotThere("the API key opens no episode that is played by MCP.")
        session.busy += 1
        try:
            return await answer_request(session.endpoint, http)
        finally:
            session.busy -= 1
            session.last_call = time.monotonic()

    async def _models(self, http: HttpRequest) -> Response:
        self._check_sender(http)
        row = {"id": self.model, "object": "model", "created": 0, "owned_by": "gem"}
        return _json_response({"object": "list", "data": [row]})

    # -- addresses of episodes

    async def _list(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        return _json_response({"episodes": [_summary(session) for session in self.sessions.values()]})

    async def _show(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        return _json_response(_summary(self._session(http.path_params["name"])))

    async def _open(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        wanted = _fields(await self._body(http), "name", "group", "reference", "env", "seed")
        if "seed" in wanted and "env" not in wanted:
            raise Refused("seed goes with env; the seed of a proxy's sampling is the proxy's own.")
        played = None
        if "env" in wanted:
            try:
                played = Played(a_text(wanted["env"], "env"), seeding.check(wanted.get("seed", 0)))
                await played.begin()
            except UnknownEnv as error:
                raise NotThere(str(error)) from error
            except Refused:
                raise
            except BadArgument as error:
                raise Refused(str(error)) from error
            except GemError as error:  # data, a package or a server is missing
                raise NotNow(f"{wanted['env']!r:.120} cannot be made: {error}") from error
        try:
            names: dict[str, Any] = {
                each: a_text(wanted[each], each) for each in ("name", "group") if each in wanted
            }
            session = self.open(**names, reference=wanted.get("reference"))
        except BaseException:
            if played is not None:
                await played.close()
            raise
        session.played = played
        root = str(http.base_url).rstrip("/")
        fields: dict[str, Any] = {
            "id": session.name,
            "api_key": session.key,
            "base_url": f"{root}/v1",
            "path_url": f"{root}/s/{session.key}/v1",
        }
        if played is not None:
            session.recording.episode.task = played.episode.task
            fields |= {
                "observation": _message_content(played.observation),
                "tools": written_tools(played.tools),
            }
            if played.done:  # it broke
                await self._end(session, session.recording.finish_played(played.episode))
                fields |= _end_of(session)
        return _json_response(fields, 201)

    async def _reward(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        given = _fields(await self._body(http), "reward", "success", "done")
        for name in ("success", "done"):
            if given.get(name) is not None and not isinstance(given[name], bool):
                raise Refused(f"{name} is {given[name]!r:.40}; accepted: true or false.")
        done = given.get("done")
        session = await self.reward(
            http.path_params["name"],
            given.get("reward"),
            success=given.get("success"),
            done=done if done is not None else True,
        )
        return _json_response({**_summary(session), **(_end_of(session) if done is not False else {})})

    async def _step(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        given = _fields(await self._body(http), "action")
        action = a_text(given.get("action"), "action")
        session = self._session(http.path_params["name"])
        played = session.played
        if played is None:
            raise NotNow(f"{session.name!r} plays no environment; open an episode with env.")
        session.busy += 1
        try:
            turn = await played.step(action)
        finally:
            session.busy -= 1
            session.last_call = time.monotonic()
        if self.sessions.get(session.name) is not session:
            raise NotNow(f"the episode {session.name!r} has ended meanwhile.")
        session.recording.add_step(turn)
        end = played.episode.ends.get(turn.seat)
        fields = {
            "observation": _message_content(played.observation),
            "reward": turn.reward,
            "terminated": bool(end and end.terminated),
            "truncated": bool(end and end.truncated),
            "done": played.done,
        }
        if played.done:
            await self._end(session, session.recording.finish_played(played.episode))
            fields |= _end_of(session)
        return _json_response(fields)

    async def _cancel(self, http: HttpRequest) -> Response:
        self._check_owner(http)
        session = self._session(http.path_params["name"])
        await self.cancel(session.name, "its owner gave it up.")
        return _json_response({**_summary(session), **_end_of(session)})

    # -- who may ask, and for how much

    def _check_sender(self, http: HttpRequest) -> None:
        """Refuse requests that a page of another site made a browser send."""
        host, origin = http.headers.get("host", ""), http.headers.get("origin")
        if refusal := refuse_sender(host, origin, loopback=self.loopback):
            raise (_Foreign if refusal[0] == _Foreign.status else _WrongHost)(refusal[1])

    def _check_owner(self, http: HttpRequest) -> None:
        self._check_sender(http)
        if not self._is_token(_bearer(http) or ""):
            raise NoKey("Episodes are opened and rewarded with the proxy's token, as a bearer token.")

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "surrogatepass"), self.token.encode())

    async def _body(self, http: HttpRequest, key: str = "") -> bytes:
        """Return the body of a request. `key`: whose requests it is counted with while it arrives."""
        most = self.allowed.body_bytes
        length = http.headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > most:
            raise TooLarge(f"The body has more than the {most:,} bytes that are read.")
        pieces, size = [], 0
        try:
            async for piece in http.stream():
                size += len(piece)
                self._arriving[key] += len(piece)
                if size > most:
                    raise TooLarge(f"The body has more than the {most:,} bytes that are read.")
                if self._arriving[key] > BODIES * most:
                    raise TooMany("Too many long requests arrive at a time; wait for an answer.")
                pieces.append(piece)
        except ClientDisconnect:
            raise Refused("The client left before its request was whole.") from None
        finally:
            self._arriving[key] -= size
            if not self._arriving[key]:
                del self._arriving[key]
        return b"".join(pieces)

    # -- time

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        sweeping = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            for name, session in list(self.sessions.items()):
                session.give_up("model")
                with suppress(NotThere):
                    await self.cancel(name, "the proxy was stopped.")
            self.answering.close()

    async def _sweep(self) -> None:
        """End the episodes that have been idle too long."""
        while True:
            await asyncio.sleep(min(self.allowed.idle_s / 4, 30.0))
            before = time.monotonic() - self.allowed.idle_s
            for session in list(self.sessions.values()):
                if session.stop is None and not session.busy and session.last_call < before:
                    try:
                        await self.cancel(session.name, f"nothing came for {self.allowed.idle_s:g} s.")
                    except Exception:
                        log.exception("an idle episode could not be ended")


class _WrongHost(Refused):
    status = 421


class _Foreign(Refused):
    status, kind = 403, "permission_error"


class _Failed(Exception):
    """The model did not answer. A client may try again, unless the agent can answer no request any more."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.again = not isinstance(error, AgentUnavailable)
        own = isinstance(error, NoVerdict)
        self.message = text_of_error(error)[:500] if own else f"the model failed: {type(error).__name__}"


class _Delivery(Response):
    """A response that reports afterwards whether it was sent completely."""

    def __init__(
        self,
        pieces: Sequence[bytes],
        kind: str,
        gone: asyncio.Future[None],
        note_delivery: Callable[[bool], None],
    ) -> None:
        super().__init__(pieces[0] if len(pieces) == 1 else b"", headers=HEADERS, media_type=kind)
        if len(pieces) > 1:
            del self.headers["content-length"]
        self.pieces, self.gone, self.note_delivery = pieces, gone, note_delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        heard = False
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            for place, piece in enumerate(self.pieces, 1):
                await asyncio.sleep(0)  # for the news that the client is gone
                if self.gone.done():
                    return
                more = place < len(self.pieces)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
            heard = True  # a client may hang up on the last event of a stream
        except OSError:
            pass
        finally:
            self.gone.cancel()
            self.note_delivery(heard)


def _failure_of(begun: Begun) -> str:
    """Return why a call in flight failed and waits to be sent again; empty if it does not wait for that."""
    attempts = begun.ask.attempts
    return attempts.why if attempts is not None and attempts.until is None else ""


async def _wait_until_gone(http: HttpRequest) -> None:
    """Wait until the client is gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


def _behind(request: Request, before: Call) -> Request:
    """Return a request with the conversation that it continues; instructions are not inherited."""
    own = request.messages
    earlier = before.messages
    if own and own[0].role == "system":
        rest = earlier[1:] if earlier and earlier[0].role == "system" else earlier
        return replace(request, messages=(own[0], *rest, *own[1:]))
    return replace(request, messages=(*earlier, *own))


def name_of_key(key: str) -> str:
    """Return the name of the episode that a key opens: the key if a person chose it, else its digest.

    Programs may send a provider's key, which must not be recorded. A chosen name consists of words and
    numbers; long or random runs of letters and digits look like a secret.
    """
    words = re.split(r"[-_.]", key) if NAME.fullmatch(key) and not key.startswith("sk-") else [""]
    if any(words) and all(len(word) <= LONGEST_WORD and WORD.fullmatch(word) for word in words):
        return key
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"key-{digest}"


def _bearer(http: HttpRequest) -> str | None:
    kind, _, key = http.headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else None


def _json(body: bytes) -> Any:
    if _count_brackets(body) > MOST_NESTED and _count_brackets(STRING.sub(b"", body)) > MOST_NESTED:
        raise Refused(f"The body has more than {MOST_NESTED:,} lists and objects.")
    try:
        data = json.loads(body.decode("utf-8-sig", "surrogatepass"))  # JSON over HTTP is UTF-8 (RFC 8259)
    except (ValueError, RecursionError) as error:
        raise Refused(f"The body is no JSON: {text_of_error(error)[:200]}.") from error
    layer = [data] if isinstance(data, dict | list) else []
    for _ in range(DEEPEST):
        inside = (each.values() if isinstance(each, dict) else each for each in layer)
        layer = [each for values in inside for each in values if isinstance(each, dict | list)]
        if not layer:
            return data
    raise Refused(f"The body is nested more than {DEEPEST} deep.")  # it could not be written again


def _count_brackets(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{")


def _fields(body: bytes, *known: str) -> dict[str, Any]:
    """Return a JSON object of these fields; one that is null is left out."""
    given = an_object(_json(body or b"{}"), "the body")
    for name in given:
        if name not in known:
            raise Refused(f"the body has the field {name!r:.40}; accepted: {', '.join(known)}.")
    return {name: value for name, value in given.items() if value is not None}


def _message_content(obs: Obs) -> Any:
    """Return an observation as the content of a message."""
    if isinstance(obs, str):
        return obs
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image_url", "image_url": {"url": data_url(part)}}
        for part in obs
        if isinstance(part, Text | Image)
    ]


def _summary(session: Session) -> dict[str, Any]:
    recording = session.recording
    return {
        "id": session.name,
        "episode": recording.episode.id,
        "calls": len(recording.calls),
        "tokens": recording.sampled,
        "reward": recording.episode.earned(),
        "trainable": not recording.untrainable,
        "why": recording.untrainable,
    }


def _end_of(session: Session) -> dict[str, Any]:
    episode = session.recording.episode
    return {"stop": episode.stop.value, "verdict": episode.verdict.value}


def _bytes(data: Any) -> bytes:
    return json.dumps(data).encode("ascii")  # escaped: what a model wrote may hold lone surrogates


def _event(name: str | None, data: Any) -> bytes:
    body = data.encode() if isinstance(data, str) else _bytes(data)
    return (b"" if name is None else b"event: " + name.encode() + b"\n") + b"data: " + body + b"\n\n"


def _json_response(data: Mapping[str, Any], status: int = 200) -> Response:
    return Response(_bytes(data), status, HEADERS, "application/json")


def _error(status: int, message: str, kind: str, code: str | None, again: bool = False) -> Response:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    headers = dict(HEADERS) if again else {**HEADERS, "x-should-retry": "false"}
    return Response(_bytes(body), status, headers, "application/json")


async def _refusal(http: HttpRequest, error: Refused) -> Response:
    return _error(error.status, str(error), error.kind, error.code, again=error.status == 429)


async def _http_error(http: HttpRequest, error: HTTPException) -> Response:
    return _error(error.status_code, error.detail, Refused.kind, None)


async def _failure(http: HttpRequest, error: _Failed) -> Response:
    return _error(503, error.message, "server_error", None, again=error.again)


async def _bug(http: HttpRequest, error: Exception) -> Response:
    return _error(500, "the proxy failed.", "server_error", None)
