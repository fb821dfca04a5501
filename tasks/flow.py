"""What goes through a worker: claims come in, ended attempts go out, one transaction a turn.

A turn settles what has ended and claims into the room that this makes. It is done by the thread that finds it due; the
others go on with the claims that wait. Turns follow each other, but for a second one beside the first when half a
batch has ended meanwhile: else worker and database would wait for each other. A claim takes up room until the database
has said yes to its end, so that a database that does not answer gets no more work than it can lose.

A long file: a turn is one idea, and its parts share one lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from tasks import queue
from tasks.attempt import Attempts, Ended
from tasks.hand_back import hand_back
from tasks.holding import Held
from tasks.pool import DATABASE_AWAY, Pool
from tasks.prefetch import RunTimes
from tasks.settle import Settled, Settler, log_attempt
from tasks.slots import Slots
from tasks.verdict import describe

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Claim

log = logging.getLogger(__name__)

BATCH = 300
"""Most jobs that one transaction settles, and claims: larger ones gain nothing more."""
BESIDE = BATCH // 2
"""Ended attempts that are worth a turn while another one is under way."""
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
        """Guards `held` and what turns share; notified when claims leave it."""
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
        self._beside = threading.Lock()
        """Held by the second turn."""
        self._leaving = 0
        """Held claims whose ends are being written."""
        self._asked = 0
        """Claims that turns under way may bring."""
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
        held = Held(claims[0], self._pool, asked_at=asked_at, now=now)
        with self.changed:
            self._take_over([held], ())
        ended = self._attempts.run(held)
        return self._close(ended, self._settler.settle(ended))

    def room(self) -> int:
        """Claims that may be added now."""
        with self.changed:
            staying = len(self.held) - self._leaving + self._asked
            return 0 if self.stopping else max(0, self._concurrency + self._ahead - staying)

    def stop(self) -> int:
        """Claim no more, hand back what has not started, settle what has ended. Returns the number handed back."""
        # The lock is free once a claim on its way has arrived; later ones see the flag.
        self.stopping = True
        with self._turning, self._beside:
            pass
        released = self.hand_back_waiting()
        self._settle_first()
        return released

    def hand_back_waiting(self, *, stuck_only: bool = False) -> int:
        """Hand back the claims that no slot has taken, in their order; `stuck_only`: if they wait too long."""
        if stuck_only and self.slots.stuck_seconds < STUCK_SECONDS:
            return 0
        with self.changed:
            self._times.forget_claims()
        return self._hand_back_unstarted(self.slots.take_back())

    def _hand_back_unstarted(self, claims: Sequence[Held]) -> int:
        released = hand_back(self._pool, claims) if claims else 0
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
        while (flush or self._bell.is_set() or self._is_due()) and (lock := self._take_turn()):
            flush = False
            try:
                self._bell.clear()
                claimed += self._turn()
            finally:
                lock.release()
        return claimed

    def _take_turn(self) -> threading.Lock | None:
        if self._turning.acquire(blocking=False):
            return self._turning
        if len(self._ended) >= BESIDE and self._beside.acquire(blocking=False):
            return self._beside
        return None

    def _is_due(self) -> bool:
        waiting = self.slots.waiting
        try:
            oldest = self._ended[0]
        except IndexError:
            return self._more and waiting < self._ahead / 2
        return not waiting or len(self._ended) >= BATCH or time.monotonic() > oldest.at + WINDOW_SECONDS

    def _turn(self) -> int:
        batch, limit = self._begin()
        settled: list[Ended] = []
        claimed: list[Held] = []
        try:
            if batch or (limit and len(self._app)):
                settled, claimed = self._write_and_claim(batch, limit)
        finally:
            with self.changed:
                self._leaving -= len(batch)
                self._asked -= limit
                self._take_over(claimed, settled)
        kept = self._times.share([held.claim for held in claimed], self._concurrency)
        for held in claimed[:kept]:
            self.slots.put(held)
        self._hand_back_unstarted(claimed[kept:])
        return kept

    def _begin(self) -> tuple[list[Ended], int]:
        """What to settle, and how many claims to ask for."""
        with self.changed:
            batch = [self._ended.popleft() for _ in range(min(len(self._ended), BATCH))]
            self._ahead = self._times.ahead(self._concurrency)
            self._leaving += len(batch)
            limit = min(BATCH, self.room())
            self._asked += limit
        return batch, limit

    def _write_and_claim(self, batch: list[Ended], limit: int) -> tuple[list[Ended], list[Held]]:
        """One transaction; what it has settled, and what it has claimed. The rest of `batch` is settled one by one."""
        asked_at = time.monotonic()
        try:
            with self._pool.transaction() as conn:
                outcomes = self._settler.write_batch(conn, batch)
                claims = self._claim(conn, limit, None)
        except Exception as error:
            for ended in batch:
                ended.unanswered |= isinstance(error, DATABASE_AWAY)
                self.slots.put(ended)
            raise
        settled = []
        for ended, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                self.slots.put(ended)
            else:
                log_attempt(ended, outcome)
                settled.append(ended)
        with self.changed:
            self._times.claimed(claim.task for claim in claims)
        self._more = len(claims) == limit > 0
        return settled, [Held(claim, self._pool, asked_at=asked_at, now=None) for claim in claims]

    def _claim(self, conn: Conn, limit: int, now: datetime | None) -> list[Claim]:
        if limit < 1 or not len(self._app):
            return []
        return queue.claim_jobs(
            conn, worker=self._worker_id, tasks=list(self._app), queues=self._queues, limit=limit, now=now
        )

    def _take_over(self, claimed: Iterable[Held], settled: Iterable[Ended]) -> None:
        """Let claims in and others out. To be called with `changed` held."""
        self.held.update((held.claim.claim_token, held) for held in claimed)
        for ended in settled:
            self.held.pop(ended.held.claim.claim_token, None)
        self.changed.notify_all()

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
