"""Tasks about the schema: constraints, columns, types, and tables split and partitioned."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from gem.envs.database.mcp_tasks.base import Judge, PostgresTask, Table, load_tables, task, texts
from gem.envs.database.mcp_tasks.worlds import CITIES, day, fleet, people, shop


def constraints(rng: Random) -> PostgresTask:
    """Move away rows that break a rule, then make the rule a constraint."""
    world = shop(rng)
    most = rng.randint(12, 60)
    items = [list(row) for row in world["items"].rows]
    spoilt = rng.sample(items, 12)
    for row, (column, value) in zip(
        spoilt, [(2, 0), (2, -3), (2, most + 1), (2, None), (3, -0.01), (3, None)] * 2, strict=True
    ):
        row[column] = value
    world["items"] = Table(world["items"].ddl, items)
    rule = f"quantity BETWEEN 1 AND {most} AND unit_price >= 0"
    columns = "order_id, product_id, quantity, unit_price"

    def check(judge: Judge) -> None:
        judge.holds("items", columns, [row for row in items if row not in spoilt])
        judge.holds("items_rejected", columns, spoilt)
        judge.needs_untouched(world, "orders", "products")
        where = "WHERE (order_id, product_id) = (SELECT order_id, product_id FROM @items LIMIT 1)"
        for quantity in (0, most + 1, "NULL"):
            judge.needs_refused(f"UPDATE @items SET quantity = {quantity} {where}")
        for price in (-0.01, "NULL"):
            judge.needs_refused(f"UPDATE @items SET unit_price = {price} {where}")
        for quantity in (1, most):
            judge.needs_accepted(f"UPDATE @items SET quantity = {quantity}, unit_price = 0 {where}")
            judge.needs_accepted(f"INSERT INTO @items VALUES (118, {quantity % 9 + 1}, {quantity}, 0.5)")
        judge.needs_refused("INSERT INTO @items VALUES (118, 1, 0, 0.5)")

    return task("constraints", world, check, most=most, rule=rule)


def foreign_keys(rng: Random) -> PostgresTask:
    """Clean up references to rows that are gone, then declare them."""
    world = shop(rng)
    gone = rng.sample(range(1, 21), 3)
    lost = rng.sample(range(1, 117), 6)
    world["customers"] = Table(
        world["customers"].ddl, [row for row in world["customers"].rows if row[0] not in gone]
    )
    world["orders"] = Table(world["orders"].ddl, [row for row in world["orders"].rows if row[0] not in lost])
    orders = [(i, None if by in gone else by, on, status) for i, by, on, status in world["orders"].rows]
    items = [row for row in world["items"].rows if row[0] not in lost]

    def check(judge: Judge) -> None:
        judge.needs_untouched(world, "customers", "products")
        judge.holds("orders", "id, customer_id, placed_on, status", orders)
        judge.holds("items", "order_id, product_id, quantity, unit_price", items)
        judge.needs_refused(f"UPDATE @orders SET customer_id = {gone[0]} WHERE id = {orders[0][0]}")
        judge.needs_refused(f"INSERT INTO @items VALUES ({lost[0]}, 1, 1, 1)")
        judge.needs_refused("INSERT INTO @items VALUES (118, 99, 1, 1)")
        product, buyer, order = items[0][1], next(row[1] for row in orders if row[1]), items[-1][0]
        judge.needs_refused(f"DELETE FROM @products WHERE id = {product}")
        with judge.trial(f"DELETE FROM @customers WHERE id = {buyer}"):
            kept = [(i, None if by == buyer else by) for i, by, *_ in orders]
            judge.gives("SELECT id, customer_id FROM @orders", kept, "a customer is deleted; orders then")
        with judge.trial(f"DELETE FROM @orders WHERE id = {order}"):
            left = sum(row[0] != order for row in items)
            judge.gives("SELECT count(*) FROM @items", [(left,)], "an order is deleted; its items then")

    return task("foreign_keys", world, check)


def migrate_column(rng: Random) -> PostgresTask:
    """Convert a text column with several formats into an amount and a currency."""
    world = shop(rng)
    unknown = rng.choice(["n/a", "on request", "?"])
    forms = ["{:.2f} EUR", "EUR {:.2f}", "{:.2f} USD", "${:.2f}", "€{:.2f}"]
    priced: list[Any] = []
    wanted: list[Any] = []
    for number, (i, sku, category, price, stock) in enumerate(world["products"].rows):
        form = rng.choice(forms) if number >= len(forms) else forms[number]
        if number in (6, 11):
            priced.append((i, sku, category, unknown, stock))
            wanted.append((i, sku, category, stock, None, None))
        else:
            priced.append((i, sku, category, form.format(price), stock))
            wanted.append((i, sku, category, stock, price, "USD" if "USD" in form or "$" in form else "EUR"))
    ddl = world["products"].ddl.replace("price numeric(10,2) NOT NULL", "price text NOT NULL")
    tables = {"products": Table(ddl, priced)}

    def check(judge: Judge) -> None:
        judge.holds("products", "id, sku, category, stock, amount, currency", wanted)
        columns = judge.columns("products")
        judge.need(columns["amount"] == "numeric(10,2)", f"amount is {columns['amount']}")
        judge.need("price" not in columns, "the column price is still there")
        judge.needs_refused("UPDATE @products SET currency = 'GBP'")
        judge.needs_accepted("UPDATE @products SET currency = 'USD', amount = 1.25")

    return task("migrate_column", tables, check, unknown=unknown)


def normalise(rng: Random) -> PostgresTask:
    """Split a flat table in two."""
    names = people(rng, 14)
    buyers = [
        (name, name.split()[0].lower() + f"{i}@example.org", rng.choice(CITIES))
        for i, name in enumerate(names)
    ]
    buyers += [(names[0], "other@example.org", rng.choice(CITIES))]  # two people of one name
    sales = [(i, day(rng), *rng.choice(buyers), rng.randrange(100, 9000) / 100) for i in range(1, 90)]
    sales += [(90 + i, day(rng), *buyer, 5.5) for i, buyer in enumerate(buyers)]
    tables = load_tables("normalise", sales=sales)

    def check(judge: Judge) -> None:
        judge.need(judge.kind("sales") == "r", "sales is no table any more")
        judge.holds("buyers", "name, email, city", buyers)
        judge.need(
            set(judge.columns("sales")) == {"id", "sold_on", "buyer_id", "amount"}, "sales has other columns"
        )
        judge.gives(
            "SELECT s.id, s.sold_on, b.name, b.email, b.city, s.amount FROM @sales s JOIN @buyers b ON b.id "
            "= s.buyer_id",
            sales,
            "sales joined with buyers is not what sales was",
        )
        judge.needs_refused("UPDATE @sales SET buyer_id = (SELECT max(id) + 1 FROM @buyers) WHERE id = 1")
        judge.needs_refused("UPDATE @sales SET buyer_id = NULL WHERE id = 1")
        judge.needs_refused(
            "INSERT INTO @buyers (name, email, city) SELECT name, email, city FROM @buyers LIMIT 1"
        )
        judge.needs_refused("UPDATE @buyers SET id = (SELECT max(id) FROM @buyers)")
        with judge.trial("INSERT INTO @buyers (name, email, city) VALUES ('New', 'new@example.org', 'Rome')"):
            judge.gives("SELECT count(id) FROM @buyers", [(len(buyers) + 1,)], "a new buyer has no id")

    return task("normalise", tables, check)


def partition(rng: Random) -> PostgresTask:
    """Convert a table into one partitioned by month, with the same rows."""
    world = fleet(rng)
    readings = world["readings"]
    months = sorted({row[1][:7] for row in readings.rows})
    dated = rng.choice(["y%Ym%m", "%Y_%m", "p%Y%m"])
    names = [f"readings_{dated.replace('%Y', m[:4]).replace('%m', m[5:])}" for m in months]
    bounds = [*months, f"2025-{len(months) + 1:02d}"]

    def check(judge: Judge) -> None:
        judge.holds("readings", "device_id, at, value", readings.rows, kind="p")
        for name, month in zip(names, months, strict=True):
            judge.holds(name, "device_id, at, value", [row for row in readings.rows if row[1][:7] == month])
        partition = "SELECT tableoid::regclass::text FROM @readings WHERE device_id = 77"
        for at, name in (
            [(f"{month}-01 00:00", name) for month, name in zip(months, names, strict=True)]
            + [(f"{month}-28 23:59:59.9", name) for month, name in zip(months, names, strict=True)]
            + [("2019-05-05", "readings_rest"), ("2031-05-05", "readings_rest")]
        ):
            with judge.trial(f"INSERT INTO @readings VALUES (77, '{at}', 1.5)"):
                judge.gives(partition, [(f"{judge.schema}.{name}",)], f"a reading of {at} is not in {name}")
        again = f"INSERT INTO @readings VALUES ({readings.rows[0][0]}, '{readings.rows[0][1]}', 0)"
        judge.needs_refused(again)

    made = task("partition", world, check, partitions=", ".join(names), first=months[0], last=months[-1])
    partition = texts("partition")["partition"]
    parts = [partition.format(*each) for each in zip(names, bounds, bounds[1:], strict=False)]
    return replace(made, solution=[*made.solution[:3], *parts, *made.solution[3:]])


def sequences(rng: Random) -> PostgresTask:
    """Repair sequences after an import, so that new rows get ids again."""
    world = shop(rng)
    ddl = {
        "customers": "id serial PRIMARY KEY",
        "products": "id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "orders": "id integer PRIMARY KEY",
    }
    tables = {}
    for place, (name, first) in enumerate(ddl.items()):
        rows = world[name].rows[: 12 + 3 * place]
        rows = [*rows, (rng.randint(200, 900), *rows[0][1:])]
        tables[name] = Table(world[name].ddl.replace("id integer PRIMARY KEY", first, 1), rows)
    new = {
        "customers": "(name, email, city, joined) VALUES ('New', 'new@example.org', 'Rome', '2025-01-01')",
        "products": "(sku, category, price, stock) VALUES ('Z1', 'books', 1, 1)",
        "orders": "(customer_id, placed_on, status) VALUES (1, '2025-01-01', 'new')",
    }

    def check(judge: Judge) -> None:
        judge.needs_untouched(tables)
        for name, values in new.items():
            last = tables[name].rows[-1][0]
            judge.need(
                judge.value(
                    "SELECT atthasdef OR attidentity <> '' FROM pg_attribute WHERE attname = 'id' AND "
                    f"attrelid = '{judge.schema}.{name}'::regclass"
                ),
                f"{name}.id has no sequence",
            )
            with judge.trial(f"INSERT INTO @{name} {values}", f"INSERT INTO @{name} {values}"):
                judge.gives(
                    f"SELECT id FROM @{name} WHERE id > {last}",
                    [(last + 1,), (last + 2,)],
                    f"two new rows of {name} do not get the next two ids",
                )

    return task("sequences", tables, check)


def compatible_view(rng: Random) -> PostgresTask:
    """Rename a table and its columns, while programs that use the old names still work."""
    world = shop(rng)
    table = rng.choice(["clients", "patrons", "buyers"])
    name, since = rng.choice(["full_name", "display_name"]), rng.choice(["client_since", "member_since"])
    customers = world["customers"].rows

    def check(judge: Judge) -> None:
        judge.holds(table, f"id, {name}, email, city, {since}", customers)
        judge.need(
            set(judge.columns(table)) == {"id", name, "email", "city", since}, f"{table} has other columns"
        )
        judge.need(judge.kind("customers") == "v", "customers is no view")
        judge.follows(
            "customers",
            "id, name, email, city, joined",
            f"SELECT id, {name}, email, city, {since} FROM @{table}",
            f"DELETE FROM @{table} WHERE id < 5",
            f"UPDATE @{table} SET {name} = 'X', {since} = '2020-02-02' WHERE id < 9",
        )
        with judge.trial(
            "INSERT INTO @customers (id, name, email, city, joined) VALUES (90, 'A', 'b', 'C', '2024-05-05')",
            "UPDATE @customers SET name = 'B', joined = '2024-06-06' WHERE id = 1",
            "DELETE FROM @customers WHERE id = 2",
        ):
            changed = [row for row in customers if row[0] > 2]
            changed += [(90, "A", "b", "C", "2024-05-05"), (1, "B", *customers[0][2:4], "2024-06-06")]
            judge.gives(
                f"SELECT id, {name}, email, city, {since} FROM @{table}", changed, "writing through customers"
            )

    return task("compatible_view", world, check, table=table, name=name, since=since)


def generated_column(rng: Random) -> PostgresTask:
    """Let the database keep a computed column."""
    world = shop(rng)
    percent = rng.choice([7, 19, 20, 21, 25])
    column = rng.choice(["gross", "total", "line_total"])
    formula = f"round(quantity * unit_price * (100 + {percent}) / 100, 2)"

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        judge.need(judge.columns("items").get(column) == "numeric(12,2)", f"{column} is no numeric(12,2)")
        judge.follows(
            "items",
            f"order_id, product_id, {column}",
            f"SELECT order_id, product_id, {formula} FROM @items",
            "UPDATE @items SET quantity = quantity + 3 WHERE order_id < 30",
            "UPDATE @items SET unit_price = unit_price * 2 + 0.01",
            "INSERT INTO @items (order_id, product_id, quantity, unit_price) VALUES (119, 3, 7, 1.35)",
        )

    return task("generated_column", world, check, column=column, percent=percent, formula=formula)


def enum_column(rng: Random) -> PostgresTask:
    """Convert inconsistent text into an enumerated type."""
    labels = rng.choice(
        [("low", "normal", "urgent"), ("open", "waiting", "closed"), ("draft", "review", "final")]
    )
    name = rng.choice(["ticket_state", "ticket_rank", "ticket_kind"])
    forms = (str, str.upper, str.title, " {} ".format, "{}\t".format)
    known = [(i, f"ticket {i}", rng.choice(labels)) for i in range(1, 60)]
    tickets = [(i, title, rng.choice(forms)(state)) for i, title, state in known]
    tables = load_tables("enum_column", tickets=[*tickets, (60, "a", None), (61, "b", "  ")])
    wanted = [*known, (60, "a", labels[0]), (61, "b", labels[0])]

    def check(judge: Judge) -> None:
        judge.holds("tickets", "id, title, state::text", wanted)
        kind = judge.columns("tickets")["state"]
        judge.need(kind == f"{judge.schema}.{name}", f"state is a {kind}")
        judge.need(
            judge.rows(
                "SELECT enumlabel::text FROM pg_enum WHERE enumtypid = "
                f"'{judge.schema}.{name}'::regtype ORDER BY enumsortorder"
            ) == [(label,) for label in labels],
            f"{name} has other labels, or in another order",
        )  # fmt: skip
        judge.needs_refused("UPDATE @tickets SET state = NULL")
        with judge.trial("INSERT INTO @tickets (id, title) VALUES (99, 'new')"):
            judge.gives(
                "SELECT state::text FROM @tickets WHERE id = 99", [(labels[0],)], "the default is another"
            )

    return task(
        "enum_column", tables, check, name=name, labels=", ".join(map(repr, labels)), default=labels[0]
    )


def no_overlap(rng: Random) -> PostgresTask:
    """Undo double bookings, then let the database refuse them."""
    done = rng.choice(["confirmed", "firm", "booked"])
    bookings: list[Any] = []
    wanted: list[Any] = []
    for room in range(1, 7):
        month = 1
        while month <= 11:
            start = rng.randint(3, 12)
            end = start + rng.randint(3, 9)
            kind = rng.randint(0, 3)
            pairs = [(start, end, done)]
            if kind == 0:  # overlaps
                pairs.append((start + rng.randint(-2, 2), end + 2, done))
            elif kind == 1:  # begins when the other ends
                pairs.append((end, end + 3, done))
            elif kind == 2:  # overlaps, but is not firm
                pairs.append((start, end, "cancelled"))
            for place, (first, last, status) in enumerate(pairs):
                row = (f"2025-{month:02d}-{first:02d}", f"2025-{month:02d}-{last:02d}")
                bookings.append((len(bookings) + 1, room, *row, status))
                loses = kind == 0 and place == 1
                wanted.append((*bookings[-1][:4], "cancelled" if loses else status))
            month += rng.randint(1, 2)
    tables = load_tables("no_overlap", bookings=bookings)

    def check(judge: Judge) -> None:
        judge.holds("bookings", "id, room, starts, ends, status", wanted)
        _, room, starts, ends, _ = next(row for row in wanted if row[4] == done)
        insert = "INSERT INTO @bookings (id, room, starts, ends, status) VALUES (999, "
        judge.needs_refused(f"{insert}{room}, '{starts}', '{ends}', '{done}')")
        judge.needs_refused(f"{insert}{room}, '{starts}', date '{starts}' + 1, '{done}')")
        judge.needs_refused(f"{insert}{room}, date '{ends}' - 1, '{ends}', '{done}')")
        judge.needs_accepted(f"{insert}{room}, '{starts}', '{ends}', 'cancelled')")
        judge.needs_accepted(f"{insert}77, '{starts}', '{ends}', '{done}')")
        judge.needs_accepted(f"{insert}{room}, date '{starts}' - 1, '{starts}', '{done}')")
        moved = f"UPDATE @bookings SET status = '{done}', room = {room}, starts = '{starts}', ends = '{ends}'"
        judge.needs_refused(
            f"{moved} WHERE id = {next(r[0] for r in wanted if r[1] != room and r[4] == done)}"
        )

    return task("no_overlap", tables, check, done=done)
