"""What goes through a worker: claims come in, ended attempts go out, one transaction a turn.

A turn settles what has ended and claims into the room that this makes. It is done by the thread that finds it due,
one at a time; the others go on with the claims that wait. A claim takes up room until the database has said yes to
its end, so that a database that does not answer gets no more work than it can lose.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tasks import queue
from tasks.attempt import Attempts, Ended
from tasks.holding import REFUSED, Held
from tasks.pool import DATABASE_AWAY, ROW_AWAY, Pool
from tasks.prefetch import RunTimes
from tasks.settle import Settled, Settler, log_attempt
from tasks.slots import Slots
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Claim

log = logging.getLogger(__name__)

BATCH = 100
"""Most jobs that one transaction settles, and claims: larger ones are slower a job."""
WINDOW_SECONDS = 0.02
"""How long the end of an attempt waits for others to share a commit with, while short tasks are about to end."""
SHORT_SECONDS = 0.005
"""What a task may be expected to take for ends to wait for it."""
STUCK_SECONDS = 1.0
"""Claims that wait behind tasks which take longer than expected are handed back after so long."""


class Flow:
    """The claims of one worker, from T1 to the end of the attempt. Thread-safe."""

    def __init__(
        self, app: App, pool: Pool, worker_id: str, queues: Sequence[str], concurrency: int, hurry: threading.Event
    ) -> None:
        self.held: dict[UUID, Held] = {}
        self.changed = threading.Condition()
        """Guards `held`; notified when claims leave it."""
        self.slots = Slots(concurrency, self._work)
        self.stopping = False
        self._app = app
        self._pool = pool
        self._worker_id = worker_id
        self._queues = list(queues)
        self._concurrency = concurrency
        self._attempts = Attempts(app, worker_id)
        self._settler = Settler(app, pool, hurry)
        self._times = RunTimes()
        self._ended: deque[Ended] = deque()
        self._turning = threading.Lock()
        self._bell = threading.Event()
        self._ahead = 0
        self._more = False

    def ring(self) -> int:
        """Settle and claim now. Returns the number claimed; raises the database's errors.

        While another thread does it, this call only makes that one look again.
        """
        self._bell.set()
        return self.turns()

    def claim_and_run(self, now: datetime | None) -> Settled | None:
        """Claim one job, run and settle it in this thread; None when there is none."""
        if self.stopping:
            return None
        asked_at = time.monotonic()
        with self._pool.transaction() as conn:
            claims = self._claim(conn, 1, now)
        if not claims:
            return None
        (held,) = self._add(claims, asked_at, now)
        ended = self._attempts.run(held)
        return self._close(ended, self._settler.settle(ended))

    def room(self) -> int:
        """Claims that may be added now."""
        with self.changed:
            return 0 if self.stopping else max(0, self._concurrency + self._ahead - len(self.held))

    def stop(self) -> int:
        """Claim no more, hand back what has not started, settle what has ended. Returns the number handed back."""
        # The lock is free once a claim on its way has arrived; later ones see the flag.
        self.stopping = True
        with self._turning:
            pass
        released = self.hand_back_waiting()
        self._settle_first()
        return released

    def hand_back(self, claims: Sequence[Held]) -> int:
        """Release claims (T9), whether they have started or not. Returns how many were released."""
        released = []
        try:
            with self._pool.transaction() as conn:
                for held in claims:
                    try:
                        released.append((held, queue.release_job(conn, held.ref)))
                    except REFUSED:
                        continue
        except ROW_AWAY as away:
            if len(claims) > 1:
                return sum(self.hand_back([held]) for held in claims)
            return _not_released(claims, away)
        except DATABASE_AWAY as away:
            return _not_released(claims, away)
        for held, outcome in released:
            # Not earlier: a task that is told so and returns must find its success refused.
            held.lost = True
            log.info("job_id=%s outcome=%s handed back", held.job_id, outcome)
        return len(released)

    def hand_back_waiting(self, *, stuck_only: bool = False) -> int:
        """Hand back the claims that no slot has taken, in their order; `stuck_only`: if they wait too long."""
        if stuck_only and self.slots.stuck_seconds < STUCK_SECONDS:
            return 0
        self._times.forget_claims()
        return self._hand_back_unstarted(self.slots.take_back())

    def _hand_back_unstarted(self, claims: Sequence[Held]) -> int:
        released = self.hand_back(claims) if claims else 0
        self._remove(claims)
        return released

    def _work(self, item: Held | Ended) -> None:
        """What a slot does with one item."""
        if isinstance(item, Ended):
            self._close(item, self._settler.settle(item))
            self._bell.set()
        else:
            if self._ended and self._times.expected(item.claim.task) > SHORT_SECONDS:
                self._settle_first()
            ended = self._attempts.run(item)
            self._times.ran(item.claim.task, ended.run_seconds)
            if ended.is_settled:
                self._close(ended, self._settler.settle(ended))
                if not self.slots.waiting:
                    self._bell.set()
            else:
                self._ended.append(ended)
        self.turns()

    def _settle_first(self) -> None:
        """Settle what has ended before a task that may take long; the task is run whatever becomes of it."""
        try:
            self.turns(flush=True)
        except DATABASE_AWAY as away:
            log.warning("not settled yet: %s", describe(away))
        except Exception:
            log.exception("not settled yet")

    def turns(self, *, flush: bool = False) -> int:
        """Settle and claim for as long as it is due. Raises as `ring` does."""
        claimed = 0
        # Looked at again after the lock is free: whoever found it taken relies on that.
        while (flush or self._bell.is_set() or self._is_due()) and self._turning.acquire(blocking=False):
            flush = False
            try:
                self._bell.clear()
                claimed += self._turn()
            finally:
                self._turning.release()
        return claimed

    def _is_due(self) -> bool:
        waiting = self.slots.waiting
        try:
            oldest = self._ended[0]
        except IndexError:
            return self._more and waiting < self._ahead / 2
        return not waiting or len(self._ended) >= BATCH or time.monotonic() > oldest.at + WINDOW_SECONDS

    def _turn(self) -> int:
        batch = [self._ended.popleft() for _ in range(min(len(self._ended), BATCH))]
        self._ahead = self._times.ahead(self._concurrency)
        limit = min(BATCH, self.room() + (0 if self.stopping else len(batch)))
        asked_at = time.monotonic()
        if not batch and (limit < 1 or not len(self._app)):
            return 0
        try:
            with self._pool.transaction() as conn:
                outcomes = self._settler.write_batch(conn, batch)
                claims = self._claim(conn, limit, None)
        except Exception as error:
            for ended in batch:
                ended.unanswered |= isinstance(error, DATABASE_AWAY)
                self.slots.put(ended)
            raise
        for ended, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                self.slots.put(ended)
            else:
                log_attempt(ended, outcome)
        self._remove([ended.held for ended, outcome in zip(batch, outcomes, strict=True) if outcome is not None])
        self._times.claimed(claim.task for claim in claims)
        self._more = len(claims) == limit > 0
        claimed = self._add(claims, asked_at, None)
        kept = self._times.share(claims, self._concurrency)
        for held in claimed[:kept]:
            self.slots.put(held)
        self._hand_back_unstarted(claimed[kept:])
        return kept

    def _claim(self, conn: Conn, limit: int, now: datetime | None) -> list[Claim]:
        if limit < 1 or not len(self._app):
            return []
        return queue.claim_jobs(
            conn, worker=self._worker_id, tasks=list(self._app), queues=self._queues, limit=limit, now=now
        )

    def _add(self, claims: Sequence[Claim], asked_at: float, now: datetime | None) -> list[Held]:
        claimed = [Held(claim, self._pool, asked_at=asked_at, now=now) for claim in claims]
        with self.changed:
            self.held.update((held.claim.claim_token, held) for held in claimed)
        return claimed

    def _close(self, ended: Ended, outcome: str) -> Settled:
        try:
            return log_attempt(ended, outcome)
        finally:
            self._remove([ended.held])

    def _remove(self, claims: Sequence[Held]) -> None:
        with self.changed:
            for held in claims:
                self.held.pop(held.claim.claim_token, None)
            self.changed.notify_all()


def _not_released(claims: Sequence[Held], away: Exception) -> int:
    for held in claims:
        log.error("job_id=%s not released, its lease must run out: %s", held.job_id, describe(away))
    return 0
