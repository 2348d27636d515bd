"""Tasks about the rows: duplicates, feeds, backfills, repairs, and documents taken apart."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from gem.envs.mcp_postgres_tasks.base import Judge, PostgresTask, Table
from gem.envs.mcp_postgres_tasks.worlds import bank, day, people, shop


def deduplicate(rng: Random) -> PostgresTask:
    """Merge rows of the same thing, take along what refers to them, and let none come again."""
    names = people(rng, 20)
    contacts: list[Any] = []
    kept: dict[str, list[Any]] = {}
    goes_to: dict[int, int] = {}
    for i in range(1, 41):
        name = names[i - 1] if i <= 20 else rng.choice(names[:8])
        email = name.lower().replace(" ", ".") + "@example.org"
        written = rng.choice([email, email.upper(), email.title(), f" {email}", f"{email} "])
        phone = None if rng.random() < 0.5 else f"+{rng.randint(10**9, 10**10)}"
        contacts.append((i, written, name, phone))
        first = kept.setdefault(email, [i, email, name, None])
        first[3] = first[3] or phone
        goes_to[i] = first[0]
    messages = [(i, rng.randint(1, 40), f"message {rng.randint(100, 999)}") for i in range(1, 80)]
    tables = {
        "contacts": Table(
            "id integer PRIMARY KEY,\nemail text NOT NULL,\nname text NOT NULL,\nphone text", contacts
        ),
        "messages": Table(
            "id integer PRIMARY KEY,\ncontact_id integer NOT NULL REFERENCES contacts,\nbody text NOT NULL",
            messages,
        ),
    }

    def check(judge: Judge) -> None:
        judge.holds("contacts", "id, email, name, phone", list(kept.values()))
        judge.holds("messages", "id, contact_id, body", [(i, goes_to[to], body) for i, to, body in messages])
        email = next(iter(kept))
        insert = "INSERT INTO @contacts (id, email, name) VALUES (99, '{}', 'x')"
        judge.needs_refused(insert.format(email))
        judge.needs_refused(insert.format(email.upper()))
        judge.needs_accepted(insert.format("nobody@example.org"))
        judge.needs_refused("UPDATE @messages SET contact_id = 41 WHERE id = 1")

    return PostgresTask(
        "contacts has the same people several times: those whose emails are equal but for case and blank "
        "space around "
        "them. Keep of each the row with the smallest id, with its email in lower case and without that "
        "space; where "
        "it has no phone, give it that of the duplicate with the smallest id that has one. Let the messages "
        "of the "
        "others refer to it, and delete the others. Then see to it that the database refuses a contact with "
        "an email "
        "that is already there, whatever its case.",
        tables,
        check,
        [
            "BEGIN",
            "CREATE TEMP TABLE keep AS SELECT id, min(id) OVER same AS kept, first_value(phone) OVER "
            "(PARTITION BY "
            "lower(trim(email)) ORDER BY phone IS NULL, id) AS phone FROM contacts WINDOW same AS "
            "(PARTITION BY "
            "lower(trim(email)))",
            "UPDATE messages m SET contact_id = k.kept FROM keep k WHERE k.id = m.contact_id",
            "DELETE FROM contacts c USING keep k WHERE k.id = c.id AND k.id <> k.kept",
            "UPDATE contacts c SET email = lower(trim(c.email)), phone = coalesce(c.phone, k.phone) FROM "
            "keep k WHERE "
            "k.id = c.id",
            "CREATE UNIQUE INDEX ON contacts (lower(email))",
            "COMMIT",
        ],
    )


def merge_feed(rng: Random) -> PostgresTask:
    """Bring a table up to date from a feed, and say what was done."""
    world = shop(rng)
    products = world["products"].rows
    gone = {row[0] for row in rng.sample(products, 3)}
    feed: list[Any] = []
    for i, sku, category, price, stock in products:
        if i in gone:
            continue
        change = rng.random()
        feed.append(
            (
                sku,
                category,
                round(price + 1.5, 2) if change < 0.4 else price,
                stock + 9 if change > 0.7 else stock,
            )
        )
    feed += [(f"Z{rng.randint(200, 299)}-{i}", "music", 9.5, 3) for i in range(4)]
    # An older line of the same article: the later one counts.
    lines = [(n, *row) for n, row in enumerate([(row[0], "old", 1.0, 1) for row in feed[:3]] + feed, 1)]
    by_sku = {row[0]: row for row in feed}
    wanted: list[Any] = []
    counts = {"inserted": 4, "updated": 0, "retired": len(gone)}
    for i, sku, category, price, stock in products:
        new = by_sku.get(sku)
        if new is None:
            wanted.append((i, sku, category, price, 0))
        else:
            wanted.append((i, sku, *new[1:]))
            counts["updated"] += new[1:] != (category, price, stock)
    wanted += [(len(products) + 1 + n, *row) for n, row in enumerate(feed[-4:])]
    tables = {
        "products": Table(
            world["products"].ddl.replace(
                "id integer PRIMARY", "id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY"
            ),
            products,
        ),
        "feed": Table(
            "line integer PRIMARY KEY,\nsku text NOT NULL,\ncategory text NOT NULL,\n"
            "price numeric(10,2) NOT NULL,\nstock integer NOT NULL",
            lines,
        ),
        "feed_log": Table("action text NOT NULL,\nrows_changed integer NOT NULL", []),
    }

    def check(judge: Judge) -> None:
        judge.untouched(tables, "feed")
        new = "sku, category, price, stock"
        judge.holds("products", new, [row[1:] for row in wanted])
        judge.gives(
            f"SELECT id, {new} FROM @products WHERE id <= {len(products)}",
            wanted[:-4],
            "the products that were there",
        )
        judge.holds("feed_log", "action, rows_changed", list(counts.items()))

    return PostgresTask(
        "Bring products up to date from the table feed, by sku; of several lines of one sku the one with "
        "the largest line "
        "counts, the others do not. Insert what is new (ids come by themselves, from after the largest), "
        "set category, "
        "price and stock of what is known, and set the stock of products that are not in the feed to 0. "
        "Keep the ids. "
        "Then write three rows to feed_log: 'inserted', 'updated' and 'retired', with the numbers of "
        "products that were "
        "inserted, that were known and got some other value from the feed, and that are not in the feed. "
        "Leave feed as "
        "it is.",
        tables,
        check,
        [
            "BEGIN",
            "CREATE TEMP TABLE latest AS SELECT DISTINCT ON (sku) * FROM feed ORDER BY sku, line DESC",
            "WITH done AS (UPDATE products p SET category = l.category, price = l.price, stock = l.stock "
            "FROM latest l "
            "WHERE l.sku = p.sku AND (p.category, p.price, p.stock) IS DISTINCT FROM (l.category, l.price, "
            "l.stock) "
            "RETURNING p.id) INSERT INTO feed_log SELECT 'updated', count(*) FROM done",
            "WITH done AS (UPDATE products p SET stock = 0 WHERE NOT EXISTS (SELECT FROM latest l WHERE "
            "l.sku = p.sku) "
            "RETURNING p.id) INSERT INTO feed_log SELECT 'retired', count(*) FROM done",
            "WITH done AS (INSERT INTO products (sku, category, price, stock) SELECT sku, category, price, "
            "stock FROM "
            "latest l WHERE NOT EXISTS (SELECT FROM products p WHERE p.sku = l.sku) RETURNING id) "
            "INSERT INTO feed_log SELECT 'inserted', count(*) FROM done",
            "COMMIT",
        ],
        setup=["SELECT setval(pg_get_serial_sequence('products', 'id'), (SELECT max(id) FROM products))"],
    )


def backfill(rng: Random) -> PostgresTask:
    """Fill a new column from other tables where it is unknown, then demand it."""
    world = shop(rng)
    totals: dict[int, float] = {}
    for order, _, quantity, price in world["items"].rows:
        totals[order] = round(totals.get(order, 0) + quantity * price, 2)
    known = set(rng.sample(range(1, 121), 25))
    factor = rng.choice([0.8, 0.9, 0.95])
    billed = [
        (*row, round(totals.get(row[0], 0) * factor, 2) if row[0] in known else None)
        for row in world["orders"].rows
    ]
    world["orders"] = Table(world["orders"].ddl + ",\nbilled numeric(12,2)", billed)
    wanted = [
        (*row[:4], row[4] if row[4] is not None else 0 if row[3] == "cancelled" else totals.get(row[0], 0))
        for row in billed
    ]

    def check(judge: Judge) -> None:
        judge.untouched(world, "customers", "products", "items")
        judge.holds("orders", "id, customer_id, placed_on, status, billed", wanted)
        judge.needs_refused("UPDATE @orders SET billed = NULL WHERE id = 1")
        judge.needs_refused("UPDATE @orders SET billed = -1 WHERE id = 1")
        with judge.trial(
            "INSERT INTO @orders (id, customer_id, placed_on, status) VALUES (900, 1, '2025-01-01', 'new')"
        ):
            judge.gives("SELECT billed FROM @orders WHERE id = 900", [(0,)], "the default of billed")

    return PostgresTask(
        "orders.billed is unknown (NULL) for most orders. Fill it where it is unknown: with 0 for orders "
        "with the status "
        "'cancelled', else with the sum of quantity times unit_price over the order's items, 0 where there "
        "are none. Leave "
        "every value that is known as it is, also where it is another sum. From then on the database should "
        "refuse an "
        "unknown or negative value, and take 0 where none is given.",
        world,
        check,
        [
            "UPDATE orders o SET billed = CASE status WHEN 'cancelled' THEN 0 ELSE coalesce((SELECT "
            "sum(quantity * "
            "unit_price) FROM items WHERE order_id = o.id), 0) END WHERE billed IS NULL",
            "ALTER TABLE orders ALTER billed SET NOT NULL, ALTER billed SET DEFAULT 0, ADD CHECK (billed >= "
            "0)",
        ],
    )


def repair_ledger(rng: Random) -> PostgresTask:
    """Undo bookings that were made twice, and bring the balances in order."""
    world = bank(rng)
    entries = [list(row) for row in world["entries"].rows]
    ids = [row[0] for row in world["accounts"].rows]
    right = {row[0]: row[2] for row in world["accounts"].rows}
    after = len(entries)
    booked: list[Any] = []
    doubled: set[int] = set()
    transfers: list[Any] = []
    for number in range(1, 31):
        source, target = rng.sample(ids, 2)
        amount = rng.randrange(100, 9000) / 100
        on = day(rng)
        transfers.append((number, source, target, amount, on))
        twice = rng.random() < 0.3
        half = not twice and rng.random() < 0.3
        for again in range(1 + twice):
            for account, sign in ((source, -1), (target, 1)):
                if half and sign == 1:
                    continue
                after += 1
                booked.append((after, account, on, sign * amount, number))
                if again:
                    doubled.add(after)
        right[source], right[target] = right[source] - amount, right[target] + amount
    shown = dict(right)
    for entry in booked:
        if entry[0] in doubled:
            shown[entry[1]] += entry[3]
    single = {(row[4], row[1]) for row in booked}
    for number, _, target, amount, _ in transfers:
        if (number, target) not in single:
            shown[target] -= amount
    ddl = world["entries"].ddl + ",\ntransfer_id integer REFERENCES transfers (id)"
    tables = {
        "accounts": Table(
            world["accounts"].ddl, [(i, name, round(shown[i], 2)) for i, name, _ in world["accounts"].rows]
        ),
        "transfers": Table(
            "id integer PRIMARY KEY,\nsource_id integer NOT NULL REFERENCES accounts (id),\n"
            "target_id integer NOT NULL REFERENCES accounts (id),\namount numeric(12,2) NOT NULL,\nmade_on "
            "date NOT NULL",
            transfers,
        ),
        "entries": Table(
            ddl.replace(
                "id integer PRIMARY KEY", "id integer GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", 1
            ),
            [(*row, None) for row in entries] + booked,
        ),
    }
    kept = [row for row in tables["entries"].rows if row[0] not in doubled]
    legs = [
        leg
        for number, source, target, amount, on in transfers
        for leg in ((source, on, -amount, number), (target, on, amount, number))
    ]

    def check(judge: Judge) -> None:
        judge.untouched(tables, "transfers")
        judge.gives(
            f"SELECT id, account_id, booked_on, amount, transfer_id FROM @entries WHERE id <= {after}",
            kept,
            "the old entries",
        )
        judge.holds(
            "entries",
            "account_id, booked_on, amount, transfer_id",
            [(*row[1:], None) for row in entries] + legs,
        )
        judge.holds(
            "accounts",
            "id, owner, balance",
            [(i, name, round(right[i], 2)) for i, name, _ in world["accounts"].rows],
        )
        judge.needs_refused(
            "INSERT INTO @entries (id, account_id, booked_on, amount, transfer_id) SELECT 5000, account_id, "
            "booked_on, "
            "amount, transfer_id FROM @entries WHERE transfer_id = 1 LIMIT 1"
        )

    return PostgresTask(
        "Each row of transfers should have two entries with its id as transfer_id, both on the day made_on: "
        "minus its amount "
        "for the account source_id, plus its amount for target_id. But some were booked twice, and of some "
        "the entry for "
        "the target is missing. Delete the second bookings (keep the entries with the smaller ids), and add "
        "the missing "
        "entries. Other entries stay as they are. Then make the balance of every account the sum of its "
        "entries, and see to "
        "it that the database refuses a second entry of one account for the same transfer.",
        tables,
        check,
        [
            "BEGIN",
            "DELETE FROM entries e USING entries first WHERE first.transfer_id = e.transfer_id AND "
            "first.account_id = "
            "e.account_id AND first.id < e.id",
            "INSERT INTO entries (account_id, booked_on, amount, transfer_id) SELECT target_id, made_on, "
            "amount, id FROM "
            "transfers t WHERE NOT EXISTS (SELECT FROM entries WHERE transfer_id = t.id AND account_id = "
            "t.target_id)",
            "UPDATE accounts a SET balance = (SELECT coalesce(sum(amount), 0) FROM entries WHERE account_id "
            "= a.id)",
            "ALTER TABLE entries ADD UNIQUE (transfer_id, account_id)",
            "COMMIT",
        ],
        setup=["SELECT setval(pg_get_serial_sequence('entries', 'id'), (SELECT max(id) FROM entries))"],
    )


def json_columns(rng: Random) -> PostgresTask:
    """Take columns out of JSON documents."""
    key = rng.choice(["amount", "price", "fee"])
    kinds = rng.sample(["click", "order", "refund", "visit", "call"], 3)
    events: list[Any] = []
    wanted: list[Any] = []
    for i in range(1, 70):
        document: dict[str, Any] = {"kind": rng.choice(kinds), "note": rng.choice(["a'b", 'c"d', "e"])}
        value = rng.randrange(1, 9999) / 100
        shape = rng.randrange(4)
        if shape < 2:
            document[key] = value if shape else str(value)
        elif shape == 2:
            document[key] = None
        tags = rng.sample(["red", "blue", "new", "hot"], rng.randint(0, 3))
        if rng.random() < 0.8:
            document["tags"] = tags
        user = rng.randint(1, 30) if rng.random() < 0.7 else None
        if user:
            document["user"] = {"id": user, "name": "u"}
        events.append((i, json.dumps(document)))
        rest = {name: document[name] for name in document if name not in ("kind", key)}
        left = json.dumps(rest, sort_keys=True)
        wanted.append(
            (i, document["kind"], value if shape < 2 else None, user, len(document.get("tags", ())), left)
        )
    tables = {"events": Table("id integer PRIMARY KEY,\ndocument jsonb NOT NULL", events)}

    def check(judge: Judge) -> None:
        rows = judge.rows(f"SELECT id, kind, {key}, user_id, tag_count, document::text FROM @events")
        judge.need(judge.kind("events") == "r", "events is no table any more")
        found = [(*row[:5], json.dumps(json.loads(str(row[5])), sort_keys=True)) for row in rows]
        judge.need(sorted(found) == sorted(wanted), "the rows of events are not as asked")
        columns = judge.columns("events")
        types = [columns[name] for name in ("kind", key, "user_id", "tag_count", "document")]
        judge.need(
            types == ["text", "numeric(10,2)", "integer", "integer", "jsonb"], f"the types are {types}"
        )
        judge.needs_refused("UPDATE @events SET kind = NULL WHERE id = 1")
        judge.needs_refused("UPDATE @events SET tag_count = NULL WHERE id = 1")

    return PostgresTask(
        f"Take columns out of events.document: kind text, {key} numeric(10,2), user_id integer and "
        f"tag_count integer. kind and "
        f"{key} are keys of the document ({key} is sometimes a number, sometimes a number in a string, "
        f"sometimes null or "
        "absent: then NULL); user_id is the id inside user, NULL where there is none; tag_count is the "
        "length of tags, 0 "
        f"where there are none. kind and tag_count must not be NULL. Then remove the keys kind and {key}, "
        f"and no "
        "others, from the documents.",
        tables,
        check,
        [
            f"ALTER TABLE events ADD kind text, ADD {key} numeric(10,2), ADD user_id integer, ADD tag_count "
            f"integer",
            f"UPDATE events SET kind = document ->> 'kind', {key} = (document ->> '{key}')::numeric, "
            f"user_id = (document #>> "
            "'{user,id}')::integer, tag_count = coalesce(jsonb_array_length(document -> 'tags'), 0), "
            "document = document - "
            f"'kind' - '{key}'",
            "ALTER TABLE events ALTER kind SET NOT NULL, ALTER tag_count SET NOT NULL",
        ],
    )
