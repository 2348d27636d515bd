"""The messages between a remote host and a server of environments: requests and answers.

A frame is a JSON array, of requests to the server or of answers from it. A request names a session by an id
that the client drew at random; with `open` it starts one. Requests of a session are numbered: a request that
is sent again after a lost connection is answered again, but not run twice. Values are written like those of
episodes (`gem.codec`); values that JSON cannot hold are read back as text. A state never leaves the server:
its client gets a name for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gem import codec, errors
from gem.core import Start, Step
from gem.errors import GemError, NoVerdict
from gem.hosts.base import stand_in_for
from gem.hosts.verbs import Description
from gem.specs import Solver, TaskRef

PATH = "/gem"
"""The URL path at which a server answers."""

SESSION_AT_LEAST = 16
"""Length of a session's id; the id is a secret: any client that knows it can use the session."""

GONE = "SessionGone"
"""The error type for a session that does not exist, or no longer exists."""

ABOUT, CLOSE, FORK = "about", "close", "fork"
"""Requests beside the verbs: the environment's claims, the end of a session, and a new session with a copy
of another one's state."""


class Request(Struct, omit_defaults=True):
    """A call; `open` is the task of a new session, `origin` the session that it is a fork of."""

    id: int
    session: str
    verb: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    open: msgspec.Raw | UnsetType = UNSET
    origin: str | None = None


class Error(Struct, omit_defaults=True):
    """The error of a call; `no_verdict` means that its class is a NoVerdict; its episode is tried again."""

    type: str
    message: str
    no_verdict: bool = False


class Answer(Struct, omit_defaults=True):
    """The answer to the request with the same number."""

    id: int
    value: Any = None
    error: Error | None = None


class About(Struct):
    """The claims of an environment, its seats, its tools, and what it reads itself (`Env.answer_marks`)."""

    seats: list[str]
    tools: list[Any]
    max_turns: int | None
    deterministic: bool
    forkable: bool
    solver: Solver
    solver_rate: float | None
    splits: tuple[str, ...] = ()
    answer_marks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a rate without its solver."""
        if (self.solver == "measured") != (self.solver_rate is not None):
            raise ValueError("solver_rate is for a measured solver, which needs it")


CLAIMS = ("max_turns", "deterministic", "forkable", "solver", "solver_rate", "splits")
"""The claims of a spec that `about` returns."""

ENCODER = msgspec.json.Encoder()
REQUESTS, ANSWERS = msgspec.json.Decoder(list[Request]), msgspec.json.Decoder(list[Answer])


def request(
    number: int,
    session: str,
    verb: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    task: TaskRef | None,
) -> Request:
    """Return the request for a call; with `task` it opens the session."""
    opened = UNSET if task is None else msgspec.Raw(codec.pack(task))
    return Request(number, session, verb, codec.plain(list(args)), codec.plain(dict(kwargs)), opened)


def pack(verb: str, value: Any) -> Any:
    """Return the result of a verb in a form that JSON can hold."""
    if verb == "describe":
        return [msgspec.Raw(codec.pack(value.task)), value.assembles_history]
    return codec.plain(value)


def unpack(verb: str, value: Any) -> Any:
    """Return the result that `pack` converted.

    Raises:
        ValueError: for a value that is not a result of the verb.
    """
    if verb == "describe":
        task, assembles_history = value
        return Description(codec.unpack(ENCODER.encode(task), TaskRef), assembles_history)
    back = codec.restored(value)
    if verb == ABOUT:
        return msgspec.convert(back, About)
    if verb in ("reset", "step", "advance"):
        if not isinstance(back, list):
            raise ValueError(f"{verb}() returned {back!r:.80}")
        obs, *rest = back
        observations = (
            {seat: _obs(each) for seat, each in obs.items()} if isinstance(obs, dict) else _obs(obs)
        )
        kind = {"reset": Start, "step": Step}.get(verb)
        if kind is None or isinstance(obs, dict):
            return observations, *rest
        return kind(observations, *rest)
    return tuple(back) if isinstance(back, list) else back


def _obs(obs: Any) -> Any:
    return tuple(obs) if isinstance(obs, list) else obs


def error_of(error: Error) -> Exception:
    """Return the gem error with this name; for another class, an error of one with that name."""
    kind: Any = vars(errors).get(error.type)
    is_gems = isinstance(kind, type) and issubclass(kind, GemError)
    if is_gems and issubclass(kind, NoVerdict) is error.no_verdict:  # else it has only the name of gem's
        known: Exception = kind(error.message)
        return known
    plain = "NoVerdict" if error.no_verdict else "RuntimeError"
    name = error.type[:80] if error.type.isidentifier() else plain
    return stand_in_for(name, error.no_verdict)(error.message)
