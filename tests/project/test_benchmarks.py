"""Every benchmark starts, and every command that README and docs name is one that its program takes."""

import argparse
import contextlib
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gem.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = sorted({path.stem for path in ROOT.glob("bench/*.py")} - {"common", "ray_simulation"})
QUICK = {"container", "endpoint", "intervals", "ray", "search", "serve", "stragglers"}
"""Those that take about a CPU second or less."""

SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
BLOCK = re.compile(r"^ *```(?:sh|bash|console|text)?\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"(?:\$ )?(?:\w+=\S+ )*(?:\.venv/bin/)?"
    r"((?:python -m (?:bench\.\w+|gem )|gem-gym |make |(?:python )?scripts/).*)"
)


@pytest.mark.system
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_benchmark_runs_in_its_smallest_form(name):
    kept = ROOT / "bench" / "out" / f"{name}.json"
    before = kept.stat().st_mtime_ns if kept.exists() else None
    run = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", "--smallest"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    written = re.findall(r"^wrote (\S+)$", run.stdout, re.MULTILINE)
    for path in written:
        assert path.startswith("bench/out/smallest/")
        json.loads((ROOT / path).read_text())
    assert written or name == "endpoint" or "left out: " in run.stdout
    assert before == (kept.stat().st_mtime_ns if kept.exists() else None)


def written_commands() -> set[str]:
    """Return the commands of README and docs, without comments; those in a block with continued lines."""
    texts = [page.read_text("utf-8") for page in PAGES]
    lines = [span for text in texts for span in SPAN.findall(text)]
    for text in texts:
        for block in BLOCK.findall(text):
            lines += block.replace("\\\n", " ").splitlines()
    found = (COMMAND.fullmatch(line.strip()) for line in lines)
    return {re.sub(r"\s+#.*", "", match[1]) for match in found if match}


WRITTEN = sorted(written_commands())


def test_commands_are_found():
    assert {"python -m bench.evaluation", "gem-gym sandbox", "make demo", "scripts/check_site.py"} <= {
        *WRITTEN
    }


@pytest.mark.system
@pytest.mark.parametrize("command", [each for each in WRITTEN if each.startswith("python -m bench.")])
def test_benchmark_takes_the_flags_that_are_written(command, monkeypatch):
    module, *args = shlex.split(command)[2:]
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    if not args:
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_only(parser):
        parse(parser)
        raise InterruptedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [module, *args])
    monkeypatch.delitem(sys.modules, module, raising=False)  # by another test of this worker
    with pytest.raises(InterruptedError):
        runpy.run_module(module, run_name="__main__")


@pytest.mark.parametrize("command", [each for each in WRITTEN if re.match(r"make |(python )?scripts/", each)])
def test_target_or_script_is_there(command):
    program, *args = shlex.split(command.removeprefix("python "))
    if program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {arg for arg in args if "=" not in arg} <= {*targets}
    else:
        assert (ROOT / program).is_file()


def gem_commands() -> dict[str, set[str]]:
    """Return the flags that are written with each command of gem-gym."""
    flags: dict[str, set[str]] = {}
    for line in WRITTEN:
        if match := re.match(r"(?:gem-gym|python -m gem) +([a-z-]+(?: ls| merge| schema)?)\b(.*)", line):
            program = re.split(r"\s[|&;>]", match[2])[0]
            flags.setdefault(match[1], set()).update(re.findall(r"(?<!\S)--[a-z][\w-]*", program))
    return flags


@pytest.mark.parametrize(("command", "flags"), sorted(gem_commands().items()))
def test_gem_gym_has_the_flags_that_are_written(command, flags):
    name = command.split()[0]
    assert name in COMMANDS
    if not flags:
        return
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main([*command.split(), "--help"])
    assert flags <= {*re.findall(r"--[a-z][\w-]*", shown.getvalue())} | {"--help"}
