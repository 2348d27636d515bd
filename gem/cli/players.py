"""The agents and limits named on a command line."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import gem
from gem import models
from gem.agent_names import AGENTS
from gem.agents.named import NAMES, AgentSettings, named_agent, suggest_agent
from gem.errors import BadArgument, check_least
from gem.record import Agent

PLAYERS = (
    f"{', '.join(f'{agent.form} ({agent.plays})' for agent in AGENTS.values())}, smollm2 or another name of "
    "`gem-gym models`, your own as path/file.py:NAME or module:NAME, or the folder of a training run, as "
    "runs/demo (runs/demo@best: its best weights, not the last)"
)
"""The names of `local_agent`, for the help of commands."""


def local_agent(name: str, settings: AgentSettings | None = None, accepted: str = "") -> Agent:
    """Return the agent of that name: one that `named_agent` knows, or the model in a training run's folder.

    ``FOLDER`` has the run's last weights, ``FOLDER@best`` those of its best held-out evaluation.

    The error for an unknown name lists the `accepted` ones first.

    Raises:
        BadArgument: when there is neither such an agent nor such a folder. MissingExtra: when a package that
            it needs is not installed.
    """
    settings = settings or AgentSettings()
    if isinstance(settings.model, str) and name.startswith("program:") and find_run(settings.model):
        settings = replace(settings, model=local_agent(settings.model, settings))
    agent = named_agent(name, settings)
    if agent is not None:
        return agent
    if (place := find_run(name)) is not None:
        from gem.train import check_torch
        from gem.train.report.run_folder import RunFolder

        RunFolder(place[0]).read_config()  # refuses what is no run, before a package is asked for
        check_torch(f"the agent {name!r}")
        from gem.train.learn.training import trained_agent

        temperature = None if settings.temperature == "none" else settings.temperature
        return trained_agent(place[0], temperature, place[1])
    known = ", ".join(filter(None, (accepted, NAMES, *models.KNOWN)))
    raise BadArgument(
        f"agent is {name!r}; accepted: {known}, or the folder of a training run (with @best behind it: its "
        f"best weights, not the last), or your own as path/file.py:NAME or module:NAME.{suggest_agent(name)}"
    )


def find_run(name: str) -> tuple[Path, Literal["last", "best"]] | None:
    """Return the folder and the weights of the training run that `name` refers to; None if it is no run."""
    if os.path.isdir(name):
        return Path(name), "last"
    folder, _, weights = name.rpartition("@")
    return (Path(folder), "best") if weights == "best" and os.path.isdir(folder) else None


def limits_of(turns: int | None) -> gem.Limits:
    """Return the episode limits for this flag."""
    check_least("turns", turns)
    return gem.Limits(turns=turns)
