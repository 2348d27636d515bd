"""The pages of studies show what their rows hold."""

import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gem.train.baselines.page import page, page_path
from gem.train.baselines.picture import picture_path, shows
from gem.train.baselines.study import read_study
from gem.train.baselines.summary import summarise_study

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "baselines").glob("*.toml"))
RUN = [path for path in STUDIES if any(path.with_suffix("").glob("*.json"))]
PAGES = ROOT / "docs/baselines"


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_a_page_is_what_its_rows_give(path):
    """Else ``gem-gym baseline FILE.toml --report`` writes it again."""
    study = read_study(path)
    summary = summarise_study(study)
    assert page_path(study, PAGES).read_text(encoding="utf-8") == page(summary)
    if any(each.curves for each in summary.cells):
        assert shows(picture_path(study, PAGES), summary)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_row_belongs_to_its_study(path):
    summary = summarise_study(read_study(path))
    assert summary.strange == ()
    assert [each.cell.name for each in summary.cells if each.stale] == []


@pytest.mark.system
def test_the_large_study_has_the_24_environments_of_the_suite():
    with (ROOT / "gem/evals/suites/baseline24.toml").open("rb") as file:
        suite = [
            (each, part.get("tools", []))
            for part in tomllib.load(file)["environments"]
            for each in part["ids"]
        ]
    study = read_study(ROOT / "baselines/baseline24.toml")
    played = {each.settings["env"]: each.settings.get("tools", []) for each in study.environments}
    assert {name: [*tools] for name, tools in played.items()} == dict(suite)
    assert [each.name for each in study.variants] == ["ReBN", "REINFORCE"]


def test_there_is_no_page_without_a_study():
    assert {page.stem for page in PAGES.glob("*.md")} <= {path.stem for path in STUDIES}
