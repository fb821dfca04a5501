"""What must hold when all is quiet again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from tasks.testing import check_invariants

BACK_SECONDS_MAX = 10.0
BASE_SECONDS = 5.0
"""Throughput before a restart: the mean of so many seconds."""
BACK_SHARE = 0.5
"""Throughput is back when one second has at least this share of it."""


def check(conn: psycopg.Connection[Any]) -> None:
    """Raise AssertionError when anything was lost, is stuck, or was done twice."""
    check_invariants(conn)
    _none(
        conn,
        "accepted, but not there",
        "SELECT a.job_id FROM chaos.accepted AS a WHERE NOT EXISTS"
        " (SELECT FROM tasks.job AS j WHERE j.job_id = a.job_id)",
    )
    _none(
        conn,
        "neither succeeded nor superseded",
        "SELECT job_id, status, last_error_code, last_error FROM tasks.job"
        " WHERE status <> 'succeeded' AND cancel_reason IS DISTINCT FROM 'superseded'",
    )
    _none(
        conn,
        "pushed, but no later run has seen it",
        "SELECT p.scope, p.version, max(s.version) FROM chaos.pushed AS p LEFT JOIN chaos.seen AS s USING (scope)"
        " GROUP BY p.scope HAVING max(s.version) IS DISTINCT FROM p.version",
    )
    _none(
        conn,
        "the rows of a transactional task are there as often as it succeeded",
        "SELECT job_id, count(s.version) FROM tasks.job AS j LEFT JOIN chaos.seen AS s USING (job_id)"
        " WHERE j.task = 'effect' GROUP BY j.job_id, j.status"
        " HAVING count(s.version) <> CASE WHEN j.status = 'succeeded' THEN 1 ELSE 0 END",
    )


def _none(conn: psycopg.Connection[Any], what: str, query: str) -> None:
    rows = conn.execute(query.encode()).fetchmany(20)
    assert not rows, f"{what}: {rows}"


def recoveries(conn: psycopg.Connection[Any], restarts: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    """How long the throughput took to come back after each restart, from the history of the attempts.

    The measure is what ran before this restart or before the first one, whichever was more.
    """
    found: list[dict[str, float]] = []
    for restart in restarts:
        away_at, back_at = restart["away_at"], restart["back_at"]
        before = len(_endings(conn, away_at - BASE_SECONDS, away_at)) / BASE_SECONDS
        steady = max(before, found[0]["before_per_second"] if found else 0.0)
        after = _endings(conn, back_at, math.inf)
        needed = max(1, math.ceil(steady * BACK_SHARE))
        seconds = (last - back_at for first, last in _spans(after, needed) if last - first <= 1.0)
        found.append(
            {
                "away_seconds": round(back_at - away_at, 2),
                "before_per_second": round(before, 1),
                "back_seconds": round(next(seconds, math.inf), 2),
            }
        )
    return found


def _spans(instants: Sequence[float], count: int) -> Iterator[tuple[float, float]]:
    """The first and the last of each `count` neighbours."""
    return zip(instants, instants[count - 1 :], strict=False)


def _endings(conn: psycopg.Connection[Any], start: float, end: float) -> list[float]:
    rows = conn.execute(
        "SELECT extract(epoch FROM ended_at)::float8 AS at FROM tasks.attempt"
        " WHERE result = 'SUCCEEDED' AND ended_at >= to_timestamp(%s) AND ended_at < to_timestamp(%s) ORDER BY 1",
        (start, min(end, 2.0**33)),
    )
    return [row[0] for row in rows]


def figures(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    """Count what happened."""
    outcomes = dict(conn.execute("SELECT outcome, count(*) FROM chaos.accepted GROUP BY outcome").fetchall())
    jobs = dict(conn.execute("SELECT status, count(*) FROM tasks.job GROUP BY status").fetchall())
    attempts = dict(conn.execute("SELECT result, count(*) FROM tasks.attempt GROUP BY result").fetchall())
    return {"accepted": outcomes, "jobs": jobs, "attempts": attempts}
