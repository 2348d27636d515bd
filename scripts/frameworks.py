"""Run gem's tests with other training frameworks, each in its own virtual environment.

    .venv/bin/python scripts/frameworks.py             name the frameworks
    .venv/bin/python scripts/frameworks.py verl roll   make their environments and run their tests
    .venv/bin/python scripts/frameworks.py all         every one; the exit code is 1 when one fails

It ends with a verdict for each. A framework that needs a newer Python than this one is named and left out: it
is no failure. Give it one with ``make setup PYTHON=python3.12``.

`scripts/frameworks/NAME.txt` lists the packages to install, as requirement lines of pip. Those below the line
``# no-deps`` are installed without their dependencies, because these would be gigabytes of CUDA packages. The
line ``# any-python`` lets pip install what asks for another Python; ``# python 3.12`` names the oldest Python
that will do. The environment is `.frameworks/NAME`; it also sees the packages of the environment that runs
this script (torch, transformers, gem). It is made again when its list changes. It uses pip, not uv, which
does not see these packages and would install another torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = ROOT / "scripts" / "frameworks"
NO_DEPS, ANY_PYTHON = "# no-deps", "# any-python"


def main(names: list[str]) -> int:
    """Test the named frameworks."""
    known = sorted(path.stem for path in LISTS.glob("*.txt"))
    wanted = known if names == ["all"] else names
    unknown = sorted(set(wanted) - set(known))
    if not wanted or unknown:
        if unknown:
            print(f"{', '.join(unknown)}: no such framework.")
        print(f"accepted: all, {', '.join(known)}")
        return 2 if unknown else 0
    verdicts: dict[str, str] = {}
    for name in wanted:
        print(f"\n== {name}", flush=True)
        if needed := newer_python(name):
            verdicts[name] = f"left out: it needs Python {needed}, and this is {sys.version.split()[0]}"
            continue
        try:
            python = environment(name)
        except subprocess.CalledProcessError as error:
            print(error.stdout or error, file=sys.stderr)
            verdicts[name] = f"could not be installed: {last_line(error.stdout)}"
            continue
        verdicts[name] = "passed" if tested(name, python) else "failed"
    print("\n" + "\n".join(f"{name}: {verdict}" for name, verdict in verdicts.items()))
    return 1 if any(each.startswith(("failed", "could not")) for each in verdicts.values()) else 0


def newer_python(name: str) -> str:
    """Return the version that a framework needs if it is newer than this Python, else an empty text."""
    needed = re.search(r"^# python (\d+)\.(\d+)$", (LISTS / f"{name}.txt").read_text("utf-8"), re.MULTILINE)
    newer = needed and sys.version_info < (int(needed[1]), int(needed[2]))
    return f"{needed[1]}.{needed[2]}" if needed and newer else ""


def last_line(output: str | None) -> str:
    """Return the last error that pip printed."""
    lines = [line.strip() for line in (output or "").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip printed nothing"])[-1][:300]


def environment(name: str) -> Path:
    """Return the Python of a framework's environment; make it if it is missing or its list has changed."""
    wanted = (LISTS / f"{name}.txt").read_text(encoding="utf-8")
    folder = ROOT / ".frameworks" / name
    python, stamp = folder / "bin" / "python", folder / "ready"
    mark = hashlib.sha256(f"{wanted}\n{sys.executable}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == mark:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    shared = [path for path in site.getsitepackages() if path != str(own)]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in shared]  # behind its own packages
    (own / "zz_project.pth").write_text("".join(lines), encoding="utf-8")
    full, _, bare = wanted.partition(f"{NO_DEPS}\n")
    always = ["--ignore-requires-python"] if f"{ANY_PYTHON}\n" in wanted else []
    for part, flags in ((full, []), (bare, ["--no-deps"])):
        if any(line.strip() and not line.startswith("#") for line in part.splitlines()):
            listed = folder / f"requirements{''.join(flags)}.txt"
            listed.write_text(part, encoding="utf-8")
            run(python, "-m", "pip", "install", "--quiet", *always, *flags, "-r", listed)
    stamp.write_text(mark, encoding="utf-8")
    return python


def tested(name: str, python: Path) -> bool:
    """Run a framework's tests, including slow ones; skipped ones count as failed.

    Warnings are shown but are not errors here, because most come from the framework itself.
    """
    pytest = [python, "-m", "pytest", "-q", "-rs", "-m", "", "-W", "default"]
    tests = [*pytest, *sorted(map(str, (ROOT / "tests" / "frameworks").glob(f"test_{name}*.py")))]
    how = {"cwd": ROOT, "env": settings(python)}
    with subprocess.Popen(tests, **how, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        skipped = False
        for line in running.stdout:
            print(line, end="", flush=True)
            skipped |= line.startswith("SKIPPED")
    return running.returncode == 0 and not skipped


def settings(python: Path) -> dict[str, str]:
    """Return the variables of a test run: this checkout's gem, and the environment's own programs."""
    own = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    return own | {"PYTHONPATH": str(ROOT), "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def run(*command: str | Path) -> None:
    """Run a command; an error contains its output."""
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    subprocess.run([str(word) for word in command], check=True, text=True, **said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
