"""The worlds of the db: environments, one file each."""

from __future__ import annotations

from gem.envs.database_domains.airline import AIRLINE
from gem.envs.database_domains.bank import BANK
from gem.envs.database_domains.clinic import CLINIC
from gem.envs.database_domains.domain import TODAY, Domain, Operation, Question, Tables
from gem.envs.database_domains.hotel import HOTEL
from gem.envs.database_domains.library import LIBRARY
from gem.envs.database_domains.music import MUSIC
from gem.envs.database_domains.shop import SHOP
from gem.envs.database_domains.university import UNIVERSITY
from gem.envs.database_domains.warehouse import WAREHOUSE

DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (AIRLINE, BANK, CLINIC, HOTEL, LIBRARY, MUSIC, SHOP, UNIVERSITY, WAREHOUSE)
}

__all__ = ["DOMAINS", "TODAY", "Domain", "Operation", "Question", "Tables"]
