"""The commands ``gem-gym list`` and ``gem-gym play``: list environments, and play one."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

import gem
from gem import seeding
from gem.agents.seats import make_others
from gem.cli.players import PLAYERS, limits_of, local_agent
from gem.cli.terms import FAILED, INTERRUPTED, MaybeInt, MaybeText, table
from gem.content import printable, text_of
from gem.errors import BadArgument, UnknownEnv, did_you_mean
from gem.evals.data_flags import DataFlags
from gem.graders.functions import ping_judges
from gem.record import Episode, StopReason
from gem.registry import Maker, spec_named
from gem.sandbox.choice import check_needs, has_none_at_once

OUTPUT_LINES = 20
"""The last lines that are shown of a program's output."""


def list_ids(
    family: Annotated[Positional[str | None], arg(metavar="[FAMILY]", help_behavior_hint="")] = None,
    json: bool = False,
) -> None:
    """List the environments: id, the task's stated turn limit, solver, pip extra, and if it needs a sandbox.

    An environment that needs a sandbox runs programs; `gem-gym sandbox` shows whether they run here.

    Args:
        family: the part of an id before the colon; all families if left out.
        json: print the specs as one JSON array, with every claim; the fields are those of `gem.EnvSpec`.
    """
    ids = gem.ids(family and family.rstrip(":"))
    if not ids:
        families = sorted({env_id.partition(":")[0] for env_id in gem.ids()})
        raise UnknownEnv(
            f"no family {family!r}.{did_you_mean(family or '', families)} There are: {', '.join(families)}."
        )
    specs = [gem.spec(env_id) for env_id in ids]
    if json:
        print(json_module.dumps([asdict(each) for each in specs], indent=2, default=str))
        return
    needs = "no sandbox here" if has_none_at_once() else "sandbox"
    rows = [
        (s.id, s.max_turns or "-", s.solver, s.extra or "-", needs if s.needs.sandbox else "-") for s in specs
    ]
    table("id", "turns", "solver", "extra", "needs", rows=rows)


def play(
    env_id: Annotated[Positional[str], arg(metavar="[ID]", help_behavior_hint="")] = "",
    agent: Annotated[str, arg(help=f"human (you), {PLAYERS}.")] = "human",
    seed: MaybeInt = None,
    turns: MaybeInt = None,
    seat: MaybeText = None,
    others: MaybeText = None,
    own: Annotated[DataFlags, OmitArgPrefixes] = DataFlags(),  # noqa: B008 - frozen
) -> int:
    """Play an episode in the terminal, or watch an agent play it.

    Args:
        env_id: an environment, as game:Sudoku-v0-easy (`gem-gym list` shows all), or your own, as
            path/file.py:Class or module:Class (docs/guides/naming.md); none with --data.
        agent: who plays; see `gem.cli.players.PLAYERS`.
        seed: which episode; random, and printed, if left out.
        turns: stop after this many turns.
        seat: in a game of several seats, the seat of the agent; it plays all seats if left out.
        others: with --seat: who plays the other seats, an agent's name as above, except human.
        own: your own data in place of an environment.
    """
    from gem.rollout import Job, rollout
    from gem.rollout.session import play_session

    seed = seeding.fresh() if seed is None else seeding.check(seed)
    limits = limits_of(turns)
    actor = None if agent == "human" else local_agent(agent, accepted="human")
    brought = own.task(without=("split", "exclude"))
    if (brought is None) != bool(env_id):
        raise BadArgument("name an environment, as game:Sudoku-v0-easy, or your own data: --data FILE.")
    kwargs = own.kwargs([env_id]) if brought is None else brought.kwargs
    if brought is not None:
        env_id = brought.env
        print(printable(brought.about), file=sys.stderr)
        ping_judges(kwargs)
    spec = spec_named(env_id)
    check_needs([spec])
    env_id = spec.id
    rest = make_others(env_id, seat, others, local_agent)
    print(f"{env_id}, seed {seed}\n")
    if actor is None:
        episode = play_session(env_id, seed, limits=limits, others=rest, **kwargs)
    else:
        holders = {seat: actor, **rest} if seat else actor
        (episode,) = rollout([Job(Maker(env_id, kwargs), seed)], holders, limits=limits)
        show(episode)
    if episode.stop is StopReason.CANCELLED:
        return INTERRUPTED
    return 0 if episode.scored else FAILED


def show(episode: Episode, rewards: bool = False) -> None:
    """Print an episode's observations and actions, and how it ended; with `rewards`, each turn's reward."""
    from gem.rollout.session import describe_end

    lines = []
    for turn in episode.turns:
        heard = f"[{turn.seat}]\n" if episode.several else ""
        lines.append(f"{heard}{text_of(turn.observation)}\n\n{turn.seat}> {turn.action or ''}\n")
        if rewards and turn.reward is not None:
            why = turn.info.get("why")
            lines.append(f"reward {turn.reward:g}{f': {why}' if why else ''}\n")
    for seat, end in episode.ends.items():
        heard = f"[{seat}]\n" if episode.several else ""
        lines.append(f"{heard}{text_of(end.observation)}\n")
        if isinstance(about := end.info.get("program"), Mapping):
            lines.append(_describe_program(about, end.info.get("actions")))
    lines.append(describe_end(episode))
    print(printable("\n".join(lines)))


def _describe_program(about: Mapping[str, Any], actions: Any) -> str:
    """Return how an agent program ended, and the last lines of its output, from a stored episode.

    `actions`: the number of its actions by MCP; None where it works in a workspace.
    """
    signal, ended, wall_s = about.get("signal"), about.get("ended"), about.get("wall_s")
    how = f"signal {signal}" if signal else f"exit code {about.get('exit_code')}"
    how += f", ended ({ended})" if ended else ""
    how += f" after {wall_s:.1f} s" if isinstance(wall_s, float) else ""
    lines = [f"program: {how}" + ("" if actions is None else f", actions: {actions}")]
    for name in ("stdout", "stderr"):
        output = about.get(name)
        if isinstance(output, str) and output.strip():
            lines += [f"{name}:", *output.strip().splitlines()[-OUTPUT_LINES:]]
    return "\n".join((*lines, ""))
