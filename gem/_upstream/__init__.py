"""Module names that scripts bring from upstream or from earlier versions, and what they give here.

`TABLE` lists the modules that only give names of other modules. A finder at the end of `sys.meta_path` serves
them, so no file of theirs stands between the real modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

EARLIER = {
    "gem.train.alarms": "gem.train.report.alarms:Alarm,alarms",
    "gem.train.callbacks": "gem.train.report.callbacks:Callback",
    "gem.train.config_file": "gem.train.config.toml_file:read_config,read_configs,to_toml",
    "gem.train.learner": "gem.train.learn.learner:Critic,Learner,Settings",
    "gem.train.loggers": "gem.train.report.loggers:Log",
    "gem.train.mixture": "gem.train.config.env_part:EnvPart gem.train.tasks.mixture:Shares,TokenShares",
    "gem.train.policy": "gem.train.learn.policy:Policy,make_policy,settled",
    "gem.train.policy_gradient": "gem.train.learn.policy_gradient:learn",
    "gem.train.run": "gem.train.report.run_folder:Evaluation,Metrics,RunFolder",
    "gem.train.steps": "gem.train.learn.steps:Progress,Steps",
    "gem.train.trainer": "gem.train.learn.trainer:Trainer gem.train.learn.training:train,trained_agent",
    "gem.train.watcher": "gem.train.report.watcher:Watcher",
}
"""Documented modules of earlier versions, in the same form as `TABLE`."""

TABLE = EARLIER
"""Names by module, as words ``module:name,name``; ``Name=other`` is another name for `other`."""


class Finder:
    """A finder and loader of the modules in `TABLE`. A name is looked up in its real module at first use."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec of a module in `TABLE`."""
        if name not in TABLE:
            return None
        return ModuleSpec(name, Finder, origin=TABLE[name], is_package=not TABLE[name])  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Leave the making of the module to the import system."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Give a module its names, without loading the modules that define them."""
        places = {}
        for word in TABLE[module.__name__].split():
            home, _, names = word.partition(":")
            for pair in names.split(","):
                name, _, defined = pair.partition("=")
                places[name] = home, defined or name

        def look_up(name: str) -> Any:
            if name not in places:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            home, defined = places[name]
            __import__(home)
            value = getattr(sys.modules[home], defined)
            setattr(module, name, value)
            return value

        module.__doc__ = f"Another place of {TABLE[module.__name__] or 'what its modules give'}."
        vars(module).update({"__all__": [*places], "__getattr__": look_up})


def serve() -> None:
    """Make the modules importable."""
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
