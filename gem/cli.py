"""The command ``gem-gym``.

A command is one row of `COMMANDS` and one function; tyro turns the function's signature and docstring into
flags and help. Only the command that was asked for is imported, so that listing ids does not load torch.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import tyro
from tyro.conf import Positional, arg

import gem
from gem import seeding
from gem.content import Obs, text_of
from gem.errors import BadArgument, GemError, UnknownEnv, did_you_mean
from gem.record import Episode
from gem.registry import load

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
"""Exit codes: the command ran and the answer is no; it could not run; Ctrl-C."""


MaybeInt: TypeAlias = Annotated[int | None, arg(metavar="INT")]


class Command(NamedTuple):
    """A row of the table: where the function is, and the line that ``gem-gym --help`` shows."""

    entry_point: str
    summary: str


COMMANDS: dict[str, Command] = {
    "list": Command("gem.cli:list_ids", "list the environments"),
    "train": Command("gem.train.command:command", "train a language model on an environment"),
    "play": Command("gem.cli:play", "watch an agent play an episode"),
}


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a model wrote may not fit the terminal's encoding; that must not end the program.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except GemError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        print("\nstopped by Ctrl-C", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `gem-gym list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code


def _run(args: list[str]) -> int:
    name, *rest = args or ["--help"]
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"gem-gym {gem.__version__}")
        return 0
    if name not in COMMANDS:
        raise BadArgument(f"no command {name!r}.{did_you_mean(name, COMMANDS)} `gem-gym --help` shows all.")
    function = load(COMMANDS[name].entry_point)
    return tyro.cli(function, prog=f"gem-gym {name}", args=rest) or 0


def _help() -> str:
    rows = [f"  {name:<8}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gem-gym COMMAND [...]",
            "",
            "A gym for LLM agents.",
            "",
            *rows,
            "",
            "`gem-gym COMMAND --help` explains a command; `gem-gym --version` says which gem this is.",
        ]
    )


def list_ids(family: Annotated[Positional[str | None], arg(metavar="[FAMILY]")] = None) -> None:
    """List the environments: id, turns that the task states, solver, and the pip extra it needs.

    Args:
        family: the part of an id before the colon; all families when left out.
    """
    found = gem.ids(family and family.rstrip(":"))
    if not found:
        families = sorted({env_id.partition(":")[0] for env_id in gem.ids()})
        raise UnknownEnv(
            f"no family {family!r}.{did_you_mean(family or '', families)} There are: {', '.join(families)}."
        )
    specs = [gem.spec(env_id) for env_id in found]
    rows = [(s.id, s.max_turns or "-", s.solver, s.extra or "-") for s in specs]
    table("id", "turns", "solver", "extra", rows=rows)


def play(
    env_id: Annotated[Positional[str], arg(metavar="ID")],
    agent: Literal["random", "solver"] = "solver",
    seed: MaybeInt = None,
    turns: MaybeInt = None,
) -> int:
    """Watch an agent play an episode.

    Args:
        env_id: an environment, as game:Sudoku-v0-easy; `gem-gym list` shows all.
        agent: random plays legal actions; solver is the environment's own expert.
        seed: which episode; drawn, and shown, when left out.
        turns: stop after so many turns.
    """
    from gem.agents.random import RandomAgent
    from gem.agents.solver import SolverAgent
    from gem.rollout import Job, rollout

    seed = seeding.fresh() if seed is None else seeding.check(seed)
    print(f"{gem.spec(env_id).id}, seed {seed}")
    actor = RandomAgent() if agent == "random" else SolverAgent()
    (episode,) = rollout([Job(env_id, seed)], actor, limits=gem.Limits(turns=turns))
    show(episode)
    return 0 if episode.scored else FAILED


def show(episode: Episode) -> None:
    """Print what was said in an episode, and how it ended."""
    for turn in episode.turns:
        print(f"\n{plain(turn.observation)}\n\n{turn.agent}> {plain(turn.action or '')}")
    print(f"\n{plain(episode.final_observation)}\n")
    if episode.error:
        print(f"no verdict: {episode.error.type} in {episode.error.boundary}: {plain(episode.error.message)}")
    else:
        count = len(episode.turns)
        print(f"{episode.stop} after {count} turn{'s' * (count != 1)}, return {episode.reward():g}")


def plain(obs: Obs) -> str:
    """Return what was said as text that cannot steer the terminal: control characters are shown escaped."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text_of(obs)
    )


def table(*columns: str, rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; into a pipe as aligned plain text, one row a line, never wrapped."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        grid = Table(*columns)
        for row in rows:
            grid.add_row(*map(str, row))
        Console().print(grid, markup=False)
        return
    lines = [columns, *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
