"""Check the names of gem: a function is a verb with its object, and no variable is a lone participle.

    .venv/bin/python scripts/check_names.py [FOLDER | FILE ...]      default: gem; `make lint` runs it

A name such as `found` says that something was found, not what. So no variable, parameter or attribute has a
name of the list `VAGUE`, and no function that is not a property is named by one participle. Names that users
and stored files know stay, with the reason, in `KEPT`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAGUE = re.compile("told|said|found|shown|seen|held|mine|through|carried")
PARTICIPLE = re.compile(
    f"{VAGUE.pattern}|begun|bought|broken|brought|built|chosen|done|drawn|driven|given|gone|got|heard|hidden|kept"
    "|known|left|lost|made|meant|met|paid|put|sent|spoken|spent|taken|thought|won|written|[a-z]+ed"
)
VERBS = re.compile("bleed|breed|embed|exceed|feed|need|proceed|reseed|seed|shed|speed|succeed")
KEPT: dict[str, str] = {
    "codec.py:restored": "public in gem.codec",
    "parsing.py:boxed": "public in gem.parsing; docs/guides/own_tasks.md",
    "parsing.py:tagged": "public in gem.parsing; docs/guides/own_tasks.md",
    "record.py:earned": "a method of gem.record.Episode",
    "record.py:held": "a field of gem.record.Ask, which agents of users read",
    "record.py:succeeded": "a method of gem.record.Episode",
    "schema.py:held": "a key of stored asks",
    "source_files.py:_installed": "in pickles, which name it",
    "source_files.py:_unpacked": "in pickles, which name it",
    "cli/machine.py:seen": "the flag --seen of gem-gym sandbox",
    "estimators/advantages.py:normalised": "public in gem.estimators; docs/guides/own_algorithm.md",
    "evals/gates.py:said": "a field of gem.evals.Checked and of results.json; docs/guides/suites.md",
    "evals/results.py:required": "public in gem.evals",
    "statistics/combining.py:combined": "public in gem.statistics; docs/guides/power.md",
    "statistics/normalise.py:normalised": "public in gem.statistics; docs/guides/power.md",
    "adapters/inspect_tasks.py:earned": "an Inspect scorer, whose name logs and users hold",
    "graders/mathematics/questions.py:copied": "public in gem.graders.math",
    "graders/mathematics/questions.py:formed": "public in gem.graders.math",
    "envs/bridges/openenv.py:shown": "a keyword of OpenEnv's environments, which suites and stores hold",
    "envs/code/basics/easy.py:said": "in a solution, whose text golden transcripts hold",
    "envs/code/basics/easy.py:seen": "in a solution, whose text golden transcripts hold",
    "envs/code/basics/hard.py:found": "in a solution, whose text golden transcripts hold",
    "envs/code/basics/hard.py:seen": "in a solution, whose text golden transcripts hold",
    "envs/code/basics/medium.py:found": "in a solution, whose text golden transcripts hold",
    "envs/code/basics/medium.py:seen": "in a solution, whose text golden transcripts hold",
    "envs/database/domains/clinic.py:missed": "the name of a question in clinic.toml",
    "envs/terminal/tasks/textkit.py:seen": "in a file that the agent reads and repairs",
    "envs/vision/geometry.py:notched": "the name of a kind of figure, an argument of vision:Geometry",
    "testing/card.py:seen": "a field of gem.testing.Check and a key of cards.json",
    "testing/contract.py:held": "a field of gem.testing.Report",
    "testing/contract.py:seen": "a field of gem.testing.Finding",
    "testing/faults.py:offered": "of gem.tools.BaseTool",
    "tokens/chat_template.py:held": "a keyword of Renderer.delta, and a field of the public Mismatch",
    "tokens/renderer.py:held": "a keyword of Renderer.delta, which users implement",
    "tokens/tiny.py:held": "a keyword of Renderer.delta",
    "tools/base_tool.py:offered": "a method of gem.tools.BaseTool, which users extend",
    "tools/base_tool.py:shown": "a method of gem.tools.BaseTool, which users extend",
    "tools/mcp_tool.py:offered": "of gem.tools.BaseTool",
}
"""Public names that stay: FILE:NAME below gem/, and why."""
HOOKS = {"train": "begun|warmed|cloned|measured|advanced|iterated|saved|evaluated|warned|finished"}
"""Hooks of classes that users extend, by the folder below gem/: those of gem.train.Watcher. RunFolder reads
what they wrote by the same names, see docs/guides/training.md."""


def main(places: list[str]) -> int:
    """Print each vague name with its place; the exit code is 1 when there is one."""
    places = [ROOT / place for place in places or ["gem"]]
    paths = sorted(path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place]))
    faults = [fault for path in paths for fault in faults_of(path)]
    for fault in faults:
        print(fault)
    if faults:
        print(f"{len(faults)} names; name the thing, or the verb with its object (CONTRIBUTING.md, Rules).")
    return 1 if faults else 0


def faults_of(path: Path) -> Iterator[str]:
    """Yield FILE:LINE: NAME for each name of a file that says too little."""
    place = path.relative_to(ROOT).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        name = vague_function(node) or vague_variable(node)
        folder = place.removeprefix("gem/").partition("/")[0]
        hook = isinstance(node, ast.FunctionDef) and re.fullmatch(HOOKS.get(folder, ""), name)
        if name and not hook and f"{place.removeprefix('gem/')}:{name}" not in KEPT:
            yield f"{place}:{getattr(node, 'lineno', 0)}: {name}"


def vague_function(node: ast.AST) -> str:
    """Return the name of a function that is a lone participle; a property is read like a field and may be."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ""
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return ""
    word = node.name.strip("_")
    return node.name if PARTICIPLE.fullmatch(word) and not VERBS.fullmatch(word) else ""


def vague_variable(node: ast.AST) -> str:
    """Return the name that a node gives to a variable, parameter or attribute, if it is of the list."""
    name = ""
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        name = node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        name = node.arg
    return name if VAGUE.fullmatch(name.strip("_")) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
