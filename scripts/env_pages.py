"""A hook of mkdocs: the pages under envs/, written from the registry and the environments' docstrings.

One page per class of our own, with its six headings, its ids and an episode that its solver plays; one page
per family of foreign environments, with its names.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import gem
from gem.errors import GemError, MissingExtra
from gem.registry import ENV_REGISTRY, FAMILIES, EnvSpec, Family, load

HEADINGS = ("Task", "Action", "Observation", "Reward", "End", "Source")
INDEX = "envs/index.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation, behind their index."""
    section = next(entry["Environments"] for entry in config.nav if "Environments" in entry)
    section.extend({page.title: page.path} for page in pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
    files.append(File.generated(config, INDEX, content=index(pages())))
    return files


@dataclass
class Page:
    """A page of the site."""

    title: str
    summary: str
    ids: list[str]
    text: str = field(repr=False)

    @property
    def path(self) -> str:
        """Where it stands under docs/."""
        return f"envs/{self.title.lower().replace(' ', '-')}.md"


@functools.cache
def pages() -> list[Page]:
    """Write a page per class, in the order of the catalogue, then one per family whose extra is there."""
    by_class: dict[Any, list[EnvSpec]] = {}
    for spec in ENV_REGISTRY.values():
        by_class.setdefault(spec.entry_point, []).append(spec)
    written = [
        class_page(load(entry_point, specs[0].extra), specs) for entry_point, specs in by_class.items()
    ]
    for family in FAMILIES.values():
        with contextlib.suppress(MissingExtra):
            written.append(family_page(family))
    return written


def class_page(env_class: Any, specs: list[EnvSpec]) -> Page:
    """Write the page of one environment class and of the ids that stand for it."""
    summary, manual = parse(env_class)
    rows = []
    for spec in specs:
        keywords = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        rows.append(
            f"| `{spec.id}` | {keywords and f'`{keywords}`'} | {spec.max_turns or ''} | {spec.solver} | "
            f"{spec.data or ''} |"
        )
    head = ["| id | keywords | turns | solver | data set |", "|---|---|---|---|---|"]
    table = ["## Ids", "", *head, *rows, ""]
    shown = next((spec for spec in specs if spec.data is None), None)
    episode = transcript(shown) if shown else []
    lines = [f"# {env_class.__name__}", "", summary, "", *manual, *table, *episode]
    return Page(env_class.__name__, summary, [spec.id for spec in specs], "\n".join(lines))


def family_page(family: Family) -> Page:
    """Write the page of a family from the docstring of the class that makes its environments."""
    summary, manual = parse(load(family.entry_point, family.extra))
    needs = [f"Needs `pip install 'gem-gym[{family.extra}]'`.", ""] if family.extra else []
    ids = [f"{family.prefix}:{name}" for name in family.names]
    names = ["## Ids", "", *(f"- `{env_id}`" for env_id in ids)]
    first = transcript(family.spec(family.names[0]))
    lines = [f"# {family.prefix}:", "", summary, "", *needs, *manual, *first, *names]
    return Page(family.prefix, summary, ids, "\n".join(lines))


def parse(env_class: Any) -> tuple[str, list[str]]:
    """Split an environment's docstring into its summary and its six headings, as lines of Markdown.

    Raises:
        GemError: when a heading is missing.
    """
    doc = (inspect.getdoc(env_class) or "").replace("``", "`")
    summary, *rest = re.split(rf"^({'|'.join(HEADINGS)}):[ ]*\n", doc, flags=re.MULTILINE)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    if missing := [heading for heading in HEADINGS if heading not in sections]:
        raise GemError(f"{env_class.__qualname__}: its docstring lacks {', '.join(missing)}.")
    lines: list[str] = []
    for heading in HEADINGS:
        lines += [f"## {heading}", "", inspect.cleandoc("\n" + sections[heading]), ""]
    return summary.strip(), lines


def transcript(spec: EnvSpec, most: int = 6) -> list[str]:
    """Play seed 0, with the solver where there is one, and return what was said as Markdown."""
    lines = ["## An episode", "", f"`{spec.id}`, seed 0:", ""]
    with gem.make(spec) as env:
        obs, _ = env.reset(seed=0)
        for _ in range(most):
            action = env.sample_random_action() if spec.solver == "none" else env.solve()
            lines += [said("Environment", obs), said("Agent", action)]
            step = env.step(action)
            obs = step.obs
            if step.done:
                end = f"Reward of the last turn: {step.reward:g}."
                return [*lines, said("Environment", obs), end, ""]
    return [*lines, said("Environment", obs), "And so on.", ""]


def said(who: str, obs: Any) -> str:
    """Return one utterance as a titled block, in which no text is markup."""
    text = gem.Message("user", obs).text
    fence = "`" * (3 + max(map(len, re.findall("`{3,}", text)), default=0))
    return f"**{who}**\n\n{fence}text\n{text}\n{fence}\n"


def index(written: list[Page]) -> str:
    """Write the page that lists the others."""
    rows = [f"| [{p.title}]({p.path.removeprefix('envs/')}) | {p.summary} | {len(p.ids)} |" for p in written]
    return "\n".join(
        [
            "# Environments",
            "",
            "Generated from the environments' own docstrings; `gem-gym list` prints the same ids.",
            "",
            "| environment | task | ids |",
            "|---|---|---|",
            *rows,
        ]
    )
