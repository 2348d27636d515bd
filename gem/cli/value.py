"""The command ``gem-gym value``: estimate the value of each turn of a stored episode."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from tyro.conf import Positional, arg

import gem
from gem import seeding
from gem.cli.players import PLAYERS, limits_of, local_agent
from gem.cli.replay import Run, numbers, tell_changed_files
from gem.cli.terms import FAILED, MaybeInt, table
from gem.content import printable
from gem.errors import UnknownEnv, check_argument
from gem.rollout.store import EpisodeStore, find_store
from gem.sandbox.choice import check_needs
from gem.statistics import Interval

SHOWN = 60
"""The most characters shown of an action."""


def value(
    run: Run,
    episode: Annotated[Positional[str], arg(metavar="ID|NUMBER")],
    agent: Annotated[str, arg(help=f"who plays on: {PLAYERS}.")],
    samples: Annotated[int, arg(aliases=["-n"])] = 16,
    seed: int = 0,
    host: str = "auto",
    max_turns: MaybeInt = None,
    keep: bool = False,
    trust: bool = False,
) -> int:
    """Estimate the value of each turn of a stored episode, if an agent plays on from there.

    From before and after each turn, the agent plays on to the end several times. The value is the mean return
    of these episodes, with its 95% interval. A turn's advantage is the change in value. The environment keeps
    the random numbers of the stored episode. The exit code is 1 if no turn could be valued.

    Args:
        run: a store of episodes, or the folder of a run.
        episode: an id, or a number as `gem-gym store ls` shows them; -1 is the last one.
        agent: who plays on; see `gem.cli.players.PLAYERS`.
        samples: how many episodes to play from each place.
        seed: the seed of the agent's own random numbers.
        host: where environments run: serial, thread or process; auto chooses by environment.
        max_turns: end each of these episodes after this many turns, including the stored ones.
        keep: keep the values beside the store, where `gem-gym view` shows them.
        trust: make what the record names, even if a file may not name it; docs/guides/trust.md has the rule.
    """
    from gem.rollout.forks import find_deciding_turn, turn_values
    from gem.rollout.runner import Runner

    with EpisodeStore(find_store(run), read_only=True, trust=trust) as store:
        places = numbers(store, (episode,))
        check_argument("episode", episode, len(places) == 1, "one id or number")
        stored = store[places[0]]
    task = stored.task
    tell_changed_files(task, set())
    with suppress(UnknownEnv):  # a class that has no id says nothing of what it needs
        check_needs([gem.spec(task.spec)], [each.name for each in task.wrappers], task.kwargs)
    with Runner(local_agent(agent), host=host, limits=limits_of(max_turns)) as runner:
        values = turn_values(stored, runner, samples, salt=seeding.check(seed))
    rows = [
        (
            each.turn + 1,
            _figure(each.before),
            _figure(each.advantage, "+"),
            printable(" ".join(each.action.split()))[:SHOWN],
        )
        for each in values
    ]
    table("turn", "value before", "advantage", "action", rows=rows, cropped=("action",))
    if keep:
        from gem.viewer.values import ValuesFile

        ValuesFile(find_store(run)).set(stored.id, agent, samples, values)
    print(f"after the last turn: {_figure(values[-1].after)}; {samples} episodes of {agent} from each place")
    decided = find_deciding_turn(values)
    print(
        f"turn {decided.turn + 1} decided: {_figure(decided.advantage, '+')}"
        if decided
        else "no turn surely changed the value"
    )
    if lost := sum(each.lost for each in values):
        print(f"{lost} of them have no verdict and were left out")
    return 0 if any(each.before for each in values) else FAILED


def _figure(interval: Interval | None, sign: str = "") -> str:
    if interval is None:
        return "none"
    if interval.exact:
        return f"{interval.mean:{sign}.3f}"
    return f"{interval.mean:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"
