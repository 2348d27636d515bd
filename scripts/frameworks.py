"""Run gem's tests with other training frameworks, each in its own virtual environment.

    .venv/bin/python scripts/frameworks.py             name the frameworks
    .venv/bin/python scripts/frameworks.py verl roll   make their environments and run their tests
    .venv/bin/python scripts/frameworks.py all         every one; takes an hour or so, and some 10 GB

It ends with a table: each framework passed, failed, or cannot run here and why. What cannot run is no
failure: there is no Python that is new enough, a package is not on the index, or its source cannot be
reached. The exit code is 1 when one failed.

`scripts/frameworks/NAME.txt` lists the packages to install, as requirement lines of pip. Those below the line
``# no-deps`` are installed without their dependencies, because these would be gigabytes of CUDA packages. The
line ``# any-python`` lets pip install what asks for another Python. The environment is `.frameworks/NAME`; it
also sees the packages of the environment that runs this script (torch, transformers, gem). It is made again
when its list changes. It uses pip, not uv, which does not see these packages and would install another torch.

The line ``# python 3.12`` names the oldest Python that will do. If this one is older, the environment is made
with the first newer one on the path or among pyenv's, and gem's dependencies are installed into it.
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
PARTS = ("frameworks", "adapters")  # of the tests
NO_DEPS, ANY_PYTHON = "# no-deps", "# any-python"


class Cannot(Exception):
    """A framework cannot run on this machine."""


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
    verdicts: dict[str, tuple[str, str]] = {}
    for name in wanted:
        print(f"\n== {name}", flush=True)
        try:
            verdicts[name] = tested(name, environment(name))
        except Cannot as why:
            verdicts[name] = "cannot", str(why)
        except subprocess.CalledProcessError as error:
            print(error.stdout or error, file=sys.stderr)
            verdicts[name] = judged(error.stdout or "")
        print(*verdicts[name], sep=": ", flush=True)
    print("\n" + "\n".join(f"{name:16}{each:8}{why}" for name, (each, why) in verdicts.items()))
    return int(any(each == "failed" for each, _ in verdicts.values()))


def find_python(name: str) -> str:
    """Return the Python of a framework's environment: this one, or a newer one that it needs.

    Raises:
        Cannot: when there is none.
    """
    needed = re.search(r"^# python (\d+)\.(\d+)$", (LISTS / f"{name}.txt").read_text("utf-8"), re.MULTILINE)
    least = (int(needed[1]), int(needed[2])) if needed else (0, 0)
    if sys.version_info >= least:
        return sys.executable
    named = filter(None, (shutil.which(f"python{least[0]}.{minor}") for minor in range(least[1], 20)))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin/python")
    test = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {least})"
    for each in [*named, *map(str, sorted(pyenv))]:
        if subprocess.run([each, "-c", test], capture_output=True, check=False).returncode == 0:
            return each
    here = sys.version.split()[0]
    raise Cannot(f"wants Python {least[0]}.{least[1]}; this is {here}, and no newer one is here")


def judged(output: str) -> tuple[str, str]:
    """Return the verdict on what pip could not install, with its last error or what this machine lacks."""
    if missing := re.search(r"No matching distribution found for (\S+)", output):
        return "cannot", f"{missing[1]} is not on the index for this Python"
    if refused := re.search(r"HTTP error \d+ while getting \S+", output):
        return "cannot", refused[0]
    if host := re.search(r"HTTPS?ConnectionPool\(host='([^']+)'", output):
        return "cannot", f"{host[1]} cannot be reached"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return "failed", (errors or lines or ["pip printed nothing"])[-1][:300]


def environment(name: str) -> Path:
    """Return the Python of a framework's environment; make it if it is missing or its list has changed.

    Raises:
        Cannot: when this machine cannot have it.
    """
    wanted, base = (LISTS / f"{name}.txt").read_text(encoding="utf-8"), find_python(name)
    folder = ROOT / ".frameworks" / name
    python, stamp = folder / "bin" / "python", folder / "ready"
    mark = hashlib.sha256(f"{wanted}\n{base}".encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == mark:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    run(base, "-m", "venv", folder)
    pip = [python, "-m", "pip", "install", "--quiet"]
    if base == sys.executable:
        own = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
        shared = [path for path in site.getsitepackages() if path != str(own)]
        lines = [f"import site; site.addsitedir({path!r})\n" for path in shared]  # behind its own packages
        (own / "zz_project.pth").write_text("".join(lines), encoding="utf-8")
    else:
        run(*pip, f"{ROOT}[dev]")
    full, _, bare = wanted.partition(f"{NO_DEPS}\n")
    always = ["--ignore-requires-python"] if f"{ANY_PYTHON}\n" in wanted else []
    for part, flags in ((full, []), (bare, ["--no-deps"])):
        if any(line.strip() and not line.startswith("#") for line in part.splitlines()):
            listed = folder / f"requirements{''.join(flags)}.txt"
            listed.write_text(part, encoding="utf-8")
            run(*pip, *always, *flags, "-r", listed)
    stamp.write_text(mark, encoding="utf-8")
    return python


def tested(name: str, python: Path) -> tuple[str, str]:
    """Run a framework's tests, including slow ones, and return the verdict; skipped ones count as failed.

    Warnings are shown but are not errors here, because most come from the framework itself.
    """
    pytest = [python, "-m", "pytest", "-q", "-rs", "-m", "", "-W", "default"]
    files = [path for part in PARTS for path in (ROOT / "tests" / part).glob(f"test_{name}*.py")]
    tests = [*pytest, *map(str, sorted(files))]
    how = {"cwd": ROOT, "env": settings(python)}
    with subprocess.Popen(tests, **how, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        skipped, line = False, ""
        for line in running.stdout:
            print(line, end="", flush=True)
            skipped |= line.startswith("SKIPPED")
    return "failed" if running.returncode or skipped else "passed", line.strip("= \n")


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
