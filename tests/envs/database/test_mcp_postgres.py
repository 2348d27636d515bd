"""Episodes at a PostgreSQL database through its MCP server."""

import contextlib
import json
import os
import signal
import sys

import pytest

pytest.importorskip("mcp", reason="needs mcp: pip install 'gem-gym[mcp]'")

import gem
from gem.envs.database import mcp as mcp_postgres
from gem.envs.database import postgres
from gem.envs.database.mcp import McpPostgresEnv
from gem.envs.database.mcp_tasks import FAMILIES
from gem.errors import BadArgument, CannotFork, MissingExtra, NoVerdict


def call(tool, /, **arguments):
    return f"<tool_call>{json.dumps({'name': tool, 'arguments': arguments})}</tool_call>"


def sql(*statements):
    return "\n".join(call("execute_sql", sql=each) for each in statements)


@pytest.fixture
def make(postgres_dsn, monkeypatch):
    monkeypatch.setenv("GEM_POSTGRES_DSN", postgres_dsn)
    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(McpPostgresEnv(*args, **kwargs))


def left(dsn):
    """Return the databases and roles of episodes that a server has."""
    from gem.envs.database.postgres import server
    from gem.tools.postgres import Connection

    named = "name ~ '^gem_[0-9a-f]{12}_'"
    with contextlib.closing(Connection(dsn)) as admin:
        found = admin.run(
            "SELECT name FROM (SELECT datname AS name FROM pg_database UNION SELECT rolname FROM pg_roles) n "
            f"WHERE {named}",
            10.0,
        )
    return {name for (name,) in found.rows} - set(server(dsn)._templates.values())


@pytest.mark.system
def test_an_episode_by_the_tools_of_the_server_and_nothing_is_left(make, postgres_dsn):
    env = make("ForeignKeys")
    before = left(postgres_dsn)
    obs, info = env.reset(seed=0)
    schema = env.task.schema
    assert info.keys() == {"task", "tools"}
    assert f"Work in the schema {schema}" in obs
    assert "execute_sql" in obs
    assert left(postgres_dsn) == before
    step = env.step(call("list_objects", schema=schema) + call("describe", name=f"{schema}.items"))
    assert "orders | table" in step.obs
    assert "quantity | integer" in step.obs
    first, second = step.info["tool_results"]
    assert second == {
        "tool": "describe", "error": False, "refused": False, "shown": len(step.obs) - first["shown"] - 1
    }  # fmt: skip
    assert len(left(postgres_dsn)) == len(before) + 1
    broken = env.step(sql("SELEKT 1", f"SELECT count(*) FROM {schema}.customers", "ROLLBACK AND CHAIN"))
    assert ": syntax error at" in broken.obs
    assert "count\n21\n" in broken.obs
    assert [result["error"] for result in broken.info["tool_results"]] == [True, False, True]
    assert (broken.reward, broken.done) == (0.0, False)
    step = env.step(env.solve())
    assert (step.reward, step.terminated, step.info["success"], step.info["stop"]) == (
        1.0,
        True,
        True,
        "solved",
    )
    assert left(postgres_dsn) == before


@pytest.mark.slow
def test_what_is_not_committed_does_not_count(make, postgres_dsn):
    env = make("ForeignKeys")
    before = left(postgres_dsn)
    env.reset(seed=0)
    step = env.step(sql("BEGIN", *env.task.solution) + "<submit/>")
    assert (step.reward, step.info["stop"]) == (0.0, "failed")
    assert "the rows of orders are not as asked" in step.info["why"]
    assert left(postgres_dsn) == before


@pytest.mark.system
def test_turns_without_a_call_need_no_server(make, postgres_dsn):
    env = make(max_turns=2)
    env.reset(seed=3)
    before = left(postgres_dsn)
    step = env.step("I would rather not. <think><submit/></think>")
    assert step.info == {"legal": False}
    step = env.step("still nothing")
    assert (step.terminated, step.info["stop"], step.info["why"]) == (True, "turn_budget", "nothing was done")
    env.reset(seed=3)
    step = env.step(sql(*["SELECT 1"] * 21) + "<submit/>")
    assert "21 calls, none was run" in step.obs
    assert (step.done, step.info) == (False, {"legal": False})
    assert env.step("<submit/>").info["stop"] == "failed"
    assert left(postgres_dsn) == before


@pytest.mark.system
def test_which_tasks_are_drawn(make):
    env = make(level="easy")
    drawn = {env.reset(seed=seed).info["task"] for seed in range(40)}
    assert {FAMILIES[name].level for name in drawn} == {"easy"}
    assert len(drawn) > 5
    with pytest.raises(CannotFork):
        env.fork()


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"task": "AuditLogs"}, "Did you mean 'AuditLog'"),
        ({"level": "mild"}, "accepted: easy, hard"),
        ({"max_turns": 0}, "max_turns is 0"),
    ],
)
def test_wrong_arguments_are_refused(make, kwargs, said):
    with pytest.raises(BadArgument, match=said):
        make(**kwargs)


def test_without_a_server_it_is_said_how_to_get_one(monkeypatch):
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gem-gym[postgres]'")
    monkeypatch.delenv("GEM_POSTGRES_DSN", raising=False)
    with pytest.raises(MissingExtra, match=r"python -m gem\.envs\.database\.postgres_server"):
        gem.make("mcp:Postgres-v0")
    monkeypatch.setenv("GEM_POSTGRES_DSN", "host=/nowhere user=me dbname=postgres")
    with pytest.raises(NoVerdict, match="cannot be reached"):
        gem.make("mcp:Postgres-v0")


@pytest.mark.slow
def test_an_mcp_server_that_dies_gives_no_verdict_and_nothing_is_left(
    make, postgres_dsn, tmp_path, monkeypatch
):
    started = mcp_postgres._started
    code = (
        "import os, runpy; open(os.environ['PIDFILE'], 'w').write(str(os.getpid())); "
        "runpy.run_module('gem.tools.mcp_server.postgres_mcp', run_name='__main__')"
    )
    monkeypatch.setattr(
        mcp_postgres,
        "_started",
        lambda env: (
            started({**env, "PIDFILE": str(tmp_path / "pid")})
            | {"command": sys.executable, "args": ["-c", code]}
        ),
    )
    env = make("Backfill")
    before = left(postgres_dsn)
    env.reset(seed=0)
    assert "1" in env.step(sql("SELECT 1")).obs
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    with pytest.raises(NoVerdict):
        env.step(sql("SELECT 1"))
    env.close()
    assert left(postgres_dsn) == before


@pytest.mark.slow
def test_a_database_that_grows_too_large_fails_the_task(make, monkeypatch):
    monkeypatch.setattr(mcp_postgres, "LARGEST", 20 * 2**20)
    env = make("Backfill")
    env.reset(seed=0)
    schema = env.task.schema
    step = env.step(
        sql(
            f"CREATE TABLE {schema}.big AS SELECT repeat(md5(i::text), 9) FROM generate_series(1, 60000) s(i)"
        )
    )
    assert (step.terminated, step.info["stop"], step.info["success"]) == (True, "failed", False)
    assert "too large" in step.info["why"]


@pytest.mark.slow
def test_code_of_the_agents_that_does_not_end_costs_it_the_task(make, monkeypatch):
    monkeypatch.setattr(mcp_postgres, "JUDGE_S", 0.3)
    env = make("RevenueView")
    env.reset(seed=0)
    name = env.task.solution[1].split()[2]
    forever = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT n AS customer_id, "
    forever += "'' AS name, 1 AS orders,"
    step = env.step(
        sql(env.task.solution[0], f"CREATE VIEW {name} AS {forever} 1 AS revenue FROM r") + "<submit/>"
    )
    assert (step.reward, step.info["stop"]) == (0.0, "failed")
    assert "longer than" in step.info["why"]


@pytest.mark.slow
def test_what_cannot_be_ended_costs_the_agent_the_task(make, monkeypatch):
    monkeypatch.setattr(postgres, "_DROP_S", 0.2)
    env = make("Backfill")
    env.reset(seed=0)
    pid = int(env.step(sql("SELECT pg_backend_pid()")).obs.splitlines()[2])
    os.kill(pid, signal.SIGSTOP)  # stands for code that does not look for interrupts
    try:
        step = env.step("<submit/>")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (step.reward, step.info["stop"], step.info["why"]) == (
        0.0,
        "failed",
        "what it runs cannot be ended",
    )


@pytest.mark.slow
def test_rows_that_are_not_read_are_not_right(make):
    env = make("ForeignKeys")
    env.reset(seed=0)
    hidden = "INSERT INTO customers SELECT 10000, repeat('x', 7999000), '', '', '2025-01-01'"
    step = env.step(sql(*env.task.solution, hidden) + "<submit/>")
    assert (step.reward, step.info["stop"]) == (0.0, "failed")
    assert "more rows than are read" in step.info["why"]


@pytest.mark.slow
def test_a_restart_before_its_first_call_costs_an_episode_nothing(make, postgres_dsn):
    from gem.tools.postgres import Connection

    env = make("Backfill")
    env.reset(seed=0)
    with contextlib.closing(Connection(postgres_dsn)) as admin:
        everybody = "FROM pg_stat_activity WHERE application_name ~ '^gem_'"
        assert admin.value(f"SELECT count(pg_terminate_backend(pid, 10000)) {everybody}") > 0
    assert env.step(env.solve()).reward == 1.0


@pytest.mark.slow
def test_a_verifier_whose_connection_is_lost_takes_nothing_more_for_refused(make, monkeypatch):
    monkeypatch.setattr(mcp_postgres, "JUDGE_S", 0.5)
    env = make("JsonColumns")
    env.reset(seed=0)
    without_not_null = env.task.solution[:-1]
    again = "BEGIN LOOP END LOOP; EXCEPTION WHEN query_canceled THEN END"
    trap = [
        f"CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP {again}; END LOOP; END $$",
        "CREATE TRIGGER trap BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION trap()",
    ]
    step = env.step(sql(*without_not_null, *trap) + "<submit/>")
    assert (step.reward, step.info["stop"]) == (0.0, "failed")
    assert "could not be stopped" in step.info["why"]


@pytest.mark.slow
def test_a_database_server_that_dies_gives_no_verdict():
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'gem-gym[postgres]'")
    from gem.envs.database.postgres_server import temporary_server

    with contextlib.ExitStack() as stack:
        try:
            server = contextlib.ExitStack()
            dsn = stack.enter_context(server).enter_context(temporary_server())
        except MissingExtra as absent:
            pytest.skip(str(absent))
        tool, judge = (McpPostgresEnv("Backfill", dsn=dsn) for _ in range(2))
        for env in (tool, judge):
            stack.callback(env.close)
            env.reset(seed=0)
            env.step(sql("SELECT 1"))
        server.close()
        with pytest.raises(NoVerdict):
            tool.step(sql("SELECT 1"))
        with pytest.raises(NoVerdict):
            judge.step("<submit/>")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_is_solved_through_the_server(make, name):
    env = make(name)
    env.reset(seed=100)
    step = env.step(env.solve())
    assert step.reward == 1.0, step.info
