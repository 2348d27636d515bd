"""The agents and limits that a command line names."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gem
from gem.errors import BadArgument
from gem.record import Agent


def local_agent(name: str, temperature: float = 1.0, accepted: str = "random, solver") -> Agent:
    """Return the agent of that name: ``random``, ``solver``, a model behind a server, or a training run's.

    ``openai:MODEL`` and ``openai:MODEL@BASE_URL`` name a model behind a server. A folder stands for the model
    of the training run in it. The message about any other name lists the `accepted` ones.

    Raises:
        BadArgument: when there is neither such an agent nor such a folder.
    """
    from gem.agents.random import RandomAgent
    from gem.agents.solver import SolverAgent

    if name in ("random", "solver"):
        return RandomAgent() if name == "random" else SolverAgent()
    if endpoint := re.fullmatch(r"openai:(.+?)(?:@(https?://.+))?", name, re.DOTALL):
        if re.search(r"@$|@[^@/]*:\d", endpoint[1]):  # else the key would go to the public server
            raise BadArgument(f"agent is {name!r}; a BASE_URL begins with http:// or https://.")
        from gem.agents.openai import OpenAIAgent

        return OpenAIAgent(endpoint[1], base_url=endpoint[2], temperature=temperature)
    if os.path.isdir(name):
        from gem.train.trainer import trained_agent

        return trained_agent(Path(name), temperature)
    raise BadArgument(
        f"agent is {name!r}; accepted: {accepted}, openai:MODEL[@BASE_URL], or the folder of a training run."
    )


def others_of(env_id: str, seat: str | None, others: str | None) -> dict[str, Agent]:
    """Return who holds the seats of a game that `seat` leaves; nobody where no seat is named."""
    seats = gem.spec(env_id).seats
    if seat is None:
        if others is not None:
            raise BadArgument(f"others is {others!r} without a seat; name one of {', '.join(seats)}.")
        return {}
    if seat not in seats or len(seats) == 1:
        raise BadArgument(f"seat is {seat!r}; {env_id} has {len(seats)}: {', '.join(seats)}.")
    player = local_agent(others or "random")
    return {other: player for other in seats if other != seat}


def limits_of(turns: int | None) -> gem.Limits:
    """Return the limit of turns that was asked for."""
    if turns is not None and turns < 1:
        raise BadArgument(f"turns is {turns}; accepted: 1 or more.")
    return gem.Limits(turns=turns)
