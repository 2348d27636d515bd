"""The card of an environment: the results of an audit, as text and as data."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from struct import unpack
from typing import Any, NamedTuple

from gem.content import Image, Obs
from gem.errors import BadArgument, reason
from gem.files import read_json, replace_file
from gem.statistics import Interval, wilson
from gem.testing.policies import IGNORANT

TOKEN = re.compile(r"[^\W\d_]{1,6}|\d{1,3}|[^\w\s]|_|\n")
"""A pattern that approximates a token of text: up to six letters, up to three digits, any other sign, a
line break."""

PATCH = 28
"""The side in pixels of the square that counts as a token of a picture, as in Qwen2-VL (arXiv 2409.12191)."""

PNG = b"\x89PNG\r\n\x1a\n"


def tokens(obs: Obs) -> int:
    """Return about how many tokens an observation has; see TOKEN and PATCH. Pictures must be PNG."""
    if isinstance(obs, str):
        return len(TOKEN.findall(obs))
    count = 0
    for part in obs:
        if not isinstance(part, Image):
            count += len(TOKEN.findall(part.text))
        elif part.data.startswith(PNG):
            width, height = unpack(">II", part.data[16:24])
            count += ceil(width / PATCH) * ceil(height / PATCH)
    return count


class Check(NamedTuple):
    """One check of the audit: its result, and for a finding, what to change.

    `open`: True for an open finding, False if nothing is wrong, None if the check does not apply.
    """

    name: str
    open: bool | None
    seen: str
    change: str = ""


class Spread(NamedTuple):
    """The minimum, median and maximum of some numbers."""

    least: int
    median: int
    most: int

    def __str__(self) -> str:
        """Return the median, with the range if there is one."""
        return str(self.median) if self.least == self.most else f"{self.median} ({self.least} to {self.most})"


@dataclass(frozen=True, slots=True)
class Played:
    """A policy's episodes: their number, success rate, mean return, and the low end of its 95% interval.

    `best`: the highest return of an episode. `says`: the beginning of the first answer. `rate`: the success
    rate with its interval.
    """

    episodes: int
    success: float
    reward: float
    low: float
    best: float
    turns: Spread
    says: str = ""

    @property
    def rate(self) -> Interval:
        """The success rate with its 95% Wilson interval."""
        return wilson(round(self.success * self.episodes), self.episodes)


@dataclass(frozen=True, slots=True)
class Card:
    """The result of an audit of an environment.

    `distinct` of the `dealt` instances are different. `first` and `later`: tokens of the first observation
    and of later ones, under legal random play.
    """

    env: str
    solver: str
    distinct: int
    dealt: int
    first: Spread
    later: Spread | None
    policies: dict[str, Played] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()

    @property
    def findings(self) -> tuple[Check, ...]:
        """The checks that are open."""
        return tuple(check for check in self.checks if check.open)

    @property
    def ignorant(self) -> dict[str, float]:
        """The mean returns of the policies that know nothing."""
        return {name: self.policies[name].reward for name in IGNORANT if name in self.policies}

    @property
    def ok(self) -> bool:
        """Whether no finding is open."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the card as plain data."""
        data = asdict(self)
        data["checks"] = [check._asdict() for check in self.checks]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Card:
        """Return the card from the data of to_json()."""
        kept = dict(data)
        kept["policies"] = {
            name: Played(**{**played, "turns": Spread(*played["turns"])})
            for name, played in data["policies"].items()
        }
        kept["checks"] = tuple(Check(**check) for check in data["checks"])
        kept["first"] = Spread(*data["first"])
        kept["later"] = data["later"] and Spread(*data["later"])
        return cls(**kept)

    def __str__(self) -> str:
        """Return the card as lines of text."""
        wide = max(map(len, self.policies), default=0)
        lines = [
            f"{self.env}: {'no open finding' if self.ok else f'{len(self.findings)} OPEN'}",
            f"  instances: {self.distinct} distinct in {self.dealt} seeds",
            f"  tokens: {self.first} at first" + (f", {self.later} per later turn" if self.later else ""),
            *(
                f"  {name:<{wide}}  return {played.reward:6.3f}  success {played.success:6.1%} "
                f"({played.rate.low:.0%} to {played.rate.high:.0%})  turns {played.turns}  "
                f"({played.episodes} episodes)"
                for name, played in self.policies.items()
            ),
        ]
        for name, still_open, result, change in self.checks:
            mark = "OPEN " if still_open else "ok   " if still_open is False else "n/a  "
            lines.append(f"  {mark}{name}: {result}")
            if still_open:
                lines.append(f"       -> {change}")
        return "\n".join(lines)


def read_cards(path: Path) -> dict[str, Card]:
    """Return the cards in a file, by environment.

    Raises:
        BadArgument: when it holds no cards.
    """
    try:
        return {name: Card.from_json(card) for name, card in read_json(path).items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadArgument(
            f"{path} holds no cards ({reason(error)}); name a new file, or one of `audit --json`."
        ) from None


def write_cards(cards: Mapping[str, Card], path: Path) -> None:
    """Write cards as JSON, sorted by environment, with a line for each part, so that diffs are readable.

    A crash leaves either the old file or the new one. Missing folders are created.
    """
    parts = {
        name: ",\n".join(
            f"  {json.dumps(key)}: {json.dumps(part)}" for key, part in cards[name].to_json().items()
        )
        for name in sorted(cards)
    }
    text = ",\n".join(f" {json.dumps(name)}: {{\n{lines}\n }}" for name, lines in parts.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as partial:
        partial.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
