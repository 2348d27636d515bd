"""Reading of a study from a TOML file: its environments, variants and seeds.

::

    title = "Which algorithm learns?"
    about = "The question, and why it matters."
    seeds = [1, 2, 3]
    cpu_s = 60                    # expected CPU seconds of a run; more is marked, nothing is cut off
    verdict = "The conclusion, written by hand."
    transfer = ["game:GuessTheNumber-v0-hard"]    # each final policy is evaluated there too

    [settings]                    # of every run: those of `gem-gym train`
    episodes = 2000

    [[environments]]
    id = "game:GuessTheNumber-v0-easy"
    name = "guess"                # the id when left out
    cpu_s = 30                    # its own, and any setting
    max_tokens = 8

    [[variants]]
    name = "rebn"
    algorithm = "rebn"

    [search]                      # of each environment and variant, on seeds of its own
    seeds = [101, 102]
    grid = {lr = [3e-4, 1e-3]}
    shares = [0.2, 0.5, 1]        # successive halving: shares of a run's episodes; all of them when left out

A variant's settings override those of its environment, and these override the common ones; `env_kwargs` are
merged keyword by keyword. Defaults that depend on an algorithm or a model follow the variant. Paths are
relative to the working folder. Of code and servers, a study names only what any file may name (`gem.trust`),
unless it is trusted.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from gem import registry
from gem.errors import BadArgument, GemError, MissingExtra, check_argument, did_you_mean, refuse_first
from gem.naming import fix_name
from gem.train.baselines.rows import TASK, task_of
from gem.train.config import TrainConfig, toml_file
from gem.train.tasks.played_env import check_solver
from gem.wrappers.wrapper_factory import tool_wrappers

Score = Literal["auto", "success", "return", "turns"]
"""The score of runs. ``auto``: success where the environment reports it, else the return. ``turns``: turns to
success, of which fewer are better; an episode without success counts one more than it may take."""

NOT_SETTINGS = {
    "env": "environments are [[environments]] with an id",
    "environments": "a run of a study is of one environment",
    "curriculum": "a run of a study is of one environment",
    "seed": "a study has `seeds`",
    "out": "the folder of a run follows from its place in the study",
    "ray": "a study samples on this machine",
    "opponent": "a study measures policies that play every seat",
    "pool": "a study measures policies that play every seat",
    "log": "a study keeps rows and run folders",
}
"""Fields of TrainConfig that a study sets in another way, and how."""


@dataclass(frozen=True)
class Part:
    """An environment or a variant: its name, and its settings."""

    name: str
    settings: Mapping[str, Any]
    cpu_s: float | None = None

    @property
    def slug(self) -> str:
        """The name as used in file names."""
        return slug(self.name)


@dataclass(frozen=True)
class Search:
    """A grid of settings that each environment and variant is tried with, on separate seeds.

    It goes in rounds: all points run with the first of `shares` of the episodes, and the best go on to the
    next share, as many as keep the cost of a round (`count`). The last share is 1.
    """

    seeds: tuple[int, ...]
    points: tuple[Mapping[str, Any], ...]
    shares: tuple[float, ...] = (1.0,)

    def count(self, points: int, turn: int) -> int:
        """Return how many of `points` of round `turn` - 1 go on to round `turn`; at least two, or all."""
        return min(points, max(2, round(points * self.shares[turn - 1] / self.shares[turn])))


@dataclass(frozen=True)
class Cell:
    """An environment and a variant: one row file, with a run for each seed."""

    environment: Part
    variant: Part

    @property
    def name(self) -> str:
        """The cell's name in messages."""
        return f"{self.environment.name}, {self.variant.name}"

    @property
    def slug(self) -> str:
        """The cell's name in file names; neither of its two parts contains ``--``."""
        return f"{self.environment.slug}--{self.variant.slug}"


@dataclass(frozen=True)
class Study:
    """A study as its file defines it; `path` is the file."""

    path: Path
    title: str
    seeds: tuple[int, ...]
    environments: tuple[Part, ...]
    variants: tuple[Part, ...]
    settings: Mapping[str, Any]
    about: str = ""
    verdict: str = ""
    score: Score = "auto"
    search: Search | None = None
    transfer: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the file, without its suffix."""
        return self.path.stem

    @property
    def rows(self) -> Path:
        """The folder of the rows, beside the file."""
        return self.path.with_suffix("")

    def row_of(self, cell: Cell) -> Path:
        """Return the path of a cell's row."""
        return self.rows / f"{cell.slug}.json"

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All pairs of an environment and a variant, environment by environment."""
        return tuple(itertools.starmap(Cell, itertools.product(self.environments, self.variants)))

    def config(self, cell: Cell, point: Mapping[str, Any] | None = None, share: float = 1.0) -> TrainConfig:
        """Return a cell's config, with a point of the search if given; seed and folder are not set yet.

        `share`: the share of its episodes, in whole batches.

        Raises:
            BadArgument: for settings that cannot be trained.
        """
        parts = (self.settings, cell.environment.settings, cell.variant.settings, point or {})
        given = {name: value for settings in parts for name, value in settings.items()}
        given["env_kwargs"] = {
            name: value for settings in parts for name, value in settings.get("env_kwargs", {}).items()
        }
        try:
            for name in sorted({"algorithm", "reward"} & given.keys()):  # an edited file is another setting
                given[name] = fix_name(given[name], name)
            config = TrainConfig.fit(**given)
        except BadArgument as error:
            raise BadArgument(f"{cell.name}: {error}") from None
        episodes = max(1, round(config.episodes * share / config.batch)) * config.batch
        return config if share == 1 else replace(config, episodes=episodes)

    def transfers(self, cell: Cell, own: TrainConfig) -> dict[str, TrainConfig]:
        """Return the configs of the other environments that a cell's policies are evaluated on, by name.

        A name in the study means that environment with its own settings; any other name is an id.
        """
        configs = {}
        named = {each.name: each for each in self.environments}
        for name in self.transfer:
            other = named.get(name) or Part(name, {"env": registry.spec_named(name).id})
            theirs = self.config(Cell(other, cell.variant))
            if task_of(theirs) == task_of(own):
                continue  # where it was trained
            configs[name] = replace(own, **{each: getattr(theirs, each) for each in TASK})
        return configs


def read_study(path: Path, trust: bool = False) -> Study:
    """Return the study in a file; with `trust`, it may name more than `gem.trust` lists.

    Raises:
        BadArgument: for a file that is not a valid study, or names what a file may not name. UnknownEnv: for
            an id that is not registered.
    """
    check_argument("the study", path.name, path.suffix == ".toml", "a file that ends in .toml")
    values = toml_file.read_toml(path, str(path))
    registry.accept_settings(values, str(path), PROSE, trust=trust)
    try:
        return _study(path, values)
    except GemError as error:
        raise type(error)(f"{path}: {error}") from None


KNOWN = {
    **{"title": str, "about": str, "verdict": str, "score": Score, "seeds": list[int]},
    **{"cpu_s": float, "transfer": list[str], "settings": dict, "search": dict},
    **{"environments": list[dict[str, Any]], "variants": list[dict[str, Any]]},
}


PROSE = ("title", "about", "verdict", *toml_file.PROSE)
"""Keys whose texts name nothing."""


def _study(path: Path, values: Mapping[str, Any]) -> Study:
    _check_names("the study", values, KNOWN)
    given = {name: _convert(name, value, KNOWN[name]) for name, value in values.items()}
    for name in ("title", "seeds", "environments", "variants"):
        if not given.get(name):
            raise BadArgument(f"the study has no {name}; it takes title, seeds, environments and variants.")
    claimed = _claim(given.get("cpu_s"), "the study")
    study = Study(
        path=path,
        title=_line("title", given["title"]),
        seeds=_seeds("seeds", given["seeds"]),
        environments=tuple(_environment(each, claimed) for each in given["environments"]),
        variants=tuple(_variant(each) for each in given["variants"]),
        settings=_settings("[settings]", given.get("settings", {})),
        about=given.get("about", ""),
        verdict=given.get("verdict", ""),
        score=given.get("score", "auto"),
        search=_search(given["search"]) if "search" in given else None,
        transfer=tuple(given.get("transfer", ())),
    )
    for what, parts in (("environments", study.environments), ("variants", study.variants)):
        _check_alone(what, [part.slug.casefold() for part in parts])
    _check_alone("transfer", list(study.transfer))
    _check_search(study)
    for cell in study.cells:
        for point in study.search.points if study.search else (None,):
            _check_task(study.config(cell, point), cell.name)
        for name, config in study.transfers(cell, study.config(cell)).items():
            _check_task(config, f"transfer to {name}")
    return study


def _environment(values: Mapping[str, Any], claimed: float | None) -> Part:
    own = dict(values)
    if not isinstance(identity := own.pop("id", None), str):
        raise BadArgument(
            f"an environment has id {identity!r}; accepted: the id of one, as `gem-gym list` shows."
        )
    what = f"environment {identity!r}"
    cpu_s = _claim(own.pop("cpu_s", None), what)
    name = _line("name", own.pop("name", identity))
    settings = _settings(what, own, ("id", "name", "cpu_s"))
    return Part(
        name, {"env": registry.spec_named(identity).id, **settings}, claimed if cpu_s is None else cpu_s
    )


def _variant(values: Mapping[str, Any]) -> Part:
    own = dict(values)
    if not isinstance(name := own.pop("name", None), str):
        raise BadArgument(f"a variant has the name {name!r}; accepted: a text.")
    return Part(_line("name", name), _settings(f"variant {name!r}", own, ("name",)))


def _search(values: Mapping[str, Any]) -> Search:
    _check_names("[search]", values, ("seeds", "grid", "shares"))
    grid = values.get("grid")
    if not isinstance(grid, Mapping) or not grid or not all(isinstance(each, list) for each in grid.values()):
        raise BadArgument("grid of [search] takes lists of values by setting, as {lr = [3e-4, 1e-3]}.")
    points = [
        _settings("grid of [search]", dict(zip(grid, point, strict=True)))
        for point in itertools.product(*grid.values())
    ]
    refuse_first(
        (
            any(point in points[:place] for place, point in enumerate(points)),
            "grid of [search] has a point twice; give each value once.",
        ),
        (len(points) < 2, f"grid of [search] has {len(points)} points; accepted: 2 or more."),
    )
    seeds = _convert("seeds of [search]", values.get("seeds", []), list[int])
    shares = _convert("shares of [search]", values.get("shares", [1.0]), list[float])
    rises = all(0 < one < other for one, other in itertools.pairwise(shares))
    check_argument(
        "shares of [search]", shares, shares[-1:] == [1.0] and rises, "rising shares of the episodes, up to 1"
    )
    return Search(_seeds("seeds of [search]", seeds), tuple(points), tuple(shares))


def _check_search(study: Study) -> None:
    if study.search is None:
        return
    if both := sorted({*study.seeds} & {*study.search.seeds}):
        raise BadArgument(
            f"seed {both[0]} is in the study and in [search]; give [search] other seeds: settings that are "
            "chosen on the reported seeds look better than they are."
        )
    for part in (*study.environments, *study.variants):
        for name in study.search.points[0]:
            if name in part.settings:
                raise BadArgument(f"{name} is searched, and {part.name!r} sets it; leave one of them out.")


def _check_task(config: TrainConfig, what: str) -> None:
    """Check that a config can be played, as far as that is known without making its environment."""
    try:
        wrappers = (*tool_wrappers(config.tools), *config.wrappers)
        spec = registry.Maker(config.env, config.env_kwargs, wrappers).spec
        check_solver(config, config.env, spec.solver != "none")
        with suppress(MissingExtra):  # whose run says so
            entry_point = registry.load(spec.entry_point, spec.extra)
            registry.check_keywords(entry_point, {**spec.kwargs, **config.env_kwargs}, config.env)
    except GemError as error:
        raise type(error)(f"{what}: {error}") from None


def _settings(what: str, values: Mapping[str, Any], beside: Sequence[str] = ()) -> dict[str, Any]:
    """Return settings with the types that TrainConfig has."""
    known = [each.name for each in fields(TrainConfig) if each.name not in NOT_SETTINGS]
    for name in values:
        if name in NOT_SETTINGS:
            raise BadArgument(f"{what} sets {name}; {NOT_SETTINGS[name]}.")
        if name in KNOWN and name not in known:
            raise BadArgument(
                f"{what} has {name}, which belongs to the study: put it above the first [table]."
            )
    _check_names(what, values, (*beside, *known))
    typed = {name: toml_file.setting(what, name, value) for name, value in values.items()}
    for name, value in typed.items():
        try:
            json.dumps(value, allow_nan=False, default=os.fspath)  # TOML has times and NaN, a row has none
        except (TypeError, ValueError):
            raise BadArgument(
                f"{name} of {what} is {value!r:.60}; accepted: values that JSON has too."
            ) from None
    return typed


def _convert(what: str, value: Any, kind: Any) -> Any:
    try:
        typed = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if get_origin(kind) is Literal:
            choices = list(map(str, get_args(kind)))
            hint = did_you_mean(str(value), choices)
            raise BadArgument(f"{what} is {value!r:.60}; accepted: {', '.join(choices)}.{hint}") from None
        text = str(error)
        raise BadArgument(f"{what} is {value!r:.60}; {text[:1].lower()}{text[1:]}.") from None
    return typed


def _check_names(what: str, values: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in values:
        if name not in known:
            hint = did_you_mean(name, known) or f" It takes {', '.join(known)}." * (len(known) < 12)
            raise BadArgument(f"{what} has {name!r}, which is not known.{hint}")


def _check_alone(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise BadArgument(f"{what} has {name!r} twice; give each a name of its own.")


def _seeds(what: str, values: Sequence[int]) -> tuple[int, ...]:
    right = bool(values) and len({*values}) == len(values) and min(values) >= 0
    check_argument(what, list(values), right, "numbers of 0 or more, each once")
    return tuple(values)


def _claim(value: Any, what: str) -> float | None:
    if value is None:
        return None
    seconds: float = _convert(f"cpu_s of {what}", value, float)
    check_argument(f"cpu_s of {what}", value, 0 < seconds < math.inf, "CPU seconds, above 0")
    return seconds


def _line(what: str, value: Any) -> str:
    """Return a name or title that a table, a file name and a page can hold."""
    if not isinstance(value, str) or not value.isprintable() or set(value) & set("|<>`") or not slug(value):
        raise BadArgument(
            f"{what} is {value!r:.60}; accepted: a line of text with a letter, without | < > `."
        )
    return value


def slug(name: str) -> str:
    """Return a name in the form that file names have."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.")
