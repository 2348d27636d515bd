"""What the repository says about itself is so: commands, pages, versions, extras, pins."""

import re
import tomllib
from pathlib import Path

import pytest

import gem
from gem import cli

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def commands(page: Path) -> list[str]:
    """Every command that a page shows, in a shell block or as inline code."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line] + re.findall(r"`([^`\n]+)`", re.sub(r"(?s)```.*?```", "", text))


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_pages_exist(page):
    wanted = {line for line in commands(page) if re.match(r"make\b|gem-gym |\.venv/bin/python -m gem ", line)}
    for line in wanted:
        words = [word for word in line.split() if "=" not in word]
        if words[0] == "make":
            assert set(words[1:]) <= targets(), line
        else:
            name = words[1] if words[0] == "gem-gym" else words[3]
            assert name in cli.COMMANDS or name in ("--help", "--version", "help", "COMMAND"), line


def test_readme_shows_the_two_commands():
    assert {"make demo", "make test"} <= set(commands(ROOT / "README.md"))


def test_links_between_pages_lead_somewhere():
    dead = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            generated = re.match(r".*\b(envs|reference)/|.*troubleshooting\.md", link)
            if "://" not in link and not generated and not (page.parent / link).exists():
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert dead == []


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_anchors_on_pages_outside_the_site_exist(page):
    """Those of the site are held by scripts/check_site.py."""
    dead = []
    for path, anchor in re.findall(r"\]\(([\w/.-]+\.md)#([\w-]+)\)", page.read_text("utf-8")):
        headings = re.findall(r"^#+ (.*)$", (page.parent / path).read_text("utf-8"), re.MULTILINE)
        slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        if anchor not in slugs:
            dead.append(f"{path}#{anchor}")
    assert dead == []


def test_the_navigation_names_every_page_and_no_other():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1].split("\n\n")[0]
    pages = set(re.findall(r"[\w/-]+\.md", navigation)) - {
        "troubleshooting.md",
        "troubleshooting/episodes.md",
    }  # generated
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages == {path for path in written if not path.startswith("baselines/")}  # baseline_pages.py


def test_changelog_has_this_version():
    versions = re.findall(r"^## \[([\d.]+)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert versions[0] == gem.__version__


def test_citation_has_this_version_and_its_date():
    cited = (ROOT / "CITATION.cff").read_text("utf-8")
    dates = dict(
        re.findall(r"^## \[([\d.]+)\] - (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    )
    assert re.findall(r"^version: (.*)$", cited, re.MULTILINE) == [gem.__version__]
    assert re.findall(r'^date-released: "(.*)"$', cited, re.MULTILINE) == [dates[gem.__version__]]


def test_every_licence_of_others_is_a_licence_of_the_project():
    files = {path for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    assert ROOT / "LICENSE" in files
    assert set((ROOT / "gem").rglob("LICEN*")) <= files
    brought = {path for path in (ROOT / "gem/viewer/static/vendor").iterdir() if path.is_dir()}
    assert {path.parent for path in files} == {ROOT, *brought}


def test_every_extra_that_gem_asks_for_exists():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "gem").rglob("*.py")]
    named = {extra for text in sources for extra in re.findall(r"install_command\(['\"](\w+)['\"]\)", text)}
    named |= {extra for text in sources for extra in re.findall(r'_extra\([^()]*"(\w+)"\)', text)}
    named |= {spec.extra for spec in gem.registry.specs() if spec.extra}
    assert {"sandbox", "terminal", "postgres", "train", "rg"} <= named
    assert {extra for some in named for extra in some.split(",")} <= set(EXTRAS)


FRAMEWORKS = {"inspect", "log", "nemo", "openrlhf", "ray", "skyrl", "tinker", "trl", "verifiers", "verl"}
"""Extras of other people's frameworks and trackers: not part of `all`."""


def test_all_is_the_sum_of_the_extras():
    (everything,) = EXTRAS["all"]
    own = [extra for extra in EXTRAS if extra not in {"all", *FRAMEWORKS}]
    assert everything == f"gem-gym[{','.join(own)}]"


def test_constraints_pin_what_set_up_installs():
    setup = (ROOT / "scripts/setup.sh").read_text(encoding="utf-8")
    extras = re.search(r"^ALL=(\S+)$", setup, re.MULTILINE)
    assert extras is not None
    requirements = PROJECT["dependencies"] + [r for extra in extras[1].split(",") for r in EXTRAS[extra]]
    requirements = [
        r for r in requirements if not r.startswith("gem-gym[")
    ]  # another extra, which is named too
    assert {"sandbox", "dev", "train"} <= set(extras[1].split(","))
    pins = re.findall(r"^([\w.-]+)==[\w.]+$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    pinned = {normal(name) for name in pins}
    assert {normal(re.split(r"[\[<>=!~ ]", r)[0]) for r in requirements} <= pinned
    assert "torch" in pinned


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
