"""Connection: a connection to a PostgreSQL server that is safe for untrusted SQL."""

from __future__ import annotations

import contextlib
import math
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from gem.errors import BadArgument, NoVerdict, ToolError, needs_extra

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic
    from psycopg.pq.abc import PGconn, PGresult

_CONNECT_S = 5
_GRACE_S = 3.0
"""Seconds that a cancelled statement may take to end before its connection is closed."""

_RECOVERY_S = 15.0
"""Seconds that a running server may refuse connections, as it does after a crash of one of them."""

_LATE = "it takes longer than it may"

LARGEST = 8_000_000
"""The most bytes of one row, and of all kept rows together.

A longer row is refused, as soon as it is seen to arrive (see _waiting) or else once it is read.
"""

_TOO_LONG = f"a row has more than {LARGEST} bytes"

_NO_FAULT_OF_SQL = frozenset({"57P01", "57P02", "57P03", "57P04"})
"""SQLSTATEs of a server that shuts down, crashed elsewhere, starts, or has dropped the database."""

_SILENT = "silent"
"""Used as the SQLSTATE of a server that closed the connection without a message while nothing ran."""

_BARRED = (
    *("too many connections for role", "password authentication failed", "could not access file"),
    *("due to idle-session timeout", "due to statement timeout"),
)
"""The server's messages to a role that has locked itself out: by statements that cannot be stopped, or by a
new password or setting, which every role can give itself with ALTER ROLE.
"""

_PASSES = re.compile("FATAL|closed the connection")
"""Errors after which the connection is tried again: a running server refuses or closes it."""

_WHOLE = frozenset({20, 21, 23, 26})  # type oids: int8, int2, int4, oid
_FLOAT = frozenset({700, 701})
_NUMERIC, _BOOL = 1700, 16

_TOKEN = re.compile(
    r"""(?P<end>;)|(?P<comment>--[^\n\r]*)|(?P<block>/\*)|[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z)|'[^']*(?:'|\Z)"""
    r"""|"[^"]*(?:"|\Z)|(?P<word>[A-Za-z_\x80-\U0010ffff][\w$\x80-\U0010ffff]*)"""
    r"""|(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$)|[ \t\n\r\f\v]+|.""",
    re.DOTALL | re.ASCII,
)
_FENCE = re.compile(r"/\*|\*/")


class SqlError(ToolError):
    """The server's error for a statement; `sqlstate` is its code of five characters."""

    sqlstate: str = ""


class SqlResult(NamedTuple):
    """The result of a statement: `columns` is None if it returns no rows, `more` is set if rows were cut."""

    columns: list[str] | None
    rows: list[list[Any]]
    more: bool
    changed: int


class Statement(NamedTuple):
    """A statement, and its bare words (outside strings, quoted names and comments) in lower case."""

    text: str
    words: list[str]


class _GivenUp(Exception):
    """The connection is closed by this side."""


class Connection:
    """A connection with limits that are enforced on the client side, where the SQL cannot change them.

    A message holds one statement (the extended protocol), so checks of its first word are reliable. A late
    statement is cancelled; if that fails, its connection is closed. Values are returned as Python's int,
    float, bool and None, and otherwise as the server's text.
    """

    def __init__(self, dsn: str, name: str = "gem") -> None:
        """Connect to `dsn`, a libpq connection string; the server lists the connection as `name`.

        Raises:
            MissingExtra: without the psycopg package.
            BadArgument: for a dsn that cannot be parsed.
            NoVerdict: when the server cannot be reached or accepts no connection.
        """
        self._dsn, self._name = dsn, name
        self._began: Any = None
        self._open()

    def run(self, sql: str, seconds: float, rows: int = 1_000, cut: bool = False) -> SqlResult:
        """Run one statement and return up to `rows` of its rows.

        With `cut`, a statement with more rows is ended there; use it only for statements that change nothing.
        After a statement that lost its connection there is a new connection, without the open transaction.

        Raises:
            ToolError: when the statement fails, is late, too large, or ends its own connection.
            NoVerdict: when the server is gone.
        """
        if "\0" in sql:
            raise ToolError("SQL may not have a NUL character")
        message = _bytes(sql)
        line = self._ready()
        idle = line.transaction_status == 0  # a cancelled statement would break an open transaction
        return self._exchange(lambda: line.send_query_params(message, None), seconds, rows, cut and idle)

    def script(self, sql: str, seconds: float = 60.0) -> None:
        """Run trusted statements, as one transaction unless they say otherwise.

        Raises:
            ToolError, NoVerdict: as in run().
        """
        message = _bytes(sql)
        line = self._ready()
        self._exchange(lambda: line.send_query(message), seconds, 0, False)

    def value(self, sql: str, seconds: float = 10.0) -> Any:
        """Return the single value of a trusted query.

        Raises:
            NoVerdict: when the query fails.
        """
        try:
            return self.run(sql, seconds).rows[0][0]
        except ToolError as error:
            raise NoVerdict(f"PostgreSQL failed at {sql!r}: {error}") from error

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._line().transaction_status != 0

    @property
    def pid(self) -> int:
        """The pid of the server process of this connection."""
        return self._line().backend_pid

    def close(self) -> None:
        """Close the connection; calling it twice is harmless."""
        self._connection.close()

    # -- inside

    def _line(self) -> PGconn:
        if self._connection.closed:
            self._reopen()
        return self._connection.pgconn

    def _ready(self) -> PGconn:
        """Read pending messages of the server and return the idle connection.

        Raises:
            NoVerdict: when the server has closed the connection without a message. It ran no statement then,
                so none is to blame. That happens when another server process crashes on a busy machine.
        """
        line = self._line()
        poll = select.poll()
        poll.register(line.socket, select.POLLIN)
        for _ in range(100):  # more than it may say before it hangs up
            if not poll.poll(0):
                break
            try:
                line.consume_input()
            except self._lost as error:
                with contextlib.suppress(self._errors):
                    line.is_busy()  # hears what came together with the end
                code, why = self._end
                self._reconnect(why or str(error), code or _SILENT)
            line.is_busy()  # hears notices
        return line

    def _reopen(self) -> None:
        """Reconnect, and wait for a server that refuses connections for the moment.

        Raises:
            ToolError: when the SQL of this connection has locked its role out.
            NoVerdict: when the server cannot be reached or accepts no connection.
        """
        until = time.monotonic() + _RECOVERY_S
        while True:
            try:
                return self._open()
            except NoVerdict as down:
                if any(message in str(down) for message in _BARRED):
                    raise ToolError(f"the role has barred itself out: {down}") from down
                if not _PASSES.search(str(down)) or time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def _open(self) -> None:
        with needs_extra("PostgreSQL", "psycopg", "postgres"):
            import psycopg
        self._lost, self._errors = psycopg.OperationalError, psycopg.Error
        try:
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                connect_timeout=_CONNECT_S,
                client_encoding="utf8",
                application_name=self._name,
            )
        except psycopg.ProgrammingError as error:
            raise BadArgument(
                f"the dsn cannot be read ({str(error).strip()}). Accepted: libpq's form, as "
                "'host=/run/postgresql user=me dbname=postgres' or 'postgresql://me@localhost/postgres'."
            ) from error
        except psycopg.OperationalError as error:
            # Its frames hold the half-open connection, for which a server that hung would wait.
            raise NoVerdict(f"PostgreSQL cannot be reached: {error}") from error.with_traceback(None)
        self._end = "", ""  # what the server said about ending this connection: a code, and why
        self._connection.add_notice_handler(self._note)
        asked = b"SELECT pg_catalog.pg_postmaster_start_time()"
        line = self._connection.pgconn
        try:
            start = self._once(lambda: line.send_query_params(asked, None), _CONNECT_S, 1, False)
        except (_GivenUp, ToolError, self._lost) as error:
            self.close()
            raise NoVerdict(f"PostgreSQL does not answer: {error}") from error
        self._began = start.rows[0][0]

    def _note(self, notice: Diagnostic) -> None:
        """Record why the server ends the connection."""
        if notice.sqlstate in _NO_FAULT_OF_SQL or notice.severity_nonlocalized == "FATAL":
            self._code = notice.sqlstate or ""
            self._end = self._code, notice.message_primary or ""

    def _exchange(self, send: Callable[[], None], seconds: float, rows: int, cut: bool) -> SqlResult:
        """Send a message and read the reply, or raise an error that says who ended the connection."""
        try:
            return self._once(send, seconds, rows, cut)
        except _GivenUp as error:
            self._reconnect(str(error), "")
        except self._lost as error:
            self._reconnect(str(error), self._code)

    def _once(self, send: Callable[[], None], seconds: float, rows: int, cut: bool) -> SqlResult:
        self._code = ""
        line = self._connection.pgconn
        send()
        line.set_single_row_mode()
        return self._collect(line, seconds, rows, cut)

    def _collect(self, line: PGconn, seconds: float, rows: int, cut: bool) -> SqlResult:
        """Read the server's messages until the reply is complete.

        Raises:
            psycopg.OperationalError: when the server ends the connection.
        """
        columns: list[str] | None = None
        kept: list[list[Any]] = []
        failed: PGresult | None = None
        size = changed = unread = 0
        more = late = ended = False
        cancel: threading.Thread | None = None
        deadline = time.monotonic() + seconds
        while True:
            if time.monotonic() > deadline:
                if late:
                    raise _GivenUp(f"{_LATE}, and could not be stopped")
                late, deadline = True, time.monotonic() + _GRACE_S
                cancel = cancel or self._cancel()
            if (unsent := line.flush()) or line.is_busy():
                if _wait(line.socket, bool(unsent), deadline):
                    unread += _waiting(line.socket)
                    if unread > LARGEST:
                        raise _GivenUp(_TOO_LONG)
                    line.consume_input()
                continue
            unread = 0
            result = line.get_result()
            if result is None:
                break
            status = result.status
            if status in (2, 9):  # TUPLES_OK, SINGLE_TUPLE
                if columns is None:
                    columns = [_text(result.fname(place) or b"") for place in range(result.nfields)]
                for _ in range(result.ntuples):
                    raw = [result.get_value(0, place) for place in range(result.nfields)]
                    length = sum(len(value) for value in raw if value)
                    if length > LARGEST:
                        raise _GivenUp(_TOO_LONG)
                    size += length
                    if len(kept) < rows and size <= LARGEST:
                        types = [result.ftype(place) for place in range(result.nfields)]
                        kept.append(list(map(_value, raw, types)))
                        continue
                    more = True
                    if cut and not ended:
                        ended, cancel = True, self._cancel()
                        deadline = min(deadline, time.monotonic() + _GRACE_S)
                if status == 2:
                    changed = result.command_tuples or 0
            elif status == 1:  # COMMAND_OK
                changed = result.command_tuples or 0
            elif status in (6, 7):  # NONFATAL_ERROR, FATAL_ERROR
                failed = result
                self._code = _text(result.error_field(67) or b"")  # SQLSTATE
            elif status != 0:  # COPY and its kin
                raise _GivenUp("COPY to or from a client is not available here")
        if cancel is not None:  # it must not hit the next statement
            cancel.join(_GRACE_S)
        while line.notifies():
            pass
        if failed is not None:
            if line.status != 0:
                raise self._lost(_complaint(failed))
            if self._code != "57014" or not (late or ended):
                refusal = SqlError(_complaint(failed))
                refusal.sqlstate = self._code
                raise refusal
            if late and not ended:
                raise ToolError(_LATE)
        return SqlResult(columns, kept, more, changed)

    def _cancel(self) -> threading.Thread:
        """Ask the server to cancel the statement; in a thread, because a stuck server never answers."""
        connection, errors = self._connection, self._errors

        def ask() -> None:
            with contextlib.suppress(errors):  # the deadline goes on, whatever becomes of it
                connection.cancel_safe(timeout=_GRACE_S)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        return thread

    def _reconnect(self, why: str, code: str) -> NoReturn:
        """Reconnect, and raise an error that says who ended the connection: the server or its SQL.

        Raises:
            NoVerdict: when the server ended it, was restarted, or does not answer.
            ToolError: else.
        """
        began = self._began
        self.close()
        if code in _NO_FAULT_OF_SQL or code == _SILENT:
            raise NoVerdict(f"PostgreSQL ended the connection: {why}")
        self._reopen()
        if self._began != began:
            raise NoVerdict(f"PostgreSQL was started anew while a statement ran: {why}")
        raise ToolError(f"{' '.join(why.split())}; the connection was lost, and what was not committed")


def statements(sql: str) -> Iterator[Statement]:
    """Yield the statements of `sql` as PostgreSQL splits them, without those that are only comments.

    Its rules for strings, dollar quotes and nested comments are followed. If a split were missed, the server
    would refuse two statements in one message.
    """
    place = start = 0
    words: list[str] = []
    empty = True
    while place < len(sql):
        token = _TOKEN.match(sql, place)
        assert token is not None
        place = token.end()
        if token["end"]:
            if not empty:
                yield Statement(sql[start:place], words)
            start, words, empty = place, [], True
            continue
        if token["block"]:
            place = _after_comment(sql, place)
        elif not token["comment"] and not token[0].isspace():
            empty = False
            if token["word"]:
                words.append(token["word"].lower())
            elif token["dollar"]:
                close = sql.find(token["dollar"], place)
                place = len(sql) if close < 0 else close + len(token["dollar"])
    if not empty:
        yield Statement(sql[start:], words)


def _after_comment(sql: str, place: int) -> int:
    depth = 1
    for fence in _FENCE.finditer(sql, place):
        depth += 1 if fence[0] == "/*" else -1
        if depth == 0:
            return fence.end()
    return len(sql)


def _bytes(sql: str) -> bytes:
    try:
        return sql.encode()
    except UnicodeEncodeError as error:
        raise ToolError("SQL may not have characters that are no Unicode text (lone surrogates)") from error


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _value(raw: bytes | None, oid: int) -> Any:
    """Return a value as a Python object."""
    if raw is None:
        return None
    text = _text(raw)
    if oid in _WHOLE:
        return int(text)
    if oid == _BOOL:
        return text == "t"
    if oid == _NUMERIC and len(text) < 40 and text.lstrip("-").isdecimal():
        return int(text)
    if oid in _FLOAT or oid == _NUMERIC:
        number = float(text)
        return number if math.isfinite(number) else text[:40]
    return text


def _complaint(failed: PGresult) -> str:
    """Return an error's message, detail and hint."""
    parts = [_text(failed.error_field(field) or b"") for field in (77, 68, 72)]
    return "; ".join(filter(None, parts))[:2_000] or _text(failed.error_message)[:2_000]


def _wait(socket: int, write: bool, deadline: float) -> bool:
    """Wait until the socket is ready or the deadline has passed; return whether it can be read."""
    poll = select.poll()
    poll.register(socket, select.POLLIN | (select.POLLOUT if write else 0))
    left_ms = max(deadline - time.monotonic(), 0.0) * 1000
    return any(event & ~select.POLLOUT for _, event in poll.poll(left_ms + 1))


def _waiting(socket: int) -> int:
    """Return how many bytes wait in the socket, because libpq reports a row only when it is complete.

    Bytes that arrive while libpq reads are not counted, so most rows that are too long are refused early, but
    not all.
    """
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(socket, termios.FIONREAD, bytes(4)), "little")
