"""Run the fast and the system tests on every Python from 3.11 to 3.13 that is found.

Each has a virtual environment of its own, .venv-3.x; it is made once, and again when pyproject.toml or
constraints.txt change. torch is installed if pip can find a CPU build of the pinned version for that Python.
Otherwise the tests that need it are skipped, because the usual Linux build would install gigabytes of CUDA
packages.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
EXTRAS = "rg,games,data,math,vision,search,mcp,postgres,multiagent,textarena,gymnasium,tau2,openai,dev"
PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2], sys.executable)"


def main() -> int:
    """Test every Python; the exit code is 1 when one fails, or when there is none."""
    found = interpreters()
    verdicts: dict[str, str] = {}
    for version in VERSIONS:
        if version not in found:
            verdicts[version] = "not found"
            continue
        print(f"\n== Python {version}: {found[version]}", flush=True)
        try:
            python = environment(version, found[version])
        except subprocess.CalledProcessError as error:
            print(error.stdout or error, file=sys.stderr)
            verdicts[version] = "set-up failed"
            continue
        tests = [
            python,
            "-m",
            "pytest",
            "-q",
            "-m",
            "not slow",
            "--numprocesses",
            "auto",
            "--maxprocesses",
            "4",
        ]
        verdicts[version] = "passed" if subprocess.run(tests, cwd=ROOT).returncode == 0 else "failed"
    print("\n" + "\n".join(f"Python {version}: {verdict}" for version, verdict in verdicts.items()))
    tried = [verdict for verdict in verdicts.values() if verdict != "not found"]
    return 0 if tried and all(verdict == "passed" for verdict in tried) else 1


def interpreters() -> dict[str, str]:
    """Return a working interpreter per version: on the path, or among pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [f"python{version}" for version in VERSIONS]
    candidates += [str(path) for path in sorted(pyenv.glob("3.*/bin/python"))]
    found: dict[str, str] = {}
    for candidate in candidates:
        try:
            probe = subprocess.run([candidate, "-c", PROBE], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue  # not there, a shim of nothing, or without venv
        version, path = probe.stdout.strip().split(" ", 1)
        found.setdefault(version, path)
    return found


def environment(version: str, interpreter: str) -> str:
    """Return the Python of an environment with gem installed; .venv itself if it has this version.

    Raises:
        subprocess.CalledProcessError: with pip's output, when setting it up fails.
    """
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    place = ROOT / f".venv-{version}"
    python, stamp = str(place / "bin" / "python"), place / "ready"
    inputs = [ROOT / "pyproject.toml", ROOT / "constraints.txt", Path(__file__)]
    ready = hashlib.sha256(b"".join(path.read_bytes() for path in inputs) + bytes(ROOT)).hexdigest()
    if stamp.exists() and stamp.read_text() == ready:
        return python
    print(f"setting up {place.name}", flush=True)
    quiet([interpreter, "-m", "venv", "--clear", str(place)])
    pip = [python, "-m", "pip", "install", "--no-compile", "--constraint", "constraints.txt"]
    extras, torch = EXTRAS, cpu_torch()
    try:
        quiet([*pip, torch])
        extras += ",train"
    except subprocess.CalledProcessError:
        print(f"no {torch} for Python {version} at hand: tests that need torch skip", flush=True)
    quiet([*pip, "--editable", f".[{extras}]"])
    stamp.write_text(ready)
    return python


def cpu_torch() -> str:
    """Return the requirement of the pinned torch's CPU build."""
    pinned = re.search(r"^torch==[\d.]+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if pinned is None:
        sys.exit("constraints.txt does not pin torch.")
    return pinned[0] + ("+cpu" if sys.platform == "linux" else "")


def quiet(command: list[str]) -> None:
    """Run a command, keeping its output for the error."""
    subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main())
