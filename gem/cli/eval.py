"""The command ``gem-gym eval``: agents measured on environments and suites."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

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
)
from gem.evals import EnvResult, Stopping
from gem.evals import evaluate as measured
from gem.evals.gates import Gate, refuse_unknown
from gem.evals.reports import file_name
from gem.evals.scorecard import Scored
from gem.evals.suite import EPISODES, Entry, Suite, known_suites, load_suite
from gem.evals.usage import Budget, Prices
from gem.hosts.ray_cluster import Cluster
from gem.record import Agent, Episode
from gem.rollout import EpisodeStore, RayRunner
from gem.statistics import Interval, normalised

EPISODES_AT_ONCE = 128
"""Episodes in flight where nobody sets a limit."""

Words = UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Model:
    """How a model is asked."""

    temperature: Annotated[str, arg(metavar="FLOAT", help_behavior_hint="")] = ""
    """Of sampling; 0 is greedy, "none" sends none, for models that refuse it. 1 when left out."""
    max_tokens: MaybeInt = None
    """Tokens of one answer."""
    api: Annotated[
        Literal["chat", "responses", "completions", ""],
        arg(metavar="{chat,responses,completions}", help_behavior_hint=""),
    ] = ""
    """What an endpoint speaks; chat when left out."""
    template: MaybeText = None
    """For --api completions: the model whose chat template makes the prompts, as `gem-gym models` lists or of
    the Hugging Face hub. A plain transcript when left out."""
    api_key_env: MaybeText = None
    """The environment variable that holds an endpoint's key; OPENAI_API_KEY when left out."""
    concurrency: MaybeInt = None
    """The most episodes, and requests to an endpoint, at a time; it begins with few, and goes back where the
    endpoint is busy. 64 when left out."""
    timeout: MaybeFloat = None
    """Seconds for one answer of an endpoint; 600 when left out."""
    tool_calls: Annotated[
        Literal["native", "text", ""], arg(metavar="{native,text}", help_behavior_hint="")
    ] = ""
    """native: tools are offered as schemas, where the model takes them. text: calls are in the text. native
    when left out."""
    send_reasoning: bool = False
    """Send an endpoint the model's reasoning of earlier turns."""
    stream: bool = False
    """Read an endpoint's answers as streams."""
    extra: Annotated[str, arg(metavar="JSON", help_behavior_hint="")] = ""
    """Further fields of each request to an endpoint, as '{"reasoning_effort": "low"}'."""
    device: MaybeText = None
    """Where a local model lives, as cuda; cpu when left out."""


@dataclass(frozen=True)
class LimitFlags:
    """What an episode, and all of them, may take."""

    turns: MaybeInt = None
    """Cut an episode off after so many turns."""
    tokens_per_episode: MaybeInt = None
    """Cut an episode off after so many sampled tokens."""
    budget_tokens: MaybeInt = None
    """Begin no episode that is expected to exceed so many tokens, of prompts and answers, in all. What --out
    holds counts."""
    budget_usd: MaybeFloat = None
    """The same in dollars, by --prices."""
    stop_at_width: MaybeFloat = None
    """Begin no more tasks of an environment once the interval of its success is so narrow, as 0.1 for ten
    points. The interval is one that may be looked at after each task; it is wider than that of a number of
    tasks that was chosen beforehand. --episodes is the most."""
    prices: MaybePath = None
    """A file with the dollars of a million tokens, by model; docs/guides/prices.toml is one."""


@dataclass(frozen=True)
class Output:
    """What is kept and said."""

    out: MaybeFolder = None
    """The folder in which episodes, result.json, report.md and junit.xml are kept."""
    resume: bool = False
    """Go on with the evaluation in --out: the flags that it began with, and those given now on top."""
    retry_failed: bool = False
    """Play again what is stored in --out without a verdict."""
    gate: Annotated[Words, arg(metavar="CONDITION", help_behavior_hint="")] = ()
    """Fail, with exit code 1, unless this holds, as "success>=0.8", "low(success)>=0.8" (the lower end of the
    interval), "success[ENV]>=0.8", "success[*]>=0.5" (every environment). Of: success, return, turns,
    coverage, tokens, cost, pass@K, pass^K. May be given several times."""
    min_coverage: MaybeFloat = None
    """Give no headline where a smaller share of the episodes has a verdict, as 0.95."""
    normalise: bool = False
    """Play random and solver on the same tasks too, once each, and tell the return on a scale on which random
    play is 0 and the solver 1."""
    json: bool = False
    """Print the result as JSON, and nothing else."""


@dataclass(frozen=True)
class Arguments:
    """Measure agents: success, return and turns, each with its 95% interval.

    What is played are environments, by id, or a suite: a TOML file, or the name of one that comes with gem
    (--suites lists them). Flags take the place of what a suite says.

    An episode that infrastructure broke has no verdict and enters no figure: `verdicts` says how many do,
    `bounds` is the success with all of them counted as lost, and as won. Where agents are compared and lost
    verdicts at different rates, that is told.

    With --out, episodes are kept in FOLDER/episodes.jsonl (of several agents in a folder for each) and the
    figures in FOLDER/result.json. What was stopped goes on by the same command: no stored episode is played
    again.
    """

    targets: Annotated[Positional[tuple[str, ...]], arg(metavar="[ID|SUITE ...]", help_behavior_hint="")] = ()
    """Environments (`gem-gym list` shows all), or one suite."""
    env: Annotated[Words, arg(metavar="ID[,ID...]", help_behavior_hint="")] = ()
    """Environments too."""
    agent: Annotated[Words, arg(metavar="NAME", help_behavior_hint="")] = ()
    """random, solver, openai:MODEL[@BASE_URL], hf:NAME_OR_FOLDER (a model of transformers), smollm2 or
    another name of `gem-gym models`, or the folder of a training run, as runs/demo (runs/demo@best: its
    best weights, not the last); random when left out.
    Given several times, the agents are compared."""
    episodes: Annotated[MaybeInt, arg(aliases=["-n"])] = None
    """Tasks of each environment, each from a seed of its own; 200 when left out."""
    samples: Annotated[MaybeInt, arg(aliases=["-k"])] = None
    """Episodes of each task: then pass@1 to pass@k and pass^k are told too, and intervals are clustered by
    task. 1 when left out."""
    seed: MaybeInt = None
    """The same seed gives the same episodes; 0 when left out."""
    tools: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Tools that the environments carry: python, search (by SEARCH_URL), world_search (built in, offline)."""
    wrappers: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Wrappers around the environments, inner first: names, or module:function."""
    seat: MaybeText = None
    """Of a game of several, the seat that the agent takes; it takes all when left out."""
    others: MaybeText = None
    """Who plays the other seats, beside `seat`: an agent's name as above."""
    host: str = "auto"
    """Where environments live: serial, thread, process, or auto: thread for those that wait."""
    ray: Annotated[str, arg(metavar="ADDRESS", help_behavior_hint="")] = ""
    """Play on a Ray cluster: HOST:PORT, auto for the one of this machine, or local to start one. Agents, but
    for training runs, are made on its nodes: keys, and variables such as SEARCH_URL, are those of there."""
    suites: bool = False
    """List the suites that come with gem, and do nothing else."""
    model: Annotated[Model, OmitArgPrefixes] = field(default_factory=Model)
    limits: Annotated[LimitFlags, OmitArgPrefixes] = field(default_factory=LimitFlags)
    output: Annotated[Output, OmitArgPrefixes] = field(default_factory=Output)


def command(args: list[str], prog: str) -> int:
    """Carry out ``gem-gym eval``; with --resume the flags of the stored command come first.

    Raises:
        BadArgument: for flags that make no sense.
    """
    given = _parsed(args, prog)
    if given.suites:
        table("suite", "about", rows=list(known_suites().items()))
        return 0
    if given.output.resume:
        args = [*_stored_command(given.output.out), *args]
        given = _parsed(args, prog)
        gates = tuple(dict.fromkeys(given.output.gate))  # one that was given before is the same one
        given = replace(given, output=replace(given.output, gate=gates))
    return evaluate(given)


def _parsed(args: Sequence[str], prog: str) -> Arguments:
    return tyro.cli(Arguments, prog=prog, args=args, config=(FlagCreatePairsOff, OmitArgPrefixes))


def _stored_command(out: Path | None) -> list[str]:
    if out is None:
        raise BadArgument("--resume goes on with an evaluation; --out FOLDER says which.")
    try:
        words = json.loads((out / "command.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadArgument(f"{out} holds no evaluation that could go on: {error}.") from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadArgument(f"{out / 'command.json'} is no list of words.")
    if any(HIDDEN in word for word in words):
        raise BadArgument("the stored command has its password left out; give the whole command again.")
    return words


def _words(given: Any) -> list[str]:
    """Return the words of a command that asks for the same, each flag once, as it counts."""
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


def _said(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def evaluate(given: Arguments) -> int:
    """Play what is asked for, say and write what it came to, and return the exit code."""
    suite = _suite(given)
    gates = [Gate.parse(text) for text in given.output.gate]
    names = given.agent or suite.agents or ("random",)
    shown = [_without_password(name) for name in names]
    if len({*shown}) < len(shown):
        raise BadArgument("an agent was named twice; once is enough.")
    out, limits = given.output.out, given.limits
    prices = None if limits.prices is None else Prices.read(limits.prices)
    labels = [entry.label for entry in suite.entries]
    samples = min(entry.samples for entry in suite.entries)
    refuse_unknown(gates, labels, {entry.category for entry in suite.entries}, samples, prices is not None)
    if given.output.retry_failed and out is None:
        raise BadArgument("--retry-failed plays stored episodes again; --out FOLDER says which.")
    with ExitStack() as last:
        if given.ray:
            last.enter_context(Cluster(given.ray))
        actors = {
            called: _player(last, name, suite.settings, given.ray)
            for called, name in zip(shown, names, strict=True)
        }
        if prices is not None:
            prices.check(map(_model_of, actors.values()))
        budget = None
        if limits.budget_tokens is not None or limits.budget_usd is not None:
            budget = Budget(limits.budget_tokens, limits.budget_usd, prices)
        progress = last.enter_context(Progress(given.output.json, prices))
        report = Report(suite, out, shown, gates, prices, budget, _words(given))
        stores = {name: _store(last, out, name, len(names) == 1, budget) for name in shown}
        if budget is not None:
            for store in stores.values():
                if isinstance(store, EpisodeStore):
                    _count(store, budget)
        references = {
            name: _reference_store(last, out, name) for name in REFERENCES if given.output.normalise
        }
        try:
            for entry in suite.entries:
                scale = [
                    _reference(entry, name, store, suite.seed, given, progress)
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
                        "seed": suite.seed,
                        "host": given.host,
                        "ray": bool(given.ray),
                        "resume": out is not None,
                        "retry_failed": given.output.retry_failed,
                        "concurrency": suite.settings.concurrency or EPISODES_AT_ONCE,
                    }
                    row = _measured(entry, suite, play, budget, progress, report)
                    report.add(name, replace(row, normalised=_normalised(row.result, scale)))
                report.compare(entry.label)
            report.end()
        except AgentUnavailable as gone:
            progress.close()
            report.show(given.output.json)
            said = f"agent {report.now} can answer nobody: {gone}"
            report.stop(said)
            print(printable(f"{said}\n{report.progress()}"), file=sys.stderr)
            return FAILED
        except GemError as error:
            progress.close()
            if report.results:  # what is known already is lost to nobody
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
    """Return what is to be played: a suite as the flags change it, or the environments that they name."""
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
    for name, value in (("episodes", given.episodes), ("samples", given.samples)):
        if value is not None and value < 1:
            raise BadArgument(f"{name} is {value}; accepted: 1 or more.")
    suites = [name for name in named if name in known_suites() or name.endswith(".toml")]
    if suites and len(named) > 1:
        raise BadArgument(f"{suites[0]} is a suite, which is played alone; leave the others out.")
    if suites:
        return load_suite(
            suites[0],
            n=given.episodes,
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
    if not named:
        raise BadArgument(
            "no environment was named; `gem-gym list` shows all, `gem-gym eval --suites` the suites."
        )
    if len({*named}) < len(named):
        raise BadArgument("an environment was named twice; once is enough.")
    entries = [
        Entry(
            name,
            tools=tools,
            wrappers=wrappers,
            episodes=EPISODES if given.episodes is None else given.episodes,
            samples=given.samples or 1,
            turns=given.limits.turns,
            tokens=given.limits.tokens_per_episode,
        )
        for name in named
    ]
    return Suite(
        "",
        tuple(entries),
        settings=AgentSettings(**{k: v for k, v in settings.items() if v is not None}),  # type: ignore[arg-type]
        seed=seed or 0,
        min_coverage=given.output.min_coverage or 0.0,
        stop_at_width=given.limits.stop_at_width,
    )


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
        raise BadArgument(f"extra is {text[:100]!r}, which is no JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise BadArgument(f"extra is {text[:100]!r}; accepted: a JSON object.")
    return fields


def _split(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for word in words for part in word.split(",") if part.strip())


def _measured(
    entry: Entry,
    suite: Suite,
    play: dict[str, Any],
    budget: Budget | None,
    progress: Progress,
    report: Report,
) -> Scored:
    """Play an environment of the suite.

    Raises:
        MissingData, MissingExtra, NoSolver: where it is not here, or the agent is a solver that it has not,
            and it was named by its id; in a suite that is told.
    """
    stop = None if suite.stop_at_width is None else Stopping(entry.samples, suite.stop_at_width)

    def hear(episode: Episode) -> None:
        report.hear(episode)
        progress.hear(episode)

    try:
        seeds = entry.seeds()
        episodes = len(seeds) if seeds is not None else entry.episodes or 0
        progress.begin(entry.label, report.now if report.several else "", episodes * entry.samples)
        if budget is not None:
            budget.begin(entry.env)
        asked: dict[str, Any] = {
            "env": entry.task,
            "episodes": episodes,
            "samples": entry.samples,
            "seeds": seeds,
            "seed": play.pop("seed"),
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
    result, note = replace(result, env=entry.label), ""
    if stop is not None and stop.interval is not None:
        note = "the interval of success holds however often one looks"
        note += f"; it is narrow enough after {result.played} episodes" if stop.enough else ""
    return Scored(entry, result, note=note)


def _measured_on_ray(asked: dict[str, Any], play: dict[str, Any]) -> EnvResult:
    """Play on the Ray cluster that this process is connected to."""
    if asked["stop"] is not None:
        play["admit"], play["on_episode"] = asked["stop"].beside(play["admit"], play["on_episode"])
    with RayRunner(**play) as runner:
        return measured(runner, **asked)


def _player(last: ExitStack, name: str, settings: AgentSettings, ray: str) -> Agent | AgentByName:
    """Return the agent of that name; on Ray one that is made on the nodes, but for a training run's."""
    if ray and trained(name) is None:
        return AgentByName(name, settings)
    return _kept(last, local_agent(name, settings))


def _reference(
    entry: Entry, name: str, store: EpisodeStore | None, seed: int, given: Arguments, progress: Progress
) -> EnvResult | None:
    """Play what a scale is made of on an environment's tasks; None where the environment has none of it."""
    try:
        seeds = entry.seeds()
        episodes = len(seeds) if seeds is not None else entry.episodes or 0
        progress.begin(entry.label, name, episodes)
        return measured(
            local_agent(name),
            entry.task,
            episodes=episodes,
            seed=seed,
            seeds=seeds,
            limits=limits_of(entry.turns, entry.tokens),
            host=given.host,
            store=store,
            resume=store is not None,
            on_episode=progress.hear,
        )
    except (MissingData, MissingExtra, NoSolver):  # of what is not here the agent's own turn tells
        return None
    finally:
        progress.end()


def _normalised(result: EnvResult | None, scale: Sequence[EnvResult | None]) -> Interval | None:
    """Return the return on a scale from random play to the solver; None where one of the three is missing."""
    ends = [each.reward for each in scale if each is not None and each.reward is not None]
    if len(ends) < len(REFERENCES) or result is None or result.reward is None:
        return None
    return normalised(result.reward, *ends)


REFERENCES = ("random", "solver")
"""What stands for 0 and for 1 where returns are normalised."""

HIDDEN = "***"
"""What stands for a password."""

EPISODES_FILE = "episodes.jsonl"


def _without_password(word: str) -> str:
    """Return a word of a command without the password of an address."""
    return re.sub(r"://[^/@\s]*@", f"://{HIDDEN}@", word)


def _model_of(agent: Agent | AgentByName) -> str | None:
    model: str | None = getattr(getattr(agent, "info", None), "model", None)
    return model


def _kept(last: ExitStack, agent: Agent) -> Agent:
    """Return an agent that is closed at the end."""
    close = getattr(agent, "close", None)
    if close is not None:
        last.callback(close)
    return agent


class _CountedStore(EpisodeStore):
    """A store that tells a budget what was played."""

    budget: Budget | None = None

    def append(self, episode: Episode) -> None:
        """See EpisodeStore.append."""
        super().append(episode)
        if self.budget is not None:
            self.budget.append(episode)


def _store(
    last: ExitStack, out: Path | None, name: str, alone: bool, budget: Budget | None
) -> EpisodeStore | Budget | None:
    """Return where an agent's episodes go: agents apart, for a store goes on under one agent's settings.

    Raises:
        StoreError: when the folder cannot be made, is a training run's, or another evaluation writes there.
    """
    if out is None:
        return budget
    if any((out / name).exists() for name in ("checkpoint.pt", "metrics.jsonl")):
        raise StoreError(f"{out} holds a training run, whose episodes are its own; choose another --out.")
    folder = out / file_name(name)
    if alone and not (folder / EPISODES_FILE).exists():
        folder = out
    elif (out / EPISODES_FILE).exists():
        raise StoreError(f"{out} holds the episodes of one agent alone; for several choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder} cannot be made: {error.strerror}; choose another --out.") from error
    store = last.enter_context(_CountedStore(folder / EPISODES_FILE))
    store.claim()  # at the start: another evaluation may be playing the same episodes
    store.budget = budget
    return store


def _count(store: EpisodeStore, budget: Budget) -> None:
    """Count what a store holds; what a damaged line took nobody knows, and it is played again."""
    damaged = 0
    for number in range(len(store)):
        try:
            budget.append(store[number])
        except StoreError:
            damaged += 1
    if damaged:
        said = f"{store.path}: the budget leaves out what {damaged} damaged line{'s' * (damaged != 1)} took"
        print(printable(said), file=sys.stderr)


def _reference_store(last: ExitStack, out: Path | None, name: str) -> EpisodeStore | None:
    """Return where the episodes of a reference go: apart from those of agents of the same name."""
    if out is None:
        return None
    store = _store(last, out / "references" / name, name, True, None)
    return store if isinstance(store, EpisodeStore) else None
