"""Every row of docs/guides/upgrading.md and upgrading_unchanged.md names tests that are there."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GUIDES = HERE.parents[1] / "docs/guides"
ROWS = [
    line
    for page in ("upgrading.md", "upgrading_unchanged.md")
    for line in (GUIDES / page).read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.endswith("| tests |")
]


def functions_of(module):
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_a_row_has_three_cells_and_tests_that_are_there(row):
    cells = re.split(r"(?<!\\) \| ", row.strip("| "))
    assert len(cells) == 3
    named = re.findall(r"`(test_\w+)::(test_\w+)`", cells[2])
    assert named
    for module, function in named:
        assert function in functions_of(module)


def test_there_are_rows_of_every_kind():
    assert len(ROWS) > 50
