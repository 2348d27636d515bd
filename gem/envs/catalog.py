"""Every id of our own: each family lists its rows in its `specs`."""

from __future__ import annotations

from gem.envs.bridges.specs import FAMILIES
from gem.registry import ENV_REGISTRY, register_family

ROWS = {
    "game": ("games",),
    "math": ("math", "vision"),
    "qa": ("qa",),
    "logic": ("qa",),
    "code": ("code",),
    "vision": ("vision",),
    "eval": ("math", "qa", "code"),
    "terminal": ("terminal",),
    "db": ("database",),
    "mcp": ("database",),
    "multi": ("seats",),
}
"""The families whose rows have ids with a prefix; they are imported when one of these ids is wanted."""


def register_all() -> None:
    """Register the whole catalogue; doing it twice is harmless."""
    for prefix, families in ROWS.items():
        ENV_REGISTRY.load_later(prefix, *(f"gem.envs.{family}.specs:SPECS" for family in families))
    for family in FAMILIES:
        register_family(family)
