"""Golden transcripts: one short file per id, so that a changed prompt is a visible difference.

Prompts are behaviour: agents are trained on them. ``record`` writes the file, ``compare`` shows the
differences.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from gem import registry
from gem.content import text_of
from gem.core import Env
from gem.files import read_text, replace_file
from gem.testing.transcripts import transcript

FOLDER = Path("tests/golden")
"""The folder of golden transcripts in a checkout."""

MAX_TURNS = 12
"""The most turns of a stored transcript."""

_PLAYERS: tuple[tuple[str, int, Callable[[Env], Any]], ...] = (
    ("solver", 0, lambda env: env.solve()),
    ("random", 1, lambda env: env.sample_random_action()),
)


def record(env_id: str, folder: Path = FOLDER) -> Path:
    """Write the golden transcript of `env_id` and return the file. Raises StoreError."""
    path = _path(env_id, folder)
    with replace_file(path, parents=True) as partial:
        partial.write_text("".join(line + "\n" for line in _lines(env_id)), encoding="utf-8")
    return path


def compare(env_id: str, folder: Path = FOLDER) -> str:
    """Return a unified diff of `env_id` and its golden transcript; ``""`` if they are equal.

    Raises:
        OSError: when there is no golden transcript that can be read.
    """
    path = _path(env_id, folder)
    kept = read_text(path).splitlines()
    return "\n".join(difflib.unified_diff(kept, list(_lines(env_id)), path.name, "now", lineterm="", n=1))


def _path(env_id: str, folder: Path) -> Path:
    return folder / f"{env_id.replace(':', '.')}.jsonl"


def _lines(env_id: str) -> Iterator[str]:
    """Yield the lines of the file; of a fetched world only their digests, as its texts are not gem's."""
    family = registry.FAMILIES.get(env_id.partition(":")[0])
    for line in _play(env_id):
        yield _line(sha256=sha256(line.encode()).hexdigest()) if family and family.world else line


def _play(env_id: str) -> Iterator[str]:
    """Yield an episode by the solver and one by the random actor: a line per observation."""
    for player, seed, choose in _PLAYERS:
        spec = registry.spec(env_id)
        if player == "solver" and spec.solver == "none" and len(spec.seats) == 1:
            continue
        with registry.make(env_id) as env:
            (obs, info), *turns = transcript(env, seed, MAX_TURNS, choose)
        yield _line(player=player, seed=seed, observation=_each(text_of, obs), info=info)
        for action, obs, reward, terminated, truncated, info in turns:
            end: Any
            if isinstance(terminated, dict):
                end = {seat: _end(terminated[seat], truncated[seat]) for seat in terminated}
            else:
                end = _end(terminated, truncated)
            # nine digits: the last ones of a logarithm are the platform's
            paid = _each(lambda amount: round(amount, 9), reward)
            yield _line(action=action, observation=_each(text_of, obs), reward=paid, end=end, info=info)


def _end(terminated: bool, truncated: bool) -> str:
    return "terminated" if terminated else "truncated" if truncated else ""


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """Return ``function(value)``, by seat where there are several."""
    if isinstance(value, dict):
        return {seat: function(own) for seat, own in value.items()}
    return function(value)


def _line(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, default=str)
