"""The pages of environments, and the cards on them."""

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gem
from gem.errors import MissingData, MissingExtra, UnknownEnv
from gem.registry import ENV_REGISTRY, FAMILIES
from gem.testing import audit_env
from gem.testing.card import read_cards

ROOT = Path(__file__).parents[2]
CARDS = read_cards(ROOT / "docs/envs/cards.json")
GAMES = gem.ids("game")
ONE_SEAT = [i for i in gem.ids("multi") if gem.spec(i).seats == ("agent",)]
MADE = [i for i in CARDS if i.startswith(("math:", "qa:"))]


@pytest.fixture(scope="module")
def env_pages(script):
    """Return the script that writes the pages of environments."""
    return script("env_pages")


def test_every_id_that_can_be_audited_here_has_a_card_and_no_card_of_ours_an_open_finding():
    ours = {i: spec for i, spec in ENV_REGISTRY.items() if spec.family not in FAMILIES}
    lone = [i for i, spec in ours.items() if spec.seats == ("agent",) and spec.data is None]
    assert [i for i in lone if i not in CARDS] == []
    known = set(ours)
    assert {name for name in CARDS if name.partition(":")[0] not in FAMILIES} <= known
    open_findings = {name: card.findings for name, card in CARDS.items() if name in known and not card.ok}
    assert open_findings == {}


def test_copiers_played_on_every_card_and_none_earned_more_than_its_card_allows():
    lacking, paid = [], []
    for name, card in CARDS.items():
        played = card.policies
        if "copier" not in played or ("copier-later" not in played and card.later is not None):
            lacking.append(name)
            continue
        if any(check.name == "copying earns little" and check.open for check in card.checks):
            paid.append(name)
    assert lacking == []
    assert paid == []


@pytest.mark.parametrize("prefix", ["rg", "ta", "gymnasium"])
def test_every_foreign_id_of_one_seat_that_can_be_played_has_a_card(prefix):
    ids = [name for name in FAMILIES[prefix].names if gem.spec(f"{prefix}:{name}").seats == ("agent",)]
    for name in ids:
        if f"{prefix}:{name}" not in CARDS:
            with pytest.raises((MissingData, MissingExtra, UnknownEnv)):
                gem.make(f"{prefix}:{name}")


@pytest.mark.system
@pytest.mark.parametrize(
    "env_id", ["game:GuessTheNumber-v0-hard", "game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy"]
)
def test_a_stored_card_is_what_an_audit_says_now(env_id):
    assert audit_env(env_id) == CARDS[env_id], "run `gem-gym audit game --json docs/envs/cards.json` again"


@pytest.mark.slow
@pytest.mark.parametrize(
    "env_id", sorted(i for i in [*GAMES, *ONE_SEAT, *MADE] if "hard" not in i and "vs-solver" not in i)
)
def test_the_stored_cards_of_games_are_what_an_audit_says_now(env_id):
    assert audit_env(env_id) == CARDS[env_id], "run `gem-gym audit game --json docs/envs/cards.json` again"


def test_a_page_has_manual_ids_cards_an_episode_and_a_picture(env_pages):
    specs = [gem.spec(env_id) for env_id in GAMES if "Mastermind" in env_id]
    page = env_pages.class_page(env_pages.class_of(specs[0]), specs)
    for heading in (*env_pages.HEADINGS, "Ids", "Cards", "An episode"):
        assert f"\n## {heading}\n" in page.text
    for spec in specs:
        assert f"\n{CARDS[spec.id]}\n" in page.text
    assert f"]({page.picture_path.removeprefix('envs/')})" in page.text
    assert page.picture[1:4] == b"PNG"
    assert page.picture_path == "envs/pictures/mastermind.png"


def test_the_index_explains_cards_and_links_pages(env_pages):
    specs = [gem.spec("game:TowerofHanoi-v0-easy")]
    page = env_pages.class_page(env_pages.class_of(specs[0]), specs)
    other = env_pages.Page("Other", "Says no.", [gem.spec("terminal:Makefile-v0-easy")], "")
    text = env_pages.index([page])
    assert "## What a card says" in text
    assert 'href="towerofhanoi/"' in text
    assert '<summary><h2 id="game">Games</h2><p>1 id. ' in text
    assert env_pages.index([page, other, page]).count("<h2 id=") == 2


def test_the_index_has_a_line_for_each_id_with_what_the_filter_asks_for(env_pages):
    specs = [gem.spec(name) for name in ("game:TowerofHanoi-v0-easy", "game:TowerofHanoi-v0-hard")]
    text = env_pages.index([env_pages.class_page(env_pages.class_of(specs[0]), specs)])
    for spec in specs:
        (line,) = re.findall(rf"<li ([^>]*)><code>{spec.id}</code> <span>([^<]*)</span></li>", text)
        for name, value in env_pages.facts_of(spec).items():
            assert f'data-{name}="{value}"' in line[0]
            assert f'<select name="{name}">' in text
        assert f"card: solver {CARDS[spec.id].policies['solver'].reward:.3f}" in line[1]


def test_the_facts_of_an_id_are_those_of_its_environment(env_pages):
    facts = env_pages.facts_of(gem.spec("terminal:Makefile-v0-easy"))
    assert (facts["family"], facts["tools"], facts["turns"]) == ("terminal", "bash, submit", "several")
    assert env_pages.facts_of(gem.spec("math:GSM8K"))["licence"] == "the data set's own"
    assert env_pages.facts_of(gem.spec("math:GSM8K"))["needs"] == "a data set"
    assert env_pages.facts_of(gem.spec("game:Sudoku-v0-easy"))["tools"] == "none"


def test_what_stands_here_has_the_licence_of_the_project(env_pages):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert env_pages.facts_of(gem.spec("game:Sudoku-v0-easy"))["licence"] == project["license"]


def test_every_family_has_a_name(env_pages):
    assert {spec.family for spec in ENV_REGISTRY.values()} <= set(env_pages.FAMILY_NAMES)


def test_a_picture_of_text_is_xml_whatever_the_text_says(env_pages):
    drawn = env_pages.text_picture("<script>alert(1)</script>\x00\x1b[1m & \ud800" * 3)
    root = ElementTree.fromstring(drawn)
    assert {node.tag.rpartition("}")[2] for node in root.iter()} == {"svg", "rect", "g", "text"}


def test_environments_of_several_seats_have_pages(env_pages):
    specs = [spec for spec in map(gem.spec, gem.ids("multi")) if "Kuhn" in spec.id]
    for spec in specs:
        assert "## An episode" in env_pages.class_page(env_pages.class_of(spec), [spec]).text


def test_a_page_shows_an_expert_where_one_of_its_ids_has_one(env_pages):
    specs = [spec for spec in map(gem.spec, gem.ids("multi")) if "ConnectFour" in spec.id]
    page = env_pages.class_page(env_pages.class_of(specs[0]), specs)
    assert "`multi:ConnectFour-v0-vs-" in page.text.partition("## An episode")[2]
    assert page.picture[1:4] == b"PNG"


def test_a_familys_page_tells_how_well_its_solver_plays(env_pages):
    pytest.importorskip("gymnasium")
    page = env_pages.family_page(FAMILIES["gymnasium"])
    assert "\n| `gymnasium:FrozenLake-v1` | 100 | wins 71.4% of seeds 0 to 499 |\n" in page.text


@pytest.mark.system
def test_a_familys_page_has_each_of_its_entry_points(env_pages):
    if not FAMILIES["bfcl"].is_here():
        pytest.skip("needs a world: gem-gym worlds --fetch bfcl")
    text = env_pages.family_page(FAMILIES["bfcl"]).text
    assert (
        text.index("\n## Action\n")
        < text.index("## Answer a request with calls")
        < text.index("### Action\n")
    )


def test_a_page_says_over_what_a_foreign_solver_was_measured(env_pages):
    rated = {spec.family for spec in map(gem.spec, gem.ids()) if spec.solver_rate is not None}
    assert set(env_pages.MEASURED) == rated & set(FAMILIES)
    assert "0 to 499" not in env_pages.solver(gem.spec("babyai:GoToLocal-v0"))


def test_why_there_is_no_card_fits_the_id(env_pages):
    why = {i: env_pages.why_no_card(gem.spec(i)) for i in ("multi:KuhnPoker-v0", "math:GSM8K")}
    assert "several seats" in why["multi:KuhnPoker-v0"]
    assert "data set" in why["math:GSM8K"]


def test_what_is_paid_for_nothing_is_told_for_every_foreign_card(env_pages):
    text = env_pages.nothing_page()
    foreign = [card for card in env_pages.cards().values() if card.env.partition(":")[0] in FAMILIES]
    assert text.count("| `") == len(foreign) > 100
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert all(line.count("|") == 9 for line in rows)
    assert next(line for line in rows if "`rg:circuit_logic`" in line).split("|")[4].strip() == "0.750"
    much = sum(max(card.ignorant.values()) > 1 / 3 for card in foreign)
    assert text.partition("<details")[0].count("| `") == much  # shown at once


def test_a_long_table_of_cards_is_folded(env_pages, monkeypatch):
    specs = [gem.spec(env_id) for env_id in GAMES if "Mastermind" in env_id]
    assert "<details" not in "".join(env_pages.card_section(specs, foreign=True))
    monkeypatch.setattr(env_pages, "MOST_ROWS", 2)
    lines = env_pages.card_section(specs, foreign=True)
    folded = lines[
        lines.index(f"<summary>The cards of {len(specs)} ids</summary>") : lines.index("</details>")
    ]
    assert sum(line.startswith("| `") for line in folded) == len(specs)


@pytest.mark.system
def test_ids_with_the_same_turns_and_solver_are_on_one_line(env_pages):
    pytest.importorskip("reasoning_gym")
    table = env_pages.family_page(FAMILIES["rg"]).text.partition("## Ids")[2]
    lines = re.findall(r"^\| `rg:.*", table, re.MULTILINE)
    assert len({line.partition(" | ")[2] for line in lines}) == len(lines) < 10
    assert table.count("`rg:") == len(FAMILIES["rg"].names) > 90
