"""What scripts/check_site.py refuses, and that the sources of the site pass it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSS = (ROOT / "docs/style.css").read_text("utf-8")


@pytest.fixture(scope="module")
def check(script):
    return script("check_site")


@pytest.fixture
def site(check, tmp_path, monkeypatch):
    """Return a function that checks a site of some pages, by path."""
    monkeypatch.setattr(check, "SITE", tmp_path)

    def checked(**bodies):
        pages = {}
        for name, body in bodies.items():
            path = tmp_path / name / "index.html"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"<html><body><article><h1>{name}</h1>{body}</article></body></html>", "utf-8")
            pages[path] = check.Page(path)
        return list(check.check_pages(pages))

    return checked


def test_a_sound_site_passes(site):
    good = '<h2 id="x">x</h2><h3>y</h3><a href="../b/#z">b</a><a href="https://example.org">out</a>'
    assert site(a=good, b='<h2 id="z">z</h2><img src="../a/index.html" alt="a">') == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('<a href="../nowhere/">x</a>', "../nowhere/: no such page or file"),
        ('<a href="#nowhere">x</a>', "#nowhere: no such anchor"),
        ('<a href="../b/#nowhere">x</a>', "../b/#nowhere: no such anchor"),
        ('<img src="gone.png" alt="x">', "gone.png: no such page or file"),
        ('<img src="index.html">', "index.html has no alternative text"),
        ('<img src="index.html" alt=" ">', "index.html has no alternative text"),
        ("<h3>x</h3>", "a heading of level 3 right below one of level 1"),
        ("<h1>x</h1>", "2 headings of the first level"),
        ('<script src="https://example.org/x.js"></script>', "https://example.org/x.js would be fetched"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "//example.org/x.css would be fetched"),
    ],
)
def test_what_is_wrong_with_a_page_is_said(site, body, says):
    (wrong,) = site(a=body, b="")
    assert wrong.startswith(f"a/index.html: {says}")


def test_a_page_is_long_by_the_lines_that_are_not_folded(site, check):
    lines = "<p>x</p>" * (check.LONGEST // 2)  # each with its gap
    (wrong,) = site(a=lines)
    assert wrong.startswith(f"a/index.html: {check.LONGEST + 2} lines, more than {check.LONGEST}: split it")
    assert site(a=f"<details><summary>x</summary>{lines}</details><p>x</p>") == []
    assert len(site(a=f"<details><summary>x</summary></details>{lines}")) == 1
    assert len(site(a="<pre>" + "x\n" * check.LONGEST + "</pre>")) == 1
    assert len(site(a="<p>" + "x" * check.WIDTH * check.LONGEST + "</p>")) == 1


def test_contrast_is_that_of_the_guidelines(check):
    assert check.contrast("#000000", "#ffffff") == pytest.approx(21)
    assert check.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.005)
    assert check.contrast("#abcdef", "#abcdef") == 1


def test_the_palette_passes_and_a_paler_one_does_not(check):
    assert list(check.check_palette(CSS)) == []
    pale = CSS.replace("--gem-quiet: #55605c", "--gem-quiet: #8a9490")
    assert any("default: quiet on page" in one for one in check.check_palette(pale))


def test_every_colour_of_the_palette_is_checked_or_no_text(check):
    names = {name for pair in (*check.TEXT_PAIRS, *check.MARK_PAIRS) for name in pair}
    for colours in check.palettes(CSS).values():
        assert set(colours) - names == {"line"}  # thin rules between rows: no meaning is lost without them


def test_pictures_have_the_colours_of_the_page(check, script):
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    drawn = script("site_images")
    light = check.palettes(CSS)["default"]
    names = ("page", "panel", "line", "text", "quiet", "link")
    assert [getattr(drawn, name.upper()) for name in names] == [light[name] for name in names]
    dark = check.palettes(CSS)["slate"]
    assert {light[name]: dark[name] for name in names} == drawn.DARK


def test_the_diagram_in_the_pages_is_the_one_that_the_script_draws(script):
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    assert (ROOT / "docs/images/concepts.svg").read_text("utf-8") == script("site_images").concepts()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_code_on_pages_is_of_a_kind_that_tests_look_at(check, page):
    assert list(check.check_code(page.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "block",
    [
        "```py\nx = 1\n```",
        "```pycon\n>>> 1\n```",
        "```\nx = 1\n```",
        "- x\n\n    ```python\n    x = 1\n    ```",
        '```python hl_lines="1"\nx = 1\n```',
        "~~~console\n$ gem-gym list\n~~~",
    ],
)
def test_code_that_no_test_would_look_at_is_refused(check, block):
    assert len(list(check.check_code(f"# Page\n\n{block}\n"))) == 1


def test_fences_inside_a_longer_fence_are_its_text(check):
    assert list(check.check_code("````text\n```py\nx\n```\n````\n")) == []


def test_a_title_without_quotes_is_named(check):
    assert list(check.check_code('```python title="a.py"\nx = 1\n```\n')) == []
    (line,) = check.check_code("```python title=a.py\nx = 1\n```\n")
    assert "without quotes" in line
