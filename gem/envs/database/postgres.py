"""Server, which makes PostgreSQL databases, each with a role that can use only that database."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from gem.errors import BadArgument, GemError, MissingExtra, NoVerdict, ToolError
from gem.tools.postgres import Connection, SqlError

VARIABLE = "GEM_POSTGRES_DSN"
"""The variable with the default dsn; a dsn has a password, and arguments are stored with episodes."""

_ADMIN_S, _DROP_S = 60.0, 15.0
_OLDEST = 130_000
"""PostgreSQL 13, the first version with DROP DATABASE ... WITH (FORCE)."""

SHARED = (
    *(r"pg_(try_)?advisory.*", "lo_.*", "lo(read|write)", "pg_sleep.*", ".*_to_xml.*", "pg_notify"),
    *("pg_logical_emit_message", "pg_(terminate|cancel)_backend", "pg_export_snapshot"),
)
"""Patterns of functions that reach beyond a role's database, run SQL from text, or end connections."""

UNREPEATABLE = (
    *("random(_normal)?", "setseed", "gen_random_uuid", "now", "(clock|statement|transaction)_timestamp"),
    *("timeofday", "set_config"),
)
"""Functions whose result changes from call to call, and set_config, which could remove limits."""

_LIMITS = {
    "search_path": "public",
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "temp_file_limit": "64MB",  # only a superuser may change this one
    "work_mem": "16MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "client_connection_check_interval": "1s",
}

_NOT_LIVING = """
SELECT name FROM (
  SELECT datname AS name FROM pg_database UNION SELECT rolname FROM pg_roles
) AS named WHERE name ~ '^gem_[0-9a-f]{12}_[0-9]+$' AND NOT EXISTS (
  SELECT 1 FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
  WHERE r.rolsuper AND a.application_name = substr(name, 1, 16))"""


class Database:
    """A database and the role that may use it: LOGIN, no superuser, 5 connections.

    The role has the same name as the database, `name`; `dsn` connects as the role.
    """

    def __init__(self, server: Server, name: str, password: str, of: str = "") -> None:
        """Keep the names; Server.open() makes the database. `of`: the database, if it is not `name`."""
        self.server, self.name = server, name
        self.dsn = _with(server.dsn, user=name, password=password, dbname=of or name)

    def admin(self) -> Connection:
        """Return a new superuser connection to this database; never run code of an agent with it."""
        return Connection(_with(self.server.dsn, dbname=self.name), self.server.owner)

    def close(self) -> None:
        """Drop the database and its role, even while in use; harmless if repeated or without the server."""
        self.server.drop(self.name)


class Server:
    """A PostgreSQL server and the databases that this process has on it.

    Names are ``gem_<owner>_<n>``. A superuser's connection named ``gem_<owner>`` shows that the owner is
    running. A new Server drops what owners that no longer run have left.
    """

    def __init__(self, dsn: str) -> None:
        """Connect as the superuser that `dsn` names.

        Raises:
            BadArgument: when the dsn cannot be read, its role is no superuser, or the server is too old.
            NoVerdict: when the server cannot be reached.
            MissingExtra: without the psycopg package.
        """
        self.dsn, self.owner = dsn, f"gem_{secrets.token_hex(6)}"
        self._count = 0
        self._living: set[str] = set()
        self._templates: dict[str, str] = {}
        self._template_lock = threading.Lock()
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._admin = Connection(dsn, self.owner)
        facts = "SELECT rolsuper, current_setting('server_version_num')::int, rolname FROM pg_roles"
        superuser, version, role = self._admin.run(f"{facts} WHERE rolname = current_user", _ADMIN_S).rows[0]
        if not superuser or version < _OLDEST:
            self._admin.close()
            raise BadArgument(
                f"the dsn's role {role!r} is {'a' if superuser else 'no'} superuser, the server's version is "
                f"{version // 10_000}. Accepted: a superuser, because only superusers can restrict other "
                "roles, on PostgreSQL 13 or later. "
                "`python -m gem.envs.database.postgres_server` starts such a server."
            )
        for (name,) in self._admin.run(_NOT_LIVING, _ADMIN_S).rows:
            self._drop(name)

    def open(
        self,
        script: str,
        *,
        grant: str = "SELECT",
        revoke: Iterable[str] = SHARED,
        plpgsql: bool = False,
        limits: Mapping[str, str] | None = None,
    ) -> Database:
        """Make a database from a trusted script, and a role that may use it.

        Args:
            script: SQL that makes tables and rows; the superuser owns them.
            grant: privileges of the role on all of these tables.
            revoke: patterns of functions that only the superuser may call in it.
            plpgsql: whether the role may write functions and DO blocks, if it may create anything.
            limits: settings of the role in addition to those of every role.

        Raises:
            BadArgument: when PostgreSQL refuses the script.
            NoVerdict: when the server is gone.
        """
        settings = {**_LIMITS, **(limits or {})}
        password = secrets.token_hex(16)
        self._revive()
        template = self._template(_hardening(revoke, plpgsql))
        with self._naming() as name:
            database = Database(self, name, password)
            self._run(f"CREATE DATABASE {name} TEMPLATE {template}")
            self._run(
                f"CREATE ROLE {name} LOGIN PASSWORD '{password}' CONNECTION LIMIT 5 NOSUPERUSER NOCREATEDB "
                "NOCREATEROLE NOREPLICATION NOINHERIT;"
                + "".join(f"ALTER ROLE {name} SET {key} = '{value}';" for key, value in settings.items())
                + f"REVOKE ALL ON DATABASE {name} FROM PUBLIC; GRANT CONNECT ON DATABASE {name} TO {name}"
            )
            with contextlib.closing(database.admin()) as admin:
                try:
                    admin.script(script)
                except SqlError as error:
                    raise BadArgument(f"PostgreSQL refuses the database's script: {error}") from error
                except ToolError as error:
                    raise NoVerdict(f"PostgreSQL made no database: {error}") from error
                _ours(admin, f"GRANT {grant} ON ALL TABLES IN SCHEMA public TO {name}")
        return database

    def judge(self, database: Database, groups: Iterable[str] = ()) -> Database:
        """Lock out a database's role, and return access for a new role with the same privileges.

        Code of an agent runs with the privileges of the role that reads its objects, so the judge must not
        have more. The new role is also a member of `groups`, which `shared_roles` makes. close() drops it.

        Raises:
            ToolError: when a process of the locked role cannot be ended.
            NoVerdict: when the server is gone.
        """
        password = secrets.token_hex(16)
        running = f"FROM pg_stat_activity WHERE usename = '{database.name}'"
        self._run(f"ALTER ROLE {database.name} NOLOGIN")
        until = time.monotonic() + _DROP_S
        while True:
            with self._lock:
                left = self._admin.value(f"SELECT count(pg_terminate_backend(pid)) {running}", _ADMIN_S)
            if not left:
                break
            if time.monotonic() > until:
                raise ToolError("what it runs cannot be ended")
            time.sleep(0.005)
        with self._naming() as name:
            self._run(
                f"CREATE ROLE {name} LOGIN PASSWORD '{password}' CONNECTION LIMIT 5;"
                + "".join(f"ALTER ROLE {name} SET {key} = '{value}';" for key, value in _LIMITS.items())
                + f"GRANT {', '.join((database.name, *groups))} TO {name}"
            )
            return Database(self, name, password, database.name)

    def shared_roles(self, names: Iterable[str]) -> None:
        """Create these roles without login, if they are missing; they stay and belong to no database."""
        for name in names:
            self._run(
                f"DO $$ BEGIN CREATE ROLE {name} NOLOGIN; EXCEPTION WHEN duplicate_object OR "
                "unique_violation THEN NULL; END $$"
            )

    def size(self, name: str) -> int:
        """Return the size of a database on disk in bytes."""
        with self._lock:
            return int(self._admin.value(f"SELECT pg_database_size('{name}')"))

    def drop(self, name: str) -> None:
        """Drop a database of this Server and its role."""
        if os.getpid() != self._pid:  # a forked process must not drop its parent's databases
            return
        with self._lock:
            if name in self._living:
                self._living.discard(name)
                with contextlib.suppress(GemError):  # if the server is gone, the next Server cleans up
                    self._drop(name)

    def close(self) -> None:
        """Drop the remaining databases, and disconnect."""
        for name in sorted(self._living):
            self.drop(name)
        if os.getpid() == self._pid:
            self._admin.close()

    def _revive(self) -> None:
        """Connect again if the server has ended the connection, as in a restart."""
        with self._lock:
            try:
                self._admin.value("SELECT 1")
            except NoVerdict:
                self._admin.value("SELECT 1")
                self._templates.clear()  # without our connection, others may have dropped them

    def _template(self, hardening: str) -> str:
        """Return the name of a database to clone; revoking privileges is slow, so it is done only once."""
        with self._template_lock:
            if hardening not in self._templates:
                with self._naming() as name:
                    how = "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
                    self._run(f"CREATE DATABASE {name} {how}")
                    with contextlib.closing(Database(self, name, "").admin()) as admin:
                        _ours(admin, hardening)
                self._templates[hardening] = name
            return self._templates[hardening]

    @contextlib.contextmanager
    def _naming(self) -> Iterator[str]:
        """Yield a new name; if the block fails, drop the database and role of that name."""
        with self._lock:
            self._count += 1
            name = f"{self.owner}_{self._count}"
            self._living.add(name)
        try:
            yield name
        except BaseException:
            self.drop(name)
            raise

    def _run(self, sql: str) -> None:
        with self._lock:
            _ours(self._admin, sql)

    def _drop(self, name: str) -> None:
        for what in ("DATABASE", "ROLE"):
            force = " WITH (FORCE)" if what == "DATABASE" else ""
            with contextlib.suppress(ToolError):  # another process dropped it at the same time
                self._admin.run(f"DROP {what} IF EXISTS {name}{force}", _DROP_S)


_servers: dict[tuple[int, str], Server] = {}
_servers_lock = threading.Lock()


def server(dsn: str | None = None) -> Server:
    """Return this process's Server for a dsn; without one, for the value of GEM_POSTGRES_DSN.

    Raises:
        MissingExtra: when neither is set.
        BadArgument, NoVerdict: as Server() does.
    """
    dsn = dsn or os.environ.get(VARIABLE)
    if not dsn:
        raise MissingExtra(
            f"no PostgreSQL server is named: set {VARIABLE} to a superuser's dsn, as 'host=/run/postgresql "
            "user=postgres dbname=postgres'. `python -m gem.envs.database.postgres_server COMMAND` runs a "
            "command with a server of its own."
        )
    with _servers_lock:
        key = (os.getpid(), dsn)
        if key not in _servers:
            _servers[key] = Server(dsn)
            atexit.register(_servers[key].close)
        return _servers[key]


def _ours(admin: Connection, sql: str) -> None:
    """Run a trusted script, which fails only if the server fails.

    Raises:
        NoVerdict: when it fails.
    """
    try:
        admin.script(sql, _ADMIN_S)
    except ToolError as error:
        raise NoVerdict(f"PostgreSQL made no database: {error}") from error


def _with(dsn: str, **changed: str) -> str:
    from psycopg.conninfo import make_conninfo

    return make_conninfo(dsn, **changed)


def _hardening(revoke: Iterable[str], plpgsql: bool) -> str:
    """Return SQL that revokes from PUBLIC its default privileges and the calls of the named functions."""
    pattern = "|".join(revoke)
    return f"""
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
        {"" if plpgsql else "REVOKE USAGE ON LANGUAGE plpgsql, sql FROM PUBLIC;"}
        DO $$ DECLARE named regprocedure; BEGIN
          FOR named IN SELECT oid FROM pg_proc WHERE proname ~ '^({pattern})$' LOOP
            EXECUTE 'REVOKE EXECUTE ON ROUTINE ' || named || ' FROM PUBLIC';
          END LOOP;
        END $$"""
