"""A web shop: customers, products, orders and their lines."""

from __future__ import annotations

from random import Random

from gem.envs.database_domains.domain import (
    TODAY,
    Domain,
    Operation,
    Question,
    Tables,
    day,
    literal,
    people,
    period,
)

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

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL,
  joined DATE NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL,
  price DOUBLE PRECISION NOT NULL, stock INTEGER NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers(id),
  ordered DATE NOT NULL, status TEXT NOT NULL);
CREATE TABLE order_lines (order_id INTEGER NOT NULL REFERENCES orders(id),
  product_id INTEGER NOT NULL REFERENCES products(id), quantity INTEGER NOT NULL,
  unit_price DOUBLE PRECISION NOT NULL,
  PRIMARY KEY (order_id, product_id));
"""


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


def revenue_by_category(rng: Random, tables: Tables) -> Question:
    """Ask what was sold, by category."""
    first, last = period(rng, 200, 450)
    return Question(
        f"Consider the orders from {first} to {last}, both days included, that are not cancelled. For each "
        "product category with lines in them, give the category and its revenue (quantity times unit price "
        "of those lines). Highest revenue first.",
        "SELECT p.category, SUM(l.quantity * l.unit_price) AS revenue FROM order_lines l "
        "JOIN orders o ON o.id = l.order_id JOIN products p ON p.id = l.product_id "
        f"WHERE o.status <> 'cancelled' AND o.ordered BETWEEN '{first}' AND '{last}' "
        "GROUP BY p.category ORDER BY revenue DESC",
        ordered=True,
    )


def never_ordered(rng: Random, tables: Tables) -> Question:
    """Ask for customers of a city without orders of a kind."""
    city, status, since = rng.choice(CITIES), rng.choice(STATUSES), day(rng, "2024-01-15", "2025-04-30")
    return Question(
        f"Which customers in {city} have no order with status '{status}' made on or after {since}? Give "
        "their names.",
        f"SELECT name FROM customers c WHERE city = {literal(city)} AND NOT EXISTS (SELECT 1 FROM orders o "
        f"WHERE o.customer_id = c.id AND o.status = {literal(status)} AND o.ordered >= '{since}')",
    )


def best_customers(rng: Random, tables: Tables) -> Question:
    """Ask for those who spent more than an amount."""
    amount, since = 10 * rng.randrange(15, 51), day(rng, "2024-01-15", "2024-12-31")
    return Question(
        f"Give name and total of every customer whose orders made on or after {since} that are not cancelled "
        f"come to more than {amount} in all (quantity times unit price).",
        "SELECT c.name, SUM(l.quantity * l.unit_price) FROM customers c "
        "JOIN orders o ON o.customer_id = c.id JOIN order_lines l ON l.order_id = o.id "
        f"WHERE o.status <> 'cancelled' AND o.ordered >= '{since}' "
        f"GROUP BY c.id HAVING SUM(l.quantity * l.unit_price) > {amount}",
    )


def latest_orders(rng: Random, tables: Tables) -> Question:
    """Ask for the last order of each customer of a city."""
    city, until = rng.choice(CITIES), day(rng, "2024-09-01", "2025-06-15")
    return Question(
        f"For every customer in {city} who has ordered on or before {until}, give name and order number "
        "(id), date and status of the latest order up to that day; of several on one date it is the one with "
        "the highest number.",
        "SELECT name, id, ordered, status FROM (SELECT c.name, o.id, o.ordered, o.status, "
        "ROW_NUMBER() OVER (PARTITION BY c.id ORDER BY o.ordered DESC, o.id DESC) AS place FROM customers c "
        f"JOIN orders o ON o.customer_id = c.id WHERE c.city = {literal(city)} AND o.ordered <= '{until}') "
        "AS placed WHERE place = 1",
    )


def cancel(rng: Random, tables: Tables) -> Operation:
    """Cancel an order and put its goods back."""
    order = rng.choice([row for row in tables["orders"] if row[3] in ("placed", "paid")])[0]
    return Operation(
        f"Cancel order {order}: set its status to 'cancelled' and put the quantities of its lines back into "
        "the stock of their products.",
        "UPDATE products SET stock = stock + (SELECT quantity FROM order_lines "
        f"WHERE order_id = {order} AND product_id = products.id) "
        f"WHERE id IN (SELECT product_id FROM order_lines WHERE order_id = {order}); "
        f"UPDATE orders SET status = 'cancelled' WHERE id = {order};",
    )


def reprice(rng: Random, tables: Tables) -> Operation:
    """Change the prices of a category."""
    category, percent, stock = rng.choice(CATEGORIES), rng.randrange(5, 31), rng.randrange(20, 46)
    return Operation(
        f"Reduce the price of every product of the category {category} that has more than {stock} in stock "
        f"by {percent} percent.",
        f"UPDATE products SET price = price * {100 - percent} / 100 "
        f"WHERE category = {literal(category)} AND stock > {stock};",
    )


def place(rng: Random, tables: Tables) -> Operation:
    """Place an order."""
    customer = rng.choice(tables["customers"])
    product = rng.choice([row for row in tables["products"] if row[4] > 5])
    number, quantity = len(tables["orders"]) + 1, rng.randrange(1, 5)
    return Operation(
        f"{customer[1]} orders {quantity} of the product '{product[1]}' today ({TODAY}), at its "
        f"present price. Enter the order as number {number} with status 'placed', its line, and take "
        "the goods out of stock.",
        f"INSERT INTO orders VALUES ({number}, {customer[0]}, '{TODAY}', 'placed'); "
        f"INSERT INTO order_lines SELECT {number}, id, {quantity}, price FROM products "
        f"WHERE id = {product[0]}; "
        f"UPDATE products SET stock = stock - {quantity} WHERE id = {product[0]};",
    )


SHOP = Domain(
    "Shop",
    "a web shop",
    SCHEMA,
    fill,
    (revenue_by_category, never_ordered, best_customers, latest_orders),
    (cancel, reprice, place),
)
