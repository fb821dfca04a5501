"""Short words for the tests of the queue: jobs at fixed instants, claims, what a job became."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tasks import queue
from tasks.db import driver_connection
from tasks.job import Claim, Enqueued, Job, NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from tasks.db import Conn

START = datetime(2030, 1, 1, tzinfo=UTC)
INDEX = "mpack.index"
PREBUILD = "fetch.mpack.prebuild"
PLANNER = {"seqscan": "on", "jit": "off"}
TASKS = (INDEX, PREBUILD, "gc")


def at(seconds: float) -> datetime:
    """The instant so many seconds after START."""
    return START + timedelta(seconds=seconds)


def new(task: str = "gc", *, kwargs: dict[str, Any] | None = None, **options: Any) -> NewJob:
    return NewJob(task, {"args": [], "kwargs": kwargs or {}}, **options)


def enqueue(conn: Conn, task: str = "gc", *, now: float = 0.0, **options: Any) -> Enqueued:
    return queue.enqueue_job(conn, new(task, **options), now=at(now))


def claim(
    conn: Conn,
    *,
    now: float = 1.0,
    limit: int = 1,
    tasks: Sequence[str] = TASKS,
    worker: str = "worker-1",
    queues: Sequence[str] = ("default",),
) -> list[Claim]:
    return queue.claim_jobs(conn, worker=worker, tasks=tasks, queues=queues, limit=limit, now=at(now))


def hold_end(conn: Conn, job_id: UUID) -> None:
    """Let whoever ends the open attempt of a job wait until the transaction of `conn` is rolled back."""
    driver_connection(conn).execute(
        "INSERT INTO tasks.ended_attempt (claim_token, job_id, number, worker, claimed_at, ended_at, result)"
        " SELECT claim_token, job_id, number, worker, claimed_at, claimed_at, 'ABANDONED'"
        " FROM tasks.attempt WHERE job_id = %s AND result IS NULL",
        (job_id,),
    )


def claim_one(conn: Conn, *, now: float = 1.0, **options: Any) -> Claim:
    (claimed,) = claim(conn, now=now, limit=1, **options)
    return claimed


def enqueue_and_claim(conn: Conn, task: str = "gc", *, now: float = 0.0, **options: Any) -> Claim:
    """A running job, claimed one second after `now`."""
    job_id = enqueue(conn, task, now=now, **options).job_id
    claimed = claim_one(conn, now=now + 1, tasks=[task])
    assert claimed.job_id == job_id
    return claimed


def status_of(conn: Conn, job_id: UUID) -> str:
    return queue.get_job(conn, job_id).status


def endings(conn: Conn, job_id: UUID) -> list[str | None]:
    """How the attempts of a job ended, in order; None: open."""
    return [attempt.result for attempt in queue.attempts_of(conn, job_id)]


def everything(conn: Conn) -> tuple[list[Job], list[Any]]:
    """Every row of jobs and attempts: to show that something has changed nothing."""
    jobs = queue.list_jobs(conn, limit=1000)
    return jobs, [queue.attempts_of(conn, job.job_id) for job in jobs]
