"""Read stored episodes of schema 1; they are no longer written."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from gem import content, record
from gem.record import SEAT, StopReason, Verdict
from gem.specs import TaskRef

SCHEMA_1_RUN = record.RunInfo("schema1")
"""The run of all episodes of schema 1, which did not store the settings of a run."""


def decode_1(line: bytes, data: Mapping[str, Any]) -> record.Episode:
    """Return the episode of a line of schema 1; `data` is the parsed line.

    Ids were not unique in schema 1; so the new id is the old one plus a hash of the line. One policy version
    was stored for all turns, and log probabilities had 64 bits.
    """
    last_turns: dict[str, record.Turn] = {}
    turns = [_turn_1(turn, last_turns) for turn in data["turns"]]
    for turn in turns:
        if turn.token_ids or not last_turns:
            turn.policy_version = data["policy_version"]
    starts = data["initial_info"]
    ends = {seat: _end_1(end) for seat, end in data.get("ends", ())}
    if not ends:  # a single agent
        seat = turns[0].seat if turns else SEAT
        starts = {seat: starts}
        last = {"observation": data["final_observation"], "info": data["final_info"]}
        ends[seat] = _end_1({**data, **last})
    mark = blake2b(line.strip(), digest_size=6).hexdigest()
    return record.Episode(
        task=TaskRef(data["spec"], data["kwargs"], seed=data["seed"], foreign=True),
        run=SCHEMA_1_RUN,
        job=f"{data['id']}-{mark}",
        sample=data["sample"],
        group=data["group"],
        turns=turns,
        starts=starts,
        ends=ends,
        stop=StopReason(data["stop"]),
        verdict=Verdict(data["verdict"]),
        error=data["error"] and record.Failure(*data["error"]),
        timing=data["timing"],
    )


def _turn_1(data: Mapping[str, Any], last_turns: dict[str, record.Turn]) -> record.Turn:
    turn = record.Turn(
        data["agent"],
        _obs_1(data["observation"]),
        data["action"],
        finish=data["finish"],
        reward=data["reward"],
        info=data["info"],
        timing=data["timing"],
    )
    if "token_ids" in data:
        before, logprobs = last_turns.get(turn.seat), data["logprobs"] or None
        if data["held"] and before is not None:
            turn.extend(before, data["prompt_ids"], data["token_ids"], logprobs)
        else:
            turn.hold(data["prompt_ids"], data["token_ids"], logprobs)
        turn.mask = bytes(data["mask"])
        last_turns[turn.seat] = turn
    return turn


def _end_1(data: Mapping[str, Any]) -> record.SeatEnd:
    return record.SeatEnd(
        StopReason(data["stop"]),
        data["terminated"],
        data["truncated"],
        _obs_1(data["observation"]),
        data["info"],
        data.get("unearned", 0.0),
    )


def _obs_1(value: Any) -> content.Obs:
    return tuple(value) if isinstance(value, list) else value
