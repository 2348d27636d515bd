"""Task folders in the layouts of Harbor and of Terminal-Bench."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from gem.envs.terminal.base import (
    PREPARATION,
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
from gem.envs.terminal.container import container_test, digest_folder
from gem.envs.terminal.dockerfile import Ground, read_dockerfile, regular_files
from gem.envs.terminal.harbor import (
    ABSENT,
    MISSING,
    PROBE_TOOLS,
    TOOLS,
    check_settings,
    check_tools,
    confirm_verdict,
    probe_modules,
    read_health,
    read_image,
    read_variables,
    strip_canary,
    write_exports,
)
from gem.errors import BadArgument, ToolError, reason
from gem.files import parse_toml, read_text
from gem.sandbox.base import Result, SandboxFailed
from gem.sandbox.container import find_engine

_COMPOSE = ("docker-compose.yaml", "docker-compose.yml")
_MOST_MEMORY_MB = 1 << 24
_TEST_S = 120.0
_HARBOR_TEST_S = 600.0
"""Seconds of a test for which a task.toml states none; this is Harbor's default."""

# Removes what the agent left there, also from folders that it made unwritable.
_PREPARE = (
    "rm -rf .tests .logs 2>/dev/null || { find .tests .logs -type d -exec chmod u+rwx {} \\;; "
    "rm -rf .tests .logs; }; mkdir .tests .logs .logs/verifier .logs/agent && "
    # A test that finds the disk full would write no reward, which is no verdict.
    "head -c 65536 /dev/zero | tee .logs/room{1..4} > /dev/null && rm .logs/room*"
)
_SETTINGS = (
    "export TEST_DIR=$HOME/.tests LOGS_DIR=$HOME/.logs PYTHONNOUSERSITE=1 "
    'PYTEST_ADDOPTS="--rootdir=$HOME/.tests --confcutdir=$HOME/.tests -c /dev/null -p no:cacheprovider"'
)


def read_folder(path: str | PathLike[str], *, shims: bool = False) -> TerminalTask:
    """Read the task of a folder.

    Harbor's layout is ``task.toml``, ``instruction.md``, ``tests/test.sh``, ``solution/solve.sh``, and
    ``environment/`` with the agent's initial files. Its test is scored by the rewards that it writes, see
    `read_rewards`. Terminal-Bench's layout is ``task.yaml``, ``run-tests.sh``, ``tests/``, ``solution.sh``,
    and the agent's files beside them. Its test passes if it writes a reward of 1 or more to
    ``/logs/verifier/reward.txt``, or, without such a file, if its script ends with exit code 0.

    Without a Dockerfile, the working folder replaces ``/app``. With one, the machine is a container of its
    image, and ``/app`` is the image's; a ``docker_image`` of task.toml goes before a Dockerfile. Where no
    engine is, a Dockerfile of FROM, WORKDIR, COPY or ADD of local files, and ENV is followed without one: the
    working folder replaces its WORKDIR, and what the base image has is not there. A docker-compose file
    beside the Dockerfile must have exactly one service, and is otherwise ignored.

    Args:
        path: the folder.
        shims: let a test of Harbor's layout find `gem.envs.terminal.harbor.TOOLS`; only without a container.

    Raises:
        BadArgument: for another layout, or a folder that needs what gem does not have.
        SandboxFailed: when the folder needs a container engine, and none is here.
    """
    folder = Path(path)
    harbor = (folder / "task.toml").is_file()
    if not harbor and not (folder / "task.yaml").is_file():
        raise BadArgument(
            f"task folder {str(folder)!r} has neither task.toml (Harbor) nor task.yaml (Terminal-Bench)."
        )
    _check_links(folder)
    document = _toml(folder / "task.toml") if harbor else {}
    if harbor:
        check_settings(document, str(folder))
    ground = folder / "environment" if harbor else folder
    wanted = document.get("environment", {})
    image = read_image(wanted, str(folder))
    dockerfile = bool(image) or (ground / "Dockerfile").is_file()
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
        instruction = strip_canary(_text(folder / "instruction.md"))
        test_s = _number(document["verifier"], "timeout_sec") or _HARBOR_TEST_S
        solution, own, command = folder / "solution/solve.sh", set[str](), "/tests/test.sh"
    else:
        task = _yaml(_text(folder / "task.yaml"))
        instruction = task.get("instruction", "")
        test_s = _number(task, "max_test_timeout_sec") or _TEST_S
        solution = folder / "solution.sh"
        own = {"task.yaml", "run-tests.sh", "tests", "solution.sh", "solution.yaml"}
        command = "bash /tests/run-tests.sh"
    if not instruction.strip():
        raise BadArgument(f"task folder {str(folder)!r} has no instruction.")
    try:
        info = {"task": folder.resolve().name, "data": f"folder {digest_folder(folder, 0o100)}"}
    except OSError as error:
        raise BadArgument(f"task folder {str(folder)!r} cannot be read: {reason(error)}.") from error
    tests = _files(folder / "tests") | {script.name: script.read_bytes()}
    alone = not harbor or has_solution(folder)
    solved = _text(solution) if alone and solution.is_file() else ""
    scripts = [data for name, data in tests.items() if name.endswith(".sh")]
    probe = probe_modules(scripts, [solved.encode(), *_files(folder / "solution").values()])
    if harbor:
        info |= _read_labels(document)
    agent_s = _number(document.get("agent", {}), "timeout_sec")
    memory_mb = _memory_mb(wanted) or 2048
    env = read_variables(wanted, str(folder))
    health = read_health(wanted, str(folder))
    test_env = env | read_variables(document.get("verifier", {}), str(folder))
    start = Ground()
    if dockerfile and (plain := _without_engine(ground, str(folder), image)) is not None:
        start = plain
    elif dockerfile:
        if shims:
            raise BadArgument(
                f"task folder {str(folder)!r} runs in a container; shims are for gem's sandbox."
            )
        machine = Dockerfile(
            ground,
            image,
            frozenset(own),
            internet=wanted.get("allow_internet") is True or wanted.get("network_mode") == "public",
            build_s=_number(wanted, "build_timeout_sec") or 600.0,
            memory_mb=memory_mb,
            cpus=_number(wanted, "cpus"),
        )
        return TerminalTask(
            instruction.strip(),
            container_test(
                tests if machine.internet else tests | ABSENT,
                command,
                write_exports(test_env),
                rewards=harbor,
            ),
            solved,
            looks=("ls -a", "pwd", "id"),
            setup="" if machine.internet else write_exports(test_env) + PROBE_TOOLS + probe,
            test_s=test_s,
            dockerfile=machine,
            exports=write_exports(env),
            info=info,
            agent_s=agent_s,
            health=health,
        )
    else:
        for name, source in regular_files(ground).items():
            if name.split("/")[0] not in own:
                start.add(name, source)
    tests["test.sh"] = tests[script.name]
    chmod = f"chmod +x -- {shlex.join(start.programs)}\n" if start.programs else ""
    exports = write_exports(start.env | test_env, start.home)
    if harbor:
        check: ScoredCheck = harbor_test(tests, start.home, exports, shims=shims)
    else:
        check = script_test(tests, start.home, exports)
    return TerminalTask(
        _replace_home(instruction.strip(), start.home, "~"),
        check,
        _replace_home(solved, start.home, "$HOME"),
        start.files,
        start.image,
        setup=chmod + (probe and exports + _replace_home(probe, start.home, "$HOME")),
        test_s=test_s,
        exports=write_exports(start.env | env, start.home),
        info=info,
        agent_s=agent_s,
        loopback=health is not None,  # it waits for a program, perhaps for a server
        health=health and replace(health, command=_replace_home(health.command, start.home, "$HOME")),
    )


def has_solution(folder: Path) -> bool:
    """Return whether a folder of Harbor has ``solution/solve.sh``, and no other file, as gem copies none."""
    return [*regular_files(folder / "solution")] == ["solve.sh"]


def _check_links(folder: Path) -> None:
    """Refuse links out of the folder, which would show the agent files of this machine."""
    parts = ["task.toml", "task.yaml", "instruction.md", "environment", "tests", "solution", "solution.sh"]
    parts += ["environment/Dockerfile", "tests/test.sh", "solution/solve.sh", "run-tests.sh", "Dockerfile"]
    root = folder.resolve()
    for part in parts:
        if not (folder / part).resolve().is_relative_to(root):
            raise BadArgument(
                f"task folder {str(folder)!r}: {part} is a link out of the folder; accepted: files in it."
            )


def _read_labels(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the name and the difficulty that a task.toml states."""
    labels = {"task": (document.get("task"), "name"), "difficulty": (document.get("metadata"), "difficulty")}
    stated = {
        key: table[name]
        for key, (table, name) in labels.items()
        if isinstance(table, dict) and isinstance(table.get(name), str)
    }
    return {key: value[:200] for key, value in stated.items()}


def _without_engine(ground: Path, folder: str, image: str) -> Ground | None:
    """Return the first state that a Dockerfile describes, if no engine is here; None: an engine is.

    Raises:
        SandboxFailed: if the Dockerfile needs an engine, and for a prebuilt `image`.
    """
    try:
        find_engine()
    except SandboxFailed as absent:
        if image:
            raise SandboxFailed(
                f"task folder {folder!r} needs Docker or Podman for its docker_image {image!r}: {absent}"
            ) from absent
        try:
            return read_dockerfile(ground)
        except BadArgument as error:
            raise SandboxFailed(
                f"task folder {folder!r} needs Docker or Podman: {error}. {absent} Without an engine, "
                "accepted: FROM, WORKDIR, COPY or ADD of local files below it, and ENV without variables."
            ) from error
    return None


def _replace_home(text: str, home: str, by: str) -> str:
    return re.sub(rf"(?<![\w./~-]){re.escape(home)}\b", lambda match: by, text)


def script_test(files: Mapping[str, bytes], home: str = "/app", exports: str = "") -> Check:
    """Return a hidden test that runs a bash script, ``test.sh`` among `files`.

    The files are copied into the machine after the agent's processes have been ended; ``$TEST_DIR`` is their
    folder, and the working folder replaces `home` in them. `exports` are bash commands that export variables.
    The test passes with a reward of 1 or more in ``$LOGS_DIR/verifier/reward.txt``, or, without such a file,
    with exit code 0.
    """

    def check(machine: Machine) -> str:
        done = _run_test(machine, files, home, exports, "bash .tests/test.sh")
        check_tools(machine.read(f".tests/{MISSING}"), machine.setup)
        verdict = script_verdict(machine.text(".logs/verifier/reward.txt"), done)
        return confirm_verdict(verdict, machine, done, ".logs")

    return check


def harbor_test(
    files: Mapping[str, bytes], home: str = "/app", exports: str = "", *, shims: bool = False
) -> ScoredCheck:
    """Return a hidden test that runs ``test.sh`` among `files` and is scored by the rewards that it writes.

    The files are copied as `script_test` does it, and may all be executed. The exit code does not matter.

    Args:
        files: the files by path.
        home: the folder that the working folder replaces.
        exports: bash commands that export variables.
        shims: put `gem.envs.terminal.harbor.TOOLS` first on the path.
    """
    start = "find .tests -type f -exec chmod +x {} +; "
    if shims:
        files = {**files, **{f".tools/{name}": text.encode() for name, text in TOOLS.items()}}
        start += "export PATH=$HOME/.tests/.tools:$PATH; rm -rf .local/bin; mkdir -p .local/bin; "
        start += ": > .local/bin/env && "  # a test reads it after the installer of uv

    hint = "" if shims else " shims=True (+shims behind an id) has uvx run pytest."

    def check(machine: Machine) -> dict[str, float]:
        done = _run_test(machine, files, home, exports, f"{start}.tests/test.sh")
        check_finished(done, machine)
        check_tools(machine.read(f".tests/{MISSING}"), machine.setup, hint)
        json_file, text_file = (machine.read(f".logs/verifier/{name}") for name in REWARD_FILES)
        rewards = read_rewards(json_file, text_file, f"{done.stdout}{done.stderr}")
        return confirm_verdict(rewards, machine, done, ".logs")

    return check


def _run_test(machine: Machine, files: Mapping[str, bytes], home: str, exports: str, command: str) -> Result:
    """Copy the files of a test into the machine, and run it. Raises ToolError."""
    if not machine.run(_PREPARE, PREPARATION).ok:
        raise ToolError(
            "the folders of the test cannot be made: the agent's files are in the way or fill the disk"
        )
    for name, data in {**files, **ABSENT}.items():
        machine.write_file(f".tests/{name}", data)
    machine.run(f"cd .tests && chmod +x .absent/* && {_rewritten(home)}", PREPARATION)
    return machine.run(f"{_SETTINGS}\n{exports}export PATH=$PATH:$HOME/.tests/.absent; {command}")


def _rewritten(home: str) -> str:
    """Return the command that replaces a container's folders by the machine's, in every test file."""
    places = {home.replace(".", r"\."): "$HOME", "/tests": "$HOME/.tests", "/logs": "$HOME/.logs"}
    edits = "; ".join(
        f"s#\\(^\\|[^A-Za-z0-9_./~-]\\){place}\\b#\\1{real}#g" for place, real in places.items()
    )
    return f'find . -type f -not -path "./.tools/*" -exec sed -i "{edits}" {{}} +'


def _files(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in regular_files(folder).items()}


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadArgument(f"{str(path)!r} cannot be read as text: {error}.") from error


def _toml(path: Path) -> dict[str, Any]:
    """Return a task.toml, with the tables that are used here. Raises BadArgument."""
    try:
        document = parse_toml(_text(path))
    except ValueError as error:
        raise BadArgument(f"{str(path)!r} is no TOML: {error}.") from error
    for name in ("agent", "environment", "verifier"):
        if not isinstance(document.setdefault(name, {}), dict):
            raise BadArgument(f"{str(path)!r}: {name} is {document[name]!r:.80}; accepted: a table.")
    return document


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a positive number; None where it is left out.

    Raises:
        BadArgument: for anything else.
    """
    value = values.get(name)
    if value is None:
        return None
    with suppress(TypeError, ValueError, OverflowError):
        if not isinstance(value, bool) and 0 < float(value) < math.inf:
            return float(value)
    raise BadArgument(f"a task folder says {name} = {value!r:.40}; accepted: a number above 0.")


def _memory_mb(wanted: Mapping[str, Any]) -> int | None:
    """Return the memory in MiB that a task asks for, from ``memory = "2G"`` or ``memory_mb``.

    Raises:
        BadArgument: for what is no size, or one that no machine has.
    """
    size, text = _number(wanted, "memory_mb"), wanted.get("memory")
    if text is not None:
        match = re.fullmatch(
            r"(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT])i?B?", str(text).strip(), re.ASCII | re.IGNORECASE
        )
        size = float(match[1]) * 1024.0 ** ("KMGT".index(match[2].upper()) - 1) if match else 0.0
    if size is not None and not 1 <= size <= _MOST_MEMORY_MB:
        name = "memory_mb" if text is None else "memory"
        raise BadArgument(
            f"a task folder says {name} = {wanted[name]!r:.40}; accepted: a size from 1 MiB to 16 TiB, as "
            + ("2048." if text is None else '"512M" or "2G".')
        )
    return None if size is None else int(size)


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
