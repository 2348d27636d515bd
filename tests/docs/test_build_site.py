"""What scripts/build_site.py writes for zensical to read."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

import gem

ROOT = Path(__file__).parents[2]
PROJECT = {
    "urls": {"Repository": "https://example.org/people/gem", "Documentation": "https://gem.example.org/"}
}


@pytest.fixture
def build(script, monkeypatch):
    module = script("build_site")
    pages = {"envs/x.md": "# X\n", "envs/pictures/x.png": b"\x89PNG"}
    generated = {"Environments": (lambda: pages, lambda: [{"Games": [{"X": "envs/x.md"}]}])}
    monkeypatch.setattr(module, "GENERATED", generated)
    return module


def test_sources_generated_pages_and_navigation_come_together(build, tmp_path):
    build.write(tmp_path / "site", {})
    assert (tmp_path / "site/docs/envs/x.md").read_text("utf-8") == "# X\n"
    assert (tmp_path / "site/docs/envs/pictures/x.png").read_bytes() == b"\x89PNG"
    assert (tmp_path / "site/docs/guides/training.md").is_file()
    assert not (tmp_path / "site/docs/theme").exists()
    config = yaml.safe_load((tmp_path / "site/mkdocs.yml").read_text("utf-8"))
    (environments,) = (entry["Environments"] for entry in config["nav"] if "Environments" in entry)
    assert environments == [{"Games": [{"X": "envs/x.md"}]}]
    assert config["extra"]["release"] == gem.__version__
    assert "repo_url" not in config


def test_what_was_written_before_is_gone(build, tmp_path):
    stale = tmp_path / "site/docs/old.md"
    stale.parent.mkdir(parents=True)
    stale.write_text("# Old\n", "utf-8")
    build.write(tmp_path / "site", {})
    assert not stale.exists()


def test_links_to_source_come_from_the_project_file(build, tmp_path):
    build.write(tmp_path / "site", PROJECT)
    config = yaml.safe_load((tmp_path / "site/mkdocs.yml").read_text("utf-8"))
    assert config["repo_url"] == "https://example.org/people/gem"
    assert config["repo_name"] == "people/gem"
    assert config["edit_uri"] == "edit/main/docs/"
    assert config["site_url"] == "https://gem.example.org/"


def test_what_zensical_says_is_a_failure(build, tmp_path, monkeypatch):
    program = tmp_path / "zensical"
    program.write_text(
        "#!/bin/sh\necho 'Build started'\necho 'griffe: gem/x.py:1: no such parameter'\n", "utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setattr(build, "SITE", tmp_path / "out")
    monkeypatch.setattr(build.sys, "executable", str(tmp_path / "python"))
    assert build.build(tmp_path) == ["griffe: gem/x.py:1: no such parameter"]


def test_without_zensical_the_way_to_it_is_said(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "SITE", tmp_path / "out")
    monkeypatch.setattr(build.sys, "executable", str(tmp_path / "python"))
    (said,) = build.build(tmp_path)
    assert "make setup" in said


def test_pages_of_studies_stand_in_the_navigation_by_their_titles(script, tmp_path, monkeypatch):
    pages = script("baseline_pages")
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    assert pages.navigation() == []
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines/small.md").write_text("# A small study\n\nText.\n", "utf-8")
    assert pages.navigation() == [{"Studies": [{"A small study": "baselines/small.md"}]}]


@pytest.mark.system
def test_a_generated_page_says_where_its_text_is_written(script):
    text = "".join(script("reference_pages").files().values()) + "".join(
        script("error_pages").files().values()
    )
    env_pages = script("env_pages")
    spec = gem.spec("game:TowerofHanoi-v0-easy")
    text += env_pages.class_page(env_pages.class_of(spec), [spec]).text
    sources = re.findall(r"^---\nsource: (\S+)\n---$", text, re.MULTILINE)
    assert {"gem/errors.py", "gem/train/__init__.py", "gem/envs/games/tower_of_hanoi.py"} <= set(sources)
    assert [path for path in sources if not (ROOT / path).is_file()] == []


def test_notebooks_lie_beside_the_pages_that_link_to_them(build, tmp_path):
    build.write(tmp_path / "site", {})
    for name in ("train", "evaluate", "environment"):
        page = (tmp_path / f"site/docs/start/{name}.md").read_text("utf-8")
        assert f"]({name}.ipynb)" in page
        assert "examples/notebooks" not in page
        copied = (tmp_path / f"site/docs/start/{name}.ipynb").read_bytes()
        assert copied == (ROOT / f"examples/notebooks/{name}.ipynb").read_bytes()
