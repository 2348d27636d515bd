"""Terminal tasks written as task folders in the layout of Harbor."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from importlib.resources import files as resources
from pathlib import Path

from gem.envs.terminal.base import TerminalTask
from gem.envs.terminal.env import TerminalEnv
from gem.envs.terminal.inside import digest_of
from gem.envs.terminal.repair import RepairEnv, read_package
from gem.envs.terminal.tasks import FAMILIES
from gem.errors import BadArgument
from gem.sandbox.packages import entries

IMAGE = "python:3.12"
"""The image of a written task: Debian with Python, git, make, tar and gzip."""

_TEST_S, _AGENT_S = 300.0, 900.0
_SHIPPED = (
    *("errors.py", "seeding.py", "sandbox/base.py", "sandbox/files.py", "envs/kit/templates.py"),
    *("envs/terminal/base.py", "envs/terminal/inside.py", "envs/terminal/repair_check.py"),
)
"""The modules of gem that the test of a written task needs, besides the folder of the families."""
_TASKS = "envs/terminal/tasks"

_START = "[ ! -e /app/.start.sh ] || { cd /app && bash .start.sh && rm .start.sh; }"
_DOCKERFILE = f"FROM {IMAGE}\nWORKDIR /app\nADD files.tar /app\n"
_TEST = """\
#!/bin/bash
# The hidden test of {env_id}, seed {seed}. It is gem's own, which is in this folder.
cd /tests && exec python3 -IB run.py {words} /app /logs/verifier/reward.txt
"""
_RUN = """\
import sys

sys.path.insert(0, "/tests")

from gem.envs.terminal.inside import {judge}

{judge}(*sys.argv[1:])
"""


def write_task(env: TerminalEnv, seed: int, folder: Path) -> None:
    """Write the task of a seed as a task folder of Harbor.

    The files of its machine, as they are after its set-up, are ``environment/files.tar``. A set-up that
    starts programs is run by a health check instead, which removes it. Its test is gem's own, in Python: the
    folder ``tests`` holds what it imports; for a package to repair that is the package and pytest, too.

    Args:
        env: an environment of an id ``terminal:...`` or ``repo:...``.
        seed: the seed of the episode.
        folder: the folder to write; it must not exist yet.

    Raises:
        BadArgument: for another environment, and for a folder that exists. NoVerdict: when the task's set-up
            fails.
    """
    name, level = env.name, env.level
    repairs = isinstance(env, RepairEnv)
    if env.spec is None or (name is None and not repairs):
        raise BadArgument(
            f"{env} is no id of terminal tasks; accepted: terminal:... or repo:..., as `gem-gym list` shows."
        )
    if folder.exists():
        raise BadArgument(f"{str(folder)!r} exists; name another folder.")
    env.reset(seed=seed)
    task = env.task
    assert task is not None
    starts = name is not None and FAMILIES[name].starts
    state, setup = (
        (_pack({**task.files, ".start.sh": task.setup.encode()}), "") if starts else env.begin_state()
    )
    place = f"/app/{task.folder}"
    text = task.instruction.replace(f"folder {task.folder}:", f"folder {place}:", 1)
    solution = task.solution.replace(f"cd ~/{task.folder} ", f"cd {place} ", 1)
    words = f"{task.folder} {task.test_s}" if repairs else f"{name} {level} {seed} {digest_of(task)}"
    texts = {
        "task.toml": _describe(env.spec.id, "" if repairs else level, seed, task, starts),
        "instruction.md": f"{text}\n",
        "environment/Dockerfile": _DOCKERFILE,
        "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
        "tests/test.sh": _TEST.format(env_id=env.spec.id, seed=seed, words=words),
        "tests/run.py": _RUN.format(judge="judge_repair" if repairs else "main"),
        "tests/setup.txt": setup,
    }
    files = {path: text.encode() for path, text in texts.items()}
    files |= {f"tests/gem/{path}": data for path, data in _read_modules().items()}
    if isinstance(env, RepairEnv):
        files["tests/package.tar.gz"] = _pack_tests(env.package)
    try:
        for path, data in {**files, "environment/files.tar": _normalise(state)}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            if path.endswith(".sh"):
                (folder / path).chmod(0o755)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _describe(env_id: str, level: str, seed: int, task: TerminalTask, starts: bool) -> str:
    """Return the task.toml. JSON writes texts and numbers as TOML does."""
    tables: dict[str, dict[str, object]] = {
        "task": {
            "name": f"gem/{env_id.partition(':')[2].lower()}-{seed}",
            "description": f"{env_id} of gem, seed {seed}",
            "keywords": ["terminal", "gem"],
        },
        "metadata": {**({"difficulty": level} if level else {}), "env": env_id, "seed": seed},
        "agent": {"timeout_sec": _AGENT_S},
        "verifier": {"timeout_sec": max(_TEST_S, task.test_s)},
        "environment": {"network_mode": "no-network", "cpus": 1, "memory_mb": 2048},
    }
    if starts:
        tables["environment.healthcheck"] = {"command": _START}
    lines = ['schema_version = "1.4"']
    for name, table in tables.items():
        lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _read_modules() -> dict[str, bytes]:
    """Return the modules and texts that the test needs, by their paths below gem/."""
    root = resources("gem")
    parts = {path: root.joinpath(path).read_bytes() for path in _SHIPPED}
    for entry in root.joinpath(_TASKS).iterdir():
        if entry.is_file():
            parts[f"{_TASKS}/{entry.name}"] = entry.read_bytes()
    packages = {path.rpartition("/")[0] for path in parts} | {"", "envs"}
    return {**{f"{each}/__init__.py".lstrip("/"): b"" for each in packages}, **parts}


def _pack(files: Mapping[str, bytes]) -> bytes:
    """Return files as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _pack_tests(package: str) -> bytes:
    """Return a package with its tests, and pytest with what it needs, as a tar of gzip."""
    files = {f"package/{path}": data for path, data in read_package(package).items()}
    for entry in map(Path, entries(("pytest",))):
        for path in sorted(entry.rglob("*")) if entry.is_dir() else [entry]:
            if path.is_file() and path.suffix != ".pyc":
                files[f"lib/{path.relative_to(entry.parent).as_posix()}"] = path.read_bytes()
    return gzip.compress(_pack(files), mtime=0)


def _normalise(state: bytes) -> bytes:
    """Return the tar of a home without its own entry, owned by root; its times are those of no moment."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(state)) as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old:
            if member.name in (".", ""):
                continue
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isreg() else None)
    return buffer.getvalue()
