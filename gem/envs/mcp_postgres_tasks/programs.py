"""Tasks about what a database does by itself, and who may do what: triggers, functions, grants."""

from __future__ import annotations

from random import Random
from typing import Any

from gem.envs.mcp_postgres_tasks.base import (
    ANALYST,
    AUDITOR,
    CLERK,
    GROUPS,
    Judge,
    PostgresTask,
    Table,
    literal,
)
from gem.envs.mcp_postgres_tasks.worlds import CITIES, bank, day, shop, staff


def audit_log(rng: Random) -> PostgresTask:
    """Log every change of a table by a trigger."""
    world = staff(rng)
    log = rng.choice(["employees_log", "employees_history", "employees_audit"])
    column = rng.choice(["salary", "department_id"])
    log_ddl = "entry bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\nemployee_id integer NOT NULL,\n"
    log_ddl += "action text NOT NULL,\nold_value integer,\nnew_value integer"
    world[log] = Table(log_ddl, [])
    entries = f"SELECT employee_id, action, old_value, new_value FROM @{log}"

    def check(judge: Judge) -> None:
        judge.untouched(world, "employees", "departments")
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

    value = "CASE WHEN TG_OP <> '{}' THEN {}." + column + " END"
    return PostgresTask(
        f"From now on, every change of employees.{column} is to be logged in the table {log}, which is "
        "there, by the database itself: one entry for each row of employees that is inserted (action "
        "'insert', no old_value), deleted ('delete', no new_value), or updated ('update') such that the "
        f"value is another; an update that leaves {column} as it was is not logged. This works whatever "
        f"the search_path of who changes employees is. Leave the table {log} empty.",
        world,
        check,
        [
            f"""CREATE FUNCTION log_employee() RETURNS trigger LANGUAGE plpgsql
            SET search_path FROM CURRENT AS $$
            BEGIN
                IF TG_OP <> 'UPDATE' OR NEW.{column} IS DISTINCT FROM OLD.{column} THEN
                    INSERT INTO {log} (employee_id, action, old_value, new_value) VALUES (
                        CASE TG_OP WHEN 'INSERT' THEN NEW.id ELSE OLD.id END, lower(TG_OP),
                        {value.format("INSERT", "OLD")}, {value.format("DELETE", "NEW")});
                END IF;
                RETURN NULL;
            END $$""",
            "CREATE TRIGGER log_changes AFTER INSERT OR UPDATE OR DELETE ON employees "
            "FOR EACH ROW EXECUTE FUNCTION log_employee()",
        ],
    )


def balances(rng: Random) -> PostgresTask:
    """Mend sums that have drifted, keep them by a trigger, and refuse an overdraft."""
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
        judge.untouched(world, "entries")
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

    return PostgresTask(
        "accounts.balance should be the sum of the account's entries (amount), but some have drifted from "
        "it. Correct those. Then let the database keep every balance right by itself when entries are "
        "inserted, deleted or changed (the amount, or the account), and refuse what would bring a balance "
        f"below -{limit}. It works whatever the search_path is.",
        world,
        check,
        [
            "UPDATE accounts a SET balance = (SELECT coalesce(sum(amount), 0) FROM entries WHERE account_id "
            "= a.id)",
            f"ALTER TABLE accounts ADD CHECK (balance >= -{limit})",
            """CREATE FUNCTION keep_balance() RETURNS trigger LANGUAGE plpgsql
            SET search_path FROM CURRENT AS $$
            BEGIN
                IF TG_OP <> 'INSERT' THEN
                    UPDATE accounts SET balance = balance - OLD.amount WHERE id = OLD.account_id;
                END IF;
                IF TG_OP <> 'DELETE' THEN
                    UPDATE accounts SET balance = balance + NEW.amount WHERE id = NEW.account_id;
                END IF;
                RETURN NULL;
            END $$""",
            "CREATE TRIGGER keep AFTER INSERT OR UPDATE OR DELETE ON entries FOR EACH ROW EXECUTE FUNCTION "
            "keep_balance()",
        ],
    )


def function_contract(rng: Random) -> PostgresTask:
    """Write a function with a stated contract."""
    currencies = rng.sample(["CHF", "CZK", "DKK", "NOK", "PLN", "SEK"], 4)
    rates = [
        (currency, f"2025-{month:02d}-{rng.randint(1, 28):02d}", rng.randrange(800, 12000) / 10000)
        for currency in currencies
        for month in sorted(rng.sample(range(1, 12), 4))
    ]
    name = rng.choice(["to_euro", "in_euro", "euro_value"])
    tables = {
        "rates": Table(
            "currency text NOT NULL,\nvalid_from date NOT NULL,\nrate numeric(12,4) NOT NULL,\n"
            "PRIMARY KEY (currency, valid_from)",
            rates,
        )
    }
    cases = [(rng.randrange(1, 99999) / 100, rate[0], rate[1]) for rate in rates]
    cases += [(rng.randrange(1, 99999) / 100, rng.choice(currencies), "2025-12-31") for _ in range(6)]
    cases += [(-3.335, currencies[0], "2026-02-01"), (17.456, "EUR", "1999-01-01"), (0, "EUR", "2025-01-01")]

    def call(amount: Any, currency: Any, on: Any) -> str:
        return f"@{name}({literal(amount)}::numeric, {literal(currency)}::text, {literal(on)}::date)"

    def check(judge: Judge) -> None:
        judge.untouched(tables)
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
            state = judge.refused(f"SELECT {call(*absent)}")
            judge.need(state == "P0002", f"{name}{absent} ends with SQLSTATE {state or '00000'}, not P0002")

    return PostgresTask(
        f"Write a function {name}(amount numeric, currency text, day date) that returns numeric: the "
        "amount in euro, rounded to cents. An amount in 'EUR' stays what it is. For other currencies it "
        "is multiplied by the rate in the table rates with the latest valid_from that is not after the "
        "day. If any argument is NULL, so is the result. If there is no such rate, it raises an error "
        "with SQLSTATE P0002 (no_data_found). Declare it STABLE. It must work whatever the caller's "
        "search_path is.",
        tables,
        check,
        [
            f"""CREATE FUNCTION {name}(amount numeric, currency text, day date) RETURNS numeric
            LANGUAGE plpgsql STABLE STRICT SET search_path FROM CURRENT AS $$
            DECLARE factor numeric := 1;
            BEGIN
                IF currency <> 'EUR' THEN
                    SELECT r.rate INTO STRICT factor FROM rates r
                    WHERE r.currency = {name}.currency AND r.valid_from <= day
                    ORDER BY r.valid_from DESC LIMIT 1;
                END IF;
                RETURN round(amount * factor, 2);
            END $$"""
        ],
    )


def guarded_function(rng: Random) -> PostgresTask:
    """Let a role change rows through a function alone."""
    world = bank(rng)
    most = rng.randrange(50, 200, 25)
    name = rng.choice(["post_refund", "give_refund", "refund"])

    def check(judge: Judge) -> None:
        judge.untouched(world)
        facts = judge.rows(
            "SELECT prosecdef, coalesce(array_to_string(proconfig, ','), '') FROM pg_proc WHERE oid = "
            f"'{judge.schema}.{name}(integer,numeric)'::regprocedure"
        )
        judge.need(facts[0][0], f"{name} does not run with its owner's rights")
        judge.need("search_path=" in facts[0][1], f"{name} leaves the search_path to its caller")
        for role in (ANALYST, AUDITOR):  # asked of the catalogue: without USAGE on the schema all is refused
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

    return PostgresTask(
        f"Members of the role {CLERK} may give refunds, and nothing else. Write a function {name}(account "
        "integer, amount numeric) returns integer: it adds an entry for the account with today's date, "
        "that amount and the next id (the largest plus one), adds the amount to the account's balance, "
        f"and returns the entry's id. An amount that is not above 0 and at most {most}, and an account "
        f"that does not exist, end in an error. {CLERK} can call it (and needs USAGE on the schema), "
        "though it may not write to the tables itself; nobody else can call it. The function must not "
        "depend on the caller's search_path.",
        world,
        check,
        [
            f"""CREATE FUNCTION {name}(account integer, amount numeric) RETURNS integer
            LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
            DECLARE entry integer;
            BEGIN
                IF (amount > 0 AND amount <= {most}) IS NOT TRUE THEN RAISE 'no such amount'; END IF;
                UPDATE accounts SET balance = balance + amount WHERE id = account;
                IF NOT FOUND THEN RAISE 'there is no account %', account; END IF;
                INSERT INTO entries
                SELECT max(id) + 1, account, current_date, {name}.amount FROM entries RETURNING id INTO entry;
                RETURN entry;
            END $$""",
            f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC",
            f"GRANT EXECUTE ON FUNCTION {name} TO {CLERK}",
            f"GRANT USAGE ON SCHEMA @schema TO {CLERK}",
        ],
    )


def grants(rng: Random) -> PostgresTask:
    """Give three roles what they need and take away what they should not have."""
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
        judge.untouched(world)
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

    return PostgresTask(
        f"Set the privileges of three roles in this schema, and no more than these. {ANALYST} reads "
        f"everything but customers.{hidden}. {CLERK} reads everything; it also inserts orders and updates "
        f"their status (no other column), and inserts and deletes items. {AUDITOR} reads orders and items "
        "and nothing else. PUBLIC has no privileges on any table. Somebody has granted too much before: "
        "see what is there.",
        world,
        check,
        [
            f"REVOKE ALL ON customers, products, orders, items FROM PUBLIC, {', '.join(GROUPS)}",
            f"GRANT USAGE ON SCHEMA @schema TO {', '.join(GROUPS)}",
            f"GRANT SELECT ON products, orders, items TO {ANALYST}",
            f"GRANT SELECT ({open_columns}) ON customers TO {ANALYST}",
            f"GRANT SELECT ON customers, products, orders, items TO {CLERK}",
            f"GRANT INSERT, UPDATE (status) ON orders TO {CLERK}",
            f"GRANT INSERT, DELETE ON items TO {CLERK}",
            f"GRANT SELECT ON orders, items TO {AUDITOR}",
        ],
        setup=[
            "GRANT SELECT ON products TO PUBLIC",
            f"GRANT ALL ON orders TO {AUDITOR}, {CLERK}",
            f"GRANT SELECT ON customers TO {ANALYST}",
        ],
    )


def row_security(rng: Random) -> PostgresTask:
    """Show each tenant its own rows and no others."""
    setting = rng.choice(["app.city", "app.branch", "app.office"])
    people = [(i, rng.choice(CITIES), f"patient {i}", rng.randrange(50, 900), day(rng)) for i in range(1, 80)]
    tables = {
        "visits": Table(
            """id integer PRIMARY KEY,
            city text NOT NULL,
            patient text NOT NULL,
            fee integer NOT NULL,
            seen_on date NOT NULL""",
            people,
        )
    }

    def check(judge: Judge) -> None:
        judge.untouched(tables)
        seen = "SELECT id, city, patient, fee FROM @visits"
        insert = (
            "INSERT INTO @visits (id, city, patient, fee, seen_on) VALUES (900, '{}', 'x', 5, '2025-01-01')"
        )
        for city in CITIES[:3]:
            own = [row[:4] for row in people if row[1] == city]
            with judge.trial():
                judge.gives(seen, own, f"what {CLERK} sees", CLERK, **{setting: city})
                changed = judge.rows("UPDATE @visits SET fee = fee RETURNING id", CLERK, {setting: city})
                judge.need(len(changed) == len(own), f"{CLERK} updates rows of others")
            judge.needs_accepted(insert.format(city), CLERK, **{setting: city})
            judge.needs_refused(insert.format(CITIES[4]), CLERK, **{setting: city})
            judge.needs_refused(f"UPDATE @visits SET city = '{CITIES[4]}'", CLERK, **{setting: city})
            judge.needs_refused("DELETE FROM @visits", CLERK, **{setting: city})
        for settings in ({}, {setting: ""}, {setting: "Nowhere"}):
            judge.gives(seen, [], f"what {CLERK} sees without a city", CLERK, **settings)
        judge.gives(seen, [row[:4] for row in people], f"what {AUDITOR} sees", AUDITOR)
        judge.needs_refused("UPDATE @visits SET fee = 1", AUDITOR)
        judge.needs_no_right_to("visits", ANALYST)
        with judge.trial():
            judge.rows(insert.format("Kyiv"), CLERK, {setting: "Kyiv"})
            judge.gives(
                "SELECT id FROM @visits", [(900,)], "what a new city sees", CLERK, **{setting: "Kyiv"}
            )

    policy = f"city = current_setting('{setting}', true)"
    return PostgresTask(
        f"The members of {CLERK} work for one city each, which their programs tell the database by SET "
        f"{setting} = 'Lyon' (say). Let {CLERK} read, insert and update rows of visits, but by row-level "
        "security only those of that city, also after an update; where the setting is missing or empty, "
        f"none. Nobody deletes. {AUDITOR} reads all rows and changes none; {ANALYST} cannot read the "
        "table. Roles need USAGE on the schema.",
        tables,
        check,
        [
            f"GRANT USAGE ON SCHEMA @schema TO {CLERK}, {AUDITOR}",
            f"GRANT SELECT, INSERT, UPDATE ON visits TO {CLERK}",
            f"GRANT SELECT ON visits TO {AUDITOR}",
            "ALTER TABLE visits ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY own_city ON visits TO {CLERK} USING ({policy}) WITH CHECK ({policy})",
            f"CREATE POLICY everything ON visits FOR SELECT TO {AUDITOR} USING (true)",
        ],
    )


def masked_view(rng: Random) -> PostgresTask:
    """Show a role a table without what is private in it."""
    world = shop(rng)
    name = rng.choice(["customers_masked", "customers_public", "customers_safe"])
    keep = rng.randint(1, 3)
    mask = f"left(email, {keep}) || '***' || substring(email FROM '@.*$')"

    def check(judge: Judge) -> None:
        judge.untouched(world)
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

    return PostgresTask(
        f"Let {ANALYST} study the customers without knowing who they are: a view {name} with the columns "
        f"id, email, city and year. email shows the first {keep} character{'s' * (keep > 1)}, then '***', "
        f"then the address from its @ on; year, an integer, is that of joined. {ANALYST} can read the view "
        "(it needs USAGE on the schema), but cannot change it, nor read the table customers. No other "
        "role gets rights.",
        world,
        check,
        [
            f"CREATE VIEW {name} AS SELECT id, {mask} AS email, city, extract(year FROM joined)::integer "
            "AS year FROM customers",
            f"GRANT SELECT ON {name} TO {ANALYST}",
            f"GRANT USAGE ON SCHEMA @schema TO {ANALYST}",
        ],
    )
