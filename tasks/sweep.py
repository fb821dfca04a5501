"""The sweep: bounded passes that take back claims whose lease ran out. Called by a timer, a test or a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import errors as pg

from tasks import queue, workers
from tasks.db import Conn, page
from tasks.job import SweepCounts

if TYPE_CHECKING:
    from datetime import datetime

PAGE_SIZE = 500
LOCK_WAIT_MS = 500
"""Shorter than Postgres' deadlock_timeout (1 s by default): when the sweep and an enqueuer wait for each
other, the sweep is the one that gives way."""
_COLLISIONS = (pg.UniqueViolation, pg.LockNotAvailable, pg.DeadlockDetected)


def sweep(
    conn: Conn, *, page_size: int = PAGE_SIZE, lock_wait_ms: int = LOCK_WAIT_MS, now: datetime | None = None
) -> SweepCounts:
    """Take back every claim whose lease is over, page by page, until a page is not full.

    Each page is a transaction of its own and committed (a savepoint, when the caller has a transaction open).
    A page that collides with somebody else's insert goes row by row; a row that still collides is left for
    the next sweep and counted as skipped: one bad row never stops the rest.
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
    with page(conn, lock_wait_ms=lock_wait_ms):
        workers.forget_silent_workers(conn, now=now)
    return counts


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
