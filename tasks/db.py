"""The door to Postgres: a psycopg cursor inside the caller's own transaction, and the statement files.

Nothing here or in `tasks.queue` ever commits: the caller does.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from sqlalchemy import Connection
from sqlalchemy.orm import Session, scoped_session

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from psycopg.rows import RowFactory, RowMaker

Conn = psycopg.Connection[Any] | Connection | Session | scoped_session[Any]
"""Whatever the caller's transaction lives in."""
Row = TypeVar("Row")
PAGE_STATEMENT_MS = 10_000
_TIME_OUTS = "SELECT set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)"


def driver_connection(conn: Conn) -> psycopg.Connection[Any]:
    """Return the psycopg connection under `conn`.

    Raises TypeError when it is none of the four kinds, or not on psycopg 3.
    """
    if isinstance(conn, (Session, scoped_session)):
        conn = conn.connection()
    if isinstance(conn, Connection) and not conn.in_transaction():
        # What we send goes past SQLAlchemy; without this its commit() and rollback() would do nothing.
        conn.begin()
    raw = conn.connection.driver_connection if isinstance(conn, Connection) else conn
    if not isinstance(raw, psycopg.Connection):
        raise TypeError("expected a psycopg or SQLAlchemy connection, or a session, on psycopg 3")
    return raw


def cursor(conn: Conn, row_factory: RowFactory[Row]) -> psycopg.Cursor[Row]:
    """Open a cursor in the caller's transaction."""
    return driver_connection(conn).cursor(row_factory=row_factory)


@cache
def statement(name: str) -> bytes:
    """Load the statement `tasks/sql/NAME.sql`."""
    return files("tasks").joinpath("sql", f"{name}.sql").read_bytes()


def rows(conn: Conn, name: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run the statement `name` and return its rows as tuples."""
    with cursor(conn, tuple_row) as cur:
        return cur.execute(statement(name), params).fetchall()


def _record_row(kind: type[Row]) -> RowFactory[Row]:
    """Make records by position, in half the time of psycopg's `class_row`; the names are compared once a result."""

    def make(cur: psycopg.Cursor[Any]) -> RowMaker[Row]:
        columns = [column.name for column in cur.description or ()]
        if columns != list(kind.__annotations__):
            raise TypeError(f"{kind.__name__} has other fields than the statement's columns: {', '.join(columns)}")
        return lambda values: kind(*values)

    return make


def records(conn: Conn, name: str, kind: type[Row], params: Mapping[str, Any]) -> list[Row]:
    """Run the statement `name` and return its rows as `kind`, a record of the columns in their order."""
    # In binary, what has many columns costs the server and this side a tenth less.
    with driver_connection(conn).cursor(row_factory=_record_row(kind), binary=True) as cur:
        return cur.execute(statement(name), params).fetchall()


def uuid_array(ids: Iterable[UUID]) -> str:
    """Write ids as Postgres reads an array: psycopg, which looks at each of a list, takes three times as long."""
    return "{" + ",".join([one.hex for one in ids]) + "}"


@contextmanager
def savepoint(conn: Conn) -> Iterator[None]:
    """Undo the block when it raises, leaving the caller's transaction usable.

    Not psycopg's `transaction()`: on a connection that has not sent its first statement yet, that one would
    begin and *commit* the transaction which belongs to the caller.
    """
    raw = driver_connection(conn)
    if raw.autocommit and raw.info.transaction_status == TransactionStatus.IDLE:
        with raw.transaction():
            yield
        return
    raw.execute("SAVEPOINT tasks_move")
    try:
        yield
    except BaseException:
        if raw.info.transaction_status in (TransactionStatus.INERROR, TransactionStatus.INTRANS):
            raw.execute("ROLLBACK TO SAVEPOINT tasks_move")
            raw.execute("RELEASE SAVEPOINT tasks_move")
        raise
    raw.execute("RELEASE SAVEPOINT tasks_move")


@contextmanager
def pipeline(conn: Conn) -> Iterator[None]:
    """Send the statements of the block without waiting for their results: errors come when those are read."""
    with driver_connection(conn).pipeline():
        yield


@contextmanager
def together(conn: Conn) -> Iterator[None]:
    """Keep the statements of the block in one transaction: the caller's, or one of its own under autocommit."""
    raw = driver_connection(conn)
    if raw.autocommit and raw.info.transaction_status == TransactionStatus.IDLE:
        with raw.transaction():
            yield
    else:
        yield


@contextmanager
def page(conn: Conn, *, lock_wait_ms: int) -> Iterator[None]:
    """Run the block in a transaction of its own, which is committed; in a savepoint when one is open already.

    Inside it no statement waits longer than `lock_wait_ms` for a lock (psycopg.errors.LockNotAvailable), or takes
    longer than PAGE_STATEMENT_MS. Both settings are as before afterwards.
    """
    raw = driver_connection(conn)
    idle = raw.info.transaction_status == TransactionStatus.IDLE
    with raw.transaction() if idle else savepoint(conn):
        before = raw.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')").fetchone()
        raw.execute(_TIME_OUTS, (f"{lock_wait_ms}ms", f"{PAGE_STATEMENT_MS}ms"))
        yield
        if not idle:
            raw.execute(_TIME_OUTS, before)
