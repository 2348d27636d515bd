"""Training: batches, losses, policies, and one readable loop for REINFORCE, ReBN and GRPO.

`config` holds the settings, `tasks` what is played, `learn` what learns, `report` what a run records.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gem.errors import missing_extra

if TYPE_CHECKING:
    from gem.train.config import TrainConfig
    from gem.train.learn.training import train, trained_agent
    from gem.train.report.callbacks import Callback
    from gem.train.report.loggers import Log
    from gem.train.report.run_folder import RunFolder
    from gem.train.report.watcher import Watcher

__all__ = [
    "Callback",
    "Log",
    "RunFolder",
    "TrainConfig",
    "Watcher",
    "check_torch",
    "train",
    "trained_agent",
]

HOMES = {
    "Callback": "report.callbacks",
    "Log": "report.loggers",
    "RunFolder": "report.run_folder",
    "TrainConfig": "config",
    "Watcher": "report.watcher",
    "train": "learn.training",
    "trained_agent": "learn.training",
}
"""The modules of the exports, which are loaded at first use: training needs PyTorch, which takes seconds."""


def __getattr__(name: str) -> Any:
    if name in HOMES:
        return getattr(import_module(f"gem.train.{HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check_torch(what: str = "training") -> None:
    """Check that PyTorch is here, without loading it, which takes seconds.

    Raises:
        MissingExtra: when it is not.
    """
    if find_spec("torch") is None:
        raise missing_extra(what, "torch", "train")
