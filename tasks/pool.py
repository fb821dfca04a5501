"""The worker's own connections: few, bounded, and never waited for without a limit."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

STATEMENT_SECONDS_MAX = 10.0
"""A statement of the worker that takes longer is ended by the server, so that no tick hangs for ever."""
LOCK_SECONDS_MAX = 2.0
"""How long a statement of the worker waits for a row that somebody else has locked."""
CONNECT_SECONDS_MAX = 5
CHECKOUT_SECONDS_MAX = 5.0
SILENCE_MS_MAX = 20_000
"""How long sent bytes may stay unacknowledged before the socket is given up: a vanished host sends no FIN."""

PREPARE_THRESHOLD = 0
"""A worker's statement is prepared at its first use: what a worker asks, it asks again."""
PLANNER = " ".join(
    f"-c {setting}"
    for setting in (
        # Planned once: planning a claim of one job takes longer than the claim.
        "plan_cache_mode=force_generic_plan",
        # A plan stays when the tables have grown: a walk over all of one, short today, must not be in it.
        "enable_seqscan=off",
        "enable_hashjoin=off",
        "enable_mergejoin=off",
        # Compiling the claim would cost more than running it.
        "jit=off",
    )
)
"""Settings of the worker's connections, whose statements look a few rows up by an index, whatever the tables hold."""

DATABASE_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""What is worth another try on a new connection. Time-outs and deadlocks are among it."""

ROW_AWAY = (psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected)
"""Those of DATABASE_AWAY that one row of several may have caused: the others can be written without it."""

NO_TABLES = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
OTHER_TABLES = (psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction)
NOT_MIGRATED = (*NO_TABLES, *OTHER_TABLES)
"""The database is there, the migrations that this code needs are not."""


_CURE = "run the migrations, `alembic -c setup.cfg upgrade tasks@head` or the application's own command"


def what_is_missing(error: BaseException) -> str:
    """Say in a sentence what to do about one of NOT_MIGRATED."""
    if isinstance(error, NO_TABLES):
        return f"has no job tables: {_CURE}"
    return f"has job tables of another version ({str(error).partition(chr(10))[0]}): {_CURE}"


def connect_options() -> dict[str, Any]:
    """Options of every connection that tasks opens by itself.

    Nothing is prepared: behind a pooler the next transaction may be on a connection that does not know it.
    """
    return {
        "prepare_threshold": None,
        "connect_timeout": CONNECT_SECONDS_MAX,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": SILENCE_MS_MAX,
    }


_TIME_OUTS = "SELECT set_config('statement_timeout', %s, %s), set_config('lock_timeout', %s, %s)"


def _set_time_outs(conn: psycopg.Connection[Any], *, local: bool) -> None:
    statement, lock = (f"{seconds * 1000:.0f}" for seconds in (STATEMENT_SECONDS_MAX, LOCK_SECONDS_MAX))
    conn.execute(_TIME_OUTS, (statement, local, lock, local))


def _configure(conn: psycopg.Connection[Any]) -> None:
    # Given bytes, json.loads looks for their encoding first, which takes longer than the rest.
    set_json_loads(lambda data: json.loads(data if isinstance(data, str) else str(data, "utf-8")), conn)
    _set_time_outs(conn, local=False)
    conn.commit()


class Pool:
    """At most `size` connections to `database_url`, opened at first use.

    `pooled`: behind a pooler in transaction mode, where each transaction may be on another server connection.
    Nothing is kept on a connection then: no prepared statement, no setting.
    """

    def __init__(self, database_url: str, size: int, name: str, *, pooled: bool = False) -> None:
        self._pooled = pooled
        # A pooler refuses options, and there every statement is planned anew.
        more: dict[str, Any] = {} if pooled else {"options": PLANNER, "prepare_threshold": PREPARE_THRESHOLD}
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            database_url,
            kwargs={**connect_options(), **more, "application_name": name[:63]},
            min_size=1,
            max_size=size,
            open=False,
            name=name,
            configure=None if pooled else _configure,
            timeout=CHECKOUT_SECONDS_MAX,
            # The pool doubles its pause between attempts without a cap; giving up early makes the next
            # checkout start anew, so that a long outage is followed by a connection within seconds.
            reconnect_timeout=CONNECT_SECONDS_MAX,
        )

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """One transaction: committed at the end, rolled back on an error. Raises as `connection` does."""
        with self.connection() as conn:
            if self._pooled:
                _set_time_outs(conn, local=True)
            yield conn

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection that has no transaction yet, for who makes several and bounds each.

        Raises one of DATABASE_AWAY when there is no connection in time or it is lost on the way; the other
        idle connections are looked at then, since what broke one (a restart) most often broke all.
        """
        self._pool.open(wait=False)
        try:
            with self._pool.connection() as conn:
                yield conn
        except DATABASE_AWAY:
            self._pool.check()
            raise

    def close(self) -> None:
        """Close every connection."""
        self._pool.close(timeout=CHECKOUT_SECONDS_MAX)
