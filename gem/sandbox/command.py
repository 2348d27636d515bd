"""The output of ``gem-gym sandbox``: the backend that works here and what its self-test found."""

from __future__ import annotations

from gem.errors import BadArgument, did_you_mean
from gem.sandbox.backends import BACKENDS, ORDER, PROPERTIES, make
from gem.sandbox.choice import list_ways, read_backend_setting
from gem.sandbox.seccomp import choose_list
from gem.sandbox.selftest import self_test
from gem.sandbox.sights import SIGHTS, list_sights

_WORDS = {True: "yes", False: "NO", None: "could not be tried"}


def describe(backend: str | None = None, *, sights: bool = False) -> tuple[list[str], bool]:
    """Describe a backend, or the first that passes and why others fail; return lines and whether it passes.

    Args:
        backend: its name, or None.
        sights: also list what a program in it can see of the machine.

    Raises:
        BadArgument: for an unknown backend.
    """
    backend = backend or read_backend_setting()
    if backend is not None and backend not in BACKENDS:
        raise BadArgument(
            f"no backend {backend!r}.{did_you_mean(backend, BACKENDS)} There are: {', '.join(BACKENDS)}."
        )
    lines: list[str] = []
    for name in ORDER if backend is None else (backend,):
        report = self_test(name)
        if report.passed:
            if name == "none":
                lines.append(f"Programs are not run on it unless GEM_SANDBOX_ALLOW_UNSAFE=1. {list_ways()}")
            width = max(map(len, PROPERTIES.values()))
            rows = [
                f"  {meaning:<{width}}  {_WORDS[report.properties.get(key)]}"
                for key, meaning in PROPERTIES.items()
            ]
            return [
                f"{name}: {BACKENDS[name].summary} ({BACKENDS[name].label})",
                *rows,
                *([f"  the filter is the {choose_list()} list"] if name in ORDER else []),
                *(_sights(name) if sights else []),
                *lines,
            ], name != "none"
        lines.append(f"not {name}: {report.why_not}")
    lines.append(f"Programs are not run without a sandbox. {list_ways()}")
    return lines, False


def _sights(backend: str) -> list[str]:
    sandbox = make(backend)
    try:
        sights = list_sights(sandbox)
    finally:
        sandbox.close()
    width = max(map(len, SIGHTS.values()))
    lines = [f"  {SIGHTS[name]:<{width}}  {words or 'hidden'}" for name, words in sights.items()]
    return ["what a fresh run can see of this machine:", *lines]
