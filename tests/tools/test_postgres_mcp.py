"""What gem's MCP server for PostgreSQL answers, without a client."""

import asyncio

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed")

from mcp.shared.exceptions import MCPError

from gem.tools.mcp_server import postgres_mcp


@pytest.fixture(scope="module")
def database(postgres_dsn):
    from gem.envs.database.postgres import Server

    server = Server(postgres_dsn)
    own = "GRANT CREATE ON SCHEMA public TO PUBLIC"
    yield server.open(own)
    server.close()


@pytest.fixture
def ask(database, monkeypatch):
    monkeypatch.setenv(postgres_mcp.VARIABLE, database.dsn)
    postgres_mcp._connection.cache_clear()

    def ask(tool, /, **arguments):
        return asyncio.run(postgres_mcp.app.call_tool(tool, arguments)).content[0].text

    yield ask
    if postgres_mcp._connection.cache_info().currsize:
        postgres_mcp._connection().close()
    postgres_mcp._connection.cache_clear()


def test_what_is_in_a_database_is_told(ask):
    ask(
        "execute_sql", sql="CREATE TABLE a (id integer PRIMARY KEY, note text DEFAULT 'x' CHECK (note <> ''))"
    )
    ask("execute_sql", sql='CREATE TABLE "it\'s" (a_id integer REFERENCES a)')
    ask("execute_sql", sql="CREATE VIEW v AS SELECT id FROM a")
    ask("execute_sql", sql="GRANT SELECT ON a TO PUBLIC")
    assert "public |" in ask("list_schemas")
    objects = ask("list_objects", schema="public")
    assert "a | table\n" in objects
    assert "v | view\n" in objects
    about = ask("describe", name="public.a")
    assert "note | text |  | 'x'::text" in about
    assert "PRIMARY KEY (id)" in about
    assert '"it\'s" | FOREIGN KEY (a_id) REFERENCES a(id)' in about
    assert "PUBLIC | SELECT" in about
    assert "Definition:\ndefinition\n SELECT " in ask("describe", name="v")
    assert "a_id | integer" in ask("describe", name='public."it\'s"')
    ask("execute_sql", sql="SET standard_conforming_strings = off")
    assert "there is no schema" in _refused(ask, "list_objects", schema="x\\' OR true --")


def _refused(ask, tool, /, **arguments):
    from mcp.server.mcpserver.exceptions import ToolError

    with pytest.raises(ToolError) as refused:
        ask(tool, **arguments)
    return str(refused.value)


def test_statements_and_what_is_wrong_with_them(ask):
    assert ask("execute_sql", sql="CREATE TABLE n (i integer)") == "Done."
    assert ask("execute_sql", sql="INSERT INTO n SELECT generate_series(1, 150)") == "Done; 150 rows changed."
    assert ask("execute_sql", sql="UPDATE n SET i = NULL WHERE i = 1") == "Done; 1 row changed."
    rows = ask("execute_sql", sql="SELECT i, repeat('x', 600) AS long FROM n ORDER BY i DESC NULLS FIRST")
    assert rows.startswith("i | long\nNULL | " + "x" * 500 + "...\n150 | ")
    assert rows.endswith("(more than 100 rows)")
    assert "does not exist" in _refused(ask, "execute_sql", sql="SELECT * FROM nothing")
    assert "multiple commands" in _refused(ask, "execute_sql", sql="SELECT 1; SELECT 2")
    assert "there is no table" in _refused(ask, "describe", name="public.nothing")
    assert "invalid name syntax" in _refused(ask, "describe", name="a.b.")


def test_a_transaction_lasts_from_call_to_call_and_an_analysed_plan_changes_nothing(ask):
    ask("execute_sql", sql="CREATE TABLE t (i integer)")
    assert "Seq Scan on t" in ask("explain", sql="SELECT * FROM t")
    assert "actual" in ask("explain", sql="INSERT INTO t VALUES (1)", analyze=True)
    assert ask("execute_sql", sql="SELECT count(*) FROM t").splitlines()[1] == "0"
    ask("execute_sql", sql="BEGIN")
    ask("explain", sql="INSERT INTO t VALUES (1)", analyze=True)
    assert ask("execute_sql", sql="SELECT count(*) FROM t").splitlines()[1] == "1"
    ask("execute_sql", sql="ROLLBACK")
    assert ask("execute_sql", sql="SELECT count(*) FROM t").splitlines()[1] == "0"
    assert "does not exist" in _refused(ask, "explain", sql="SELECT nothing", analyze=True)
    assert ask("execute_sql", sql="SELECT 1 AS one") == "one\n1\n(1 row)"


@pytest.mark.parametrize("dsn", ["", "host=/nowhere user=me dbname=postgres"])
def test_a_database_that_cannot_be_reached_is_an_error_of_the_protocol(ask, monkeypatch, dsn):
    monkeypatch.setenv(postgres_mcp.VARIABLE, dsn)
    with pytest.raises(MCPError):
        ask("execute_sql", sql="SELECT 1")
