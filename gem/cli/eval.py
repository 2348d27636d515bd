"""The command ``gem-gym eval``: evaluate agents on environments and suites."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, UseAppendAction, arg

from gem import seeding
from gem.agents.named import AgentByName, AgentSettings
from gem.cli.eval_progress import Progress
from gem.cli.eval_report import Report
from gem.cli.players import limits_of, local_agent, others_of, trained
from gem.cli.terms import FAILED, MaybeFloat, MaybeFolder, MaybeInt, MaybePath, MaybeText, table
from gem.content import printable
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    GemError,
    MissingData,
    MissingExtra,
    NoSolver,
    StoreError,
    reason,
)
from gem.evals import EnvResult, Stopping
from gem.evals import evaluate as measured
from gem.evals.data_flags import DataFlags
from gem.evals.gates import Gate, refuse_unknown
from gem.evals.instances import EPISODES, Count
from gem.evals.reports import file_name
from gem.evals.scorecard import Scored
from gem.evals.suite import Entry, Suite, known_suites, load_suite
from gem.evals.usage import Budget, Prices
from gem.graders.functions import ping_judges
from gem.hosts.ray_cluster import Cluster
from gem.naming import changed_files, fix_name
from gem.record import Agent, Episode
from gem.registry import accept_settings
from gem.rollout import EpisodeStore, RayRunner
from gem.source_files import named_before
from gem.statistics import Interval, normalised
from gem.trust import refuse

EPISODES_AT_ONCE = 128
"""Default of --concurrency."""

T = TypeVar("T")

Words = UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Model:
    """How the model is called."""

    temperature: Annotated[str, arg(metavar="FLOAT", help_behavior_hint="")] = ""
    """Sampling temperature; 0 is greedy; "none" sends none, for models that refuse it. 1 if left out."""
    max_tokens: MaybeInt = None
    """The most tokens of one answer."""
    api: Annotated[
        Literal["chat", "responses", "completions", ""],
        arg(metavar="{chat,responses,completions}", help_behavior_hint=""),
    ] = ""
    """The API of an endpoint; chat if left out."""
    template: MaybeText = None
    """For --api completions: the model whose chat template makes the prompts: a name that `gem-gym models`
    lists, or one of the Hugging Face hub. Prompts are a plain transcript if left out."""
    api_key_env: MaybeText = None
    """The environment variable that holds an endpoint's key; OPENAI_API_KEY if left out."""
    concurrency: MaybeInt = None
    """The most episodes, and requests to an endpoint, at a time. It starts lower, and goes down when the
    endpoint is busy. 64 if left out."""
    timeout: MaybeFloat = None
    """Seconds to wait for one answer of an endpoint; 600 if left out."""
    tool_calls: Annotated[
        Literal["native", "text", ""], arg(metavar="{native,text}", help_behavior_hint="")
    ] = ""
    """native: tools are given as schemas, if the model accepts them. text: the model writes calls as text.
    native if left out."""
    send_reasoning: bool = False
    """Send the model's reasoning of earlier turns back to the endpoint."""
    stream: bool = False
    """Stream the endpoint's answers."""
    extra: Annotated[str, arg(metavar="JSON", help_behavior_hint="")] = ""
    """Extra fields of each request to an endpoint, as '{"reasoning_effort": "low"}'."""
    device: MaybeText = None
    """The device of a local model, as cuda; cpu if left out."""


@dataclass(frozen=True)
class LimitFlags:
    """Limits of each episode, and of all together."""

    turns: MaybeInt = None
    """Truncate each episode after this many turns."""
    tokens_per_episode: MaybeInt = None
    """Truncate each episode after this many sampled tokens."""
    budget_tokens: MaybeInt = None
    """Start no episode that is expected to exceed this total of prompt and answer tokens. Episodes stored in
    --out count."""
    budget_usd: MaybeFloat = None
    """The same budget in dollars, by --prices."""
    stop_at_width: MaybeFloat = None
    """Start no more tasks of an environment once the interval of its success is this narrow: 0.1 is ten
    points. This interval stays valid when checked after every task, so it is wider than one for a fixed
    number of tasks. --episodes is the maximum."""
    prices: MaybePath = None
    """A file with dollars per million tokens, by model; docs/guides/prices.toml is an example."""


@dataclass(frozen=True)
class Output:
    """What is stored and printed."""

    out: MaybeFolder = None
    """The folder for episodes, result.json, report.md and junit.xml."""
    resume: bool = False
    """Continue the evaluation in --out with its own flags; flags given now override them."""
    retry_failed: bool = False
    """Play stored episodes of --out that have no verdict again."""
    gate: Annotated[Words, arg(metavar="CONDITION", help_behavior_hint="")] = ()
    """Exit with code 1 unless this holds, as "success>=0.8", "low(success)>=0.8" (the lower end of the
    interval), "success[ENV]>=0.8", "success[*]>=0.5" (every environment). Metrics: success, return, turns,
    coverage, tokens, cost, pass@K, pass^K. May be given several times."""
    min_coverage: MaybeFloat = None
    """Give no headline if a smaller share of the episodes has a verdict, as 0.95."""
    normalise: bool = False
    """Also play random and solver once on each task, and show the return on a scale where random is 0 and the
    solver is 1."""
    json: bool = False
    """Print the result as JSON, and nothing else."""


@dataclass(frozen=True)
class Arguments:
    """Evaluate agents: success, return and turns, each with its 95% interval.

    Name environments by id, or your own data (--data), or one suite: a TOML file, or the name of one that
    comes with gem (--suites lists them). Flags override the settings of a suite.

    An episode that infrastructure broke has no verdict and is in no figure. `verdicts` is how many episodes
    have one. `bounds` is the success with all others counted as lost, and as won. A warning is printed if the
    agents lost verdicts at different rates.

    With --out, episodes are stored in FOLDER/episodes.jsonl (several agents: one folder each), and figures in
    FOLDER/result.json. To continue after an interruption, run the same command again: stored episodes are not
    played again.
    """

    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="[ID|SUITE ...]", help_behavior_hint="")] = ()
    """Environments (`gem-gym list` shows all; your own is path/file.py:Class or module:Class), or a suite."""
    env: Annotated[Words, arg(metavar="ID[,ID...]", help_behavior_hint="")] = ()
    """More environments."""
    agent: Annotated[Words, arg(metavar="NAME", help_behavior_hint="")] = ()
    """random, solver, openai:MODEL[@BASE_URL], hf:NAME_OR_FOLDER (a model of transformers), smollm2 or
    another name of `gem-gym models`, your own as path/file.py:Class or module:Class, or the folder of a
    training run, as runs/demo (runs/demo@best: its best weights, not the last); random if left out.
    Given several times, the agents are compared."""
    episodes: Annotated[str, arg(aliases=["-n"], metavar="INT|all", help_behavior_hint="")] = ""
    """Tasks of each environment, each with its own seed. Of a data set, so many rows, each once, drawn by
    --seed; all in their order if left out. 200 if left out where a program makes the tasks."""
    samples: Annotated[MaybeInt, arg(aliases=["-k"])] = None
    """Episodes of each task. With more than 1, pass@1 to pass@k and pass^k are shown too, and intervals are
    clustered by task. 1 if left out."""
    seed: MaybeInt = None
    """The same seed gives the same episodes; 0 if left out."""
    tools: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Tools added to the environments: python, search (uses SEARCH_URL), world_search (built in, offline)."""
    wrappers: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Wrappers around the environments, inner first: names, module:function, or file.py:function."""
    seat: MaybeText = None
    """In a game of several seats, the seat of the agent; it plays all seats if left out."""
    others: MaybeText = None
    """With --seat: who plays the other seats, an agent's name as above."""
    host: str = "auto"
    """Where environments run: serial, thread, process, or auto: thread for those that wait."""
    ray: Annotated[str, arg(metavar="ADDRESS", help_behavior_hint="")] = ""
    """Play on a Ray cluster: HOST:PORT, auto for the one of this machine, or local to start one. All agents
    except training runs are made on its nodes, and use the keys and variables (as SEARCH_URL) set there."""
    trust: bool = False
    """Let a suite, or the evaluation that --resume continues, name code and servers that a file may not name
    (docs/guides/trust.md). An evaluation that this user began on this machine needs no --trust."""
    suites: bool = False
    """List the suites that come with gem, and do nothing else."""
    own: Annotated[DataFlags, OmitArgPrefixes] = field(default_factory=DataFlags)
    model: Annotated[Model, OmitArgPrefixes] = field(default_factory=Model)
    limits: Annotated[LimitFlags, OmitArgPrefixes] = field(default_factory=LimitFlags)
    output: Annotated[Output, OmitArgPrefixes] = field(default_factory=Output)


def command(args: list[str], prog: str) -> int:
    """Run ``gem-gym eval``; with --resume, the flags of the stored command come first.

    Raises:
        BadArgument: for flags that are invalid or exclude one another.
    """
    given = _parsed(args, prog)
    if given.suites:
        table("suite", "about", rows=list(known_suites().items()))
        return 0
    if given.output.resume:
        words, own = _stored_command(given.output.out)
        if not (own or given.trust):
            _check_stored(_parsed(words, prog), str(given.output.out))
        args = [*words, *args]
        given = _parsed(args, prog)
        gates = tuple(dict.fromkeys(given.output.gate))  # one that was given before is the same one
        given = replace(given, output=replace(given.output, gate=gates))
        named = (*given.targets, *given.env, *given.wrappers, *given.agent)
        for told in changed_files(_split(named)):
            print(printable(told), file=sys.stderr)
    return evaluate(given)


def _parsed(args: Sequence[str], prog: str) -> Arguments:
    return tyro.cli(Arguments, prog=prog, args=args, config=(FlagCreatePairsOff, OmitArgPrefixes))


def _check_stored(stored: Arguments, where: str) -> None:
    """Refuse a stored command of somebody else that names what a file may not name.

    Raises:
        BadArgument: with the name.
    """
    if stored.trust:
        refuse(f"{where}: the stored command trusts", "itself")
    ids = [name for name in (*stored.targets, *_split(stored.env)) if not name.endswith(".toml")]
    wrappers = _split(stored.wrappers)
    settings = {**asdict(stored), "targets": (), "env": ids, "wrappers": wrappers}
    accept_settings(settings, where)


def _stored_command(out: Path | None) -> tuple[list[str], bool]:
    """Return the words of the command that began an evaluation, and whether this user gave it here."""
    if out is None:
        raise BadArgument("--resume continues a stored evaluation; name its folder by --out FOLDER.")
    try:
        text = (out / "command.json").read_text(encoding="utf-8")
        words = json.loads(text)
    except (OSError, ValueError) as error:
        raise BadArgument(
            f"{out} holds no evaluation to continue: {out / 'command.json'}: {reason(error)}."
        ) from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadArgument(f"{out / 'command.json'} is not a list of strings.")
    if any(HIDDEN in word for word in words):
        raise BadArgument("the stored command has its password left out; give the whole command again.")
    return words, named_before("command", text)


def _words(given: Any) -> list[str]:
    """Return the arguments of an equivalent command: each flag once, with the value that took effect."""
    words: list[str] = []
    for each in fields(given):
        value, flag = getattr(given, each.name), f"--{each.name.replace('_', '-')}"
        if each.name == "resume":
            continue
        if is_dataclass(value):
            words += _words(value)
        elif each.name == "targets":
            words = [*value, *words]
        elif value is True:
            words.append(flag)
        elif isinstance(value, tuple):
            words += [word for part in value for word in _said(flag, part)]
        elif value is not None and value is not False and value != "" and value != each.default:
            words += _said(flag, str(value))
    return [_without_password(word) for word in words]


def _fixed(given: Arguments) -> Arguments:
    """Return the arguments with the content of the files that they name in place of their paths."""

    def fix(words: Sequence[str], kind: str) -> tuple[str, ...]:
        return tuple(",".join(fix_name(part, kind) for part in word.split(",")) for word in words)

    return replace(
        given,
        targets=fix(given.targets, "environment"),
        env=fix(given.env, "environment"),
        wrappers=fix(given.wrappers, "wrapper"),
        agent=fix(given.agent, "agent"),
        others=given.others and fix_name(given.others, "agent"),
    )


def _said(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def evaluate(given: Arguments) -> int:
    """Play what the arguments ask for, print and write the results, and return the exit code."""
    given = _fixed(given)
    suite = _suite(given)
    gates = [Gate.parse(text) for text in given.output.gate]
    names = given.agent or suite.agents or ("random",)
    shown = [_without_password(name) for name in names]
    _tell_changed_data(given.output.out, suite)
    if len({*shown}) < len(shown):
        raise BadArgument("an agent was named twice; once is enough.")
    out, limits = given.output.out, given.limits
    prices = None if limits.prices is None else Prices.read(limits.prices)
    labels = [entry.label for entry in suite.entries]
    samples = min(entry.samples for entry in suite.entries)
    refuse_unknown(gates, labels, {entry.category for entry in suite.entries}, samples, prices is not None)
    if given.output.retry_failed and out is None:
        raise BadArgument("--retry-failed plays stored episodes again; name their folder by --out FOLDER.")
    tasks = {entry.label: _tasks_of(entry, suite, bool(given.ray)) for entry in suite.entries}
    with ExitStack() as last:
        if given.ray:
            last.enter_context(Cluster(given.ray))
        actors = {
            called: _player(last, name, suite.settings, given.ray)
            for called, name in zip(shown, names, strict=True)
        }
        for entry in suite.entries:
            for value in entry.kwargs.values():
                _kept(last, value)  # a judge has connections
        if prices is not None:
            prices.check(map(_model_of, actors.values()))
        budget = None
        if limits.budget_tokens is not None or limits.budget_usd is not None:
            budget = Budget(limits.budget_tokens, limits.budget_usd, prices)
        progress = last.enter_context(Progress(given.output.json, prices))
        counts = [len(tasks[entry.label].seeds) * entry.samples for entry in suite.entries]
        report = Report(suite, out, shown, gates, prices, budget, _words(given), sum(counts) * len(shown))
        stores = {name: _store(last, out, name, len(names) == 1, budget) for name in shown}
        if budget is not None:
            for store in stores.values():
                if isinstance(store, EpisodeStore):
                    _count(store, budget)
        references = {
            name: _reference_store(last, out, name) for name in REFERENCES if given.output.normalise
        }
        played = sum(len(store) for store in stores.values() if isinstance(store, EpisodeStore))
        if not given.ray and (given.output.retry_failed or played < report.total):
            for entry in suite.entries:
                ping_judges(entry.kwargs)
        try:
            for entry in suite.entries:
                scale = [
                    _reference(entry, tasks[entry.label], name, store, given, progress)
                    for name, store in references.items()
                ]
                for name, actor in actors.items():
                    report.now = name
                    rest = others_of(entry.env, given.seat, given.others)
                    for other in rest.values():
                        _kept(last, other)
                        if prices is not None:
                            prices.check([_model_of(other)])
                    play: dict[str, Any] = {
                        "agent": {given.seat: actor, **rest} if given.seat else actor,
                        "store": stores[name],
                        "host": given.host,
                        "ray": bool(given.ray),
                        "resume": out is not None,
                        "retry_failed": given.output.retry_failed,
                        "concurrency": suite.settings.concurrency or EPISODES_AT_ONCE,
                    }
                    row = _measured(entry, tasks[entry.label], suite, play, budget, progress, report)
                    if row.result is not None and None in scale:
                        lacking = [who for who, of in zip(REFERENCES, scale, strict=True) if of is None]
                        note = f"no normalised return: it takes {' and '.join(REFERENCES)}, and "
                        note += f"{' and '.join(lacking)} cannot play here"
                        row = replace(row, note="; ".join(filter(None, (row.note, note))))
                    report.add(name, replace(row, normalised=_normalised(row.result, scale)))
                report.compare(entry.label)
            report.end()
        except AgentUnavailable as gone:
            progress.close()
            report.show(given.output.json)
            said = f"agent {report.now} cannot answer: {gone}"
            report.stop(said)
            print(printable(f"{said}\n{report.progress()}"), file=sys.stderr)
            return FAILED
        except GemError as error:
            progress.close()
            if report.results:  # do not lose the results so far
                report.show(given.output.json)
            report.stop(f"{type(error).__name__}: {error}")
            raise
        except KeyboardInterrupt as stop:
            progress.close()
            report.stop("Ctrl-C")
            stop.add_note(report.progress())
            raise
    report.show(given.output.json)
    return report.code


def _suite(given: Arguments) -> Suite:
    """Return the suite to play: the named one with the flags applied, or one of the named environments."""
    named = [*given.targets, *_split(given.env)]
    tools, wrappers = _split(given.tools), _split(given.wrappers)
    flags = given.model
    settings = {
        **{"temperature": _temperature(flags.temperature), "max_tokens": flags.max_tokens},
        **{"api": flags.api or None, "template": flags.template, "api_key_env": flags.api_key_env},
        **{"concurrency": flags.concurrency, "timeout_s": flags.timeout, "device": flags.device},
        **{"tool_calls": flags.tool_calls or None, "send_reasoning": flags.send_reasoning or None},
        **{"stream": flags.stream or None, "extra": _fields(flags.extra)},
    }
    seed = None if given.seed is None else seeding.check(given.seed)
    limits_of(given.limits.turns, given.limits.tokens_per_episode)
    count = _count_of(given.episodes)
    if given.samples is not None and given.samples < 1:
        raise BadArgument(f"samples is {given.samples}; accepted: 1 or more.")
    own = given.own.task()
    if own is not None:
        print(printable(own.about), file=sys.stderr)
    suites = [name for name in named if name in known_suites() or name.endswith(".toml")]
    if suites and (len(named) > 1 or own is not None):
        raise BadArgument(f"{suites[0]} is a suite, and a suite is played alone; leave the others out.")
    if suites:
        suite = load_suite(
            suites[0],
            trust=given.trust,
            n=count,
            k=given.samples,
            turns=given.limits.turns,
            tokens_per_episode=given.limits.tokens_per_episode,
            tools=tools or None,
            wrappers=wrappers or None,
            seed=seed,
            min_coverage=given.output.min_coverage,
            stop_at_width=given.limits.stop_at_width,
            **settings,
        )
        for about in filter(None, (entry.about for entry in suite.entries)):
            print(printable(about), file=sys.stderr)
        return suite
    if not named and own is None:
        raise BadArgument(
            "no environment was named; `gem-gym list` shows all, `gem-gym eval --suites` the suites, and "
            "--data FILE takes your own questions."
        )
    if len({*named}) < len(named):
        raise BadArgument("an environment was named twice; once is enough.")
    played: list[tuple[str, dict[str, Any], str, str]] = [(name, {}, "", "") for name in named]
    if own is not None:
        played.append((own.env, own.kwargs, own.title, own.about))
    entries = [
        Entry(
            name,
            kwargs=kwargs,
            title=title,
            about=about,
            tools=tools,
            wrappers=wrappers,
            episodes=count,
            samples=given.samples or 1,
            turns=given.limits.turns,
            tokens=given.limits.tokens_per_episode,
        )
        for name, kwargs, title, about in played
    ]
    return Suite(
        "",
        tuple(entries),
        settings=AgentSettings(**{k: v for k, v in settings.items() if v is not None}),  # type: ignore[arg-type]
        seed=seed or 0,
        min_coverage=given.output.min_coverage or 0.0,
        stop_at_width=given.limits.stop_at_width,
    )


def _count_of(word: str) -> Count:
    """Return the number of tasks that --episodes gives.

    Raises:
        BadArgument: for anything but a number from 1, or all.
    """
    if not word:
        return None
    if word == "all":
        return "all"
    if not word.isascii() or not word.isdecimal() or int(word) < 1:
        raise BadArgument(f"episodes is {word!r}; accepted: 1 or more, or all.")
    return int(word)


def _tell_changed_data(out: Path | None, suite: Suite) -> None:
    """Say which data have changed since the evaluation in a folder; their rows are asked again."""
    digests = {}
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # no evaluation is there
        stored = json.loads((out / "result.json").read_bytes()) if out is not None else {}
        digests = {each["kwargs"]["data"]: each["kwargs"]["digest"] for each in stored["environments"]}
    for entry in suite.entries:
        data, digest = entry.kwargs.get("data"), entry.kwargs.get("digest")
        if isinstance(data, str) and digests.get(data, digest) != digest:
            said = f"{data} has changed since the evaluation in {out}: all of its rows are asked again"
            print(printable(said), file=sys.stderr)


def _temperature(word: str) -> float | str | None:
    try:
        return word or None if word in ("", "none") else float(word)
    except ValueError as error:
        raise BadArgument(f"temperature is {word!r}; accepted: 0 (greedy) or more, or none.") from error


def _fields(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadArgument(f"extra is {text[:100]!r}, which is not JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise BadArgument(f"extra is {text[:100]!r}; accepted: a JSON object.")
    return fields


def _split(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


@dataclass(frozen=True)
class Tasks:
    """The seeds of an environment's tasks, or why there are none here, and a remark on their number."""

    seeds: Sequence[int] = ()
    missing: GemError | None = None
    note: str = ""


def _tasks_of(entry: Entry, suite: Suite, elsewhere: bool) -> Tasks:
    """Find the tasks of an environment, before anything is asked; with Ray, its data may be `elsewhere`.

    Raises:
        MissingData, MissingExtra: when the environment was named by its id and is not available here.
        BadArgument: for bad rows, all of which are listed.
    """
    try:
        seeds = entry.seeds(suite.seed)
    except (MissingData, MissingExtra) as error:
        if elsewhere:
            count = entry.episodes if isinstance(entry.episodes, int) else EPISODES
            return Tasks([seeding.derive(suite.seed, "eval", i) for i in range(count)])
        if not suite.name:
            raise
        return Tasks(missing=error)
    if isinstance(entry.episodes, int) and len(seeds) < entry.episodes:
        return Tasks(seeds, note=f"it has {len(seeds)} tasks, and each was played once")
    return Tasks(seeds)


def _measured(
    entry: Entry,
    tasks: Tasks,
    suite: Suite,
    play: dict[str, Any],
    budget: Budget | None,
    progress: Progress,
    report: Report,
) -> Scored:
    """Play an environment of the suite.

    Raises:
        MissingData, MissingExtra, NoSolver: when the environment was named by its id and is not available
            here, or has no solver and the agent is `solver`. In a suite, it is reported as missing instead.
    """
    stop = None if suite.stop_at_width is None else Stopping(entry.samples, suite.stop_at_width)

    def hear(episode: Episode) -> None:
        report.hear(episode)
        progress.hear(episode)

    if tasks.missing is not None:
        return Scored(entry, missing=str(tasks.missing))
    try:
        episodes = len(tasks.seeds)
        progress.begin(entry.label, report.now if report.several else "", episodes * entry.samples)
        if budget is not None:
            budget.begin(entry.env)
        asked: dict[str, Any] = {
            "env": entry.task,
            "samples": entry.samples,
            "seeds": tasks.seeds,
            "stop": stop,
        }
        play["limits"] = limits_of(entry.turns, entry.tokens)
        play["admit"] = None if budget is None else budget.admit
        play["on_episode"] = hear
        result = _measured_on_ray(asked, play) if play.pop("ray") else measured(**asked, **play)
    except (MissingData, MissingExtra, NoSolver) as missing:
        if not suite.name:
            raise
        return Scored(entry, missing=str(missing))
    finally:
        progress.end()
    result, note = replace(result, env=entry.label), tasks.note
    if stop is not None and stop.interval is not None:
        note = f"{note}; " if note else ""
        note += "the interval of success holds however often one looks"
        note += f"; it is narrow enough after {result.played} episodes" if stop.enough else ""
    return Scored(entry, result, note=note)


def _measured_on_ray(asked: dict[str, Any], play: dict[str, Any]) -> EnvResult:
    """Play on the Ray cluster that this process is connected to."""
    if asked["stop"] is not None:
        play["admit"], play["on_episode"] = asked["stop"].beside(play["admit"], play["on_episode"])
    with RayRunner(**play) as runner:
        return measured(runner, **asked)


def _player(last: ExitStack, name: str, settings: AgentSettings, ray: str) -> Agent | AgentByName:
    """Return the agent of that name; with Ray, one that is made on the nodes, unless it is a training run."""
    if ray and trained(name) is None:
        return AgentByName(name, settings)
    return _kept(last, local_agent(name, settings))


def _reference(
    entry: Entry, tasks: Tasks, name: str, store: EpisodeStore | None, given: Arguments, progress: Progress
) -> EnvResult | None:
    """Play one reference agent of the normalised scale; None if the environment does not have it."""
    if tasks.missing is not None:
        return None
    try:
        progress.begin(entry.label, name, len(tasks.seeds))
        return measured(
            local_agent(name),
            entry.task,
            seeds=tasks.seeds,
            limits=limits_of(entry.turns, entry.tokens),
            host=given.host,
            store=store,
            resume=store is not None,
            on_episode=progress.hear,
        )
    except (MissingData, MissingExtra, NoSolver):  # reported when the agent itself plays
        return None
    finally:
        progress.end()


def _normalised(result: EnvResult | None, scale: Sequence[EnvResult | None]) -> Interval | None:
    """Return the return on a scale from random play to the solver; None if one of the three is missing."""
    ends = [each.reward for each in scale if each is not None and each.reward is not None]
    if len(ends) < len(REFERENCES) or result is None or result.reward is None:
        return None
    return normalised(result.reward, *ends)


REFERENCES = ("random", "solver")
"""The agents whose returns are 0 and 1 on the normalised scale."""

HIDDEN = "***"
"""The text that replaces a password."""

EPISODES_FILE = "episodes.jsonl"


def _without_password(word: str) -> str:
    """Return a command argument with the password of an address hidden."""
    return re.sub(r"://[^/@\s]*@", f"://{HIDDEN}@", word)


def _model_of(agent: Agent | AgentByName) -> str | None:
    model: str | None = getattr(getattr(agent, "info", None), "model", None)
    return model


def _kept(last: ExitStack, agent: T) -> T:
    """Return the agent or grader, and close it at the end."""
    close = getattr(agent, "close", None)
    if close is not None:
        last.callback(close)
    return agent


class _CountedStore(EpisodeStore):
    """An episode store that also reports each episode to a budget."""

    budget: Budget | None = None

    def append(self, episode: Episode) -> None:
        """See EpisodeStore.append."""
        super().append(episode)
        if self.budget is not None:
            self.budget.append(episode)


def _store(
    last: ExitStack, out: Path | None, name: str, alone: bool, budget: Budget | None
) -> EpisodeStore | Budget | None:
    """Return the store of an agent's episodes; each agent has its own, as a store has one agent's settings.

    Raises:
        StoreError: when the folder cannot be made, is a training run's, or another evaluation writes there.
    """
    if out is None:
        return budget
    if any((out / name).exists() for name in ("checkpoint.pt", "metrics.jsonl")):
        raise StoreError(
            f"{out} holds a training run, and an evaluation cannot write there; choose another --out."
        )
    folder = out / file_name(name)
    if alone and not (folder / EPISODES_FILE).exists():
        folder = out
    elif (out / EPISODES_FILE).exists():
        raise StoreError(
            f"{out} holds the episodes of a single agent; for several agents choose another --out."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {reason(error)}; choose another --out.") from error
    store = last.enter_context(_CountedStore(folder / EPISODES_FILE))
    store.claim()  # at the start: another evaluation may be playing the same episodes
    store.budget = budget
    return store


def _count(store: EpisodeStore, budget: Budget) -> None:
    """Add stored episodes to the budget; damaged lines cannot be counted, and are played again."""
    damaged = 0
    for number in range(len(store)):
        try:
            budget.append(store[number])
        except StoreError:
            damaged += 1
    if damaged:
        said = f"{store.path}: the budget does not count {damaged} damaged line{'s' * (damaged != 1)}"
        print(printable(said), file=sys.stderr)


def _reference_store(last: ExitStack, out: Path | None, name: str) -> EpisodeStore | None:
    """Return the store of a reference agent, separate from that of an evaluated agent of the same name."""
    if out is None:
        return None
    store = _store(last, out / "references" / name, name, True, None)
    return store if isinstance(store, EpisodeStore) else None
