"""For tests of applications: run what waits, look at what was enqueued, prove the history, try random ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tasks import queue
from tasks.verify import verify
from tasks.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import psycopg
    from hypothesis.stateful import RuleBasedStateMachine
    from hypothesis.strategies import SearchStrategy

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Job
    from tasks.settle import Settled
    from tasks.signature import Step

DRAIN_MAX = 1000
LIST_MAX = 1000


def _nothing(_: object) -> None:
    """What is checked when nothing is to be."""


def drain(
    app: App, *, queues: Sequence[str] | None = None, limit: int = DRAIN_MAX, now: datetime | None = None
) -> list[Settled]:
    """Run claimable jobs one after the other, in this thread, until none is left, not even after a sweep.

    Sees only committed jobs: commit first. A sweep ends what has expired or lost a parent, and takes back claims whose
    lease is over, as it would beside a worker. What is not due yet (a retry's back-off, a countdown) stays;
    `now`, an aware datetime, stands in for the database's clock and makes it due. `queues`: None means those
    that the app's tasks name. Returns what ran, in order. Raises AssertionError when `limit` jobs were not
    enough: a job that enqueues itself would go on for ever.
    """
    with Worker(app, queues=queues or app.queues(), concurrency=1, worker_id="drain") as worker:
        return drain_with(worker, limit=limit, now=now)


def drain_with(worker: Worker, *, limit: int = DRAIN_MAX, now: datetime | None = None) -> list[Settled]:
    """Do what `drain` does, with a worker that is there already."""
    ran: list[Settled] = []
    while True:
        while settled := worker.once(now=now):
            ran += settled
            if len(ran) > limit:
                raise AssertionError(f"still claimable after {limit} jobs; the last was {settled[-1].task}")
        swept = worker.sweep(now=now)
        if not (swept.total or swept.expired or swept.orphaned or swept.unparked):
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


def machine(
    app: App,
    connect: Callable[[], psycopg.Connection[Any]],
    calls: SearchStrategy[Step],
    *,
    begin: Callable[[psycopg.Connection[Any]], object] = _nothing,
    always: Callable[[psycopg.Connection[Any]], object] = _nothing,
    ended: Callable[[psycopg.Connection[Any]], object] = _nothing,
) -> type[RuleBasedStateMachine]:
    """Make a Hypothesis state machine that runs random histories of the app's own tasks.

    Its steps enqueue one of `calls` (signatures, chains, groups), run a job, let a worker die before or after a task's
    work, sweep, cancel, and let time pass; after each the invariants of the queue are checked, and `always`. At the
    end of a history everything is run until nothing is left, then `ended` is checked. Checks raise AssertionError.
    `connect` opens a connection to the app's database, which must have no jobs: the machine deletes them after each
    history. `begin` is called before each, and committed; there rows of the application can be deleted.

    Use `machine(…).TestCase` as a test of pytest or unittest, or `run_state_machine_as_test(machine(…))`. Needs
    Hypothesis. A job that a task itself enqueues has the database's clock, not that of the history.
    """
    from tasks.machine import TaskMachine, World

    world = World(app, connect, calls, begin, always, ended)
    return type("Machine", (TaskMachine,), {"world": world})
