import math
import sys

import pytest

import gem
from gem.envs.games import wiki_game
from gem.envs.games.wiki_game import WikiGame, from_zim
from gem.errors import BadArgument, MissingExtra
from gem.tasks.world import World


def go(env, title):
    return env.step(f"I take \\boxed{{{title}}}")


def dealt(start, target, **keywords):
    """A game from one page of the small encyclopedia to another."""
    env = WikiGame(**{"clicks": (1, 10)} | keywords)
    titles = env.world.titles
    env._pairs = ((titles.index(start), titles.index(target)),)
    env.reset(seed=0)
    return env


def shortest(world, start, target):
    """Clicks from one page to another, breadth-first forwards."""
    frontier, clicks, seen = {start}, 0, {start}
    while target not in frontier:
        frontier = {to for page in frontier for to in world.links[page]} - seen
        seen |= frontier
        clicks += 1
    return clicks


@pytest.mark.parametrize(("variant", "low", "high"), [("easy", 2, 3), ("hard", 4, 6)])
def test_targets_are_as_far_as_the_difficulty_says_and_the_expert_goes_the_shortest_way(variant, low, high):
    env = gem.make(f"game:WikiGame-v0-{variant}")
    lengths = set()
    for seed in range(200):
        prompt = env.reset(seed=seed).obs
        clicks = shortest(env.world, env.start, env.target)
        lengths.add(clicks)
        assert "on gem's small encyclopedia" in prompt
        steps = [env.step(env.solve()) for _ in range(clicks)]
        assert [step.done for step in steps] == [False] * (clicks - 1) + [True]
        assert math.fsum(step.reward for step in steps) == 1.0
    assert lengths == set(range(low, high + 1))


def test_links_are_followed_and_the_target_ends_the_game():
    env = dealt("Tiger", "China")
    step = go(env, "asia")
    assert step.obs.startswith("Page: Asia\nLargest Continent, home of China, India and Japan.")
    assert "\nLinks: Continent, China, India, Japan, Mount Everest\nTarget: China" in step.obs
    assert step.reward == pytest.approx(0.25)
    assert go(env, " CHINA ").info == {"success": True, "stop": "solved"}


@pytest.mark.parametrize(
    ("title", "why"),
    [
        ("China", "This page has no such link."),
        ("Tiger", "This page has no such link."),
        ("x" * 100_000, "This page has no such link."),
        ("back", "There is no page before."),
    ],
)
def test_what_is_no_link_is_explained_and_costs_the_turn(title, why):
    env = dealt("Tiger", "China", max_turns=10)
    step = go(env, title)
    assert step.obs.startswith(f"{why}\nPage: Tiger\n")
    assert (step.reward, step.done, step.info) == (0.0, False, {"legal": False})


def test_back_and_forth_earns_nothing():
    env = dealt("Tiger", "China", max_turns=100)
    gained = go(env, "Asia").reward
    loop = [go(env, title).reward for title in ("back", "Cat", "back", "Asia") * 20]
    assert gained > 0
    assert math.fsum(loop) == pytest.approx(0.0, abs=1e-12)
    assert env.world.titles[env.page] == "Asia"


def test_the_last_turn_says_how_far_it_was():
    env = dealt("Tiger", "China", max_turns=10)
    for _ in range(9):
        go(env, "nowhere")
    assert go(env, "Asia").obs.endswith("Clicks still needed: 1.")


def test_a_page_without_links_leaves_the_way_back(monkeypatch):
    world = World("two ends", ("A", "B", "C"), ("", "", ""), ((1, 2), (), ()))
    monkeypatch.setattr(wiki_game, "built_in", lambda: world)
    env = dealt("A", "C", clicks=1, max_turns=5)
    go(env, "B")
    assert env.sample_random_action() == env.solve() == "\\boxed{back}"
    assert go(env, "back").info == {}
    assert env.solve() == "\\boxed{C}"


@pytest.mark.parametrize(
    ("keywords", "why"),
    [({"clicks": 0}, "clicks is 0"), ({"clicks": (2, 6), "max_turns": 5}, "6 clicks need as many turns")],
)
def test_ways_that_cannot_be_are_refused(keywords, why):
    with pytest.raises((BadArgument, UserWarning), match=why):
        WikiGame(**keywords)


PAGES = {
    "main": (
        "Main",
        '<p>Read of <a href="a/ant">ants</a> or <a href="bee#wings">bees</a>.</p><style>p{}</style>',
    ),
    "a/ant": (
        "Ant",
        '<p>It lives near the <a href="../bee">bee</a> &amp; <a href="fern%20leaf">fern</a>.</p>',
    ),
    "a/fern leaf": (
        "Fern",
        '<p><a href="https://example.org/bee">Outside</a> <a href="missing">nowhere</a></p>',
    ),
    "bee": ("Bee", '<a href="old">The old main page</a>, <a href="logo.png">a picture</a>'),
}


def written(path, pages, more=lambda creator, item: None):
    """Write a ZIM file of pages, each a title and a body, whose main page is "main"."""
    writer = pytest.importorskip("libzim.writer")

    class Item(writer.Item):
        def __init__(self, path, title, mimetype, content):
            super().__init__()
            self.of = path, title, mimetype, content

        def get_path(self):
            return self.of[0]

        def get_title(self):
            return self.of[1]

        def get_mimetype(self):
            return self.of[2]

        def get_contentprovider(self):
            return writer.StringProvider(self.of[3])

        def get_hints(self):
            return {writer.Hint.FRONT_ARTICLE: self.of[2] == "text/html"}

    with writer.Creator(path).config_indexing(False, "eng").set_mainpath("main") as creator:
        for place, (title, body) in pages.items():
            html = f"<html><head><title>{title}</title></head><body>{body}</body></html>"
            creator.add_item(Item(place, title, "text/html", html))
        more(creator, Item)
    return str(path)


@pytest.fixture
def zim(tmp_path):
    """A small ZIM file, with a redirection from "old" to the main page and a picture."""

    def more(creator, item):
        creator.add_item(item("logo.png", "logo", "image/png", "no page"))
        creator.add_redirection("old", "Old", "main", {})

    return written(tmp_path / "small.zim", PAGES, more)


def test_a_zim_file_is_a_world(zim):
    world = from_zim(zim, 1000)
    assert world.name == "small.zim (4 pages)"
    assert world.titles == ("Main", "Ant", "Bee", "Fern")
    assert world.links == ((1, 2), (2, 3), (0,), ())
    assert world.texts[0] == "Read of ants or bees."
    assert world.texts[1] == "It lives near the bee & fern."


def test_pages_with_titles_alike_can_each_be_reached(tmp_path):
    pages = {
        "main": ("Main", "".join(f'<a href="{to}">it</a>' for to in ("go", "GO", "Go!", "return", "wide"))),
        "go": ("Go", '<a href="main">back</a>'),
        "GO": ("GO", '<a href="main">back</a>'),
        "Go!": ("go", '<a href="main">back</a>'),
        "return": ("Back", '<a href="main">back</a>'),
        "wide": ("Two  words", '<a href="main">back</a>'),
    }
    zim = written(tmp_path / "alike.zim", pages)
    world = from_zim(zim, 1000)
    assert world.titles == ("Main", "go", "GO (2)", "Go!", "Back (2)", "Two  words")
    for page, title in enumerate(world.titles[1:], 1):
        env = WikiGame(zim=zim, clicks=1)
        env._pairs = ((0, page),)
        env.reset(seed=0)
        assert go(env, title.upper()).info == {"success": True, "stop": "solved"}


def test_a_large_zim_file_is_read_as_far_as_asked(zim):
    world = from_zim(zim, 3)
    assert world.titles == ("Main", "Ant", "Bee")
    assert world.links == ((1, 2), (2,), (0,))


def test_the_game_plays_on_a_zim_file_and_says_so(zim):
    env = gem.make("game:WikiGame-v0-easy", zim=zim, clicks=2)
    for seed in range(20):
        assert "Wiki game on small.zim (4 pages): go from" in env.reset(seed=seed).obs
        assert not env.step(env.solve()).done
        assert env.step(env.solve()).info["success"]


def test_what_is_no_zim_file_is_refused(tmp_path):
    pytest.importorskip("libzim")
    path = tmp_path / "text.zim"
    path.write_text("no ZIM file", encoding="utf-8")
    with pytest.raises(BadArgument, match="accepted: the path of a ZIM file"):
        WikiGame(zim=str(path))


def test_a_world_without_pages_so_far_apart_is_refused(zim):
    with pytest.raises(BadArgument, match=r"no two pages of small\.zim"):
        WikiGame(zim=zim, clicks=9)


def test_without_libzim_a_zim_file_says_how_to_read_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "libzim.reader", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[search\]"):
        WikiGame(zim="absent.zim")
