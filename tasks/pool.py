"""The worker's own connections: few, bounded, and never waited for without a limit."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg_pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

STATEMENT_SECONDS_MAX = 10.0
"""A statement of the worker that takes longer is ended by the server, so that no tick hangs for ever."""
CONNECT_SECONDS_MAX = 5
CHECKOUT_SECONDS_MAX = 5.0
SILENCE_MS_MAX = 20_000
"""How long sent bytes may stay unacknowledged before the socket is given up: a vanished host sends no FIN."""

DATABASE_AWAY = (psycopg.OperationalError, psycopg.InterfaceError)
"""What is worth another try on a new connection. Time-outs and deadlocks are among it."""

NO_TABLES = (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName)
"""The database is there, the migrations are not."""


def connect_options() -> dict[str, Any]:
    """Options of every connection that tasks opens by itself."""
    return {
        "connect_timeout": CONNECT_SECONDS_MAX,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 2,
        "tcp_user_timeout": SILENCE_MS_MAX,
    }


def _configure(conn: psycopg.Connection[Any]) -> None:
    conn.execute("SELECT set_config('statement_timeout', %s, false)", (str(int(STATEMENT_SECONDS_MAX * 1000)),))
    conn.commit()


class Pool:
    """At most `size` connections to `database_url`, opened at first use."""

    def __init__(self, database_url: str, size: int, name: str) -> None:
        self._pool: ConnectionPool[psycopg.Connection[Any]] = ConnectionPool(
            database_url,
            kwargs={**connect_options(), "application_name": name[:63]},
            min_size=1,
            max_size=size,
            open=False,
            name=name,
            configure=_configure,
            timeout=CHECKOUT_SECONDS_MAX,
            # The pool doubles its pause between attempts without a cap; giving up early makes the next
            # checkout start anew, so that a long outage is followed by a connection within seconds.
            reconnect_timeout=CONNECT_SECONDS_MAX,
        )

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """One transaction: committed at the end, rolled back on an error.

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
