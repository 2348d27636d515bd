"""docs/recipes: each command and block is run as it stands, offline, and prints what the page shows.

A block with a title is a file. In a ``text`` block, ``...`` stands for any text, and spaces may differ. The
model server of the pages is a small one that knows two capitals; asked to take care, it knows the third.
"""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from gem.cli import main
from gem.errors import MissingExtra
from gem.sandbox import SandboxFailed
from gem.testing.stub_server import StubServer, completion

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/recipes").glob("*.md"))
ADDRESS = "http://127.0.0.1:8000/v1"
CAPITALS = {"Norway": "Oslo", "Peru": "Lima", "Kazakhstan": "Astana"}
RECIPE = re.compile(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def answer(request):
    """Answer as the model of the pages: a verdict, a repeated word, or a capital."""
    text = request["messages"][-1]["content"]
    if tag := re.search(r'"tag": "([0-9a-f]+)"', str(request["messages"])):
        blocks = dict(re.findall(r'^<(\w+) [0-9a-f]+>\n"(.*)"$', text, re.MULTILINE))
        right = blocks["REFERENCE"] in blocks["ANSWER"]
        return json.dumps({"tag": tag[1], "score": int(right), "why": "compared with the reference"})
    if word := re.search(r"Repeat this word: (\w+)", text):
        return word[1]
    capital = next((CAPITALS[name] for name in CAPITALS if name in text), "?")
    if capital == "Astana" and request["model"] == "small" and "Take care" not in text:
        capital = "Almaty"
    return completion(f"\\boxed{{{capital}}}")


def shows(expected, printed):
    """Whether what was printed is what the page shows."""
    words = ["".join(map(_loosen, part.split())) for part in expected.split("...")]
    return re.fullmatch(r"\s*" + ".*".join(words), " ".join(printed.split()) + " ", re.DOTALL) is not None


def _loosen(word):
    return re.escape(word) + r"\s*"


def recipes(page):
    return RECIPE.findall(page.read_text("utf-8"))


def test_there_are_thirty_recipes_and_each_shows_what_it_prints():
    named = [(page.stem, title, body) for page in PAGES for title, body in recipes(page)]
    assert len(named) >= 30
    assert len({title for _, title, _ in named}) == len(named)
    for page, title, body in named:
        kinds = [kind for kind, name, _ in BLOCK.findall(body) if not name]
        assert kinds in (["sh", "text"], ["python", "text"]), (page, title)
        codes = [code for kind, _, code in BLOCK.findall(body) if kind != "text"]
        assert all(code.count("\n") <= 15 for code in codes), (page, title)


@pytest.mark.parametrize(
    "words", ["llm as judge csv", "compare two prompts", "train my own game", "play game mcp"]
)
def test_one_recipe_has_all_words_of_a_question(words):
    texts = [
        set(re.findall(r"\w+", (title + body).lower())) for page in PAGES for title, body in recipes(page)
    ]
    assert any(set(words.split()) <= text for text in texts)


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_recipes_print_what_they_show(page, tmp_path, monkeypatch):
    if page.stem == "train":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    shown, absent = 0, []
    with StubServer(answer) as server:
        for title, body in recipes(page):
            printed, names = "", {}
            for kind, name, code in BLOCK.findall(body):
                if name:
                    Path(name).write_text(code, encoding="utf-8")
                    continue
                if kind == "text":
                    assert shows(code, printed), f"{page.stem}, {title}:\n{printed}"
                    shown += 1
                    continue
                try:
                    printed = _run(kind, code, names, server.base_url).replace(server.base_url, ADDRESS)
                except (MissingExtra, SandboxFailed) as missing:
                    absent.append(f"{title}: {missing}")
                    break
    assert shown + len(absent) == len(recipes(page))
    if absent:
        pytest.skip("; ".join(absent))


def _run(kind, code, names, address):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if kind == "python":
            exec(code, names)  # noqa: S102  the repository's own pages
            return printed.getvalue()
        for line in code.replace("\\\n", " ").splitlines():
            program, *words = shlex.split(line.replace(ADDRESS, address))
            assert program == "gem-gym"
            assert main(words) == ("broken.jsonl" in words), line
    return printed.getvalue()
