"""Convert episodes and turns to flat rows, and write and read them as JSON lines.

A row of an episode holds columns for tables, and the episode's own record (`episode`, `settings`), from which
it can be read back. A row of a turn cannot be read back.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from gem import codec
from gem.adapters.records import (
    each_line,
    episode_of,
    escape_text,
    long_or_none,
    next_messages,
    whole_file,
    write_lines,
)
from gem.content import Message, quote_formula, text_of
from gem.errors import BadArgument, check_argument
from gem.evals.usage import count_tokens
from gem.history import CHAT, messages
from gem.record import Episode

Per = Literal["episode", "turn"]
PER: tuple[Per, ...] = ("episode", "turn")

SHEET = (
    *("env", "seed", "task", "sample", "agent", "model", "success", "reward", "verdict", "stop", "turns"),
    *("first_observation", "last_action", "prompt_tokens", "completion_tokens", "error"),
    *("id", "run", "job", "attempt", "group", "policy_version"),
)
"""The columns of `write_csv`."""


def episode_row(episode: Episode, *, tokens: bool = True) -> dict[str, Any]:
    """Return an episode as a row.

    `reward` and `success` are None without a verdict. `messages` is the conversation of an episode with one
    seat, as roles and text; None if there are several seats.

    Args:
        episode: any episode.
        tokens: False leaves token ids and log probabilities out of its record.

    Raises:
        BadArgument: for an episode that an episode store would not accept either.
    """
    run, error = episode.run, episode.error
    return {
        "id": escape_text(episode.id),
        "run": escape_text(run.id),
        "job": escape_text(episode.job),
        "sample": episode.sample,
        "attempt": episode.attempt,
        "group": escape_text(episode.group),
        "env": escape_text(episode.spec),
        "seed": long_or_none(episode.seed),
        "task": escape_text(episode.task_id),
        "agent": escape_text(run.agent),
        "model": None if run.model is None else escape_text(run.model),
        "policy_version": episode.policy_version,
        "stop": str(episode.stop),
        "verdict": str(episode.verdict),
        "success": episode.success,
        "reward": episode.earned() if episode.scored else None,
        "terminated": episode.terminated,
        "error": None if error is None else escape_text(f"{error.boundary}: {error.type}: {error.message}"),
        "turns": len(episode.turns),
        "rewards": [turn.reward for turn in episode.turns],
        "messages": None if episode.several else _conversation(episode),
        "episode": codec.encode(episode, tokens=tokens).decode(),
        "settings": codec.encode_run(run).decode(),
    }


def turn_rows(episode: Episode, *, tokens: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the turns of an episode as rows; `parent` is the number of an earlier turn of the episode.

    The ids of a prompt are the first `kept` of the parent's prompt and answer, then `new_ids`.
    """
    places: dict[int, int] = {}
    for number, turn in enumerate(episode.turns):
        answer, (prompt, completion) = turn.said, count_tokens(turn)
        row: dict[str, Any] = {
            "episode": escape_text(episode.id),
            "number": number,
            "seat": escape_text(turn.seat),
            "observation": escape_text(text_of(turn.observation)),
            "action": None if turn.action is None else escape_text(turn.action),
            "reasoning": None if answer.reasoning is None else escape_text(answer.reasoning),
            "tool_calls": len(answer.tool_calls),
            "finish": escape_text(turn.finish),
            "reward": turn.reward,
            "value": turn.value,
            "policy_version": turn.policy_version,
            "prompt_tokens": long_or_none(prompt),
            "completion_tokens": long_or_none(completion),
            "info": json.dumps(codec.plain(turn.info)),
        }
        if tokens:
            row |= {
                "parent": places.get(id(turn.parent)),
                "kept": turn.kept,
                "new_ids": list(turn.new_ids),
                "token_ids": list(turn.token_ids),
                "logprobs": None if turn.logprobs is None else list(turn.logprobs),
                "mask": list(turn.mask),
            }
        places[id(turn)] = number
        yield row


def rows(
    episodes: Iterable[Episode], per: Per = "episode", *, tokens: bool = True
) -> Iterator[dict[str, Any]]:
    """Yield the rows of episodes: one for each episode, or for each turn.

    Raises:
        BadArgument: for another `per`.
    """
    check_argument("per", per, per in PER, ", ".join(PER))
    for episode in episodes:
        if per == "turn":
            yield from turn_rows(episode, tokens=tokens)
        else:
            yield episode_row(episode, tokens=tokens)


def write_jsonl(
    episodes: Iterable[Episode], path: str | Path, per: Per = "episode", *, tokens: bool = True
) -> int:
    """Write episodes as one JSON object per line, and return how many lines there are.

    Numbers that JSON cannot hold (NaN, infinities) are null in the columns; the record keeps them.

    Raises:
        BadArgument: when the file already exists. StoreError: when it cannot be written.
    """
    return write_lines(rows(episodes, per, tokens=tokens), path)


def write_csv(episodes: Iterable[Episode], path: str | Path) -> int:
    """Write a row per episode for a spreadsheet, and return how many; it cannot be read back.

    In place of the conversation it has the first observation, the last action and the tokens of all turns, as
    the server counted them or the agent kept them; a cell is empty where those of a turn are unknown.
    Text that a spreadsheet would take for a formula begins with an apostrophe: a model may have written it.

    Raises:
        BadArgument: when the file already exists. StoreError: when it cannot be written.
    """
    count = 0
    with whole_file(Path(path)) as part, part.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, SHEET)
        table.writeheader()
        for episode in episodes:
            table.writerow({name: quote_formula(value) for name, value in _sheet_row(episode).items()})
            count += 1
    return count


def _sheet_row(episode: Episode) -> dict[str, Any]:
    row = episode_row(episode, tokens=False)
    first, last = (episode.turns[0], episode.turns[-1]) if episode.turns else (None, None)
    counts = [count_tokens(turn) for turn in episode.turns if turn.action is not None]
    return {name: row[name] for name in SHEET if name in row} | {
        "first_observation": "" if first is None else escape_text(text_of(first.observation)),
        "last_action": "" if last is None or last.action is None else escape_text(last.action),
        "prompt_tokens": _sum_known(prompt for prompt, _ in counts),
        "completion_tokens": _sum_known(completion for _, completion in counts),
    }


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None where a count is unknown."""
    known = [*counts]
    return None if None in known else sum(filter(None, known))


def read_jsonl(path: str | Path) -> Iterator[Callable[[], Episode]]:
    """Yield a function for each episode row that `write_jsonl` wrote, which reads it when called.

    A damaged row does not affect the others: only its call raises BadArgument.
    """
    return each_line(path, episode_in_row)


def episode_in_row(row: object, where: str) -> Episode:
    """Return the episode of a row.

    Raises:
        BadArgument: for a row that is not one of `episode_row`. SchemaMismatch: for another schema.
    """
    lines = [row.get(name) for name in ("episode", "settings")] if isinstance(row, Mapping) else [None]
    texts = [line.encode(errors="surrogatepass") for line in lines if isinstance(line, str)]
    if len(texts) != 2:
        raise BadArgument(
            f"{where} holds no record of an episode; accepted: a file that gem wrote, one row per episode, "
            "with the columns episode and settings."
        )
    return episode_of(*texts)


def _conversation(episode: Episode) -> list[dict[str, str]]:
    """Return the conversation as roles and text."""
    conversation: list[Message] = []
    for seat in episode.seats[:1]:
        turns = episode.exchanges(seat)
        conversation += messages(turns[:1], CHAT) if turns else ()
        for turn, answers in next_messages(episode, seat):
            conversation += [turn.said, *answers]
    system = episode.run.history.system if episode.run.history is not None else None
    head = [Message("system", system)] if system else []
    return [
        {"role": message.role, "content": escape_text(message.text)} for message in (*head, *conversation)
    ]
