"""The commands ``gem-gym export`` and ``gem-gym import``: write episodes and models, and read episodes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from tyro.conf import Positional, arg

import gem
from gem import seeding
from gem.cli.players import find_run
from gem.cli.terms import FAILED, MaybeInt, MaybePath, MaybeText
from gem.content import printable
from gem.errors import (
    BadArgument,
    DuplicateEpisode,
    GemError,
    MissingData,
    StoreError,
    check_argument,
    check_least,
    pip_command,
)
from gem.plugins import load
from gem.record import Episode
from gem.rollout.store import UNREADABLE, EpisodeStore, find_store

MODEL = "hf"
"""The format of a trained model."""

TASKS = "harbor"
"""The format of terminal tasks."""

PACKAGE = "verifiers"
"""The format of an environment as a package."""


class Damaged:
    """Counts the episodes that cannot be read, and keeps the first error."""

    def __init__(self) -> None:
        """Nothing is left out yet."""
        self.count = 0
        self.first = ""

    def note(self, error: GemError) -> None:
        """Count an episode that cannot be read or written."""
        self.count += 1
        self.first = self.first or str(error)

    def readable(self, store: EpisodeStore, numbers: Iterable[int] | None = None) -> Iterator[Episode]:
        """Yield the episodes that can be read, one at a time: all, or those with these numbers."""
        for number in range(len(store)) if numbers is None else numbers:
            try:
                episode = store[number]
            except UNREADABLE as error:
                self.note(error)
                continue
            yield episode

    def tell(self) -> None:
        """Print how many were left out."""
        if self.count:
            count = "1 episode was" if self.count == 1 else f"{self.count} episodes were"
            print(f"{count} left out; the first: {printable(self.first)}", file=sys.stderr)


@dataclass
class Writing:
    """What is written: the episodes of an open store, where to, and in which rows; `left_out` counts."""

    store: EpisodeStore
    out: Path
    per: Literal["episode", "turn"]
    tokens: bool
    left_out: Damaged

    @property
    def episodes(self) -> Iterator[Episode]:
        """The episodes that can be read."""
        return self.left_out.readable(self.store)

    @property
    def standing(self) -> Iterator[Episode]:
        """Those of them that count: of what was played again, the last."""
        return self.left_out.readable(self.store, [entry.number for entry in self.store.latest()])


def _write_parquet(to: Writing) -> int:
    from gem.adapters.parquet import write_parquet

    return write_parquet(to.episodes, to.out, to.per, tokens=to.tokens)


def _write_jsonl(to: Writing) -> int:
    from gem.adapters.rows import write_jsonl

    return write_jsonl(to.episodes, to.out, to.per, tokens=to.tokens)


def _write_csv(to: Writing) -> int:
    from gem.adapters.rows import write_csv

    return write_csv(to.episodes, to.out)


def _write_atif(to: Writing) -> int:
    from gem.adapters.atif import write_atif

    return write_atif(to.episodes, to.out, tokens=to.tokens)


def _write_logs(to: Writing) -> int:
    from gem.adapters.inspect_logs import write_logs

    return write_logs(to.store, to.out, tokens=to.tokens, damaged=to.left_out.note)


def _write_traces(to: Writing) -> int:
    from gem.adapters.openenv_traces import write_traces

    if not to.tokens:
        raise BadArgument("the format openenv consists of tokens; leave out --no-tokens.")
    return write_traces(to.episodes, to.out, damaged=to.left_out.note)


def _write_sft(to: Writing) -> int:
    from gem.adapters.chats import write_sft

    return write_sft(to.standing, to.out)


def _write_preferences(to: Writing) -> int:
    from gem.adapters.chats import write_preferences

    return write_preferences(to.standing, to.out)


ROWS = ("row", "rows")


class Format(NamedTuple):
    """A format of episodes.

    `write` returns how many `units`, one or several, it wrote. `read` yields functions, each of which reads
    an episode; it is empty for a format that cannot be read back. `suffix`: of files whose format is guessed.
    """

    write: Callable[[Writing], int]
    units: tuple[str, str] = ROWS
    read: str = ""
    suffix: str = ""
    turns: bool = False
    """Whether it may have a row for each turn."""
    needs: str = "an episode that can be read"
    """What a store must hold for anything to be written."""


FORMATS = {
    "parquet": Format(_write_parquet, ROWS, "gem.adapters.parquet:read_parquet", ".parquet", turns=True),
    "jsonl": Format(_write_jsonl, ROWS, "gem.adapters.rows:read_jsonl", ".jsonl", turns=True),
    "csv": Format(_write_csv, ROWS, suffix=".csv"),
    "atif": Format(_write_atif, ("trajectory", "trajectories"), "gem.adapters.atif:read_atif"),
    "inspect": Format(_write_logs, ("log", "logs"), "gem.adapters.inspect_logs:read_logs", ".eval"),
    "openenv": Format(_write_traces, ("trace", "traces"), "gem.adapters.openenv_traces:read_traces"),
    "sft": Format(_write_sft, needs="an episode with a verdict, in which a model answered"),
    "preferences": Format(
        _write_preferences,
        needs="two episodes of one task with verdicts, whose answers differ before their observations do and "
        "which earned differently; play each task several times (`gem-gym eval -k 4`)",
    ),
}
"""The formats of episodes by name; messages follow from it."""


def export(
    run: Annotated[Positional[str], arg(metavar="RUN")],
    target: Annotated[Positional[MaybePath], arg(metavar="[OUT]", help_behavior_hint="")] = None,
    format: MaybeText = None,
    out: MaybePath = None,
    merge: bool = False,
    per: Literal["episode", "turn"] = "episode",
    no_tokens: bool = False,
    seed: MaybeInt = None,
    tasks: MaybeInt = None,
) -> int:
    """Write the model that a run trained, stored episodes, terminal tasks or an environment, for other tools.

    The format harbor is task folders of Harbor, one for each seed: there RUN is an id, as
    terminal:Rename-v0-easy, and OUT a folder of task folders, which `gem-gym eval harbor:OUT` plays.

    The format verifiers is an environment as a package for verifiers and prime-rl: there RUN is an id, and
    OUT the folder of the package, whose name is that of the taskset.

    The format hf is the trained model: a folder that transformers, peft, TRL and vLLM load, with its
    tokenizer and a model card.

    The other formats are episodes. parquet and jsonl are tables, csv one for a spreadsheet. atif is
    Harbor's trajectories (a .jsonl file, or a folder of files). inspect is the log of Inspect, for
    `inspect view` (a .eval or .json file for one environment and agent, or a folder with a log for each).
    openenv is OpenEnv's token traces. sft and preferences are training data sets of conversations: all
    scored ones, and the best against the worst of each task.

    Args:
        run: the folder of a run (for hf of a training run; RUN@best: its best weights, not the last), a store
            of episodes, the id of terminal tasks (harbor), or any id (verifiers).
        target: the file or folder to write; it must not exist yet.
        format: hf, harbor, verifiers, parquet, jsonl, csv, atif, inspect, openenv, sft or preferences;
            guessed from OUT's suffix if that is .parquet, .jsonl, .csv or .eval.
        out: another way to give OUT.
        merge: for hf, of a run with --lora-rank: write a whole model with the adapter merged into it, instead
            of the adapter alone.
        per: for tables: one row per episode (`gem-gym import` can read it), or one row per turn.
        no_tokens: leave token ids and log probabilities out.
        seed: for harbor: the seed of the first task; 0 if left out.
        tasks: for harbor: how many tasks, of this seed and those after it; 1 if left out.
    """
    if (target is None) == (out is None):
        given = f"{target} and {out}" if out is not None else "none"
        raise BadArgument(f"the file or folder to write is {given}; give one: OUT behind RUN, or --out OUT.")
    path = out or target
    assert path is not None
    if format == TASKS:
        if per != "episode" or no_tokens or merge:
            raise BadArgument(
                "--per, --no-tokens and --merge are not for tasks; with --format harbor leave them out."
            )
        return _export_tasks(run, path, 0 if seed is None else seed, 1 if tasks is None else tasks)
    if seed is not None or tasks is not None:
        raise BadArgument(
            "--seed and --tasks are for terminal tasks; give --format harbor, or leave them out."
        )
    if format == PACKAGE:
        if per != "episode" or no_tokens or merge:
            raise BadArgument(
                "--per, --no-tokens and --merge are not for packages; with --format verifiers leave them out."
            )
        return _export_package(run, path)
    if format == MODEL:
        if per != "episode" or no_tokens:
            raise BadArgument("--per and --no-tokens are for episodes; with --format hf leave them out.")
        return _export_model(run, path, merge=merge)
    if merge:
        raise BadArgument("--merge is for a trained model; give --format hf, or leave it out.")
    return _export_episodes(Path(run), path, _format(format, path), per, no_tokens=no_tokens)


def _export_model(run: str, out: Path, *, merge: bool) -> int:
    from gem.train.learn.model_export import export_model

    if (place := find_run(run)) is None:
        raise BadArgument(
            f"no folder {run!r}; accepted: the folder of a training run, or RUN@best for its best weights."
        )
    folder, weights = place
    export_model(folder, out, weights=weights, merge=merge)
    print(f"wrote the model of {printable(run)} to {printable(str(out))}")
    return 0


def _export_tasks(env_id: str, out: Path, seed: int, tasks: int) -> int:
    from gem.envs.terminal.env import TerminalEnv
    from gem.envs.terminal.writing import write_task

    check_least("tasks", tasks)
    seeds = range(seeding.check(seed), seeding.check(seed + tasks - 1) + 1)
    spec = gem.spec(env_id)
    if spec.family not in ("terminal", "repo"):
        raise BadArgument(
            f"{spec.id} is no id of terminal tasks; accepted: terminal:... or repo:... (`gem-gym list`)."
        )
    with gem.make(spec.id) as env:
        inner = env.unwrapped
        assert isinstance(inner, TerminalEnv)
        folders = [out / f"{spec.id.partition(':')[2].lower()}-{each}" for each in seeds]
        for each, folder in zip(seeds, folders, strict=True):
            write_task(inner, each, folder)
    print(f"wrote {tasks} task folder{'s' * (tasks != 1)} to {printable(str(out))}")
    return 0


def _export_package(env_id: str, out: Path) -> int:
    from gem.scaffold import write_taskset

    package = write_taskset(env_id, out)
    print(
        f"wrote {printable(str(package.folder))}, a taskset of {package.env_id}. Next:\n"
        f"  {pip_command(f'-e {shlex.quote(printable(str(package.folder)))}')}\n"
        f"  vf-eval {package.folder.name} -n 5 --model MODEL --client.base-url URL"
    )
    return 0


def _export_episodes(
    store: Path, out: Path, kind: str, per: Literal["episode", "turn"], *, no_tokens: bool
) -> int:
    format = FORMATS[kind]
    if per == "turn" and not format.turns:
        tables = " and ".join(name for name, each in FORMATS.items() if each.turns)
        raise BadArgument(f"a row per turn is for {tables}; {kind} has episodes.")
    with EpisodeStore(find_store(store), read_only=True) as episodes:
        left_out = Damaged()
        written = format.write(Writing(episodes, out, per, not no_tokens, left_out))
        torn = episodes.torn
    if not written:
        if out.is_file():
            out.unlink()  # or the next try would find it there
        print(f"nothing was written: {kind} needs {format.needs}.", file=sys.stderr)
    else:
        print(f"wrote {written} {format.units[written != 1]} to {printable(str(out))}")
    left_out.tell()
    if torn:
        print(f"{torn} damaged line{'s were' if torn > 1 else ' was'} skipped.", file=sys.stderr)
    return 0 if written else FAILED


def import_(
    source: Annotated[Positional[Path], arg(metavar="FILE")],
    store: Annotated[Positional[Path], arg(metavar="STORE")],
    format: MaybeText = None,
) -> int:
    """Read episodes from another tool's file into a store; episodes already there are skipped.

    It reads what `gem-gym export` wrote with one row per episode. It also reads any atif trajectory and any
    openenv trace; these have no verdict.

    Args:
        source: the file, or a folder of such files; one of an atif trial or job is read as a whole.
        store: a file of episodes; created if it does not exist.
        format: parquet, jsonl, atif, inspect or openenv; guessed from FILE's suffix if that is .parquet,
            .jsonl or .eval.
    """
    kind = _format(format, source)
    if not FORMATS[kind].read:
        raise BadArgument(f"{kind} holds parts of episodes; they cannot be read back from it.")
    if not source.exists():
        raise MissingData(f"{source}: no such file or folder.")
    suffixes = (FORMATS[kind].suffix,) if FORMATS[kind].suffix else (".json", ".jsonl")
    files = [source]
    if source.is_dir() and kind not in ("atif", "inspect"):
        files = sorted(file for file in source.iterdir() if file.suffix in suffixes)
        if not files:
            raise MissingData(f"{source} holds no file that ends with {' or '.join(suffixes)}.")
    copied = duplicates = 0
    left_out = Damaged()
    with EpisodeStore(store) as episodes:
        for read in chain.from_iterable(map(load(FORMATS[kind].read), files)):
            try:
                episodes.append(read())
                copied += 1
            except DuplicateEpisode:
                duplicates += 1
            except StoreError:
                raise
            except BadArgument as error:
                left_out.note(error)
    print(f"copied {copied} episodes to {printable(str(store))}; {duplicates} were there already")
    left_out.tell()
    if not (copied or duplicates or left_out.count):
        print(f"{printable(str(source))} holds no episode of the format {kind}.", file=sys.stderr)
    return 0 if copied or duplicates else FAILED


def _format(given: str | None, path: Path) -> str:
    guesses = (name for name, each in FORMATS.items() if each.suffix == path.suffix)
    kind = given or (next(guesses, None) if path.suffix else None)
    if kind is None:
        raise BadArgument(f"the format of {path} cannot be guessed from its name; give --format.")
    if kind == MODEL:
        raise BadArgument("hf is the format of a model, which holds no episodes.")
    if kind == TASKS:
        raise BadArgument("harbor is the format of tasks, which hold no episodes.")
    if kind == PACKAGE:
        raise BadArgument("verifiers is the format of an environment, which holds no episodes.")
    accepted = f"{', '.join(FORMATS)}; for a model: {MODEL}; for tasks: {TASKS}; for an id: {PACKAGE}"
    check_argument("format", kind, kind in FORMATS, accepted)
    return kind
