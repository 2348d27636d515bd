"""A bank: branches, customers, accounts and transfers between them."""

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

TOWNS = ("Bergen", "Cork", "Ghent", "Malmo", "Turin")
KINDS = ("current", "savings")

SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, town TEXT NOT NULL, since DATE NOT NULL);
CREATE TABLE accounts (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers(id),
  kind TEXT NOT NULL, balance_cents INTEGER NOT NULL, frozen INTEGER NOT NULL);
CREATE TABLE transfers (id INTEGER PRIMARY KEY, source_id INTEGER NOT NULL REFERENCES accounts(id),
  target_id INTEGER NOT NULL REFERENCES accounts(id), cents INTEGER NOT NULL, made DATE NOT NULL);
"""


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


def rich(rng: Random, tables: Tables) -> Question:
    """Ask for the customers with the most money."""
    towns, count = sorted(rng.sample(TOWNS, 2)), rng.choice((2, 3, 4, 5))
    kind, limit = rng.choice(KINDS), 1000 * rng.randrange(300, 801, 50)
    return Question(
        f"Which {count} customers in {towns[0]} or {towns[1]} have the highest sum of balances over their "
        f"{kind} accounts that are not frozen and hold less than {limit} cents each? Give name and sum in "
        "cents, highest first; of equals the lower customer id comes first.",
        "SELECT c.name, SUM(a.balance_cents) AS total FROM customers c "
        "JOIN accounts a ON a.customer_id = c.id "
        f"WHERE c.town IN ({literal(towns[0])}, {literal(towns[1])}) AND a.frozen = 0 "
        f"AND a.kind = {literal(kind)} AND a.balance_cents < {limit} GROUP BY c.id, c.name "
        f"ORDER BY total DESC, c.id LIMIT {count}",
        ordered=True,
    )


def silent(rng: Random, tables: Tables) -> Question:
    """Ask for accounts that sent nothing."""
    kind, since = rng.choice(KINDS), day(rng, "2024-07-01", "2025-04-30")
    return Question(
        f"From which {kind} accounts was no transfer made on or after {since}? Give the account id and the "
        "name of its customer.",
        "SELECT a.id, c.name FROM accounts a JOIN customers c ON c.id = a.customer_id "
        f"WHERE a.kind = {literal(kind)} AND NOT EXISTS "
        f"(SELECT 1 FROM transfers t WHERE t.source_id = a.id AND t.made >= '{since}')",
    )


def between(rng: Random, tables: Tables) -> Question:
    """Ask for what flows between towns."""
    town, (first, last) = rng.choice(TOWNS), period(rng, 200, 450)
    return Question(
        f"Consider the transfers made from {first} to {last}, both days included. For each town, give the "
        f"town and the sum of cents transferred from accounts of customers in {town} to accounts of "
        f"customers in that town ({town} itself included). Towns that got nothing so are left out.",
        "SELECT r.town, SUM(t.cents) FROM transfers t JOIN accounts a ON a.id = t.source_id "
        "JOIN customers s ON s.id = a.customer_id JOIN accounts b ON b.id = t.target_id "
        f"JOIN customers r ON r.id = b.customer_id WHERE s.town = {literal(town)} "
        f"AND t.made BETWEEN '{first}' AND '{last}' GROUP BY r.town",
    )


def net(rng: Random, tables: Tables) -> Question:
    """Ask for what accounts won or lost in a time."""
    (first, last), least = period(rng, 120, 400), 1000 * rng.randrange(20, 81)
    return Question(
        f"The net flow of an account is what it received by transfers from {first} to {last}, both days "
        "included, less what it sent by transfers in that time, in cents. Give id and net flow of every "
        f"account whose net flow is above {least}.",
        "WITH flows AS (SELECT target_id AS account, cents, made FROM transfers UNION ALL "
        "SELECT source_id, -cents, made FROM transfers) SELECT account, SUM(cents) FROM flows "
        f"WHERE made BETWEEN '{first}' AND '{last}' GROUP BY account HAVING SUM(cents) > {least}",
    )


def transfer(rng: Random, tables: Tables) -> Operation:
    """Transfer money."""
    number = len(tables["transfers"]) + 1
    source = rng.choice([row for row in tables["accounts"] if row[3] > 50_000])
    target = rng.choice([row for row in tables["accounts"] if row[0] != source[0]])
    cents = rng.randrange(1_000, 50_000)
    return Operation(
        f"Transfer {cents} cents from account {source[0]} to account {target[0]}: enter it as "
        f"transfer {number} "
        f"made on {TODAY}, and change both balances.",
        f"INSERT INTO transfers VALUES ({number}, {source[0]}, {target[0]}, {cents}, '{TODAY}'); "
        f"UPDATE accounts SET balance_cents = balance_cents - {cents} WHERE id = {source[0]}; "
        f"UPDATE accounts SET balance_cents = balance_cents + {cents} WHERE id = {target[0]};",
    )


def undo(rng: Random, tables: Tables) -> Operation:
    """Take a transfer back."""
    number, source, target, cents, _ = rng.choice(tables["transfers"])
    return Operation(
        f"Transfer {number} was a mistake: delete it, give its amount back to the balance of its "
        "source and take "
        "it from the balance of its target.",
        f"UPDATE accounts SET balance_cents = balance_cents + {cents} WHERE id = {source}; "
        f"UPDATE accounts SET balance_cents = balance_cents - {cents} WHERE id = {target}; "
        f"DELETE FROM transfers WHERE id = {number};",
    )


def freeze(rng: Random, tables: Tables) -> Operation:
    """Freeze what lost much and charge it."""
    least, fee = rng.choice((150_000, 200_000)), 100 * rng.randrange(1, 10)
    return Operation(
        "Set frozen to 1 for every account that is not frozen and whose transfers as source come to "
        "more than "
        f"{least} cents in all, and take {fee} cents from the balance of each account that you freeze so. "
        "Accounts that are frozen already stay as they are.",
        f"UPDATE accounts SET frozen = 1, balance_cents = balance_cents - {fee} WHERE frozen = 0 AND id IN "
        f"(SELECT source_id FROM transfers GROUP BY source_id HAVING SUM(cents) > {least});",
    )


BANK = Domain("Bank", "a bank", SCHEMA, fill, (rich, silent, between, net), (transfer, undo, freeze))
