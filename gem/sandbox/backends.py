"""The sandbox backends: their names, their strength, and how to make each one."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple

from gem.sandbox.base import SandboxFailed


class Backend(NamedTuple):
    """The strength of a backend, and the properties that it may lack and still pass its self-test."""

    label: str
    summary: str
    may_lack: frozenset[str] = frozenset()


PROPERTIES: dict[str, str] = {
    "files": "the host's files cannot be read",
    "environment": "the caller's environment cannot be read",
    "writes": "nothing outside can be written",
    "network": "the host's loopback cannot be reached",
    "alone": "no process of the host can be listed, read or signalled",
    "privileges": "no capabilities, and none to be had",
    "filter": "system calls are filtered",
    "server": "the process that starts programs cannot be read, traced or ended",
    "judges": "gem, and what it judges with, cannot be read or imported",
    "memory": "memory of all processes together is limited",
    "processes": "the number of processes is limited",
    "disk": "files are limited in total",
    "survivors": "nothing outlives the call",
    "deadline": "the wall-clock budget holds",
}
"""The properties that the self-test checks, in words."""

_HOMES = {
    "remote": "remote:RemoteSandbox",
    "container": "container:ContainerSandbox",
    "none": "piped:UnsafeSandbox",
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "userns": {},
    "bwrap-slots": {"isolation": "bwrap", "namespaces": False, "slots": True},
    "landlock": {"isolation": "none", "namespaces": False, "fork": False},
}
NAMED_ONLY = ("remote", "container")
_UNKNOWABLE = frozenset(
    {"environment", "alone", "privileges", "filter", "memory", "processes", "disk", "server", "judges"}
)

BACKENDS: dict[str, Backend] = {
    "remote": Backend("strong", "a SandboxFusion service elsewhere", _UNKNOWABLE | {"survivors", "writes"}),
    "container": Backend("strong", "a container of Docker or Podman per call", frozenset({"filter"})),
    "userns": Backend("isolated", "namespaces for the fork server, and others for every child"),
    "bwrap-slots": Backend("isolated", "bubblewrap around each fork server, used by one call after another"),
    "landlock": Backend("partial", "Landlock and a system-call filter, no processes", frozenset({"disk"})),
    "none": Backend("none", "a bare process under rlimits", frozenset(PROPERTIES)),
}
"""All built-in backends, the strongest first."""

ORDER = ("userns", "bwrap-slots", "landlock")
"""The backends tried when none is named; ``none`` is tried last, if it is allowed."""


def make(name: str, **options: Any) -> Any:
    """Make a backend's sandbox without testing it.

    Raises:
        SandboxFailed: when it cannot be started here.
    """
    if name in _HOMES:
        module, _, kind = _HOMES[name].partition(":")
        return getattr(importlib.import_module(f"gem.sandbox.{module}"), kind)(**options)
    if not sys.platform.startswith("linux"):
        raise SandboxFailed(f"the backend {name!r} is for Linux, and this is {sys.platform}.")
    from gem.sandbox import landlock, seccomp
    from gem.sandbox.client import ZygoteSandbox
    from gem.sandbox.packages import list_allowed
    from gem.sandbox.pool import Settings

    if name == "landlock" and landlock.abi() == 0:
        raise SandboxFailed("the kernel offers no Landlock (Linux 5.13 or newer, with it enabled).")
    settings = Settings(
        backend=name,
        packages=list_allowed(options.pop("packages", "science")),
        filter=seccomp.choose_list(options.pop("filter", None)),
        visible=options.pop("visible", None),
        **_SETTINGS[name],
    )
    return ZygoteSandbox(settings, **options)
