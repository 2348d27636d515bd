"""What the documentation shows is run: the Python blocks of a page, in order, in one namespace.

Where a ``text`` block follows a Python block directly, it is exactly what that block prints.
"""

import contextlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from gem.errors import MissingExtra, ToolError
from gem.registry import ENV_REGISTRY
from gem.sandbox import SandboxFailed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {"sampling_servers.md"}
"""Pages that need a server: tests/agents/test_token_server.py has one, and runs them."""
AWAY = ("from openenv.core import", "import verifiers.v1 as vf", "from inspect_ai.scorer import")
"""Packages that are not installed here; tests/frameworks/test_openenv_server.py runs the first."""
CODE = re.compile(r"^[ \t]*(?:```|~~~)[ ]*(?:python|py|pycon|python3)\b", re.MULTILINE)
RUN = [
    page
    for page in PAGES
    if CODE.search(page.read_text("utf-8"))
    and page.name not in ELSEWHERE
    and page.parent != ROOT / "docs/recipes"  # test_recipes.py runs these, with their commands
]
GOES_ON = {
    "check_environment.md": "own_environment.md",
    "own_tasks.md": "own_environment.md",
    "own_tool.md": "tools.md",
    "power.md": "comparing.md",
    "rubrics_elsewhere.md": "rubrics.md",
    "store.md": "agents_and_episodes.md",
    "suites.md": "evaluating.md",
    "training_settings.md": "training.md",
}
"""Guides whose code goes on from that of another, as their first paragraph says."""
QUICK = {"README.md", "code.md", "endpoints.md", "evaluate.md", "index.md", "tools.md", "vectorised.md"}
"""Pages whose blocks are fast: some of each folder."""
BLOCK = re.compile(
    r"^```python(?: title=\S+)?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)


def test_pages_with_code_are_found():
    assert {"README.md", "index.md", "training.md", "evaluating.md"} <= {page.name for page in RUN}
    assert {page.name for page in PAGES} >= ELSEWHERE


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.system] * (page.name not in QUICK)) for page in RUN],
    ids=lambda page: page.relative_to(ROOT).with_suffix("").as_posix(),
)
def test_page_does_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())  # pages register ids of their own
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # classes of the page find their module
    if page.name in GOES_ON:
        assert "code goes on from there" in page.read_text(encoding="utf-8").split("\n## ")[0]
        run_blocks(page.with_name(GOES_ON[page.name]), module)
    run_blocks(page, module)


def run_blocks(page, module):
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == len(CODE.findall(text)), (
        "a block that no test would run: indented, or not ```python"
    )
    for block in blocks:
        if any(package in block[1] for package in AWAY):
            continue
        lines_above = text.count("\n", 0, block.start(1))
        code = compile("\n" * lines_above + block[1], str(page), "exec")  # errors name the page's line
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(code, vars(module))  # noqa: S102  the repository's own pages
            except (MissingExtra, SandboxFailed) as missing:
                pytest.skip(str(missing))
            except ToolError as refused:
                if "no shell" not in str(refused):
                    raise
                pytest.skip(str(refused))
        if block[2] is not None:
            assert printed.getvalue() == block[2], f"{page.name}, line {lines_above + 1}"
