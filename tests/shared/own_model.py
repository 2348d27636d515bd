"""The commands of docs/start/own_model.md, run as they stand there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/start/own_model.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def blocks(kind):
    """Return title and text of the page's blocks of a kind, in order."""
    return [
        (title or "", text) for lang, title, text in BLOCK.findall(PAGE.read_text("utf-8")) if lang == kind
    ]


def commands(verb, title=""):
    """Return the commands with this verb, of the blocks with this title, as lists of words."""
    lines = [
        line
        for name, text in blocks("sh")
        if name == title
        for line in text.replace("\\\n", " ").splitlines()
        if line.startswith(f"gem-gym {verb} ")
    ]
    return [shlex.split(line)[1:] for line in lines]


def write_environment(folder):
    """Write relay.py as the page has it."""
    ((_, text),) = [block for block in blocks("python") if block[0] == "relay.py"]
    (folder / "relay.py").write_text(text, encoding="utf-8")


def gem_gym(folder, words, typed=""):
    """Run a command of the page in a folder, in a process of its own, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "gem", *map(str, words)],
        cwd=folder,
        input=typed,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
