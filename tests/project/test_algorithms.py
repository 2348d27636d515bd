"""An algorithm is a value: nothing but its table compares its name with a text."""

import ast
from pathlib import Path

import pytest

from gem.estimators import ALGORITHMS

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "gem/estimators/algorithms.py"
FILES = [*sorted((ROOT / "gem").rglob("*.py")), *sorted((ROOT / "scripts").glob("*.py"))]


def names_compared(tree):
    """Yield where a text that is an algorithm's name is compared, looked up, or listed as a choice."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            compared = [node.value]
        elif isinstance(node, ast.Dict):  # a table by algorithm
            compared = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Subscript):  # Literal["grpo"], TABLE["grpo"]
            compared = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            compared = node.args[:1]
        else:
            continue
        for each in compared:
            for inner in ast.walk(each):
                if isinstance(inner, ast.Constant) and inner.value in ALGORITHMS:
                    yield inner.lineno, inner.value


@pytest.mark.parametrize(
    "code",
    [
        "config.algorithm == 'grpo'",
        "name in ('rebn', 'ppo')",
        "{'gspo': 'grpo'}.get(name)",
        "Literal['reinforce', 'rloo']",
        "FITTING['ppo']",
        "match name:\n    case 'rloo': pass",
    ],
)
def test_a_comparison_is_found(code):
    assert list(names_compared(ast.parse(code)))


@pytest.mark.parametrize("code", ["algorithm = 'rebn'", "Case({'algorithm': 'ppo'})", "__all__ = ['grpo']"])
def test_what_only_gives_a_name_is_none(code):
    assert not list(names_compared(ast.parse(code)))


def test_nothing_but_the_table_compares_the_name_of_an_algorithm():
    texts = {file: file.read_text(encoding="utf-8") for file in FILES}
    found = [
        f"{file.relative_to(ROOT)}:{line} {name}"
        for file, text in texts.items()
        if file != TABLE and any(name in text for name in ALGORITHMS)
        for line, name in names_compared(ast.parse(text))
    ]
    assert len(FILES) > 400
    assert found == []
