"""Why a job is where it is, in sentences, from the same predicates as the claim.

A pending job without a reason is claimable now: some live worker may take it at its next claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from tasks.db import Conn, cursor, rows, statement
from tasks.operate import operations_of
from tasks.payload import check_instant
from tasks.queue import LIVE_SECONDS, attempts_of, get_job
from tasks.states import Ending, Status

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from uuid import UUID

    from tasks.job import Attempt, Job

AHEAD_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `rule` is for programs, `sentence` for people; `details` are JSON values or instants."""

    rule: str
    sentence: str
    details: dict[str, Any] = field(default_factory=dict)


def why(conn: Conn, job_id: UUID, *, now: datetime | None = None) -> list[Reason]:
    """Explain a job.

    Rules: EXPIRED, NOT_DUE, QUEUE_PAUSED, GATE_SHUT, PARENT_WAITS, PARENT_FAILED, LIMIT_REACHED, BUDGET_SPENT,
    TASK_UNKNOWN, QUEUE_UNSERVED, PARKED for a waiting job, LEASED or LEASE_OVER for a running one; SUCCEEDED,
    NOT_RETRYABLE, BUDGET_SPENT, POSTPONED_TOO_OFTEN, SUPERSEDED, EXPIRED, PARENT_FAILED, CANCELLED, QUARANTINED or
    SET_ASIDE for one at an end. Raises JobNotFound.
    """
    job = get_job(conn, job_id)
    params = {"job_id": job_id, "now": check_instant("now", now), "live": LIVE_SECONDS}
    if job.status == Status.PENDING:
        return list(_waiting(conn, job, params))
    if job.status == Status.RUNNING:
        return list(_running(conn, job, params))
    return [_ended(conn, job)]


def jobs_ahead(conn: Conn, job_id: UUID, *, now: datetime | None = None) -> int:
    """Count the due jobs of its queue that a claim comes to before this pending job, up to 10,000.

    Some of them may turn out to be shut; jobs that are known to be shut do not count. 0 for a job that is not pending.
    """
    params = {"job_id": job_id, "limit": AHEAD_MAX, "now": check_instant("now", now)}
    return int(rows(conn, "count_ahead", params)[0][0])


def _row(conn: Conn, name: str, params: dict[str, Any]) -> dict[str, Any] | None:
    with cursor(conn, dict_row) as cur:
        return cur.execute(statement(name), params).fetchone()


def _waiting(conn: Conn, job: Job, params: dict[str, Any]) -> Iterator[Reason]:
    row = _row(conn, "explain_pending", params)
    if row is None:
        yield from why(conn, job.job_id, now=params["now"])
        return
    reasons = [*_not_now(job, row), *_shut(conn, job, row, params), *_unserved(job, row)]
    # What an end has left to the claims is as good as free: the next claim that comes to it takes it.
    if not reasons and job.lane == "parked" and not row["unparking"]:
        sentence = "what held it is gone, but it has not been told yet; the next sweep frees it"
        reasons.append(Reason("PARKED", sentence, {"parked_on": job.parked_on and str(job.parked_on)}))
    yield from reasons


def _not_now(job: Job, row: dict[str, Any]) -> Iterator[Reason]:
    if row["expired"] and job.expires_at:
        sentence = f"it expired at {job.expires_at.isoformat()}; the next sweep cancels it"
        yield Reason("EXPIRED", sentence, {"expires_at": job.expires_at})
    if not row["due"]:
        again = f", after {job.last_error_code}" if job.last_error_code else ""
        sentence = f"it is due in {_seconds(row['due_in'])}, at {job.available_at.isoformat()}{again}"
        yield Reason("NOT_DUE", sentence, {"available_at": job.available_at, "seconds": row["due_in"]})
    if row["paused_at"]:
        because = f": {row['pause_reason']}" if row["pause_reason"] else ""
        sentence = f"its queue {job.queue} has been paused since {row['paused_at'].isoformat()}{because}"
        yield Reason("QUEUE_PAUSED", sentence, {"queue": job.queue, "since": row["paused_at"]})


def _shut(conn: Conn, job: Job, row: dict[str, Any], params: dict[str, Any]) -> Iterator[Reason]:
    blocker = _row(conn, "list_blockers", params)
    if blocker:
        sentence = (
            f"its gate is shut by job {blocker['job_id']} ({blocker['task']}), "
            f"{blocker['status']} since {blocker['since'].isoformat()}"
        )
        if blocker["blockers"] > 1:
            sentence += f", and {blocker['blockers'] - 1} more"
        if blocker["passed"]:
            since = job.created_at.isoformat()
            sentence += f"; {blocker['passed']} such jobs have come and gone while it has waited, since {since}"
        yield Reason("GATE_SHUT", sentence, {**blocker, "job_id": str(blocker["job_id"])})
    parent = _row(conn, "list_unmet_parents", params)
    if parent:
        yield _parent(job, parent)
    if job.limit_max is not None and row["running"] >= job.limit_max:
        sentence = (
            f"{row['running']} jobs of its limit {job.limit_key} run, {job.limit_max} may; "
            f"the one that has run longest is {row['runner_id']}"
        )
        details = {"limit_key": job.limit_key, "limit_max": job.limit_max, "running": row["running"]}
        yield Reason("LIMIT_REACHED", sentence, {**details, "job_id": str(row["runner_id"])})


def _parent(job: Job, parent: dict[str, Any]) -> Reason:
    heir_of = parent["in_place_of"]
    details = {**parent, "parent_id": str(parent["parent_id"]), "on_parent_failure": job.on_parent_failure}
    details["in_place_of"] = heir_of and str(heir_of)
    who = f"its parent {parent['parent_id']}"
    if heir_of:
        who = f"job {parent['parent_id']} in place of its parent {heir_of}"
    more = f", and {parent['parents'] - 1} more" if parent["parents"] > 1 else ""
    if parent["status"] in (Status.PENDING, Status.RUNNING):
        state = f"{parent['status']} since {parent['since'].isoformat()}"
        sentence = f"it waits for {who} ({parent['task']}), {state}{more}"
        return Reason("PARENT_WAITS", sentence, details)
    then = {"cancel": "the next sweep cancels it", "stay": "it stays until the parent is retried and succeeds"}
    what = f"is {parent['status']} since {parent['since'].isoformat()}" if parent["status"] else "is not there"
    sentence = f"{who} {what}{more}; {then[job.on_parent_failure]}"
    return Reason("PARENT_FAILED", sentence, details)


def _unserved(job: Job, row: dict[str, Any]) -> Iterator[Reason]:
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


def _ended(conn: Conn, job: Job) -> Reason:
    at = f"at {job.finished_at.isoformat()}" if job.finished_at else ""
    reported = f"{job.last_error_code}: {job.last_error}"
    details: dict[str, Any] = {**_budget(job), "finished_at": job.finished_at, "error_code": job.last_error_code}
    if job.status == Status.SUCCEEDED:
        return Reason("SUCCEEDED", f"it has succeeded {at}, in attempt {job.claim_count}", details)
    if job.status == Status.FAILED:
        return _failed(job, attempts_of(conn, job.job_id)[-1], at, reported, details)
    if job.status == Status.QUARANTINED:
        done = operations_of(conn, job.job_id)
        if done and done[-1].action == "set_aside":
            return Reason("SET_ASIDE", f"a person set it aside {at}: {done[-1].reason}", details)
        return Reason("QUARANTINED", f"its task set it aside {at}: {reported}", details)
    if job.superseded_by:
        details["superseded_by"] = str(job.superseded_by)
        sentence = f"job {job.superseded_by} does the same work; this one was about to go back to the queue {at}"
        return Reason("SUPERSEDED", sentence, details)
    if job.cancel_reason == "expired":
        again = " again" if job.claim_count else ""
        return Reason("EXPIRED", f"it had expired before it could run{again}, and was cancelled {at}", details)
    if job.cancel_reason == "parent":
        return Reason("PARENT_FAILED", f"a parent did not succeed or was not there; it was cancelled {at}", details)
    return Reason("CANCELLED", f"it was cancelled {at}: {job.cancel_reason}", details)


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
