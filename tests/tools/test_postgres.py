"""A connection's limits, and who is blamed when it ends."""

import os
import socket
import sys
import time
from types import SimpleNamespace

import pytest
from waiting import until

from gem.errors import BadArgument, MissingExtra, NoVerdict, ToolError
from gem.tools.postgres import Connection, statements


@pytest.fixture(scope="module")
def line(postgres_dsn):
    connection = Connection(postgres_dsn)
    yield connection
    connection.close()


def split(sql):
    return [one.text for one in statements(sql)]


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1;", " SELECT 2"]),
        ("SELECT ';', \"a;b\"; ", ["SELECT ';', \"a;b\";"]),
        ("SELECT 'it''s; so'", ["SELECT 'it''s; so'"]),
        (r"SELECT E'\';' ; SELECT 2", [r"SELECT E'\';' ;", " SELECT 2"]),
        (r"SELECT '\'; SELECT 2", [r"SELECT '\';", " SELECT 2"]),
        ("SELECT $$;$$, $a$;$$;$a$; X", ["SELECT $$;$$, $a$;$$;$a$;", " X"]),
        ("SELECT a$b$; SELECT c$b$", ["SELECT a$b$;", " SELECT c$b$"]),
        ("/* /* ; */ ; */ SELECT 1 -- ;\n; -- x", ["/* /* ; */ ; */ SELECT 1 -- ;\n;"]),
        (" ;; -- nothing\n /* ; */ ;", []),
        ("SELECT 'open ; ", ["SELECT 'open ; "]),
        ("SELECT /* open ; ", ["SELECT /* open ; "]),
        ("", []),
    ],
)
def test_statements_are_split_as_the_server_splits_them(sql, wanted):
    assert split(sql) == wanted


def test_the_words_of_a_statement_are_the_bare_ones():
    (one,) = statements("/* DROP */ (Select \"Delete\", 'insert', $$x$$, E'y', Ünder FROM -- z\n t)")
    assert one.words == ["select", "ünder", "from", "t"]


@pytest.mark.parametrize("hostile", ["/*", "'\"", "'", ";", "$a$", "$", "--", "E'\\", "*/", "/*;", "$a$;$b$"])
def test_splitting_takes_linear_time(hostile):
    def cost(text):
        begin = time.process_time()
        list(statements(text))
        return time.process_time() - begin

    short, long = (min(cost(hostile * n) for _ in range(3)) for n in (2_000, 16_000))
    assert long < 40 * short + 0.05  # quadratic would be 64 times


@pytest.mark.system
def test_values_come_as_pythons(line):
    sql = (
        "SELECT 1, 2::bigint AS two, 1.5, 3::numeric, 0.5::float8, true, NULL, DATE '2025-06-30', 'ü', "
        "'NaN'::float8, 1e300::numeric, '\\x00ff'::bytea"
    )
    result = line.run(sql, 5)
    assert result.columns[1] == "two"
    values = [1, 2, 1.5, 3, 0.5, True, None, "2025-06-30", "ü", "NaN", 1e300, "\\x00ff"]
    assert result.rows == [values]
    assert [type(value) for value in result.rows[0]] == [type(value) for value in values]
    assert line.run("", 5) == (None, [], False, 0)


def test_a_message_is_one_statement(line):
    for sql in ("SELECT 1; SELECT 2", "SELECT 1; DROP TABLE x", "BEGIN; COMMIT"):
        with pytest.raises(ToolError, match="multiple commands"):
            line.run(sql, 5)


def test_text_that_the_server_would_cut_or_cannot_read_is_refused(line):
    with pytest.raises(ToolError, match="NUL"):
        line.run("SELECT 1 \0; DROP TABLE x", 5)
    with pytest.raises(ToolError, match="surrogates"):
        line.run("SELECT '\ud800'", 5)


def test_rows_and_bytes_are_bounded(line):
    many = "SELECT i FROM generate_series(1, 3000) AS t(i)"
    result = line.run(many, 5, rows=3)
    assert (result.rows, result.more, result.changed) == ([[1], [2], [3]], True, 3000)
    assert not line.run(many, 5, rows=3000).more
    long = line.run("SELECT repeat('x', 1000000) FROM generate_series(1, 30)", 20, rows=100)
    assert len(long.rows) < 10
    assert long.more
    endless = line.run("SELECT generate_series(1, 100000000000)", 20, rows=2, cut=True)
    assert (endless.rows, endless.more) == ([[1], [2]], True)
    assert line.value("SELECT 7") == 7


@pytest.mark.parametrize("seen", ["while it comes", "when it is there"])
def test_a_row_too_large_for_this_process_ends_the_connection_and_not_the_task(line, monkeypatch, seen):
    if seen == "when it is there":  # as where libpq reads as fast as the server writes
        monkeypatch.setattr("gem.tools.postgres._waiting", lambda socket: 0)
    else:
        monkeypatch.setattr("gem.tools.postgres.LARGEST", 200_000)
    before = line.pid
    with pytest.raises(ToolError, match=r"bytes; the connection was lost"):
        line.run("SELECT repeat('x', 40000000)", 20)
    assert line.pid != before
    assert line.value("SELECT 7") == 7


@pytest.mark.parametrize("reset", ["", "SET statement_timeout = 0"])
def test_a_late_statement_is_cancelled_whatever_the_session_set(line, reset):
    line.run(reset, 5)
    before = line.pid
    with pytest.raises(ToolError, match="longer"):
        line.run("SELECT pg_sleep(100)", 0.05)
    assert line.pid == before
    assert line.value("SELECT 7") == 7


@pytest.mark.slow
def test_a_statement_that_catches_its_cancelling_loses_its_connection(line):
    sleep = "BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN END"
    stubborn = f"DO $$ BEGIN LOOP {sleep}; END LOOP; END $$"
    pid = line.pid
    with pytest.raises(ToolError, match="could not be stopped; the connection was lost"):
        line.run(stubborn, 0.05)
    assert line.value(f"SELECT pg_terminate_backend({pid}, 10000)") is True


def test_copying_to_the_client_is_refused(line):
    for sql in ("COPY (SELECT 1) TO STDOUT", "COPY pg_class FROM STDIN"):
        with pytest.raises(ToolError):
            line.run(sql, 5)
    assert line.value("SELECT 7") == 7


def test_an_error_says_what_the_server_says_and_leaves_the_transaction_to_its_rules(line):
    line.run("CREATE TEMP TABLE t (id int)", 5)
    with pytest.raises(ToolError, match=r'column "idd" does not exist; Perhaps you meant'):
        line.run("SELECT idd FROM t", 5)
    line.run("BEGIN", 5)
    with pytest.raises(ToolError, match="division by zero"):
        line.run("SELECT 1/0", 5)
    with pytest.raises(ToolError, match="aborted"):
        line.run("SELECT 1", 5)
    assert line.in_transaction
    line.run("ROLLBACK", 5)
    assert not line.in_transaction
    assert line.run("INSERT INTO t VALUES (1), (2)", 5).changed == 2


def test_a_connection_ended_from_outside_is_no_verdict_and_the_next_one_is_new(postgres_dsn, line):
    with Owned(postgres_dsn) as other:
        assert line.value(f"SELECT pg_terminate_backend({other.pid}, 10000)") is True
        with pytest.raises(NoVerdict, match="administrator"):
            other.run("SELECT 1", 5)
        assert other.value("SELECT 7") == 7


def test_a_statement_that_crashes_its_own_process_is_to_blame_and_its_neighbour_is_not(postgres_dsn):
    with Owned(postgres_dsn) as suicide, Owned(postgres_dsn) as neighbour:
        with pytest.raises(ToolError, match="the connection was lost"):
            suicide.run("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'", 20)
        assert suicide.value("SELECT 7") == 7
        with pytest.raises(NoVerdict):
            neighbour.run("SELECT 1", 5)


def test_what_the_server_said_with_the_answer_before_is_kept(postgres_dsn):
    """The message that the connection ends may come together with an answer, and its end only later."""
    with Owned(postgres_dsn) as other:
        other.run("SELECT 1", 5)
        end = {"sqlstate": "25P03", "severity_nonlocalized": "FATAL", "message_primary": "idle for too long"}
        other._note(SimpleNamespace(**end))
        with socket.socket(fileno=os.dup(other._line().socket)) as line:
            line.shutdown(socket.SHUT_RDWR)
        with pytest.raises(ToolError, match="the connection was lost"):
            other.run("SELECT 1", 5)


def test_a_connection_that_is_gone_without_a_word_before_a_statement_is_nobodys_fault(postgres_dsn):
    with Owned(postgres_dsn) as admin, Owned(postgres_dsn) as other:
        other.run("BEGIN", 5)
        other.run("SET LOCAL idle_in_transaction_session_timeout = 1", 5)
        asked = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {other.pid}"
        until(lambda: admin.value(asked) == 0)
        with pytest.raises(ToolError, match="the connection was lost"):  # a setting of its own SQL
            other.run("SELECT 1", 5)
        pid = other.pid
        with pytest.raises((ToolError, NoVerdict)):  # the server ends all its processes where one is killed
            admin.run(f"COPY (SELECT 1) TO PROGRAM 'kill -9 {pid} $PPID'", 20)
        assert admin.value("SELECT 7") == 7
        with pytest.raises(NoVerdict):
            other.run("SELECT 1", 5)
        assert other.value("SELECT 7") == 7


@pytest.mark.parametrize(
    "alter", ["PASSWORD 'other'", "SET local_preload_libraries = 'nothing'", "CONNECTION LIMIT 0"]
)
def test_a_role_that_bars_itself_out_is_to_blame(postgres_dsn, alter):
    with Owned(postgres_dsn) as admin:
        admin.script("CREATE ROLE barred LOGIN PASSWORD 'known'")
        try:
            with Owned(f"{postgres_dsn} user=barred password=known") as role:
                # A limit that is reached stands for statements that nobody can end.
                (admin if "LIMIT" in alter else role).run(f"ALTER ROLE barred {alter}", 5)
                for _ in range(2):
                    with pytest.raises(ToolError, match="barred itself out"):
                        role.run("SELECT repeat('x', 40000000)", 20)
        finally:
            admin.script("DROP ROLE barred")


def test_a_role_cannot_make_a_lost_connection_look_like_a_restart(postgres_dsn):
    with Owned(postgres_dsn) as admin:
        admin.script("CREATE ROLE forger LOGIN PASSWORD 'known'; CREATE SCHEMA forged AUTHORIZATION forger")
        try:
            with Owned(f"{postgres_dsn} user=forger password=known") as role:
                role.script(
                    "CREATE FUNCTION forged.pg_postmaster_start_time() RETURNS text LANGUAGE sql "
                    "AS 'SELECT clock_timestamp()::text'; "
                    "ALTER ROLE CURRENT_USER SET search_path = forged, pg_catalog"
                )
                with pytest.raises(ToolError, match="the connection was lost"):
                    role.run("SELECT repeat('x', 40000000)", 20)
        finally:
            admin.script("DROP SCHEMA forged CASCADE; DROP ROLE forger")


def test_what_cannot_be_reached_is_no_verdict_and_what_cannot_be_read_a_bad_argument(tmp_path, postgres_dsn):
    with pytest.raises(NoVerdict, match="cannot be reached"):
        Connection(f"host={tmp_path} dbname=postgres")
    with pytest.raises(NoVerdict, match="password"):
        Connection(f"{postgres_dsn} password=wrong")
    for dsn in ("nonsense", "host=/tmp nothing=1", "postgresql://[x"):
        with pytest.raises(BadArgument, match="dsn cannot be read"):
            Connection(dsn)


def test_without_psycopg_the_pip_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[postgres\]"):
        Connection("dbname=postgres")


class Owned(Connection):
    """A connection that ends with its block."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
