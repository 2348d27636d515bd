"""Calls of environments on the wire: what a remote host sends, and what a server of environments answers.

A frame is a JSON array, of requests one way and of answers the other. A request names a session by an id that
the client drew; with `open` it begins one. Requests of a session are numbered: one that comes again, after a
connection was lost, is answered again and not carried out twice. Values are written as episodes are
(`gem.codec`); what JSON cannot hold comes back as text. A state never leaves the server: its client gets a
name for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gem import codec, errors
from gem.core import Start, Step
from gem.errors import GemError, NoVerdict
from gem.hosts.verbs import Description
from gem.specs import Solver, TaskRef

PATH = "/gem"
"""Where a server answers."""

SESSION_AT_LEAST = 16
"""Characters of a session's id: whoever knows it may use the session."""

GONE = "SessionGone"
"""The type of error that says that a session is not there, or no longer."""

ABOUT, CLOSE, FORK = "about", "close", "fork"
"""What a request may ask beside the verbs: what the environment claims, to end the session, and to begin one
with a copy of another's state."""


class Request(Struct, omit_defaults=True):
    """A call; `open` is the task that a new session is for, `origin` the session that it is a fork of."""

    id: int
    session: str
    verb: str
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    open: msgspec.Raw | UnsetType = UNSET
    origin: str | None = None


class Error(Struct):
    """What a call ended in."""

    type: str
    message: str


class Answer(Struct, omit_defaults=True):
    """The answer to the request of the same number."""

    id: int
    value: Any = None
    error: Error | None = None


class About(Struct):
    """What an environment claims, its seats and its tools."""

    seats: list[str]
    tools: list[Any]
    max_turns: int | None
    deterministic: bool
    forkable: bool
    solver: Solver
    solver_rate: float | None

    def __post_init__(self) -> None:
        """Refuse a rate without its solver."""
        if (self.solver == "measured") != (self.solver_rate is not None):
            raise ValueError("a measured solver states its rate, no other does")


CLAIMS = ("max_turns", "deterministic", "forkable", "solver", "solver_rate")
"""The claims of a spec that `about` tells."""

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
    """Return a call as it is sent; with `task` it opens the session."""
    opened = UNSET if task is None else msgspec.Raw(codec.pack(task))
    return Request(number, session, verb, codec.plain(list(args)), codec.plain(dict(kwargs)), opened)


def packed(verb: str, value: Any) -> Any:
    """Return what a verb came to, as JSON can hold it."""
    if verb == "describe":
        return [msgspec.Raw(codec.pack(value.task)), value.assembles_history]
    return codec.plain(value)


def unpacked(verb: str, value: Any) -> Any:
    """Return what `packed` was given.

    Raises:
        ValueError: for what is nothing of the kind.
    """
    if verb == "describe":
        task, assembles_history = value
        return Description(codec.unpack(ENCODER.encode(task), TaskRef), assembles_history)
    back = codec.restored(value)
    if verb == ABOUT:
        return msgspec.convert(back, About)
    if verb in ("reset", "step", "advance"):
        if not isinstance(back, list):
            raise ValueError(f"{verb}() came to {back!r:.80}")
        obs, *rest = back
        seen = {seat: _obs(each) for seat, each in obs.items()} if isinstance(obs, dict) else _obs(obs)
        kind = {"reset": Start, "step": Step}.get(verb)
        if kind is None or isinstance(obs, dict):
            return seen, *rest
        return kind(seen, *rest)
    return tuple(back) if isinstance(back, list) else back


def _obs(obs: Any) -> Any:
    return tuple(obs) if isinstance(obs, list) else obs


def error_of(error: Error) -> Exception:
    """Return an error of gem by its name; another as one without verdict that has its name."""
    found = vars(errors).get(error.type)
    if isinstance(found, type) and issubclass(found, GemError):
        known: Exception = found(error.message)
        return known
    name = error.type[:80] if error.type.isidentifier() else "NoVerdict"
    unknown: Exception = type(name, (NoVerdict,), {})(error.message)
    return unknown
