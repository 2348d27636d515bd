"""The command ``gem-gym eval``: evaluate agents on environments and suites."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, UseAppendAction, arg

from gem import seeding
from gem.agents.named import AgentSettings, used_settings
from gem.cli.eval_report import Terminal
from gem.cli.players import PLAYERS, local_agent
from gem.cli.terms import FAILED, MaybeFloat, MaybeFolder, MaybeInt, MaybePath, MaybeText, table
from gem.content import printable
from gem.errors import (
    AgentUnavailable,
    BadArgument,
    UnknownEnv,
    check_argument,
    check_least,
    did_you_mean,
    name_source,
    reason,
)
from gem.evals.data_flags import DataFlags
from gem.evals.evaluator import SuiteOptions, play_suite
from gem.evals.instances import Count
from gem.evals.suite import Entry, Suite, known_suites, load_suite
from gem.evals.usage import EpisodePrice, Prices
from gem.files import read_text
from gem.hiding import HIDDEN, hide_credentials
from gem.naming import changed_files, fix_name
from gem.registry import accept_settings
from gem.source_files import named_before
from gem.trust import refuse

Words = UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Model:
    """How the model is called."""

    temperature: Annotated[str, arg(metavar="FLOAT", help_behavior_hint="")] = ""
    """Sampling temperature; 0 is greedy; "none" sends none, for models that refuse it. Else 1, or a run's."""
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
    model: MaybeText = None
    """For --agent program:COMMAND: the model that the program calls, as openai:NAME[@BASE_URL], smollm2 or
    the folder of a training run."""
    program_s: MaybeFloat = None
    """Seconds of a program for one episode; 600 if left out. Its calls are limited by --turns, its sampled
    tokens by --tokens-per-episode."""
    program_shows: Annotated[Words, arg(metavar="PATH[,PATH...]", help_behavior_hint="")] = ()
    """Files and folders that a program sees, read-only, beside its own and those that its command names."""
    program_prints: bool = False
    """What a program prints to stdout is its answer, in environments of one turn, as --data; else it acts by
    MCP."""


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
    usd_per_episode: MaybeFloat = None
    """Of a program: answer no call of an episode that has cost so many dollars, by --prices."""
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
    """Continue the evaluation in --out with its own flags; flags given now override them, or are added where
    a flag may be given several times."""
    retry_failed: bool = False
    """Play stored episodes of --out that have no verdict again."""
    gate: Annotated[Words, arg(metavar="CONDITION", help_behavior_hint="")] = ()
    """Exit with code 1 unless this holds, as "success>=0.8", "low(success)>=0.8" (the lower end of the
    interval), "success[ENV]>=0.8", "success[*]>=0.5" (every environment). Metrics: success, return, turns,
    coverage, tokens, cost, pass@K, pass^K. May be given several times."""
    min_coverage: MaybeFloat = None
    """Give no headline if a smaller share of the episodes has a verdict, as 0.95; without it a gate needs
    95%."""
    by: Annotated[Words, arg(metavar="COLUMN[,COLUMN...]", help_behavior_hint="")] = ()
    """Show the figures for each value of a column of the data too, as category or metadata.level."""
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
    agent: Annotated[
        Words,
        arg(
            metavar="NAME",
            help_behavior_hint="",
            help=f"{PLAYERS}; random if left out. Given several times, the agents are compared.",
        ),
    ] = ()
    episodes: Annotated[str, arg(aliases=["-n"], metavar="INT|all", help_behavior_hint="")] = ""
    """Tasks of each environment, each with its own seed. Of a data set, so many rows, each once, drawn by
    --seed; all in their order if left out. 200 if left out where a program makes the tasks."""
    seeds: Annotated[Words, arg(metavar="INT[,INT...]", help_behavior_hint="")] = ()
    """The tasks to play, by the seeds that `show`, `view` and `compare` name, in place of --episodes; 3-9 is
    each from 3 to 9."""
    samples: Annotated[MaybeInt, arg(aliases=["-k"])] = None
    """Episodes of each task. With more than 1, pass@1 to pass@k and pass^k are shown too, and intervals are
    clustered by task. 1 if left out."""
    reward: Annotated[str, arg(metavar="FILE.py:FUNCTION", help_behavior_hint="")] = ""
    """A reward of your own, as in training, measured beside the environment's: a function of an episode, its
    turns and, if it compares, the `group` of all samples of the task."""
    seed: MaybeInt = None
    """The same seed gives the same episodes; 0 if left out."""
    tools: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Tools added to the environments: python, search (uses SEARCH_URL), world_search (built in, offline), or
    a function of yours with @gem.tools.tool, as file.py:function."""
    wrappers: Annotated[Words, arg(metavar="NAME[,NAME...]", help_behavior_hint="")] = ()
    """Wrappers around the environments, inner first: names, module:function, or file.py:function."""
    seat: MaybeText = None
    """In a game of several seats, the seat of the agent; it plays all seats if left out."""
    others: MaybeText = None
    """With --seat: who plays the other seats, an agent's name as above."""
    host: str = "auto"
    """Where environments run: serial, thread, process, or auto: thread for those that wait."""
    call_s: MaybeFloat = None
    """Seconds for one call of an environment; one that takes longer is given up, and its episode played again
    on another worker. Hosts thread and process; any if left out."""
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
    given = _parse(args, prog)
    if given.suites:
        table("suite", "about", rows=list(known_suites().items()))
        return 0
    if given.output.resume:
        words, own = _stored_command(given.output.out)
        source = f"{given.output.out}/command.json"
        with name_source(source):
            stored = _parse(words, prog)
        if given != Arguments(trust=given.trust, output=Output(given.output.out, resume=True)):
            source += " and the flags given now"
        if not own:
            _check_stored(stored, str(given.output.out), given.trust)
        args = [*words, *args]
        given = _parse(args, prog)
        given = _name_once(given)
        named = _split((*given.env, *given.tools, *given.wrappers))
        for change in changed_files((*given.targets, *named, *given.agent, given.reward)):
            print(printable(change), file=sys.stderr)
        with name_source(source):
            return evaluate(given)
    return evaluate(given)


def _name_once(given: Arguments) -> Arguments:
    """Return the arguments without what was given before and is given again."""

    def once(words: Iterable[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(words))

    output = replace(given.output, gate=once(given.output.gate), by=once(given.output.by))
    return replace(given, agent=once(fix_name(name, "agent") for name in given.agent), output=output)


def _parse(args: Sequence[str], prog: str) -> Arguments:
    return tyro.cli(Arguments, prog=prog, args=args, config=(FlagCreatePairsOff, OmitArgPrefixes))


def _check_stored(stored: Arguments, where: str, trust: bool) -> None:
    """Refuse a stored command of somebody else that names what a file may not name, unless it is trusted.

    Raises:
        BadArgument: with the name.
    """
    if stored.trust and not trust:
        refuse(f"{where}: the stored command trusts", "itself")
    ids = [name for name in (*stored.targets, *_split(stored.env)) if not name.endswith(".toml")]
    around = {"tools": _split(stored.tools), "wrappers": _split(stored.wrappers)}
    settings = {**asdict(stored), "targets": (), "env": ids, **around}
    accept_settings(settings, where, trust=trust)


def _stored_command(out: Path | None) -> tuple[list[str], bool]:
    """Return the words of the command that began an evaluation, and whether this user gave it here."""
    if out is None:
        raise BadArgument("--resume continues a stored evaluation; name its folder by --out FOLDER.")
    try:
        text = read_text(out / "command.json")
        words = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise BadArgument(
            f"{out} holds no evaluation to continue: {out / 'command.json'}: {reason(error)}."
        ) from error
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise BadArgument(f"{out / 'command.json'} is not a list of strings.")
    if any(HIDDEN in word for word in words):
        raise BadArgument(
            "the stored command has an address without its password or key; give the whole command again."
        )
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
            words += [word for part in value for word in _flag_words(flag, part)]
        elif value is not None and value is not False and value != "" and value != each.default:
            words += _flag_words(flag, str(value))
    return [hide_credentials(word) for word in words]


def _fix_names(given: Arguments) -> Arguments:
    """Return the arguments with the content of the files that they name in place of their paths."""

    def fix(words: Sequence[str], kind: str) -> tuple[str, ...]:
        return tuple(",".join(fix_name(part, kind) for part in word.split(",")) for word in words)

    return replace(
        given,
        targets=tuple(fix_name(name, "environment") for name in given.targets),
        env=fix(given.env, "environment"),
        tools=fix(given.tools, "tool"),
        wrappers=fix(given.wrappers, "wrapper"),
        agent=tuple(fix_name(name, "agent") for name in given.agent),
        others=given.others and fix_name(given.others, "agent"),
        reward=given.reward and fix_name(given.reward, "reward"),
    )


def _flag_words(flag: str, value: str) -> list[str]:
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]


def evaluate(given: Arguments) -> int:
    """Play what the arguments ask for, print and write the results, and return the exit code."""
    given = _fix_names(given)
    limits, output = given.limits, given.output
    with ExitStack() as last:
        terminal = last.enter_context(Terminal(output.json))
        suite = last.enter_context(closing(_suite(given)))
        _report_unused(given, given.agent or suite.agents or ("random",))
        options = SuiteOptions(
            out=output.out,
            retry_failed=output.retry_failed,
            gates=output.gate,
            prices=None if limits.prices is None else Prices.read(limits.prices),
            budget_tokens=limits.budget_tokens,
            budget_usd=limits.budget_usd,
            normalise=output.normalise,
            by=_split(output.by),
            seat=given.seat,
            others=given.others,
            reward=given.reward,
            host=given.host,
            call_s=given.call_s,
            ray=given.ray or None,
            make_agent=local_agent,
            command=_words(given),
        )
        try:
            result = play_suite(suite, given.agent, options, terminal)
        except AgentUnavailable:
            if not terminal.stopped:
                raise
            return FAILED
    terminal.show()
    return 0 if result.passed else FAILED


def _report_unused(given: Arguments, agents: Sequence[str]) -> None:
    """Print which flags of the model have no effect on any of these agents."""
    used = frozenset({"concurrency"}).union(*map(used_settings, agents))
    fields = {**_settings(given.model), "program_price": given.limits.usd_per_episode}
    names = {"timeout_s": "timeout", "program_price": "usd-per-episode"}
    flags = [
        f"--{names.get(name, name.replace('_', '-'))}"
        for name, value in fields.items()
        if value is not None and name not in used
    ]
    if flags:
        have, use = ("has", "it") if len(flags) == 1 else ("have", "them")
        do = "does" if len(agents) == 1 else "do"
        named = ", ".join(map(hide_credentials, agents))
        line = f"{', '.join(flags)} {have} no effect: {named} {do} not use {use}"
        print(printable(line), file=sys.stderr)


def _suite(given: Arguments) -> Suite:
    """Return the suite to play: the named one with the flags applied, or one of the named environments."""
    named = [*given.targets, *_split(given.env)]
    settings = {**_settings(given.model), "program_price": _price_of(given.limits)}
    # Refuses wrong flags before a suite is read, in whose name they would be refused; it may set the API.
    AgentSettings(**{k: v for k, v in settings.items() if v is not None and k != "template"})
    seed = None if given.seed is None else seeding.check(given.seed)
    count, only = _count_of(given.episodes), _seeds_of(given.seeds)
    if only and (count is not None or seed is not None):
        raise BadArgument("--seeds names the tasks; leave --episodes and --seed out.")
    check_least("samples", given.samples)
    own = given.own.task(without=("split", "exclude"))
    if own is not None:
        print(printable(own.about), file=sys.stderr)
    suites = [name for name in named if name in known_suites() or name.endswith(".toml")]
    if suites and (len(named) > 1 or own is not None):
        raise BadArgument(f"{suites[0]} is a suite, and a suite is played alone; leave the others out.")
    if suites:
        if given.own.split or given.own.exclude:
            raise BadArgument(
                "a suite says what is played of its environments; leave --split and --exclude out."
            )
        return _changed_suite(suites[0], given, count, only, seed, settings)
    if not named and own is None:
        raise BadArgument(
            "no environment was named; `gem-gym list` shows all, `gem-gym eval --suites` the suites, and "
            "--data FILE takes your own questions."
        )
    for name in named:
        if ":" not in name:
            hint = did_you_mean(name, known_suites())
            raise UnknownEnv(
                f"{name!r} is no environment and no suite.{hint} `gem-gym list` shows the environments, "
                "`gem-gym eval --suites` the suites; one of your own ends in .toml."
            )
    if len({*named}) < len(named):
        raise BadArgument("an environment was named twice; once is enough.")
    played: list[dict[str, Any]] = [{"env": name, "kwargs": given.own.kwargs(named)} for name in named]
    if own is not None:
        played.append({"env": own.env, "kwargs": own.kwargs, "title": own.title, "about": own.about})
    usual: dict[str, Any] = {
        **{"tools": _split(given.tools), "wrappers": _split(given.wrappers)},
        **{"episodes": count, "only": only, "samples": given.samples or 1},
        **{"turns": given.limits.turns, "tokens": given.limits.tokens_per_episode},
    }
    return Suite(
        "",
        tuple(Entry(**each, **usual) for each in played),
        settings=AgentSettings(**{k: v for k, v in settings.items() if v is not None}),
        seed=seed or 0,
        min_coverage=given.output.min_coverage,
        stop_at_width=given.limits.stop_at_width,
    )


def _changed_suite(
    name: str,
    given: Arguments,
    count: Count,
    only: tuple[int, ...],
    seed: int | None,
    settings: dict[str, Any],
) -> Suite:
    """Return a suite by its name, with the flags in place of what it says."""
    suite = load_suite(
        name,
        trust=given.trust,
        n=count,
        seeds=only or None,
        k=given.samples,
        turns=given.limits.turns,
        tokens_per_episode=given.limits.tokens_per_episode,
        tools=_split(given.tools) or None,
        wrappers=_split(given.wrappers) or None,
        seed=seed,
        min_coverage=given.output.min_coverage,
        stop_at_width=given.limits.stop_at_width,
        **settings,
    )
    for about in filter(None, (entry.about for entry in suite.entries)):
        print(printable(about), file=sys.stderr)
    return suite


def _price_of(limits: LimitFlags) -> EpisodePrice | None:
    if limits.usd_per_episode is None:
        return None
    if limits.prices is None:
        raise BadArgument("--usd-per-episode needs --prices: a file of dollars per million tokens, by model.")
    return EpisodePrice(Prices.read(limits.prices), limits.usd_per_episode)


def _settings(flags: Model) -> dict[str, Any]:
    """Return the fields of AgentSettings; None for flags that were left out."""
    return {
        **{"temperature": _temperature(flags.temperature), "max_tokens": flags.max_tokens},
        **{"api": flags.api or None, "template": flags.template, "api_key_env": flags.api_key_env},
        **{"concurrency": flags.concurrency, "timeout_s": flags.timeout, "device": flags.device},
        **{"tool_calls": flags.tool_calls or None, "send_reasoning": flags.send_reasoning or None},
        **{"stream": flags.stream or None, "extra": _fields(flags.extra)},
        **{"model": flags.model, "program_s": flags.program_s},
        "program_shows": _split(flags.program_shows) or None,
        "program_prints": flags.program_prints or None,
    }


def _count_of(word: str) -> Count:
    """Return the number of tasks that --episodes gives.

    Raises:
        BadArgument: for anything but a number from 1, or all.
    """
    if not word:
        return None
    if word == "all":
        return "all"
    number = int(word) if re.fullmatch(r"[0-9]{1,20}", word) else 0
    check_argument("episodes", word[:60], number >= 1, "1 or more, or all")
    return number


MOST_SEEDS = 100_000


def _seeds_of(words: Sequence[str]) -> tuple[int, ...]:
    """Return the seeds that --seeds lists.

    Raises:
        BadArgument: for what is neither a whole number nor a span, as 3-9, and for too many.
    """
    seeds: list[int] = []
    for word in _split(words):
        first, dash, last = word.partition("-")
        ends = [int(each) for each in (first, last or first) if re.fullmatch(r"[0-9]{1,20}", each)]
        if len(ends) < 2 or (dash and not last) or not 0 <= ends[1] - ends[0] < MOST_SEEDS:
            raise BadArgument(f"seeds are {word[:60]!r}; accepted: whole numbers and spans, as 3,17,40-49.")
        seeds += range(ends[0], ends[1] + 1)
    return tuple(map(seeding.check, seeds))


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
