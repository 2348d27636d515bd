"""The families of database tasks: their solutions earn, doing nothing and doing it wrong do not."""

import contextlib
import re
from dataclasses import replace
from importlib.resources import files
from inspect import getsource

import pytest

from gem.envs.database.mcp_tasks import FAMILIES, GROUPS, Judge, Refused, Wrong
from gem.envs.database.mcp_tasks.base import task, texts
from gem.errors import NoVerdict, ToolError
from gem.seeding import stream

OWN = "DO $$ BEGIN EXECUTE format('GRANT CREATE, TEMP ON DATABASE %1$I TO %1$I', current_database()); END $$"

REPLACED = {
    "AuditLog": (r"IF TG_OP <> .* THEN", "IF true THEN"),
    "Backfill": (r" WHERE billed IS NULL", ""),
    "Balances": (r"INSERT OR UPDATE OR DELETE", "INSERT OR DELETE"),
    "CompatibleView": (r"AS SELECT id", "AS SELECT DISTINCT id"),
    "Constraints": (r"IS NOT TRUE", "= false"),
    "Deduplicate": (r"\(lower\(email\)\)", "(email)"),
    "EnumColumn": (r"ALTER state SET NOT NULL, ", ""),
    "ForeignKeys": (r"ON DELETE CASCADE", ""),
    "FunctionContract": (r"STABLE STRICT", "STABLE"),
    "GeneratedColumn": (r"GENERATED ALWAYS AS .* STORED", "DEFAULT 0"),
    "Grants": (r"^REVOKE .*", "SELECT 1"),
    "GuardedFunction": (r"^REVOKE .*", "SELECT 1"),
    "IndexPlan": (r"\(at\) WHERE state = 'open'", "(state, at)"),
    "JsonColumns": (r"- 'kind'", "- 'kind' - 'user'"),
    "MaskedView": (r"GRANT SELECT ON \w+ TO", "GRANT SELECT ON ALL TABLES IN SCHEMA @schema TO"),
    "MaterializedView": (r"UNIQUE INDEX", "INDEX"),
    "MergeFeed": (r"line DESC", "line"),
    "MigrateColumn": (r"CASE WHEN .* END", "'EUR'"),
    "NoOverlap": (r"(ADD EXCLUDE .*) WHERE .*", r"\1"),
    "Normalise": (r"b\.email = buyer_email", "b.name = buyer_name"),
    "Partition": (r".*PARTITION OF readings DEFAULT", "SELECT 1"),
    "RepairLedger": (r"first\.id < e\.id", "first.id > e.id"),
    "RowSecurity": (r".*ENABLE ROW LEVEL SECURITY", "SELECT 1"),
    "Sequences": (r".*'products'.*", "SELECT 1"),
    "RevenueView": (r"LEFT JOIN", "JOIN"),
    "Gaps": (r"- 1 AS missing", "AS missing"),
    "Hierarchy": (r"count\(\*\) - 1", "count(*)"),
    "CarryForward": (r"ORDER BY at DESC", "ORDER BY at"),
    "SlowView": (r"rank\(\)", "row_number()"),
}
"""What is wrong with each solution, as a pattern in its statements and what stands there instead."""

QUICK = ("Deduplicate", "ForeignKeys", "Grants", "RevenueView")
"""One family of each file is always played; the others are slow together."""

SLOW_BUT_QUICK = [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in FAMILIES]

VIEWS = ("CarryForward", "Gaps", "Hierarchy", "MaskedView", "MaterializedView", "RevenueView", "SlowView")


def as_it_was(statements):
    """Return a solution whose views show what was there once, and nothing that comes later."""
    made = r"CREATE (?:OR REPLACE |MATERIALIZED )*VIEW (\w+) AS"
    once = []
    for sql in statements:
        if found := re.match(made, sql):
            once.append(re.sub(made, "CREATE TABLE once AS", sql))
            sql = f"{found[0]} SELECT * FROM once"
        once.append(sql)
    return once


def test_every_family_fills_the_texts_of_its_file_and_no_file_is_left_over():
    folder = files("gem.envs.database.mcp_tasks")
    left = {path.name for path in folder.iterdir() if path.name.endswith(".toml")}
    for family in FAMILIES.values():
        for seed in range(3):
            drawn = family.draw(stream(seed))
            assert not re.search(r"\{\w+\}", "".join([drawn.instruction, *drawn.solution, *drawn.setup]))
            assert "\n\n" not in drawn.instruction
        name = family.make.__name__
        left.remove(f"{name}.toml")
        source = getsource(family.make)
        read = {*re.findall(rf'texts\("{name}"\)\["(\w+)"\]', source)}
        for shared in re.findall(rf'(\w+)\(\s*"{name}"', source):  # a function that is given the text's name
            read |= {*re.findall(r'texts\(text\)\["(\w+)"\]', getsource(family.make.__globals__[shared]))}
        assert texts(name).keys() - {"setup"} == ({"instruction", "solution"} | read) - {"setup"}
    assert not left


@pytest.mark.parametrize(
    "values", [{"name": "a", "hours": 1}, {"name": "a", "hours": 1, "query": "", "more": 1}]
)
def test_a_value_too_few_or_too_many_for_a_text_is_an_error(values):
    with pytest.raises(ValueError, match=r"gaps\.toml: the fields are \['hours', 'name', 'query'\]"):
        task("gaps", {}, print, **values)


@pytest.fixture(scope="module")
def postgres(postgres_dsn):
    from gem.envs.database.postgres import Server

    found = Server(postgres_dsn)
    found.shared_roles(GROUPS)
    yield found
    found.close()


@pytest.fixture
def judged(postgres):
    """Return a function that plays tries, each a task and statements, and says what is wrong with each."""
    from gem.tools.postgres import Connection, SqlError

    with contextlib.ExitStack() as stack:

        def judged(*tries):
            database = postgres.open(OWN, plpgsql=True)
            stack.callback(database.close)
            for task, statements in tries:
                with contextlib.closing(Connection(database.dsn)) as agent:
                    agent.script(";\n".join(task.script()))
                    for sql in [f"SET search_path = {task.schema}", *statements]:
                        with contextlib.suppress(ToolError):
                            agent.run(sql.replace("@schema", task.schema), 20.0)
            access = postgres.judge(database, GROUPS)
            stack.callback(access.close)
            connection = stack.enter_context(contextlib.closing(Connection(access.dsn)))

            def send(sql):
                try:
                    return connection.run(sql, 20.0, 100_000).rows
                except SqlError as error:
                    raise Refused(str(error), error.sqlstate) from error

            said = []
            for task, _ in tries:
                send("BEGIN")
                try:
                    said.append(task.check(Judge(send, task.schema)) or "")
                except (Wrong, Refused) as error:
                    said.append(str(error.args[0]))
                send("ROLLBACK")
            return said

        yield judged


def draw(name, seed=0):
    return FAMILIES[name].draw(stream(seed, name))


@pytest.mark.parametrize("name", SLOW_BUT_QUICK)
def test_the_solution_is_right_and_neither_nothing_nor_a_mistake_is(judged, name):
    tasks = [draw(name, seed) for seed in range(4)]
    pattern, instead = REPLACED[name]
    wrong = [re.sub(pattern, instead, sql, flags=re.MULTILINE) for sql in tasks[2].solution]
    assert wrong != tasks[2].solution
    tries = [(tasks[0], tasks[0].solution), (tasks[1], []), (tasks[2], wrong)]
    if name in VIEWS:
        tries.append((tasks[3], as_it_was(tasks[3].solution)))
    right, *others = judged(*tries)
    assert right == ""
    assert all(others), others


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_more_seeds_are_solved(judged, name):
    tasks = [draw(name, seed) for seed in range(10, 22)]
    assert judged(*((task, task.solution) for task in tasks)) == [""] * len(tasks)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_is_a_task_and_another_seed_another(name):
    assert draw(name, 1).script() == draw(name, 1).script()
    tasks = [draw(name, seed) for seed in range(6)]
    assert len({task.instruction for task in tasks}) == len(tasks)
    assert len({tuple(task.script()) for task in tasks}) == len(tasks)


def test_families_are_of_two_levels():
    assert {family.level for family in FAMILIES.values()} == {"easy", "hard"}
    assert len(FAMILIES) >= 20


# -- what a verifier must not fall for


def test_a_view_that_poses_as_a_table_is_none(judged):
    tasks = [draw("RevenueView", seed) for seed in range(2)]
    posing = [
        "ALTER TABLE items RENAME TO things",
        "CREATE VIEW items AS SELECT * FROM things",
        *tasks[0].solution,
    ]
    hidden = [*tasks[1].solution, "DELETE FROM items WHERE order_id = 1"]
    posed, emptied = judged((tasks[0], posing), (tasks[1], hidden))
    assert posed == "items is no such table as is asked for"
    assert emptied.startswith("the rows of items are not as asked")


def test_rows_that_can_no_longer_be_changed_do_not_hide_a_copy_of_the_answer(judged):
    task = draw("Hierarchy")
    block = [
        "CREATE FUNCTION block() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER block BEFORE INSERT OR UPDATE OR DELETE ON employees FOR EACH ROW EXECUTE FUNCTION "
        "block()",
    ]
    said = judged((task, [*as_it_was(task.solution), *block]))
    assert said == ["the rows that the task began with cannot be changed any more"]


def test_values_of_a_kind_that_nobody_expects_are_wrong_and_no_accident(judged):
    refund, events = draw("GuardedFunction"), draw("JsonColumns")
    nothing = [re.sub("RETURN entry", "RETURN NULL", sql) for sql in refund.solution]
    odd = [
        *events.solution,
        "ALTER TABLE events DROP CONSTRAINT events_pkey, ALTER id DROP NOT NULL",
        "ALTER TABLE events ALTER document DROP NOT NULL",
        "UPDATE events SET id = 1, document = NULL WHERE id < 9",
        "UPDATE events SET id = NULL WHERE id = 9",
    ]
    returned, others = judged((refund, nothing), (events, odd))
    assert returned.endswith("returns None, not the new entry's id")
    assert others.startswith("the rows of events are not as asked")


def test_functions_of_the_agent_that_are_named_as_postgresqls_do_not_judge(judged):
    task = draw("Backfill")
    evil = [
        "CREATE FUNCTION {}.round(numeric, integer) RETURNS numeric LANGUAGE sql AS 'SELECT 0.0'",
        "CREATE FUNCTION {}.format_type(oid, integer) RETURNS text LANGUAGE sql AS $$SELECT "
        "'numeric(12,2)'$$",
        "CREATE FUNCTION {0}.same(numeric, integer) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR {0}.= (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = {0}.same)",
    ]
    statements = [sql.format(task.schema) for sql in evil]
    assert judged((task, statements))[0].startswith("the rows of orders are not as asked")


def test_what_the_agents_code_sets_while_it_is_judged_lasts_for_no_other_query(judged):
    trap = """CREATE FUNCTION trap() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN
        PERFORM set_config('search_path', 'pg_temp, public', false), set_config('row_security', 'off', false);
        CREATE TEMP TABLE pg_class AS SELECT oid, relname, relnamespace, 'v' AS relkind
        FROM pg_catalog.pg_class;
        SET ROLE gem_clerk; RETURN 1; END $$"""

    def check(judge):
        assert judge.rows("SELECT trapped FROM @sprung") == [(1,)]
        settings = (
            "current_setting('search_path'), current_setting('row_security'), current_user = session_user"
        )
        assert judge.rows(f"SELECT {settings}") == [("pg_catalog, pg_temp", "on", True)]
        assert judge.kind("items") == "r"

    task = replace(draw("RevenueView"), check=check)
    assert judged((task, [trap, "CREATE VIEW sprung AS SELECT trap() AS trapped"])) == [""]


def test_the_judge_may_do_what_the_agent_may_and_no_more(postgres):
    from gem.tools.postgres import Connection

    database = postgres.open(OWN, plpgsql=True)
    agent = Connection(database.dsn)
    access = postgres.judge(database, GROUPS)
    judge = Connection(access.dsn)
    try:
        assert (
            judge.value(
                "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
            )
            is False
        )
        assert judge.value("SELECT pg_has_role(current_user, current_database(), 'USAGE')") is True
        with pytest.raises(NoVerdict, match="ended the connection"):
            agent.value("SELECT 1")
    finally:
        judge.close()
        agent.close()
        database.close()
        access.close()
    with contextlib.closing(Connection(postgres.dsn)) as admin:
        left = f"SELECT count(*) FROM pg_roles WHERE rolname IN ('{database.name}', '{access.name}')"
        assert admin.value(left) == 0
