"""The settings of a training run; `gem-gym train --help` shows them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from gem.errors import BadArgument, SchemaMismatch, did_you_mean
from gem.estimators.algorithms import Algorithm, find_algorithm, name_algorithm
from gem.naming import fix_name, foreign_names, keep_value
from gem.plugins import load
from gem.registry import EnvSpec, name_env
from gem.train.config.checks import check, check_defaults
from gem.train.config.env_part import EnvPart, Stage, name_parts
from gem.train.config.run_settings import RunSettings
from gem.train.config.value_types import convert_value, types_of

ELSEWHERE = ("out", "ray", "log", "callback")
"""Settings that may change when a run is resumed: its folder, where it samples, loggers and callbacks."""
TABLES: dict[str, type[EnvPart]] = {"environments": EnvPart, "curriculum": Stage}
"""Settings that are tables, and what each table is."""
NAMING = {"env": "environment", "wrappers": "wrapper", "tools": "tool", "opponent": "agent", "log": "logger"}
"""Settings that may name something in a Python file, and what that is; a run keeps the file's content."""

LANGUAGE_MODEL: dict[str, Any] = {
    **{"episodes": 4480, "batch": 64, "minibatch": 64, "epochs": 1, "lr": 5e-5, "lr_ramp": 3, "lr_end": 0.1},
    **{"kl": 0.05, "warmup_steps": 0, "warmup_lr": 5e-5, "warmup_on": "answers"},
    **{"max_tokens": 256, "eval_episodes": 200},
    **{"threads": 0, "save_every": 10, "pass_tokens": 2048},
}
"""Defaults for a pretrained model; those of the fields are for the tiny model."""

SOURCE = "gem.train.learn.start_weights:settings_of_source"
"""What reads the settings of the weights that a run starts from."""


T = TypeVar("T")


def fill_defaults(cls: type[T]) -> type[T]:
    """Make a config's class fill what is not given with the defaults that depend on the rest (`fitting`).

    Where everything is given, as by `dataclasses.replace`, no algorithm is looked for.
    """
    init: Any = cls.__init__
    names = [each.name for each in fields(cls)]  # type: ignore[arg-type]

    @functools.wraps(init)
    def fill(self: Any, *values: Any, **given: Any) -> None:
        if values:  # the call refuses what is given twice
            fill(self, **dict(zip(names[: len(values)], values, strict=True)), **given)
        else:
            init(self, **(given if given.keys() >= set(names) else self.fitting(**given)))

    cls.__init__ = fill  # type: ignore[method-assign]
    return cls


@fill_defaults
@dataclass(frozen=True)
class TrainConfig(RunSettings):
    """Train a language model on an environment with a policy gradient.

    With the defaults, the built-in tiny model learns game:GuessTheNumber-v0-easy from text prompts, on one
    core, in minutes. Some defaults depend on --algorithm and --model: add these flags to --help to see them.
    """

    def __post_init__(self) -> None:
        """Name objects, convert values to their types, fix what files hold, check the settings."""
        self._name_objects()
        for name in types_of(TrainConfig):
            if name not in TABLES:
                object.__setattr__(self, name, convert_value("", TrainConfig, name, getattr(self, name)))
        for name, kind in TABLES.items():
            given = getattr(self, name)
            if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
                raise BadArgument(f"{name} is {given!r:.80}; accepted: a list of tables.")
            object.__setattr__(self, name, name_parts([kind.read(each) for each in given]))
        for name, kind_of in NAMING.items():
            given = getattr(self, name)
            if isinstance(given, str):
                object.__setattr__(self, name, fix_name(given, kind_of))
            else:
                object.__setattr__(self, name, tuple(fix_name(each, kind_of) for each in given))
        if (self.environments or self.curriculum) and self.env == self.title:
            object.__setattr__(self, "env", TrainConfig.env)  # as to_json() writes it
        check(self)

    def _name_objects(self) -> None:
        """Replace what a program gave as objects by their names in this process."""
        named: Any = self.env
        if callable(named) or isinstance(named, EnvSpec):
            object.__setattr__(self, "env", name_env(named))
        if isinstance(self.algorithm, Algorithm):
            object.__setattr__(self, "algorithm", name_algorithm(self.algorithm))
        if callable(self.reward):
            object.__setattr__(self, "reward", keep_value(self.reward, "reward", name_of(self.reward)))
        if isinstance(self.callback, list | tuple):
            named = [
                each if isinstance(each, str) else keep_value(each, "callback", name_of(each))
                for each in self.callback
            ]
            object.__setattr__(self, "callback", named)

    @classmethod
    def fit(cls, **given: Any) -> TrainConfig:
        """Return ``TrainConfig(**given)``, which has the defaults of the given algorithm and model."""
        return cls(**given)

    @classmethod
    def fitting(cls, **given: Any) -> dict[str, Any]:
        """Return the given settings and the defaults that depend on them, or on the weights it starts from.

        Raises:
            BadArgument: for an algorithm that does not exist, or whose defaults are no settings; for a
                `start_from` that holds no weights. StoreError, SchemaMismatch: where it cannot be read.
        """
        if source := convert_value("", cls, "start_from", given.get("start_from", "")):
            read_source = load(SOURCE, "train", "training")  # by name: it imports this module
            given = {"warmup_steps": 0, **read_source(source), **given}
        model = given.get("model", cls.model)
        algorithm = given.get("algorithm", cls.algorithm)
        if not isinstance(algorithm, Algorithm):
            algorithm = find_algorithm(algorithm)
        check_defaults(algorithm, cls)
        defaults = {**({} if model == "tiny" else LANGUAGE_MODEL), **algorithm.defaults}
        if given.get("agent"):
            defaults["host"] = "thread"  # programs wait for their model, many at a time
        if given.get("staleness") and algorithm.loss is None:
            defaults["importance_cap"] = 2.0
        return {**defaults, **given}

    @classmethod
    def make_unchecked(cls, **given: Any) -> TrainConfig:
        """Return a config without checks: flags are added later, or only its model is made."""
        config = cls()
        for name, value in given.items():
            object.__setattr__(config, name, value)
        return config

    def to_json(self) -> dict[str, Any]:
        """Return the config as plain JSON values."""
        return {
            **asdict(self),
            "env": self.title,
            "environments": [part.to_json() for part in self.environments],
            "curriculum": [stage.to_json() for stage in self.curriculum],
            "out": str(self.out),
            "demos": self.demos and str(self.demos),
        }

    def differences(self, other: TrainConfig) -> list[str]:
        """Return the settings in which the configs differ, except those in `ELSEWHERE`."""
        own, others = (json.loads(json.dumps(config.to_json())) for config in (self, other))
        return [name for name in own if name not in ELSEWHERE and own[name] != others[name]]

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrainConfig:
        """Return the config of values that to_json() returned.

        Raises:
            SchemaMismatch: for a setting that this version does not have.
            BadArgument: for a value that its setting does not accept.
        """
        if not isinstance(values, dict):
            raise SchemaMismatch(f"the run's config is {values!r:.40}; a config is a JSON object.")
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise SchemaMismatch(
                    f"the run's config has {name!r}, which this version does not know."
                    f"{did_you_mean(name, known)}"
                )
        plain = {
            name: value if name in TABLES else convert_value("the run's config", cls, name, value)
            for name, value in values.items()
        }
        with foreign_names():
            return cls(**{**vars(cls()), **plain})  # what an earlier version did not store has no effect


def name_of(thing: Any) -> str:
    """Return the name of a function or class, or of an object's class."""
    return str(getattr(thing, "__name__", type(thing).__name__))
