"""Out of the parked lane: whoever ends a job, or its run, lets go of those that waited for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks.db import Conn, rows, uuid_array

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID


BITE = 1000
"""Jobs that an end frees by itself; claims free the rest."""
_BLOCKERS_MAX = 10
"""Ended jobs whose rest one claim looks at."""


def let_go(conn: Conn, *, ended: Collection[UUID] = (), limit_keys: Iterable[str | None] = ()) -> None:
    """Unpark what waits for jobs that have ended (`ended`) or for limits that have a place again (`limit_keys`).

    In the transaction of the move, after it: a job that was parked while the move waited for a lock is seen by these
    statements, not by the one that waited.
    """
    if ended:
        rows(conn, "unpark_jobs", {"ended": uuid_array(ended), "limit": BITE})
    keys = sorted({key for key in limit_keys if key is not None})
    if keys:
        rows(conn, "wait_limits", {"keys": keys})
        rows(conn, "unpark_limited", {"keys": keys})


def unpark_rest(conn: Conn, *, limit: int) -> int:
    """Unpark jobs that an end has left to the claims, at most `limit`. Returns how many."""
    return int(rows(conn, "unpark_rest", {"limit": limit, "blockers": _BLOCKERS_MAX})[0][0])


def unpark_stray(conn: Conn, *, limit: int = 500) -> int:
    """Unpark one page of jobs that nothing holds, though nobody told them. Returns how many; for the sweep."""
    return sum(jobs for jobs, _ in rows(conn, "unpark_stray", {"limit": limit}))


def unpark_limits(conn: Conn) -> int:
    """Unpark jobs of limits that have places left; for the sweep. Returns how many limits."""
    keys = [row[0] for row in rows(conn, "list_limits", {})]
    let_go(conn, limit_keys=keys)
    return len(keys)
