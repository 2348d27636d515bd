"""Export and import episodes in Harbor's Agent Trajectory Interchange Format (ATIF, version 1.8).

`to_atif` returns a trajectory as JSON values; it needs only the standard library and `gem.codec`. The agent's
answers are its steps, and the environment's response to an answer is that step's observation. With several
seats, each has its own trajectory, embedded in one that names them. The format has no rewards: they are in
`extra`, with the whole record, so that `from_atif` returns the same episode.

Trajectories that other tools wrote become episodes too. They contain no reward, so these episodes have no
verdict, unless a reward is given.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

import gem
from gem.adapters.records import (
    KEY,
    arguments_of,
    as_object,
    as_objects,
    carry,
    decode_json,
    each_line,
    empty_folder,
    escape_text,
    finite_or_none,
    next_messages,
    read_record,
    read_tools,
    score_episode,
    tell_task,
    whole_file,
    write_lines,
)
from gem.content import Image, Message, Obs, Text, ToolCall, join, text_of
from gem.errors import BadArgument, MissingData, check_argument, reason
from gem.files import read_bytes
from gem.record import SEAT, Episode, Failure, RunInfo, SeatEnd, StopReason, Turn
from gem.specs import TaskRef
from gem.tools import calls

VERSION = "ATIF-v1.8"
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
TRAJECTORY = Path("agent", "trajectory.json")
"""The path of the trajectory in the folder of a Harbor trial."""

RESULT = "result.json"
"""The name of the file in the folder of a Harbor trial that has its rewards."""

DEPTH = 8
"""The most levels of nested trajectories that are read."""


def to_atif(episode: Episode, *, tokens: bool = True, record: bool = True) -> dict[str, Any]:
    """Return an episode as a trajectory.

    Args:
        episode: any episode.
        tokens: False leaves out token ids and log probabilities. The format repeats each whole prompt, so
            a long conversation has many ids.
        record: False leaves out the episode's own record; `from_atif` then restores only what the format
            holds.

    Raises:
        BadArgument: for an episode that an episode store would not accept either.
    """
    seats = episode.seats or (SEAT,)
    if len(seats) == 1:
        whole = _trajectory(episode, seats[0], episode.id, tokens)
    else:
        whole = _several(episode, seats, tokens)
    extra: dict[str, Any] = {
        "env": escape_text(episode.spec),
        "seed": episode.seed,
        "stop": str(episode.stop),
        "verdict": str(episode.verdict),
    }
    if episode.scored:
        extra |= {"return": finite_or_none(episode.earned()), "success": episode.success}
    if episode.error is not None:
        extra["error"] = escape_text(f"{episode.error.type}: {episode.error.message}")
    if record:
        extra[KEY] = carry(episode, tokens=tokens)
    return {**whole, "extra": extra}


def _several(episode: Episode, seats: Sequence[str], tokens: bool) -> dict[str, Any]:
    """Return the trajectory that embeds those of several seats."""
    each = [
        _trajectory(episode, seat, f"{episode.id}/{number}/{seat}", tokens)
        for number, seat in enumerate(seats)
    ]
    refs = [{"trajectory_id": trajectory["trajectory_id"]} for trajectory in each]
    step = {
        "step_id": 1,
        "source": "system",
        "message": escape_text(f"{len(seats)} seats play {episode.spec}."),
        "observation": {"results": [{"content": None, "subagent_trajectory_ref": refs}]},
    }
    return {
        "schema_version": VERSION,
        "session_id": escape_text(episode.run.id),
        "trajectory_id": escape_text(episode.id),
        "agent": {"name": "gem", "version": gem.__version__},
        "steps": [step],
        "subagent_trajectories": each,
    }


def _trajectory(episode: Episode, seat: str, name: str, tokens: bool) -> dict[str, Any]:
    """Return what one seat saw and did."""
    run = episode.run
    agent = run.seats.get(seat) or run
    steps: list[dict[str, Any]] = []
    if run.history is not None and run.history.system:
        steps.append({"source": "system", "message": escape_text(run.history.system)})
    turns = episode.exchanges(seat)
    if turns:
        first = turns[0]
        pieces = (first.info.get("prefix") or "", first.observation, first.info.get("suffix") or "")
        steps.append({"source": "user", "message": _content(join(pieces))})
    branched = () if episode.origin is None else episode.turns[: episode.origin.turns]
    copied = sum(turn.seat == seat for turn in branched)
    for number, (turn, answers) in enumerate(next_messages(episode, seat)):
        step = _step(turn, answers, tokens)
        steps.append({**step, "is_copied_context": True} if number < copied else step)
    if not steps:
        broken = f": {episode.error.message}" if episode.error is not None else ""
        steps.append({"source": "system", "message": escape_text(f"Nothing was played{broken}")})
    tools = episode.tools(seat)
    return {
        "schema_version": VERSION,
        "session_id": escape_text(run.id),
        "trajectory_id": escape_text(name),
        "agent": {
            "name": escape_text(agent.agent or "agent"),
            "version": str(run.versions.get("gem", gem.__version__)),
            **({"model_name": escape_text(agent.model)} if agent.model is not None else {}),
            **({"tool_definitions": [_tool(tool) for tool in tools]} if tools else {}),
        },
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {**_totals(turns), "total_steps": len(steps)},
    }


def _tool(tool: Any) -> dict[str, Any]:
    named = {"name": escape_text(tool.name), "description": escape_text(tool.description)}
    return {"type": "function", "function": {**named, "parameters": json.loads(_json(tool.schema))}}


def _json(value: Any) -> str:
    """Return any value as JSON, in ASCII."""
    from gem import codec

    return json.dumps(codec.plain(value))


def _step(turn: Turn, answers: Sequence[Message], tokens: bool) -> dict[str, Any]:
    message = turn.said
    step: dict[str, Any] = {"source": "agent", "message": _content(message.content)}
    if message.reasoning is not None:
        step["reasoning_content"] = escape_text(message.reasoning)
    if message.tool_calls:
        step["tool_calls"] = [_call(call) for call in message.tool_calls]
    known = {escape_text(call.id) for call in message.tool_calls}
    results = []
    for answer in answers:
        result: dict[str, Any] = {"content": _content(answer.content)}
        if answer.tool_call_id is not None and escape_text(answer.tool_call_id) in known:
            result["source_call_id"] = escape_text(answer.tool_call_id)
        results.append(result)
    if results:
        step["observation"] = {"results": results}
    if metrics := _metrics(turn, tokens):
        step["metrics"] = metrics
    extra: dict[str, Any] = {}
    if turn.reward is not None:
        extra["reward"] = finite_or_none(turn.reward)
    if turn.finish:
        extra["finish"] = escape_text(turn.finish)
    if extra:
        step["extra"] = extra
    return step


def _call(call: ToolCall) -> dict[str, Any]:
    named = {"tool_call_id": escape_text(call.id), "function_name": escape_text(call.name)}
    arguments = arguments_of(call)
    if arguments is None:
        return {**named, "arguments": {}, "extra": {"written": escape_text(call.arguments)}}
    return {**named, "arguments": arguments}


def _counts(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of tokens that the format and gem call by one name."""
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    return {name: usage[name] for name in names if type(usage.get(name)) is int}


def _metrics(turn: Turn, tokens: bool) -> dict[str, Any]:
    metrics: dict[str, Any] = _counts(turn.usage or {})
    if tokens and len(turn.token_ids):
        metrics["prompt_token_ids"] = list(turn.prompt_ids)
        metrics["completion_token_ids"] = list(turn.token_ids)
        if turn.logprobs is not None and all(map(math.isfinite, turn.logprobs)):
            metrics["logprobs"] = list(turn.logprobs)
    return metrics


def _totals(turns: Sequence[Turn]) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for turn in turns:
        totals.update({f"total_{name}": count for name, count in _counts(turn.usage or {}).items()})
    return dict(totals)


def _content(obs: Obs) -> str | list[dict[str, Any]]:
    """Return text, or parts; a picture of a kind that the format lacks is its other text."""
    if isinstance(obs, str):
        return escape_text(obs)
    parts: list[dict[str, Any]] = []
    for part in obs:
        if isinstance(part, Image) and part.mime in IMAGES:
            data = base64.b64encode(part.data).decode("ascii")
            source = {"media_type": part.mime, "path": f"data:{part.mime};base64,{data}"}
            parts.append({"type": "image", "source": source})
        else:
            parts.append({"type": "text", "text": escape_text(text_of((part,)))})
    return parts


# -- trajectories in


def from_atif(
    trajectory: Mapping[str, Any], *, reward: float | None = None, success: bool | None = None
) -> Episode:
    """Return the episode of a trajectory: the one that `to_atif` was given, or one made from its steps.

    An agent's step becomes a turn; the messages or observations before it are what the turn observed. The
    tools that the agent had are in the info of the start. Embedded trajectories become seats, named by their
    id. Pictures without a ``data:`` URL stay text: nothing is read from disk or network. The run's id is a
    hash of the trajectory, so that reading a trajectory twice gives the same episode.

    Args:
        trajectory: JSON values, of any version of the format from 1.0 to 1.8.
        reward: the reward of the trial, known from elsewhere; it is put in each seat's last turn.
        success: whether the trial solved its task.

    Raises:
        BadArgument: for a value that is not a trajectory. SchemaMismatch: for a record of another schema.
    """
    return _join([trajectory], reward, success)


def _join(segments: Sequence[Any], reward: float | None = None, success: bool | None = None) -> Episode:
    """Return the episode of a trajectory and those that continue it; see `from_atif`."""
    for segment in segments:
        version = segment.get("schema_version") if isinstance(segment, Mapping) else None
        if not isinstance(version, str) or not version.startswith("ATIF-v1."):
            raise BadArgument(
                f"schema_version is {version!r:.40}; accepted: a trajectory of ATIF-v1.0 to {VERSION}."
            )
    check_argument("reward", reward, reward is None or math.isfinite(reward), "a finite number")
    trajectory, *rest = segments
    record = as_object(trajectory.get("extra")).get(KEY)
    if record is not None:
        return read_record(record)
    reader = _Reader()
    reader.read(trajectory, SEAT)
    for segment in rest:
        reader.read_steps(segment, SEAT, follows=True)
    episode = Episode(
        TaskRef(f"atif:{_name(trajectory)}", foreign=True),
        RunInfo(
            blake2b("".join(map(_json, segments)).encode(), digest_size=8).hexdigest(),
            agent=_name(trajectory),
            model=_text_or_none(as_object(trajectory.get("agent")).get("model_name")),
        ),
        job=str(trajectory.get("trajectory_id") or trajectory.get("session_id") or ""),
        turns=reader.turns,
        starts=reader.starts,
        ends=reader.ends,
        stop=StopReason.ENDED,
    )
    tell_task(episode)
    return score_episode(episode, "trajectory", reward, success)


@dataclass
class _Reader:
    """Converts steps to turns."""

    turns: list[Turn] = field(default_factory=list)
    starts: dict[str, dict[str, Any]] = field(default_factory=dict)
    ends: dict[str, SeatEnd] = field(default_factory=dict)

    def read(self, trajectory: Mapping[str, Any], seat: str, depth: int = 0) -> None:
        if depth > DEPTH:
            raise BadArgument(f"trajectories are nested more than {DEPTH} deep.")
        while seat in self.ends:
            seat += "'"
        self.ends[seat] = SeatEnd(StopReason.ENDED, truncated=True)
        self.starts[seat] = read_tools(as_object(trajectory.get("agent")).get("tool_definitions"))
        self.read_steps(trajectory, seat, depth)

    def read_steps(
        self, trajectory: Mapping[str, Any], seat: str, depth: int = 0, follows: bool = False
    ) -> None:
        """Add the steps of a trajectory to a seat's.

        Where it `follows` another one, it starts a new conversation. The answers that it copies from there
        are turns already; here they are part of what the agent is shown.
        """
        turns: list[Turn] = []
        waiting: list[Message] = []
        for number, step in enumerate(as_objects(trajectory.get("steps"), "steps"), 1):
            where = f"step {number}"
            if step.get("source") == "agent" and follows and step.get("is_copied_context"):
                waiting.append(_read_answer(step, where))
            elif step.get("source") == "agent":
                turn = _turn(seat, step, waiting, turns, where, follows)
                turns.append(turn)
                self.turns.append(turn)
                waiting = []
            elif step.get("source") in ("system", "user"):
                waiting.append(Message(step["source"], _read_content(step.get("message"))))
            else:
                raise BadArgument(
                    f"{where} comes from {step.get('source')!r:.40}; accepted: system, user, agent."
                )
            waiting += _results(step)
        self.ends[seat].observation = _observation(waiting)
        for inner in as_objects(trajectory.get("subagent_trajectories") or [], "subagent_trajectories"):
            self.read(inner, str(inner.get("trajectory_id") or "subagent"), depth + 1)


def _turn(
    seat: str,
    step: Mapping[str, Any],
    shown_now: list[Message],
    before: list[Turn],
    where: str,
    follows: bool,
) -> Turn:
    answer = _read_answer(step, where)
    plain = len(shown_now) == 1 and shown_now[0].role == "user" and (before or not follows)
    turn = Turn(
        seat,
        _observation(shown_now),
        calls.write(answer.text, answer.tool_calls),
        answer if answer.tool_calls or answer.reasoning or not isinstance(answer.content, str) else None,
        finish=str(as_object(step.get("extra")).get("finish") or ""),
        messages=None if plain else tuple(shown_now),
        extra={"copied": True} if step.get("is_copied_context") else None,
    )
    metrics = as_object(step.get("metrics"))
    turn.usage = _counts(metrics) or None
    ids = metrics.get("completion_token_ids")
    if ids:
        try:
            mask = b"\0" * len(ids) if turn.extra else None
            turn.hold(metrics.get("prompt_token_ids") or (), ids, metrics.get("logprobs"), mask, after=before)
        except (TypeError, ValueError) as error:
            raise BadArgument(f"the tokens of {where} cannot be read: {error}") from error
    turn.parent = turn.parent or (before[-1] if before else None)
    return turn


def _read_answer(step: Mapping[str, Any], where: str) -> Message:
    return Message(
        "assistant",
        _read_content(step.get("message")),
        tool_calls=tuple(map(_read_call, as_objects(step.get("tool_calls") or [], f"tool_calls of {where}"))),
        reasoning=_text_or_none(step.get("reasoning_content")),
    )


def _observation(messages: Sequence[Message]) -> Obs:
    """Return what the agent was shown, without answers of its own."""
    return join([message.content for message in messages if message.role != "assistant"])


def _results(step: Mapping[str, Any]) -> list[Message]:
    """Return what the environment said to a step: a message of the tool for each call, else of the user."""
    made = as_objects(step.get("tool_calls") or [], "tool_calls")
    names = {str(call.get("tool_call_id") or ""): call.get("function_name") for call in made}
    messages = []
    for result in as_objects(as_object(step.get("observation")).get("results") or [], "results"):
        call, content = result.get("source_call_id"), result.get("content")
        if content is None:
            continue
        if isinstance(call, str) and call in names:
            name = _text_or_none(names[call])
            messages.append(Message("tool", _read_content(content), tool_call_id=call, name=name))
        else:
            messages.append(Message("user", _read_content(content)))
    return messages


def _read_call(call: Mapping[str, Any]) -> ToolCall:
    written = as_object(call.get("extra")).get("written")
    arguments = written if isinstance(written, str) else json.dumps(call.get("arguments") or {})
    return ToolCall(str(call.get("tool_call_id") or ""), str(call.get("function_name") or ""), arguments)


def _read_content(content: Any) -> Obs:
    if content is None or isinstance(content, str):
        return content or ""
    return tuple(_read_part(part) for part in as_objects(content, "content"))


def _read_part(part: Mapping[str, Any]) -> Text | Image:
    if part.get("type") == "text":
        return Text(str(part.get("text") or ""))
    source = as_object(part.get("source"))
    path, mime = str(source.get("path") or ""), str(source.get("media_type") or "")
    head, comma, data = path.partition(",")
    if mime in IMAGES and comma and head == f"data:{mime};base64":
        try:
            return Image(base64.b64decode(data, validate=True), mime)
        except binascii.Error as error:
            raise BadArgument(f"a picture cannot be read: {error}") from error
    return Text(f"[{part.get('type')}: {path:.200}]")


def _name(trajectory: Mapping[str, Any]) -> str:
    return "".join(str(as_object(trajectory.get("agent")).get("name") or "agent").split()) or "agent"


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# -- files


def write_atif(
    episodes: Iterable[Episode], path: str | Path, *, tokens: bool = True, record: bool = True
) -> int:
    """Write episodes as trajectories, and return how many.

    Args:
        episodes: any number; one at a time is held in memory.
        path: a file that ends in ``.jsonl`` gets one trajectory per line. Any other path is a folder, with a
            file per trajectory: ``000000.json`` and so on. It is created if needed, and must be empty.
        tokens: see `to_atif`.
        record: see `to_atif`.

    Raises:
        BadArgument: when the file exists, or the folder is not empty. StoreError: when it cannot be written.
    """
    path, count = Path(path), 0
    trajectories = map(partial(to_atif, tokens=tokens, record=record), episodes)
    if path.suffix == ".jsonl":
        return write_lines(trajectories, path)
    empty_folder(path)
    for trajectory in trajectories:
        with whole_file(path / f"{count:06}.json") as part:
            part.write_bytes(msgspec.json.encode(trajectory))
        count += 1
    return count


def read_atif(path: str | Path) -> Iterator[Callable[[], Episode]]:
    """Yield a function for each trajectory, which reads it when called.

    The path is a file of one trajectory, a file with one per line, or a folder of such files. A damaged
    trajectory does not affect the others: only its call raises BadArgument. In the folder of a Harbor trial
    or job, the verifier's result is the reward, also where the agent's time was up or its program failed; a
    trial has no verdict where the verifier gave no reward, or Harbor calls its reward invalid.

    A trial without a trajectory is an episode without turns. The files that a trajectory names as its
    continuation are read with it, but not in a folder of trajectories: there each file is one.

    Raises:
        MissingData: when there is no such file.
    """
    path = Path(path)
    if not path.exists():
        raise MissingData(f"{path}: no such file.")
    if path.is_dir():
        trials = _find_trials(path)
        for folder in trials:
            yield partial(_read_trial, folder)
        for file in () if trials else sorted(path.glob("*.json*")):
            yield from [partial(_read_file, file)] if file.suffix == ".json" else _read_lines(file)
        return
    if path.suffix != ".jsonl":
        yield partial(_read_continued, path)
        return
    yield from _read_lines(path)


def _read_lines(path: Path) -> Iterator[Callable[[], Episode]]:
    return each_line(path, lambda trajectory, where: from_atif(trajectory))


def _find_trials(path: Path) -> list[Path]:
    """Return the folders of Harbor's trials: the path itself, or those in it."""
    if (path / TRAJECTORY).exists() or ((path / RESULT).exists() and (path / TRAJECTORY.parent).is_dir()):
        return [path]
    inside = {file.parents[1] for file in path.glob(f"*/{TRAJECTORY}")}
    return sorted(inside | {file.parent for file in path.glob(f"*/{RESULT}")})


def _read_file(path: Path) -> Episode:
    return from_atif(_read_json(path))


def _read_continued(path: Path) -> Episode:
    return _join(_read_segments(path))


def _read_segments(path: Path) -> list[Any]:
    """Return the trajectory in a file, and those that continue it in files beside it."""
    segments, names = [_read_json(path)], [path.name]
    while name := as_object(segments[-1]).get("continued_trajectory_ref"):
        plain = isinstance(name, str) and name.isprintable() and Path(name).name == name
        if not plain or name in names:
            raise BadArgument(
                f"{path.with_name(names[-1])} continues in {name!r:.80}; accepted: the name of another file "
                "in the same folder."
            )
        segments.append(_read_json(path.with_name(name)))
        names.append(name)
    return segments


def _read_trial(folder: Path) -> Episode:
    """Return the episode of a trial of Harbor."""
    trajectory, result = folder / TRAJECTORY, folder / RESULT
    trial = as_object(_read_json(result)) if result.exists() else {}
    broken = trial.get("exception_info")
    rewards = as_object(as_object(trial.get("verifier_result")).get("rewards"))
    parts = {
        name: float(part)
        for name, part in rewards.items()
        if not isinstance(part, bool) and finite_or_none(part) is not None
    }
    reward = parts.get("reward", next(iter(parts.values())) if len(parts) == 1 else None)
    segments = _read_segments(trajectory) if trajectory.exists() else [_empty_trajectory(folder, trial)]
    if trial.get("reward_valid") is False:  # as Harbor since 0.26 says where the exception spoils the reward
        reward = None
    episode = _join(segments, reward)
    if as_object(as_object(segments[0]).get("extra")).get(KEY) is not None:
        return episode
    episode.job, episode.group = str(trial.get("trial_name") or ""), str(trial.get("task_name") or "")
    if episode.group:
        tell_task(episode, episode.group)
        episode.starts[SEAT]["task"] = episode.group
    why = as_object(broken)
    kind, message = str(why.get("exception_type") or ""), str(why.get("exception_message") or "")
    if broken and reward is None:
        episode.error = Failure("env", kind, message)
    elif broken:  # such as the agent's time that is up: the verifier has judged what it left
        for end in episode.ends.values():
            end.info["why"] = f"{kind}: {message}"
    if reward is not None and episode.turns:
        episode.turns[-1].rewards = parts
    return episode


def _empty_trajectory(folder: Path, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trajectory of a trial whose agent left none.

    Raises:
        BadArgument: for the result of something else, such as a job.
    """
    name, agent = trial.get("trial_name"), as_object(trial.get("agent_info"))
    if not isinstance(name, str):
        raise BadArgument(f"{folder} is no trial; accepted: the folder of one trial or one job of Harbor.")
    model = as_object(agent.get("model_info")).get("name")
    about = {"name": agent.get("name"), "model_name": model}
    return {"schema_version": VERSION, "session_id": name, "agent": about, "steps": []}


def _read_json(path: Path) -> Any:
    try:
        return decode_json(read_bytes(path), str(path))
    except OSError as error:
        raise BadArgument(f"{path} cannot be read: {reason(error)}.") from error
