"""db: on a PostgreSQL server: the same tasks, what its SQL cannot reach, and who is to blame for what."""

import os
import pickle
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

import gem
from gem.envs.database import engines, postgres
from gem.envs.database.domains import DOMAINS, TODAY, Domain, Question
from gem.envs.database.engines import PostgresEngine
from gem.envs.database.env import DatabaseEnv, _rows
from gem.envs.database.postgres import VARIABLE, Server
from gem.errors import BadArgument, MissingExtra, NoVerdict, ToolError
from gem.graders.sql import same_rows
from gem.seeding import stream
from gem.testing import check_env
from gem.tools.postgres import Connection

SLOW_BUT_LIBRARY = [pytest.param(name, marks=[pytest.mark.slow] * (name != "Library")) for name in DOMAINS]
LEFT = "SELECT datname FROM pg_database UNION SELECT rolname FROM pg_roles"


@pytest.fixture(scope="module", autouse=True)
def dsn(postgres_dsn):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, postgres_dsn)
        yield postgres_dsn


@pytest.fixture(scope="module")
def admin(dsn):
    connection = Connection(dsn)
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def bank(dsn):
    with DatabaseEnv("Bank", "operations", max_turns=500, turn_s=0.5, backend="postgres") as env:
        env.reset(seed=0)
        yield env


def names(admin):
    """Return the databases and roles of episodes: without what is kept to clone, made when first needed."""
    found = {name for (name,) in admin.run(LEFT, 10).rows if re.match(r"gem_[0-9a-f]{12}_", name)}
    return found - {name for each in postgres._servers.values() for name in each._templates.values()}


def won(step):
    return (step.reward, step.terminated, step.info.get("success")) == (1.0, True, True)


def lost(step):
    return (step.reward, step.terminated, step.info.get("success")) == (0.0, True, False)


# -- the same tasks


@pytest.mark.system
@pytest.mark.parametrize("kind", ["questions", "operations"])
@pytest.mark.parametrize("name", SLOW_BUT_LIBRARY)
def test_every_reference_solves_and_the_task_is_sqlites(name, kind):
    with gem.make(f"db:{name}-v0-{kind}", backend="postgres") as env, DatabaseEnv(name, kind) as other:
        for seed in range(3):
            told, theirs = env.reset(seed=seed).obs, other.reset(seed=seed).obs
            assert (env.task, env._script) == (other.task, other._script)
            assert told.partition("The database is")[0] == theirs.partition("The database is")[0]
            assert "The database is PostgreSQL;" in told
            assert "sqlite" not in told.lower()
            assert won(env.step(env.solve()))


@pytest.mark.parametrize("name", SLOW_BUT_LIBRARY)
def test_every_question_has_the_same_answer_as_on_sqlite(name):
    domain = DOMAINS[name]
    box = PostgresEngine(turn_s=10)
    try:
        for seed in range(2):
            tables = domain.fill(stream(seed, "world"))
            script = domain.script(tables)
            box.open("main", script, rows=5000)
            for maker in domain.questions:
                for draw in range(4):
                    question = maker(stream(seed, "task", draw), tables)
                    (result,) = box.run("main", question.sql)
                    assert same_rows(result["rows"], _rows(script, question.sql), question.ordered) == ""
            assert box.dump("main") == {
                table: [list(row) for row in _rows(script, f"SELECT * FROM {table}")] for table in tables
            }
    finally:
        box.close()


def test_the_schema_is_shown_by_the_query_that_the_prompt_names(bank):
    query = bank.reset(seed=0).obs.partition("shown. `")[2].partition("`")[0]
    shown = bank.step(f"<sql>{query}</sql>").obs
    assert "accounts | id | integer" in shown


@pytest.mark.system
def test_an_answer_that_is_wrong_spelt_out_or_no_query_is_refused():
    with DatabaseEnv("Library", turn_s=1.0, backend="postgres") as env:
        env.reset(seed=0)
        rows = _rows(env._script, env.task.sql)
        spelt = "VALUES " + ", ".join(f"({', '.join(map(repr, row))})" for row in rows)
        for answer, why in (
            (spelt, "second database"),
            (f"{env.task.sql}; SELECT 1", "2 statements"),
            ("", "0 statements"),
            ("DELETE FROM loans", "only be read"),
            ("SELECT 1 FROM nowhere", "does not exist"),
            ("SELECT generate_series(1, 1000000000)", "rows"),
            ("SELECT count(*) FROM loans a, loans b, loans c, loans d, loans e", "longer"),
        ):
            assert why in env._judge_answer(answer), answer
        step = env.step(f"<answer>{spelt}</answer>")
        assert lost(step)
        assert "second database" in step.info["why"]


def test_a_state_counts_as_it_was_committed(bank):
    sql = bank.domain and bank.task.sql.rstrip("; ")
    for attempt in (
        f"<sql>{sql}; INSERT INTO customers VALUES (9999, 'n', 't', '{TODAY}')</sql><submit/>",
        f"<sql>BEGIN; {sql}</sql><submit/>",
    ):
        bank.reset(seed=0)
        step = bank.step(attempt)
        assert lost(step), attempt
        assert "table" in step.info["why"]
    bank.reset(seed=0)
    assert won(bank.step(f"<sql>BEGIN; {sql}; COMMIT</sql><submit/>"))
    bank.reset(seed=0)


def test_a_twin_repeats_what_was_run_and_then_goes_its_own_way(bank):
    bank.reset(seed=0)
    bank.step("<sql>BEGIN; UPDATE accounts SET frozen = 7 WHERE id = 1</sql>")
    look = "<sql>SELECT id, frozen FROM accounts WHERE frozen = 7</sql>"
    for twin in (bank.fork(), pickle.loads(pickle.dumps(bank))):
        assert "1 | 7\n(1 row)" in twin.step(look).obs
        twin.step("<sql>ROLLBACK</sql>")
        assert won(twin.step(twin.solve()))
        twin.close()
    assert "1 | 7\n(1 row)" in bank.step(look).obs
    bank.reset(seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["questions", "operations"])
def test_every_rule_of_the_contract_holds(kind):
    spec = gem.spec(f"db:Library-v0-{kind}")
    kwargs = {**spec.kwargs, "backend": "postgres"}
    check_env(replace(spec, kwargs=kwargs), seeds=[0], turns=3).raise_if_broken()


# -- what the SQL cannot reach

REFUSED = {
    **{
        name: f"COPY {what}"
        for name, what in {
            "a program's output": "customers (name) FROM PROGRAM 'id'",
            "a program's input": "(SELECT 1) TO PROGRAM 'cat > /tmp/gem_hostile'",
            "a file": "customers FROM '/etc/passwd'",
            "the client": "customers TO STDOUT",
        }.items()
    },
    "a file read": "SELECT pg_read_file('/etc/passwd')",
    "a folder": "SELECT pg_ls_dir('.')",
    "the server's log": "SELECT * FROM pg_current_logfile()",
    "lo_import": "SELECT lo_import('/etc/passwd')",
    "lo_from_bytea": "SELECT lo_from_bytea(0, 'x')",
    "lo_create": "SELECT lo_create(0)",
    "dblink": "SELECT * FROM dblink('dbname=postgres', 'SELECT 1') AS t(a int)",
    "an extension": "CREATE EXTENSION dblink",
    "a server": "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw",
    "a function": "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "a block": "DO $$ BEGIN PERFORM 1; END $$",
    "a table": "CREATE TABLE t (a int)",
    "a temporary table": "CREATE TEMP TABLE t (a int)",
    "select into": "SELECT * INTO t FROM accounts",
    "select into temp": "SELECT * INTO TEMP t FROM accounts",
    "a schema": "CREATE SCHEMA s",
    "a trigger": "CREATE TRIGGER t BEFORE DELETE ON accounts EXECUTE FUNCTION tsvector_update_trigger()",
    "truncate": "TRUNCATE transfers",
    "drop": "DROP TABLE transfers",
    "alter": "ALTER TABLE transfers ADD COLUMN a int",
    "alter role": "ALTER ROLE CURRENT_USER SUPERUSER",
    "alter system": "ALTER SYSTEM SET fsync = on",
    "set role": "SET ROLE postgres",
    "session authorization": "SET SESSION AUTHORIZATION gem",
    "set": "SET statement_timeout = 0",
    "set_config": "SELECT set_config('statement_timeout', '0', false)",
    "settings as rows": "UPDATE pg_settings SET setting = '0' WHERE name = 'statement_timeout'",
    "passwords": "SELECT rolpassword FROM pg_authid",
    "a catalog": "DELETE FROM pg_class",
    "a query as text": "SELECT query_to_xml('SELECT 1', true, true, '')",
    "a lock": "SELECT pg_advisory_lock(1)",
    "another lock": "SELECT pg_try_advisory_xact_lock_shared(1, 2)",
    "lock table": "LOCK TABLE accounts",
    "sleep": "SELECT pg_sleep(0)",
    "a notice": "NOTIFY gem",
    "a notice by function": "SELECT pg_notify('gem', 'x')",
    "listen": "LISTEN gem",
    "ending others": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
    "ending oneself": "SELECT pg_terminate_backend(pg_backend_pid())",
    "cancelling": "SELECT pg_cancel_backend(pg_backend_pid())",
    "the log": "SELECT pg_logical_emit_message(false, 'a', 'b')",
    "prepare": "PREPARE p AS SELECT 1",
    "vacuum": "VACUUM",
    "reindex": "REINDEX TABLE accounts",
    "random": "SELECT random()",
    "uuid": "SELECT gen_random_uuid()",
    "now": "SELECT now()",
    "today": "SELECT CURRENT_DATE",
    "behind a comment": "/* SELECT /* */ */ COPY customers TO STDOUT",
    "in brackets": "(DELETE FROM transfers)",
    "a NUL": "SELECT 1\x00; DROP TABLE transfers",
    "a surrogate": "SELECT '\ud800'",
}

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1::bigint UNION ALL SELECT i + 1 FROM n)"
BOMBS = {
    "endless recursion": f"{ENDLESS} SELECT max(i) FROM n",
    "endless recursion, kept": ENDLESS.replace(" ALL", "") + " SELECT count(*) FROM n",
    "a cross join": "SELECT count(*) FROM transfers a, transfers b, transfers c, transfers d, transfers e",
    "a sorted cross join": "SELECT a.id FROM transfers a, transfers b, transfers c ORDER BY b.made || c.made",
    "a quote": "SELECT E'\\'; COPY customers TO STDOUT --'",
    "many rows": "SELECT generate_series(100, 1000000000)",
    "a long value": "SELECT repeat('x', 30000000)",
    "a longer value": "SELECT repeat(repeat('x', 1000000), 1000)",
    "many values": "SELECT string_agg(repeat('x', 100000), '') FROM transfers a, transfers b",
    "power": "SELECT 10::numeric ^ 100000",
    "factorials": "SELECT factorial(100000)",
    "infinity": "SELECT 'Infinity'::float8, 'NaN'::numeric, 1e308::float8 * 10",
    "deep parentheses": "SELECT " + "(" * 9_000 + "1" + ")" * 9_000,
    "a long sum": "SELECT 1" + "+1" * 9_000,
    "a regular expression": "SELECT repeat('a', 10000) ~ '(a*)*(a*)*(a*)*b\\1\\2'",
    "1 MB": "SELECT '" + "x" * 1_000_000 + "'",
    "semicolons": ";" * 20_000,
    "many statements": "SELECT 1;" * 2_000,
    "open comments": "/*" * 9_900,
    "open quotes": "'\"" * 9_900,
    "open dollars": "$a" * 9_900,
    "only a comment": "-- nothing",
    "parameters": "SELECT $1",
    "many columns": "SELECT " + ",".join("1" * 1 for _ in range(5000)),
    "after the limit": f"{ENDLESS} SELECT max(i) FROM n; SELECT 7",
}
GOES_ON = "<sql>SELECT count(*) FROM accounts</sql>"


@pytest.mark.parametrize("name", REFUSED)
def test_what_reaches_outside_or_changes_the_schema_is_refused(bank, name):
    step = bank.step(f"<sql>{REFUSED[name]}</sql>")
    assert step.obs.startswith("Error: "), step.obs
    assert not step.done
    assert bank.step(GOES_ON).obs == "count\n70\n(1 row)"
    assert not os.path.exists("/tmp/gem_hostile")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * ("endless" in n or "join" in n)) for n in BOMBS]
)
def test_a_bomb_is_an_error_or_a_result_and_the_episode_goes_on(bank, name):
    step = bank.step(f"<sql>{BOMBS[name]}</sql>")
    assert not step.done, step.info
    assert len(step.obs) < 200_000
    assert "\n7\n" not in step.obs
    assert bank.step(GOES_ON).obs == "count\n70\n(1 row)"


def test_all_that_was_tried_changed_nothing(bank):
    assert won(bank.step(bank.solve()))
    bank.reset(seed=0)


ITS_OWN = {
    *("set", "listen", "a notice", "prepare", "vacuum", "the client", "session authorization", "lock table"),
    *("today", "a NUL", "a surrogate", "behind a comment"),
}
"""What a role may do to its own session and tables, and what is refused before the server sees it."""


def test_the_role_has_no_right_to_it_either(bank):
    bank.step("<sql>SELECT 1</sql>")
    connection = Connection(bank._live.engine._open["main"][0].dsn)
    try:
        for name in REFUSED.keys() - ITS_OWN:
            with pytest.raises(ToolError):
                connection.run(REFUSED[name], 5)
        rights = "rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls"
        assert connection.value(f"SELECT {rights} FROM pg_roles WHERE rolname = current_user") is False
    finally:
        connection.close()


def test_questions_write_nothing():
    with DatabaseEnv("Bank", turn_s=0.5, backend="postgres") as asked:
        asked.reset(seed=0)
        for statement in ("DELETE FROM transfers", "BEGIN", "SAVEPOINT a", "MERGE INTO accounts"):
            assert "only be read" in asked.step(f"<sql>{statement}</sql>").obs
        for statement in (
            "WITH gone AS (DELETE FROM transfers RETURNING id) SELECT * FROM gone",
            "EXPLAIN ANALYZE DELETE FROM transfers",
            "SELECT * FROM accounts FOR UPDATE",
        ):
            assert "permission denied" in asked.step(f"<sql>{statement}</sql>").obs


def test_a_database_filled_beyond_its_size_fails_the_task(bank, monkeypatch):
    monkeypatch.setattr(engines, "_FULL", 9 * 2**20)
    text = "(SELECT string_agg(md5((i + j)::text), '') FROM generate_series(1, 30) AS t(j))"
    values = f"SELECT i, {text}, 't', '{TODAY}' FROM generate_series(1000, 3000) AS s(i)"
    for _ in range(10):
        step = bank.step(f"<sql>DELETE FROM customers WHERE id >= 1000; INSERT INTO customers {values}</sql>")
        if step.done:
            break
    assert lost(step), step
    assert "filled the database" in step.info["why"]
    bank.reset(seed=0)


def test_another_episodes_rows_cannot_be_read(bank):
    bank.step("<sql>SELECT 1</sql>")
    mine = bank._live.engine._open["main"][0]
    with DatabaseEnv("Bank", "operations", backend="postgres") as other:
        other.reset(seed=1)
        other.step("<sql>SELECT 1</sql>")
        theirs = other._live.engine._open["main"][0]
        with pytest.raises(NoVerdict, match="permission denied for database"):
            Connection(postgres._with(mine.dsn, dbname=theirs.name))
        assert "cross-database" in bank.step(f"<sql>SELECT * FROM {theirs.name}.public.accounts</sql>").obs
        seen = bank.step("<sql>SELECT query FROM pg_stat_activity WHERE usename <> current_user</sql>").obs
        assert "accounts" not in seen


# -- who is to blame


@pytest.fixture
def own_server(postgres_dsn):
    from gem.envs.database.postgres_server import temporary_server

    with temporary_server() as dsn:
        host = dsn.split()[0].removeprefix("host=")
        with open(f"{host}/data/postmaster.pid") as file:
            yield dsn, int(file.readline())


def play_on(env):
    """Look until something happens: a server's processes take a moment to see that it has died."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        env.step("<sql>SELECT 1</sql>")
        env.turn = 0


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGQUIT])
def test_a_server_that_dies_in_an_episode_is_no_verdict(own_server, how):
    dsn, pid = own_server
    with DatabaseEnv("Library", backend="postgres", dsn=dsn) as env:
        env.reset(seed=0)
        env.step("<sql>SELECT 1</sql>")
        os.kill(pid, how)
        with pytest.raises(NoVerdict):
            play_on(env)
        with pytest.raises(NoVerdict):
            DatabaseEnv("Library", backend="postgres", dsn=f"{dsn} application_name=x")


@pytest.mark.slow
def test_a_server_that_hangs_is_no_verdict(own_server, admin):
    dsn, pid = own_server
    with DatabaseEnv("Library", backend="postgres", dsn=dsn, turn_s=0.5) as env:
        env.reset(seed=0)
        env.step("<sql>SELECT 1</sql>")
        backend = env._live.engine._open["main"][1].pid
        os.kill(pid, signal.SIGSTOP)
        os.kill(backend, signal.SIGSTOP)
        try:
            with pytest.raises(NoVerdict):
                env.step("<sql>SELECT 1</sql>")
        finally:
            os.kill(backend, signal.SIGCONT)
            os.kill(pid, signal.SIGCONT)
        env.reset(seed=0)
        assert won(env.step(env.solve()))


def test_a_restart_costs_the_running_episode_its_verdict_and_no_other(bank, admin):
    bank.step("<sql>SELECT 1</sql>")
    everybody = (
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name ~ '^gem_'"
    )
    admin.run(everybody, 10)
    with pytest.raises(NoVerdict):
        bank.step("<sql>SELECT 1</sql>")
    bank.reset(seed=0)
    assert won(bank.step(bank.solve()))
    bank.reset(seed=0)


# -- nothing is left


def test_an_episode_that_is_over_leaves_nothing(admin):
    before = names(admin)
    env = DatabaseEnv("Library", backend="postgres")
    env.reset(seed=0)
    env.step("<sql>SELECT 1</sql>")
    twin = env.fork()
    twin.step("<sql>SELECT 1</sql>")
    assert len(names(admin)) == len(before) + 2
    twin.close()
    twin.close()
    env.reset(seed=1)
    assert names(admin) == before
    env.step(env.solve())
    env.close()
    assert names(admin) == before


@pytest.mark.system
def test_a_process_that_was_killed_is_swept_after_and_a_living_one_is_not(dsn, admin):
    code = (
        "import sys; from gem.envs.database.postgres import server\n"
        "print(server().open('CREATE TABLE t (a int)').name, flush=True)\nsys.stdin.read()"
    )
    start = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(start, **pipes) as dead, subprocess.Popen(start, **pipes) as living:
        left, kept = dead.stdout.readline().strip(), living.stdout.readline().strip()
        dead.kill()
        dead.wait()
        admin.value(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity "
            f"WHERE application_name = '{left[:16]}'"
        )
        Server(dsn).close()
        assert left not in names(admin)
        assert kept in names(admin)
        living.stdin.close()
        living.wait()
        assert kept not in names(admin)


# -- making one


def test_wrong_arguments_are_refused(monkeypatch, dsn, admin):
    with pytest.raises(BadArgument, match="'sqlite', 'postgres'"):
        DatabaseEnv(backend="mysql")
    with pytest.raises(BadArgument, match="goes with backend='postgres'"):
        DatabaseEnv(dsn=dsn)
    with pytest.raises(BadArgument, match="cannot be read"):
        DatabaseEnv(backend="postgres", dsn="nonsense")
    with pytest.raises(NoVerdict, match="cannot be reached"):
        DatabaseEnv(backend="postgres", dsn="host=/nowhere")
    admin.script("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    try:
        with pytest.raises(BadArgument, match="'plain' is no superuser"):
            DatabaseEnv(backend="postgres", dsn=f"{dsn} user=plain password=plain")
    finally:
        admin.script("DROP ROLE plain")
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(MissingExtra, match=r"python -m gem\.envs\.database\.postgres_server"):
        DatabaseEnv(backend="postgres")


def test_a_domain_that_is_not_postgresqls_says_so(admin):
    before = names(admin)
    odd = Domain(
        "Odd",
        "something",
        "CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT);",
        lambda rng: {"t": [(rng.randrange(1000),)]},
        (lambda rng, tables: Question("?", "SELECT id FROM t"),),
        (),
    )
    with DatabaseEnv(odd, backend="postgres") as env:
        env.reset(seed=0)
        with pytest.raises(BadArgument, match="PostgreSQL refuses the database's script: syntax error"):
            env.step("<sql>SELECT 1</sql>")
    assert names(admin) == before
