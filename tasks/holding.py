"""A claim that this worker holds, as seen by the heartbeat, by the task and by whoever settles it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tasks import queue
from tasks.errors import ClaimLost, JobNotFound, JobTerminal, SoftTimeLimitExceeded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from tasks.job import Claim, Ref
    from tasks.pool import Pool

REFUSED = (ClaimLost, JobTerminal, JobNotFound)
"""The database's ways to say that a claim is no longer this attempt's."""


class Held:
    """One claim between T1 and its settling.

    Its lease is measured here on the monotonic clock from before the statement that granted it, so that this
    side never believes in a lease longer than the database does.
    """

    def __init__(self, claim: Claim, pool: Pool, *, asked_at: float, now: datetime | None = None) -> None:
        self.claim = claim
        self.now = now
        self.settling = False
        self.lost = False
        self.abandoned_at: float | None = None
        """When the attempt was failed for its time limit, on the monotonic clock."""
        self._pool = pool
        self._extended_at = asked_at
        self._soft_until: float | None = None
        self._until: float | None = None

    @property
    def ref(self) -> Ref:
        """What every write of this attempt is guarded by."""
        return self.claim.ref

    @property
    def token(self) -> UUID:
        """Names this attempt and no other."""
        return self.claim.claim_token

    @property
    def job_id(self) -> UUID:
        """The claimed job."""
        return self.claim.job_id

    @property
    def beat_is_due(self) -> bool:
        """True from a third of the lease on."""
        return time.monotonic() >= self._extended_at + self.claim.lease_seconds / 3

    @property
    def lease_is_over(self) -> bool:
        """True when the lease has certainly run out on the database's clock."""
        return time.monotonic() >= self._extended_at + self.claim.lease_seconds

    def begin(self, soft_time_limit: float | None, time_limit: float | None) -> None:
        """Note that the task starts now, with these limits in seconds."""
        now = time.monotonic()
        self._soft_until = None if soft_time_limit is None else now + soft_time_limit
        self._until = None if time_limit is None else now + time_limit

    def is_overdue(self, now: float) -> bool:
        """True while the task runs and its time limit is over at `now`, on the monotonic clock."""
        return self._until is not None and now > self._until and not self.lost and not self.settling

    def abandon(self) -> None:
        """Note that the database has failed this attempt for its time limit."""
        self.lost = True
        self.abandoned_at = time.monotonic()

    def check_soft_limit(self) -> None:
        """Raise SoftTimeLimitExceeded, once."""
        if self._soft_until is not None and time.monotonic() > self._soft_until:
            self._soft_until = None
            raise SoftTimeLimitExceeded("the task has run longer than its soft_time_limit")

    def extended(self, asked_at: float) -> None:
        """Note that the database has extended the lease; `asked_at` is from before it was asked."""
        self._extended_at = asked_at

    def extend(self) -> None:
        """Extend the lease now. Raises ClaimLost."""
        asked_at = time.monotonic()
        with self._pool.transaction() as conn:
            kept = queue.extend_leases(conn, [self.ref], now=self.now)
        if self.claim.claim_token not in kept:
            self.lost = True
            raise ClaimLost(self.job_id)
        self.extended(asked_at)

    def passed(self) -> list[Any]:
        """What the job's parents hand on, to go in front of its arguments."""
        if self.claim.pass_results == "none":  # noqa: S105  # to pass on, no password
            return []
        with self._pool.transaction() as conn:
            results = queue.parent_results(conn, self.job_id)
        return results[:1] if self.claim.pass_results == "first" else [results]  # noqa: S105  # the same

    def save_progress(self, progress: Mapping[str, Any]) -> None:
        """Write the progress, visible at once. Raises ClaimLost, JobTerminal or JobNotFound, PayloadError."""
        try:
            with self._pool.transaction() as conn:
                queue.save_progress(conn, self.ref, dict(progress), now=self.now)
        except REFUSED:
            self.lost = True
            raise
