"""Rows of the queue as values, with the exact column names: a renamed column fails a test.

What is made for each claim is a tuple with names: a frozen dataclass takes four times as long to make.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from tasks.states import TERMINAL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

Payload = dict[str, Any]
"""`{"args": […], "kwargs": {…}}`."""
DedupMode = Literal["join", "once", "reject"]
ParentPolicy = Literal["cancel", "run", "stay"]
PassResults = Literal["none", "first", "list"]
DEDUP_MODES: tuple[str, ...] = get_args(DedupMode)
PARENT_POLICIES: tuple[str, ...] = get_args(ParentPolicy)
PASS_RESULTS: tuple[str, ...] = get_args(PassResults)
Outcome = Literal["retry", "released", "failed", "superseded"]
"""What became of a job whose attempt did not succeed."""


Done = Literal["inserted", "joined", "duplicate"]
"""What became of a request."""


class NewJob(NamedTuple):
    """One request to run a task. Times are seconds, instants are aware datetimes.

    A tuple, like Enqueued, for thousands are made at once: a frozen dataclass of this size takes three times as long.

    `available_at` and `countdown` exclude each other; neither: due at once. `tier` shifts the place in the
    order by whole seconds and nothing else. `attempts_max` counts runs in all. `job_id` None: one is made.

    `expires_at`, or `expires` seconds from now: not claimed from then on, and cancelled by the next sweep.
    `limit_key` and `limit_max`: at most so many jobs of the key run at a time. `parents`: jobs that have to
    succeed first; `on_parent_failure` says what happens when one ends otherwise or is not there: "cancel" this
    job, "run" it anyway, or "stay" until somebody retries the parent. `pass_results` is for the worker: it gives
    the task no result of its parents, the first one's, or the list of them.
    """

    task: str
    payload: Payload
    queue: str = "default"
    scope: str = ""
    priority: int = 0
    tier: float = 0.0
    after_tasks: Sequence[str] = ()
    available_at: datetime | None = None
    countdown: float | None = None
    lease_seconds: float = 60.0
    attempts_max: int = 5
    postpones_max: int = 100
    dedup_key: str | None = None
    dedup_mode: DedupMode = "join"
    job_id: UUID | None = None
    expires_at: datetime | None = None
    expires: float | None = None
    limit_key: str | None = None
    limit_max: int | None = None
    parents: Sequence[UUID] = ()
    on_parent_failure: ParentPolicy = "cancel"
    pass_results: PassResults = "none"  # noqa: S105  # to pass on, no password


class Enqueued(NamedTuple):
    """The job that will do the work: a new one, the one that was joined, or (`once`) the one there ever was."""

    job_id: UUID
    outcome: Done


class Ref(NamedTuple):
    """The only authority to write on behalf of an attempt."""

    job_id: UUID
    claim_token: UUID


class Claim(NamedTuple):
    """A job that this worker may run until `lease_expires_at`, or longer while it extends the lease."""

    job_id: UUID
    claim_token: UUID
    task: str
    queue: str
    scope: str
    payload: Payload
    priority: int
    attempt_number: int
    attempt_count: int
    attempts_max: int
    postpone_count: int
    postpones_max: int
    lease_seconds: float
    lease_expires_at: datetime
    claimed_at: datetime
    created_at: datetime
    available_at: datetime
    dedup_key: str | None
    coalesced: int
    expires_at: datetime | None
    parent_count: int
    pass_results: PassResults

    @property
    def ref(self) -> Ref:
        """What settling this claim needs."""
        return Ref(self.job_id, self.claim_token)


@dataclass(frozen=True, slots=True)
class Job:
    """One row of tasks.job."""

    job_id: UUID
    seq: int
    task: str
    queue: str
    scope: str
    payload: Payload
    priority: int
    status: str
    after_tasks: list[str]
    created_at: datetime
    available_at: datetime
    lease_seconds: float
    attempts_max: int
    attempt_count: int
    claim_count: int
    postpones_max: int
    postpone_count: int
    claim_token: UUID | None
    claimed_by: str | None
    claimed_at: datetime | None
    heartbeat_at: datetime | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    result: Any
    last_error_code: str | None
    last_error: str | None
    last_error_at: datetime | None
    dedup_key: str | None
    dedup_mode: DedupMode | None
    coalesced: int
    coalesced_at: datetime | None
    cancel_reason: str | None
    superseded_by: UUID | None
    progress: Any
    expires_at: datetime | None
    limit_key: str | None
    limit_max: int | None
    parent_count: int
    on_parent_failure: ParentPolicy
    pass_results: PassResults
    lane: str
    parked_on: UUID | None

    @property
    def terminal(self) -> bool:
        """Whether the job has reached an end."""
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Attempt:
    """One row of tasks.attempt: one claim of one job, for ever. `result` None: still open, its job's row says so."""

    claim_token: UUID
    job_id: UUID
    number: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    result: str | None
    error_code: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """What a worker says of itself; for display, never for ownership."""

    worker_id: str
    host: str
    pid: int
    queues: Sequence[str]
    tasks: Sequence[str]
    version: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One row of tasks.worker."""

    worker_id: str
    host: str
    pid: int
    queues: list[str]
    tasks: list[str]
    version: str
    started_at: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True)
class SweepCounts:
    """What a sweep did, in jobs.

    `requeued`, `failed` and `superseded`: whose lease was over. `skipped`: left for the next sweep, because
    somebody held what it needed. `expired` and `orphaned`: cancelled, too late or after a parent's failure.
    `unparked`: whose blocker was gone unnoticed.
    """

    requeued: int = 0
    failed: int = 0
    superseded: int = 0
    skipped: int = 0
    expired: int = 0
    orphaned: int = 0
    unparked: int = 0

    @property
    def total(self) -> int:
        """Jobs whose lease was over, taken back."""
        return self.requeued + self.failed + self.superseded

    def __add__(self, other: SweepCounts) -> SweepCounts:
        """Add the counts of another page."""
        return SweepCounts(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of the whole queue. `unknown`: pending jobs whose task no live worker knows.

    `estimated`: there are so many jobs that those which have succeeded are estimated, not counted.
    """

    counts: dict[str, int]
    estimated: bool
    due: int
    unknown: int
    oldest_due_seconds: float | None
    oldest_expired_lease_seconds: float | None
