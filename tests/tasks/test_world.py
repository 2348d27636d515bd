import re
from pathlib import Path

from gem.tasks import world as module
from gem.tasks.world import built_in


def test_the_small_encyclopedia_has_short_pages_whose_links_exist_and_stand_in_the_text():
    text = Path(module.__file__).with_name("wiki_world.tsv").read_text("utf-8")
    pages = dict(line.split("\t") for line in text.splitlines())
    world = built_in()
    assert len(pages) == len(world.titles) == len({title.casefold() for title in pages}) >= 150
    for page, title in enumerate(world.titles):
        assert 30 < len(world.texts[page]) < 300
        assert "[" not in world.texts[page]
        linked = [world.titles[to] for to in world.links[page]]
        assert linked == list(dict.fromkeys(re.findall(r"\[\[(.+?)\]\]", pages[title])))
        assert 1 <= len(linked) == len(set(linked) - {title})


def test_nearly_every_page_can_be_reached_from_every_page():
    world = built_in()
    reached = [len(world.distances(target)) for target in range(len(world.titles))]
    assert sum(count == len(world.titles) for count in reached) > 0.85 * len(world.titles)
