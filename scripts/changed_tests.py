"""Run the fast tests that a change breaks first: those of the changed packages and of the packages above.

    .venv/bin/python scripts/changed_tests.py                  what differs from the last commit
    .venv/bin/python scripts/changed_tests.py --since main     what differs from where this branch left `main`
    .venv/bin/python scripts/changed_tests.py --list           say which, and run nothing

For a changed module of gem these are the tests of its package, of each package with a module that imports it,
and those that import it themselves. A changed environment adds the suites that go through the registry; a
changed test is run; a change of what every test stands on (`tests/conftest.py`, `pyproject.toml`) runs all.
A test of the rest can still fail: `make test` runs all that are fast, `make test-system` the others.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
ALL = ("tests/conftest.py", "pyproject.toml", "constraints.txt")
REGISTRY = ("tests/contract", "tests/golden", "tests/docs/test_env_pages.py")
ALWAYS = ("tests/project",)


def main() -> int:
    """Choose the tests, name them with the reason, and run them; the exit code is that of pytest."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--since", default="HEAD", metavar="REVISION", help="compare with where it was left")
    parser.add_argument("--list", action="store_true", help="name the tests and run nothing")
    options, pytest = parser.parse_known_args()
    changed = changed_files(options.since)
    chosen = choose(changed) if changed else {}
    for path, reason in chosen.items():
        print(f"{path:40} {reason}")
    if not changed:
        print(f"Nothing differs from {options.since}.")
    if options.list or not chosen:
        return 0
    command = [sys.executable, "-m", "pytest", "-q", *pytest, *chosen]
    return subprocess.run(command, cwd=ROOT).returncode


def changed_files(since: str) -> list[str]:
    """Return the paths that differ from where this branch left `since`, new files included."""
    base = git("merge-base", since, "HEAD")[0]
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def git(*words: str) -> list[str]:
    """Return the lines that git prints; what is wrong with a revision ends the program."""
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"changed_tests.py: {ran.stderr.strip() or f'git {words[0]} failed'}")
    return ran.stdout.split("\n")[:-1]


def choose(changed: list[str]) -> dict[str, str]:
    """Return the paths of tests for changed files, each with the reason."""
    if any(path in ALL for path in changed):
        return {"tests": "everything stands on a changed file"}
    chosen = dict.fromkeys(ALWAYS, "the rules of the repository")
    graph = grimp.build_graph("gem")
    for path in changed:
        if path.startswith("tests/"):
            chosen |= dict.fromkeys(changed_tests(path), "changed")
        elif path.startswith("gem/"):
            module = module_of(path)
            above = graph.find_modules_that_directly_import(module) if module in graph.modules else set()
            for name in sorted({module, *above}):
                reason = f"{name} imports {module}" if name in above else f"{module} changed"
                chosen.setdefault(tests_of(name), reason)
            for test, names in imports_of_tests().items():
                if module in names:
                    chosen.setdefault(test, f"imports {module}")
            if path.startswith("gem/envs/"):
                chosen |= dict.fromkeys(REGISTRY, "goes through every environment")
        elif path.startswith(("docs/", "examples/", "scripts/", "README", "mkdocs")):
            chosen.setdefault("tests/docs", f"{path} changed")
    return outermost({path: reason for path, reason in chosen.items() if path and (ROOT / path).exists()})


def changed_tests(path: str) -> list[str]:
    """Return the tests that a changed file below tests/ touches: itself, or all that import it."""
    if Path(path).name.startswith("test_"):
        return [path]
    if path.startswith("tests/shared/"):
        name = Path(path).stem
        users = (ROOT / "tests").rglob("test_*.py")
        return [str(user.relative_to(ROOT)) for user in users if name in user.read_text(encoding="utf-8")]
    return [str(Path(path).parent)]


def module_of(path: str) -> str:
    """Return the module that holds a file of gem/: the file's own, or for data that of its folder."""
    file = Path(path)
    whole = file.with_suffix("") if file.suffix == ".py" and file.name != "__init__.py" else file.parent
    return ".".join(whole.parts)


def tests_of(module: str) -> str:
    """Return where a module is tested: its package's folder of tests, else the file of tests of its own."""
    parts = module.split(".")[1:]
    while parts:
        folder = Path("tests", *parts)
        if (ROOT / folder).is_dir():
            return str(folder)
        file = folder.parent / f"test_{parts[-1]}.py"
        if (ROOT / file).is_file() and len(parts) == 1:
            return str(file)
        parts.pop()
    return ""


@cache
def imports_of_tests() -> dict[str, set[str]]:
    """Return what each file of tests imports; ``from gem.x import y`` counts as gem.x and gem.x.y."""
    imported: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        names = imported.setdefault(str(path.relative_to(ROOT)), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.update((node.module, *(f"{node.module}.{alias.name}" for alias in node.names)))
    return imported


def outermost(chosen: dict[str, str]) -> dict[str, str]:
    """Return the paths without those that lie below another one."""
    return {
        path: reason
        for path, reason in sorted(chosen.items())
        if not any(str(parent) in chosen for parent in Path(path).parents)
    }


if __name__ == "__main__":
    sys.exit(main())
