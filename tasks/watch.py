"""What happens in the queue just now, for those who look on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from psycopg.rows import class_row, tuple_row

from tasks.db import Conn, cursor, statement
from tasks.job import Job

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

OVERLAP = timedelta(seconds=5)
"""How far a look should go back behind the one before: a transaction is seen later than the times that it wrote."""


def recent_jobs(
    conn: Conn, *, since: datetime | None, watched: Collection[UUID] = (), limit: int = 1000
) -> tuple[list[Job], datetime]:
    """Read the jobs that run, those that ended after `since`, and the `watched` ones, at most `limit` of each.

    Returns them by the time of what happened last, and the database's time; `since` None: from now on.
    """
    with cursor(conn, tuple_row) as cur:
        ((now,),) = cur.execute(statement("read_clock")).fetchall()
    params = {"since": since or now, "watched": list(watched), "limit": limit}
    with cursor(conn, class_row(Job)) as cur:
        found = cur.execute(statement("recent_jobs"), params).fetchall()
    return sorted(found, key=last_time), now


def last_time(job: Job) -> datetime:
    """When something last happened to the job, as far as its row tells."""
    return job.finished_at or job.heartbeat_at or job.last_error_at or job.created_at
