"""Every view in Chromium: what only a browser can say."""

import json
import os
import shutil
import threading

import pytest
from records import episode, turn

from .conftest import GUESS, need_viewer, training, watch, write

pytestmark = pytest.mark.slow
api = pytest.importorskip("playwright.sync_api", reason="needs playwright, and Chromium")
need_viewer()

from gem.agents.random import RandomAgent
from gem.record import RunInfo
from gem.rollout import EpisodeStore, Job, rollout
from gem.viewer.export import export
from gem.viewer.server import Server
from gem.viewer.sources import open_sources

from .test_hostile import EVIL, hostile

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
VIEWS = (
    "",
    "run/0",
    "run/2",
    "run/0/through",
    "run/0/through?watched=1",
    "run/3/episode/2?colour=entropy",
    "run/0/episode/8",
    "run/0/episode/8?colour=advantage",
    "run/0/episode/8?colour=mask",
    "run/0/episode/8/prompt/1",
    "run/0?q=higher",
    "run/0?order=reward&way=up",
    "run/2/episode/0",
    "run/2/episode/1",
    "run/2/episode/2",
    "run/2/episode/0/whatif?turn=0",
    "pair?one=0.8&other=0.9",
    "start?spec=game:X&seed=200",
    "against?a=0&b=1",
    "against?a=0&b=1&metric=return",
    "run/99",
)
FAINT = """() => {
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colour) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const behind = (element) => { for (let e = element; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 200) return c; } return [255, 255, 255, 255]; };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg, script, style, noscript, .hide, .chip.off, [aria-hidden=true] .way") || element.offsetParent === null) continue;
    const style = getComputedStyle(element);
    if (style.visibility === "hidden" || style.opacity < 1) continue;
    const [a, b] = [light(rgb(style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${element.tagName}.${element.className}: ${ratio.toFixed(2)} ${element.textContent.trim().slice(0, 20)}`);
  }
  return [...new Set(found)].slice(0, 8);
}"""  # noqa: E501
NAMELESS = """() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, img, svg[role=img]")]
  .filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.alt || e.title || e.textContent.trim()
    || [...(e.labels || [])].some((label) => label.textContent.trim())))
  .map((e) => e.outerHTML.slice(0, 80))"""  # noqa: E501

WIDE = """() => [...document.querySelectorAll(".scroll")].filter((e) => e.querySelector(".cards") && e.scrollWidth > e.clientWidth)
  .map((e) => e.scrollWidth)"""  # noqa: E501
EMPTY = """() => [...document.querySelectorAll("th:empty, [role=img] a, [role=img] button, button button, a a, summary a, label a")]
  .map((e) => e.outerHTML.slice(0, 80))"""  # noqa: E501

PLAIN = """() => [...document.querySelectorAll("p a")].filter((e) => getComputedStyle(e).textDecorationLine !== "underline")
  .map((e) => e.outerHTML.slice(0, 80))"""  # noqa: E501


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (on PATH, or by the variable CHROMIUM)")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a viewer over two seeds of a training run, and a store of games."""
    folder = tmp_path_factory.mktemp("runs")
    games = folder / "games" / "episodes.jsonl"
    games.parent.mkdir()
    with EpisodeStore(games) as store:
        for env in ("game:Minesweeper-v0-easy", "multi:ConnectFour-v0", GUESS):
            rollout([Job(env, 1, key=env)], RandomAgent(), store=store)
    watch(training(folder / "seed-0", 0))
    sources = open_sources([folder / "seed-0", training(folder / "seed-1", 1), games])
    yield from serving(sources)


def serving(sources):
    server = Server(sources)
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.url
    server.stop()
    thread.join()
    for source in sources:
        source.store.close()


@pytest.fixture
def browse(chromium):
    """Opens pages; whatever a page says on its console, asks of another server or opens is a failure."""
    contexts = []

    def opened(width=1280, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 860}, color_scheme=scheme)
        page = context.new_page()
        page.wrong = []
        page.on("console", lambda message: page.wrong.append(message.text))
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (page.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: check_address(page, asked.url))
        contexts.append((context, page))
        return page

    def check_address(page, url):
        if not url.startswith(("http://127.0.0.1:", "data:", "file://")):
            page.wrong.append(f"asked for {url}")

    yield opened
    for context, page in contexts:
        context.close()
        assert [each for each in page.wrong if "404" not in each] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_view_fits_is_legible_and_has_names(served, browse, width, scheme):
    page = browse(width, scheme)
    for view in VIEWS:
        page.goto(served + view)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        assert page.evaluate(FAINT) == [], view
        assert page.evaluate(NAMELESS) == [], view
        assert page.evaluate(WIDE) == [], view
        assert page.evaluate(EMPTY) == [], view
        assert page.evaluate(PLAIN) == [], view
        assert page.locator("h1").count() == 1, view
        assert page.evaluate("document.title").endswith("gem")


def test_keys_go_through_lists_turns_and_episodes(served, browse):
    page = browse()
    page.goto(served + "run/0")
    for key in "jjk":
        page.keyboard.press(key)
    assert page.locator("tr[data-on] a").first.inner_text() == "23"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/episode/22*")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.locator(".turn[data-on]").get_attribute("id") == "turn-2"
    page.keyboard.press("p")
    page.wait_for_url("**/episode/21*")
    page.keyboard.press("n")
    page.wait_for_url("**/episode/22*")
    page.keyboard.press("u")
    page.wait_for_url("**/run/0")
    page.keyboard.press("/")
    page.keyboard.type("jk")
    assert page.input_value("#q") == "jk"


def test_a_question_mark_lists_the_keys(served, browse, tmp_path):
    page = browse()
    page.goto(served + "run/0")
    keys = page.locator("dialog")
    for opening, closing in (("?", "?"), ("?", "Escape")):
        page.keyboard.press(opening)
        api.expect(keys).to_contain_text("next, previous row or turn")
        api.expect(keys).to_be_visible()
        page.keyboard.press("j")
        assert page.locator("tr[data-on]").count() == 0
        page.keyboard.press(closing)
        api.expect(keys).to_be_hidden()
    page.click("[data-keys-open]")
    page.click("[data-keys-close]")
    api.expect(keys).to_be_hidden()
    page.fill("#q", "?")
    page.keyboard.press("?")
    api.expect(keys).to_be_hidden()


def test_curves_are_drawn_and_the_address_says_which(served, browse):
    page = browse()
    page.goto(served)
    page.wait_for_selector(".chart canvas")
    assert page.locator(".chart canvas").count() == 3
    assert "seed (2 seeds)" in page.locator("[data-legend-of-runs]").inner_text()
    page.uncheck('input[value="turns"]')
    page.check('input[name="seeds"]')
    api.expect(page.locator(".chart canvas")).to_have_count(2)  # the policy forbids to wait by a function
    assert "metric=success&metric=reward&seeds=apart" in page.url
    page.reload()
    api.expect(page.locator(".chart canvas")).to_have_count(2)
    assert page.locator("[data-legend-of-runs] li").all_inner_texts() == ["seed-0", "seed-1"]
    page.uncheck("[data-draw] >> nth=1")
    api.expect(page.locator("[data-legend-of-runs] li")).to_have_count(1)
    assert "run=0" in page.url


def test_tokens_change_their_colour_and_the_address_keeps_it(served, browse):
    page = browse()
    page.goto(served + "run/0/episode/8")
    colour = (
        "getComputedStyle(document.querySelector('.tokens .p5, .tokens .p4, .tokens .p3')).backgroundColor"
    )
    before = page.evaluate(colour)
    assert before != "rgba(0, 0, 0, 0)"
    page.check('input[value="mask"]')
    assert page.evaluate(colour) != before
    assert page.url.endswith("colour=mask")
    assert page.get_attribute("a[rel=next]", "href").endswith("colour=mask")
    page.reload()
    assert page.is_checked('input[value="mask"]')
    assert page.get_attribute(".tokens span", "title").startswith("probability")


def test_the_theme_is_switched_and_remembered(served, browse):
    page = browse(scheme="light")
    page.goto(served)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("[data-theme-switch]")
    assert page.evaluate(paper) != light
    page.goto(served + "run/2")
    assert page.evaluate(paper) != light


def test_filters_search_and_pages_work_by_hand(served, browse):
    page = browse()
    page.goto(served + "run/0")
    page.select_option('select[name="outcome"]', "solved")
    page.wait_for_url("**outcome=solved**")
    assert page.locator("tbody .tag").all_inner_texts() == ["solved"] * page.locator("tbody tr").count()
    page.fill("#q", "boxed{7}")
    page.keyboard.press("Enter")
    page.wait_for_selector("mark")
    assert page.locator("mark").first.inner_text() == "boxed{7}"
    page.click("tbody tr >> nth=0 >> a")
    page.wait_for_url("**/episode/*#turn-2")


def test_what_if_and_a_note_by_hand(served, browse):
    page = browse()
    page.goto(served + "run/2/episode/2")
    page.get_by_role("link", name="what if").first.click()
    page.fill("textarea", "\\boxed{1}")
    page.select_option("select", "solver")
    page.get_by_role("button", name="Play").click()
    page.wait_for_selector(".sides")
    assert page.locator(".sidehead >> nth=1 >> .tag").inner_text() == "solved"
    page.goto(served + "run/2/episode/2")
    page.check('input[name="flag"]')
    page.fill("#note", "look here")
    page.get_by_role("button", name="Keep").click()
    page.wait_for_load_state()
    assert page.input_value("#note") == "look here"
    page.goto(served + "run/2")
    assert page.locator(".flag").count() == 1


def test_hostile_episodes_change_nothing(browse, tmp_path):
    store = write(tmp_path / "episodes.jsonl", *(hostile(evil) for evil in EVIL))
    for url in serving(open_sources([store])):
        page = browse()
        for view in (
            "",
            "run/0",
            "run/0/through",
            *(f"run/0/episode/{number}" for number in range(len(EVIL))),
        ):
            page.goto(url + view)
            assert page.locator("header.top").is_visible()
            assert page.evaluate("document.scripts.length") <= 3
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_an_exported_run_needs_nothing_else(browse, tmp_path):
    sources = open_sources([training(tmp_path / "run")])
    export([sources[0]], tmp_path / "run.html")
    export([sources[0]], tmp_path / "one.html", episode=9)
    page = browse()
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector(".chart canvas")
    page.click("tbody a >> nth=3")
    assert page.locator(".turn").count() == 3
    page.check('input[value="advantage"]')
    assert page.locator(".turns.by-advantage").count() == 1
    page.get_by_role("link", name="all episodes").click()
    page.wait_for_selector("table.episodes")
    page.goto((tmp_path / "one.html").as_uri())
    assert page.locator(".turn").count() == 3
    assert (
        json.loads(
            page.evaluate("JSON.stringify(performance.getEntriesByType('resource').map((e) => e.name))")
        )
        == []
    )
    sources[0].store.close()


def test_several_exported_runs_are_searched_and_filtered(browse, tmp_path):
    names = ("one", "two")
    run = RunInfo("run", "A" * 60)  # a run's title is a value of a field
    stores = [
        write(tmp_path / f"{name}.jsonl", episode(turn(action=f"say {name}"), run=run)) for name in names
    ]
    export(open_sources(stores), tmp_path / "runs.html")
    phone = browse(390)
    phone.goto((tmp_path / "runs.html").as_uri())
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    page = browse()
    page.goto((tmp_path / "runs.html").as_uri())
    rows = page.locator("tr[data-row]:visible")
    assert rows.count() == 2
    page.fill("#q", "SAY TWO")
    assert rows.count() == 1
    assert page.inner_text("[data-found]") == "1 episode"
    page.select_option("[name=run]", "0")
    assert rows.count() == 0
    page.fill("#q", "")
    rows.first.locator("a").click()
    assert "say one" in page.inner_text(".one")
