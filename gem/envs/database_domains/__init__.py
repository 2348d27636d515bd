"""The worlds of the db: environments, one file each."""

from __future__ import annotations

from gem.envs.database_domains.domain import TODAY, Domain, Operation, Question, Tables
from gem.envs.database_domains.shop import SHOP

DOMAINS: dict[str, Domain] = {domain.name: domain for domain in (SHOP,)}

__all__ = ["DOMAINS", "TODAY", "Domain", "Operation", "Question", "Tables"]
