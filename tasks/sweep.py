"""The sweep: bounded passes that take back claims whose lease ran out, end what has expired or lost its parents, and
free what waits for nothing. Called by a timer, a test or a person.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import errors as pg

from tasks import lanes, queue, workers
from tasks.db import Conn, page
from tasks.job import SweepCounts

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

PAGE_SIZE = 500
LOCK_WAIT_MS = 500
"""Shorter than Postgres' deadlock_timeout (1 s by default): when the sweep and an enqueuer wait for each
other, the sweep is the one that gives way."""
_COLLISIONS = (pg.UniqueViolation, pg.LockNotAvailable, pg.DeadlockDetected)


def sweep(
    conn: Conn, *, page_size: int = PAGE_SIZE, lock_wait_ms: int = LOCK_WAIT_MS, now: datetime | None = None
) -> SweepCounts:
    """Take back every claim whose lease is over, page by page, until a page is not full; then tidy up.

    Each page is a transaction of its own and committed (a savepoint, when the caller has a transaction open).
    A page that collides with somebody else's insert goes row by row; a row that still collides is left for
    the next sweep and counted as skipped: one bad row never stops the rest. A later step that has to wait for a
    lock is left to the next sweep as well.
    """
    counts = SweepCounts()
    while True:
        try:
            with page(conn, lock_wait_ms=lock_wait_ms):
                found = queue.sweep_expired(conn, limit=page_size, now=now)
        except _COLLISIONS:
            found = _row_by_row(conn, page_size, lock_wait_ms, now)
        counts += found
        # Rows that were skipped would only come again: the next sweep has them.
        if found.skipped or found.total < page_size:
            break

    expired = _pages(conn, lock_wait_ms, lambda: queue.expire_jobs(conn, limit=page_size, now=now), page_size)
    # To the last: the children of a cancelled child come in the next page.
    orphaned = _pages(conn, lock_wait_ms, lambda: queue.cancel_children(conn, limit=page_size, now=now), 1)
    unparked = _pages(conn, lock_wait_ms, lambda: lanes.unpark_stray(conn, limit=page_size), page_size)
    _pages(conn, lock_wait_ms, lambda: lanes.unpark_limits(conn), page_size)
    _pages(conn, lock_wait_ms, lambda: workers.forget_silent_workers(conn, now=now), page_size)
    return counts + SweepCounts(expired=expired, orphaned=orphaned, unparked=unparked)


def _pages(conn: Conn, lock_wait_ms: int, step: Callable[[], int], full: int) -> int:
    """Repeat `step`, each time in a page of its own, while it does `full` or more. Returns how many it did."""
    done = 0
    while True:
        try:
            with page(conn, lock_wait_ms=lock_wait_ms):
                count = step()
        except _COLLISIONS:
            return done
        done += count
        if count < full:
            return done


def _row_by_row(conn: Conn, page_size: int, lock_wait_ms: int, now: datetime | None) -> SweepCounts:
    counts = SweepCounts()
    with page(conn, lock_wait_ms=lock_wait_ms):
        job_ids = queue.list_expired(conn, limit=page_size, now=now)
    for job_id in job_ids:
        try:
            with page(conn, lock_wait_ms=lock_wait_ms):
                counts += queue.sweep_expired(conn, limit=1, only=job_id, now=now)
        except _COLLISIONS:
            counts += SweepCounts(skipped=1)
    return counts
