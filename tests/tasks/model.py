"""What the queue should do, as a small pure model: no SQL, no locks, one job after the other.

Instants are seconds after START. Tokens are those that the real queue gave; everything else is predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from tasks.job import NewJob, Ref

WAITING = ("pending", "running")


@dataclass
class ModelJob:
    """A job as it should be. `attempts` are [token, ending], ending None while open."""

    job_id: UUID
    seq: int
    new: NewJob
    created: float
    available: float
    priority: int
    attempts_max: int
    postpones_max: int
    status: str = "pending"
    attempt_count: int = 0
    postpone_count: int = 0
    coalesced: int = 0
    token: UUID | None = None
    lease_until: float | None = None
    superseded_by: UUID | None = None
    cancel_reason: str | None = None
    expires: float | None = None
    last_error_code: str | None = None
    attempts: list[list[object]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str] | None:
        return None if self.new.dedup_key is None else (self.new.task, self.new.dedup_key)

    def end(self, status: str, ending: str) -> None:
        """Leave the state running."""
        self.status = status
        self.attempts[-1][1] = ending
        self.token = self.lease_until = None

    def end_waiting(self, status: str, reason: str | None) -> None:
        """Leave the state pending."""
        self.status, self.cancel_reason = status, reason


class Model:
    """All jobs, and the moves."""

    def __init__(self) -> None:
        self.jobs: dict[UUID, ModelJob] = {}
        self.paused: set[str] = set()
        self.now = 0.0

    def pending_with(self, key: tuple[str, str] | None, but: ModelJob | None = None) -> ModelJob | None:
        if key is None:
            return None
        found = [j for j in self.jobs.values() if j.status == "pending" and j.key == key and j is not but]
        assert len(found) <= 1
        return found[0] if found else None

    def holder_of(self, new: NewJob) -> ModelJob | None:
        """The job that stands in the way of a new one."""
        if new.dedup_key is None:
            return None
        key = (new.task, new.dedup_key)
        if new.dedup_mode == "once":
            for job in self.jobs.values():
                if job.key == key and job.new.dedup_mode == "once":
                    return job
        return self.pending_with(key)

    def insert(self, job_id: UUID, new: NewJob) -> None:
        self.jobs[job_id] = ModelJob(
            job_id, len(self.jobs), new, self.now + new.tier, self.now + (new.countdown or 0.0),
            new.priority, new.attempts_max, new.postpones_max,
            expires=None if new.expires is None else self.now + new.expires,
        )  # fmt: skip

    def join(self, job: ModelJob, new: NewJob) -> None:
        job.coalesced += 1
        job.available = min(job.available, self.now + (new.countdown or 0.0))
        job.priority = max(job.priority, new.priority)
        job.expires = None if job.expires is None or new.expires is None else max(job.expires, self.now + new.expires)
        job.attempts_max = max(job.attempts_max, job.attempt_count + new.attempts_max)
        job.postpones_max = max(job.postpones_max, job.postpone_count + new.postpones_max)

    def claimable(self, job: ModelJob) -> bool:
        gated = any(
            other.status in WAITING and other.new.task in job.new.after_tasks
            for other in self.jobs.values()
            if other is not job and other.new.scope == job.new.scope
        )
        waits = any(not self.satisfied(job, parent) for parent in job.new.parents)
        late = job.expires is not None and job.expires <= self.now
        full = job.new.limit_max is not None and self.running(job.new.limit_key) >= job.new.limit_max
        held = gated or waits or late or full or job.new.queue in self.paused
        return job.status == "pending" and job.available <= self.now and not held

    def satisfied(self, job: ModelJob, parent_id: UUID) -> bool:
        parent = self.acting(parent_id)
        if parent is not None and (parent.status == "succeeded" or parent.status in WAITING):
            return parent.status == "succeeded"
        return job.new.on_parent_failure == "run"

    def acting(self, job_id: UUID) -> ModelJob | None:
        """The job itself, or the one that does its work."""
        job = self.jobs.get(job_id)
        while job is not None and job.superseded_by is not None:
            job = self.jobs.get(job.superseded_by)
        return job

    def running(self, limit_key: str | None) -> int:
        return sum(job.status == "running" and job.new.limit_key == limit_key for job in self.jobs.values())

    def next_claims(self, tasks: list[str], queues: list[str], limit: int) -> list[ModelJob]:
        """In order, and of a limit only as many as have a place."""
        taken: list[ModelJob] = []
        known = [job for job in self.jobs.values() if job.new.task in tasks and job.new.queue in queues]
        found = [job for job in known if self.claimable(job)]
        for job in sorted(found, key=lambda job: (-job.priority, job.created, job.seq)):
            mates = sum(other.new.limit_key == job.new.limit_key for other in taken)
            if job.new.limit_max is None or self.running(job.new.limit_key) + mates < job.new.limit_max:
                taken.append(job)
        return taken[:limit]

    def claim(self, job: ModelJob, token: UUID) -> None:
        assert job.attempt_count < job.attempts_max
        job.status, job.token = "running", token
        job.attempt_count += 1
        job.lease_until = self.now + job.new.lease_seconds
        job.attempts.append([token, None])

    def held(self, ref: Ref) -> ModelJob | None:
        job = self.jobs[ref.job_id]
        return job if job.token == ref.claim_token else None

    def heartbeat(self, job: ModelJob) -> None:
        assert job.lease_until is not None
        job.lease_until = max(job.lease_until, self.now + job.new.lease_seconds)

    def finish(self, job: ModelJob) -> None:
        job.last_error_code = None
        job.end("succeeded", "SUCCEEDED")

    def fail(self, job: ModelJob, code: str, delays: list[float] | None) -> str:
        job.last_error_code = code
        if delays is None or job.attempt_count >= job.attempts_max:
            job.end("failed", "FAILED")
            return "failed"
        return self._put_back(job, "FAILED", delays[min(job.attempt_count, len(delays)) - 1], "retry")

    def release(self, job: ModelJob, delay: float, *, postpone: bool) -> str:
        if postpone and job.postpone_count >= job.postpones_max:
            job.last_error_code = "POSTPONED_TOO_OFTEN"
            job.end("failed", "FAILED")
            return "failed"
        job.attempt_count -= 1
        job.postpone_count += postpone
        return self._put_back(job, "RELEASED", delay, "released")

    def quarantine(self, job: ModelJob, code: str) -> None:
        job.last_error_code = code
        job.end("quarantined", "QUARANTINED")

    def cancel(self, job: ModelJob, reason: str) -> None:
        if job.status == "running":
            job.end("cancelled", "CANCELLED")
        job.end_waiting("cancelled", reason)

    def set_aside(self, job: ModelJob) -> None:
        if job.status == "running":
            job.end("quarantined", "QUARANTINED")
        job.end_waiting("quarantined", None)

    def retry(self, job: ModelJob) -> None:
        job.status, job.cancel_reason, job.superseded_by, job.available = "pending", None, None, self.now
        job.attempts_max += 1
        job.postpones_max += 1
        if job.expires is not None and job.expires <= self.now:
            job.expires = None

    def _put_back(self, job: ModelJob, ending: str, delay: float, outcome: str) -> str:
        heir = self.pending_with(job.key, but=job)
        if heir is not None:
            job.superseded_by = heir.job_id
            job.end("cancelled", ending)
            job.cancel_reason = "superseded"
            return "superseded"
        job.end("pending", ending)
        job.available = self.now + delay
        return outcome

    def sweep(self) -> tuple[int, int, int, int, int]:
        """Requeued, failed, superseded; expired, orphaned. Of several with one key the newest goes back first."""
        counts = {"retry": 0, "failed": 0, "superseded": 0}
        expired = [j for j in self.jobs.values() if j.lease_until is not None and j.lease_until <= self.now]
        for job in sorted(expired, key=lambda job: -job.seq):
            if job.attempt_count >= job.attempts_max:
                job.end("failed", "ABANDONED")
                counts["failed"] += 1
            else:
                counts[self._put_back(job, "ABANDONED", 0.0, "retry")] += 1
        return counts["retry"], counts["failed"], counts["superseded"], *self._tidy()

    def _tidy(self) -> tuple[int, int]:
        """What has expired, and the children whose parents failed, theirs in turn as well."""
        late = [j for j in self.jobs.values() if j.status == "pending" and j.expires and j.expires <= self.now]
        for job in late:
            job.end_waiting("cancelled", "expired")
        orphaned = 0
        while lost := [job for job in self.jobs.values() if job.status == "pending" and self._orphaned(job)]:
            for job in lost:
                job.end_waiting("cancelled", "parent")
            orphaned += len(lost)
        return len(late), orphaned

    def _orphaned(self, job: ModelJob) -> bool:
        parents = [self.acting(parent_id) for parent_id in job.new.parents]
        bad = [p for p in parents if p is None or p.status not in ("succeeded", *WAITING)]
        return job.new.on_parent_failure == "cancel" and bool(bad)
