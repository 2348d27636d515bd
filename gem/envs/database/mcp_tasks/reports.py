"""Tasks about reading: views and reports that stay up to date, and query plans that use an index."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from gem.envs.database.mcp_tasks.base import Judge, PostgresTask, Table, load_tables, task, texts
from gem.envs.database.mcp_tasks.worlds import CATEGORIES, STATUSES, fleet, shop, staff

_SHOP_CHANGES = (
    "UPDATE @items SET quantity = quantity + 1 WHERE order_id % 3 = 0",
    "UPDATE @orders SET status = 'cancelled' WHERE id % 4 = 0",
    "UPDATE @orders SET status = 'paid', placed_on = placed_on + 40",
    "DELETE FROM @items WHERE product_id < 6",
    "INSERT INTO @customers VALUES (77, 'Zoe', 'zoe@example.org', 'Rome', '2025-01-01')",
)


def _view_task(
    text: str, world: dict[str, Table], name: str, columns: str, *changes: str, **values: Any
) -> PostgresTask:
    """Return the task to write the view `name`, which is to give what the text's query gives.

    `values` are those of the fields of the text and the query; `changes` are tried as in `Judge.follows`.
    """
    query = texts(text)["query"].format(**values)

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(name, columns, query, *changes)

    return task(text, world, check, name=name, query=query.replace("@", ""), **values)


def revenue_view(rng: Random) -> PostgresTask:
    """Write a view that sums over several tables and keeps those without sales."""
    world = shop(rng)
    name = rng.choice(["customer_revenue", "customer_totals", "customer_sales"])
    values = {"since": f"2025-{rng.randint(2, 6):02d}-01", "status": rng.choice(["cancelled", "new"])}
    return _view_task(
        "revenue_view", world, name, "customer_id, name, orders, revenue", *_SHOP_CHANGES, **values
    )


def hierarchy(rng: Random) -> PostgresTask:
    """Report on a hierarchy of people with a recursive query."""
    world = staff(rng)
    name = rng.choice(["org_chart", "org_report", "reporting_lines"])
    return _view_task(
        "hierarchy",
        world,
        name,
        "id, depth, path, staff, payroll",
        "UPDATE @employees SET salary = salary + id",
        "UPDATE @employees SET manager_id = 2 WHERE id > 30",
        "UPDATE @employees SET manager_id = NULL WHERE id = 2",
        "INSERT INTO @employees SELECT id + 100, 'N' || id, 1, CASE id WHEN 1 THEN 40 ELSE id + 99 "
        "END, 10, hired_on FROM @employees WHERE id < 8",
        arrow=rng.choice([" > ", " / ", " -> "]),
    )


def materialized_view(rng: Random) -> PostgresTask:
    """Make a materialised view that can be refreshed while it is read."""
    world = shop(rng)
    name = rng.choice(["monthly_sales", "sales_by_month", "month_report"])
    statuses = ", ".join(f"'{status}'" for status in sorted(rng.sample(STATUSES[2:] + STATUSES[:1], 2)))
    query = texts("materialized_view")["query"].format(statuses=statuses)

    def check(judge: Judge) -> None:
        judge.needs_untouched(world)
        judge.need(judge.kind(name) == "m", f"{name} is no materialized view")
        refresh = f"REFRESH MATERIALIZED VIEW CONCURRENTLY @{name}"
        judge.needs_accepted(refresh)
        judge.follows(name, "month, category, units, revenue", query, *_SHOP_CHANGES, refresh=refresh)

    return task("materialized_view", world, check, name=name, statuses=statuses, query=query.replace("@", ""))


def gaps(rng: Random) -> PostgresTask:
    """Find the gaps of time series."""
    world = fleet(rng, 0.8)
    name = rng.choice(["gaps", "outages", "silences"])
    return _view_task(
        "gaps",
        world,
        name,
        "device, last_seen, seen_again, missing",
        "DELETE FROM @readings WHERE extract(hour FROM at) IN (1, 2, 20)",
        "INSERT INTO @readings SELECT id, timestamp '2025-09-09 09:00', 1 FROM @devices",
        "UPDATE @devices SET name = name || 'x'",
        hours=rng.randint(1, 2),
    )


def carry_forward(rng: Random) -> PostgresTask:
    """Fill a series for every hour, carrying the last value forward."""
    world = fleet(rng, 0.7)
    name = rng.choice(["hourly", "every_hour", "filled"])
    first = f"2025-{rng.choice(['01', '03', '04'])}-28 20:00"
    return _view_task(
        "carry_forward",
        world,
        name,
        "device_id, hour, value, measured",
        "DELETE FROM @readings WHERE extract(hour FROM at) IN (21, 3, 4)",
        "DELETE FROM @readings WHERE device_id = 3",
        "UPDATE @readings SET value = value + 1",
        first=first,
        last=f"{first[:8]}29 {rng.randint(6, 12):02d}:00",
    )


def _plan(judge: Judge, query: str) -> list[dict[str, Any]]:
    """Return the nodes of a query's plan."""
    nodes = [json.loads(judge.value(f"EXPLAIN (FORMAT JSON) {query}"))[0]["Plan"]]
    for node in nodes:
        nodes.extend(node.get("Plans", ()))
    return nodes


def index_plan(rng: Random) -> PostgresTask:
    """Index a table so that three queries do not read all of it."""
    rows = rng.randrange(20_000, 24_000)
    user, kind = rng.randrange(1, 9000), rng.randrange(400)
    queries = texts("index_plan")["queries"].strip().format(user=user, kind=kind).splitlines()
    tables = load_tables("index_plan", events=[])

    def check(judge: Judge) -> None:
        judge.need(judge.kind("events") == "r", "events is no table any more")
        facts = "SELECT count(*), sum(id), count(DISTINCT email), count(*) FILTER (WHERE state = 'open') "
        facts += "FROM @events"
        emails = len({i * 7919 % 9973 for i in range(1, rows + 1)})
        judge.gives(
            facts, [(rows, rows * (rows + 1) // 2, emails, rows // 500)], "the rows of events are others"
        )
        for query in queries:
            nodes = _plan(judge, query)
            whole = any(node["Node Type"] == "Seq Scan" for node in nodes)
            judge.need(not whole, f"the plan reads the whole table: {query.replace('@events', 'events')}")
            judge.need(
                not any(node["Node Type"] == "Sort" for node in nodes),
                f"the plan sorts: {query.replace('@events', 'events')}",
            )
        size = judge.value(
            "SELECT sum(pg_relation_size(indexrelid)) FROM pg_index WHERE indrelid = "
            f"'{judge.schema}.events'::regclass AND pg_get_expr(indpred, indrelid) IS NOT NULL"
        )
        judge.need(size is not None, "no index holds the open events alone")

    query_list = "\n".join(f"- {query.replace('@events', 'events')}" for query in queries)
    return task("index_plan", tables, check, rows=rows, queries=query_list)


def slow_view(rng: Random) -> PostgresTask:
    """Rewrite a view that computes every row anew, with the same result."""
    products, sold = rng.randrange(60, 90), rng.randrange(1_500, 1_900)
    name = rng.choice(["best_sellers", "product_ranks", "sales_ranks"])
    fast, slow = texts("slow_view")["fast"], texts("slow_view")["slow"]
    gone = sorted(rng.sample(range(1, products), 9))
    tables = load_tables(
        "slow_view",
        products=[(i, rng.choice(CATEGORIES)) for i in range(1, products + 1)],
        withdrawn=[(i,) for i in gone],
        sold=[],
    )

    def check(judge: Judge) -> None:
        judge.needs_untouched(tables, "products", "withdrawn")
        facts = "SELECT count(*), sum(units), count(DISTINCT product_id) FROM @sold"
        units = sum(1 + i * 31 % 17 for i in range(1, sold + 1))
        judge.gives(facts, [(sold, units, products - 5)], "the rows of sold are others")
        judge.need(judge.kind(name) == "v", f"{name} is no view")
        judge.follows(
            name,
            "id, category, units, last_sold, place",
            fast,
            "UPDATE @sold SET units = units + 40 WHERE product_id % 7 = 0",
            "DELETE FROM @sold WHERE product_id < 15",
            "INSERT INTO @withdrawn SELECT id FROM @products WHERE id % 3 = 0",
        )
        cost = _plan(judge, f"SELECT * FROM @{name}")[0]["Total Cost"]
        limit = 4 * _plan(judge, fast)[0]["Total Cost"]
        judge.need(cost <= limit, f"the plan of {name} still costs {cost:.0f}; at most {limit:.0f} is wanted")

    return task(
        "slow_view",
        tables,
        check,
        name=name,
        fast=fast.replace("@", ""),
        sold=sold,
        sold_products=products - 5,
        slow=slow.replace("@", ""),
    )
