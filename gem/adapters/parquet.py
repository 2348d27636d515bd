"""Parquet files of episodes: with one row per episode, which can be read back, or one row per turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from gem.adapters.records import whole_file
from gem.adapters.rows import Per, episode_in_row, rows
from gem.errors import BadArgument, MissingData, needs_extra
from gem.files import open_file
from gem.record import Episode

with needs_extra("a Parquet file", "pyarrow", "data"):
    import pyarrow as pa
    from pyarrow import parquet

AT_ONCE = 256
"""The number of rows held in memory, when writing and reading."""

_TEXT, _LONG, _FLOAT = pa.string(), pa.int64(), pa.float64()
EPISODES = pa.schema(
    [
        ("id", _TEXT),
        ("run", _TEXT),
        ("job", _TEXT),
        ("sample", _LONG),
        ("attempt", _LONG),
        ("group", _TEXT),
        ("env", _TEXT),
        ("seed", _LONG),
        ("task", _TEXT),
        ("agent", _TEXT),
        ("model", _TEXT),
        ("policy_version", _LONG),
        ("stop", _TEXT),
        ("verdict", _TEXT),
        ("success", pa.bool_()),
        ("reward", _FLOAT),
        ("terminated", pa.bool_()),
        ("error", _TEXT),
        ("turns", _LONG),
        ("rewards", pa.list_(_FLOAT)),
        ("messages", pa.list_(pa.struct([("role", _TEXT), ("content", _TEXT)]))),
        ("episode", pa.large_string()),
        ("settings", _TEXT),
    ]
)
TURNS = pa.schema(
    [
        ("episode", _TEXT),
        ("number", _LONG),
        ("seat", _TEXT),
        ("observation", _TEXT),
        ("action", _TEXT),
        ("reasoning", _TEXT),
        ("tool_calls", _LONG),
        ("finish", _TEXT),
        ("reward", _FLOAT),
        ("value", _FLOAT),
        ("policy_version", _LONG),
        ("prompt_tokens", _LONG),
        ("completion_tokens", _LONG),
        ("info", _TEXT),
    ]
)
TOKENS = pa.schema(
    [
        ("parent", _LONG),
        ("kept", _LONG),
        ("new_ids", pa.list_(pa.int32())),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("mask", pa.list_(pa.uint8())),
    ]
)


def write_parquet(
    episodes: Iterable[Episode], path: str | Path, per: Per = "episode", *, tokens: bool = True
) -> int:
    """Write episodes as a Parquet file, and return how many rows it has.

    Args:
        episodes: any number; a few hundred rows are held at once.
        path: the file.
        per: one row per ``episode``, or per ``turn``.
        tokens: False leaves out token ids, log probabilities and masks.

    Raises:
        BadArgument: when the file already exists. StoreError: when it cannot be written.
    """
    schema = EPISODES
    if per == "turn":
        schema = pa.schema([*TURNS, *(TOKENS if tokens else ())])
    count, made = 0, rows(episodes, per, tokens=tokens)
    with whole_file(Path(path)) as part, parquet.ParquetWriter(part, schema, compression="zstd") as file:
        while batch := list(islice(made, AT_ONCE)):
            file.write_table(pa.Table.from_pylist(batch, schema))
            count += len(batch)
    return count


def read_parquet(path: str | Path) -> Iterator[Callable[[], Episode]]:
    """Yield a function for each episode row that `write_parquet` wrote, which reads it when called.

    A damaged row does not affect the others: only its call raises BadArgument.

    Raises:
        BadArgument: for a file that is not Parquet, or has other columns. MissingData: when there is no file.
    """
    try:
        open_file(path).close()  # Arrow would wait for the writer of a pipe
        file = parquet.ParquetFile(path)
    except FileNotFoundError as error:
        raise MissingData(f"{path}: no such file.") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise BadArgument(f"{path} is not a Parquet file: {error}") from error
    number = 0
    with file:
        if not {"episode", "settings"} <= set(file.schema_arrow.names):
            raise BadArgument(
                f"{path} holds no episodes; accepted: a file with a row per episode that gem wrote, with the "
                "columns episode and settings."
            )
        try:
            for batch in file.iter_batches(AT_ONCE, columns=["episode", "settings"]):
                for row in batch.to_pylist():
                    number += 1
                    yield partial(episode_in_row, row, f"{path}, row {number}")
        except (pa.ArrowInvalid, OSError) as error:
            raise BadArgument(f"{path} is damaged after row {number}: {error}") from error
