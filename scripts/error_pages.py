"""Write the troubleshooting pages from the docstrings of the error classes; used by build_site.py."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from gem import errors

ROOT = Path(__file__).parents[1]
PAGE, WITHIN = "troubleshooting.md", "troubleshooting/episodes.md"

GROUPS = {
    "Errors that you see": (
        "The command line prints the message and exits with 1 or 2. In Python the error is raised.",
        errors.GemError,
    ),
    "Messages that the agent reads": (
        "The message becomes an observation, and the episode goes on.",
        (errors.IllegalMove, errors.ToolError),
    ),
    "Failures around the task": (
        "The episode gets no verdict, never a score of 0. Training leaves it out; evaluation counts it.",
        errors.NoVerdict,
    ),
}
"""The groups of the pages; a class belongs to the last one that has its base."""

HEAD = """---
source: gem/errors.py
---

# Troubleshooting

An error message says what was wrong, which values are accepted, and what to do. This page lists every class
of error that a user sees, with its cause and its cure. Each class inherits from `gem.GemError` and from a
builtin error.

`gem-gym doctor` shows what works on this machine, and how to install the rest.
"""

HEAD_WITHIN = """---
source: gem/errors.py
---

# Errors within an episode

What goes wrong while an episode is played, with its cause and its cure.
[Troubleshooting](../troubleshooting.md) has the errors that the command line prints.
"""


def files() -> dict[str, str | bytes]:
    """Return the files to write, by their paths under docs/: errors of the command line, and of episodes."""
    seen, *within = GROUPS
    names = [error.__name__ for error in classes() if group(error) in within]
    names += [name for _, name, base, _ in elsewhere() if base in names]
    links = ", ".join(f"[{name}](troubleshooting/episodes.md#{name})" for name in names)
    return {
        PAGE: page(HEAD, [seen]) + f"\n## Within an episode\n\n{links}\n",
        WITHIN: page(HEAD_WITHIN, within),
    }


def navigation() -> list[str]:
    """Return no entries: mkdocs.yml has the pages."""
    return []


def classes() -> list[type[errors.GemError]]:
    """Return every error class of gem.errors, in its order."""
    found = [value for value in vars(errors).values() if inspect.isclass(value)]
    return [one for one in found if issubclass(one, errors.GemError) and one is not errors.GemError]


def group(error: type[errors.GemError]) -> str:
    """Return the group of a class."""
    return [name for name, (_, base) in GROUPS.items() if issubclass(error, base)][-1]


def parts(error: type[errors.GemError]) -> tuple[str, str, str]:
    """Split a docstring into what the error is, its cause and its cure.

    Raises:
        ValueError: when the docstring lacks one of them.
    """
    what, _, rest = (inspect.getdoc(error) or "").partition("\n\nCause: ")
    cause, _, cure = rest.partition("\n\nCure: ")
    if not (what and cause and cure):
        raise ValueError(f"the docstring of {error.__name__} has to say what it is, 'Cause: ' and 'Cure: '.")
    return what, cause, cure


def page(head: str, groups: Iterable[str]) -> str:
    """Write the page of some groups."""
    further = list(elsewhere())
    lines = [head]
    for name in groups:
        lines += [f"## {name}", "", GROUPS[name][0], ""]
        for error in classes():
            if group(error) != name:
                continue
            what, cause, cure = parts(error)
            bases = " and ".join(f"`{base.__name__}`" for base in error.__bases__)
            lines += [f"### {error.__name__} {{ #{error.__name__} }}", "", f"{what} Also a {bases}.", ""]
            lines += [f"- **Cause.** {cause}", f"- **Cure.** {cure}"]
            for module, also, base, summary in further:
                if base == error.__name__:
                    lines.append(f"- `{module}.{also}`{{ #{also} }} is one too. {summary}")
            lines.append("")
    return "\n".join(lines)


def elsewhere() -> Iterator[tuple[str, str, str, str]]:
    """Yield module, name, base and summary of the error classes that other modules derive from these."""
    known = {error.__name__ for error in classes()}
    derived = re.compile(rf"^\s*class \w+\([^)]*\b(?:{'|'.join(known)})\b", re.MULTILINE)
    for path in sorted((ROOT / "gem").rglob("*.py")):
        if path.name == "errors.py" and path.parent.name == "gem":
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        text = path.read_text("utf-8")
        for node in ast.walk(ast.parse(text)) if derived.search(text) else ():  # parsing all is slow
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in known]
                for base in bases[:1]:
                    doc = (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
                    yield module, node.name, base, doc
