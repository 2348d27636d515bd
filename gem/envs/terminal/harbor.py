"""What a task folder of Harbor may ask for here, and tools that its test finds in place of installers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from gem.envs.terminal.base import PREPARATION, HealthCheck, Machine, choose_reward
from gem.errors import BadArgument, NoVerdict
from gem.sandbox.base import Result

_REFUSED = {
    "steps": "several steps",
    "environment.skills_dir": "skills for an agent's program (skills_dir)",
    "environment.mcp_servers": "MCP servers beside the machine",
    "environment.workdir": "another working folder (workdir)",
    "environment.gpus": "GPUs",
    "environment.tpu": "TPUs",
    "verifier.environment": "a verifier with an image of its own",
    "verifier.collect": "commands that collect the verifier's files",
    "verifier.user": "another user for the verifier",
    "agent.user": "another user for the agent",
}
"""Settings of a task.toml that change a task and that gem does not have, and what each is."""

_REFUSED_FILES = {
    "trajectory.json": "an episode to go on from (trajectory.json)",
    "tests/**/.harborignore": "rules for leaving out tests (.harborignore)",
}
"""The same for files, by their path in the folder."""


def check_settings(document: Mapping[str, Any], folder: str) -> None:
    """Refuse the settings of a task.toml that gem cannot follow.

    Raises:
        BadArgument: with what the task needs.
    """
    tables = {"": document, **{name: document.get(name, {}) for name in ("agent", "environment", "verifier")}}
    needs = []
    for key, what in _REFUSED.items():
        table, _, name = key.rpartition(".")
        if tables[table].get(name):
            needs.append(what)
    if tables["environment"].get("os", "linux") != "linux":
        needs.append(f"the system {tables['environment']['os']!r:.40}")
    if tables["verifier"].get("environment_mode", "shared") != "shared":
        needs.append("a verifier in a machine of its own")
    if any(table.get("network_mode") == "allowlist" for table in tables.values()):
        needs.append("a network with a list of allowed hosts")
    version = document.get("schema_version", document.get("version", "1.0"))
    if str(version).partition(".")[0] != "1":
        needs.append(f"the schema {version!r:.20}")
    needs += [what for name, what in _REFUSED_FILES.items() if any(Path(folder).glob(name))]
    if needs:
        raise BadArgument(
            f"task folder {folder!r} needs {', '.join(needs)}; accepted: schema 1, one step, in one machine "
            "that its test shares, from files or a Dockerfile. Play it with Harbor itself (`harbor run`), or "
            "change it."
        )


def strip_canary(instruction: str) -> str:
    """Return an instruction without the comments that mark it as a benchmark's, as Harbor shows it.

    Each is a line at its beginning: ``# ... canary ...`` or ``<!-- ... canary ... -->``.
    """
    lines = instruction.split("\n")
    for number, line in enumerate(map(str.strip, lines)):
        comment = line.startswith("#") or (line.startswith("<!--") and line.endswith("-->"))
        if not (comment and "canary" in line.lower()):
            return "\n".join(lines[number:]).strip()
    return ""


def read_variables(table: Mapping[str, Any], folder: str) -> dict[str, str]:
    """Return the variables of a table's ``env``.

    Raises:
        BadArgument: for a value that is no text, or that is to come from the variables of this machine.
    """
    variables = table.get("env", {})
    for name, value in variables.items() if isinstance(variables, Mapping) else [("env", None)]:
        if not isinstance(value, str) or "${" in value or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise BadArgument(
                f"task folder {folder!r} sets {name!r:.80} to {value!r:.80}; accepted: text without ${{...}}."
            )
    return dict(variables)


def read_image(table: Mapping[str, Any], folder: str) -> str:
    """Return the image that a task.toml's environment names in ``docker_image``; '' if it names none.

    Raises:
        BadArgument: for what is no name of an image.
    """
    image = table.get("docker_image") or ""
    if image and not (isinstance(image, str) and re.fullmatch(r"[A-Za-z0-9][\w./:@-]{0,299}", image)):
        raise BadArgument(
            f"task folder {folder!r} has the docker_image {image!r:.80}; accepted: the name of an image, as "
            "python:3.12-slim or ghcr.io/owner/name@sha256:..."
        )
    return image


def read_health(table: Mapping[str, Any], folder: str) -> HealthCheck | None:
    """Return the health check of a task.toml's environment; None if it has none.

    Raises:
        BadArgument: for one without a command, and for a time or number that is not from 0 to 600.
    """
    given = table.get("healthcheck")
    if not given:
        return None
    names = {
        **{"interval_sec": "interval_s", "timeout_sec": "timeout_s", "start_period_sec": "start_s"},
        **{"start_interval_sec": "start_interval_s", "retries": "retries"},
    }
    command = given.get("command") if isinstance(given, Mapping) else None
    values = {own: given[name] for name, own in names.items() if name in given} if command else {}
    fits = [type(value) in (int, float) and 0 <= value <= 600 for value in values.values()]
    if not (isinstance(command, str) and command.strip() and all(fits)) or values.get("timeout_s") == 0:
        raise BadArgument(
            f"task folder {folder!r} has the health check {given!r:.200}; accepted: a command, and "
            f"{', '.join(names)} from 0 to 600."
        )
    return HealthCheck(command, **values)


def write_exports(variables: Mapping[str, str], home: str = "") -> str:
    """Return the bash commands that export variables; `home` in a value becomes ``$HOME``."""
    lines = []
    for name, value in variables.items():
        quoted = "'" + value.replace("'", "'\"'\"'") + "'"
        if home:
            quoted = re.sub(rf"(?<![\w./~-]){re.escape(home)}\b", "'\"$HOME\"'", quoted)
        lines.append(f"export {name}={quoted}\n")
    return "".join(lines)


MISSING = ".absent/missing"
"""The file among those of a test in which a program below says what is not here."""

_ABSENT = """#!/bin/sh
echo "${0##*/}" >> "${0%/*}/missing"
echo "${0##*/} is not here" >&2
exit 127
"""

_NAMES = ("uv", "uvx", "pytest")
ABSENT = {f".absent/{name}": _ABSENT.encode() for name in _NAMES}
"""Programs for the end of a test's path, by the file among those of the test.

Without network a test cannot install these, and would write 0 where they fail, whatever the agent did.
"""

_HAS = ".present: "
PROBE_TOOLS = (
    f"for tool in {' '.join(_NAMES)}; do command -v $tool > /dev/null && echo {_HAS}$tool; done; :\n"
)
"""Commands for the set-up of a container, in which an agent can remove them, that print which are there."""

# An interpreter, and a tool that it runs as a module a few words later.
_MODULE = re.compile(
    r"(?<![\w./~${}-])((?:[\w./~][\w./~-]*)?python[\d.]*)\b(?:\\\n|[^\n;&|]){0,99}?\s-[A-Za-z]*m\s*"
    r"(pytest|uv|tox|coverage)\b"
)
_INSTALL = re.compile(r"\bpip3?\s+install\b((?:\\\n|[^\n;&|])*)")
_PACKAGE = re.compile(r"""(?<!\S)["']?([A-Za-z][A-Za-z0-9_-]*)(?=["'\s\[=<>~!]|\Z)""")
_MODULES = {"beautifulsoup4": "bs4", "pillow": "PIL", "pyyaml": "yaml", "scikit_learn": "sklearn"}
_LACKS = ".absent: "


def probe_modules(scripts: Iterable[bytes], solution: Iterable[bytes]) -> str:
    """Return commands for a task's set-up that print which modules its test's scripts need in vain.

    They need the tools that they run as modules, and what they install with pip, for which there may be no
    network. Left out is what is the agent's to install: a package that a file of the solution installs, and
    an interpreter that is not there yet, except on the path and in ``/usr``.
    """
    texts, solved = (b"\n".join(files).decode("utf-8", "replace") for files in (scripts, solution))
    own = "\n".join(re.findall(r"\b(?:install|add|sync)\b.*", solved))
    installs = [name for words in _INSTALL.findall(texts) for name in _PACKAGE.findall(words)]
    needs: dict[str, dict[str, None]] = {}
    for python, package in (*_MODULE.findall(texts), *(("python3", name) for name in installs)):
        if not re.search(rf"\b{package}\b", own, re.I):
            name = package.lower().replace("-", "_")
            needs.setdefault(python, {})[_MODULES.get(name, name)] = None
    find = "import sys; from importlib.util import find_spec; "
    find += "print(sys.argv[1], *[name for name in sys.argv[2:] if not find_spec(name)])"
    lines = []
    for python, modules in needs.items():
        there = "" if "/" not in python or python.startswith("/usr/") else f"! [ -e {python} ] || "
        words = f"'{_LACKS}{python}' {' '.join(modules)}"
        lines.append(f"{there}timeout 5 {python} -B -c '{find}' {words} 2> /dev/null || echo {words}\n")
    return "".join(lines)


_Verdict = TypeVar("_Verdict", str, dict[str, float])


def confirm_verdict(verdict: _Verdict, machine: Machine, done: Result, logs: str) -> _Verdict:
    """Return the verdict of a test, which gave the result `done` and left the folder `logs`.

    Raises NoVerdict if the test failed and says that it lacks a module that `probe_modules` missed before the
    agent's first turn. What a test says may be the agent's words.
    """
    lines = re.findall(rf"^{re.escape(_LACKS)}(\S+) (.+)$", machine.setup, re.M)
    absent = [(python, name) for python, names in lines for name in names.split()]
    solved = not verdict if isinstance(verdict, str) else choose_reward(verdict) >= 1
    if solved or not absent or done.info.get("ended"):
        return verdict
    written = machine.run(f"find {logs} -type f -exec cat {{}} +", PREPARATION).stdout
    output = f"{done.stdout}\n{done.stderr}\n{written}"
    missing = []
    for python, name in absent:
        gone = rf"(?<![\w./~-]){re.escape(python)}['’]?: (?:(?:command )?not found|No such file or directory)"
        plugin = (
            r"|error: unrecognized arguments: .{1,999}\n +inifile: " if name.startswith("pytest_") else ""
        )
        if re.search(rf"No module named '?{name}\b|{gone}{plugin}", output):
            missing.append(f"{name} for {python}")
    if missing:
        raise NoVerdict(
            f"the test needs what is not here: {', '.join(missing)}. Install it in the image, or beside gem "
            "where there is none."
        )
    return verdict


_MISSES = 'miss() { echo "$1" >> "$HOME/.tests/.absent/missing"; echo "$1 is not here" >&2; exit 127; }\n'

TOOLS = {
    "apt-get": f"""#!/bin/bash
{_MISSES}
case " $* " in *" install "*) ;; *) exit 0;; esac
for name; do
  case $name in -*|install) continue;; esac
  name=${{name%%=*}}
  command -v "$name" > /dev/null || dpkg -s "$name" > /dev/null 2>&1 || [ "$name" = curl ] || miss "$name"
done
""",
    "curl": f"""#!/bin/bash
{_MISSES}
case "$*" in *://astral.sh/uv/*) exit 0;; esac
PATH=:$PATH:
PATH=${{PATH//":$HOME/.tests/.tools:"/:}}
command -v curl > /dev/null || miss curl
exec curl "$@"
""",
    "uvx": f"""#!/bin/bash
{_MISSES}
packages=()
while [ $# -gt 0 ]; do
  case $1 in
    pytest) break;;
    -w|--with) packages+=("$2"); shift 2;;
    -p|--python|--from) shift 2;;
    --with=*) packages+=("${{1#*=}}"); shift;;
    -*) shift;;
    *) miss "$1";;
  esac
done
[ $# -gt 0 ] || miss "uvx without pytest"
shift
arguments=()
while [ $# -gt 0 ]; do
  case $1 in --ctrf) shift 2;; --ctrf=*) shift;; *) arguments+=("$1"); shift;; esac
done
for package in pytest "${{packages[@]}}"; do
  name=${{package%%[=<>!~[]*}}
  [ "$name" = pytest-json-ctrf ] && continue
  python3 -I -c 'import sys, importlib.metadata as m; m.version(sys.argv[1])' "$name" 2> /dev/null ||
    miss "$name"
done
# As pytest's own program does, without the working folder among the places of modules: it is the agent's.
run='import sys; sys.path = [*filter(None, sys.path)]; import pytest; sys.exit(pytest.console_main())'
exec python3 -c "$run" "${{arguments[@]}}"
""",
}
"""Replacements of tools with which a test installs its own tools: bash scripts by name.

``apt-get install`` and ``uvx --with`` accept what is installed here, in any version; ``curl`` skips the
installer of uv; ``uvx`` runs pytest of ``python3``, without the report in CTRF. What is not here goes into
`MISSING`, and the test gives no verdict.
"""


def check_tools(missing: bytes | None, setup: str, hint: str = "") -> None:
    """Raise NoVerdict if the programs above left `missing`, the content of `MISSING`.

    What was there before the agent's first turn, as `setup` says by `PROBE_TOOLS`, the agent has removed.
    """
    missed = dict.fromkeys((missing or b"").decode("utf-8", "replace").split())
    if names := [name for name in missed if f"{_HAS}{name}\n" not in setup]:
        raise NoVerdict(f"the test needs what is not here: {', '.join(names)[:200]}.{hint}")
