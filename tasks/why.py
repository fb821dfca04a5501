"""Why a job is where it is, in sentences, from the same predicates as the claim.

A pending job without a reason is claimable now: some live worker may take it at its next claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from tasks.db import Conn, cursor, statement
from tasks.payload import check_instant
from tasks.queue import LIVE_SECONDS, attempts_of, get_job
from tasks.states import Ending, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from uuid import UUID

    from tasks.job import Attempt, Job


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `rule` is for programs, `sentence` for people; `details` are JSON values or instants."""

    rule: str
    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


def why(conn: Conn, job_id: UUID, *, now: datetime | None = None) -> list[Reason]:
    """Explain a job.

    Rules: NOT_DUE, GATE_SHUT, BUDGET_SPENT, TASK_UNKNOWN, QUEUE_UNSERVED for a waiting job, LEASED or
    LEASE_OVER for a running one; SUCCEEDED, NOT_RETRYABLE, BUDGET_SPENT, POSTPONED_TOO_OFTEN, SUPERSEDED,
    CANCELLED or QUARANTINED for one at an end. Raises JobNotFound.
    """
    job = get_job(conn, job_id)
    params = {"job_id": job_id, "now": check_instant("now", now), "live": LIVE_SECONDS}
    if job.status == Status.PENDING:
        return list(_waiting(conn, job, params))
    if job.status == Status.RUNNING:
        return list(_running(conn, job, params))
    return [_ended(job, attempts_of(conn, job_id))]


def _row(conn: Conn, name: str, params: dict[str, Any]) -> dict[str, Any] | None:
    with cursor(conn, dict_row) as cur:
        return cur.execute(statement(name), params).fetchone()


def _waiting(conn: Conn, job: Job, params: dict[str, Any]) -> Iterator[Reason]:
    row = _row(conn, "explain_pending", params)
    if row is None:
        yield from why(conn, job.job_id, now=params["now"])
        return
    if not row["due"]:
        again = f", after {job.last_error_code}" if job.last_error_code else ""
        sentence = f"it is due in {_seconds(row['due_in'])}, at {job.available_at.isoformat()}{again}"
        yield Reason("NOT_DUE", sentence, {"available_at": job.available_at, "seconds": row["due_in"]})
    blocker = _row(conn, "list_blockers", params)
    if blocker:
        sentence = (
            f"its gate is shut by job {blocker['job_id']} ({blocker['task']}), "
            f"{blocker['status']} since {blocker['since'].isoformat()}"
        )
        if blocker["blockers"] > 1:
            sentence += f", and {blocker['blockers'] - 1} more"
        yield Reason("GATE_SHUT", sentence, {**blocker, "job_id": str(blocker["job_id"])})
    if not row["budget_left"]:
        yield Reason("BUDGET_SPENT", f"all of its {job.attempts_max} attempts are spent", _budget(job))
    if not row["task_known"]:
        yield Reason("TASK_UNKNOWN", f"no live worker knows the task {job.task}", {"task": job.task})
    elif not row["queue_served"]:
        sentence = f"no live worker that knows the task {job.task} serves the queue {job.queue}"
        yield Reason("QUEUE_UNSERVED", sentence, {"task": job.task, "queue": job.queue})


def _running(conn: Conn, job: Job, params: dict[str, Any]) -> Iterator[Reason]:
    row = _row(conn, "explain_running", params)
    if row is None:
        yield from why(conn, job.job_id, now=params["now"])
        return
    details = {
        "worker": job.claimed_by,
        "attempt": job.claim_count,
        "lease_left_seconds": row["lease_left"],
        "heartbeat_age_seconds": row["heartbeat_age"],
        "running_seconds": row["running_for"],
        "progress": job.progress,
    }
    start = f"it runs on worker {job.claimed_by} (attempt {job.claim_count}) for {_seconds(row['running_for'])}"
    beat = f"the last heartbeat was {_seconds(row['heartbeat_age'])} ago"
    if row["lease_left"] > 0:
        yield Reason("LEASED", f"{start}; the lease is good for {_seconds(row['lease_left'])} more, {beat}", details)
    else:
        over = f"the lease has been over for {_seconds(-row['lease_left'])}"
        yield Reason("LEASE_OVER", f"{start}; {over}, {beat}; the next sweep takes it back", details)


def _ended(job: Job, attempts: list[Attempt]) -> Reason:
    at = f"at {job.finished_at.isoformat()}" if job.finished_at else ""
    reported = f"{job.last_error_code}: {job.last_error}"
    details: dict[str, Any] = {**_budget(job), "finished_at": job.finished_at, "error_code": job.last_error_code}
    if job.status == Status.FAILED:
        return _failed(job, attempts[-1], at, reported, details)
    if job.superseded_by:
        details["superseded_by"] = str(job.superseded_by)
        sentence = f"job {job.superseded_by} does the same work; this one was about to go back to the queue {at}"
        return Reason("SUPERSEDED", sentence, details)
    rule, sentence = {
        Status.SUCCEEDED: ("SUCCEEDED", f"it has succeeded {at}, in attempt {job.claim_count}"),
        Status.QUARANTINED: ("QUARANTINED", f"its task set it aside {at}: {reported}"),
        Status.CANCELLED: ("CANCELLED", f"it was cancelled {at}: {job.cancel_reason}"),
    }[Status(job.status)]
    return Reason(rule, sentence, details)


def _failed(job: Job, last: Attempt, at: str, reported: str, details: dict[str, Any]) -> Reason:
    if last.result == Ending.ABANDONED:
        sentence = f"its lease ran out {at} in the last of {job.attempts_max} attempts (worker {last.worker})"
        return Reason("BUDGET_SPENT", sentence, {**details, "worker": last.worker})
    if job.last_error_code == "POSTPONED_TOO_OFTEN":
        return Reason("POSTPONED_TOO_OFTEN", f"it had postponed itself {job.postpone_count} times {at}", details)
    if job.attempt_count >= job.attempts_max:
        return Reason("BUDGET_SPENT", f"the last of {job.attempts_max} attempts failed {at}: {reported}", details)
    sentence = f"attempt {job.claim_count} failed {at} and is not to be repeated: {reported}"
    return Reason("NOT_RETRYABLE", sentence, details)


def _budget(job: Job) -> dict[str, Any]:
    return {"attempt_count": job.attempt_count, "attempts_max": job.attempts_max, "claims": job.claim_count}


def _seconds(value: float) -> str:
    return f"{value:.1f} s"
