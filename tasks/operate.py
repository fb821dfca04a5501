"""What a person does to the queue: cancel, set aside, retry, pause, prune. Reasons are kept with the job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import errors as pg

from tasks.db import Conn, records, rows, savepoint, together
from tasks.errors import DuplicateJob, JobActive, JobNotFound, JobTerminal, PayloadError
from tasks.lanes import let_go
from tasks.payload import NAME_BYTES_MAX, check_instant, check_seconds, check_text, check_whole, clean_error
from tasks.states import TERMINAL, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

RULES = frozenset({"superseded", "expired", "parent"})
"""Reasons of cancellation that rules give; a person writes others."""
_DAY = 86400.0
KEEP_SECONDS: Mapping[str, float] = {
    Status.SUCCEEDED: 7 * _DAY,
    Status.FAILED: 30 * _DAY,
    Status.CANCELLED: 30 * _DAY,
    Status.QUARANTINED: 30 * _DAY,
}
"""How long jobs are kept after their end, by status."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What a person did to a job, and why. `action`: "cancel", "set_aside" or "retry"."""

    job_id: UUID
    at: datetime
    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue that has unfinished jobs or is paused. `paused_at` None: it is not paused."""

    queue: str
    paused_at: datetime | None
    reason: str | None
    pending: int
    due: int
    running: int


def cancel_job(conn: Conn, job_id: UUID, *, reason: str, now: datetime | None = None) -> None:
    """T6, T7: end a pending or running job; a running attempt is closed CANCELLED and its token dies at once.

    Raises JobNotFound, JobTerminal, PayloadError for a reason that is empty or that of a rule.
    """
    _end(conn, "cancel_job", job_id, reason, now)


def set_aside_job(conn: Conn, job_id: UUID, *, reason: str, now: datetime | None = None) -> None:
    """T10: quarantine a pending or running job; the evidence is kept, and nobody claims it any more.

    Raises JobNotFound, JobTerminal, PayloadError.
    """
    _end(conn, "set_aside_job", job_id, reason, now)


def _end(conn: Conn, move: str, job_id: UUID, reason: str, now: datetime | None) -> None:
    params = {"job_id": job_id, "reason": _reason(reason), "now": check_instant("now", now)}
    with together(conn):
        status = _lock(conn, job_id)
        if status in TERMINAL:
            raise JobTerminal(job_id, status)
        ((_, limit_key),) = rows(conn, move, params)
        let_go(conn, ended=[job_id], limit_keys=[limit_key])


def retry_job(conn: Conn, job_id: UUID, *, reason: str, now: datetime | None = None) -> None:
    """T11: put a failed, cancelled or quarantined job back into the queue, due at once; its history stays.

    Its budgets grow by one, spent or not. Raises JobNotFound, JobActive when it waits or runs, JobTerminal when it
    has succeeded, DuplicateJob when a pending job has its key, PayloadError.
    """
    params = {"job_id": job_id, "reason": _reason(reason), "now": check_instant("now", now)}
    with together(conn):
        status = _lock(conn, job_id)
        if status == Status.SUCCEEDED:
            raise JobTerminal(job_id, status)
        if status not in TERMINAL:
            raise JobActive(job_id, status)
        try:
            with savepoint(conn):
                ((_, _, heir_id),) = rows(conn, "retry_job", params)
        except pg.UniqueViolation as error:
            heirs = rows(conn, "find_heir", {"job_id": job_id})
            named = f": {heirs[0][0]}" if heirs else ""
            raise DuplicateJob(f"a pending job has the key of job {job_id}{named}") from error
        # Its children wait for itself again.
        let_go(conn, ended=[] if heir_id is None else [heir_id])


def _lock(conn: Conn, job_id: UUID) -> str:
    found = rows(conn, "lock_job", {"job_id": job_id})
    if not found:
        raise JobNotFound(job_id)
    return str(found[0][0])


def _reason(reason: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise PayloadError("reason", "must say why, in a few words")
    if reason in RULES:
        raise PayloadError("reason", f"{reason!r} is what a rule says; use words of your own")
    return clean_error(reason)


def operations_of(conn: Conn, job_id: UUID) -> list[Operation]:
    """Read what people did to a job, in order."""
    return records(conn, "list_operations", Operation, {"job_id": job_id})


def pause_queue(conn: Conn, queue: str, *, reason: str = "", now: datetime | None = None) -> None:
    """Stop claims from a queue, which may be empty or unknown yet; jobs that run go on. Enqueues go on as well."""
    params = {
        "queue": check_text("queue", queue, NAME_BYTES_MAX),
        "reason": clean_error(reason),
        "now": check_instant("now", now),
    }
    rows(conn, "pause_queue", params)


def resume_queue(conn: Conn, queue: str) -> bool:
    """Let claims take from the queue again. Returns whether it was paused."""
    return bool(rows(conn, "resume_queue", {"queue": check_text("queue", queue, NAME_BYTES_MAX)}))


def list_queues(conn: Conn, *, now: datetime | None = None) -> list[QueueRow]:
    """Read every queue that has unfinished jobs or is paused, by name."""
    return records(conn, "list_queues", QueueRow, {"now": check_instant("now", now)})


def prune_jobs(
    conn: Conn,
    *,
    keep: Mapping[str, float] = KEEP_SECONDS,
    limit: int = 1000,
    forget_once: bool = False,
    now: datetime | None = None,
) -> int:
    """Delete up to `limit` jobs that ended longer ago than `keep` says, with their attempts. Returns how many.

    `keep` maps a terminal status to seconds; a status that it does not name is kept for ever. A parent is kept while
    a child waits; a job of mode `once` is kept, for its key is unique for ever, unless `forget_once`. Repeat, with a
    commit after each, until fewer than `limit` come back. Raises PayloadError.
    """
    check_keep(keep)
    params = {
        "statuses": [str(status) for status in keep],
        "seconds": [float(seconds) for seconds in keep.values()],
        "limit": check_whole("limit", limit, 1, 100_000),
        "forget_once": forget_once,
        "now": check_instant("now", now),
    }
    ((pruned,),) = rows(conn, "prune_jobs", params)
    return int(pruned)


def check_keep(keep: Mapping[str, float]) -> Mapping[str, float]:
    """Return `keep` when it maps ends of jobs to seconds. Raises PayloadError."""
    for status, seconds in keep.items():
        if status not in TERMINAL:
            raise PayloadError("keep", f"{status!r} is no end of a job")
        check_seconds("keep", seconds)
    return keep
