"""The commands ``gem-gym export`` and ``gem-gym import``: write episodes and models, and read episodes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from gem.cli.players import find_run
from gem.cli.replay import store_of
from gem.cli.terms import FAILED, MaybePath, MaybeText
from gem.content import printable
from gem.errors import BadArgument, DuplicateEpisode, GemError, MissingData, StoreError, check_argument
from gem.plugins import load
from gem.record import Episode
from gem.rollout.store import EpisodeStore

FORMATS = ("parquet", "jsonl", "atif", "inspect", "openenv", "sft", "preferences")
"""Formats of episodes."""
MODEL = "hf"
"""The format of a trained model."""
ONE_WAY = ("sft", "preferences")
"""Formats of training data sets; they cannot be read back as episodes."""
TABLES = {"jsonl": "gem.adapters.rows:write_jsonl", "parquet": "gem.adapters.parquet:write_parquet"}
"""What writes a table, by format."""
READERS = {
    "jsonl": "gem.adapters.rows:read_jsonl",
    "parquet": "gem.adapters.parquet:read_parquet",
    "atif": "gem.adapters.atif:read_atif",
    "openenv": "gem.adapters.openenv_traces:read_traces",
    "inspect": "gem.adapters.inspect_logs:read_logs",
}
"""What reads episodes, by format: it yields functions, each of which reads one."""
SUFFIXES = {".parquet": "parquet", ".jsonl": "jsonl", ".eval": "inspect"}


def export(
    run: Annotated[Positional[str], arg(metavar="RUN")],
    target: Annotated[Positional[Path | None], arg(metavar="[OUT]", help_behavior_hint="")] = None,
    format: MaybeText = None,
    out: MaybePath = None,
    merge: bool = False,
    per: Literal["episode", "turn"] = "episode",
    no_tokens: bool = False,
) -> int:
    """Write the model that a run trained, or stored episodes, for other tools.

    The format hf is the trained model: a folder that transformers, peft, TRL and vLLM load, with its
    tokenizer and a model card.

    The other formats are episodes. parquet and jsonl are tables. atif is Harbor's trajectories (a .jsonl
    file, or a folder of files). inspect is the log of Inspect, for `inspect view` (a .eval or .json file for
    one environment and agent, or a folder with a log for each). openenv is OpenEnv's token traces. sft and
    preferences are training data sets of conversations: all scored ones, and the best against the worst of
    each task.

    Args:
        run: the folder of a run (for hf of a training run; RUN@best: its best weights, not the last), or a
            store of episodes.
        target: the file or folder to write; it must not exist yet.
        format: hf, parquet, jsonl, atif, inspect, openenv, sft or preferences; guessed from OUT's suffix if
            that is .parquet, .jsonl or .eval.
        out: another way to give OUT.
        merge: for hf, of a run with --lora-rank: write a whole model with the adapter merged into it, instead
            of the adapter alone.
        per: for tables: one row per episode (`gem-gym import` can read it), or one row per turn.
        no_tokens: leave token ids and log probabilities out.
    """
    if (target is None) == (out is None):
        given = f"{target} and {out}" if out is not None else "none"
        raise BadArgument(f"the file or folder to write is {given}; give one: OUT behind RUN, or --out OUT.")
    path = out or target
    assert path is not None
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


def _export_episodes(
    store: Path, out: Path, kind: str, per: Literal["episode", "turn"], *, no_tokens: bool
) -> int:
    if kind == "openenv" and no_tokens:
        raise BadArgument("the format openenv consists of tokens; leave out --no-tokens.")
    if per == "turn" and kind not in TABLES:
        raise BadArgument(f"a row per turn is for parquet and jsonl; {kind} has episodes.")
    with EpisodeStore(store_of(store), read_only=True) as episodes:
        left_out = _Damaged()
        if kind == "inspect":
            from gem.adapters.inspect_logs import write_logs

            written = write_logs(episodes, out, tokens=not no_tokens, damaged=left_out.note)
            what = f"log{'s' * (written != 1)}"
        elif kind == "atif":
            from gem.adapters.atif import write_atif

            written = write_atif(left_out.readable(episodes), out, tokens=not no_tokens)
            what = "trajectories"
        elif kind == "openenv":
            from gem.adapters.openenv_traces import write_traces

            written = write_traces(left_out.readable(episodes), out, damaged=left_out.note)
            what = "traces"
        elif kind in ONE_WAY:
            from gem.adapters import chats

            write = chats.write_sft if kind == "sft" else chats.write_preferences
            standing = [entry.number for entry in episodes.latest()]  # what was played again counts once
            written = write(left_out.readable(episodes, standing), out)
            what = "rows"
        else:
            written = load(TABLES[kind])(left_out.readable(episodes), out, per, tokens=not no_tokens)
            what = "rows"
        torn = episodes.torn
    print(f"wrote {written} {what} to {printable(str(out))}")
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
        source: the file, or a folder of such files.
        store: a file of episodes; created if it does not exist.
        format: parquet, jsonl, atif, inspect or openenv; guessed from FILE's suffix if that is .parquet,
            .jsonl or .eval.
    """
    kind = _format(format, source)
    if kind in ONE_WAY:
        raise BadArgument(f"{kind} is a training data set; episodes cannot be read back from it.")
    if not source.exists():
        raise MissingData(f"{source}: no such file or folder.")
    copied = duplicates = 0
    left_out = _Damaged()
    with EpisodeStore(store) as episodes:
        for read in load(READERS[kind])(source):
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


class _Damaged:
    """Counts the episodes that cannot be read, and keeps the first error."""

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def note(self, error: GemError) -> None:
        self.count += 1
        self.first = self.first or str(error)

    def readable(self, store: EpisodeStore, numbers: Iterable[int] | None = None) -> Iterator[Episode]:
        """Yield the episodes that can be read, one at a time: all, or those with these numbers."""
        for number in range(len(store)) if numbers is None else numbers:
            try:
                episode = store[number]
            except StoreError as error:
                self.note(error)
                continue
            yield episode

    def tell(self) -> None:
        if self.count:
            count = "1 episode was" if self.count == 1 else f"{self.count} episodes were"
            print(f"{count} left out; the first: {printable(self.first)}", file=sys.stderr)


def _format(given: str | None, path: Path) -> str:
    kind = given or SUFFIXES.get(path.suffix)
    if kind is None:
        raise BadArgument(f"the format of {path} cannot be guessed from its name; give --format.")
    if kind == MODEL:
        raise BadArgument("hf is the format of a model, which holds no episodes.")
    check_argument("format", kind, kind in FORMATS, f"{', '.join(FORMATS)}; for a model: {MODEL}")
    return kind
