"""Time limits: attempts that run longer than their task may are ended here, from outside of them.

A thread cannot be ended. Its claim can: after `time_limit` the attempt is failed in the database, and whatever the
thread still does, the fence refuses it. A thread that does not notice keeps its slot; the process is then spent, and
whoever supervises it starts another.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tasks.errors import TimeLimitExceeded
from tasks.holding import REFUSED, Held
from tasks.settle import write
from tasks.verdict import verdict_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tasks.app import App
    from tasks.pool import Pool

log = logging.getLogger("tasks.worker")

UNWIND_SECONDS = 2.0
"""What an abandoned attempt has to notice at a checkpoint and return, before the process is spent."""


class Limits:
    """Looks after the time limits of one worker's attempts."""

    def __init__(self, app: App, pool: Pool) -> None:
        self._app = app
        self._pool = pool
        self.spent = threading.Event()
        """Set when a thread goes on although its attempt was abandoned."""

    def look(self, claims: Iterable[Held]) -> None:
        """Abandon what is over its limit. Raises the database's errors; the next look tries again."""
        now = time.monotonic()
        for held in claims:
            if held.is_overdue(now):
                self._abandon(held)
            elif held.abandoned_at and now > held.abandoned_at + UNWIND_SECONDS and not self.spent.is_set():
                log.error("job_id=%s runs on in its thread, this process is spent", held.job_id)
                self.spent.set()

    def _abandon(self, held: Held) -> None:
        task = self._app[held.claim.task]
        error = TimeLimitExceeded(f"{task.name} ran longer than its time_limit of {task.options.time_limit:g} s")
        try:
            with self._pool.transaction() as conn:
                outcome = write(conn, held, verdict_of(error, task, held.claim.attempts_max))
        except REFUSED:
            return  # it has ended at this moment
        held.abandon()
        log.error("job_id=%s task=%s abandoned after its time_limit, outcome=%s", held.job_id, task.name, outcome)
