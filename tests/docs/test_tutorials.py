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
SHOWN = (
    "quickstart.md",
    "code.md",
    "data.md",
    "graders.md",
    "tools.md",
    "search.md",
    "terminal.md",
    "database.md",
    "sandbox.md",
    "multiagent.md",
    "agents.md",
)
PAGES = [ROOT / "README.md", *(ROOT / "docs" / name for name in SHOWN)]
PAGES += sorted((ROOT / "docs/tutorials").glob("*.md")) + sorted((ROOT / "docs/guides").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_does_what_it_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gem.registry.ENV_REGISTRY", ENV_REGISTRY.copy())  # pages register ids of their own
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # classes of the page find their module
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) == text.count("```python\n")
    for block in blocks:
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
