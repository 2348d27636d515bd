"""OpenEnv's protocol: its messages, and how an environment's steps are written in them.

An action is ``{"text": ...}``, or one of OpenEnv's tool actions, which become the text that a text agent
would have written. An observation is ``{"text": ...}``, with ``parts`` if there are pictures. Values without
a field in the protocol are in the metadata: ``terminated``, ``truncated``, ``stop``, ``verdict`` and
``info``. An episode without a verdict ends with ``reward: null, done: true``; its reward is never 0.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from gem import codec
from gem.content import Image, Obs, ToolCall, ToolSpec, text_of
from gem.core import Start, Step, check_reward
from gem.errors import (
    BadAction,
    BadArgument,
    EnvClosed,
    EpisodeOver,
    GemError,
    NoVerdict,
    ResetNeeded,
    replace_surrogates,
)
from gem.record import StopReason, Verdict
from gem.rollout.episode import find_task_stop, find_truncation_stop
from gem.serve.environments.sessions import Draining, Full, Offer, Session, Sessions
from gem.serve.json_messages import Read, decode_json
from gem.specs import name_of
from gem.tools import calls

LOG = logging.getLogger("gem.serve")

CALLERS_FAULT = (BadArgument, BadAction, ResetNeeded, EpisodeOver, EnvClosed, Draining, Full)
"""Errors that leave the episode as it is: the request was wrong, not the environment."""

EPISODE_ID_AT_MOST = 255


class Message(Struct):
    """A client's message over the WebSocket."""

    type: str = ""
    data: dict[str, Any] = {}
    request_id: str | None = None


_MESSAGE, _OBJECT = msgspec.json.Decoder(Message), msgspec.json.Decoder(dict[str, Any])
encode = msgspec.json.Encoder().encode


def read(text: str | bytes) -> Message:
    """Return a message.

    Raises:
        Unreadable: for a text that is not JSON, or not a message.
    """
    return _read(_MESSAGE, text)


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request.

    Raises:
        Unreadable: for any other body.
    """
    return _read(_OBJECT, body) if body else {}


def _read(decoder: msgspec.json.Decoder[Read], text: str | bytes) -> Read:
    try:
        return decode_json(decoder, text)
    except msgspec.ValidationError as error:
        raise Unreadable("VALIDATION_ERROR", f"invalid message: {error}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable("INVALID_JSON", f"invalid JSON: {error}") from error


class Unreadable(BadArgument):
    """A message that cannot be read; `code` is OpenEnv's."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code


def code_of(error: Exception) -> str:
    """Return OpenEnv's code of an error."""
    if isinstance(error, Unreadable):
        return error.code
    if isinstance(error, Full | Draining):
        return "CAPACITY_REACHED"
    return "VALIDATION_ERROR" if isinstance(error, BadArgument | BadAction) else "EXECUTION_ERROR"


def describe_error(error: Exception) -> str:
    """Return the error text for a client: gem's own message, or only the type of any other error.

    The text of other errors may contain paths and secrets of this machine. It goes to the log, under a number
    that the client gets.
    """
    if isinstance(error, GemError) and (name_of(type(error)) or "").startswith("gem."):
        return replace_surrogates(str(error))
    number = secrets.token_hex(4)
    LOG.error("error %s in an environment", number, exc_info=error)
    return f"the environment raised {type(error).__name__}; the server's log has more, under {number}."


def error_message(error: Exception) -> bytes:
    """Return an error as a message."""
    return encode({"type": "error", "data": {"message": describe_error(error), "code": code_of(error)}})


# -- an environment's values in the protocol


def observation(obs: Obs) -> dict[str, Any]:
    """Return an observation in OpenEnv's form."""
    if type(obs) is str:
        return {"text": replace_surrogates(obs)}
    return {
        "text": replace_surrogates(text_of(obs)),
        "parts": [] if isinstance(obs, str) else [_part(part) for part in obs],
    }


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, Image):
        data = base64.b64encode(part.data).decode()
        return {
            "type": "image",
            "mime": replace_surrogates(part.mime),
            "data": data,
            "alt": replace_surrogates(part.alt),
        }
    return {"type": "text", "text": replace_surrogates(part.text)}


def pack_start(session: Session, start: Start) -> dict[str, Any]:
    """Return the result of a reset."""
    metadata = {"env_id": session.offer.id, "episode_id": session.episode_id, "seed": session.seed}
    if start.info:
        metadata["info"] = codec.plain(start.info)
    return {"observation": observation(start.obs), "reward": None, "done": False, "metadata": metadata}


def pack_step(step: Step) -> dict[str, Any]:
    """Return the result of a step.

    Raises:
        NoVerdict, ContractBroken: for a step without a verdict, or without a finite reward.
    """
    obs, reward, terminated, truncated, info = step
    if info.get("stop") == StopReason.ERROR.value:
        raise NoVerdict(str(info.get("error") or "the environment said stop 'error'."))
    result: dict[str, Any] = {"observation": observation(obs), "reward": check_reward(reward), "done": False}
    if terminated or truncated:
        result["done"] = True
        result["metadata"] = {
            "verdict": Verdict.SCORED.value,
            "terminated": bool(terminated),
            "truncated": bool(truncated),
            "stop": (find_task_stop(info) if terminated else find_truncation_stop(info)).value,
        }
    if info:
        result.setdefault("metadata", {})["info"] = codec.plain(info)
    return result


def pack_failure(error: Exception) -> dict[str, Any]:
    """Return the last result of an episode without a verdict."""
    metadata = {
        "verdict": Verdict.NONE.value,
        "terminated": False,
        "truncated": True,
        "stop": StopReason.ERROR.value,
        "error": {"type": type(error).__name__, "message": describe_error(error)},
    }
    return {"observation": {"text": ""}, "reward": None, "done": True, "metadata": metadata}


def action_of(data: Mapping[str, Any], tools: Sequence[ToolSpec]) -> str:
    """Return an action as text.

    Raises:
        BadAction: for a value that is not an action.
    """
    kind = data.get("type")
    if kind == "call_tool":
        name, arguments = data.get("tool_name"), data.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise BadAction('a call_tool action has "tool_name", a text, and "arguments", an object.')
        if name not in [tool.name for tool in tools]:
            known = ", ".join(tool.name for tool in tools) or "none"
            raise BadAction(f"there is no tool {replace_surrogates(name)!r:.80}; there are: {known}.")
        return calls.write("", (ToolCall("", name, json.dumps(arguments or {})),))
    strangers = set(data) - {"text", "metadata"}
    text = data.get("text")
    if strangers or not isinstance(text, str):
        got = ", ".join(sorted(map(replace_surrogates, data))) or "nothing"
        raise BadAction(f'the action has {got:.200}; accepted: {{"text": "..."}}.')
    return text


def tools_of(tools: Sequence[ToolSpec], schema_key: str = "input_schema") -> list[dict[str, Any]]:
    """Return tools in OpenEnv's form; with another key, in MCP's."""
    return [
        {"name": tool.name, "description": tool.description, schema_key: dict(tool.schema)} for tool in tools
    ]


_METADATA = {"type": "object", "title": "Metadata"}
_ANY_PARTS = {"type": "array", "items": {"type": "object"}, "title": "Parts"}
_OBSERVATION = {
    "type": "object",
    "title": "Observation",
    "properties": {
        "text": {"type": "string", "title": "Text"},
        "parts": _ANY_PARTS,
        "done": {"type": "boolean", "default": False, "title": "Done"},
        "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None, "title": "Reward"},
        "metadata": _METADATA,
    },
    "required": ["text"],
}
SCHEMA = {
    "action": {
        "type": "object",
        "title": "Action",
        "properties": {"text": {"type": "string", "title": "Text"}, "metadata": _METADATA},
        "required": ["text"],
        "additionalProperties": False,
    },
    "observation": _OBSERVATION,
    "state": {
        "type": "object",
        "title": "State",
        "properties": {
            "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "title": "Episode Id"},
            "step_count": {"type": "integer", "minimum": 0, "title": "Step Count"},
            "env_id": {"type": "string", "title": "Env Id"},
            "seed": {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "Seed"},
            "running": {"type": "boolean", "title": "Running"},
        },
    },
}
"""The answer of ``/schema``."""


# -- requests


def open_session(sessions: Sessions, offer: Offer, owner: object = None) -> Session:
    """Open a session.

    Raises:
        BadArgument: for an environment with several seats, which the protocol does not support. Others: see
            Sessions.open.
    """
    if offer.several:
        raise BadArgument(
            f"{offer.id} has several seats; gem's own clients can play it, as host='remote:...'."
        )
    return sessions.open(offer, offer.recipe(), owner)


async def reset(sessions: Sessions, session: Session, data: Mapping[str, Any]) -> dict[str, Any]:
    """Start an episode, and return its first observation.

    Raises:
        CALLERS_FAULT: for a wrong request. Any other failure gives an episode without a verdict.
    """
    given, options = dict(data), {}
    if session.offer.tasks is not None and "index" in given:
        options, _ = {"idx": given.pop("index")}, given.pop("split", None)
    seed, episode_id = given.pop("seed", None), given.pop("episode_id", None)
    if episode_id is not None and (not isinstance(episode_id, str) or len(episode_id) > EPISODE_ID_AT_MOST):
        raise BadArgument(f"episode_id is to be a text of {EPISODE_ID_AT_MOST} characters at most.")
    if isinstance(seed, bool):
        raise BadArgument(f"seed is {seed}; accepted: a non-negative integer.")
    if options and not given:  # with other keywords it may have other tasks
        check_index(session.offer, options["idx"])
    renewed = given != session.kwargs or session.over  # another environment, or one that broke
    episode_id = episode_id or secrets.token_hex(8)
    try:
        start = await sessions.reset(session, seed, options, given if renewed else None)
        session.episode_id = episode_id
        return pack_start(session, start)
    except CALLERS_FAULT:
        raise
    except Exception as error:
        session.episode_id = episode_id
        return _end_without_verdict(sessions, session, error)


def check_index(offer: Offer, index: Any) -> None:
    """Refuse an index that no task of the environment has.

    Raises:
        BadArgument: for such an index.
    """
    tasks = offer.tasks or ()
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(tasks):
        raise BadArgument(f"index is {index!r:.40}; {offer.id} has tasks 0 to {len(tasks) - 1}.")


async def step(sessions: Sessions, session: Session, data: Mapping[str, Any]) -> dict[str, Any]:
    """Take one action, and return the result of the step.

    Raises:
        CALLERS_FAULT: for a wrong request. Any other failure gives an episode without a verdict, and so does
            whatever the environment raises in an episode that goes on: the request was in order.
    """
    if data.get("type") == "list_tools":
        listed = {"tools": tools_of(session.offer.tools)}
        return {"observation": listed, "reward": None, "done": False}
    action, was_running = action_of(data, session.offer.tools), session.running
    try:
        return pack_step(await sessions.step(session, action))
    except Exception as error:
        if isinstance(error, CALLERS_FAULT) and not was_running:
            raise
        return _end_without_verdict(sessions, session, error)


def _end_without_verdict(sessions: Sessions, session: Session, error: Exception) -> dict[str, Any]:
    session.running, session.over = False, True
    sessions.metrics.count("no_verdict_total")
    return pack_failure(error)


def state(session: Session) -> dict[str, Any]:
    """Return the state of a session."""
    return {
        "episode_id": session.episode_id,
        "step_count": session.steps,
        "env_id": session.offer.id,
        "seed": session.seed,
        "running": session.running,
    }


async def answer(sessions: Sessions, session: Session, text: str | bytes) -> bytes | None:
    """Return the answer to one WebSocket message; None if the message closes the session."""
    try:
        message = read(text)
        if message.type == "close":
            return None
        async with session.lock:
            carry_out = partial(_answer, sessions, session, message)
            return await sessions.answer_once(
                session, message.request_id, message.type, message.data, carry_out
            )
    except Exception as error:
        return error_message(error)


async def _answer(sessions: Sessions, session: Session, message: Message) -> bytes:
    if message.type == "step":
        return encode({"type": "observation", "data": await step(sessions, session, message.data)})
    if message.type == "reset":
        return encode({"type": "observation", "data": await reset(sessions, session, message.data)})
    if message.type == "state":
        return encode({"type": "state", "data": state(session)})
    raise Unreadable("UNKNOWN_TYPE", f"unknown message type: {replace_surrogates(message.type)!r:.80}")
