"""Whatever a model or an environment said: a page of it shows text, and does nothing."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from records import episode, turn

from .conftest import RENDERER, TOKEN, answer, need_viewer, training, write

need_viewer()

from gem.content import Image, Message, Text, ToolCall
from gem.record import Failure, RunInfo, SeatEnd, StopReason, Turn, Verdict
from gem.specs import TaskRef, WrapperRef
from gem.viewer import text as text_module
from gem.viewer.export import export
from gem.viewer.guard import POLICY
from gem.viewer.text import render_text, visible

EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</textarea></title></style></script><script>alert(1)</script>",
    "<!--<script>-->",
    "</template><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "${7*7}",
    "&lt;b&gt; &amp;",
    "\x1b[2J\x1b]8;;http://x\x07link\x1b]8;;\x07",
    "\u202eright to left\u202c \u2066isolate\u2069 \u200f\u061c",
    "half \ud800 of a pair \udfff",
    "nul \0 bell \x07 delete \x7f c1 \x9b",
    "zero\u200bwidth\ufeff tag\U000e0041",
    "a\r\nb\u2028c\u2029d",
]
ALLOWED = re.compile(
    r"html|head|meta|title|link|body|a|header|nav|ol|ul|li|span|button|svg|path|circle|rect|line|text|main|div|"
    r"section|aside|article|h1|h2|p|b|i|dl|dt|dd|details|summary|pre|code|br|form|fieldset|legend|label|input|"
    r"textarea|select|option|table|caption|thead|tbody|tr|th|td|mark|img|figure|noscript|script|style|template|dialog|kbd"
)
LINK = re.compile(rf"/{TOKEN}/|\?|#|data:image/(png|jpeg|gif|webp);|data:,|$")
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Elements(HTMLParser):
    """Which elements and attributes a page has."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts = set(), set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        given = dict(attrs)
        if tag == "script":
            self.scripts.append(given.get("src"))
        for name in ("href", "src", "action"):
            if given.get(name) is not None:
                assert re.match(rf"(/{TOKEN}/|\?|#|data:image/(png|jpeg|gif|webp);|data:,|$)", given[name]), (
                    given[name]
                )


def check(text, scripts=True):
    found = Elements(text)
    assert all(map(ALLOWED.fullmatch, found.tags)), found.tags
    assert not [name for name in found.attributes if name.startswith("on") or name == "style"]
    if scripts:
        assert all(src.startswith(f"/{TOKEN}/static/") for src in found.scripts)
    assert not UNSEEN.findall(text)
    return found


def hostile(evil):
    """An episode that says it everywhere."""
    call = ToolCall(evil, evil, json.dumps({"a": evil, "code": f"{evil}\n```\n{evil}"}))
    said = Message("assistant", evil, tool_calls=(call,), reasoning=evil)
    first = turn(
        observation=evil, action=evil, reply=said, seat=evil, finish=evil, reward=0.5, rewards={evil: 0.5}
    )
    said_of = {
        "why": evil,
        "target": evil,
        "parsed_action": evil,
        "public": {"given": evil, "wanted": evil, "why": evil},
    }
    first.info = {**said_of, evil: evil, "tool_results": [{"shown": 3, "name": evil}], "tool": evil}
    first.timing = {evil: 1.0, "env_s": 0.1}
    first.extra = {"entropy": [evil]}
    second = turn(
        observation=(Text(evil), Image(evil.encode("utf-8", "replace"), evil, evil)), action=evil, seat=evil
    )
    board = turn(observation=f". . .\n. {evil[:2].strip() or 'x'} .\n. . .", action=None, seat=evil)
    tokens = answer("x", prompt="y", seat=evil)
    tokens.hold(RENDERER.encode(evil), RENDERER.encode(evil), None)
    run = RunInfo(evil, evil, evil, {evil: evil}, RENDERER.vocab_hash, versions={evil: evil})
    made = episode(first, second, board, tokens, stop=StopReason.FAILED, run=run, job=evil, group=evil)
    made.task = TaskRef(evil, {evil: evil}, (WrapperRef(evil, {evil: evil}),), 7, evil, (evil,))
    made.ends = {evil: SeatEnd(StopReason.FAILED, True, False, evil, {**said_of, evil: evil}), "b": SeatEnd()}
    made.timing = {evil: 1.0}
    made.error = Failure(evil, evil, evil)
    made.verdict = Verdict.NONE
    return made


@pytest.mark.parametrize("evil", EVIL)
def test_no_page_of_a_hostile_episode_does_anything(pages, tmp_path, evil):
    folder = tmp_path / "run"
    store = write(folder / "episodes.jsonl", hostile(evil))
    (folder / "config.json").write_text(
        json.dumps({"algorithm": evil, "gamma": evil, "seed": evil, "batch": evil})
    )
    (folder / "metrics.jsonl").write_text(json.dumps({"iteration": 1, evil: evil, "success": evil}) + "\n")
    shown_pages = pages(folder)
    asked = {"q": evil.encode("utf-8", "replace").decode(), "spec": evil.encode("utf-8", "replace").decode()}
    for path, params in {
        "": {},
        "run/0": {},
        "run/0/through": {},
        "run/0/episode/0": {"colour": asked["q"]},
        **{f"run/0/episode/0/prompt/{place}": {} for place in range(4)},
        "pair": {"one": "0.0", "other": "0.0"},
        "start": {"spec": asked["q"], "seed": "7"},
    }.items():
        check(shown_pages.get(path, params=params).text)
    check(shown_pages.get("run/0", params={"q": asked["q"]}).text)
    for params in ({"spec": asked["q"]}, {"stop": asked["q"]}, {"metric": asked["q"]}, {"noted": asked["q"]}):
        check(shown_pages.get("run/0", params=params).text)
    for params in ({"order": asked["q"]}, {"page": asked["q"]}, {"outcome": asked["q"]}):
        check(shown_pages.client.get(f"/{TOKEN}/run/0", params=params).text)
    check(shown_pages.client.get(f"/{TOKEN}/nowhere/{quote(asked['q'])}").text)
    assert (
        shown_pages.get("curves", params={"metric": asked["q"]}).headers["content-type"] == "application/json"
    )
    source = shown_pages.viewer.sources[0]
    source.notes.set(source.store[0].id, True, evil)
    check(shown_pages.get("run/0/episode/0").text)
    check(shown_pages.get("run/0").text)
    export([source], tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert all(map(ALLOWED.fullmatch, Elements(text).tags))
    assert text.count("<script") == text.count("</script>") == 4
    export([source], tmp_path / "one.html", episode=0)
    assert Elements((tmp_path / "one.html").read_text(encoding="utf-8")).scripts == [None]
    assert store.exists()


@pytest.mark.parametrize("evil", EVIL)
def test_text_is_shown_whole_with_what_cannot_be_seen_by_its_name(evil):
    html = str(render_text(evil))
    check(html)
    words = re.sub("<[^>]*>", "", html)
    assert "U+" in visible(evil) or "ESC" in visible(evil) or visible(evil) == evil
    assert len(words) >= len(evil)


def test_every_answer_has_the_policy_and_is_kept_by_nobody(pages, played):
    shown_pages = pages(played)
    for path, code in {"": 200, "run/0": 200, "curves": 200, "nowhere": 404, "run/0/count": 200}.items():
        headers = shown_pages.get(path, code).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"
    assert "unsafe" not in POLICY
    assert "frame-ancestors 'none'" in POLICY


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", f"/{TOKEN}x/", f"/{TOKEN}", f"//{TOKEN}/", f"/static/{TOKEN}/"]
)
def test_nothing_is_shown_without_the_token(pages, played, path):
    answer = pages(played).client.get("http://127.0.0.1:80" + path)
    assert answer.status_code == 403
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1.example.com", "127.0.0.1:1@example.com", "[::2]", ""]
)
def test_another_name_than_this_machines_is_refused(pages, played, host):
    assert pages(played).get("", 421, headers={"host": host})


def test_another_sites_page_cannot_post(pages, played):
    shown_pages = pages(played)
    for origin in ("https://example.com", "null", "http://127.0.0.1:9999"):
        shown_pages.post("run/0/episode/0/note", 403, data={"note": "x"}, headers={"origin": origin})
    own = {"origin": "http://127.0.0.1:80", "host": "127.0.0.1:80"}
    shown_pages.post("run/0/episode/0/note", 303, data={"note": "x"}, headers=own)
    shown_pages.post("run/0/episode/0/note", 413, content=b"note=" + b"x" * (2 << 20))
    shown_pages.post("run/0/episode/0/note", 400, content=b"\xff=1")
    shown_pages.post("run/0/episode/0/note", 400, content=b"&".join(b"a=1" for _ in range(300)))
    assert shown_pages.client.put(f"/{TOKEN}/run/0/episode/0/note", content=b"x").status_code == 405


@pytest.mark.system
def test_a_megabyte_in_one_line_of_one_word_stays_small_on_every_page(pages, tmp_path):
    long = "\u202e<" * 500_000
    said = Message("assistant", long, tool_calls=(ToolCall("1", "t", long),), reasoning=long)
    made = episode(
        turn(observation=long, action=long, reply=said, info={"x": long}),
        run=RunInfo("r"),
        job="a",
        error=Failure("env", long, long),
    )
    shown_pages = pages(write(tmp_path / "e.jsonl", made))
    for path in ("", "run/0", "run/0/episode/0", "run/0/through", "run/0?q=%3C"):
        assert len(shown_pages.get(path).content) < 8_000_000


def test_a_damaged_line_is_told_and_costs_no_other(pages, tmp_path):
    store = write(tmp_path / "e.jsonl", *(episode(turn(), run=RunInfo("r"), job=f"e{i}") for i in range(3)))
    lines = store.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"schema":2,"job":3}\n'
    store.write_bytes(b"".join(lines))
    store.with_name(store.name + ".index.sqlite").unlink(missing_ok=True)
    shown_pages = pages(store)
    assert "damaged" in shown_pages.get("run/0/episode/1", 400).text
    for path in ("", "run/0", "run/0/through", "run/0?q=move", "run/0/episode/2", "start?spec=game:X&seed=0"):
        shown_pages.get(path)
    assert export([shown_pages.viewer.sources[0]], tmp_path / "out.html") == 2


def test_the_exported_file_allows_its_own_scripts_and_styles_alone(pages, played, tmp_path):
    export([pages(played).viewer.sources[0]], tmp_path / "out.html")
    text = (tmp_path / "out.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        for body in re.findall(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)


def test_numbers_beyond_all_numbers_are_shown(pages, tmp_path):
    made = episode(
        Turn("agent", "o", "a", reward=float("inf")),
        Turn("agent", "o", "a", reward=float("nan")),
        Turn("agent", "o", "a", reward=-1e308, timing={"env_s": float("nan")}, value=float("inf")),
        answer("x", logprobs=[float("-inf")]),
        answer("x", logprobs=[float("nan")]),
        run=RunInfo("r"),
        job="a",
        seed=2**90,
    )
    shown_pages = pages(write(tmp_path / "e.jsonl", made))
    for path in ("", "run/0", "run/0/episode/0", "run/0/through", f"start?spec=game:X&seed={2**60}"):
        check(shown_pages.get(path).text)
    shown_pages.get(f"start?spec=game:X&seed={2**90}", 400)


@pytest.mark.parametrize(
    "text",
    [
        "-" * 19_999 + "x",
        "- " * 9_999 + "x",
        "a b c\n" * 3300,
        "a | b c\n-+-\n" * 1600,
        "\n" * 20_000,
        ". . .\n" * 3,
    ],
    ids=["rule", "spaced rule", "lines", "lines and rules", "ends", "board"],
)
def test_text_that_nearly_is_a_board_is_read_in_one_go(monkeypatch, text):
    looked = []
    words = text_module._words
    monkeypatch.setattr(text_module, "_words", lambda line: looked.append(line) or words(line))
    found = text_module.blocks(text)
    assert "\n".join(each if isinstance(each, str) else each.text for each in found) == text
    assert len(looked) <= 6 * (text.count("\n") + 1)


@pytest.mark.system
def test_a_page_has_room_for_so_many_pictures(pages, tmp_path):
    picture = Image(b"\x89PNG\r\n\x1a\n" + b"\0" * (3 << 20), alt="large")
    turns = [turn(observation=(picture, Text(str(i))), action="x") for i in range(12)]
    page = pages(write(tmp_path / "e.jsonl", episode(*turns, run=RunInfo("r"), job="a"))).get(
        "run/0/episode/0"
    )
    assert page.text.count('alt="large"') == 10
    assert page.text.count("too large for this page. large") == 2


@pytest.mark.parametrize(
    "query", ["page=99999999999999999999", "seed=99999999999999999999", "iteration=0", "from=9" * 9]
)
def test_numbers_of_an_address_may_be_large(pages, played, query):
    answer = pages(played).client.get(f"/{TOKEN}/run/0?{query}")
    assert answer.status_code in (200, 400)
    check(answer.text)


def test_figures_that_are_none_are_not_drawn(pages, tmp_path):
    folder = training(tmp_path / "run")
    lines = ["1e400", "-1e400", "NaN", "9" * 500, "true", '"0.5"', "[0.5]", "null", "1e308", "1e308"]
    text = "".join(f'{{"iteration": {i + 1}, "success": {value}}}\n' for i, value in enumerate(lines))
    text += '{"iteration": 1e3}\n{"iteration": -1}\n[]\nnot JSON\n' + "[" * 100_000 + "\n"
    text += '{"iteration": %s}\n{"iteration": 11, "success": 0.5}\n' % ("9" * 400)
    (folder / "metrics.jsonl").write_text(text)
    shown_pages = pages(folder)
    check(shown_pages.get("run/0").text)
    (line,) = shown_pages.get("curves?metric=success&metric=success").json()["metrics"]["success"]
    assert (line["x"], line["mean"]) == ([11], [0.5])
    for config in (
        "[]",
        "not JSON",
        '{"algorithm": ["rebn"], "gamma": NaN, "batch": true}',
        '{"gamma": 1e999}',
    ):
        (folder / "config.json").write_text(config)
        shown_pages = pages(folder)
        for path in ("", "run/0", "run/0/episode/3", "run/0/through", "curves"):
            shown_pages.get(path)
