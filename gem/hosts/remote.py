"""The remote host: environments on a server (`gem-gym serve`), over one web socket.

All calls submitted at one time are one message. A lost connection is made again, and the calls in flight are
sent again; the server answers calls that it has already run from memory. A server that stays away, or that
was restarted, counts as a worker that died: its episodes end without verdict.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Any

from msgspec import UNSET

from gem.core import Env
from gem.errors import BadArgument, NoVerdict, WorkerDied, needs_extra
from gem.hiding import plain_address
from gem.hosts import wire
from gem.hosts.base import NO_KWARGS, Command, Host, Outcome, Recipe, overdue
from gem.registry import Maker
from gem.specs import TaskRef, WrapperRef, written_arguments
from gem.trust import split_address

with needs_extra("the remote host", "websockets", "serve"):
    from websockets.exceptions import ConnectionClosed, WebSocketException
    from websockets.sync.client import ClientConnection

    from gem.hosts.web_sockets import ConnectionRefused, open_web_socket

PATIENCE_S = 10.0
"""Seconds to retry a server that cannot be reached any more."""

FIRST_S = 2.0
"""Seconds to retry a server that was never reached."""

FRUITLESS = 8
"""Number of connections in a row without an answer before giving up."""

KEEPALIVE = {"SO_KEEPALIVE": 1, "TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Socket options with which a vanished machine is noticed within a minute."""

CLOSE_S = 2.0
RETRY_S = 0.2
ANSWER_AT_MOST = 1 << 28
"""The most bytes of one message from the server."""

ANSWERS_AT_MOST = 4096
"""Number of unread messages from the server; with too few, both sides would wait for each other."""

FRAME_BYTES = 1 << 18
"""The most bytes of one message of several requests, because a server limits messages."""

TOO_LONG = 1009
"""The close code of a web socket for a message that is too long."""

LOST = (OSError, EOFError, TimeoutError, UnicodeError, WebSocketException)  # also for an invalid host name


class Remote(Host):
    """A host for environments on a server; see `gem-gym serve`.

    Recipes are ids, tasks or Makers whose arguments can be stored as JSON; the server refuses environments
    that it does not list. With `call_s`, a call that takes longer is given up, and its environment closed.

    Args:
        call_s: seconds that a call may take, including the network.
        address: the server's address, such as http://127.0.0.1:8000; None: the environment variable
            GEM_SERVE_URL.
        token: the server's token; "": none; None: the environment variable GEM_SERVE_TOKEN.
        patience_s: seconds to retry a server that cannot be reached any more.

    Raises:
        BadArgument: without an address, or for an invalid one.
    """

    takes_states = False

    def __init__(
        self,
        call_s: float | None = None,
        address: str | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        super().__init__(call_s)
        self.url = _check_url(address or os.environ.get("GEM_SERVE_URL", "").strip())
        self._place = plain_address(self.url)
        self._token = os.environ.get("GEM_SERVE_TOKEN", "") if token is None else token
        self._patience_s = patience_s
        self._connection: ClientConnection | None = None
        self._met = False  # the server was reached once
        self._fruitless = 0  # connections in a row without an answer
        self._resources = ExitStack()
        self._envs: dict[int, _Env] = {}
        self._flights: dict[int, _Flight] = {}  # by the number of the request
        self._number = 0
        self._done: list[Outcome] = []
        self._leaving: list[wire.Request] = []  # sessions to close with the next message
        self._frame_bytes = FRAME_BYTES

    # -- environments

    def _add(self, index: int, recipe: Recipe, alone: bool) -> None:
        self._envs[index] = _Env(task_of(index, recipe))

    def _remove(self, index: int) -> None:
        self._leave(self._envs.pop(index))

    def _renew(self, index: int, recipe: Recipe | None) -> None:
        env = self._envs[index]
        self._leave(env)
        self._envs[index] = _Env(env.task if recipe is None else task_of(index, recipe))

    def _leave(self, env: _Env) -> None:
        if env.opened:
            env.opened = False
            self._leaving.append(wire.Request(self._next(), env.session, wire.CLOSE))
            if not self.busy:
                self._send([])

    def env(self, index: int) -> Env:
        """Raise BadArgument: the environment is on the server."""
        raise BadArgument("these environments run on a server; use the serial or thread host.")

    # -- calls

    def about(self, index: int) -> wire.About:
        """Return the claims of the environment at `index`, and its tools.

        Raises:
            GemError: the server's error.
        """
        asked = self._request(index, wire.ABOUT, (), NO_KWARGS)
        about: wire.About = self._alone(index, asked)
        return about

    def fork(self, index: int, seed: int | None) -> int:
        """Add a copy of the environment at `index` in the same state, and return its index.

        Raises:
            CannotFork: the environment cannot be copied. Or another error of the server.
        """
        self._check_idle(index)
        origin = self._envs[index]
        twin = self.add(Elsewhere(origin.task))
        copy = self._envs[twin]
        forked = wire.Request(self._next(), copy.session, wire.FORK, [seed], origin=origin.session)
        self._flights[forked.id] = _Flight(twin, forked)
        copy.opened = True
        try:
            self._alone(twin, forked)
        except BaseException:
            self.abandon(twin)
            self.remove(twin)
            raise
        return twin

    def abandon(self, index: int) -> None:
        """Give up an environment's call in flight, if it has one, and its episode: as after Ctrl-C."""
        numbers = [number for number, flight in self._flights.items() if flight.index == index]
        if numbers or index in self.busy:
            for number in numbers:
                del self._flights[number]
            self._done = [outcome for outcome in self._done if outcome.index != index]
            self.busy.discard(index)
            self._leave(self._envs[index])
            self._envs[index] = _Env(self._envs[index].task, lost=True)

    def _alone(self, index: int, asked: wire.Request) -> Any:
        """Send one request, wait for its answer, and return or raise it; no other request is in flight."""
        self.busy.add(index)
        self._send([asked])
        (outcome,) = self.ready()
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _start(self, commands: Sequence[Command]) -> None:
        requests = []
        for index, verb, args, kwargs in commands:
            env = self._envs[index]
            if env.lost and verb != "reset":
                env.lost = False
                self._done.append(Outcome(index, None, WorkerDied(f"the episode of env {index} is gone.")))
                continue
            requests.append(self._request(index, verb, args, kwargs))
        if requests:
            self._send(requests)

    def _request(
        self, index: int, verb: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> wire.Request:
        env = self._envs[index]
        env.lost = False
        task = None if env.opened else env.task
        asked = wire.request(self._next(), env.session, verb, args, kwargs, task)
        env.opened = True
        self._flights[asked.id] = _Flight(index, asked, args, kwargs)
        return asked

    def _collect_outcomes(self, at_least: int, timeout: float | None) -> list[Outcome]:
        until = float("inf") if timeout is None else monotonic() + timeout
        while len(self._done) < at_least:
            wake = until
            if self.call_s is not None:
                wake = min(wake, min(flight.began for flight in self._flights.values()) + self.call_s)
            self._receive(None if wake == float("inf") else max(0.0, wake - monotonic()))
            now = monotonic()
            self._give_up(now)
            if now >= until:
                break
        done, self._done = self._done, []
        return done

    def _give_up(self, now: float) -> None:
        if self.call_s is None:
            return
        for number, flight in [*self._flights.items()]:
            if now - flight.began >= self.call_s:
                del self._flights[number]
                self._done.append(Outcome(flight.index, None, overdue(flight.request.verb, self.call_s)))
                self._leave(self._envs[flight.index])
                self._envs[flight.index] = _Env(self._envs[flight.index].task)

    # -- the connection

    def _connect(self) -> ClientConnection:
        if self._connection is None:
            headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
            self._connection = self._resources.enter_context(
                open_web_socket(
                    self.url + wire.PATH,
                    additional_headers=headers,
                    max_size=ANSWER_AT_MOST,
                    max_queue=ANSWERS_AT_MOST,
                    open_timeout=self._patience_s,
                    close_timeout=CLOSE_S,
                    ping_interval=None,  # saves a thread; the server's pings are answered anyway
                )
            )
            self._met = True
            for name, value in KEEPALIVE.items():
                if hasattr(socket, name):  # Linux has all of them
                    level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
                    self._connection.socket.setsockopt(level, getattr(socket, name), value)
        return self._connection

    def _drop(self) -> None:
        self._connection = None
        with suppress(*LOST):
            self._resources.close()

    def _send(self, requests: Sequence[wire.Request]) -> None:
        """Send requests after those that close sessions; if the connection is lost, resend all in flight."""
        leaving, self._leaving = self._leaving, []
        if not requests and self._connection is None:
            return  # a session without further requests ends with its lease
        try:
            if self._connection is None and len(self._flights) > len(requests):
                raise ConnectionError  # earlier requests in flight are sent again too
            self._say([*leaving, *requests])
        except LOST as lost:
            if requests:
                self._again(lost)

    def _say(self, requests: Sequence[wire.Request]) -> None:
        """Send requests in as few messages as possible."""
        connection = self._connect()
        frame: list[bytes] = []
        size = 0
        for request in map(wire.ENCODER.encode, requests):
            if frame and size + len(request) >= self._frame_bytes:
                connection.send(f"[{b','.join(frame).decode()}]")
                frame, size = [], 0
            frame.append(request)
            size += len(request) + 1
        if frame:
            connection.send(f"[{b','.join(frame).decode()}]")

    def _receive(self, timeout: float | None) -> None:
        """Process one message, or a lost connection."""
        if not self._flights:
            return
        try:
            message = self._connect().recv(timeout)
        except TimeoutError:
            return
        except LOST as lost:
            self._again(lost)
            return
        try:
            answers = wire.ANSWERS.decode(message)
        except (ValueError, RecursionError):
            self._again()
            return
        for answer in answers:
            flight = self._flights.pop(answer.id, None)
            if flight is not None:  # else it was given up, or closed a session
                self._fruitless = 0
                self._take(flight, answer)

    def _take(self, flight: _Flight, answer: wire.Answer) -> None:
        index, env, verb = flight.index, self._envs[flight.index], flight.request.verb
        if answer.error is None:
            try:
                self._done.append(Outcome(index, wire.unpack(verb, answer.value)))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                self._done.append(
                    Outcome(index, None, NoVerdict(f"the server's answer is unreadable: {error}"))
                )
            return
        if answer.error.type != wire.GONE:
            self._done.append(Outcome(index, None, wire.error_of(answer.error)))
            return
        self._envs[index] = _Env(env.task)
        if verb == "reset" and flight.request.open is UNSET:  # a reset starts over in any case
            self._send([self._request(index, verb, flight.args, flight.kwargs)])
        else:
            self._done.append(
                Outcome(index, None, WorkerDied(f"the server lost env {index}: {answer.error.message}"))
            )

    def _again(self, lost: BaseException | None = None) -> None:
        """Connect again and resend all requests in flight; without a server, all of them have died."""
        self._shorten(lost)
        until = monotonic() + (self._patience_s if self._met else min(self._patience_s, FIRST_S))
        why: Exception = WorkerDied(f"the server at {self._place} closes every connection without an answer.")
        self._fruitless += 1
        while self._fruitless <= FRUITLESS:
            self._drop()
            if not self._flights:
                return
            try:
                self._say([flight.request for flight in self._flights.values()])
                return
            except LOST as failed:
                if isinstance(failed, ConnectionRefused) and failed.status < 500:
                    hint = self._missing if failed.status == 401 else "."
                    why = BadArgument(f"{self._place} answers {failed.answer}{hint}")
                    break
                self._shorten(failed)
                why = WorkerDied(f"the server at {self._place} cannot be reached: {failed}")
                if monotonic() >= until:
                    break
                Event().wait(RETRY_S)
        self._fruitless = 0
        flights, self._flights = self._flights, {}
        indices = {flight.index for flight in flights.values()}
        for flight in flights.values():
            self._done.append(Outcome(flight.index, None, why))
        for index, env in self._envs.items():
            self._envs[index] = _Env(env.task, lost=env.opened and index not in indices)

    @property
    def _missing(self) -> str:
        """The end of the error where the server wants another token."""
        if not self._token and os.environ.get("GEM_SERVE_TOKEN"):
            return (
                ": GEM_SERVE_TOKEN was not sent, because you did not name this server here yourself. If it "
                "is yours, set GEM_SERVE_URL to its address too."
            )
        return ": the token is missing or wrong; set GEM_SERVE_TOKEN."

    def _shorten(self, lost: BaseException | None) -> None:
        """After a message that was too long, send fewer requests per message, or give up the longest."""
        if not isinstance(lost, ConnectionClosed) or lost.rcvd is None or lost.rcvd.code != TOO_LONG:
            return
        sizes = {number: len(wire.ENCODER.encode(flight.request)) for number, flight in self._flights.items()}
        longest = max(sizes, key=lambda number: sizes[number], default=None)
        if longest is None or sizes[longest] < self._frame_bytes:
            self._frame_bytes //= 4
            return
        self._fruitless = 0
        why = f"a call of {sizes[longest]:,} bytes is more than {self._place} accepts in one message."
        self._done.append(Outcome(self._flights.pop(longest).index, None, NoVerdict(why)))

    def _close(self) -> None:
        if self._connection is not None:
            for env in self._envs.values():
                if env.opened:
                    self._leaving.append(wire.Request(self._next(), env.session, wire.CLOSE))
            if self._leaving:
                with suppress(*LOST):
                    self._say(self._leaving)
        self._drop()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A recipe for an environment on a server; this process need not know its id."""

    task: TaskRef

    def __call__(self) -> Env:
        """Raise BadArgument: only the server can make it."""
        raise BadArgument(f"{self.task.spec} is made on a server; use the remote host.")


class _Env:
    """The state of an environment on the server: its task, its session, whether that was opened."""

    __slots__ = ("lost", "opened", "session", "task")

    def __init__(self, task: TaskRef, lost: bool = False) -> None:
        self.task, self.lost = task, lost
        self.session = secrets.token_urlsafe(wire.SESSION_AT_LEAST)
        self.opened = False


class _Flight:
    """A request in flight."""

    __slots__ = ("args", "began", "index", "kwargs", "request")

    def __init__(
        self,
        index: int,
        request: wire.Request,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] = NO_KWARGS,
    ) -> None:
        self.index, self.request, self.args, self.kwargs = index, request, args, kwargs
        self.began = monotonic()


def task_of(index: int, recipe: Any) -> TaskRef:
    """Return a recipe as a task that can be sent.

    Raises:
        BadArgument: for a recipe that cannot be stored as JSON.
    """
    if isinstance(recipe, Elsewhere):
        if recipe.task.opaque:
            raise _unsendable(index, recipe.task.opaque)
        return recipe.task
    if not isinstance(recipe, Maker):
        raise BadArgument(
            f"the recipe of env {index} is {recipe!r:.80}; accepted on a remote host: a Maker whose "
            "arguments can be stored as JSON."
        )
    task = recipe.env_id if isinstance(recipe.env_id, TaskRef) else TaskRef(recipe.spec.id)
    kwargs, opaque = written_arguments(type(recipe), recipe.kwargs)
    wrappers = []
    for wrapper in recipe.wrappers:
        if callable(wrapper):
            opaque = (*opaque, f"wrapper {wrapper!r:.60}")
        else:
            wrappers.append(wrapper if isinstance(wrapper, WrapperRef) else WrapperRef(wrapper))
    if task.opaque or opaque:
        raise _unsendable(index, (*task.opaque, *opaque))
    return TaskRef(task.spec, {**task.kwargs, **kwargs}, (*task.wrappers, *wrappers))


def _unsendable(index: int, opaque: Sequence[str]) -> BadArgument:
    return BadArgument(f"env {index} cannot be sent: {', '.join(opaque)} cannot be stored as JSON.")


def _check_url(url: str) -> str:
    """Return the address of a server.

    Raises:
        BadArgument: for an invalid address.
    """
    with suppress(ValueError):
        parts = split_address(url)
        if parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment):
            return url.rstrip("/")
    raise BadArgument(
        f"the server's address is {url!r:.120}; accepted: http://host:port, in host='remote:http://...' "
        "or the environment variable GEM_SERVE_URL."
    )
