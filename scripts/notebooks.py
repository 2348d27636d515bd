"""Make the notebooks of the Get started pages: ``python scripts/notebooks.py``.

A page of docs/start becomes examples/notebooks/NAME.ipynb. Its Python blocks become code cells, a ``text``
block after one becomes the stored output of the cell, and everything else becomes Markdown.
tests/docs/test_notebooks.py runs the cells.
"""

from __future__ import annotations

import ast
import json
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs/start"
NOTEBOOKS = ROOT / "examples/notebooks"
NAMES = {"train": "gem-gym[train]", "evaluate": "gem-gym", "environment": "gem-gym"}
"""The pages, and what has to be installed for each."""

BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:\s]+)((?:#[^)\s]*)?)\)")
SELF = re.compile(r"^This page is also .*\.ipynb.*\n", re.MULTILINE)
"""The line of a page that links to its notebook."""


def main() -> None:
    """Write every notebook."""
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        path(name).write_text(written(name), encoding="utf-8")


def path(name: str) -> Path:
    """Return the path of a page's notebook."""
    return NOTEBOOKS / f"{name}.ipynb"


def written(name: str) -> str:
    """Return the notebook of a page as the text of its file."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    about = f"Made from `docs/start/{name}.md` by `scripts/notebooks.py`. "
    about += f"It needs `{NAMES[name]}` and no network.\n"
    page, found = SELF.subn(about, page)
    if found != 1:
        raise ValueError(f"docs/start/{name}.md: no line 'This page is also ...' that links to its notebook.")
    notebook = {
        "cells": cells(name, page),
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def cells(name: str, page: str) -> list[dict[str, Any]]:
    """Return the cells of a page, in order."""
    made: list[dict[str, Any]] = []

    def add(kind: str, text: str, **more: Any) -> None:
        if text.strip():
            cell = {"cell_type": kind, "id": f"{name}-{len(made) + 1}", "metadata": {}, **more}
            made.append({**cell, "source": lines(text.strip("\n"))})

    end = 0
    for count, block in enumerate(BLOCK.finditer(page), start=1):
        add("markdown", from_here(page[end : block.start()]))
        shown = block[2]
        outputs = [{"name": "stdout", "output_type": "stream", "text": lines(shown)}] if shown else []
        add("code", quiet(block[1]), execution_count=count, outputs=outputs)
        end = block.end()
    add("markdown", from_here(page[end:]))
    return made


def quiet(code: str) -> str:
    """Return code that does not show its last value: a notebook would show it, a page does not."""
    last = ast.parse(code).body[-1]
    shows = isinstance(last, ast.Expr) and not ast.unparse(last).startswith("print(")
    return f"{code.rstrip()};\n" if shows else code


def lines(text: str) -> list[str]:
    """Return a text in the form of notebooks: lines with their line ends."""
    return text.splitlines(keepends=True)


def from_here(text: str) -> str:
    """Return Markdown of a page with its relative links adapted to a notebook."""

    def link(found: re.Match[str]) -> str:
        target = os.path.relpath(PAGES / found[1], NOTEBOOKS)
        return f"]({Path(target).as_posix()}{found[2]})"

    return LINK.sub(link, text)


if __name__ == "__main__":
    main()
