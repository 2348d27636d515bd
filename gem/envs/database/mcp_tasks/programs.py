"""Tasks about triggers, functions and privileges."""

from __future__ import annotations

from random import Random
from typing import Any

from gem.envs.database.mcp_tasks.base import (
    ANALYST,
    AUDITOR,
    CLERK,
    GROUPS,
    Judge,
    PostgresTask,
    Table,
    load_tables,
    task,
)
from gem.envs.database.mcp_tasks.worlds import CITIES, bank, day, shop, staff
from gem.envs.kit.templates import literal


def audit_log(rng: Random) -> PostgresTask:
    """Log every change of a table by a trigger."""
    world = staff(rng)
    log = rng.choice(["employees_log", "employees_history", "employees_audit"])
    column = rng.choice(["salary", "department_id"])
    world[log] = load_tables("audit_log", log=[])["log"]
    entries = f"SELECT employee_id, action, old_value, new_value FROM @{log}"

    def check(judge: Judge) -> None:
        judge.needs_untouched(world, "employees", "departments")
        judge.gives(entries, [], f"{log} is not empty to begin with")
        old = {row[0]: row[{"salary": 4, "department_id": 2}[column]] for row in world["employees"].rows}
        new = {"salary": 1234, "department_id": 3}[column]
        chosen = [i for i in old if 10 < i < 16 and old[i] != new]
        listed = ", ".join(map(str, chosen))
        with judge.trial(
            f"UPDATE @employees SET {column} = {new} WHERE id IN ({listed})",
            f"UPDATE @employees SET {column} = {column}, name = name || '!', manager_id = 1 WHERE id > 20",
            f"DELETE FROM @employees WHERE id IN ({listed})",
            "INSERT INTO @employees (id, name, department_id, manager_id, salary, hired_on) VALUES "
            f"(90, 'Z', {new}, 1, {new}, '2025-02-02'), (91, 'Y', {new}, 1, {new}, '2025-02-02')",
        ):
            wanted: list[Any] = [(i, "insert", None, new) for i in (90, 91)]
            for i in chosen:
                wanted += [(i, "update", old[i], new), (i, "delete", new, None)]
            judge.gives(entries, wanted, f"{log} after some changes of employees")

    return task("audit_log", world, check, column=column, log=log)


def balances(rng: Random) -> PostgresTask:
    """Correct wrong sums, keep them right with a trigger, and refuse an overdraft."""
    world = bank(rng)
    limit = rng.randrange(100, 400, 50)
    right = list(world["accounts"].rows)
    drifted = rng.sample(right, 4)
    world["accounts"] = Table(
        world["accounts"].ddl, [(*row[:2], row[2] + 7.25) if row in drifted else row for row in right]
    )
    sums = (
        "SELECT a.id, coalesce(sum(e.amount), 0) FROM @accounts a LEFT JOIN @entries e "
        "ON e.account_id = a.id GROUP BY a.id"
    )

    def check(judge: Judge) -> None:
        judge.needs_untouched(world, "entries")
        judge.holds("accounts", "id, owner, balance", right)
        judge.follows(
            "accounts",
            "id, balance",
            sums,
            "INSERT INTO @entries (id, account_id, booked_on, amount) VALUES (901, 1, '2025-03-03', 12.5), "
            "(902, 1, '2025-03-03', -2.25), (903, 2, '2025-03-04', 3)",
            "UPDATE @entries SET amount = amount + 1 WHERE account_id IN (3, 4)",
            "UPDATE @entries SET account_id = 5 WHERE account_id = 6",
            "DELETE FROM @entries WHERE id = (SELECT max(id) FROM @entries WHERE account_id = 7 AND amount "
            "> 0)",
        )
        owing = "INSERT INTO @entries (id, account_id, booked_on, amount) SELECT 950, id, '2025-03-03', "
        owing += "-balance - "
        judge.needs_accepted(f"{owing}{limit} FROM @accounts WHERE id = 8")
        judge.needs_refused(f"{owing}{limit}.01 FROM @accounts WHERE id = 8")
        judge.needs_refused("UPDATE @entries SET amount = amount - 5000 WHERE account_id = 9")

    return task("balances", world, check, limit=limit)


def function_contract(rng: Random) -> PostgresTask:
    """Write a function with a stated contract."""
    currencies = rng.sample(["CHF", "CZK", "DKK", "NOK", "PLN", "SEK"], 4)
    rates = [
        (currency, f"2025-{month:02d}-{rng.randint(1, 28):02d}", rng.randrange(800, 12000) / 10000)
        for currency in currencies
        for month in sorted(rng.sample(range(1, 12), 4))
    ]
    name = rng.choice(["to_euro", "in_euro", "euro_value"])
    tables = load_tables("function_contract", rates=rates)
    cases = [(rng.randrange(1, 99999) / 100, rate[0], rate[1]) for rate in rates]
    cases += [(rng.randrange(1, 99999) / 100, rng.choice(currencies), "2025-12-31") for _ in range(6)]
    cases += [(-3.335, currencies[0], "2026-02-01"), (17.456, "EUR", "1999-01-01"), (0, "EUR", "2025-01-01")]

    def call(amount: Any, currency: Any, on: Any) -> str:
        return f"@{name}({literal(amount)}::numeric, {literal(currency)}::text, {literal(on)}::date)"

    def check(judge: Judge) -> None:
        judge.needs_untouched(tables)
        facts = judge.rows(
            "SELECT p.provolatile::text, p.prorettype::regtype::text, p.prokind::text FROM pg_proc p JOIN "
            f"pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = '{judge.schema}' AND p.proname = "
            f"'{name}'"
        )
        judge.need(
            facts == [("s", "numeric", "f")],
            f"{name} is not one STABLE function that returns numeric: {facts}",
        )
        for change in ("", "UPDATE @rates SET rate = rate * 2 + 0.1"):
            with judge.trial(*filter(None, [change])):
                for amount, currency, on in cases:
                    wanted = judge.value(
                        f"SELECT round({literal(amount)} * CASE {literal(currency)} WHEN 'EUR' THEN 1 ELSE "
                        f"(SELECT rate FROM @rates WHERE currency = {literal(currency)} AND valid_from <= "
                        f"{literal(on)} ORDER BY valid_from DESC LIMIT 1) END, 2)"
                    )
                    query = f"SELECT {call(amount, currency, on)}"
                    judge.gives(query, [(wanted,)], f"{name}({amount}, {currency}, {on})")
        for nothing in ((None, "EUR", "2025-05-05"), (1, None, "2025-05-05"), (1, currencies[0], None)):
            judge.gives(f"SELECT {call(*nothing)}", [(None,)], f"{name} of an unknown argument")
        for absent in ((1, "XXX", "2025-05-05"), (1, currencies[0], "2024-12-31")):
            state = judge.try_statement(f"SELECT {call(*absent)}")
            judge.need(state == "P0002", f"{name}{absent} ends with SQLSTATE {state or '00000'}, not P0002")

    return task("function_contract", tables, check, name=name)


def guarded_function(rng: Random) -> PostgresTask:
    """Let a role change rows only through a function."""
    world = bank(rng)
    most = rng.randrange(50, 200, 25)
    name = rng.choice(["post_refund", "give_refund", "refund"])

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        facts = judge.rows(
            "SELECT prosecdef, coalesce(array_to_string(proconfig, ','), '') FROM pg_proc WHERE oid = "
            f"'{judge.schema}.{name}(integer,numeric)'::regprocedure"
        )
        judge.need(facts[0][0], f"{name} does not run with its owner's rights")
        judge.need("search_path=" in facts[0][1], f"{name} leaves the search_path to its caller")
        for role in (ANALYST, AUDITOR):  # read from the catalogue: without USAGE all is refused
            asked = f"SELECT has_function_privilege('{role}', '@{name}(integer,numeric)', 'EXECUTE')"
            judge.need(judge.value(asked) is False, f"{role} can call {name}")
        for sql in (
            "INSERT INTO @entries (id, account_id, booked_on, amount) VALUES (900, 1, '2025-01-01', 5)",
            "UPDATE @accounts SET balance = 0",
            "DELETE FROM @entries",
            f"SELECT @{name}(1, {most} + 0.01)",
            f"SELECT @{name}(1, 0)",
            f"SELECT @{name}(1, -5)",
            f"SELECT @{name}(1, NULL)",
            f"SELECT @{name}(99, 5)",
        ):
            judge.needs_refused(sql, CLERK)
        with judge.trial():
            before = judge.value("SELECT balance FROM @accounts WHERE id = 3")
            number = judge.value(f"SELECT @{name}(3, {most})", CLERK)
            wanted = [(3, most, max(row[0] for row in world["entries"].rows) + 1)]
            judge.need(number == wanted[0][2], f"{name} returns {number!r:.80}, not the new entry's id")
            judge.gives(
                f"SELECT account_id, amount, id FROM @entries WHERE id = {wanted[0][2]}",
                wanted,
                "the new entry",
            )
            judge.gives(
                "SELECT balance FROM @accounts WHERE id = 3", [(before + most,)], "the balance after a refund"
            )
            judge.gives(
                "SELECT count(*) FROM @entries",
                [(len(world["entries"].rows) + 1,)],
                "the entries after a refund",
            )

    return task("guarded_function", world, check, name=name, most=most)


def grants(rng: Random) -> PostgresTask:
    """Grant three roles the privileges that they need, and revoke the others."""
    world = shop(rng)
    hidden = rng.choice(["email", "city"])
    open_columns = ", ".join(
        column for column in ("id", "name", "email", "city", "joined") if column != hidden
    )
    columns = {
        "customers": f"id, name, {hidden}",
        "products": "id, stock",
        "orders": "id, status",
        "items": "quantity",
    }
    insert = "INSERT INTO @orders (id, customer_id, placed_on, status) VALUES (900, 1, '2025-02-02', 'new')"
    accepted = {
        ANALYST: [
            f"SELECT {open_columns} FROM @customers",
            "SELECT * FROM @orders, @items, @products LIMIT 0",
        ],
        CLERK: [
            "SELECT * FROM @orders, @items, @products, @customers LIMIT 0",
            insert,
            "UPDATE @orders SET status = 'paid' WHERE id = 1",
            "INSERT INTO @items (order_id, product_id, quantity, unit_price) VALUES (119, 1, 1, 1)",
            "DELETE FROM @items WHERE order_id = 5",
        ],
        AUDITOR: ["SELECT * FROM @orders, @items LIMIT 0"],
    }
    refused = {
        ANALYST: [
            f"SELECT {hidden} FROM @customers",
            insert,
            "DELETE FROM @items",
            "UPDATE @products SET stock = 1",
        ],
        CLERK: [
            "UPDATE @orders SET customer_id = 2 WHERE id = 1",
            "DELETE FROM @orders",
            "UPDATE @products SET stock = 1",
            "UPDATE @items SET unit_price = 0",
            "DELETE FROM @customers",
            "TRUNCATE @items",
        ],
        AUDITOR: ["SELECT * FROM @customers", "SELECT * FROM @products", insert, "DELETE FROM @items"],
    }

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        for role in GROUPS:
            for sql in accepted[role]:
                judge.needs_accepted(sql, role)
            for sql in refused[role]:
                judge.needs_refused(sql, role)
        for name in columns:
            grantees = judge.value(
                "SELECT count(*) FROM pg_class, aclexplode(relacl) WHERE grantee = 0 AND oid = "
                f"'{judge.schema}.{name}'::regclass"
            )
            judge.need(grantees == 0, f"PUBLIC still has rights on {name}")

    return task("grants", world, check, hidden=hidden, open_columns=open_columns)


def row_security(rng: Random) -> PostgresTask:
    """Show each tenant its own rows and no others."""
    setting = rng.choice(["app.city", "app.branch", "app.office"])
    people = [(i, rng.choice(CITIES), f"patient {i}", rng.randrange(50, 900), day(rng)) for i in range(1, 80)]
    tables = load_tables("row_security", visits=people)

    def check(judge: Judge) -> None:
        judge.needs_untouched(tables)
        query = "SELECT id, city, patient, fee FROM @visits"
        insert = (
            "INSERT INTO @visits (id, city, patient, fee, seen_on) VALUES (900, '{}', 'x', 5, '2025-01-01')"
        )
        for city in CITIES[:3]:
            own = [row[:4] for row in people if row[1] == city]
            with judge.trial():
                judge.gives(query, own, f"what {CLERK} sees", CLERK, **{setting: city})
                changed = judge.rows("UPDATE @visits SET fee = fee RETURNING id", CLERK, {setting: city})
                judge.need(len(changed) == len(own), f"{CLERK} updates rows of others")
            judge.needs_accepted(insert.format(city), CLERK, **{setting: city})
            judge.needs_refused(insert.format(CITIES[4]), CLERK, **{setting: city})
            judge.needs_refused(f"UPDATE @visits SET city = '{CITIES[4]}'", CLERK, **{setting: city})
            judge.needs_refused("DELETE FROM @visits", CLERK, **{setting: city})
        for settings in ({}, {setting: ""}, {setting: "Nowhere"}):
            judge.gives(query, [], f"what {CLERK} sees without a city", CLERK, **settings)
        judge.gives(query, [row[:4] for row in people], f"what {AUDITOR} sees", AUDITOR)
        judge.needs_refused("UPDATE @visits SET fee = 1", AUDITOR)
        judge.needs_no_right_to("visits", ANALYST)
        with judge.trial():
            judge.rows(insert.format("Kyiv"), CLERK, {setting: "Kyiv"})
            judge.gives(
                "SELECT id FROM @visits", [(900,)], "what a new city sees", CLERK, **{setting: "Kyiv"}
            )

    return task("row_security", tables, check, setting=setting)


def masked_view(rng: Random) -> PostgresTask:
    """Show a role a table without its private columns."""
    world = shop(rng)
    name = rng.choice(["customers_masked", "customers_public", "customers_safe"])
    keep = rng.randint(1, 3)
    mask = f"left(email, {keep}) || '***' || substring(email FROM '@.*$')"

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        columns = "id, email, city, year"
        judge.need(list(judge.columns(name)) == columns.split(", "), f"{name} has other columns")
        judge.follows(
            name,
            columns,
            f"SELECT id, {mask}, city, extract(year FROM joined)::integer FROM @customers",
            "UPDATE @customers SET email = 'zoe@elsewhere.net', city = 'Rome', joined = '2011-01-01' WHERE "
            "id < 4",
            "DELETE FROM @customers WHERE id > 9",
            role=ANALYST,
        )
        judge.needs_refused("SELECT id FROM @customers", ANALYST)
        judge.needs_refused(f"UPDATE @{name} SET city = 'x'", ANALYST)
        judge.needs_no_right_to(name, AUDITOR, CLERK)
        judge.needs_no_right_to("customers", *GROUPS)

    return task("masked_view", world, check, name=name, keep=keep, s="s" * (keep > 1), mask=mask)
