"""For tests of races: a call beside the test, and a stop inside a statement."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Db = psycopg.Connection[Any]
T = TypeVar("T")
WAIT_SECONDS = 20


class Beside:
    """A call that runs in a thread of its own, on its own connection."""

    def __init__(self, watcher: Db, conn: Db, call: Callable[[], Any]) -> None:
        self._watcher, self._pid = watcher, conn.info.backend_pid
        self._pool = ThreadPoolExecutor(1)
        self._future: Future[Any] = self._pool.submit(call)

    def waits(self) -> bool:
        """Whether the connection has come to wait for a lock; False when the call has ended without."""
        for _ in range(100_000):
            if self._future.done():
                return False
            (blockers,) = self._watcher.execute("SELECT pg_blocking_pids(%s)", (self._pid,)).fetchone() or ([],)
            self._watcher.rollback()
            if blockers:
                return True
        raise AssertionError("neither ended nor waiting")

    def result(self) -> Any:
        try:
            return self._future.result(WAIT_SECONDS)
        finally:
            self._pool.shutdown()


@contextmanager
def blocked(watcher: Db, conn: Db, call: Callable[[], T]) -> Iterator[Beside]:
    """Start the call and see it wait; the block is to let it go on."""
    beside = Beside(watcher, conn, call)
    assert beside.waits()
    yield beside


class Failpoint:
    """Stops a connection inside its statement: after the snapshot, before the first row of tasks.job is locked.

    A row-level security policy is asked for every row that is read. It lets rows pass once it has the advisory
    lock that the test holds. Superusers are not asked, so that only connections under `take` stop.
    """

    def __init__(self, db: Db) -> None:
        self._db = db
        self._stopped: list[int] = []
        db.execute("SET lock_timeout = '10s'")
        db.execute("CREATE ROLE stopped_reader")
        db.execute("GRANT USAGE ON SCHEMA tasks TO stopped_reader")
        db.execute("GRANT ALL ON ALL TABLES IN SCHEMA tasks TO stopped_reader")
        db.execute(
            "CREATE FUNCTION tasks.stop_here() RETURNS boolean LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN true; END'"
        )
        db.execute("CREATE POLICY stop ON tasks.job USING (tasks.stop_here())")
        db.execute("ALTER TABLE tasks.job ENABLE ROW LEVEL SECURITY")
        db.commit()

    def take(self, conn: Db) -> None:
        """From now on `conn` stops."""
        self._stopped.append(conn.info.backend_pid)
        conn.execute("SET ROLE stopped_reader")

    @contextmanager
    def shut(self) -> Iterator[None]:
        self._db.execute("SELECT pg_advisory_lock(4711)")
        self._db.commit()
        yield
        self._db.execute("SELECT pg_advisory_unlock(4711)")
        self._db.commit()

    def remove(self) -> None:
        self._db.rollback()
        self._db.execute("SELECT pg_advisory_unlock_all()")
        # A test that failed half-way must not keep the locks that stand in the way of the next one.
        self._db.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::int[]) AS pid", (self._stopped,))
        self._db.execute("ALTER TABLE tasks.job DISABLE ROW LEVEL SECURITY")
        self._db.execute("DROP POLICY stop ON tasks.job")
        self._db.execute("DROP FUNCTION tasks.stop_here")
        self._db.execute("DROP OWNED BY stopped_reader")
        self._db.execute("DROP ROLE stopped_reader")
        self._db.commit()
