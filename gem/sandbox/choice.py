"""The choice of a backend: the strongest one that passes its self-test."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from gem import plugins
from gem.errors import BadArgument, did_you_mean
from gem.sandbox.backends import BACKENDS, NAMED_ONLY, ORDER, PROPERTIES, make
from gem.sandbox.base import Sandbox, SandboxFailed
from gem.sandbox.bwrap import how_to_install
from gem.sandbox.selftest import Report, self_test

PLUGIN_GROUP = "gem.sandboxes"
PROGRAM_BACKEND = "userns"


def list_ways() -> str:
    """Return what a user can do when no backend works."""
    others = (
        "name a container engine or a service (GEM_SANDBOX=container or remote; docs/guides/sandbox.md); or "
        "accept no isolation at all (GEM_SANDBOX=none with GEM_SANDBOX_ALLOW_UNSAFE=1)."
    )
    if not sys.platform.startswith("linux"):
        return others[0].upper() + others[1:]
    return (
        "Let ordinary users make user namespaces (`sysctl user.max_user_namespaces`, and where there are "
        "such switches kernel.unprivileged_userns_clone=1 and "
        "kernel.apparmor_restrict_unprivileged_userns=0); "
        f"or install bubblewrap ({how_to_install()}); or {others}"
    )


def open_sandbox(
    backend: str | Sandbox | None = None, *, allow_unsafe: bool = False, **options: Any
) -> Sandbox:
    """Open the strongest sandbox that works on this machine.

    Args:
        backend: the backend to use; open_sandbox fails if it does not work. By default ``GEM_SANDBOX``, and
            if that is unset, the first of userns, bwrap-slots and landlock that passes its self-test. A name
            from the entry point group ``gem.sandboxes`` of a package calls that entry point with the options,
            without a self-test. A sandbox is returned unchanged.
        allow_unsafe: use ``none``, which isolates nothing, instead of failing; ``GEM_SANDBOX_ALLOW_UNSAFE=1``
            does the same.
        options: arguments of the backend's class, such as ``max_running``, or ``image`` of a container. For
            backends with gem's own system-call filter, ``filter`` is the list of system calls to use,
            ``allow`` or ``deny``: ``GEM_SANDBOX_FILTER`` by default, and ``allow`` if that is unset.

    Raises:
        SandboxFailed: when no backend passes, or the named one does not.
        BadArgument: for an unknown backend or filter.
    """
    if isinstance(backend, Sandbox):
        return backend
    allow_unsafe = allow_unsafe or _accepts_none()
    named = backend or read_backend_setting()
    if named is not None and named not in BACKENDS and (offered := plugins.find(PLUGIN_GROUP, named)):
        return plugins.call_foreign(f"sandbox {named!r}", partial(offered, **options))  # type: ignore[no-any-return]
    return _open(*_choose(named, allow_unsafe, options), options)


def open_program_sandbox(visible: Sequence[str] = ()) -> Sandbox:
    """Open a sandbox whose sessions may have a `port`, for agent programs.

    Args:
        visible: absolute paths of files and folders of this machine that the programs see, read-only.

    Raises:
        SandboxFailed: where the backend is another one than userns, or that does not work.
    """
    named = read_backend_setting()
    if named not in (None, PROGRAM_BACKEND):
        raise SandboxFailed(
            f"agent programs need a network of their own, which the backend {named!r} (GEM_SANDBOX) does not "
            f"give them: unset GEM_SANDBOX, or set it to {PROGRAM_BACKEND}."
        )
    report = self_test(PROGRAM_BACKEND)
    if not report.passed:
        raise SandboxFailed(
            f"agent programs need namespaces of their own (the backend {PROGRAM_BACKEND}), and here "
            f"{report.why_not.rstrip('.')}. Only programs need it: `gem-gym sandbox` says what works."
        )
    return _open(PROGRAM_BACKEND, {PROGRAM_BACKEND: report}, {"visible": tuple(visible), "begin": ("bare",)})


def has_none_at_once() -> bool:
    """Return whether it is known without a self-test that no sandbox runs a model's programs here."""
    named = read_backend_setting()
    none = named == "none" or (named is None and not sys.platform.startswith("linux"))
    return none and not _accepts_none()


class _Spec(Protocol):
    """What is read of an EnvSpec; this package imports nothing of gem but its errors."""

    @property
    def id(self) -> str: ...

    @property
    def needs(self) -> Any: ...


def check_needs(specs: Iterable[_Spec], tools: Iterable[str] = (), keywords: Container[str] = ()) -> None:
    """Refuse environments and tools that run programs, before anything is played, where no sandbox works.

    Args:
        specs: the environments, of which those that need no sandbox may be played.
        tools: the names of tools and wrappers around them, of which only the Python tools need one.
        keywords: those of the environments, which may name another sandbox (`sandbox_type`).

    Raises:
        SandboxFailed: it names those that cannot be played here, and says what can be done.
    """
    users = [spec.id for spec in specs if spec.needs.sandbox and "sandbox_type" not in keywords]
    require_sandbox(*users, *[f"the tool {tool}" for tool in tools if tool.startswith("python")])


def require_sandbox(*users: str) -> None:
    """Refuse what runs programs where no sandbox works; `users` are its names, and none of them none.

    Raises:
        SandboxFailed: it names them, and says what can be done.
    """
    if not users or has_sandbox():
        return
    names = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if users[5:] else "")
    raise SandboxFailed(
        f"no sandbox works here, and programs run in one: {names} cannot be used. `gem-gym sandbox` says "
        "why, and what to do. What runs no programs works: `gem-gym list` shows what needs a sandbox."
    )


def has_sandbox() -> bool:
    """Return whether `open_sandbox` finds a sandbox on this machine."""
    named = read_backend_setting()
    if named is not None and named not in BACKENDS and named in plugins.names(PLUGIN_GROUP):
        return True
    with suppress(SandboxFailed):
        _choose(named, _accepts_none())
        return True
    return False


def _accepts_none() -> bool:
    return os.environ.get("GEM_SANDBOX_ALLOW_UNSAFE") == "1"


def _choose(
    named: str | None, allow_unsafe: bool, options: Mapping[str, Any] | None = None
) -> tuple[str, dict[str, Report]]:
    """Return the named backend, or the strongest that passes, and the self-tests that were made.

    Raises:
        SandboxFailed: when it does not pass, or none does.
        BadArgument: for an unknown backend.
    """
    if named is not None:
        return named, _test_named(named, allow_unsafe, options or {})
    reports: dict[str, Report] = {}
    for name in ORDER:
        reports[name] = self_test(name)
        if reports[name].passed:
            return name, reports
    if allow_unsafe:
        return "none", reports
    why = "".join(f"\n  {name}: {report.why_not}" for name, report in reports.items())
    if not sys.platform.startswith("linux"):
        why = f" gem's own are for Linux, and this is {sys.platform}."
    raise SandboxFailed(
        f"no sandbox works here, and a model's code is not run without one:{why}\n{list_ways()}"
    )


def read_backend_setting() -> str | None:
    """Return the backend that the environment variable ``GEM_SANDBOX`` names."""
    return os.environ.get("GEM_SANDBOX") or None


def _test_named(name: str, allow_unsafe: bool, options: Mapping[str, Any]) -> dict[str, Report]:
    if name not in BACKENDS:
        known = [*BACKENDS, *plugins.names(PLUGIN_GROUP)]
        raise BadArgument(f"no backend {name!r}.{did_you_mean(name, known)} There are: {', '.join(known)}.")
    if name == "none":
        if not allow_unsafe:
            raise SandboxFailed(
                "the backend 'none' isolates nothing: a model's code could do all that you can. "
                "Pass allow_unsafe=True (or set GEM_SANDBOX_ALLOW_UNSAFE=1) to accept that."
            )
        return {}
    report = self_test(name, options if name in NAMED_ONLY else {})
    if not report.passed:
        raise SandboxFailed(f"the backend {name!r} does not work here: {report.why_not}")
    return {name: report}


def _open(name: str, reports: Mapping[str, Report], options: Mapping[str, Any]) -> Sandbox:
    sandbox = make(name, **options)
    sandbox.info = {**sandbox.info, "label": BACKENDS[name].label}
    properties = reports[name].properties if name in reports else dict.fromkeys(PROPERTIES, False)
    sandbox.tested = {
        "properties": dict(properties),
        "higher": {other: report.why_not for other, report in reports.items() if other != name},
    }
    _warn_once(name, properties)
    opened: Sandbox = sandbox
    return opened


_warned: set[str] = set()


def _warn_once(name: str, properties: Mapping[str, bool | None]) -> None:
    if BACKENDS[name].label not in ("partial", "none") or name in _warned:
        return
    _warned.add(name)
    lacking = [PROPERTIES[key] for key, ensured in properties.items() if not ensured]
    warnings.warn(
        f"programs run on the backend {name!r} ({BACKENDS[name].label} isolation). Not ensured: "
        f"{'; '.join(lacking) or 'nothing found, but it is the same kernel and user'}. "
        "`gem-gym sandbox` says why no stronger backend works.",
        stacklevel=4,
    )
