"""Task folders in the layouts of Harbor and of Terminal-Bench."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from gem.envs.terminal_tasks.base import Box, Check, TerminalTask
from gem.errors import BadArgument

_ENGINE = ("Dockerfile", "docker-compose.yaml", "docker-compose.yml")
_TEST_S = 120.0
_PLACES = {"/app": "$HOME", "/tests": "$HOME/.tests", "/logs": "$HOME/.logs"}
"""What the folders of a container are in the box, in scripts and tests."""

_PREPARE = (
    "rm -rf .tests .logs && mkdir -p .tests .logs/verifier .logs/agent"  # whatever the agent left there
)
_SETTINGS = (
    "export TEST_DIR=$HOME/.tests LOGS_DIR=$HOME/.logs PYTHONNOUSERSITE=1 "
    'PYTEST_ADDOPTS="--rootdir=$HOME/.tests --confcutdir=$HOME/.tests -c /dev/null -p no:cacheprovider"'
)


def read_folder(path: str | PathLike[str]) -> TerminalTask:
    """Return the task of a folder.

    Harbor's layout is ``task.toml``, ``instruction.md``, ``tests/test.sh``, with the files that the agent
    begins with in ``environment/``, and ``solution/solve.sh``; Terminal-Bench's is ``task.yaml``,
    ``run-tests.sh``, ``tests/``, with the other files for the agent, and ``solution.sh``. The working folder
    stands for ``/app``. The test passes where it writes a reward of 1 or more to
    ``/logs/verifier/reward.txt``, or, without such a file, where its script ends with exit code 0.

    Raises:
        BadArgument: for another layout, or a folder whose box is built by a container engine.
    """
    folder = Path(path)
    harbor = (folder / "task.toml").is_file()
    if not harbor and not (folder / "task.yaml").is_file():
        raise BadArgument(
            f"task folder {str(folder)!r} has neither task.toml (Harbor) nor task.yaml (Terminal-Bench)."
        )
    ground = folder / "environment" if harbor else folder
    for name in _ENGINE:
        if (ground / name).exists():
            raise BadArgument(
                f"task folder {str(folder)!r} builds its box by {name}, which needs a container engine; gem "
                "runs task "
                "folders without one, in its own box: put the files of the task into "
                f"{'environment/' if harbor else 'the folder'} and remove {name}."
            )
    script = folder / ("tests/test.sh" if harbor else "run-tests.sh")
    if not script.is_file():
        raise BadArgument(
            f"task folder {str(folder)!r} has no {script.relative_to(folder)}: nothing would score it."
        )
    if harbor:
        instruction = _text(folder / "instruction.md")
        test_s = _number(tomllib.loads(_text(folder / "task.toml")).get("verifier", {}).get("timeout_sec"))
        solution, own = folder / "solution/solve.sh", set[str]()
    else:
        said = _yaml(_text(folder / "task.yaml"))
        instruction = said.get("instruction", "")
        test_s = _number(said.get("max_test_timeout_sec"))
        solution = folder / "solution.sh"
        own = {"task.yaml", "run-tests.sh", "tests", "solution.sh", "solution.yaml"}
    if not instruction.strip():
        raise BadArgument(f"task folder {str(folder)!r} has no instruction.")
    tests = _files(folder / "tests") | {"test.sh": script.read_bytes()}
    files = {name: data for name, data in _files(ground).items() if name.split("/")[0] not in own}
    return TerminalTask(
        re.sub(r"(?<![\w./~-])/app\b", "~", instruction.strip()),
        script_test(tests),
        re.sub(r"(?<![\w./~-])/app\b", "$HOME", _text(solution)) if solution.is_file() else "",
        files,
        test_s=test_s or _TEST_S,
    )


def script_test(files: Mapping[str, bytes]) -> Check:
    """Return the hidden test that is a bash script, ``test.sh`` among `files`.

    It comes into the box, with the other files, when the agent's processes are gone; ``$TEST_DIR`` is its
    folder. It passes by a reward of 1 or more in ``$LOGS_DIR/verifier/reward.txt``, or, without such a file,
    by ending with exit code 0.
    """

    def check(box: Box) -> str:
        box.run(_PREPARE)
        for name, data in files.items():
            box.put(f".tests/{name}", data)
        box.run(f"cd .tests && {_rewritten()}")
        done = box.run(f"{_SETTINGS}; bash .tests/test.sh")
        reward = box.text(".logs/verifier/reward.txt")
        if reward is None:
            return "" if done.ok else f"the test's script ended with {done.exit_code}"
        try:
            return "" if float(reward) >= 1 else f"the test's reward is {reward[:20]}"
        except ValueError:
            return "the test's reward is no number"

    return check


def _rewritten() -> str:
    """Return the command that puts the box's folders in place of a container's, in every test file."""
    edits = "; ".join(
        f"s#\\(^\\|[^A-Za-z0-9_./~-]\\){place}\\b#\\1{real}#g" for place, real in _PLACES.items()
    )
    return f'find . -type f -exec sed -i "{edits}" {{}} +'


def _files(folder: Path) -> dict[str, bytes]:
    """Return the regular files below a folder; links are not followed."""
    if not folder.is_dir():
        return {}
    found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{str(path)!r} cannot be read as text: {error}.") from error


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _yaml(text: str) -> dict[str, str]:
    """Return the top-level scalars and block texts of a YAML file, which is all that a task is read for."""
    said: dict[str, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = re.fullmatch(r"(\w+):\s*(.*)", line)
        if not found:
            continue
        key, value = found.groups()
        if value[:1] in "|>" and value:
            block = []
            for more in lines[number + 1 :]:
                if more.strip() and not more.startswith((" ", "\t")):
                    break
                block.append(more)
            margin = min((len(more) - len(more.lstrip()) for more in block if more.strip()), default=0)
            value = ("\n" if value[0] == "|" else " ").join(more[margin:] for more in block).strip()
        said[key] = value.strip("\"'")
    return said
