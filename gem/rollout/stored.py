"""The stored form of an episode: plain JSON values, and back.

What JSON lacks is an object with one key: ``$float`` (nan, inf, -inf), ``$int`` (from 64 bits up, in
hexadecimal), ``$utf8`` (text with lone surrogates, in base64), ``$image`` and ``$text`` (parts of an
observation), ``$dict`` (keys that are not plain text) and ``$repr`` (anything else; it comes back as that
text). Of a prompt only the ids are stored that the seat's last prompt and answer do not cover (`held` says
how many they do), so that long conversations take linear space.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any

from gem.content import Image, Obs, Text
from gem.record import Episode, Failure, SeatEnd, StopReason, Turn, Verdict

DEPTH = 32
"""Nesting below which a value in `info` is stored as its repr; it also ends cycles."""


def to_stored(episode: Episode, tokens: bool = True) -> dict[str, Any]:
    """Return `episode` as plain values; the schema number comes first."""
    error = episode.error
    held: dict[str, tuple[int, ...]] = {}
    stored = {
        "schema": episode.schema,
        "id": plain(episode.id),
        "spec": plain(episode.spec),
        "kwargs": plain(episode.kwargs),
        "seed": plain(episode.seed),
        "group": plain(episode.group),
        "sample": plain(episode.sample),
        "stop": episode.stop.value,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
        "verdict": episode.verdict.value,
        "error": error and [plain(error.boundary), plain(error.type), plain(error.message)],
        "policy_version": plain(episode.policy_version),
        "timing": plain(episode.timing),
        "initial_info": plain(episode.initial_info),
        "turns": [_turn(turn, held, tokens) for turn in episode.turns],
        "final_observation": plain(episode.final_observation),
        "final_info": plain(episode.final_info),
    }
    if episode.ends:
        stored["ends"] = [[plain(seat), _end(end)] for seat, end in episode.ends.items()]
    return stored


def from_stored(data: Mapping[str, Any]) -> Episode:
    """Return the episode that `to_stored` made `data` of.

    Raises:
        KeyError, TypeError, ValueError: when it made no such thing.
    """
    held: dict[str, tuple[int, ...]] = {}
    error = data["error"]
    return Episode(
        id=restored(data["id"]),
        spec=restored(data["spec"]),
        seed=restored(data["seed"]),
        kwargs=restored(data["kwargs"]),
        group=restored(data["group"]),
        sample=restored(data["sample"]),
        turns=[_restored_turn(turn, held) for turn in data["turns"]],
        stop=StopReason(data["stop"]),
        terminated=data["terminated"],
        truncated=data["truncated"],
        verdict=Verdict(data["verdict"]),
        error=None if error is None else Failure(*map(restored, error)),
        initial_info=restored(data["initial_info"]),
        final_observation=_observation(data["final_observation"]),
        final_info=restored(data["final_info"]),
        ends={restored(seat): _restored_end(end) for seat, end in data.get("ends", ())},
        policy_version=restored(data["policy_version"]),
        timing=restored(data["timing"]),
        schema=data["schema"],
    )


def _end(end: SeatEnd) -> dict[str, Any]:
    return {
        "stop": end.stop.value,
        "terminated": end.terminated,
        "truncated": end.truncated,
        "observation": plain(end.observation),
        "info": plain(end.info),
        "unearned": plain(end.unearned),
    }


def _restored_end(data: Mapping[str, Any]) -> SeatEnd:
    return SeatEnd(
        stop=StopReason(data["stop"]),
        terminated=data["terminated"],
        truncated=data["truncated"],
        observation=_observation(data["observation"]),
        info=restored(data["info"]),
        unearned=restored(data["unearned"]),
    )


def _turn(turn: Turn, held: dict[str, tuple[int, ...]], tokens: bool) -> dict[str, Any]:
    stored = {
        "agent": plain(turn.agent),
        "observation": plain(turn.observation),
        "action": plain(turn.action),
        "reward": plain(turn.reward),
        "finish": plain(turn.finish),
        "info": plain(turn.info),
        "timing": plain(turn.timing),
    }
    if tokens and (turn.prompt_ids or turn.token_ids):
        before = held.get(turn.agent, ())
        shared = len(before) if turn.prompt_ids[: len(before)] == before else 0
        held[turn.agent] = turn.prompt_ids + turn.token_ids
        stored |= {
            "held": shared,
            "prompt_ids": turn.prompt_ids[shared:],
            "token_ids": turn.token_ids,
            "logprobs": plain(turn.logprobs),
            "mask": turn.mask,
        }
    return stored


def _restored_turn(data: Mapping[str, Any], held: dict[str, tuple[int, ...]]) -> Turn:
    turn = Turn(
        agent=restored(data["agent"]),
        observation=_observation(data["observation"]),
        action=restored(data["action"]),
        reward=restored(data["reward"]),
        finish=restored(data["finish"]),
        info=restored(data["info"]),
        timing=restored(data["timing"]),
    )
    if "token_ids" in data:
        turn.prompt_ids = held.get(turn.agent, ())[: data["held"]] + tuple(data["prompt_ids"])
        turn.token_ids = tuple(data["token_ids"])
        turn.logprobs = tuple(restored(data["logprobs"]))
        turn.mask = tuple(data["mask"])
        held[turn.agent] = turn.prompt_ids + turn.token_ids
    return turn


def _observation(value: Any) -> Obs:
    obs = restored(value)
    return tuple(obs) if isinstance(obs, list) else obs


def plain(value: Any, depth: int = 0) -> Any:
    """Return `value` as what JSON can hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < 64 else {"$int": hex(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, str):
        return _plain_text(str(value))
    if depth < DEPTH:
        if isinstance(value, Mapping):
            if all(type(key) is str and not key.startswith("$") and _encodes(key) for key in value):
                return {key: plain(item, depth + 1) for key, item in value.items()}
            pairs = [[plain(key, depth + 1), plain(item, depth + 1)] for key, item in value.items()]
            return {"$dict": pairs}
        if isinstance(value, list | tuple):
            return [plain(item, depth + 1) for item in value]
        if isinstance(value, Text):
            return {"$text": _plain_text(value.text)}
        if isinstance(value, Image):
            data = base64.b64encode(value.data).decode("ascii")
            return {"$image": [data, _plain_text(value.mime), _plain_text(value.alt)]}
        if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy or torch
            return plain(value.item(), DEPTH)
    return {"$repr": _plain_text(_repr(value))}


def restored(value: Any) -> Any:
    """Return what `plain` was given."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inside),) = value.items()
        if name in _RESTORE:
            return _RESTORE[name](inside)
    return {key: restored(item) for key, item in value.items()}


def _plain_text(text: str) -> Any:
    if _encodes(text):
        return text
    return {"$utf8": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # somebody's __repr__: it may do anything, and storing goes on
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"


_RESTORE: dict[str, Callable[[Any], Any]] = {
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$utf8": lambda data: base64.b64decode(data).decode("utf-8", "surrogatepass"),
    "$text": lambda text: Text(restored(text)),
    "$image": lambda image: Image(base64.b64decode(image[0]), restored(image[1]), restored(image[2])),
    "$dict": lambda pairs: {_hashable(restored(key)): restored(item) for key, item in pairs},
    "$repr": lambda text: restored(text),
}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
