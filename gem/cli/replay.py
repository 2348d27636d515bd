"""The commands ``gem-gym replay``, ``show`` and ``tail``: stored episodes in the terminal."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from gem.cli.store import cat, find_number
from gem.cli.terms import FAILED
from gem.content import printable
from gem.errors import BadArgument, GemError, check_least
from gem.naming import changed_files, name_in_file
from gem.record import Verdict
from gem.rollout.store import EpisodeStore, find_store
from gem.specs import TaskRef

Run = Annotated[Positional[Path], arg(metavar="RUN")]
LONGEST = 300
"""The most characters shown of each value in a difference."""
POLL_S = 0.5


def show(
    run: Run,
    episode: Annotated[Positional[str], arg(metavar="ID|NUMBER")],
    json: bool = False,
) -> None:
    """Show an episode: observations, actions, rewards, and how it ended.

    Args:
        run: a store of episodes, or the folder of a run.
        episode: an id, or a number as `gem-gym store ls` shows them; -1 is the last one. The id of a row of
            data is its last episode.
        json: print the line as it is stored.
    """
    cat(find_store(run), episode, json=json)


def tail(run: Run, lines: int = 10, once: bool = False) -> int:
    """Show the last episodes of a run, one per line, and new ones as they are added, until Ctrl-C.

    Args:
        run: a store of episodes, or the folder of a run.
        lines: how many stored episodes to show first.
        once: stop after the last stored episode; do not wait for more.
    """
    check_least("lines", lines, 0)
    with EpisodeStore(find_store(run), read_only=True) as store:
        at = max(0, len(store) - lines)
        while True:
            entries, _ = store.page(start=at, count=1000)
            for entry in entries:
                try:
                    turns = store[entry.number].turns
                except GemError:  # a damaged line
                    turns = []
                did = " -> ".join(" ".join((turn.action or "").split())[:40] for turn in turns[:6])
                reward = "no verdict" if entry.reward is None else f"return {entry.reward:.3f}"
                start = f"{entry.number:>6}  {entry.spec}  {entry.stop:<12} {reward:<13}"
                print(printable(f"{start} {entry.turns:>3} turns  {did}"), flush=True)
            at += len(entries)
            if once and not entries:
                return 0
            if not entries:
                time.sleep(POLL_S)


def replay(
    run: Run,
    episodes: Annotated[Positional[tuple[str, ...]], arg(metavar="ID|NUMBER [...]", help_behavior_hint="")],
    trust: bool = False,
    host: str = "serial",
) -> int:
    """Play the actions of stored episodes again, and check that the transcripts are the same.

    The exit code is 0 if every transcript equals the stored one, and 1 if one differs or cannot be played
    again. The first difference is printed.

    Args:
        run: a store of episodes, or the folder of a run.
        episodes: ids, or numbers as `gem-gym store ls` shows them; -1 is the last one, `all` is every one.
        trust: make what the records name, even if a file may not name it; docs/guides/trust.md has the rule.
        host: where environments run: serial, thread or process.
    """
    from gem.hosts import make_host
    from gem.rollout.replay import explain_difference
    from gem.rollout.replay import replay as played_again

    if not episodes:
        raise BadArgument("no episode was named; give an id, a number, or all.")
    make_host(host).close()  # an unknown one is refused once, not for each episode
    wrong, changes = 0, set[str]()
    with EpisodeStore(find_store(run), read_only=True, trust=trust) as store:
        for number in numbers(store, episodes):
            try:
                stored = store[number]
                tell_changed_files(stored.task, changes)
                again = played_again(stored, host=host)
            except GemError as error:
                wrong += 1
                print(printable(f"{number}: not played again: {error}"))
                continue
            hashed = stored.transcript_hash()
            if again.difference is None:
                count = len(stored.turns)
                same = "the same transcript" if again.whole else "the same turns"
                print(f"{number}: {same}, {count} turn{'s' * (count != 1)}, {hashed}")
                if not again.whole:
                    print(f"  it ended by {stored.stop}, a limit of the agent that replay does not apply")
                continue
            wrong += 1
            where = again.difference
            place = f"turn {where.turn + 1}" if where.turn < len(stored.turns) else "the end"
            print(printable(f"{number}: differs at {place}, {where.what}:"))
            print(printable(f"  stored: {where.one[:LONGEST]}\n  played: {where.other[:LONGEST]}"))
            if again.episode.error is not None:
                broken = again.episode.error
                print(printable(f"  {broken.type} in {broken.boundary}: {broken.message[:LONGEST]}"))
            if again.episode.verdict is not Verdict.NONE or again.episode.error is None:
                print(f"  transcripts: {hashed} stored, {again.episode.transcript_hash()} played")
            for reason in explain_difference(stored.task):
                print(printable(f"  that may be: {reason}"))
            versions = dict(stored.run.versions)
            now = again.episode.run.versions
            for name in sorted(versions.keys() & now.keys()):
                if versions[name] != now[name]:
                    print(printable(f"  it was played with {name} {versions[name]}; here is {now[name]}"))
    return FAILED if wrong else 0


def tell_changed_files(task: TaskRef, known: set[str]) -> None:
    """Print for each file of a stored task that it has another content by now, unless that was `told`."""
    names = [task.spec, *(name_in_file(wrapper.name) for wrapper in task.wrappers)]
    for change in changed_files(names):
        if change not in known:
            print(printable(change), file=sys.stderr)
        known.add(change)


def numbers(store: EpisodeStore, episodes: tuple[str, ...]) -> list[int]:
    """Return the numbers of the named episodes."""
    count, places = len(store), list[int]()
    for name in episodes:
        if name == "all":
            if not count:
                raise BadArgument(f"{store.path} holds no episode.")
            places += range(count)
            continue
        places.append(find_number(store, name))
    return list(dict.fromkeys(places))
