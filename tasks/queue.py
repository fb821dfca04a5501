"""The queue: the moves of a job, each inside the caller's own transaction.

Nothing here commits. Every function takes a psycopg or SQLAlchemy connection or a session, and an optional
`now`; without it every instant is the database's. A long file, for the list is not to be split:
whoever looks for a move of a job finds it here, or its name, when the code is in `tasks.enqueue`, `tasks.claim`,
`tasks.failing` or `tasks.operate`. What belongs to an attempt is written only while its token is the current one;
otherwise ClaimLost, JobTerminal or JobNotFound is raised and nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from tasks.claim import claim_jobs
from tasks.db import Conn, cursor, records, rows, statement, uuid_array
from tasks.enqueue import enqueue_job, enqueue_jobs
from tasks.errors import ClaimLost, JobNotFound, JobTerminal
from tasks.failing import Failure, fail_jobs, repeated
from tasks.job import Attempt, Job, Outcome, Ref, Stats, SweepCounts
from tasks.lanes import let_go
from tasks.operate import cancel_job, retry_job, set_aside_job
from tasks.payload import check_code, check_instant, check_seconds, check_whole, clean_error, encode
from tasks.states import TERMINAL
from tasks.workers import forget_worker, register_worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

__all__ = [
    "LIVE_SECONDS",
    "Failure",
    "attempts_of",
    "cancel_children",
    "cancel_job",
    "claim_jobs",
    "enqueue_job",
    "enqueue_jobs",
    "expire_jobs",
    "extend_leases",
    "fail_job",
    "fail_jobs",
    "finish_job",
    "finish_jobs",
    "forget_worker",
    "get_job",
    "list_expired",
    "list_jobs",
    "parent_results",
    "quarantine_job",
    "register_worker",
    "release_job",
    "retry_job",
    "save_progress",
    "set_aside_job",
    "stats",
    "sweep_expired",
]

LIVE_SECONDS = 60.0
"""A worker that has not been seen for so long counts as gone, in reports only."""
COUNTED_MAX = 500_000
"""In a larger table the jobs that have succeeded are estimated: counting them would take longer than people wait."""
_RELEASED: dict[str, Outcome] = {"pending": "released", "failed": "failed", "cancelled": "superseded"}


def _at(now: datetime | None) -> datetime | None:
    return check_instant("now", now)


def _refuse(conn: Conn, ref: Ref) -> ClaimLost | JobTerminal | JobNotFound:
    found = rows(conn, "read_fence", {"job_id": ref.job_id})
    if not found:
        return JobNotFound(ref.job_id)
    status = found[0][0]
    return JobTerminal(ref.job_id, status) if status in TERMINAL else ClaimLost(ref.job_id)


def extend_leases(conn: Conn, refs: Sequence[Ref], *, now: datetime | None = None) -> set[UUID]:
    """Heartbeat: extend each lease by its own length from now. Returns the tokens that are still current."""
    if not refs:
        return set()
    return {row[0] for row in rows(conn, "extend_leases", {**_columns(refs), "now": _at(now)})}


def _columns(refs: Sequence[Ref]) -> dict[str, Any]:
    return {
        "job_ids": uuid_array(ref.job_id for ref in refs),
        "tokens": uuid_array(ref.claim_token for ref in refs),
    }


def finish_jobs(conn: Conn, results: Sequence[tuple[Ref, Any]], *, now: datetime | None = None) -> set[UUID]:
    """T2 for many: returns the tokens that were current; the others have lost their claim.

    Raises PayloadError, before any SQL, when a result is not JSON or is over the cap.
    """
    if not results:
        return set()
    texts = [None if result is None else encode("result", result) for _, result in results]
    params = {**_columns([ref for ref, _ in results]), "results": texts, "now": _at(now)}
    finished = rows(conn, "finish_jobs", params)
    refs = [results[place - 1][0] for place, _ in finished]
    let_go(conn, ended=[ref.job_id for ref in refs], limit_keys=[limit_key for _, limit_key in finished])
    return {ref.claim_token for ref in refs}


def finish_job(conn: Conn, ref: Ref, result: Any = None, *, now: datetime | None = None) -> None:
    """T2: the job has succeeded; `result` is any JSON value.

    Raises ClaimLost, JobTerminal, JobNotFound; PayloadError when the result cannot be stored.
    """
    if not finish_jobs(conn, [(ref, result)], now=now):
        raise _refuse(conn, ref)


def fail_job(
    conn: Conn,
    ref: Ref,
    *,
    code: str,
    detail: str,
    retry_delays: Sequence[float] | None,
    spread: float = 0.0,
    now: datetime | None = None,
) -> Outcome:
    """T3, T4 or T8: the attempt has failed; about the arguments see `Failure`.

    Returns "retry", "failed" or "superseded". Raises ClaimLost, JobTerminal, JobNotFound.
    """
    outcomes = fail_jobs(conn, [Failure(ref, code, detail, retry_delays, spread)], now=now)
    if not outcomes:
        raise _refuse(conn, ref)
    return outcomes[ref.claim_token]


def release_job(
    conn: Conn,
    ref: Ref,
    *,
    delay: float = 0.0,
    postpone: bool = False,
    now: datetime | None = None,
) -> Outcome:
    """T9, T8 or T4: hand the claim back without blame; the attempt is given back.

    With `postpone` it counts against `postpones_max`; beyond that the job fails with POSTPONED_TOO_OFTEN.
    Returns "released", "superseded" or "failed". Raises ClaimLost, JobTerminal, JobNotFound.
    """
    params = {
        "job_id": ref.job_id,
        "token": ref.claim_token,
        "delay": check_seconds("delay", delay),
        "postpone": postpone,
        "code": "POSTPONED_TOO_OFTEN",
        "detail": "the task postponed itself more often than it may",
        "now": _at(now),
    }
    found = repeated(conn, "release_job", params)
    if not found:
        raise _refuse(conn, ref)
    status, job_id, limit_key, _ = found[0]
    let_go(conn, ended=[job_id] if status in TERMINAL else (), limit_keys=[limit_key])
    return _RELEASED[status]


def quarantine_job(conn: Conn, ref: Ref, *, code: str, detail: str, now: datetime | None = None) -> None:
    """T10: set the job aside for a person.

    Raises ClaimLost, JobTerminal, JobNotFound.
    """
    params = {
        "job_id": ref.job_id,
        "token": ref.claim_token,
        "code": check_code(code),
        "detail": clean_error(detail),
        "now": _at(now),
    }
    found = rows(conn, "quarantine_job", params)
    if not found:
        raise _refuse(conn, ref)
    let_go(conn, ended=[ref.job_id], limit_keys=[found[0][1]])


def save_progress(conn: Conn, ref: Ref, progress: Any, *, now: datetime | None = None) -> None:
    """Store what the running attempt says of itself: any JSON value.

    Raises ClaimLost, JobTerminal, JobNotFound; PayloadError when it cannot be stored.
    """
    _at(now)
    params = {"job_id": ref.job_id, "token": ref.claim_token, "progress": encode("progress", progress)}
    if not rows(conn, "save_progress", params):
        raise _refuse(conn, ref)


def sweep_expired(
    conn: Conn, *, limit: int = 500, only: UUID | None = None, now: datetime | None = None
) -> SweepCounts:
    """T5a, T5b, T8: take back one page of claims whose lease is over, oldest first; `only`: just this job.

    A unique violation (a job with the key of one of them was inserted meanwhile) fails the transaction:
    `tasks.sweep.sweep` deals with it.
    """
    params = {"limit": check_whole("limit", limit, 1, 100_000), "only": only, "now": _at(now)}
    counts = {"pending": 0, "failed": 0, "cancelled": 0}
    ended: list[UUID] = []
    limit_keys: set[str | None] = set()
    for status, jobs, job_ids, keys, _ in rows(conn, "sweep_expired", params):
        counts[status] += jobs
        limit_keys.update(keys)
        if status in TERMINAL:
            ended += job_ids
    let_go(conn, ended=ended, limit_keys=limit_keys)
    return SweepCounts(counts["pending"], counts["failed"], counts["cancelled"])


def list_expired(conn: Conn, *, limit: int = 500, now: datetime | None = None) -> list[UUID]:
    """Ids of running jobs whose lease is over, oldest first."""
    return [row[0] for row in rows(conn, "list_expired", {"limit": limit, "now": _at(now)})]


def expire_jobs(conn: Conn, *, limit: int = 500, now: datetime | None = None) -> int:
    """T6e: cancel one page of pending jobs that have expired, reason `expired`. Returns how many; for the sweep."""
    return _cancel(conn, "expire_jobs", limit, now)


def cancel_children(conn: Conn, *, limit: int = 500, now: datetime | None = None) -> int:
    """T6p: cancel one page of pending jobs with the policy `cancel` that have a failed or missing parent.

    Their reason is `parent`. Returns how many, for the sweep: repeat until 0, their own children come after them.
    """
    return _cancel(conn, "cancel_children", limit, now)


def _cancel(conn: Conn, name: str, limit: int, now: datetime | None) -> int:
    params = {"limit": check_whole("limit", limit, 1, 100_000), "now": _at(now)}
    cancelled = rows(conn, name, params)
    let_go(conn, ended=[row[0] for row in cancelled], limit_keys=[row[1] for row in cancelled])
    return len(cancelled)


def parent_results(conn: Conn, job_id: UUID) -> list[Any]:
    """Read the results of a job's parents, in the order in which they were given.

    None for a parent that returned nothing, did not succeed (policy `run`) or is gone.
    """
    return [row[0] for row in rows(conn, "parent_results", {"job_id": job_id})]


def get_job(conn: Conn, job_id: UUID) -> Job:
    """Read one job.

    Raises JobNotFound.
    """
    jobs = records(conn, "get_job", Job, {"job_id": job_id})
    if not jobs:
        raise JobNotFound(job_id)
    return jobs[0]


def attempts_of(conn: Conn, job_id: UUID) -> list[Attempt]:
    """Read the attempts of a job, in order."""
    return records(conn, "list_attempts", Attempt, {"job_id": job_id})


def list_jobs(
    conn: Conn,
    *,
    status: str | None = None,
    task: str | None = None,
    scope: str | None = None,
    queue: str | None = None,
    limit: int = 50,
) -> list[Job]:
    """Read the newest jobs that match every filter given."""
    params = {"status": status, "task": task, "scope": scope, "queue": queue, "limit": limit}
    return records(conn, "list_jobs", Job, params)


def stats(conn: Conn, *, now: datetime | None = None) -> Stats:
    """Count jobs per status, and what waits that should not."""
    with cursor(conn, dict_row) as cur:
        params = {"live": LIVE_SECONDS, "counted_max": COUNTED_MAX, "now": _at(now)}
        row = cur.execute(statement("stats"), params).fetchone()
    if row is None:
        raise RuntimeError("the statement stats returns one row")
    return Stats(**row)
