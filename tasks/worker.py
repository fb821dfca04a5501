"""The worker: claim into free slots, keep the leases, give back what is left at the end. No timers in here.

`tasks.timers` calls `tick`, `beat` and `sweep`; tests and `tasks.testing` call `once`.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Self

from tasks import operate, queue, workers
from tasks import sweep as sweeping
from tasks.flow import Flow
from tasks.hand_back import hand_back
from tasks.identity import new_worker_id, worker_info
from tasks.job import SweepCounts
from tasks.limits import Limits
from tasks.options import CONCURRENCY_MAX, GRACE_SECONDS, check_name, check_number
from tasks.payload import WORKER_BYTES_MAX, check_text
from tasks.periodic import Scheduler
from tasks.pool import DATABASE_AWAY, Pool
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType

    from tasks.app import App
    from tasks.settle import Settled

log = logging.getLogger(__name__)

PRUNE_BITE, PRUNE_BITES_MAX = 1000, 20
"""Jobs that one statement of `prune` deletes, and statements of one call."""
OTHER_CONNECTIONS = 3
"""Beside one connection per slot: tick, heartbeat, sweep."""


class Worker:
    """Runs the jobs of the tasks registered in `app` that lie in `queues`, at most `concurrency` at a time.

    `pooled`: the database is reached through a pooler in transaction mode. Opens its connections at first use.
    Close it, or use it as a context manager.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 2,
        worker_id: str | None = None,
        grace: float = GRACE_SECONDS,
        pooled: bool = False,
    ) -> None:
        check_number("concurrency", concurrency, 1, CONCURRENCY_MAX, whole=True)
        check_number("grace", grace, 0, 24 * 3600)
        if not queues or isinstance(queues, str):
            raise ValueError(f"queues: must be a list of at least one name, not {queues!r}")
        self.app = app
        self.queues = [check_name(name, "queue") for name in queues]
        self.concurrency = concurrency
        self.worker_id = check_text("worker_id", worker_id or new_worker_id(), WORKER_BYTES_MAX)
        self.grace = grace
        self._info = worker_info(self.worker_id, self.queues, list(app))
        self._pool = Pool(app.database_url, concurrency + OTHER_CONNECTIONS, self.worker_id, pooled=pooled)
        self._hurry = threading.Event()
        self._flow = Flow(app, self._pool, self.worker_id, self.queues, concurrency, self._hurry)
        self._limits = Limits(app, self._pool)
        self._scheduler = Scheduler(app)
        self._registered = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def held(self) -> int:
        """Number of claims that are not settled yet."""
        with self._flow.changed:
            return len(self._flow.held)

    def once(self, *, now: datetime | None = None) -> list[Settled]:
        """Claim, run and settle, one job after the other in this thread, at most one per free slot.

        Returns what ran, empty when nothing was claimable. `now` stands in for the database's clock.
        """
        settled: list[Settled] = []
        for _ in range(self._flow.room()):
            one = self._flow.claim_and_run(now)
            if one is None:
                break
            settled.append(one)
            if isinstance(one.error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise one.error
        return settled

    def tick(self) -> int:
        """Settle what has ended, claim into the room there is, and return without waiting for the jobs.

        Returns the number claimed. While another thread ticks, this call only makes it look again. Raises the
        database's errors.
        """
        return self._flow.ring()

    def beat(self, *, now: datetime | None = None, due_only: bool = False) -> int:
        """Extend the leases of the held claims (`due_only`: past a third); tell tasks that lost theirs.

        Hands back the claims that have waited too long for a slot. Returns the number of claims found lost.
        Raises the database's errors; the leases hold on until their end.
        """
        self._flow.hand_back_waiting(stuck_only=True)
        with self._flow.changed:
            due = [held for held in self._flow.held.values() if not due_only or held.beat_is_due]
        if not due:
            return 0
        asked_at = time.monotonic()
        with self._pool.transaction() as conn:
            kept = queue.extend_leases(conn, [held.ref for held in due], now=now)
        lost = 0
        for held in due:
            if held.claim.claim_token in kept:
                held.extended(asked_at)
            elif not held.settling and not held.lost:
                held.lost = True
                lost += 1
                log.warning("job_id=%s claim lost while its task runs", held.claim.job_id)
        return lost

    def settle_late(self) -> None:
        """Write ends that have waited too long for others to share a commit with. Raises the database's errors."""
        self._flow.turns()

    def limit(self) -> None:
        """Fail the attempts that run longer than their time limit. Raises the database's errors."""
        with self._flow.changed:
            held = list(self._flow.held.values())
        self._limits.look(held)

    @property
    def spent(self) -> bool:
        """True once a thread goes on after its attempt was abandoned: stop, and start another process."""
        return self._limits.spent.is_set()

    def sweep(self, *, now: datetime | None = None) -> SweepCounts:
        """Take back every claim whose lease is over, of any worker."""
        with self._pool.connection() as conn:
            return sweeping.sweep(conn, now=now)

    def prune(self, *, now: datetime | None = None) -> int:
        """Delete jobs that ended longer ago than the app keeps them, in bites that are commits. Returns how many."""
        pruned = 0
        for _ in range(PRUNE_BITES_MAX):
            with self._pool.transaction() as conn:
                bite = operate.prune_jobs(conn, keep=self.app.keep, limit=PRUNE_BITE, now=now)
            pruned += bite
            if bite < PRUNE_BITE:
                break
        return pruned

    def schedule(self, *, now: datetime | None = None) -> int:
        """Enqueue the periodic tasks that are due; asks the database only when one may be. Returns how many."""
        if self._scheduler.idle:
            return 0
        with self._pool.transaction() as conn:
            return len(self._scheduler.tick(conn, now=now))

    def register(self) -> None:
        """Show this worker in the list of live ones. For display only."""
        with self._pool.transaction() as conn:
            workers.register_worker(conn, self._info)
        self._registered = True

    def start_slots(self) -> None:
        """Start the threads that run what `tick` claims."""
        self._flow.slots.start()

    def hurry(self) -> None:
        """Make `stop` release what still runs now. Safe in a signal handler."""
        self._hurry.set()

    def stop(self, grace: float | None = None) -> int:
        """Claim no more, let the running tasks end within `grace` seconds, then release the rest (T9).

        Claims that no slot has taken are released first. Returns the number released. A task that goes on in
        its thread after that can write nothing more.
        """
        flow = self._flow
        released = flow.stop()
        until = time.monotonic() + (self.grace if grace is None else grace)
        with flow.changed:
            # Those that have lost their claim can write nothing: there is nothing to wait for.
            while not all(held.lost for held in flow.held.values()) and not self._hurry.is_set():
                if time.monotonic() >= until:
                    break
                flow.changed.wait(min(0.1, max(0.0, until - time.monotonic())))
            left = [held for held in flow.held.values() if not held.lost]
        self._hurry.set()
        return released + (hand_back(self._pool, left) if left else 0)

    def close(self) -> None:
        """Stop without grace, leave the list of live workers and close the connections."""
        self.stop(0)
        self._flow.slots.close()
        if self._registered:
            self._forget()
        self._pool.close()

    def _forget(self) -> None:
        try:
            with self._pool.transaction() as conn:
                workers.forget_worker(conn, self.worker_id)
        except DATABASE_AWAY as away:
            log.warning("worker %s stays listed until it is stale: %s", self.worker_id, describe(away))
