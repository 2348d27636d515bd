"""The reference has whatever a package exports, and whatever the pages and the examples import."""

import ast
import importlib
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from gem.train.config.run_settings import RunSettings

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
UPSTREAM = ("gem.utils", "gem.multiagent", "gem.tools.search_engine")
"""Places of upstream's names: docs/guides/upgrading.md has them."""


@pytest.fixture(scope="module")
def reference(script):
    return script("reference_pages")


@pytest.fixture(scope="module")
def documented(reference):
    """Every module that a page has in full."""
    return {f"{package}.{name}" for package, names in reference.MODULES.items() for name in names}


def test_every_module_of_the_reference_is_there(documented):
    lost = []
    for name in documented:
        path = ROOT / name.replace(".", "/")
        if not (path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()):
            lost.append(name)
    assert lost == []


def test_what_packages_export_is_in_the_reference(reference, documented):
    missing = []
    for package in reference.MODULES:
        for name, value in reference.exports(package).items():
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if value.__module__ not in documented and value.__module__ != package:
                missing.append(f"{package}.{name}, of {value.__module__}")
    assert missing == []


def test_every_package_that_users_import_from_has_a_page(reference):
    packages = {path.parent.name for path in (ROOT / "gem").glob("*/__init__.py")}
    inside = {"_upstream", "cli", "scaffold"}  # upstream's names, and commands
    assert {f"gem.{name}" for name in packages - inside} | {"gem"} == set(reference.MODULES)


def imported(text: str) -> set[tuple[str, str]]:
    """Return module and name of each import from gem; of a page, in its Python blocks."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gem"):
            found |= {(node.module, alias.name) for alias in node.names}
    return found


def test_what_pages_and_examples_import_is_in_the_reference(reference, documented):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    block = re.compile(r"^```python[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    code = ["\n".join(block.findall(page.read_text("utf-8"))) for page in pages]
    code += [path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.py")]
    wanted = {found for text in code for found in imported(text)}
    assert ("gem.train.config", "TrainConfig") in wanted
    missing = set()
    for module, name in wanted:
        if module in documented or module.startswith(("gem.cli", *UPSTREAM)):
            continue
        if f"{module}.{name}" in documented or f"{module}.{name}" in reference.MODULES:  # a module
            continue
        if name not in reference.exports(module):
            missing.add(f"{module}: {name}")
    assert missing == set()


def test_an_index_names_exports_in_full_and_links_each_module(reference):
    text = reference.package_page("gem.rollout")
    assert "| [`gem.rollout.Job`][gem.rollout.jobs.Job] |" in text
    assert "\n| [`gem.rollout.jobs`](jobs.md) | " in text
    assert "\n::: gem.rollout.jobs\n" in reference.module_page("gem.rollout", "jobs")
    assert importlib.import_module("gem.rollout").Job.__module__ == "gem.rollout.jobs"


def test_what_is_on_a_further_page_is_there_and_on_its_modules_page_as_a_link_alone(reference):
    for module in [*reference.PARTS, reference.SETTINGS]:
        (package, name) = next(
            (package, name)
            for package, names in reference.MODULES.items()
            for name in names
            if f"{package}.{name}" == module
        )
        own = reference.module_page(package, name)
        loaded = importlib.import_module(module)
        for title, names in reference.parts(module).items():
            further = reference.further_page(module, title, names)
            for each in names:
                assert hasattr(loaded, each.partition(".")[0])
                assert f"\n::: {module}.{each}\n" in further
                assert f"[`{each}`][{module}.{each}]" in own
                assert re.search(rf"[(|]{each.rpartition('.')[2]}[)|]", own)


def test_every_setting_of_a_run_is_on_a_page_of_its_group(reference):
    groups = reference.parts(reference.SETTINGS)
    settings = [f"RunSettings.{one.name}" for one in fields(RunSettings)]
    assert [name for names in groups.values() for name in names] == settings
    assert "RunSettings.kl" in groups["the loss"]
    assert max(map(len, groups.values())) <= 24


def test_pages_have_addresses_of_their_own(reference):
    every = [page.path for package in reference.MODULES for page in reference.pages(package)]
    assert len({path.lower() for path in every}) == len(every)  # also where files ignore case
    entries = yaml.safe_dump(reference.navigation())
    assert [path for path in every if path not in entries] == []
