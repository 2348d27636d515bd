"""The domains of the db: environments, each with a schema (.sql), texts (.toml) and generators (.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from gem.envs.database.domains.domain import TODAY, Domain, Operation, Question, Tables, load
from gem.envs.database.specs import DATABASES


class _Domains(Mapping[str, Domain]):
    """The domains by name; each is loaded at first use."""

    def __getitem__(self, name: str) -> Domain:
        if name not in DATABASES:
            raise KeyError(name)
        return _load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(DATABASES)

    def __len__(self) -> int:
        return len(DATABASES)


_load = cache(load)
DOMAINS: Mapping[str, Domain] = _Domains()
"""Every domain by name."""

__all__ = ["DOMAINS", "TODAY", "Domain", "Operation", "Question", "Tables"]
