"""The notebooks are made of their pages, and print what is stored with their cells."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = ("train", "evaluate", "environment")

# As a notebook's kernel runs cells: in __main__, one after another, below an event loop that runs.
KERNEL = """
import asyncio, contextlib, io, json, sys

async def _play(cells):
    printed = []
    for count, cell in enumerate(cells, start=1):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(cell, f"cell {count}", "exec"), vars(sys.modules["__main__"]))
        printed.append(out.getvalue())
    return printed

json.dump(asyncio.run(_play(json.load(sys.stdin))), sys.stdout)
"""


@pytest.fixture
def notebooks(script):
    return script("notebooks")


def test_there_is_a_notebook_of_each_page_and_no_other(notebooks):
    assert {path.stem for path in notebooks.NOTEBOOKS.iterdir()} == set(NAMES) == set(notebooks.NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_what_its_page_gives(notebooks, name):
    assert notebooks.path(name).read_text("utf-8") == notebooks.written(name), "run scripts/notebooks.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_all_of_its_page(notebooks, name):
    """Every heading, block of code and output of the page, and links that lead somewhere."""
    page = (notebooks.PAGES / f"{name}.md").read_text("utf-8")
    cells = json.loads(notebooks.path(name).read_text("utf-8"))["cells"]
    markdown = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    prose = re.sub(r"(?s)```.*?```", "", page)
    assert re.findall(r"^#+ .*", prose, re.M) == [
        line for line in re.findall(r"^#+ .*", markdown, re.M) if line in prose
    ]
    assert len(code) == page.count("```python\n")
    assert sum(bool(cell["outputs"]) for cell in code) == page.count("```text\n")
    assert page.count("```sh\n") == markdown.count("```sh\n")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", markdown) if "://" not in link]
    assert links
    assert [link for link in links if not (notebooks.NOTEBOOKS / link).is_file()] == []


@pytest.mark.system
@pytest.mark.parametrize("name", NAMES)
def test_cells_print_what_is_stored_with_them(notebooks, name, tmp_path):
    if name == "train":
        pytest.importorskip("torch")
    cells = json.loads(notebooks.path(name).read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(["".join(cell["source"]) for cell in code]),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        "".join(line for output in cell["outputs"] for line in output["text"]) for cell in code
    ]


def test_a_cell_shows_nothing_that_its_page_does_not(notebooks):
    assert notebooks.quiet("main(['list'])\n") == "main(['list']);\n"
    assert notebooks.quiet("print(1)\n") == "print(1)\n"
    assert notebooks.quiet("a = 1\n") == "a = 1\n"


def test_a_page_that_does_not_link_to_its_notebook_is_refused(notebooks, tmp_path, monkeypatch):
    (tmp_path / "train.md").write_text("# Train\n", "utf-8")
    monkeypatch.setattr(notebooks, "PAGES", tmp_path)
    with pytest.raises(ValueError, match=r"docs/start/train\.md"):
        notebooks.written("train")
