"""A hook of mkdocs: the pages under envs/, written from the registry and the environments' docstrings.

One page per class of our own, with its six headings, its ids, an episode that its solver plays, a picture of
the board and the cards of `gem-gym audit`; one page per family of foreign environments, with its names.
The cards stand in docs/envs/cards.json, where `gem-gym audit game --json docs/envs/cards.json` writes those
of a family beside the others; AUDITED says which families are audited with fewer episodes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import gem
from gem.content import Image, text_of
from gem.errors import GemError, MissingExtra, NoSolver, NoVerdict
from gem.registry import ENV_REGISTRY, FAMILIES, EnvSpec, Family, load
from gem.testing.card import Card, read_cards

HEADINGS = ("Task", "Action", "Observation", "Reward", "End", "Source")
INDEX = "envs/index.md"
CARDS = Path(__file__).parents[1] / "docs/envs/cards.json"

ABOUT_CARDS = """
## What a card says

`gem-gym audit ID` plays policies on an environment and prints its card; this site shows the stored ones. A
row of the table gives the mean return of the environment's own **solver**, of legal **random** play, and of
the best of the policies that **know nothing**: a constant answer (answers to other seeds are tried), an
empty one, the observation echoed, a piece of it copied (a line, a number, an expression, an option, what
stands in quotes or brackets), the form of an answer with nothing in it, every candidate answer at once, and
instructions to the grader. Where there are more turns, copiers also act first and then copy from what they
were shown, as a tool's output, or say again what they said before. **Episodes** is how many each of them
played: 40, fewer where episodes are long. A card in full gives the 95% interval of every rate of success:
that of 8 wins in 8 episodes begins at 68%. **Distinct** is how many different instances that many seeds
deal. **Tokens** are those of the first observation and the median of the later ones, by a rule of thumb: up
to six letters, up to three digits, any other sign, a new line are a token each; of a picture, 28 by 28
pixels. **Open** counts the findings that ask for a change: a full reward that is out of reach, a return
above it, knowing nothing that pays more than a third of it, copying that pays more than guessing where the
card does not say why, a solver hardly better than random play, an answer that leaks, or fewer than five
instances.
"""


AUDITED = {
    "code": "--episodes 8 --instances 40",
    "db": "--episodes 8 --instances 40",
    "mcp": "--episodes 8 --instances 40",
    "ta": "--episodes 8 --instances 20",
    "terminal": "--episodes 8 --instances 40",
}
"""How families are audited whose episodes take long, or that are many."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation, behind their index."""
    section = next(entry["Environments"] for entry in config.nav if "Environments" in entry)
    section.extend({page.title: page.path} for page in pages())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
        if page.picture:
            files.append(File.generated(config, page.picture_path, content=page.picture))
    files.append(File.generated(config, INDEX, content=index(pages())))
    return files


@dataclass
class Page:
    """A page of the site."""

    title: str
    summary: str
    ids: list[str]
    text: str = field(repr=False)
    picture: bytes = field(repr=False, default=b"")

    @property
    def path(self) -> str:
        """Where it stands under docs/."""
        return (
            f"envs/{self.title.lower().replace(' ', '-').rstrip(':')}.md"  # `rg:` would be read as a scheme
        )

    @property
    def picture_path(self) -> str:
        """Where its picture stands under docs/."""
        return self.path.replace("envs/", "envs/pictures/").replace(".md", ".png")


@functools.cache
def pages() -> list[Page]:
    """Write a page per class, in the order of the catalogue, then one per family whose extra is there."""
    by_class: dict[Any, list[EnvSpec]] = {}
    for spec in ENV_REGISTRY.values():
        if spec.family not in FAMILIES:
            by_class.setdefault(class_of(spec), []).append(spec)
    written = [class_page(env_class, specs) for env_class, specs in by_class.items()]
    for family in FAMILIES.values():
        if not family.names:  # addresses: what stands there, nobody knows
            continue
        with contextlib.suppress(MissingExtra):
            written.append(family_page(family))
    return written


def class_of(spec: EnvSpec) -> Any:
    """Return the class that a spec's entry point is, or that it makes."""
    entry = load(spec.entry_point, spec.extra)
    return entry if inspect.isclass(entry) else type(gem.make(spec).unwrapped)


def solver(spec: EnvSpec) -> str:
    """Return how well the solver plays, where that was measured with its rate."""
    return spec.solver if spec.solver_rate is None else f"wins {spec.solver_rate:.1%} of seeds 0 to 499"


def class_page(env_class: Any, specs: list[EnvSpec]) -> Page:
    """Write the page of one environment class and of the ids that stand for it."""
    summary, manual = parse(env_class)
    rows = []
    for spec in specs:
        keywords = ", ".join(f"{name}={value!r}" for name, value in spec.kwargs.items())
        rows.append(
            f"| `{spec.id}` | {keywords and f'`{keywords}`'} | {spec.max_turns or ''} | {solver(spec)} | "
            f"{spec.data or ''} |"
        )
    head = ["| id | keywords | turns | solver | data set |", "|---|---|---|---|---|"]
    table = ["## Ids", "", *head, *rows, ""]
    here = [spec for spec in specs if spec.data is None]
    shown = next((spec for spec in here if spec.solver != "none"), next(iter(here), None))
    episode: list[str] = []
    drawn = b""
    with contextlib.suppress(NoVerdict, MissingExtra):  # no sandbox or no server: a page without an episode
        if shown:
            episode, drawn = transcript(shown), picture(shown)
    page = Page(env_class.__name__, summary, [spec.id for spec in specs], "", drawn)
    seen = [f"![The board]({page.picture_path.removeprefix('envs/')})", ""] if drawn else []
    lines = [f"# {page.title}", "", summary, "", *seen, *manual, *table, *episode, *card_section(specs)]
    page.text = "\n".join(lines)
    return page


def family_page(family: Family) -> Page:
    """Write the page of a family from the docstrings of the classes that make its environments."""
    specs = [family.spec(name) for name in family.names]
    by_seats = {len(spec.seats) > 1: spec for spec in reversed(specs)}  # the first of each kind
    summary, manual = parse(class_of(specs[0]))
    for further in (spec for spec in by_seats.values() if spec is not specs[0]):
        also, headings = parse(class_of(further))
        summary += f" {also}"
        manual += [f"## {also.rstrip('.')}", "", *(line.replace("## ", "### ", 1) for line in headings)]
    needs = [f"Needs `pip install 'gem-gym[{family.extra}]'`.", ""] if family.extra else []
    ids = [spec.id for spec in specs]
    names = ["## Ids", ""]
    if any(spec.solver != "none" for spec in specs):
        rows = (f"| `{spec.id}` | {spec.max_turns or ''} | {solver(spec)} |" for spec in specs)
        names += ["| id | turns | solver |", "|---|---|---|", *rows]
    else:
        names += [f"- `{env_id}`" for env_id in ids]
    first = transcript(specs[0])
    about = ["[What this bridge mends, and what it does not give](../bridges.md).", ""]
    told = card_section(specs, foreign=True)
    lines = [f"# {family.prefix}:", "", summary, "", *about, *needs, *manual, *first, *told, *names]
    return Page(family.prefix, summary, ids, "\n".join(lines))


@functools.cache
def cards() -> dict[str, Card]:
    """Read the stored cards."""
    return read_cards(CARDS) if CARDS.exists() else {}


def card_section(specs: list[EnvSpec], foreign: bool = False) -> list[str]:
    """Write the cards: a row each, then each in full, of foreign ones what is open; and who has none."""
    told = [cards()[spec.id] for spec in specs if spec.id in cards()]
    without: dict[str, list[str]] = {}
    for spec in specs:
        if spec.id not in cards():
            without.setdefault(why_no_card(spec), []).append(f"`{spec.id}`")
    missing = [
        f"No card: {', '.join(ids) if len(ids) <= 12 else f'{len(ids)} of the ids below'}. {why}\n"
        for why, ids in without.items()
    ]
    if not told:
        return ["## Cards", "", *missing]
    rows = []
    for card in told:
        tokens = f"{card.first.median}{f', then {card.later.median}' if card.later else ''}"
        rows.append(
            f"| `{card.env}` | {paid(card, 'solver')} | {paid(card, 'random')} | "
            f"{max(card.ignorant.values()):.3f} | {card.policies['empty'].episodes} | "
            f"{card.distinct} of {card.dealt} | {tokens} | {len(card.findings) or 'none'} |"
        )
    family = told[0].env.partition(":")[0]
    options = f" {AUDITED[family]}" if family in AUDITED else ""
    if foreign:
        found = [f"- `{card.env}`, {one.name}: {one.seen}" for card in told for one in card.findings]
        full = ["Open, as the package has it:", "", *found, ""] if found else []
    else:
        full = ["In full:", "", *(line for card in told for line in ("```text", str(card), "```", ""))]
    return [
        "## Cards",
        "",
        "| id | solver | random | knowing nothing | episodes | distinct | tokens | open |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"[What a card says](index.md#what-a-card-says); from `gem-gym audit {family}{options}`.",
        "",
        *missing,
        *full,
    ]


def why_no_card(spec: EnvSpec) -> str:
    """Return why an id has no stored card, in a sentence."""
    if len(spec.seats) > 1:
        return "What one of several seats earns depends on who plays the others: ids of one seat are audited."
    if spec.data:
        return "The questions are those of a data set that is not part of gem: audit it where that is."
    if spec.id.startswith("ta:"):
        return "A game of TextArena has no expert and no random actor to hold its rewards against."
    return "It has not been audited."


def paid(card: Card, policy: str) -> str:
    """Return a policy's mean return."""
    return f"{card.policies[policy].reward:.3f}" if policy in card.policies else "-"


def picture(spec: EnvSpec, turns: int = 3) -> bytes:
    """Return a picture of the state some turns into seed 0, or the first observation's own; empty without."""
    with gem.make(spec) as env:
        obs, _ = env.reset(seed=0)
        own = next((part.data for part in obs if isinstance(part, Image)), b"")
        draw = getattr(env.unwrapped, "picture", None)
        if own or draw is None:
            return own
        for _ in range(turns):
            before = env.fork()
            if env.step(env.solve()).done:
                return before.picture().data
        return draw().data


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
            try:
                action = env.sample_random_action() if spec.solver == "none" else env.solve()
            except NoSolver:  # a foreign world may have no actor at all
                return [*lines, said("Environment", obs), "It has no expert and no random actor.", ""]
            lines += [said("Environment", obs), said("Agent", action)]
            step = env.step(action)
            obs = step.obs
            if step.done:
                earned = getattr(step, "rewards", None)  # of several seats
                end = f"Reward of the last turn: {f'{step.reward:g}' if earned is None else earned}."
                return [*lines, said("Environment", obs), end, ""]
    return [*lines, said("Environment", obs), "And so on.", ""]


def said(who: str, obs: Any) -> str:
    """Return one utterance as a titled block, in which no text is markup."""
    text = (
        "\n".join(f"{seat}: {text_of(part)}" for seat, part in obs.items())
        if isinstance(obs, dict)
        else text_of(obs)
    )
    fence = "`" * (3 + max(map(len, re.findall("`{3,}", text)), default=0))
    return f"**{who}**\n\n{fence}text\n{text}\n{fence}\n"


def index(written: list[Page]) -> str:
    """Write the page that lists the others."""
    rows = [
        f"| [{p.title}]({p.path.removeprefix('envs/')}) | {p.summary} | `{p.ids[0]}` | {len(p.ids)} |"
        for p in written
    ]
    return "\n".join(
        [
            "# Environments",
            "",
            "Generated from the environments' own docstrings; `gem-gym list` prints the same ids.",
            "",
            "| environment | task | its first id | ids |",
            "|---|---|---|---|",
            *rows,
            ABOUT_CARDS,
        ]
    )
