"""What became of a job, for the one who asked for it. In Celery's words; the queue's own are in `.job`.

Every read is of what is committed, on a connection of its own, unless a session is given.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from tasks import queue
from tasks.context import inside_task
from tasks.errors import JobCancelled, JobFailed, JobNotFound, NotCommitted, PayloadError
from tasks.options import refuse
from tasks.payload import check_seconds
from tasks.pool import connect_options
from tasks.states import TERMINAL, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tasks.app import App
    from tasks.db import Conn
    from tasks.group_result import GroupResult
    from tasks.job import Job

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 0.5
"""Between two looks of `get`: short at first, doubling."""
REVOKED = "revoked"

_STATES = {
    Status.RUNNING: "STARTED",
    Status.SUCCEEDED: "SUCCESS",
    Status.FAILED: "FAILURE",
    Status.QUARANTINED: "FAILURE",
    Status.CANCELLED: "REVOKED",
}


def state_of(job: Job) -> str:
    """Celery's word for where a job is: PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED.

    RETRY is a job that waits again after a charged attempt.
    """
    if job.status == Status.PENDING:
        return "RETRY" if job.attempt_count else "PENDING"
    return _STATES[Status(job.status)]


def outcome_of(job: Job) -> Any:
    """The result of a job that succeeded, the error of one that did not, None before its end."""
    if job.status == Status.SUCCEEDED:
        return job.result
    if job.status == Status.CANCELLED:
        return JobCancelled(job.job_id, job.cancel_reason or "")
    if job.status in TERMINAL:
        # A job whose workers died has no error that any of them reported.
        return JobFailed(job.job_id, job.last_error_code or "WORKER_LOST", job.last_error or "its workers were lost")
    return None


def uuid_of(field: str, given: object) -> UUID:
    """Read the id of a job. Raises PayloadError naming `field`."""
    if isinstance(given, UUID):
        return given
    try:
        return UUID(given)  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        raise PayloadError(field, f"must be a UUID, not {given!r}") from None


def deadline(timeout: float | None) -> float | None:
    """When a wait of `timeout` seconds is over, on the monotonic clock; None: never. Raises PayloadError."""
    return None if timeout is None else time.monotonic() + check_seconds("timeout", timeout)


class AsyncResult:
    """The handle of a job: `app.AsyncResult(id)`, and what `delay` and `apply_async` return.

    `outcome` says what the enqueue did: `inserted`, `joined` or `duplicate`; None for a handle made from an id.
    `parent` is the result of the step before in a chain.
    """

    def __init__(
        self,
        id: UUID | str,  # noqa: A002  # Celery's name
        *,
        app: App,
        task: str | None = None,
        outcome: str | None = None,
        parent: AsyncResult | GroupResult | None = None,
        session: Conn | None = None,
    ) -> None:
        self.id = uuid_of("id", id)
        self.app = app
        self.task = task
        self.outcome = outcome
        self.parent = parent
        self._session = session

    def __str__(self) -> str:
        return str(self.id)

    def __repr__(self) -> str:
        return f"<AsyncResult {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def task_id(self) -> UUID:
        """The id, by Celery's other name."""
        return self.id

    @property
    def job(self) -> Job:
        """The job as it is committed now. Raises NotCommitted or JobNotFound."""
        with self.reading() as conn:
            return self.read(conn)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED."""
        return state_of(self.job)

    status = state

    @property
    def result(self) -> Any:
        """What the task returned; the error if it failed or was cancelled; None before the end."""
        return outcome_of(self.job)

    info = result

    @property
    def progress(self) -> Any:
        """What the task last said with `self.progress(…)`."""
        return self.job.progress

    def ready(self) -> bool:
        """Whether the job has reached an end."""
        return self.job.terminal

    def successful(self) -> bool:
        """Whether the job has succeeded."""
        return self.job.status == Status.SUCCEEDED

    def failed(self) -> bool:
        """Whether the job has failed for good."""
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, *, propagate: bool = True, **options: Any) -> Any:
        """Wait for the end and return the result, for `timeout` seconds at most.

        Raises TimeoutError; JobFailed or JobCancelled when the job ended so (`propagate=False` returns the
        error); NotCommitted when the enqueue is not committed yet; RuntimeError inside a task: it would hold a
        worker's slot while it waits for another one.
        """
        refuse("get", options, ("propagate", "timeout"))
        until = deadline(timeout)
        with self.reading() as conn:
            return self.wait(conn, until, propagate=propagate)

    def revoke(self, *, reason: str = REVOKED, session: Conn | None = None, **options: Any) -> None:
        """Cancel the job, waiting or running, in the transaction of `session`, or at once in one of its own.

        The claim of a running attempt is void from then on: it sees `self.cancelled()` and can write nothing.
        Raises JobTerminal when the job has ended already, JobNotFound.
        """
        refuse("revoke", options, ("reason", "session"))
        if session is not None:
            queue.cancel_job(session, self.id, reason=reason)
            return
        with psycopg.connect(self.app.database_url, **connect_options()) as conn:
            queue.cancel_job(conn, self.id, reason=reason)

    @contextmanager
    def reading(self) -> Iterator[Conn]:
        """A connection to read on: the session given, or one of its own that sees every commit."""
        if self._session is not None:
            yield self._session
            return
        with psycopg.connect(self.app.database_url, autocommit=True, **connect_options()) as conn:
            yield conn

    def read(self, conn: Conn) -> Job:
        """The job as `conn` sees it. Raises NotCommitted or JobNotFound."""
        try:
            return queue.get_job(conn, self.id)
        except JobNotFound:
            if self.outcome is None:
                raise
            raise NotCommitted(self.id) from None

    def wait(self, conn: Conn, until: float | None, *, propagate: bool) -> Any:
        """Wait on `conn` until the monotonic clock says `until`; see `get`."""
        if inside_task():
            raise RuntimeError("get() inside a task would wait for a worker's slot: make a chain or a chord of it")
        pause = PAUSE_SECONDS_MIN
        while not (job := self.read(conn)).terminal:
            left = pause if until is None else until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} has not ended in time: {job.status}")
            time.sleep(min(pause, left))
            pause = min(pause * 2, PAUSE_SECONDS_MAX)
        outcome = outcome_of(job)
        if propagate and isinstance(outcome, JobFailed | JobCancelled):
            raise outcome
        return outcome
