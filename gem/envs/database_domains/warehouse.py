"""Warehouses: suppliers, parts, where they lie, and what was ordered."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import TODAY, Domain, Operation, Question, Tables, day, literal, period

COUNTRIES = ("Chile", "Finland", "India", "Italy", "Vietnam")
KINDS = ("bearing", "bolt", "cable", "filter", "gear", "valve")
SITES = ("North", "South", "East", "West")
NAMES = ("Acme", "Borealis", "Corvus", "Delta", "Estrella", "Fjord", "Granit", "Helios", "Iris", "Juno")
FORMS = ("Works", "Trading", "Supply")

SCHEMA = """
CREATE TABLE suppliers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE parts (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, supplier_id INTEGER NOT NULL
  REFERENCES suppliers(id), cost_cents INTEGER NOT NULL, least INTEGER NOT NULL);
CREATE TABLE stock (part_id INTEGER NOT NULL REFERENCES parts(id), site TEXT NOT NULL,
  quantity INTEGER NOT NULL, PRIMARY KEY (part_id, site));
CREATE TABLE deliveries (id INTEGER PRIMARY KEY, part_id INTEGER NOT NULL REFERENCES parts(id),
  site TEXT NOT NULL, quantity INTEGER NOT NULL, ordered DATE NOT NULL, arrived DATE);
"""


def fill(rng: Random) -> Tables:
    """Return the rows of warehouses; a delivery without a day of arrival is still on its way."""
    firms = [f"{name} {form}" for name in NAMES for form in FORMS]
    suppliers = [(i, firm, rng.choice(COUNTRIES)) for i, firm in enumerate(firms, 1)]
    parts = [
        (i, rng.choice(KINDS), rng.randrange(1, 31), rng.randrange(20, 900), rng.randrange(40, 160))
        for i in range(1, 51)
    ]
    stock = [(part[0], site, rng.randrange(0, 90)) for part in parts for site in SITES if rng.random() < 0.6]
    deliveries = []
    for i in range(1, 81):
        ordered = day(rng)
        arrived = None if i % 4 == 0 else day(rng, ordered)
        part, site, _ = rng.choice(stock)
        deliveries.append((i, part, site, rng.randrange(5, 60), ordered, arrived))
    return {"suppliers": suppliers, "parts": parts, "stock": stock, "deliveries": deliveries}


def short(rng: Random, tables: Tables) -> Question:
    """Ask for parts below a share of their least quantity."""
    kind, percent = rng.choice(KINDS), rng.randrange(50, 151, 2)
    return Question(
        f"Which parts of the kind {kind} have in all sites together less in stock than {percent} percent of "
        "their least quantity? A part without any row in stock has 0. Give part id, quantity in all, and the "
        "supplier's name.",
        "SELECT p.id, COALESCE(SUM(s.quantity), 0), f.name FROM parts p JOIN suppliers f ON f.id = "
        f"p.supplier_id LEFT JOIN stock s ON s.part_id = p.id WHERE p.kind = {literal(kind)} "
        f"GROUP BY p.id, f.name, p.least HAVING 100 * COALESCE(SUM(s.quantity), 0) < {percent} * p.least",
    )


def idle(rng: Random, tables: Tables) -> Question:
    """Ask for suppliers who delivered nothing."""
    country, (first, last) = rng.choice(COUNTRIES), period(rng, 120, 400)
    return Question(
        f"From which suppliers in {country} was nothing ordered from {first} to {last}, both days included? "
        "Give their names.",
        f"SELECT f.name FROM suppliers f WHERE f.country = {literal(country)} AND NOT EXISTS "
        "(SELECT 1 FROM parts p JOIN deliveries d ON d.part_id = p.id WHERE p.supplier_id = f.id "
        f"AND d.ordered BETWEEN '{first}' AND '{last}')",
    )


def value(rng: Random, tables: Tables) -> Question:
    """Ask for the worth of each site."""
    kinds, least = sorted(rng.sample(KINDS, 2)), rng.randrange(5, 41)
    return Question(
        "For each site, give the site, the quantity and the worth in cents (quantity times cost_cents) of "
        f"parts of the kinds {kinds[0]} and {kinds[1]} in stock there, both kinds together, counting only "
        f"rows of stock with a quantity of {least} or more. Order by site, from A to Z; a site without such "
        "a row is left out.",
        "SELECT s.site, SUM(s.quantity), SUM(s.quantity * p.cost_cents) FROM stock s JOIN parts p "
        f"ON p.id = s.part_id WHERE p.kind IN ({literal(kinds[0])}, {literal(kinds[1])}) "
        f"AND s.quantity >= {least} GROUP BY s.site ORDER BY s.site",
        ordered=True,
    )


def open_orders(rng: Random, tables: Tables) -> Question:
    """Ask for running sums of what is on its way."""
    sites, since = sorted(rng.sample(SITES, 2)), day(rng, "2024-01-15", "2025-02-28")
    return Question(
        f"List the deliveries to the sites {sites[0]} and {sites[1]} that were ordered on or after {since} "
        "and have not arrived (arrived is NULL), earliest order date first, on one date the lower id first. "
        "Give id, order date, quantity, and the sum of the quantities of this and all deliveries above it in "
        "the list.",
        "SELECT id, ordered, quantity, SUM(quantity) OVER (ORDER BY ordered, id) FROM deliveries "
        f"WHERE site IN ({literal(sites[0])}, {literal(sites[1])}) AND arrived IS NULL "
        f"AND ordered >= '{since}' ORDER BY ordered, id",
        ordered=True,
    )


def arrive(rng: Random, tables: Tables) -> Operation:
    """Take a delivery in."""
    delivery = rng.choice([row for row in tables["deliveries"] if row[5] is None])
    arrived = day(rng, delivery[4])
    return Operation(
        f"Delivery {delivery[0]} has arrived on {arrived}: enter the date, and add its quantity to the "
        "stock of its "
        "part at its site.",
        f"UPDATE deliveries SET arrived = '{arrived}' WHERE id = {delivery[0]}; "
        f"UPDATE stock SET quantity = quantity + {delivery[3]} "
        f"WHERE part_id = {delivery[1]} AND site = {literal(delivery[2])};",
    )


def drop(rng: Random, tables: Tables) -> Operation:
    """Drop a part."""
    part = rng.choice(tables["stock"])[0]
    return Operation(
        f"Part {part} is no longer used: delete it, its rows in stock and its deliveries.",
        f"DELETE FROM deliveries WHERE part_id = {part}; DELETE FROM stock WHERE part_id = {part}; "
        f"DELETE FROM parts WHERE id = {part};",
    )


def restock(rng: Random, tables: Tables) -> Operation:
    """Order where little is left."""
    part = rng.choice(tables["parts"])[0]
    number, quantity = len(tables["deliveries"]) + 1, rng.randrange(10, 50)
    kind, percent = rng.choice(KINDS), rng.choice((10, 20))
    return Operation(
        f"Enter delivery {number}: {quantity} of part {part} to the site North, ordered {TODAY}, not "
        "arrived. Then "
        f"raise the least quantity of every part of the kind {kind} whose least quantity is below 100 "
        f"by {percent}.",
        f"INSERT INTO deliveries VALUES ({number}, {part}, 'North', {quantity}, '{TODAY}', NULL); "
        f"UPDATE parts SET least = least + {percent} WHERE kind = {literal(kind)} AND least < 100;",
    )


WAREHOUSE = Domain(
    "Warehouse",
    "a company with warehouses",
    SCHEMA,
    fill,
    (short, idle, value, open_orders),
    (arrive, drop, restock),
)
