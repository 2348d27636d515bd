"""Catalogue of gem's own environments, collected from the registry entries in each family's `specs`."""

from __future__ import annotations

from gem.envs.bridges.specs import FAMILIES
from gem.envs.data.specs import FAMILY
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
"""By id prefix: the packages that hold its registry entries, imported when such an id is requested."""


def register_all() -> None:
    """Register the whole catalogue; a second call is harmless."""
    for prefix, families in ROWS.items():
        ENV_REGISTRY.load_later(prefix, *(f"gem.envs.{family}.specs:SPECS" for family in families))
    for family in (*FAMILIES, FAMILY):
        register_family(family)
