"""Task folders in the layouts of Harbor and of Terminal-Bench."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from gem.envs.terminal.base import (
    REWARD_FILES,
    Check,
    Dockerfile,
    Machine,
    ScoredCheck,
    TerminalTask,
    check_finished,
    read_rewards,
    script_verdict,
)
from gem.envs.terminal.container import container_test
from gem.errors import BadArgument, ToolError
from gem.sandbox.base import Result

_COMPOSE = ("docker-compose.yaml", "docker-compose.yml")
_TEST_S = 120.0
_PLACES = {"/app": "$HOME", "/tests": "$HOME/.tests", "/logs": "$HOME/.logs"}
"""Folders of a container, and the folders that replace them in scripts and tests without a container."""

# Removes what the agent left there, also from folders that it made unwritable.
_PREPARE = (
    "rm -rf .tests .logs 2>/dev/null || { find .tests .logs -type d -exec chmod u+rwx {} \\;; "
    "rm -rf .tests .logs; }; mkdir .tests .logs .logs/verifier .logs/agent"
)
_SETTINGS = (
    "export TEST_DIR=$HOME/.tests LOGS_DIR=$HOME/.logs PYTHONNOUSERSITE=1 "
    'PYTEST_ADDOPTS="--rootdir=$HOME/.tests --confcutdir=$HOME/.tests -c /dev/null -p no:cacheprovider"'
)


def read_folder(path: str | PathLike[str]) -> TerminalTask:
    """Read the task of a folder.

    Harbor's layout is ``task.toml``, ``instruction.md``, ``tests/test.sh``, ``solution/solve.sh``, and
    ``environment/`` with the agent's initial files. Its test is scored by the rewards that it writes, see
    `read_rewards`. Terminal-Bench's layout is ``task.yaml``, ``run-tests.sh``, ``tests/``, ``solution.sh``,
    and the agent's files beside them. Its test passes if it writes a reward of 1 or more to
    ``/logs/verifier/reward.txt``, or, without such a file, if its script ends with exit code 0. Without a
    Dockerfile, the working folder replaces ``/app``. With one, the machine is a container of its image, and
    ``/app`` is the image's. A docker-compose file beside the Dockerfile must have exactly one service, and is
    otherwise ignored.

    Raises:
        BadArgument: for another layout, or a folder that needs several containers.
    """
    folder = Path(path)
    harbor = (folder / "task.toml").is_file()
    if not harbor and not (folder / "task.yaml").is_file():
        raise BadArgument(
            f"task folder {str(folder)!r} has neither task.toml (Harbor) nor task.yaml (Terminal-Bench)."
        )
    ground = folder / "environment" if harbor else folder
    dockerfile = (ground / "Dockerfile").is_file()
    for name in _COMPOSE:
        if (ground / name).is_file() and not (dockerfile and len(_services(_text(ground / name))) == 1):
            raise BadArgument(
                f"task folder {str(folder)!r} defines its machine in {name}; accepted: neither file, a "
                "Dockerfile, or a Dockerfile and a docker-compose file with one service."
            )
    script = folder / ("tests/test.sh" if harbor else "run-tests.sh")
    if not script.is_file():
        raise BadArgument(
            f"task folder {str(folder)!r} has no {script.relative_to(folder)}, which must score the task."
        )
    if harbor:
        instruction = _text(folder / "instruction.md")
        settings = _toml(folder / "task.toml")
        test_s = _number(settings["verifier"].get("timeout_sec"))
        solution, own, command = folder / "solution/solve.sh", set[str](), "/tests/test.sh"
        wanted = settings["environment"]
    else:
        document = _yaml(_text(folder / "task.yaml"))
        instruction = document.get("instruction", "")
        test_s = _number(document.get("max_test_timeout_sec"))
        solution = folder / "solution.sh"
        own = {"task.yaml", "run-tests.sh", "tests", "solution.sh", "solution.yaml"}
        command, wanted = "bash /tests/run-tests.sh", {}
    if not instruction.strip():
        raise BadArgument(f"task folder {str(folder)!r} has no instruction.")
    if dockerfile:
        machine = Dockerfile(
            ground,
            frozenset(own),
            internet=wanted.get("allow_internet") is True,
            build_s=_number(wanted.get("build_timeout_sec")) or 600.0,
            memory_mb=_memory_mb(wanted) or 2048,
            cpus=_number(wanted.get("cpus")),
        )
        return TerminalTask(
            instruction.strip(),
            container_test(
                _files(folder / "tests") | {script.name: script.read_bytes()}, command, rewards=harbor
            ),
            _text(solution) if solution.is_file() else "",
            looks=("ls -a", "pwd", "id"),
            test_s=test_s or _TEST_S,
            dockerfile=machine,
        )
    tests = _files(folder / "tests") | {"test.sh": script.read_bytes()}
    files = {name: data for name, data in _files(ground).items() if name.split("/")[0] not in own}
    return TerminalTask(
        re.sub(r"(?<![\w./~-])/app\b", "~", instruction.strip()),
        (harbor_test if harbor else script_test)(tests),
        re.sub(r"(?<![\w./~-])/app\b", "$HOME", _text(solution)) if solution.is_file() else "",
        files,
        test_s=test_s or _TEST_S,
    )


def script_test(files: Mapping[str, bytes]) -> Check:
    """Return a hidden test that runs a bash script, ``test.sh`` among `files`.

    The files are copied into the machine after the agent's processes have been ended; ``$TEST_DIR`` is their
    folder. The test passes with a reward of 1 or more in ``$LOGS_DIR/verifier/reward.txt``, or, without such
    a file, with exit code 0.
    """

    def check(machine: Machine) -> str:
        done = _run_test(machine, files, "bash .tests/test.sh")
        return script_verdict(machine.text(".logs/verifier/reward.txt"), done)

    return check


def harbor_test(files: Mapping[str, bytes]) -> ScoredCheck:
    """Return a hidden test that runs ``test.sh`` among `files` and is scored by the rewards that it writes.

    The files are copied as `script_test` does it, and may all be executed. The exit code does not matter.
    """

    def check(machine: Machine) -> dict[str, float]:
        done = _run_test(machine, files, "find .tests -type f -exec chmod +x {} +; .tests/test.sh")
        check_finished(done, machine)
        return read_rewards(*(machine.read(f".logs/verifier/{name}") for name in REWARD_FILES))

    return check


def _run_test(machine: Machine, files: Mapping[str, bytes], command: str) -> Result:
    """Copy the files of a test into the machine, and run it. Raises ToolError."""
    if not machine.run(_PREPARE).ok:
        raise ToolError("the folders of the test cannot be made: the agent's files are in the way")
    for name, data in files.items():
        machine.write_file(f".tests/{name}", data)
    machine.run(f"cd .tests && {_rewritten()}")
    return machine.run(f"{_SETTINGS}; {command}")


def _rewritten() -> str:
    """Return the command that replaces a container's folders by the machine's, in every test file."""
    edits = "; ".join(
        f"s#\\(^\\|[^A-Za-z0-9_./~-]\\){place}\\b#\\1{real}#g" for place, real in _PLACES.items()
    )
    return f'find . -type f -exec sed -i "{edits}" {{}} +'


def _files(folder: Path) -> dict[str, bytes]:
    """Return the regular files below a folder; links are not followed."""
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{str(path)!r} cannot be read as text: {error}.") from error


def _toml(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of a task.toml that are used here. Raises BadArgument."""
    try:
        document = tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise BadArgument(f"{str(path)!r} is no TOML: {error}.") from error
    tables = {name: document.get(name, {}) for name in ("verifier", "environment")}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadArgument(f"{str(path)!r}: {name} is {table!r:.80}; accepted: a table.")
    return tables


def _number(value: Any) -> float | None:
    """Return a positive number; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number < math.inf else None


def _memory_mb(wanted: Mapping[str, Any]) -> int | None:
    """Return the memory that a task asks for, from ``memory_mb`` or ``memory = "2G"``."""
    match = re.fullmatch(
        r"(\d+(?:\.\d+)?)\s*([MG])i?B?", str(wanted.get("memory", "")).strip(), re.IGNORECASE
    )
    if match:
        return int(float(match[1]) * (1024 if match[2] in "gG" else 1)) or None
    return int(_number(wanted.get("memory_mb")) or 0) or None


def _services(text: str) -> list[str]:
    """Return the names of a docker-compose file's services."""
    body = re.split(r"^services:\s*$", text, maxsplit=1, flags=re.MULTILINE)[-1]
    body = re.split(r"^\S", body, maxsplit=1, flags=re.MULTILINE)[0]
    margins = re.findall(r"^( +)\S+:", body, re.MULTILINE)
    return re.findall(rf"^{min(margins, default='')}(\S+):", body, re.MULTILINE)


def _yaml(text: str) -> dict[str, str]:
    """Return the top-level scalars and block texts of a YAML file; a task needs no more."""
    entries: dict[str, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.fullmatch(r"(\w+):\s*(.*)", line)
        if not match:
            continue
        key, value = match.groups()
        if value[:1] in "|>" and value:
            block = []
            for more in lines[number + 1 :]:
                if more.strip() and not more.startswith((" ", "\t")):
                    break
                block.append(more)
            margin = min((len(more) - len(more.lstrip()) for more in block if more.strip()), default=0)
            value = ("\n" if value[0] == "|" else " ").join(more[margin:] for more in block).strip()
        entries[key] = value.strip("\"'")
    return entries
