"""Write the pages under envs/ from the registry and the environments' docstrings; used by build_site.py.

There is one page per class of gem, with its six headings, its ids, an episode played by its solver, a picture
of the board and the cards of `gem-gym audit`. Each family of foreign environments has one page with its
names. The index lists every id with the data for its filter (docs/assets/site.js).
The cards are in docs/envs/cards.json. `gem-gym audit game --json docs/envs/cards.json` writes those of a
family and keeps the others; AUDITED lists the families that are audited with fewer episodes.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import textwrap
from dataclasses import dataclass, field
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import gem
from gem.content import Image, text_of
from gem.errors import GemError, MissingExtra, NoSolver, NoVerdict
from gem.registry import ENV_REGISTRY, FAMILIES, EnvSpec, Family, load
from gem.testing.card import Card, read_cards
from gem.worlds import KNOWN

HEADINGS = ("Task", "Action", "Observation", "Reward", "End", "Source")
INDEX = "envs/index.md"
CARDS = Path(__file__).parents[1] / "docs/envs/cards.json"

ABOUT_CARDS = """
## What a card says

`gem-gym audit ID` plays policies on an environment and prints its card. This site shows the stored ones.
A row has mean returns:

- **Solver**: the environment's own.
- **Random**: legal random play.
- **Knowing nothing**: the best of the policies that do not look at the task.

Those that know nothing give one of these answers:

- a constant one (answers to other seeds are tried), an empty one, the observation again;
- a piece of the observation: a line, a number, an expression, an option, what stands in quotes or brackets;
- the form of an answer with nothing in it, every candidate answer at once, instructions to the grader.

Where there are more turns, copiers also act first and copy later: a tool's output, or what they said before.

The other columns:

- **Episodes** is how many each of them played: 40, fewer where episodes are long. A card in full gives the
  95% interval of every rate of success: that of 8 wins in 8 episodes begins at 68%.
- **Distinct** is how many different instances that many seeds deal.
- **Tokens** are those of the first observation and the median of the later ones, by a rule of thumb. Up to
  six letters, up to three digits, any other sign and a new line are a token each; of a picture, 28 by 28
  pixels.
- **Open** counts the findings that ask for a change:
    - a full reward that is out of reach, or a return above it;
    - knowing nothing that pays more than a third of it, or wins more than a third of the episodes, whatever
      random play earns; more than a twentieth for no answer at all. A spec may declare a higher chance level
      with its reason. What 40 episodes leave open, up to 100 with other seeds decide;
    - copying that pays more than guessing, where the card does not say why;
    - a solver hardly better than random play;
    - an answer that leaks;
    - foreign tasks that pay for doing nothing or cannot be solved; `--exclude disputed` leaves them out;
    - fewer than five instances.
"""


AUDITED = {
    "code": "--episodes 8 --instances 40",
    "db": "--episodes 8 --instances 40",
    "mcp": "--episodes 8 --instances 40",
    "ta": "--episodes 8 --instances 20",
    "terminal": "--episodes 8 --instances 40",
    "agentdojo": "--episodes 8 --instances 40",
    "babyai": "--episodes 8 --instances 40",
    "bfcl": "--episodes 8 --instances 40",
    "minigrid": "--episodes 8 --instances 40",
    "miniwob": "--episodes 4 --instances 40",
    "repo": "--episodes 8 --instances 40",
    "textworld": "--episodes 2 --instances 5",
}
"""How families are audited whose episodes take long, or that are many."""


MEASURED = {
    "babyai": "60 seeds",
    "gymnasium": "seeds 0 to 499",
    "miniwob": "100 seeds, none of them below 1,000",
}
"""Over what the rate of a foreign family's solver was measured; that of gem's own is of seeds 0 to 499."""


WORLD_PAGES = {
    **dict.fromkeys(("babyai", "minigrid", "agentdojo", "repo", "textworld"), "worlds"),
    **{"bfcl": "bfcl", "tau2": "tau2", "miniwob": "browser"},
}
"""The guides of the families of fetched worlds."""

FAMILY_NAMES = {
    "game": "Games",
    "math": "Mathematics",
    "code": "Programs",
    "data": "Your own data",
    "qa": "Questions",
    "logic": "Logic",
    "vision": "Pictures",
    "eval": "Evaluation sets",
    "terminal": "Terminal",
    "db": "Databases",
    "mcp": "MCP server",
    "multi": "Several agents",
    "rg": "reasoning-gym",
    "ta": "TextArena",
    "gymnasium": "Gymnasium",
    "agentdojo": "AgentDojo",
    "babyai": "BabyAI",
    "minigrid": "MiniGrid",
    "tau2": "tau2-bench",
    "bfcl": "BFCL",
    "miniwob": "MiniWoB++",
    "repo": "Repairs of packages",
    "textworld": "TextWorld",
    "openspiel": "OpenSpiel",
}
"""What a family is called on the site; one that is not here goes by its prefix."""

MOST_ROWS = 30
"""Rows of a table of cards that are shown at once: a longer table is folded."""

NOTHING = "envs/nothing.md"
"""The page of what foreign environments pay for play that knows nothing."""

LICENCE = "Apache-2.0"
"""Of what is written here; tests hold it to pyproject.toml."""


@dataclass
class Page:
    """A page of an environment class or of a foreign family."""

    title: str
    summary: str
    specs: list[EnvSpec]
    text: str = field(repr=False)
    picture: bytes = field(repr=False, default=b"")

    @property
    def family(self) -> str:
        """The family of its first id, under which it stands."""
        return self.specs[0].family

    @property
    def path(self) -> str:
        """Where it stands under docs/."""
        return f"envs/{self.title.lower().replace(' ', '-')}.md"

    @property
    def picture_path(self) -> str:
        """Where its picture stands under docs/: a board, or the beginning of what the agent reads."""
        suffix = ".svg" if self.picture.startswith(b"<svg") else ".png"
        return self.path.replace("envs/", "envs/pictures/").replace(".md", suffix)


def navigation() -> list[dict[str, Any]]:
    """Return the navigation entries under Environments: the index, then the pages by family."""
    families: dict[str, list[dict[str, str]]] = {}
    for page in pages():
        name = FAMILY_NAMES.get(page.family, page.family)
        families.setdefault(name, []).append({page.title: page.path})
    return [
        {"All environments": INDEX},
        {"Paid for nothing": NOTHING},
        *({name: found} for name, found in families.items()),
    ]


def files() -> dict[str, str | bytes]:
    """Return every file to write, by its path under docs/."""
    written: dict[str, str | bytes] = {INDEX: index(pages()), NOTHING: nothing_page()}
    for page in pages():
        written[page.path] = page.text
        written[page.picture_path] = page.picture
    return written


@functools.cache
def pages() -> list[Page]:
    """Write a page per class, in the order of the catalogue, then one per family whose extra is installed."""
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
    """Return the class of a spec's entry point: the class itself, or what the function makes."""
    entry = load(spec.entry_point, spec.extra)
    return entry if inspect.isclass(entry) else type(gem.make(spec).unwrapped)


def solver(spec: EnvSpec) -> str:
    """Return a description of the solver, with its rate if that was measured."""
    if spec.solver_rate is None:
        return spec.solver
    return f"wins {spec.solver_rate:.1%} of {MEASURED.get(spec.family, 'seeds 0 to 499')}"


def class_page(env_class: Any, specs: list[EnvSpec]) -> Page:
    """Write the page of one environment class and its ids."""
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
    drawn, board = text_picture(summary), False
    with contextlib.suppress(NoVerdict, MissingExtra):  # no sandbox or no server: a page without an episode
        if shown:
            episode = transcript(shown)
            painted = picture(shown)
            drawn, board = painted or text_picture(first_words(shown)), bool(painted)
    page = Page(env_class.__name__, summary, specs, "", drawn)
    alt = f"{page.title} a few turns into an episode"
    seen = [f"![{alt}]({page.picture_path.removeprefix('envs/')}){{ .board }}", ""] if board else []
    lines = [
        *from_source(env_class),
        f"# {page.title}",
        "",
        summary,
        "",
        *seen,
        *manual,
        *table,
        *episode,
        *card_section(specs),
    ]
    page.text = "\n".join(lines)
    return page


def family_page(family: Family) -> Page:
    """Write the page of a family from the docstrings of the classes that make its environments."""
    specs = [family.spec(name) for name in family.names]
    kinds = {(spec.entry_point, len(spec.seats) > 1): spec for spec in reversed(specs)}  # the first of each
    summary, manual = parse(class_of(specs[0]))
    for further in (spec for spec in reversed([*kinds.values()]) if spec is not specs[0]):
        also, headings = parse(class_of(further))
        summary += f" {also}"
        manual += [f"## {also.rstrip('.')}", "", *(line.replace("## ", "### ", 1) for line in headings)]
    needs = [f"Needs `.venv/bin/pip install -e '.[{family.extra}]'`.", ""] if family.extra else []
    alike: dict[str, list[str]] = {}
    for spec in specs:
        alike.setdefault(f"{spec.max_turns or ''} | {solver(spec)}", []).append(f"`{spec.id}`")
    rows = (f"| {', '.join(ids)} | {facts} |" for facts, ids in alike.items())
    names = ["## Ids", "", "| id | turns | solver |", "|---|---|---|", *rows]
    first = transcript(specs[0])
    guide = WORLD_PAGES.get(family.prefix, "bridges")
    about = [f"[What this bridge mends, and what it does not give](../guides/{guide}.md).", ""]
    if family.prefix in EXAMPLES:
        about = ["[Files, columns and graders](../guides/data.md).", ""]
    told = card_section(specs, foreign=True)
    title = FAMILY_NAMES.get(family.prefix, family.prefix)
    lines = [
        *from_source(class_of(specs[0])),
        f"# {title}",
        "",
        summary,
        "",
        *about,
        *needs,
        *manual,
        *first,
        *told,
        *names,
    ]
    return Page(title, summary, specs, "\n".join(lines), text_picture(first_words(specs[0])))


def from_source(env_class: Any) -> list[str]:
    """Return the front matter that names the source of a page's text, for its edit link."""
    return ["---", f"source: {env_class.__module__.replace('.', '/')}.py", "---", ""]


@functools.cache
def cards() -> dict[str, Card]:
    """Read the stored cards."""
    return read_cards(CARDS) if CARDS.exists() else {}


def card_section(specs: list[EnvSpec], foreign: bool = False) -> list[str]:
    """Write the cards: a row each, then each in full (foreign ones: open findings), and ids without one."""
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
    table = [
        "| id | solver | random | knowing nothing | episodes | distinct | tokens | open |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    if foreign:
        found = [f"- `{card.env}`, {one.name}: {one.seen}" for card in told for one in card.findings]
        full = fold(f"The {len(found)} open findings, as the package has them", [*found, ""]) if found else []
    else:
        texts = (line for card in told for line in ("```text", str(card), "```", ""))
        full = fold("The cards in full", [*texts])
    return [
        "## Cards",
        "",
        *(fold(f"The cards of {len(rows)} ids", table) if len(rows) > MOST_ROWS else table),
        f"[What a card says](index.md#what-a-card-says); from `gem-gym audit {family}{options}`.",
        "",
        *missing,
        *full,
    ]


def fold(title: str, lines: list[str]) -> list[str]:
    """Return lines of Markdown that a reader opens by their title."""
    return ['<details markdown="1">', f"<summary>{title}</summary>", "", *lines, "</details>", ""]


def nothing_page() -> str:
    """Write the page of what foreign environments pay for play that knows nothing of the task."""
    shown = [card for card in cards().values() if card.env.partition(":")[0] in FAMILIES]
    shown.sort(key=lambda card: (-max(card.ignorant.values()), card.env))
    rows = []
    for card in shown:
        best = max(card.ignorant, key=lambda policy: card.ignorant[policy])
        says = " ".join(card.policies[best].says.split())[:60] if card.ignorant[best] > 0 else ""
        answer = f"<code>{escape(says).replace('|', '&#124;')}</code>" if says else ""
        names = ("empty", "echo", "constant", "copier", "random", "solver")
        values = " | ".join(paid(card, name) for name in names)
        rows.append(f"| `{card.env}` | {values} | {answer} |")
    free = sum(card.ignorant["empty"] > 0 for card in shown)
    third = sum(max(card.ignorant.values()) > 1 / 3 for card in shown)
    head = [
        "| id | silence | echo | fixed | copied | random | solver | answer |",
        "|---|---|---|---|---|---|---|---|",
    ]
    prefixes = sorted({card.env.partition(":")[0] for card in shown})
    return "\n".join(
        [
            "---",
            "hide: [toc]",
            "source: scripts/env_pages.py",
            "---",
            "",
            "# What the benchmarks pay for nothing",
            "",
            "The mean return of play that knows nothing of the task, in environments of other packages: "
            "silence, the observation said back, a fixed answer, a copied piece of the question; then random "
            "play and the solver. Of several answers of a kind, the one that earned most counts. The last "
            "column is the answer of the best of the first four kinds.",
            "",
            f"Of {len(shown)} ids with a card, {free} pay for silence and {third} pay more than a third for "
            "some answer that was fixed or copied. Rewards are the packages' own: a return above 0 is no "
            "success by itself.",
            "",
            f"From the stored cards; `gem-gym audit {' '.join(prefixes)}` measures them again. An id without "
            "a card is not here; [its page](index.md) says why it has none.",
            "",
            "## More than a third",
            "",
            *head,
            *rows[:third],
            "",
            "## A third or less",
            "",
            *fold(f"The other {len(rows) - third} ids, by what they pay", [*head, *rows[third:], ""]),
        ]
    )


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
    """Return a picture of seed 0 after some turns, or of the first observation; empty if there is none."""
    with make(spec) as env:
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


EXAMPLES = {"data": [{"question": "What is the capital of Norway?", "answer": "Oslo"}]}
"""Rows for the families that need data, by prefix."""


def make(spec: EnvSpec) -> gem.Env:
    """Make an environment, over example rows where it needs some."""
    rows = EXAMPLES.get(spec.family)
    return gem.make(spec) if rows is None else gem.make(spec, data=rows)


def transcript(spec: EnvSpec, most: int = 6) -> list[str]:
    """Play seed 0, with the solver if there is one, and return the transcript as Markdown."""
    lines = ["## An episode", "", f"`{spec.id}`, seed 0:", ""]
    with make(spec) as env:
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
    """Return one message as a titled block, with all markup escaped."""
    text = (
        "\n".join(f"{seat}: {text_of(part)}" for seat, part in obs.items())
        if isinstance(obs, dict)
        else text_of(obs)
    )
    fence = "`" * (3 + max(map(len, re.findall("`{3,}", text)), default=0))
    return f"**{who}**\n\n{fence} {{ .text .said }}\n{text}\n{fence}\n"


def first_words(spec: EnvSpec) -> str:
    """Return the first observation of seed 0."""
    with make(spec) as env:
        obs, _ = env.reset(seed=0)
        return next(map(text_of, obs.values())) if isinstance(obs, dict) else text_of(obs)


def text_picture(text: str, columns: int = 26, rows: int = 8) -> bytes:
    """Return a small picture of the beginning of a text, as SVG."""
    lines = [part for line in text.splitlines() for part in textwrap.wrap(line, columns) or [""]][:rows]
    spans = "".join(
        f'<text x="8" y="{17 + 12 * number}" xml:space="preserve">{escape(printable(line))}</text>'
        for number, line in enumerate(lines)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 112" width="160" height="112">'
        '<rect width="160" height="112" rx="6" fill="#f1efe8"/>'
        f'<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="9" fill="#33413e">{spans}</g>'
        "</svg>"
    ).encode()


def printable(text: str) -> str:
    """Return the text without the characters that XML does not allow."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def index(written: list[Page]) -> str:
    """Write the page that lists every id, by family, with a filter."""
    ids = [spec for page in written for spec in page.specs]
    lines = [
        "---",
        "hide: [toc]",
        "source: scripts/env_pages.py",
        "---",
        "",
        "# Environments",
        "",
        f"{len(ids)} ids in {len({spec.family for spec in ids})} families, each of which opens.",
        "`gem-gym list` prints them too.",
        "[What a card says](#what-a-card-says) explains the figures.",
        "",
        *filter_form(ids),
    ]
    for family in dict.fromkeys(page.family for page in written):
        lines += [family_entry(family, [page for page in written if page.family == family]), ""]
    return "\n".join([*lines, ABOUT_CARDS])


def family_entry(family: str, members: list[Page]) -> str:
    """Write the index entry of a family: its name, what is in it, and, once it is opened, its pages."""
    count = sum(len(page.specs) for page in members)
    about = members[0].summary if len(members) == 1 else ", ".join(page.title for page in members)
    return (
        f'<details class="env-family" markdown="0"><summary><h2 id="{family}">'
        f"{escape(FAMILY_NAMES.get(family, family))}</h2>"
        f"<p>{count} id{'s' * (count > 1)}. {as_html(about)}</p></summary>"
        f"{''.join(map(entry, members))}</details>"
    )


def as_html(text: str) -> str:
    """Return a line of Markdown as HTML: its code, and all else escaped."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text.replace("\n", " ")))


def filter_form(specs: list[EnvSpec]) -> list[str]:
    """Write the filter: a search, and a choice for each property; without scripts it stays hidden."""
    facts = [facts_of(spec) for spec in specs]
    choices = []
    for name in facts[0]:
        options = sorted({fact[name] for fact in facts})
        values = "".join(f"<option>{escape(value)}</option>" for value in options)
        choices.append(
            f'<label>{name}<select name="{name}"><option value="">any</option>{values}</select></label>'
        )
    return [
        '<form class="env-filter" hidden>',
        '<label>id or words<input type="search" name="words" autocomplete="off"></label>',
        *choices,
        '<output aria-live="polite"></output>',
        "</form>",
        "",
    ]


def facts_of(spec: EnvSpec) -> dict[str, str]:
    """Return the properties for the filter, by name."""
    turns = "not stated" if spec.max_turns is None else "one" if spec.max_turns == 1 else "several"
    return {
        "family": spec.family,
        "turns": turns,
        "tools": ", ".join(tools_of(spec)) or "none",
        "solver": spec.solver,
        "licence": licence(spec),
        "needs": (spec.data and "a data set") or spec.extra or "nothing more",
    }


@functools.cache
def tool_names(env_class: Any, env_id: str) -> tuple[str, ...]:
    """Return the tools that an environment's model may call natively."""
    specs = getattr(env_class, "tool_specs", ())
    if isinstance(specs, property):  # what they are depends on the instance
        with contextlib.suppress(GemError), gem.make(env_id) as env:
            return tuple(tool.name for tool in env.tool_specs)
        return ()
    return tuple(tool.name for tool in specs)


def tools_of(spec: EnvSpec) -> tuple[str, ...]:
    """Return the tools of an id; those of a foreign family have none."""
    return () if spec.family in FAMILIES else tool_names(class_of(spec), spec.id)


@functools.cache
def package_licence(package: str) -> str:
    """Return the licence that an installed package states."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        about = metadata.metadata(package)
        return str(about.get("License-Expression") or about.get("License")).removesuffix(" License")
    return "the package's own"


def licence(spec: EnvSpec) -> str:
    """Return the licence of the tasks."""
    if spec.data:
        return "the data set's own"
    if spec.family in FAMILIES:
        family = FAMILIES[spec.family]
        return KNOWN[family.world].licence if family.world else package_licence(family.package or spec.family)
    return LICENCE


def entry(page: Page) -> str:
    """Write the index entry of a page: its picture, and a line for each id."""
    link = page.path.removeprefix("envs/").removesuffix(".md") + "/"
    picture_link = page.picture_path.removeprefix("envs/")
    rows = "".join(row(spec) for spec in page.specs)
    return (
        f'<section class="env-class" markdown="0"><a class="env-picture" href="{link}">'
        f'<img src="{picture_link}" alt="{escape(page.title)}" width="120" height="84" loading="lazy"></a>'
        f'<h3><a href="{link}">{escape(page.title)}</a></h3>'
        f"<p>{as_html(page.summary)}</p><ul>{rows}</ul></section>"
    )


def row(spec: EnvSpec) -> str:
    """Write the line of an id."""
    facts = facts_of(spec)
    data = " ".join(f'data-{name}="{escape(value)}"' for name, value in facts.items())
    said = [f"solver: {solver(spec)}"]
    if spec.max_turns:
        said.append(f"{spec.max_turns} turn{'s' if spec.max_turns > 1 else ''}")
    if facts["tools"] != "none":
        said.append(f"tools: {facts['tools']}")
    if facts["needs"] != "nothing more":
        said.append(f"needs {spec.data or spec.extra}")
    if spec.id in cards():
        card = cards()[spec.id]
        said.append(
            f"card: solver {paid(card, 'solver')}, random {paid(card, 'random')}, "
            f"knowing nothing {max(card.ignorant.values()):.3f}, open {len(card.findings) or 'none'}"
        )
    return f"<li {data}><code>{escape(spec.id)}</code> <span>{escape('; '.join(said))}</span></li>"
