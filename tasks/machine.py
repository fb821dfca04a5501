"""Random histories of an application's own tasks: what `tasks.testing.machine` makes. Needs Hypothesis.

The tasks run in the test's thread, by the worker's code and on real rows, on a clock that the history moves.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tasks import operate, queue, testing, workers
from tasks.attempt import Attempts
from tasks.db import rows
from tasks.errors import DuplicateJob
from tasks.holding import Held
from tasks.identity import worker_info
from tasks.pool import Pool
from tasks.signature import Before, Signature
from tasks.states import TERMINAL, Status
from tasks.why import why
from tasks.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg
    from hypothesis.strategies import DataObject, SearchStrategy

    from tasks.app import App
    from tasks.job import Claim, Job
    from tasks.signature import Step

    Check = Callable[[psycopg.Connection[Any]], object]

NAME = "machine"
AHEAD = timedelta(minutes=1)
"""What the tasks enqueue with the database's clock is in the past for this one."""
TICK = timedelta(milliseconds=1)
DRAIN_MAX = 500
LIST_MAX = 1000
PICK = st.integers(0, 1000)


@dataclass(frozen=True, slots=True)
class World:
    """What a machine is told; see `tasks.testing.machine`."""

    app: App
    connect: Callable[[], psycopg.Connection[Any]]
    calls: SearchStrategy[Step]
    begin: Check
    always: Check
    ended: Check


class TaskMachine(RuleBasedStateMachine):
    """One history in a database whose jobs are the machine's alone; they are deleted at its end."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        app = self.world.app
        self.conn = self.world.connect()
        if queue.list_jobs(self.conn, limit=1):
            self.conn.close()
            raise ValueError("machine: there are jobs in the database; give it one of its own, for it deletes all jobs")
        ((started,),) = rows(self.conn, "read_clock", {})
        self._now: datetime = started + AHEAD
        self._pool = Pool(app.database_url, 1, NAME)
        self._worker = Worker(app, queues=app.queues(), concurrency=1, worker_id=NAME)
        self.world.begin(self.conn)
        self.conn.commit()

    @property
    def now(self) -> datetime:
        """The clock of the history, a little later at each look. It does not run by itself: histories repeat."""
        self._now += TICK
        return self._now

    @rule(data=st.data())
    def enqueue(self, data: DataObject) -> None:
        """One of the calls; one that is refused as a duplicate changes nothing."""
        call = data.draw(self.world.calls)
        try:
            if isinstance(call, Signature):
                queue.enqueue_job(self.conn, call.new_job(Before()), now=self.now)
            else:
                call.apply_async(session=self.conn)
        except DuplicateJob:
            self.conn.rollback()
        self.conn.commit()

    @rule()
    def run(self) -> None:
        """A worker runs one job and writes its end."""
        self._worker.once(now=self.now)

    @rule(worked=st.booleans())
    def crash(self, *, worked: bool) -> None:
        """A worker dies with a claim: before its task runs, or when it has `worked` and the end is not written yet."""
        app, asked_at, now = self.world.app, time.monotonic(), self.now
        claims = queue.claim_jobs(self.conn, worker=NAME, tasks=list(app), queues=app.queues(), limit=1, now=now)
        self.conn.commit()
        if worked and claims:
            Attempts(app, NAME).run(Held(self._doomed(claims[0]), self._pool, asked_at=asked_at, now=now))

    def _doomed(self, claim: Claim) -> Claim:
        # A transactional task writes its own end. With a token that is none its transaction is refused as a whole,
        # which is what a death just before the commit comes to.
        transactional = self.world.app[claim.task].options.transactional
        return claim._replace(claim_token=uuid4()) if transactional else claim

    @rule(seconds=st.sampled_from([1.0, 30.0, 90.0, 3600.0]))
    def advance(self, seconds: float) -> None:
        """Time passes."""
        self._now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        """Claims whose lease is over go back; what has expired or lost a parent ends."""
        self._worker.sweep(now=self.now)

    @precondition(lambda self: self._unfinished())
    @rule(pick=PICK)
    def cancel(self, pick: int) -> None:
        """A person cancels a job, running or not."""
        jobs = self._unfinished()
        queue.cancel_job(self.conn, jobs[pick % len(jobs)].job_id, reason="by hand", now=self.now)
        self.conn.commit()

    @invariant()
    def promises_hold(self) -> None:
        """What the queue promises, and what the application does."""
        testing.check_invariants(self.conn)
        self.world.always(self.conn)
        self.conn.rollback()

    def teardown(self) -> None:
        """Let everything end, unless the history has failed already, and delete the jobs."""
        try:
            # Hypothesis calls this while the error of a failed step is on its way; another one would hide it.
            if sys.exc_info()[0] is None:
                self._drain()
                self.promises_hold()
                self.world.ended(self.conn)
        finally:
            self.conn.rollback()
            self._worker.close()
            self._pool.close()
            self._delete_jobs()
            self.conn.close()

    def _drain(self) -> None:
        for _ in range(DRAIN_MAX):
            now = self.now
            testing.drain_with(self._worker, now=now)
            later = [at for job in self._unfinished() if (at := job.lease_expires_at or job.available_at) > now]
            if not later:
                break
            self._now = min(later)
        waiting = [job for job in self._unfinished() if job.on_parent_failure != "stay"]
        app = self.world.app
        for job in waiting:
            workers.register_worker(self.conn, worker_info(NAME, app.queues(), list(app)), now=self.now)
            reasons = "; ".join(reason.sentence for reason in why(self.conn, job.job_id, now=self.now))
            raise AssertionError(f"job {job.job_id} of {job.task} does not come to an end: {reasons}")

    def _unfinished(self) -> list[Job]:
        found = [
            job
            for status in (Status.RUNNING, Status.PENDING)
            for job in queue.list_jobs(self.conn, status=status, limit=LIST_MAX)
        ]
        self.conn.rollback()
        return sorted(found, key=lambda job: job.seq)

    def _delete_jobs(self) -> None:
        now = self.now
        while jobs := self._unfinished():
            for job in jobs:
                queue.cancel_job(self.conn, job.job_id, reason="the history is over", now=now)
            self.conn.commit()
        keep = {str(status): 0.0 for status in TERMINAL}
        later = now + timedelta(days=1)
        while operate.prune_jobs(self.conn, keep=keep, forget_once=True, now=later):
            self.conn.commit()
        self.conn.commit()
