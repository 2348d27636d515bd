"""A bank: branches, customers, accounts and transfers between them."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

TOWNS = ("Bergen", "Cork", "Ghent", "Malmo", "Turin")
KINDS = ("current", "savings")


def fill(rng: Random) -> Tables:
    """Return the rows of a bank; frozen is 1 or 0."""
    customers = [
        (i, name, rng.choice(TOWNS), day(rng, "2010-01-01")) for i, name in enumerate(people(rng, 40), 1)
    ]
    accounts = [
        (i, rng.randrange(1, 41), rng.choice(KINDS), rng.randrange(5_000, 900_000), int(rng.random() < 0.15))
        for i in range(1, 71)
    ]
    transfers = [
        (i, *rng.sample(range(1, 71), 2), rng.randrange(500, 90_000), day(rng)) for i in range(1, 151)
    ]
    return {"customers": customers, "accounts": accounts, "transfers": transfers}


def rich(rng: Random, tables: Tables) -> Values:
    """Ask for the customers with the most money."""
    towns, count = sorted(rng.sample(TOWNS, 2)), rng.choice((2, 3, 4, 5))
    return {
        "count": count,
        "town": towns[0],
        "other_town": towns[1],
        "kind": rng.choice(KINDS),
        "limit": 1000 * rng.randrange(300, 801, 50),
    }


def silent(rng: Random, tables: Tables) -> Values:
    """Ask for accounts without a transfer out since a day."""
    return {"kind": rng.choice(KINDS), "since": day(rng, "2024-07-01", "2025-04-30")}


def between(rng: Random, tables: Tables) -> Values:
    """Ask for the money transferred between towns."""
    return {"town": rng.choice(TOWNS), **period(rng, 200, 450)}


def net(rng: Random, tables: Tables) -> Values:
    """Ask for the net change of accounts in a period."""
    return {**period(rng, 120, 400), "least": 1000 * rng.randrange(20, 81)}


def transfer(rng: Random, tables: Tables) -> Values:
    """Transfer money."""
    source = rng.choice([row for row in tables["accounts"] if row[3] > 50_000])
    target = rng.choice([row for row in tables["accounts"] if row[0] != source[0]])
    return {
        "cents": rng.randrange(1_000, 50_000),
        "source": source[0],
        "target": target[0],
        "number": len(tables["transfers"]) + 1,
    }


def undo(rng: Random, tables: Tables) -> Values:
    """Reverse a transfer."""
    number, source, target, cents, _ = rng.choice(tables["transfers"])
    return {"number": number, "cents": cents, "source": source, "target": target}


def freeze(rng: Random, tables: Tables) -> Values:
    """Freeze the accounts that sent much, and charge them."""
    return {"least": rng.choice((150_000, 200_000)), "fee": 100 * rng.randrange(1, 10)}
