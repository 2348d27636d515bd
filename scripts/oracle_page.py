"""Write the tables of docs/guides/estimators.md: ``python scripts/oracle_page.py [ALGORITHM ...]``.

With names, only the rows of these are measured again; a new algorithm gets its row in the order of the table.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from gem.train.oracle import HEADS, judge
from gem.train.oracle.cases import CASES

PAGE = Path(__file__).parents[1] / "docs/guides/estimators.md"
TABLES = {
    "algorithms": (tuple(CASES), (0.9,)),
    "discounts": (("reinforce", "rebn", "rloo", "grpo", "ppo"), (0.3, 0.9, 1.0)),
}
"""The algorithms and discounts of each table, by its name in the marks of the page; all in `early`."""


def fill_page(page: str, names: Sequence[str] = ()) -> str:
    """Return the page with the rows of the named algorithms measured again; without names, of all."""
    for table, (algorithms, gammas) in TABLES.items():
        pattern = re.compile(rf"(<!-- {table}: [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
        match = pattern.search(page)
        assert match, f"the page has no marks of {table}"
        rows = dict(re.findall(r"^(\| [\w-]+ \| [\d.]+ \|)(.*)$", match[0], re.MULTILINE)) if names else {}
        again = [name for name in algorithms if not names or name in names]
        for row in judge(envs=("early",), algorithms=again, gammas=gammas) if again else ():
            line = f"| {' | '.join(row.cells())} |"
            start = re.match(r"\| [\w-]+ \| [\d.]+ \|", line)
            assert start, line
            rows[start[0]] = line[start.end() :]
        order = [f"| {name} | {gamma:g} |" for gamma, name in product(gammas, algorithms)]
        lines = [f"| {' | '.join(cells)} |" for cells in (HEADS, ("---",) * len(HEADS))]
        lines += [key + rows[key] for key in order if key in rows]
        page = pattern.sub(lambda match, lines=lines: match[1] + "\n".join(lines) + "\n" + match[2], page)
    return page


if __name__ == "__main__":
    unknown = sorted(set(sys.argv[1:]) - set(CASES))
    if unknown:
        sys.exit(f"oracle_page.py: {', '.join(unknown)}: unknown. Accepted: {', '.join(CASES)}.")
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), sys.argv[1:]), encoding="utf-8")
