"""SQL that means harm: nothing hangs, raises or is scored wrongly, and the episode goes on."""

import os
import time

import pytest

from gem.envs.database import worker
from gem.envs.database.env import DatabaseEnv
from gem.sandbox import SandboxFailed, default_sandbox

REFUSED = {
    "attach": "ATTACH '/tmp/gem_hostile.db' AS other",
    "attach memory": "ATTACH ':memory:' AS other",
    "detach": "DETACH main",
    "vacuum into": "VACUUM INTO '/tmp/gem_hostile.db'",
    "load_extension": "SELECT load_extension('/lib/x.so')",
    "readfile": "SELECT readfile('/etc/passwd')",
    "writefile": "SELECT writefile('/tmp/gem_hostile.db', 'x')",
    "edit": "SELECT edit('x')",
    "fts3_tokenizer": "SELECT fts3_tokenizer('simple')",
    "random": "SELECT random()",
    "randomblob": "SELECT randomblob(8)",
    "order by random": "SELECT id FROM accounts ORDER BY random()",
    "now": "SELECT CURRENT_TIMESTAMP",
    "create table": "CREATE TABLE mine (a)",
    "temporary table": "CREATE TEMP TABLE mine (a)",
    "view": "CREATE VIEW mine AS SELECT 1",
    "index": "CREATE INDEX mine ON accounts (kind)",
    "trigger": "CREATE TRIGGER mine AFTER INSERT ON accounts BEGIN DELETE FROM transfers; END",
    "virtual table": "CREATE VIRTUAL TABLE mine USING fts5(a)",
    "alter": "ALTER TABLE accounts ADD COLUMN a",
    "drop": "DROP TABLE transfers",
    "schema": "UPDATE sqlite_master SET sql = ''",
    "schema, other letters": "DELETE FROM SQLite_Schema",
    "hidden in a comment": "/**/PRAGMA/**/writable_schema/**/=1",
    **{
        name: f"PRAGMA {name}"
        for name in (
            *("writable_schema=ON", "journal_mode=DELETE", "foreign_keys=OFF", "hard_heap_limit=0"),
            *(
                "max_page_count=99999999",
                "trusted_schema=ON",
                "defer_foreign_keys=ON",
                "temp_store_directory=x",
            ),
            *("database_list", "mmap_size=1", "query_only=0", "ignore_check_constraints=1"),
        )
    },
    "a pragma as a table": "SELECT * FROM pragma_database_list",
}

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
BOMBS = {
    "endless recursion": f"{ENDLESS} SELECT MAX(i) FROM n",
    "endless recursion, kept": ENDLESS.replace(" ALL", "") + " SELECT COUNT(*) FROM n",
    "a cross join": "SELECT COUNT(*) FROM transfers a, transfers b, transfers c, transfers d, transfers e",
    "a sorted cross join": "SELECT a.id FROM transfers a, transfers b, transfers c ORDER BY b.made || c.made",
    "zeroblob": "SELECT zeroblob(2000000000)",
    "many blobs": "SELECT hex(zeroblob(20000)) FROM transfers a, transfers b, transfers c ORDER BY 1, a.id",
    "replace": "SELECT replace(hex(zeroblob(10000)), '0', hex(zeroblob(10000)))",
    "group_concat": "SELECT group_concat(a.made) FROM transfers a, transfers b, transfers c",
    "nested tables": "WITH a0 AS (SELECT 1 AS x), "
    + ", ".join(f"a{i + 1} AS (SELECT p.x FROM a{i} p, a{i} q)" for i in range(30))
    + " SELECT COUNT(*) FROM a30",
    "deep parentheses": "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "deep selects": "SELECT " + "(SELECT " * 500 + "1" + ")" * 500,
    "a long sum": "SELECT 1" + "+1" * 9000,
    "a long IN": "SELECT 1 WHERE 1 IN (" + "2," * 9000 + "2)",
    "many unions": " UNION ALL ".join(["SELECT 1"] * 500),
    "1 MB": "SELECT '" + "x" * 1_000_000 + "'",
    "1 MB of semicolons": ";" * 1_000_000,
    "semicolons": ";" * 20_000,
    "semicolons in a string": "'" + ";" * 19_000,
    "semicolons in a comment": "/*" + ";" * 19_000,
    "open comments": "/*" * 9_900,
    "open quotes": "'\"" * 9_900,
    "trigger semicolons": "CREATE TRIGGER t AFTER INSERT ON accounts BEGIN " + "SELECT 1;" * 2_000,
    "many statements": "SELECT 1;" * 2_000,
    "a NUL": "SELECT 1\x00; DROP TABLE transfers",
    "a NUL in a string": "SELECT 'a\x00b'",
    "a surrogate": "SELECT '\ud800'",
    "bad UTF-8": "SELECT CAST(x'ff00fe' AS TEXT)",
    "a blob": "SELECT x'00ff'",
    "infinities": "SELECT 9e999, -9e999, 9e999 - 9e999, 1 / 0",
    "the greatest integer": "SELECT 9223372036854775807 + 1, abs(-9223372036854775808)",
    "many columns": "SELECT " + ",".join("1" * 1 for _ in range(5000)),
    "a long name": 'SELECT 1 AS "' + "n" * 15_000 + '"',
    "only a comment": "-- nothing",
    "parameters": "SELECT ?, :a",
    "after the limit": f"{ENDLESS} SELECT MAX(i) FROM n; SELECT 7",
}

GOES_ON = "<sql>SELECT COUNT(*) FROM accounts</sql>"


@pytest.fixture(scope="module")
def env():
    try:
        default_sandbox()
    except SandboxFailed as absent:
        pytest.skip(str(absent))
    with DatabaseEnv("Bank", "operations", max_turns=500, turn_s=0.5) as env:
        env.reset(seed=0)
        yield env


@pytest.fixture
def fresh(env):
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("name", REFUSED)
def test_what_reaches_outside_or_changes_the_schema_is_refused(env, name):
    step = env.step(f"<sql>{REFUSED[name]}</sql>")
    assert step.obs.startswith("Error: "), step.obs
    assert "only be read" not in step.obs  # an order's database can be written
    assert not step.done
    assert env.step(GOES_ON).obs == "COUNT(*)\n70\n(1 row)"
    assert not os.path.exists("/tmp/gem_hostile.db")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_an_error_or_a_result_and_the_episode_goes_on(env, name):
    step = env.step(f"<sql>{BOMBS[name]}</sql>")
    assert not step.done, step.info
    assert len(step.obs) < 200_000
    assert "\n7\n" not in step.obs
    assert env.step(GOES_ON).obs == "COUNT(*)\n70\n(1 row)"


def test_all_that_was_tried_changed_nothing(env):
    assert env.step(env.solve()).info["success"] is True


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE customers SET name = CAST(x'fffe' AS TEXT)",
        "UPDATE customers SET name = x'00ff'",
        "UPDATE accounts SET balance_cents = 9e999",
        "UPDATE customers SET name = ''; UPDATE accounts SET kind = 'a' || char(0) || 'b'",
        "INSERT INTO customers SELECT 1000 + a.id * 1000 + b.id, hex(zeroblob(400)), 'x', 'y' "
        "FROM transfers a, transfers b",
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n LIMIT 60000) "
        "INSERT INTO customers SELECT i, 'n', 't', '2020-01-01' FROM n",
        "PRAGMA foreign_keys=OFF; DELETE FROM customers",
        "REPLACE INTO customers VALUES (41, 'a', 'b', 'c')",
    ],
)
def test_whatever_an_agent_stores_its_state_has_a_verdict(fresh, statement):
    said = fresh.step(f"<sql>{statement}</sql>").obs
    step = fresh.step(fresh.solve())
    undone = "foreign_keys" in statement or "it takes longer than" in said  # refused: nothing was stored
    assert (step.reward, step.terminated, step.info["success"]) == (float(undone), True, undone)


@pytest.mark.parametrize(
    "stuck",
    [
        "SELECT hex(zeroblob(20000)) LIKE '" + "%0" * 90 + "1'",
    ],
)
@pytest.mark.system
def test_what_no_limit_of_the_engine_stops_fails_the_task_and_not_the_sandbox(fresh, stuck):
    step = fresh.step(f"<sql>{stuck}</sql>")
    if step.done:
        assert (step.reward, step.info["stop"]) == (0.0, "failed")
        assert "burst the sandbox" in step.info["why"]
        fresh.reset(seed=0)
    assert fresh.step(GOES_ON).obs == "COUNT(*)\n70\n(1 row)"


@pytest.mark.parametrize("form", ["'%.*c', 2000000000, 'x'", "'%2000000000d', 1", "'a%%%-+,010000.2f', 1"])
def test_printf_takes_no_long_width(fresh, form):
    for name in ("printf", "format"):
        assert fresh.step(f"<sql>SELECT {name}({form})</sql>").obs.startswith("Error: a width in printf()")
    right = "printf('%05.1f|%-3s|%,d|100%%|* 12345', 1.5, 'a', 1234)"
    assert "001.5|a  |1,234|100%|* 12345" in fresh.step(f"<sql>SELECT {right}, printf(NULL)</sql>").obs


def test_questions_write_nothing(env):
    with DatabaseEnv("Bank", turn_s=0.5) as asked:
        asked.reset(seed=0)
        for statement in (
            "DELETE FROM transfers",
            "BEGIN",
            "SAVEPOINT a",
            "INSERT INTO customers VALUES (99)",
        ):
            assert "only be read" in asked.step(f"<sql>{statement}</sql>").obs


@pytest.mark.parametrize(
    "name", ["endless recursion", "zeroblob", "1 MB", "a NUL", "bad UTF-8", "infinities"]
)
def test_a_bomb_as_the_answer_is_a_wrong_answer(env, name):
    with DatabaseEnv("Bank", turn_s=0.5) as asked:
        asked.reset(seed=0)
        step = asked.step(f"<answer>{BOMBS[name]}</answer>")
        assert (step.reward, step.terminated, step.info["success"]) == (0.0, True, False)


def test_statements_are_split_as_they_are_written_in_linear_time():
    assert list(worker.split("SELECT ';'; -- ; \n SELECT \"a;\" /* ; */; [;] ; `;`")) == [
        "SELECT ';';",
        ' -- ; \n SELECT "a;" /* ; */;',
        " [;] ;",
        " `;`",
    ]
    assert list(worker.split(" ; ;; -- x\n /* y */ ;")) == []
    assert list(worker.split("SELECT 'it''s; so'")) == ["SELECT 'it''s; so'"]

    def cost(text):
        begin = time.process_time()
        list(worker.split(text))
        return time.process_time() - begin

    for hostile in ("/*", "'\"", "'", ";", "[", "--", "-", "';", "/*;"):
        short, long = (min(cost(hostile * n) for _ in range(3)) for n in (5_000, 40_000))
        assert long < 40 * short + 0.05, hostile  # quadratic would be 64 times
