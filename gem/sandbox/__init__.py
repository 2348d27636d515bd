"""Sandboxes for untrusted code: `open_sandbox` opens the strongest backend that works on this machine.

`default_sandbox` returns the one that tools and graders share within a process. Names are imported on first
use, so importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem.sandbox.base import Budget, Case, Result, Sandbox, SandboxFailed, Session, Status
    from gem.sandbox.choice import open_sandbox
    from gem.sandbox.shared import default_sandbox

_HOMES = {
    **dict.fromkeys(("Budget", "Case", "Result", "Sandbox", "SandboxFailed", "Session", "Status"), "base"),
    "open_sandbox": "choice",
    "default_sandbox": "shared",
}

__all__ = [
    "Budget",
    "Case",
    "Result",
    "Sandbox",
    "SandboxFailed",
    "Session",
    "Status",
    "default_sandbox",
    "open_sandbox",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
