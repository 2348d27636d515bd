"""Export episodes to logs of Inspect, for ``inspect view`` and its data frames, and import them.

An episode is a sample: its job is the sample's id, its sample number the epoch. Each turn is a model call in
the transcript, followed by its reward. An episode with a verdict has the scores `success` (if the environment
reports it) and `return`; one without a verdict has an error instead. The record of the episode is in the
sample's store, and `from_eval_log` reads it back.

Inspect requires clock times, which episodes do not have: they count from the time when the log is made. A
token is named by its id (``token_id:17``), because the text of single tokens is not stored.
"""

from __future__ import annotations

import base64
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import gem
from gem import codec
from gem.adapters.records import (
    KEY,
    arguments_of,
    carry,
    describe_failure,
    empty_folder,
    escape_text,
    finite_or_none,
    next_messages,
    read_record,
    whole_file,
)
from gem.content import Image, Message, Obs, ToolSpec, text_of
from gem.errors import BadArgument, GemError, MissingData, needs_extra
from gem.evals.results import find_successes_by_env
from gem.history import CHAT, messages
from gem.record import SEAT, Episode, RunInfo, StopReason, Turn
from gem.rollout.index import Entry
from gem.rollout.store import UNREADABLE, EpisodeStore

with needs_extra("a log of Inspect", "inspect-ai", "inspect"):
    from inspect_ai.event import InfoEvent, ModelEvent
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalError,
        EvalLog,
        EvalMetric,
        EvalResults,
        EvalSample,
        EvalSampleLimit,
        EvalScore,
        EvalSpec,
        EvalStats,
        read_eval_log,
        read_eval_log_samples,
        write_eval_log,
    )
    from inspect_ai.model import (
        ChatCompletionChoice,
        ChatMessageAssistant,
        ChatMessageSystem,
        ChatMessageTool,
        ChatMessageUser,
        ContentImage,
        ContentReasoning,
        ContentText,
        GenerateConfig,
        Logprob,
        Logprobs,
        ModelOutput,
        ModelUsage,
    )
    from inspect_ai.scorer import Score
    from inspect_ai.tool import ToolCall, ToolInfo, ToolParams

SAMPLES, TURNS = 2000, 20_000
"""The most episodes, and turns in all, of one log in a folder: Inspect writes and shows a log as a whole."""

PLAIN = re.compile(r"\w[\w.:-]{0,99}", re.ASCII)
"""Accepted names of samples: a log has a file of that name for each. Other names are hashed."""

LIMITS = {
    StopReason.TURN_LIMIT: ("turn", "turns"),
    StopReason.TOKEN_LIMIT: ("token", "tokens"),
    StopReason.CONTEXT_LIMIT: ("context", "context"),
    StopReason.TIME_LIMIT: ("time", "policy_s"),
}
"""Inspect's name of an outside limit, by gem's name."""

FINISHES = {"stop": "stop", "length": "max_tokens", "context": "model_length", "tool_calls": "tool_calls"}


def to_eval_log(episodes: Iterable[Episode], *, tokens: bool = True) -> EvalLog:
    """Return one log of all the episodes.

    Args:
        episodes: preferably of one environment and one run, because a log names one task and one model.
        tokens: False leaves out token ids and log probabilities.

    Raises:
        BadArgument: for an episode that an episode store would not accept either.
    """
    created = datetime.now(UTC)
    every = list(episodes)
    jobs = Counter((episode.job, episode.sample) for episode in every)
    samples = []
    for episode, success in zip(every, find_successes_by_env(every), strict=True):
        name = episode.job if jobs[episode.job, episode.sample] == 1 else episode.id
        if not PLAIN.fullmatch(name):
            name = blake2b(episode.id.encode(errors="surrogatepass"), digest_size=8).hexdigest()
        samples.append(_sample(episode, name, success, created, tokens))
    specs = list(dict.fromkeys(escape_text(episode.spec) for episode in every))
    runs = list({episode.run.id: episode.run for episode in every}.values())
    run = runs[0] if len(runs) == 1 else RunInfo("", agent="several" if runs else "")
    ids = [sample.id for sample in samples]
    dataset = EvalDataset(
        name=", ".join(specs[:3]), samples=len(set(ids)), sample_ids=list(dict.fromkeys(ids))
    )
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=created.isoformat(),
            run_id=escape_text(run.id),
            task=specs[0] if len(specs) == 1 else f"{len(specs)} environments",
            task_id=escape_text(f"{run.id}/{'+'.join(specs)}"),
            dataset=dataset,
            model=_model(run),
            model_generate_config=_config(run.sampling),
            config=EvalConfig(epochs=max((sample.epoch for sample in samples), default=1)),
            packages={"gem-gym": str(run.versions.get("gem", gem.__version__))},
            metadata={"agent": escape_text(run.agent), "sampling": codec.plain(run.sampling)},
        ),
        results=_results(samples),
        stats=EvalStats(
            model_usage={
                _model(run): sum(
                    (usage for sample in samples for usage in sample.model_usage.values()), ModelUsage()
                )
            }
        ),
        samples=samples,
    )


def _sample(episode: Episode, name: str, success: bool | None, created: datetime, tokens: bool) -> EvalSample:
    seats = [_Told(episode, seat, created, tokens) for seat in episode.seats or (SEAT,)]
    first = seats[0]
    wall_s = finite_or_none(episode.timing.get("wall_s")) or 0.0
    error, stop = None, episode.stop
    if not episode.scored:
        what = escape_text(describe_failure(episode, f"no verdict: {stop}"))
        error = EvalError(message=what, traceback="", traceback_ansi="")
    limit = None
    if stop in LIMITS:
        kind, ours = LIMITS[stop]
        limit = EvalSampleLimit(
            type=kind, limit=float(getattr(episode.run.limits, ours) or len(episode.turns))
        )
    events = [event for each in seats for event in each.events]
    return EvalSample(
        id=name,
        epoch=episode.sample + 1,
        input=first.begun,
        target="",
        messages=first.messages,
        output=first.output or ModelOutput(model=_model(episode.run)),
        scores=_scores(episode, success),
        metadata=_metadata(episode),
        store={KEY: carry(episode, tokens=tokens)},
        events=events if len(seats) == 1 else sorted(events, key=lambda event: event.timestamp),
        model_usage={_model(episode.run): sum((each.usage for each in seats), ModelUsage())},
        started_at=created.isoformat(),
        completed_at=(created + timedelta(seconds=wall_s)).isoformat(),
        total_time=wall_s,
        working_time=wall_s,
        uuid=escape_text(episode.id),
        error=error,
        limit=limit,
        turn_count=len(episode.turns),
    )


def _scores(episode: Episode, success: bool | None) -> dict[str, Score] | None:
    if not episode.scored:
        return None
    turns = episode.turns
    answer = escape_text(turns[-1].action or "") if turns else None
    scores = {}
    if success is not None:
        scores["success"] = Score(value="C" if success else "I", answer=answer)
    scores["return"] = Score(value=episode.earned(), answer=answer, explanation=f"stop: {episode.stop}")
    return scores


def _metadata(episode: Episode) -> dict[str, Any]:
    about: dict[str, Any] = {
        "env": escape_text(episode.spec),
        "seed": codec.plain(episode.seed),
        "stop": str(episode.stop),
        "verdict": str(episode.verdict),
        "attempt": episode.attempt,
        "group": escape_text(episode.group),
        "rewards": [finite_or_none(turn.reward) for turn in episode.turns],
    }
    if episode.several:
        about["seats"] = {
            escape_text(seat): {
                "return": finite_or_none(episode.earned(seat)),
                "success": episode.succeeded(seat),
            }
            for seat in episode.seats
        }
    if episode.origin is not None:
        about["origin"] = {"episode": escape_text(episode.origin.episode), "turns": episode.origin.turns}
    return about


@dataclass
class _Told:
    """What one seat saw and did, as messages and events."""

    episode: Episode
    seat: str
    created: datetime
    tokens: bool
    begun: list[Any] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    usage: ModelUsage = field(default_factory=ModelUsage)
    output: ModelOutput | None = None

    def __post_init__(self) -> None:
        """Tell the turns, in order."""
        episode, seat, run = self.episode, self.seat, self.episode.run
        policy = run.history or CHAT
        if policy.system:
            self.messages.append(ChatMessageSystem(content=escape_text(policy.system)))
        turns = episode.exchanges(seat)
        if turns:
            self.messages += map(message_of, messages(turns[:1], CHAT))
        self.begun = list(self.messages)
        agent = run.seats.get(seat) or run
        model = escape_text(agent.model or agent.agent or "none")
        tools = [tool_of(tool) for tool in episode.tools(seat)]
        originals = episode.turns_of(seat)
        told_apart = any(turn.messages is not None for turn in turns)
        heard: dict[int, list[Any]] = {}  # what each turn was shown and said, where others go on from it
        at_s = 0.0
        for number, (turn, answers) in enumerate(next_messages(episode, seat)):
            if turn.messages is not None:
                asked = [*heard.get(id(turn.parent), ()), *map(message_of, turn.messages)]
            elif policy.append_only:
                asked = list(self.messages)
            else:
                asked = list(map(message_of, messages(turns[: number + 1], policy)))
            self.output = _output(turn, model, self.tokens)
            if told_apart:
                heard[id(originals[number])] = [*asked, self.output.message]
            took_s = finite_or_none(turn.timing.get("policy_s")) or 0.0
            begun = {"timestamp": self.created + timedelta(seconds=at_s), "working_start": at_s}
            role = escape_text(seat) if episode.several else None
            call = ModelEvent(
                model=model,
                role=role,
                input=asked,
                tools=tools,
                tool_choice="auto",
                config=_config(turn.sampling or {}),
                output=self.output,
                completed=self.created + timedelta(seconds=at_s + took_s),
                working_time=took_s,
                **begun,
            )
            at_s += took_s + (finite_or_none(turn.timing.get("env_s")) or 0.0)
            begun = {"timestamp": self.created + timedelta(seconds=at_s), "working_start": at_s}
            earned = {"turn": number, "reward": _number(turn.reward), "rewards": codec.plain(turn.rewards)}
            if role is not None:
                earned["seat"] = role
            self.events += [call, InfoEvent(source="gem", data=earned, **begun)]
            self.messages += [self.output.message, *map(message_of, answers)]
            if self.output.usage is not None:
                self.usage += self.output.usage


def _output(turn: Turn, model: str, tokens: bool) -> ModelOutput:
    answer = turn.said
    content = _content(answer.content)
    if answer.reasoning is not None:
        parts = [ContentText(text=content)] if isinstance(content, str) else content
        content = [ContentReasoning(reasoning=escape_text(answer.reasoning)), *parts]
    message = ChatMessageAssistant(
        content=content,
        tool_calls=[_call(call) for call in answer.tool_calls] or None,
        model=model,
        source="generate",
    )
    logprobs = None
    if tokens and turn.logprobs is not None:
        pairs = zip(turn.token_ids, turn.logprobs, strict=True)
        logprobs = Logprobs(
            content=[Logprob(token=f"token_id:{token}", logprob=logp) for token, logp in pairs]
        )
    return ModelOutput(
        model=model,
        choices=[
            ChatCompletionChoice(
                message=message, stop_reason=FINISHES.get(turn.finish, "unknown"), logprobs=logprobs
            )
        ],
        usage=_usage(turn.usage or {}, turn),
        time=finite_or_none(turn.timing.get("policy_s")),
    )


def _usage(counted: Mapping[str, Any], turn: Turn) -> ModelUsage | None:
    """Return the tokens of a turn: as a server counted them, else those that are held."""
    known = {name: count for name, count in counted.items() if type(count) is int}
    prompt = known.get("prompt_tokens", turn.prompt_length)
    answer = known.get("completion_tokens", len(turn.token_ids))
    if not prompt and not answer:
        return None
    cached = known.get("cached_tokens")
    return ModelUsage(
        input_tokens=prompt - (cached or 0),
        output_tokens=answer,
        total_tokens=prompt + answer,
        input_tokens_cache_read=cached,
        reasoning_tokens=known.get("reasoning_tokens"),
    )


def message_of(message: Message) -> Any:
    """Convert a message to Inspect's form."""
    content = _content(message.content)
    if message.role == "system":
        return ChatMessageSystem(content=content)
    if message.role == "user":
        return ChatMessageUser(content=content)
    if message.role == "tool":
        call, name = message.tool_call_id, message.name
        return ChatMessageTool(
            content=content,
            tool_call_id=None if call is None else escape_text(call),
            function=None if name is None else escape_text(name),
        )
    native = [_call(call) for call in message.tool_calls] or None
    return ChatMessageAssistant(content=content, tool_calls=native)


def _content(obs: Obs) -> Any:
    """Return text, or parts with pictures as ``data:`` URLs."""
    if isinstance(obs, str):
        return escape_text(obs)
    parts: list[Any] = []
    for part in obs:
        if isinstance(part, Image):
            data = base64.b64encode(part.data).decode("ascii")
            parts.append(ContentImage(image=f"data:{escape_text(part.mime)};base64,{data}"))
        else:
            parts.append(ContentText(text=escape_text(text_of((part,)))))
    return parts


def _call(call: Any) -> ToolCall:
    named = {"id": escape_text(call.id), "function": escape_text(call.name)}
    arguments = arguments_of(call)
    if arguments is None:
        return ToolCall(**named, arguments={}, parse_error=f"no JSON object: {escape_text(call.arguments)}")
    return ToolCall(**named, arguments=arguments)


def tool_of(tool: ToolSpec) -> ToolInfo:
    """Convert a tool to Inspect's form."""
    try:
        schema = ToolParams.model_validate(codec.plain(tool.schema))
    except ValueError:  # what JSON schema has, and Inspect does not
        schema = ToolParams()
    return ToolInfo(name=escape_text(tool.name), description=escape_text(tool.description), parameters=schema)


def _config(sampling: Mapping[str, Any]) -> GenerateConfig:
    known = {name: value for name, value in sampling.items() if name in GenerateConfig.model_fields}
    try:
        return GenerateConfig.model_validate(codec.plain(known))
    except ValueError:  # a setting of that name means something else there
        return GenerateConfig()


def _model(run: RunInfo) -> str:
    return escape_text(run.model or run.agent or "none")


def _results(samples: Sequence[EvalSample]) -> EvalResults:
    scores = []
    for name, metric in (("success", "accuracy"), ("return", "mean")):
        given = [sample.scores[name].value for sample in samples if name in (sample.scores or {})]
        if not given:
            continue
        values = [float(value == "C") if name == "success" else float(value) for value in given]
        finite = [value for value in values if math.isfinite(value)]
        metrics = {}
        if finite:
            spread = statistics.stdev(finite) / math.sqrt(len(finite)) if len(finite) > 1 else 0.0
            metrics = {metric: statistics.fmean(finite), "stderr": spread}
        scores.append(
            EvalScore(
                name=name,
                scorer=f"gem/{name}",
                scored_samples=len(finite),
                unscored_samples=len(samples) - len(finite),
                metrics={key: EvalMetric(name=key, value=value) for key, value in metrics.items()},
            )
        )
    completed = sum(sample.error is None for sample in samples)
    return EvalResults(total_samples=len(samples), completed_samples=completed, scores=scores)


def _number(reward: float | None) -> float | str | None:
    return repr(reward) if reward is not None and not math.isfinite(reward) else reward


# -- logs in


def from_eval_log(log: EvalLog) -> Iterator[Episode]:
    """Yield the episodes of a log written by gem, or by gem's task under ``inspect eval``.

    Raises:
        BadArgument: for a sample that gem did not write. SchemaMismatch: for a record of another schema.
    """
    for sample in log.samples or ():
        yield _episode(sample)


def _episode(sample: EvalSample) -> Episode:
    record = sample.store.get(KEY)
    if record is None:
        raise BadArgument(
            f"sample {str(sample.id)!r:.80}, epoch {sample.epoch}, holds no record of gem; accepted: logs "
            "that `gem-gym export` wrote, and those of gem's task under `inspect eval`."
        )
    return read_record(record)


# -- files


def write_logs(
    store: EpisodeStore,
    out: str | Path,
    *,
    tokens: bool = True,
    damaged: Callable[[GemError], None] | None = None,
) -> int:
    """Write the episodes of a store as logs, and return how many logs there are.

    Args:
        store: the store of the episodes.
        out: a file that ends in ``.eval`` or ``.json`` gets one log of all episodes. Any other path is a
            folder, with logs for each run and environment, of at most `SAMPLES` episodes or `TURNS` turns;
            one log at a time is held in memory. It is created if needed, and must be empty.
        tokens: see `to_eval_log`.
        damaged: called with the error of each episode that cannot be read and is left out; None: raise it.

    Raises:
        BadArgument: when the file exists, or the folder is not empty. StoreError, SchemaMismatch: when an
            episode cannot be read. StoreError: when a file cannot be written.
    """

    def read(numbers: Iterable[int]) -> Iterator[Episode]:
        for number in numbers:
            try:
                yield store[number]
            except UNREADABLE as error:
                if damaged is None:
                    raise
                damaged(error)

    out = Path(out)
    if out.suffix in (".eval", ".json"):
        _write(to_eval_log(read(range(len(store))), tokens=tokens), out)
        return 1
    empty_folder(out)
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in store.select():
        groups.setdefault((entry.run, entry.spec), []).append(entry)
    count = 0
    for part in (part for group in groups.values() for part in _parts(group)):
        log = to_eval_log(read(part), tokens=tokens)
        if log.samples:
            _write(log, out / f"{count:04}.eval")
            count += 1
    return count


def _parts(entries: Iterable[Entry]) -> Iterator[list[int]]:
    """Yield the numbers of the episodes of each log."""
    part: list[int] = []
    turns = 0
    for entry in entries:
        if part and (len(part) >= SAMPLES or turns + entry.turns > TURNS):
            yield part
            part, turns = [], 0
        part.append(entry.number)
        turns += entry.turns
    if part:
        yield part


def _write(log: EvalLog, path: Path) -> None:
    with whole_file(path) as part:
        write_eval_log(log, part)


def read_logs(path: str | Path) -> Iterator[Callable[[], Episode]]:
    """Yield a function for each sample of a log or of a folder of logs, which reads its episode when called.

    Raises:
        BadArgument: for a file that is not a log. MissingData: when there is no such file.
    """
    path = Path(path)
    if not path.exists():
        raise MissingData(f"{path}: no such file.")
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if path.is_dir() and file.suffix not in (".eval", ".json"):
            continue
        try:
            for sample in _samples(file):
                yield partial(_episode, sample)
        except GemError:
            raise
        except Exception as error:  # Inspect's readers raise various errors for a file that is not a log
            raise BadArgument(f"{file} cannot be read as a log of Inspect: {error}") from error


def _samples(file: Path) -> Iterator[EvalSample]:
    if file.suffix == ".eval":  # one at a time
        unread = {"messages", "events", "events_data", "attachments"}
        yield from read_eval_log_samples(file, all_samples_required=False, exclude_fields=unread)
    else:
        yield from read_eval_log(file).samples or ()
