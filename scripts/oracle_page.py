"""Write the tables of the guides on estimators: ``python scripts/oracle_page.py [ALGORITHM ...]``.

With names, only the rows of these are measured again; a new algorithm gets its row in the order of the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gem.evals.reports import markdown_table
from gem.train.oracle import HEADS, judge
from gem.train.oracle.cases import CASES

GUIDES = Path(__file__).parents[1] / "docs/guides"
PAGES = tuple(GUIDES / f"estimators{part}.md" for part in ("", "_bias", "_discount"))


class Table(NamedTuple):
    """A table of the page: its rows are of every algorithm at every size of a batch and every discount."""

    env: str
    algorithms: tuple[str, ...]
    gammas: tuple[float, ...] = (0.9,)
    batches: tuple[int | None, ...] = (None,)

    def rows(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the cells of the rows of these algorithms."""
        own = [name for name in self.algorithms if name in names]
        return [
            row.cells()
            for batch in self.batches
            for row in (judge((self.env,), own, self.gammas, batch=batch, samples=400) if own else ())
        ]

    def place(self, cells: Sequence[str]) -> tuple[int, int, int]:
        """Return the place of a row in the table."""
        name, gamma, batch = cells[:3]
        return self.gammas.index(float(gamma)), self.algorithms.index(name), int(batch)


TABLES = {
    "algorithms": Table("early", tuple(CASES)),
    "batches": Table("early", ("rebn", "ppo"), batches=(2, 4, 16, 64)),
    "discounts": Table("early", ("reinforce", "rebn", "rloo", "grpo", "ppo"), (0.3, 0.9, 1.0)),
    "blind": Table("blind", ("reinforce", "rebn", "rloo"), (0.3, 0.9, 1.0)),
}
"""The tables, by their names in the marks of a page."""


def fill_page(page: str, names: Sequence[str] = ()) -> str:
    """Return the page with the rows of the named algorithms measured again; without names, of all."""
    for name, table in TABLES.items():
        pattern = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
        match = pattern.search(page)
        if match is None:  # it stands on another page
            continue
        before = [tuple(line[2:-2].split(" | ")) for line in match[0].splitlines() if line.startswith("| ")]
        rows = [
            cells for cells in before[2:] if names and cells[0] in table.algorithms and cells[0] not in names
        ]
        rows += table.rows(names or table.algorithms)
        lines = markdown_table(HEADS, sorted(rows, key=table.place)) + "\n"
        page = pattern.sub(lambda match, lines=lines: match[1] + lines + match[2], page)
    return page


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - set(CASES))
    if unknown:
        sys.exit(f"oracle_page.py: {', '.join(unknown)}: unknown. Accepted: {', '.join(CASES)}.")
    for path in PAGES:
        path.write_text(fill_page(path.read_text(encoding="utf-8"), sys.argv[1:]), encoding="utf-8")
