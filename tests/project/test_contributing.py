import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = sorted(set(re.findall(r"`((?:gem|tests|docs|scripts|bench|baselines)/[\w./]*[\w/])`", TEXT)))
TARGETS = sorted(set(re.findall(r"`make ([a-z-]+)", TEXT)))


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_a_newcomer_is_sent_to_exists(path):
    assert (ROOT / path).exists()


def test_many_paths_are_named():
    assert len(PATHS) > 50


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_that_a_newcomer_is_told_to_run_exists(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_packages_of_the_table_of_layers_stand_in_the_order_that_lint_enforces():
    layers = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("layers = [")[2].partition("]")[0]
    )
    depth = {
        name: row
        for row, line in enumerate(layers.splitlines())
        for name in re.findall(r"\(gem\.(\w+)\)", line)
    }
    table = TEXT.partition("### Who may import whom")[2].partition("\n## ")[0]
    rows = [
        re.findall(r"`gem/(\w+?)(?:\.py)?`", line) for line in table.splitlines() if line.startswith("| ")
    ][1:]
    named = [
        {depth[name] for name in row if name in depth} for row in rows if any(name in depth for name in row)
    ]
    assert len(named) == 7
    assert all(max(above) < min(below) for above, below in itertools.pairwise(named))
