"""Suites: the environments and settings of an evaluation, from a TOML file or a command line.

::

    name = "mine"
    about = "What it measures, and who chose it."

    [sampling]                    # defaults of every environment
    n = 100                       # tasks; left out: all of a data set once, else 200
    k = 4                         # samples of each
    seed = 0
    temperature = 0.7
    max_tokens = 2048             # of one answer

    [limits]
    turns = 30                    # of an episode
    tokens_per_episode = 20000
    min_coverage = 0.95           # below it no headline is given
    stop_at_width = 0.1           # stop an environment when the interval of its success is this narrow

    [agent]                       # in place of `gem-gym eval --agent` and its flags
    name = "openai:MODEL@http://127.0.0.1:8000/v1"
    api = "chat"

    [[environments]]
    ids = ["game:Sudoku-v0-easy", "game:Wordle-v0-easy"]
    category = "games"

    [[environments]]
    id = "math:WordProblems-v0-hard"
    kwargs = {largest = 99}
    tools = ["python"]
    wrappers = []
    seeds = [3, 17, 42]           # these tasks, in place of n
    weight = 2

    [[environments]]              # your own data, as `gem-gym eval --data`
    data = "q.csv"
    grader = "text"
    columns = {question = "q", answer = "a"}
    prompt = "Answer briefly: {question}"
    few_shot = "examples.csv"

    [[environments]]              # with several prompts, each an environment of its own
    data = "q.csv"
    [[environments.prompts]]
    name = "brief"
    prompt = "Answer briefly: {question}"

    [[environments]]              # the same with several graders; see `gem.graders.rubric.Rubric`
    data = "q.csv"
    [environments.grader]
    correct = "exact"             # the part that says what is correct; left out: a value of `passing` (1)
    exact = {grader = "text"}
    brief = {grader = "brief.py:score", weight = 0.2}
    clear = {grader = "judge:MODEL", weight = 0, rubric = "1: a child understands it. 0: all else."}

Paths in it (an agent's folder, ``id = "relay.py:Relay"``, ``id = "harbor:tasks"``, data) are relative to the
file. Of code and servers, a suite names only what any file may name (`gem.trust`), unless it is trusted.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from gem import registry, seeding
from gem.agents.named import AgentSettings
from gem.envs.data.named import data_task
from gem.errors import (
    BadArgument,
    MissingData,
    MissingExtra,
    check_argument,
    check_least,
    did_you_mean,
    name_source,
    reason,
)
from gem.evals.environments import label_of, write_keywords
from gem.evals.instances import Count, find_seeds
from gem.evals.stopping import Stopping
from gem.files import parse_toml, read_text
from gem.naming import fix_name, is_path
from gem.specs import Rebuildable, TaskRef, WrapperRef
from gem.wrappers.wrapper_factory import tool_wrappers

MOST = 10_000_000
"""The most episodes of an entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An environment of a suite: its id, its tools and wrappers, and the number of tasks.

    `episodes` tasks are played with `samples` each; for "all" and None see `gem.evals.instances.Count`.
    `turns` and `tokens` are limits on an episode. `weight` is its weight in the mean over the suite,
    `category` the category that it belongs to, `title` its name in figures if that is not made of the id,
    `about` what was understood of its data. `only` has the seeds to play, in place of `episodes`.
    """

    env: str
    category: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    episodes: Count = None
    samples: int = 1
    turns: int | None = None
    tokens: int | None = None
    weight: float = 1.0
    title: str = ""
    only: tuple[int, ...] = ()
    about: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        check_argument(
            "episodes",
            self.episodes,
            not isinstance(self.episodes, str) or self.episodes == "all",
            "1 or more, or all",
        )
        check_least("episodes", None if self.episodes == "all" else self.episodes)
        for name in ("samples", "turns", "tokens"):
            check_least("tokens per episode" if name == "tokens" else name, getattr(self, name))
        count = self.samples * (self.episodes if isinstance(self.episodes, int) else 1)
        check_argument("episodes times samples", count, count <= MOST, f"at most {MOST:,}")
        if self.only:
            if self.episodes is not None:
                raise BadArgument("the seeds are listed, and so is how many (n, episodes); give one of them.")
            for seed in self.only:
                seeding.check(seed)
            if len({*self.only}) < len(self.only):
                raise BadArgument("a seed is listed twice; several samples of a task are asked for by k.")
        check_argument("weight", self.weight, 0 < self.weight < math.inf, "above 0")
        spec = registry.spec_named(self.env)
        object.__setattr__(self, "env", spec.id)
        object.__setattr__(self, "wrappers", tuple(map(registry.fix_wrapper, self.wrappers)))
        object.__setattr__(self, "tools", tuple(registry.fix_wrapper(each, "tool") for each in self.tools))
        registry.Maker(self.env, {}, self._around)  # refuses unknown wrappers
        with suppress(MissingExtra, MissingData):  # this is reported when the environment is played
            object.__setattr__(self, "kwargs", registry.add_digest(spec, self.kwargs))

    @property
    def _around(self) -> tuple[str, ...]:
        return (*tool_wrappers(self.tools), *self.wrappers)

    @property
    def task(self) -> str | TaskRef | registry.Maker:
        """The environment to play: the id, or what makes it with keywords, tools and wrappers."""
        if not self._around and not self.kwargs:
            return self.env
        if any(isinstance(value, Rebuildable) for value in self.kwargs.values()):
            return registry.Maker(self.env, dict(self.kwargs), self._around)
        return TaskRef(self.env, dict(self.kwargs), tuple(map(WrapperRef, self._around)))

    def seeds(self, seed: int) -> Sequence[int]:
        """Return the seeds of its tasks; see `gem.evals.instances.find_seeds`."""
        made = self.task
        maker = made if isinstance(made, registry.Maker) else registry.Maker(made)
        return find_seeds(maker, self.episodes, seed, self.only)

    @property
    def label(self) -> str:
        """The name in figures: the id, with keywords, tools and wrappers."""
        given = {} if self.title else write_keywords(self.kwargs)
        return label_of(self.title or self.env, given, (*self.tools, *self.wrappers))


@dataclass(frozen=True)
class Suite:
    """Environments and the settings of agents; `agents` may be empty. `source` is the file."""

    name: str
    entries: tuple[Entry, ...]
    about: str = ""
    agents: tuple[str, ...] = ()
    settings: AgentSettings = field(default_factory=AgentSettings)
    seed: int = 0
    min_coverage: float | None = None
    stop_at_width: float | None = None
    source: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a suite without environments, or with the same one twice."""
        if not self.entries:
            raise BadArgument(f"{self.name or 'the suite'} has no environments; name one or more.")
        check_argument("min_coverage", self.min_coverage, 0 <= (self.min_coverage or 0) <= 1, "0 to 1")
        if self.stop_at_width is not None:
            Stopping(width=self.stop_at_width)  # refuses an invalid width
        labels = [entry.label for entry in self.entries]
        if twice := next((label for label in labels if labels.count(label) > 1), None):
            raise BadArgument(f"{twice} is named twice; name it once.")

    def close(self) -> None:
        """Close what its environments were given, as a judge has connections."""
        for entry in self.entries:
            for value in entry.kwargs.values():
                if (close := getattr(value, "close", None)) is not None:
                    close()


def known_suites() -> dict[str, str]:
    """Return the names of the suites that come with gem, with their descriptions."""
    return {
        file.name.removesuffix(".toml"): str(tomllib.loads(file.read_text(encoding="utf-8"))["about"])
        for file in sorted(_folder().iterdir(), key=lambda file: file.name)
        if file.name.endswith(".toml")
    }


def load_suite(name: str, *, trust: bool = False, **changes: Any) -> Suite:
    """Return a suite: one that comes with gem, by name, or a TOML file.

    Args:
        name: a name from `known_suites`, or a path.
        trust: let the file name more than `gem.trust` lists.
        **changes: replace values of the file: `n`, `seeds`, `k`, `turns`, `tokens_per_episode` (of every
            environment), `tools` and `wrappers` (in addition to those of the file), `seed`, `min_coverage`,
            `stop_at_width`, and the fields of AgentSettings; None keeps the file's value.

    Raises:
        BadArgument: for an unknown suite, an unknown key, a value of a wrong type, or a name that a file may
            not have.
        UnknownEnv: for an environment or wrapper that is not registered.
    """
    source: Path | None = None
    if name in known_suites():
        text = _folder().joinpath(f"{name}.toml").read_text(encoding="utf-8")
    else:
        source = Path(name)
        try:
            text = read_text(source)
        except (OSError, UnicodeDecodeError) as error:
            hint = did_you_mean(name, known_suites())
            raise BadArgument(f"no suite {name!r} can be read: {reason(error)}.{hint}") from error
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise BadArgument(f"{name} is not valid TOML: {error}.") from error
    prose = ("about", "category", "prompt", "rubric")
    registry.accept_settings(values, name, prose, source.parent if source else "", trust)
    try:
        with name_source(name):
            return _suite(_Table(values, name), source, {k: v for k, v in changes.items() if v is not None})
    except OSError as error:  # of what the file names
        raise BadArgument(f"{name} names a file that cannot be read: {reason(error):.200}.") from error


def _folder() -> Any:
    return resources.files("gem.evals") / "suites"


def _suite(top: _Table, source: Path | None, changes: dict[str, Any]) -> Suite:
    sampling, limits, agent = top.table("sampling"), top.table("limits"), top.table("agent")
    usual = {
        "n": sampling.count("n"),
        "k": sampling.get("k", int, 1),
        "turns": limits.get("turns", int),
        "tokens_per_episode": limits.get("tokens_per_episode", int),
    }
    given: dict[str, Any] = {
        "temperature": sampling.get("temperature", str if sampling.says("temperature", "none") else float),
        "max_tokens": sampling.get("max_tokens", int),
        "extra": sampling.get("extra", dict),
        "api": agent.get("api", str),
        "template": agent.get("template", str),
        "api_key_env": agent.get("api_key_env", str),
        "concurrency": agent.get("concurrency", int),
        "timeout_s": agent.get("timeout", float),
        "device": agent.get("device", str),
        "tool_calls": agent.get("tool_calls", str),
        "send_reasoning": agent.get("send_reasoning", bool),
        "stream": agent.get("stream", bool),
        **dict.fromkeys(
            ("model", "program_s", "program_shows", "program_prints", "program_price")
        ),  # of the command line alone
    }
    seed = sampling.get("seed", int, 0)
    min_coverage = limits.get("min_coverage", float)
    stop_at_width = limits.get("stop_at_width", float)
    one, names = agent.get("name", str), agent.strings("names")
    named = [one, *names] if one is not None else [*names]
    players = {key: agent.values[key] for key in ("name", "names") if key in agent.values}
    if players and (len(players) > 1 or not named or not all(named)):
        raise BadArgument(
            f"{agent.where} has {players!r:.120}; accepted: name, an agent, or names, a list of agents."
        )
    agents = tuple(_place(each, source) for each in named)
    entries: list[Entry] = []
    for row in top.tables("environments"):
        entries += _entries(row, usual, changes, source.parent if source is not None else Path())
    about, name = top.get("about", str, ""), top.get("name", str, source.stem if source else top.where)
    for table in (top, sampling, limits, agent):
        table.finish()
    settings = {k: changes.get(k, v) for k, v in given.items()}
    return Suite(
        name,
        tuple(entries),
        about,
        agents,
        AgentSettings(**{k: v for k, v in settings.items() if v is not None}),
        changes.get("seed", seed),
        changes.get("min_coverage", min_coverage),
        changes.get("stop_at_width", stop_at_width),
        source,
    )


def _entries(row: _Table, usual: Mapping[str, Any], changes: Mapping[str, Any], folder: Path) -> list[Entry]:
    """Return the environments of a table: one for each of its ids, or for each of its prompts."""
    if prompts := row.tables("prompts"):
        if "data" not in row.values or "prompt" in row.values:
            raise BadArgument(f"{row.where}: prompts go with data, and without prompt.")
        entries: list[Entry] = []
        for each in prompts:
            name, prompt = each.get("name", str, ""), each.get("prompt", str, "")
            each.finish()
            if not name or not prompt:
                raise BadArgument(f"{each.where} needs a name and a prompt.")
            values = {key: value for key, value in row.values.items() if key != "prompts"}
            one = _Table({**values, "prompt": prompt}, row.where)
            made = _one_prompt(one, usual, changes, folder)
            entries += [replace(entry, title=f"{entry.title}, {name}") for entry in made]
        return entries
    return _one_prompt(row, usual, changes, folder)


def _one_prompt(
    row: _Table, usual: Mapping[str, Any], changes: Mapping[str, Any], folder: Path
) -> list[Entry]:
    env, envs, kwargs = row.get("id", str), row.strings("ids"), row.get("kwargs", dict, {})
    data = row.get("data", str)
    if sum((env is not None, bool(envs), data is not None)) != 1:
        raise BadArgument(f"{row.where} needs one of id, ids and data.")
    title = about = ""
    if data is not None:
        brought = data_task(
            data,
            row.get("grader", dict if isinstance(row.values.get("grader"), dict) else str, ""),
            row.get("columns", dict, {}),
            row.get("split", str, ""),
            row.get("prompt", str, ""),
            row.get("few_shot", str, ""),
            folder,
            row.get("shuffle_choices", bool, False),
        )
        env, title, about = brought.env, brought.title, brought.about
        kwargs = {**brought.kwargs, **kwargs}
    only = changes.get("seeds", row.integers("seeds"))
    own = {name: row.get(name, int) for name in usual if name != "n"} | {"n": row.count("n")}
    values = {name: changes.get(name, usual[name] if own[name] is None else own[name]) for name in usual}
    wrappers = [fix_name(each, "wrapper", folder) for each in row.strings("wrappers")]
    made = [
        {
            "env": registry.place_id(fix_name(each, "environment", folder), folder),
            "category": row.get("category", str, ""),
            "kwargs": kwargs,
            "title": title,
            "about": about,
            "tools": (
                *(fix_name(each, "tool", folder) for each in row.strings("tools")),
                *changes.get("tools", ()),
            ),
            "wrappers": (*wrappers, *changes.get("wrappers", ())),
            "weight": row.get("weight", float, 1.0),
            "episodes": None if only and own["n"] is None else values["n"],
            "only": only,
            "samples": values["k"],
            "turns": values["turns"],
            "tokens": values["tokens_per_episode"],
        }
        for each in (envs or (env,))
    ]
    row.finish()
    return [Entry(**fields) for fields in made]


def _place(agent: str, source: Path | None) -> str:
    """Return an agent's name; a folder or a Python file is searched for beside the suite's file."""
    if source is not None and is_path(agent):
        return fix_name(agent, "agent", source.parent)
    beside = source.parent / agent if source is not None else None
    return str(beside) if beside is not None and beside.is_dir() else agent


class _Table:
    """A table of the file; keys that are never read are errors."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self.values, self.where = values, where
        self.known: list[str] = []

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """Return a value of this type; a whole number is accepted as a float."""
        self.known.append(name)
        if name not in self.values:
            return default
        value = self.values[name]
        if kind is float and type(value) is int:
            with suppress(OverflowError):  # TOML's whole numbers may have thousands of digits
                value = float(value)
        if type(value) is not kind:
            words = {int: "a whole number", float: "a number", str: "text", dict: "a table", list: "a list"}
            words[bool] = "true or false"
            raise BadArgument(f"{self.where}: {name} is {value!r:.60}; accepted: {words[kind]}.")
        return value

    def count(self, name: str, default: int | None = None) -> Any:
        """Return a whole number, or "all"."""
        return self.get(name, str if self.says(name, "all") else int, default)

    def says(self, name: str, word: str) -> bool:
        """Return whether a value is this word."""
        return bool(self.values.get(name) == word)

    def strings(self, name: str) -> tuple[str, ...]:
        values = self.get(name, list, [])
        if not all(isinstance(value, str) for value in values):
            raise BadArgument(f"{self.where}: {name} is {values!r:.60}; accepted: a list of text.")
        return tuple(values)

    def integers(self, name: str) -> tuple[int, ...]:
        values = self.get(name, list, [])
        if not all(type(value) is int for value in values):
            raise BadArgument(f"{self.where}: {name} is {values!r:.60}; accepted: a list of whole numbers.")
        return tuple(values)

    def table(self, name: str) -> _Table:
        return _Table(self.get(name, dict, {}), f"{self.where}, [{name}]")

    def tables(self, name: str) -> list[_Table]:
        rows = self.get(name, list, [])
        if not all(isinstance(row, dict) for row in rows):
            raise BadArgument(f"{self.where}: {name} is a list of tables; write [[{name}]].")
        return [_Table(row, f"{self.where}, [[{name}]] number {i}") for i, row in enumerate(rows, 1)]

    def finish(self) -> None:
        """Refuse keys that were never read."""
        known = list(dict.fromkeys(self.known))
        for name in self.values:
            if name not in known:
                hint = did_you_mean(name, known)
                raise BadArgument(f"{self.where} has {name!r}.{hint} Accepted: {', '.join(known)}.")
