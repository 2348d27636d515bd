"""The subcommands of ``gem-gym store``: list, show, merge and verify stored episodes, print their schema."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from gem import codec
from gem.cli.play import show
from gem.cli.terms import FAILED, MaybeInt, MaybeText, table
from gem.cli.verify import verify
from gem.content import printable
from gem.errors import BadArgument, check_least, did_you_mean
from gem.record import Verdict
from gem.rollout.store import UNREADABLE, EpisodeStore, find_store, merge

MOST_OTHERS = 5
"""The most other episodes of a row that are named."""

Store = Annotated[Positional[Path], arg(metavar="PATH")]


def ls(
    path: Store,
    spec: MaybeText = None,
    success: bool = False,
    failed: bool = False,
    no_verdict: bool = False,
    limit: MaybeInt = None,
    json: bool = False,
) -> int:
    """List the episodes of a store, by its index; what is listed is compared with the lines.

    Args:
        path: a file of episodes, or the folder of a run.
        spec: only episodes of this environment.
        success: only episodes that solved their task.
        failed: only episodes that have a verdict and did not solve their task.
        no_verdict: only episodes without a verdict, because something broke.
        limit: show at most this many, from the start.
        json: print all that the index holds, one JSON object per line.
    """
    if success + failed + no_verdict > 1:
        raise BadArgument("success, failed and no-verdict exclude one another; give one of them.")
    check_least("limit", limit)
    wanted: dict[str, Any] = {"spec": spec}
    if success or failed:
        wanted["success"] = success
    if no_verdict:
        wanted["verdict"] = Verdict.NONE
    with EpisodeStore(find_store(path), read_only=True) as store:
        entries = store.select(**wanted)
        if not store.confirm(entries[:limit]):
            entries = store.select(**wanted)
        if not entries and spec is not None:
            specs = {entry.spec for entry in store.select()}
            if spec not in specs:
                raise BadArgument(
                    f"{path} holds no episode of {spec!r}.{did_you_mean(spec, specs)} "
                    f"It has {', '.join(sorted(specs)[:5]) or 'none at all'}{', ...' * (len(specs) > 5)}."
                )
        torn = store.torn
    if json:
        for entry in entries[:limit]:
            print(json_module.dumps(codec.plain(entry._asdict())))
    else:
        rows = [
            (
                entry.number,
                printable(entry.id),
                printable(entry.spec),
                entry.stop,
                "-" if entry.reward is None else f"{entry.reward:.3f}",
                entry.turns,
                entry.tokens or "-",
            )
            for entry in entries[:limit]
        ]
        table("", "id", "env", "stop", "return", "turns", "tokens", rows=rows, cropped=("id", "env"))
    if torn:
        print(f"{torn} damaged line{'s were' if torn > 1 else ' was'} skipped.", file=sys.stderr)
    return 0 if entries else FAILED


def cat(
    path: Store,
    episode: Annotated[Positional[str], arg(metavar="ID|NUMBER")],
    json: bool = False,
) -> None:
    """Show an episode of a store: observations, actions, rewards, and how it ended.

    Args:
        path: a file of episodes, or the folder of a run.
        episode: an id, or a number as `gem-gym store ls` shows them; -1 is the last one. The id of a row of
            data is its last episode.
        json: print the line as it is stored.
    """
    with EpisodeStore(find_store(path), read_only=True) as store:
        number = find_number(store, episode)
        record = store[number]
        if json:
            line = store.line(number).decode(errors="backslashreplace")
            if sys.stdout.isatty():  # the same values, in characters that cannot steer a terminal
                line = "".join(c if c.isprintable() else json_module.dumps(c)[1:-1] for c in line)
            print(line)
            return
    run = record.run
    settings = [run.agent, run.model, *(f"{k}={v}" for k, v in run.sampling.items() if v is not None)]
    about = {
        "id": record.id,
        "env": f"{record.spec}, seed {record.seed}",
        "keywords": ", ".join(f"{name}={value!r}" for name, value in record.kwargs.items()),
        "wrappers": ", ".join(wrapper.name for wrapper in record.task.wrappers),
        "agent": ", ".join(filter(None, settings)),
        "task": record.task_id,
    }
    for name, value in about.items():
        if value:
            print(printable(f"{name}: {value}"))
    print()
    show(record, rewards=True)


def find_number(store: EpisodeStore, name: str) -> int:
    """Return the number of an episode, from its id, its number (-1 is the last one), or its row's id.

    Raises:
        BadArgument: when there is none; it says which id is near.
    """
    try:
        number = int(name)
    except ValueError:
        numbers = [entry.number for entry in store.select(id=name)[:1]] or _find_row(store, name)
        if not numbers:
            store.get(name)  # which says what is near
        if before := ", ".join(store[number].id for number in numbers[:-1][-MOST_OTHERS:]):
            note = f"{len(numbers)} episodes are of {name}; this is the last, after {before}"
            print(printable(note), file=sys.stderr)
        return numbers[-1]
    if not -len(store) <= number < len(store):
        raise BadArgument(f"there is no episode {number}; {store.path} holds {len(store)}.")
    return number % len(store)


def _find_row(store: EpisodeStore, name: str) -> list[int]:
    """Return the numbers of the episodes of a row of data, by its id."""
    written, numbers = json_module.dumps(name, ensure_ascii=False).encode("utf-8", "replace"), []
    for entry in store.select():
        with suppress(*UNREADABLE):
            if written in store.line(entry.number) and store[entry.number].task_id == name:
                numbers.append(entry.number)
    return numbers


def merge_stores(
    out: Annotated[Positional[Path], arg(metavar="OUT")],
    sources: Annotated[Positional[tuple[Path, ...]], arg(metavar="IN [IN ...]", help_behavior_hint="")],
) -> None:
    """Merge stores into one; episodes whose id is already there are skipped.

    To continue after an interruption, run the same command again.

    Args:
        out: the store to write; episodes are appended.
        sources: the stores to copy episodes from, or folders of runs.
    """
    done = merge(out, [find_store(source) for source in sources])
    print(f"copied {done.copied} episodes to {out}; {done.duplicates} were there already")
    if done.damaged:
        count = "1 line" if done.damaged == 1 else f"{done.damaged} lines"
        print(f"left out {count}: damaged, torn, or of another version of gem", file=sys.stderr)


def schema() -> None:
    """Print the JSON schema of a store's lines, and of the messages between agents and hosts."""
    print(json_module.dumps(codec.json_schema(), indent=2))


COMMANDS: dict[str, Callable[..., Any]] = {
    "ls": ls,
    "cat": cat,
    "merge": merge_stores,
    "verify": verify,
    "schema": schema,
}
