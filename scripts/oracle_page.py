"""Write the tables of docs/guides/estimators.md: python scripts/oracle_page.py."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from gem.train.oracle import HEADS, Row, judge

PAGE = Path(__file__).parents[1] / "docs/guides/estimators.md"
TABLES = {
    "algorithms": {"envs": ("early",)},
    "discounts": {
        "envs": ("early",),
        "algorithms": ("reinforce", "rebn", "rloo", "grpo", "ppo"),
        "gammas": (0.3, 0.9, 1.0),
    },
}
"""What judge() is given, by the name in the page's marks."""


def table(rows: Iterable[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = [HEADS, ("---",) * len(HEADS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def written(page: str) -> str:
    """Return the page with new tables."""
    for name, given in TABLES.items():
        made = f"<!-- {name}: scripts/oracle_page.py -->\n{table(judge(**given))}\n<!-- end -->"
        page, found = re.subn(rf"<!-- {name}: .*?<!-- end -->", made, page, flags=re.DOTALL)
        assert found == 1, name
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
