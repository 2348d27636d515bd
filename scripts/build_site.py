"""Build the documentation into site/: ``python scripts/build_site.py``.

Copies docs/ to build/site, adds the generated pages (environments, errors, reference), adds them to the
navigation of mkdocs.yml, and runs zensical. Any of its warnings fails the build.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import baseline_pages
import env_pages
import error_pages
import notebooks
import reference_pages
import yaml

import gem
from gem.cli.silence import Silence
from gem.waiting import name_wait

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build/site"
SITE = ROOT / "site"
GENERATED: dict[str, tuple[Callable[[], Mapping[str, str | bytes]], Callable[[], list[Any]]]] = {
    "Guides": (baseline_pages.files, baseline_pages.navigation),
    "Environments": (env_pages.files, env_pages.navigation),
    "Reference": (reference_pages.files, reference_pages.navigation),
    "Project": (error_pages.files, error_pages.navigation),
}
"""By the section of the navigation: what writes its files, by path under docs/, and its entries."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    """Write and build the site, and print the time; return 1 if something is wrong."""
    begun = time.monotonic()
    with Silence():
        with name_wait("the generated pages to be written"):
            write(SOURCE, tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"])
        written = time.monotonic()
        with name_wait("zensical, which builds the site"):
            wrong = build(SOURCE)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        ended = time.monotonic()
        print(f"site/: written in {written - begun:.1f} s, built in {ended - written:.1f} s")
    return 1 if wrong else 0


def write(folder: Path, project: Mapping[str, Any]) -> None:
    """Write everything that zensical reads into a folder; the folder is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("theme", "cards.json"))
    bring_notebooks(folder / "docs")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    config |= addresses(project)
    config["extra"] = {**config.get("extra", {}), "release": gem.__version__}
    config["theme"]["custom_dir"] = str(ROOT / "docs/theme")
    for section, (files, entries) in GENERATED.items():
        for path, content in files().items():
            target = folder / "docs" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        fill(config["nav"], section, entries())
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")


def bring_notebooks(docs: Path) -> None:
    """Copy the notebooks from outside docs/ to their pages, and adapt the links."""
    for name in notebooks.NAMES:
        page = docs / "start" / f"{name}.md"
        shutil.copy(notebooks.path(name), page.with_suffix(".ipynb"))
        text = page.read_text("utf-8").replace(
            f"](../../examples/notebooks/{name}.ipynb)", f"]({name}.ipynb)"
        )
        page.write_text(text, "utf-8")


def addresses(project: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of the site and the repository, if pyproject.toml states them."""
    urls = {name.lower(): url for name, url in project.get("urls", {}).items()}
    found = {}
    if "repository" in urls:
        found["repo_url"] = urls["repository"]
        found["repo_name"] = "/".join(urls["repository"].rstrip("/").split("/")[-2:])
        found["edit_uri"] = "edit/main/docs/"
    if "documentation" in urls:
        found["site_url"] = urls["documentation"]
    return found


def fill(nav: list[Any], section: str, entries: list[Any]) -> None:
    """Append generated entries to a section of the navigation."""
    (found,) = (entry[section] for entry in nav if isinstance(entry, dict) and section in entry)
    found.extend(entries)


def build(folder: Path) -> list[str]:
    """Run zensical, and return its warnings."""
    shutil.rmtree(SITE, ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        return [f"{program} is not there: run make setup"]
    done = subprocess.run(
        [program, "build", "--clean", "--strict", "--config-file", folder / "mkdocs.yml"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        check=False,
    )
    said = COLOURS.sub("", done.stdout + done.stderr).partition("Traceback")
    if done.returncode == 0 and not re.search(
        r"^(griffe|mkdocstrings|Warning|Error)\b", said[0], re.MULTILINE
    ):
        shutil.move(folder / "site", SITE)  # zensical writes nowhere but below its configuration
        return []
    ignored = ("Build started", "Build finished", "No issues found")
    lines = [line for line in said[0].splitlines() if not line.startswith(ignored)]
    return lines or [*said[2].splitlines()[-3:], "zensical failed"]


if __name__ == "__main__":
    sys.exit(main())
