"""Tasks about reading: views and reports that follow the rows, and plans that use an index."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from gem.envs.mcp_postgres_tasks.base import Judge, PostgresTask, Table
from gem.envs.mcp_postgres_tasks.worlds import CATEGORIES, STATUSES, fleet, shop, staff

_SHOP_CHANGES = (
    "UPDATE @items SET quantity = quantity + 1 WHERE order_id % 3 = 0",
    "UPDATE @orders SET status = 'cancelled' WHERE id % 4 = 0",
    "UPDATE @orders SET status = 'paid', placed_on = placed_on + 40",
    "DELETE FROM @items WHERE product_id < 6",
    "INSERT INTO @customers VALUES (77, 'Zoe', 'zoe@example.org', 'Rome', '2025-01-01')",
)


def revenue_view(rng: Random) -> PostgresTask:
    """Write a view that sums over several tables and keeps those without sales."""
    world = shop(rng)
    name = rng.choice(["customer_revenue", "customer_totals", "customer_sales"])
    since = f"2025-{rng.randint(2, 6):02d}-01"
    status = rng.choice(["cancelled", "new"])
    query = """SELECT c.id AS customer_id, c.name, count(DISTINCT o.id) AS orders,
        coalesce(sum(i.quantity * i.unit_price), 0) AS revenue FROM {0}customers c
        LEFT JOIN {0}orders o ON o.customer_id = c.id AND o.status <> '{1}' AND o.placed_on >= '{2}'
        LEFT JOIN {0}items i ON i.order_id = o.id GROUP BY c.id, c.name"""

    def check(judge: Judge) -> None:
        judge.untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        reference = query.format("@", status, since)
        judge.follows(name, "customer_id, name, orders, revenue", reference, *_SHOP_CHANGES)

    return PostgresTask(
        f"Write a view {name} (customer_id, name, orders, revenue) with one row for each customer: how "
        f"many orders they have placed since {since} (that day included), and the sum of quantity times "
        f"unit_price over these orders' items. Orders with the status {status!r} do not count. Customers "
        "without such orders have 0 and 0; an order without items is an order.",
        world,
        check,
        [f"CREATE VIEW {name} AS {query.format('', status, since)}"],
    )


def hierarchy(rng: Random) -> PostgresTask:
    """Report on a tree of people by recursion."""
    world = staff(rng)
    name = rng.choice(["org_chart", "org_report", "reporting_lines"])
    arrow = rng.choice([" > ", " / ", " -> "])
    query = """WITH RECURSIVE tree AS (
        SELECT id, 0 AS depth, name AS path, ARRAY[id] AS line FROM {0}employees WHERE manager_id IS NULL
        UNION ALL SELECT e.id, t.depth + 1, t.path || '{1}' || e.name, t.line || e.id
        FROM {0}employees e JOIN tree t ON e.manager_id = t.id)
        SELECT t.id, t.depth, t.path, count(*) - 1 AS staff, sum(e.salary) AS payroll FROM tree t
        JOIN tree below ON t.id = ANY (below.line) JOIN {0}employees e ON e.id = below.id
        GROUP BY t.id, t.depth, t.path"""

    def check(judge: Judge) -> None:
        judge.untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(
            name,
            "id, depth, path, staff, payroll",
            query.format("@", arrow),
            "UPDATE @employees SET salary = salary + id",
            "UPDATE @employees SET manager_id = 2 WHERE id > 30",
            "UPDATE @employees SET manager_id = NULL WHERE id = 2",
            "INSERT INTO @employees SELECT id + 100, 'N' || id, 1, CASE id WHEN 1 THEN 40 ELSE id + 99 "
            "END, 10, hired_on FROM @employees WHERE id < 8",
        )

    return PostgresTask(
        f"Write a view {name} (id, depth, path, staff, payroll) with one row for each employee: depth is 0 "
        "for who has no manager, and one more than the manager's for the others; path are the names from "
        f"the top down to the employee, joined by {arrow!r}; staff is the number of people under them, "
        "direct or not; payroll is the sum of their own salary and of those under them. The tree may "
        "become deeper than it is.",
        world,
        check,
        [f"CREATE VIEW {name} AS {query.format('', arrow)}"],
    )


def materialized(rng: Random) -> PostgresTask:
    """Make a materialised view that can be refreshed while it is read."""
    world = shop(rng)
    name = rng.choice(["monthly_sales", "sales_by_month", "month_report"])
    statuses = ", ".join(f"'{status}'" for status in sorted(rng.sample(STATUSES[2:] + STATUSES[:1], 2)))
    query = """SELECT date_trunc('month', o.placed_on)::date AS month, p.category,
        sum(i.quantity) AS units, sum(i.quantity * i.unit_price) AS revenue
        FROM {0}orders o JOIN {0}items i ON i.order_id = o.id JOIN {0}products p ON p.id = i.product_id
        WHERE o.status IN ({1}) GROUP BY 1, 2"""

    def check(judge: Judge) -> None:
        judge.untouched(world)
        judge.need(judge.kind(name) == "m", f"{name} is no materialized view")
        refresh = f"REFRESH MATERIALIZED VIEW CONCURRENTLY @{name}"
        judge.needs_accepted(refresh)
        reference = query.format("@", statuses)
        judge.follows(name, "month, category, units, revenue", reference, *_SHOP_CHANGES, refresh=refresh)

    return PostgresTask(
        f"Make a materialized view {name} (month, category, units, revenue), filled, with one row for each "
        "month and category of product in which there were sales: month is a date, the month's first day, "
        "by placed_on; units is the sum of quantity, revenue that of quantity times unit_price. Only "
        f"orders with one of the statuses {statuses} count. It must be possible to REFRESH it CONCURRENTLY.",
        world,
        check,
        [
            f"CREATE MATERIALIZED VIEW {name} AS {query.format('', statuses)}",
            f"CREATE UNIQUE INDEX ON {name} (month, category)",
        ],
    )


def gaps(rng: Random) -> PostgresTask:
    """Find the gaps of time series."""
    world = fleet(rng, 0.8)
    name = rng.choice(["gaps", "outages", "silences"])
    hours = rng.randint(1, 2)
    query = """SELECT d.name AS device, g.at AS last_seen, g.later AS seen_again,
        extract(epoch FROM g.later - g.at)::integer / 3600 - 1 AS missing
        FROM (SELECT device_id, at, lead(at) OVER (PARTITION BY device_id ORDER BY at) AS later
        FROM {0}readings) g
        JOIN {0}devices d ON d.id = g.device_id WHERE g.later - g.at > interval '{1} hours'"""

    def check(judge: Judge) -> None:
        judge.untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(
            name,
            "device, last_seen, seen_again, missing",
            query.format("@", hours),
            "DELETE FROM @readings WHERE extract(hour FROM at) IN (1, 2, 20)",
            "INSERT INTO @readings SELECT id, timestamp '2025-09-09 09:00', 1 FROM @devices",
            "UPDATE @devices SET name = name || 'x'",
        )

    return PostgresTask(
        f"Every device should have a reading every hour, on the hour. Write a view {name} (device, "
        f"last_seen, seen_again, missing) with one row for each gap in which {hours} or more readings of a "
        "device are missing: the device's name, the time of the reading before the gap and of the one "
        "after it, and how many are missing, an integer. What comes before a device's first reading and "
        "after its last is no gap.",
        world,
        check,
        [f"CREATE VIEW {name} AS {query.format('', hours)}"],
    )


def carry_forward(rng: Random) -> PostgresTask:
    """Fill a series for every hour, carrying the last value forward."""
    world = fleet(rng, 0.7)
    name = rng.choice(["hourly", "every_hour", "filled"])
    first = f"2025-{rng.choice(['01', '03', '04'])}-28 20:00"
    last = f"{first[:8]}29 {rng.randint(6, 12):02d}:00"
    query = """SELECT d.id AS device_id, h.hour, r.value, coalesce(r.at = h.hour, false) AS measured
        FROM {0}devices d CROSS JOIN
        generate_series(timestamp '{1}', timestamp '{2}', interval '1 hour') AS h(hour)
        LEFT JOIN LATERAL (SELECT at, value FROM {0}readings WHERE device_id = d.id AND at <= h.hour
        ORDER BY at DESC LIMIT 1) r ON true"""

    def check(judge: Judge) -> None:
        judge.untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(
            name,
            "device_id, hour, value, measured",
            query.format("@", first, last),
            "DELETE FROM @readings WHERE extract(hour FROM at) IN (21, 3, 4)",
            "DELETE FROM @readings WHERE device_id = 3",
            "UPDATE @readings SET value = value + 1",
        )

    return PostgresTask(
        f"Write a view {name} (device_id, hour, value, measured) with one row for every device and every "
        f"full hour from {first} to {last}, both included: value is that of the device's reading at that "
        "hour, or else of its last one before (also from before the first hour), or NULL where there is "
        "none; measured is true where there is a reading at that very hour, else false.",
        world,
        check,
        [f"CREATE VIEW {name} AS {query.format('', first, last)}"],
    )


def _plan(judge: Judge, query: str) -> list[dict[str, Any]]:
    """Return the nodes of a query's plan."""
    nodes = [json.loads(judge.value(f"EXPLAIN (FORMAT JSON) {query}"))[0]["Plan"]]
    for node in nodes:
        nodes.extend(node.get("Plans", ()))
    return nodes


def index_plan(rng: Random) -> PostgresTask:
    """Index a table such that three queries need not read all of it."""
    rows = rng.randrange(20_000, 24_000)
    event_rows = (
        "INSERT INTO events SELECT i, 'User' || i * 7919 % 9973 || '@Example.org', 'kind-' || i * 31 % "
        "400, CASE WHEN i % 500 = 0 THEN 'open' ELSE 'done' END, timestamp '2025-01-01' + i * interval '1 "
        f"minute' FROM generate_series(1, {rows}) AS s(i)"
    )
    ddl = "id integer PRIMARY KEY,\nemail text NOT NULL,\nkind text NOT NULL,\nstate text NOT NULL,\n"
    ddl += "at timestamp NOT NULL"
    user, kind = rng.randrange(1, 9000), rng.randrange(400)
    queries = [
        "SELECT id FROM {}events WHERE lower(email) = 'user" + str(user) + "@example.org'",
        "SELECT id, at FROM {}events WHERE kind = 'kind-" + str(kind) + "' ORDER BY at DESC LIMIT 5",
        "SELECT id FROM {}events WHERE state = 'open' ORDER BY at",
    ]
    tables = {"events": Table(ddl, [])}

    def check(judge: Judge) -> None:
        judge.need(judge.kind("events") == "r", "events is no table any more")
        facts = "SELECT count(*), sum(id), count(DISTINCT email), count(*) FILTER (WHERE state = 'open') "
        facts += "FROM @events"
        emails = len({i * 7919 % 9973 for i in range(1, rows + 1)})
        judge.gives(
            facts, [(rows, rows * (rows + 1) // 2, emails, rows // 500)], "the rows of events are others"
        )
        for query in queries:
            nodes = _plan(judge, query.format("@"))
            whole = any(node["Node Type"] == "Seq Scan" for node in nodes)
            judge.need(not whole, f"the plan reads the whole table: {query.format('')}")
            judge.need(
                not any(node["Node Type"] == "Sort" for node in nodes), f"the plan sorts: {query.format('')}"
            )
        size = judge.value(
            "SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indrelid = "
            f"'{judge.schema}.events'::regclass AND pg_get_expr(indpred, indrelid) IS NOT NULL"
        )
        judge.need(size is not None, "no index holds the open events alone")

    return PostgresTask(
        "These queries on events are slow, and are asked with other values too:\n"
        + "\n".join(f"- {query.format('')}" for query in queries)
        + "\nCreate indexes such that the plan of each finds its rows by an index, without reading the whole "
        "table and without a sort. Since nearly all events are done, the index for the last query should "
        "hold the open ones alone. Change no rows.",
        tables,
        check,
        [
            "CREATE INDEX ON events (lower(email))",
            "CREATE INDEX ON events (kind, at)",
            "CREATE INDEX ON events (at) WHERE state = 'open'",
            "ANALYZE events",
        ],
        setup=[event_rows, "ANALYZE events"],
    )


def slow_view(rng: Random) -> PostgresTask:
    """Rewrite a view that computes every row anew, with the same result."""
    products, sold = rng.randrange(60, 90), rng.randrange(1_500, 1_900)
    name = rng.choice(["best_sellers", "product_ranks", "sales_ranks"])
    slow = """SELECT p.id, p.category,
        (SELECT coalesce(sum(s.units), 0) FROM {0}sold s WHERE s.product_id = p.id) AS units,
        (SELECT max(s.sold_on) FROM {0}sold s WHERE s.product_id = p.id) AS last_sold,
        (SELECT count(*) + 1 FROM {0}products o WHERE o.category = p.category
          AND (SELECT coalesce(sum(s.units), 0) FROM {0}sold s WHERE s.product_id = o.id)
            > (SELECT coalesce(sum(s.units), 0) FROM {0}sold s WHERE s.product_id = p.id)) AS place
        FROM {0}products p WHERE p.id NOT IN (SELECT product_id FROM {0}withdrawn)"""
    fast = """WITH sums AS (
        SELECT p.id, p.category, coalesce(sum(s.units), 0) AS units, max(s.sold_on) AS last_sold
        FROM {0}products p LEFT JOIN {0}sold s ON s.product_id = p.id GROUP BY p.id, p.category)
        SELECT * FROM (SELECT *, rank() OVER (PARTITION BY category ORDER BY units DESC) AS place
        FROM sums) ranked
        WHERE NOT EXISTS (SELECT FROM {0}withdrawn w WHERE w.product_id = ranked.id)"""
    gone = sorted(rng.sample(range(1, products), 9))
    tables = {
        "products": Table(
            "id integer PRIMARY KEY,\ncategory text NOT NULL",
            [(i, rng.choice(CATEGORIES)) for i in range(1, products + 1)],
        ),
        "withdrawn": Table("product_id integer NOT NULL REFERENCES products", [(i,) for i in gone]),
        "sold": Table("product_id integer NOT NULL,\nunits integer NOT NULL,\nsold_on date NOT NULL", []),
    }
    fill = (
        f"INSERT INTO sold SELECT 1 + i * 7919 % {products - 5}, 1 + i * 31 % 17, date '2025-01-01' + i % "
        f"300 FROM generate_series(1, {sold}) AS s(i)"
    )

    def check(judge: Judge) -> None:
        judge.untouched(tables, "products", "withdrawn")
        facts = "SELECT count(*), sum(units), count(DISTINCT product_id) FROM @sold"
        units = sum(1 + i * 31 % 17 for i in range(1, sold + 1))
        judge.gives(facts, [(sold, units, products - 5)], "the rows of sold are others")
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(
            name,
            "id, category, units, last_sold, place",
            fast.format("@"),
            "UPDATE @sold SET units = units + 40 WHERE product_id % 7 = 0",
            "DELETE FROM @sold WHERE product_id < 15",
            "INSERT INTO @withdrawn SELECT id FROM @products WHERE id % 3 = 0",
        )
        cost = _plan(judge, f"SELECT * FROM @{name}")[0]["Total Cost"]
        limit = 4 * _plan(judge, fast.format("@"))[0]["Total Cost"]
        judge.need(cost <= limit, f"the plan of {name} still costs {cost:.0f}; at most {limit:.0f} is wanted")

    return PostgresTask(
        f"The view {name} is far too slow: it adds up the same sales again and again. Rewrite it with the "
        "same columns and the same result, also when rows change, such that each table is read no more "
        "than once or twice; no index is needed. It must stay a view, and the tables as they are.",
        tables,
        check,
        [f"CREATE OR REPLACE VIEW {name} AS {fast.format('')}"],
        setup=[fill, "ANALYZE", f"CREATE VIEW {name} AS {slow.format('')}"],
    )
