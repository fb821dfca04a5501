"""For tests of applications: run what waits, look at what was enqueued, prove the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tasks import queue
from tasks.verify import verify
from tasks.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Job
    from tasks.settle import Settled

DRAIN_MAX = 1000
LIST_MAX = 1000


def drain(
    app: App, *, queues: Sequence[str] | None = None, limit: int = DRAIN_MAX, now: datetime | None = None
) -> list[Settled]:
    """Run claimable jobs one after the other, in this thread, until none is left.

    Sees only committed jobs: commit first. What is not due yet (a retry's back-off, a countdown) stays;
    `now`, an aware datetime, stands in for the database's clock and makes it due. `queues`: None means those
    that the app's tasks name. Returns what ran, in order. Raises AssertionError when `limit` jobs were not
    enough: a job that enqueues itself would go on for ever.
    """
    ran: list[Settled] = []
    with Worker(app, queues=queues or app.queues(), concurrency=1, worker_id="drain") as worker:
        while settled := worker.once(now=now):
            ran += settled
            if len(ran) > limit:
                raise AssertionError(f"still claimable after {limit} jobs; the last was {settled[-1].task}")
    return ran


def enqueued(conn: Conn, task: str | None = None, *, scope: str | None = None) -> list[Job]:
    """Return the waiting jobs that `conn` sees, its own uncommitted ones too; oldest first, at most 1,000."""
    found = queue.list_jobs(conn, status="pending", task=task, scope=scope, queue=None, limit=LIST_MAX)
    return sorted(found, key=lambda job: job.seq)


def check_invariants(conn: Conn) -> None:
    """Raise AssertionError naming the jobs whose rows contradict what the queue promises.

    What that is, says `tasks.verify.verify`.
    """
    if broken := verify(conn):
        raise AssertionError("; ".join(f"job {one.job_id}: {one.rule}" for one in broken))
