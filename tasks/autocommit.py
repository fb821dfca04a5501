"""For scripts and shells that have no transaction of their own: each enqueue is one, committed at once."""

from __future__ import annotations

import threading
from typing import Any

import psycopg

from tasks.pool import connect_options


class Autocommit:
    """`app.configure(current=Autocommit(url))`: a connection in autocommit mode, one per thread, opened at first use.

    A web application does not want it: a job that is committed before the rows it is about may run too early, and
    one that is committed after them may be lost. It names its session instead.
    """

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._local = threading.local()
        self._opened: list[psycopg.Connection[Any]] = []

    def __call__(self) -> psycopg.Connection[Any]:
        """The connection of this thread; a new one when the last has broken."""
        conn: psycopg.Connection[Any] | None = getattr(self._local, "conn", None)
        if conn is None or conn.closed:
            conn = psycopg.connect(self._database_url, autocommit=True, **connect_options())
            self._local.conn = conn
            self._opened.append(conn)
        return conn

    def close(self) -> None:
        """Close the connections of all threads."""
        while self._opened:
            self._opened.pop().close()
