"""Generators of the small databases that tasks begin with."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from random import Random

from gem.envs.database.mcp_tasks.base import Table, load_tables
from gem.envs.kit.templates import full_names

CITIES = ("Bergen", "Cork", "Graz", "Lyon", "Porto", "Turin")
CATEGORIES = ("books", "garden", "kitchen", "music", "sports")
STATUSES = ("cancelled", "new", "paid", "shipped")


def people(rng: Random, count: int) -> list[str]:
    """Draw different names."""
    return rng.sample(full_names(__package__), count)


def day(rng: Random, year: int = 2025, months: int = 12) -> str:
    """Draw a day in the first `months` of a year, as ISO text."""
    return (date(year, 1, 1) + timedelta(days=rng.randrange(months * 30))).isoformat()


def shop(rng: Random) -> dict[str, Table]:
    """Return a shop: customers, products, orders and the orders' items."""
    names = people(rng, 24)
    customers = [
        (i, name, name.lower().replace(" ", ".") + "@example.org", rng.choice(CITIES), day(rng, 2023))
        for i, name in enumerate(names, 1)
    ]
    products = [
        (
            i,
            f"{rng.choice('ABCDEF')}{100 + i}",
            rng.choice(CATEGORIES),
            rng.randrange(200, 9000) / 100,
            rng.randrange(5, 80),
        )
        for i in range(1, 16)
    ]
    orders = [
        (i, rng.randint(1, 20), day(rng), rng.choices(STATUSES, (1, 1, 3, 3))[0]) for i in range(1, 121)
    ]
    items = [
        (order, product, rng.randint(1, 9), products[product - 1][3])
        for order in range(1, 117)
        for product in sorted(rng.sample(range(1, 16), rng.randint(1, 4)))
    ]
    return load_tables("shop", customers=customers, products=products, orders=orders, items=items)


def staff(rng: Random) -> dict[str, Table]:
    """Return a company: departments and employees; every manager has a smaller id than the employee."""
    departments = [(i, name) for i, name in enumerate(("Board", "Care", "Labs", "Sales", "Works"), 1)]
    employees = [
        (
            i,
            name,
            rng.randint(1, 5),
            None if i == 1 else rng.randint(max(1, i // 3 - 3), max(1, i // 2)),
            rng.randrange(2400, 9600, 50),
            day(rng, 2020),
        )
        for i, name in enumerate(people(rng, 40), 1)
    ]
    return load_tables("staff", departments=departments, employees=employees)


def bank(rng: Random) -> dict[str, Table]:
    """Return a bank: accounts, whose balance is the sum of their entries."""
    entries: list[tuple[int, int, str, float]] = []
    for account in range(1, 13):
        entries.append((len(entries) + 1, account, day(rng, 2025, 1), rng.randrange(50_000, 90_000) / 100))
        for _ in range(rng.randint(2, 8)):
            entries.append((len(entries) + 1, account, day(rng), rng.randrange(-5_000, 9_000) / 100))
    accounts = [
        (i, name, round(sum(entry[3] for entry in entries if entry[1] == i), 2))
        for i, name in enumerate(people(rng, 12), 1)
    ]
    return load_tables("bank", accounts=accounts, entries=entries)


def fleet(rng: Random, keep: float = 1.0) -> dict[str, Table]:
    """Return sensors with hourly readings around the ends of some months; `keep` is the share kept."""
    devices = [(i, f"sensor-{rng.randint(100, 999)}-{i}", rng.choice(CITIES)) for i in range(1, 6)]
    hours = [
        datetime(2025, month, 28, 18) + timedelta(hours=hour) for month in range(1, 5) for hour in range(20)
    ]
    readings = [
        (device, at.isoformat(" "), rng.randrange(-50, 350) / 10)
        for device in range(1, 6)
        for at in hours
        if rng.random() < keep
    ]
    return load_tables("fleet", devices=devices, readings=readings)
