"""The worker: claim into free slots, keep the leases, give back what is left at the end. No timers in here.

`tasks.timers` calls `tick`, `beat` and `sweep`; tests and `tasks.testing` call `once`.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Self

from tasks import queue, workers
from tasks import sweep as sweeping
from tasks.attempt import Attempts, Settled
from tasks.holding import REFUSED, Held
from tasks.identity import new_worker_id, worker_info
from tasks.job import SweepCounts
from tasks.options import CONCURRENCY_MAX, GRACE_SECONDS, check_name, check_number
from tasks.pool import DATABASE_AWAY, Pool
from tasks.slots import Slots
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from types import TracebackType
    from uuid import UUID

    from tasks.app import App

log = logging.getLogger(__name__)

OTHER_CONNECTIONS = 3
"""Beside one connection per slot: tick, heartbeat, sweep."""


class Worker:
    """Runs the jobs of the tasks registered in `app` that lie in `queues`, at most `concurrency` at a time.

    Opens its connections at first use. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = ("default",),
        concurrency: int = 2,
        worker_id: str | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        check_number("concurrency", concurrency, 1, CONCURRENCY_MAX, whole=True)
        check_number("grace", grace, 0, 24 * 3600)
        if not queues:
            raise ValueError("queues: name at least one queue")
        self.app = app
        self.queues = [check_name(name, "queue") for name in queues]
        self.concurrency = concurrency
        self.worker_id = worker_id or new_worker_id()
        self.grace = grace
        self._info = worker_info(self.worker_id, self.queues, list(app))
        self._pool = Pool(app.database_url, concurrency + OTHER_CONNECTIONS, self.worker_id)
        self._hurry = threading.Event()
        self._attempts = Attempts(app, self._pool, self.worker_id, self._hurry)
        self._held: dict[UUID, Held] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._ticking = threading.Lock()
        self._look_again = threading.Event()
        self._slots = Slots(concurrency, self._run_and_tick)
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
        with self._changed:
            return len(self._held)

    def once(self, *, now: datetime | None = None) -> list[Settled]:
        """Claim, run and settle, one job after the other in this thread, at most one per free slot.

        Returns what ran, empty when nothing was claimable. `now` stands in for the database's clock.
        """
        settled = []
        for _ in range(self._free()):
            claimed = self._claim(1, now)
            if not claimed:
                break
            settled.append(self._run(claimed[0]))
            error = settled[-1].error
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise error
        return settled

    def tick(self) -> int:
        """Claim into the free slots and return without waiting for the jobs. Returns the number claimed.

        While another thread ticks, this call only makes it look again. Raises the database's errors.
        """
        claimed = 0
        self._look_again.set()
        while self._look_again.is_set() and self._ticking.acquire(blocking=False):
            try:
                self._look_again.clear()
                for held in self._claim(self._free(), None):
                    self._slots.put(held)
                    claimed += 1
            finally:
                self._ticking.release()
        return claimed

    def beat(self, *, now: datetime | None = None, due_only: bool = False) -> int:
        """Extend the leases of the held claims (`due_only`: past a third); tell tasks that lost theirs.

        Returns the number of claims found lost. Raises the database's errors; the leases hold on until their
        end.
        """
        with self._changed:
            due = [held for held in self._held.values() if not due_only or held.beat_is_due]
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

    def sweep(self, *, now: datetime | None = None) -> SweepCounts:
        """Take back every claim whose lease is over, of any worker."""
        with self._pool.transaction() as conn:
            return sweeping.sweep(conn, now=now)

    def register(self) -> None:
        """Show this worker in the list of live ones. For display only."""
        with self._pool.transaction() as conn:
            workers.register_worker(conn, self._info)
        self._registered = True

    def start_slots(self) -> None:
        """Start the threads that run what `tick` claims."""
        self._slots.start()

    def hurry(self) -> None:
        """Make `stop` release what still runs now. Safe in a signal handler."""
        self._hurry.set()

    def stop(self, grace: float | None = None) -> int:
        """Claim no more, let the running tasks end within `grace` seconds, then release the rest (T9).

        Returns the number released. A task that goes on in its thread after that can write nothing more.
        """
        # The lock is free once a claim on its way has arrived; later ones see the flag.
        self._stopping = True
        with self._ticking:
            pass
        until = time.monotonic() + (self.grace if grace is None else grace)
        with self._changed:
            while self._held and not self._hurry.is_set() and time.monotonic() < until:
                self._changed.wait(min(0.1, max(0.0, until - time.monotonic())))
            left = [held for held in self._held.values() if not held.lost]
        self._hurry.set()
        return sum(self._release(held) for held in left)

    def close(self) -> None:
        """Stop without grace, leave the list of live workers and close the connections."""
        self.stop(0)
        self._slots.close()
        if self._registered:
            self._forget()
        self._pool.close()

    def _forget(self) -> None:
        try:
            with self._pool.transaction() as conn:
                workers.forget_worker(conn, self.worker_id)
        except DATABASE_AWAY as away:
            log.warning("worker %s stays listed until it is stale: %s", self.worker_id, describe(away))

    def _free(self) -> int:
        with self._changed:
            return 0 if self._stopping else max(0, self.concurrency - len(self._held))

    def _claim(self, limit: int, now: datetime | None) -> list[Held]:
        if limit < 1 or not len(self.app):
            return []
        asked_at = time.monotonic()
        with self._pool.transaction() as conn:
            claims = queue.claim_jobs(
                conn, worker=self.worker_id, tasks=list(self.app), queues=self.queues, limit=limit, now=now
            )
        claimed = [Held(claim, self._pool, asked_at=asked_at, now=now) for claim in claims]
        with self._changed:
            self._held.update((held.claim.claim_token, held) for held in claimed)
        return claimed

    def _run(self, held: Held) -> Settled:
        try:
            return self._attempts.run(held)
        finally:
            with self._changed:
                self._held.pop(held.claim.claim_token, None)
                self._changed.notify_all()

    def _run_and_tick(self, held: Held) -> None:
        self._run(held)
        # This slot is free: look at once, the next job need not wait for a timer.
        self.tick()

    def _release(self, held: Held) -> bool:
        try:
            with self._pool.transaction() as conn:
                outcome = queue.release_job(conn, held.ref)
        except REFUSED:
            return False
        except DATABASE_AWAY as away:
            log.error(  # noqa: TRY400  # a trace of the connection adds nothing
                "job_id=%s not released, its lease must run out: %s", held.claim.job_id, describe(away)
            )
            return False
        # Not earlier: a task that is told so and returns must find its success refused.
        held.lost = True
        log.info("job_id=%s outcome=%s worker stops", held.claim.job_id, outcome)
        return True
