"""A web shop: customers, products, orders and their lines."""

from __future__ import annotations

from random import Random

from gem.envs.database.domains.domain import Tables, day, people, period
from gem.envs.kit.templates import Values

CITIES = ("Lisbon", "Oslo", "Vienna", "Nairobi", "Osaka", "Lima")
CATEGORIES = ("kitchen", "garden", "books", "toys", "sports")
GOODS = {
    "kitchen": ("kettle", "saucepan", "chopping board", "whisk", "teapot"),
    "garden": ("rake", "watering can", "flower pot", "hose", "hedge shears"),
    "books": ("atlas", "cookbook", "crime novel", "dictionary", "field guide"),
    "toys": ("kite", "puzzle", "train set", "rag doll", "spinning top"),
    "sports": ("football", "skipping rope", "tennis racket", "yoga mat", "swim cap"),
}
STATUSES = ("placed", "paid", "shipped", "cancelled")


def fill(rng: Random) -> Tables:
    """Return the rows of a shop."""
    customers = [(i, name, rng.choice(CITIES), day(rng)) for i, name in enumerate(people(rng, 24), 1)]
    names = [(good, category) for category in CATEGORIES for good in GOODS[category]]
    products = [
        (i, good, category, round(rng.randrange(10, 450) * 0.2, 2), rng.randrange(0, 60))
        for i, (good, category) in enumerate(names, 1)
    ]
    orders = [
        (i, rng.randrange(1, len(customers) + 1), day(rng), rng.choices(STATUSES, (2, 3, 5, 1))[0])
        for i in range(1, 61)
    ]
    lines = [
        (order[0], product, rng.randrange(1, 6), round(products[product - 1][3] * rng.choice((1, 1, 0.9)), 2))
        for order in orders
        for product in sorted(rng.sample(range(1, len(products) + 1), rng.randrange(1, 5)))
    ]
    return {"customers": customers, "products": products, "orders": orders, "order_lines": lines}


def revenue_by_category(rng: Random, tables: Tables) -> Values:
    """Ask what was sold, by category."""
    return period(rng, 200, 450)


def never_ordered(rng: Random, tables: Tables) -> Values:
    """Ask for customers of a city without orders of a kind."""
    return {
        "city": rng.choice(CITIES),
        "status": rng.choice(STATUSES),
        "since": day(rng, "2024-01-15", "2025-04-30"),
    }


def best_customers(rng: Random, tables: Tables) -> Values:
    """Ask for customers who spent more than an amount."""
    return {"amount": 10 * rng.randrange(15, 51), "since": day(rng, "2024-01-15", "2024-12-31")}


def latest_orders(rng: Random, tables: Tables) -> Values:
    """Ask for the last order of each customer of a city."""
    return {"city": rng.choice(CITIES), "until": day(rng, "2024-09-01", "2025-06-15")}


def cancel(rng: Random, tables: Tables) -> Values:
    """Cancel an order and put its goods back."""
    return {"order": rng.choice([row for row in tables["orders"] if row[3] in ("placed", "paid")])[0]}


def reprice(rng: Random, tables: Tables) -> Values:
    """Change the prices of a category."""
    category, percent, stock = rng.choice(CATEGORIES), rng.randrange(5, 31), rng.randrange(20, 46)
    return {"category": category, "stock": stock, "percent": percent, "rest": 100 - percent}


def place(rng: Random, tables: Tables) -> Values:
    """Place an order."""
    customer = rng.choice(tables["customers"])
    product = rng.choice([row for row in tables["products"] if row[4] > 5])
    return {
        "name": customer[1],
        "quantity": rng.randrange(1, 5),
        "good": product[1],
        "number": len(tables["orders"]) + 1,
        "customer": customer[0],
        "product": product[0],
    }
