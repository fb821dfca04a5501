"""What can go wrong in the task system, and what a task may raise to steer its own job.

TaskError
├── ClaimLost      the token is not the current one: the job was swept, released or claimed again
├── JobTerminal    the job has reached an end; carries its status
├── JobActive      the job has not reached an end; carries its status
├── JobNotFound    no such job
│   └── NotCommitted   enqueued, but not committed yet
├── JobFailed      what `get` raises for a job that failed; carries its code and detail
├── JobCancelled   what `get` raises for a job that was cancelled; carries the reason
├── DuplicateJob   a job with this key (mode `reject`) or this id is there already
├── PayloadError   data that cannot be stored or breaks a rule; names the field
├── UnknownOption  an option that nobody knows; never ignored
├── NotConfigured  the app has no database or no current session
├── NotMigrated    the database lacks the job tables that this version needs
├── SoftTimeLimitExceeded  raised in a task at its next checkpoint; it may tidy up and end
└── TimeLimitExceeded      the attempt was abandoned; only ever seen as an error code

Steering (raised by a task, caught by the worker)
├── Retry          again later, counts as a failed attempt
├── Reject         failed for good, no retry
├── Quarantine     evidence kept, no retry
└── Postpone       again later without blame; has a bound of its own
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

ERROR_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class TaskError(Exception):
    """The task system refuses or cannot do this."""


class ClaimLost(TaskError):
    """The claim token is no longer the current one; nothing was written."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"the claim on job {job_id} is lost: its token is no longer the current one")
        self.job_id = job_id


class JobTerminal(TaskError):
    """The job has reached an end (`status`); nothing was written."""

    def __init__(self, job_id: UUID, status: str) -> None:
        super().__init__(f"job {job_id} is at an end: {status}")
        self.job_id = job_id
        self.status = status


class JobActive(TaskError):
    """The job waits or runs (`status`), so there is nothing to retry; nothing was written."""

    def __init__(self, job_id: UUID, status: str) -> None:
        super().__init__(f"job {job_id} has not reached an end: {status}")
        self.job_id = job_id
        self.status = status


class JobNotFound(TaskError):
    """No job has this id."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(f"there is no job {job_id}")
        self.job_id = job_id


class NotCommitted(JobNotFound):
    """The job was enqueued in a transaction that is not committed: nobody else can see it, and no worker runs it."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.args = (f"job {job_id} is not there yet: commit the transaction that enqueued it first",)


class JobFailed(TaskError):
    """The job has failed for good, or was quarantined: `code` and `detail` are those of its last error."""

    def __init__(self, job_id: UUID, code: str, detail: str) -> None:
        super().__init__(f"job {job_id} failed: {code}: {detail}")
        self.job_id = job_id
        self.code = code
        self.detail = detail


class JobCancelled(TaskError):
    """The job was cancelled: `reason` is `parent`, `superseded`, `expired` or what the one who did it gave."""

    def __init__(self, job_id: UUID, reason: str) -> None:
        super().__init__(f"job {job_id} was cancelled: {reason}")
        self.job_id = job_id
        self.reason = reason


class DuplicateJob(TaskError):
    """A job of this task with this key, or this id, is there already.

    When it was the id, the caller's transaction has failed and has to be rolled back.
    """


class PayloadError(TaskError, ValueError):
    """Data that cannot be stored or breaks a rule. `field` names it, e.g. `kwargs.mpack_key`."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(f"{field}: {sentence}")
        self.field = field
        self.sentence = sentence


class UnknownOption(TaskError, TypeError):
    """An option that the task system does not have. `option` names it."""

    def __init__(self, option: str, sentence: str = "there is no such option") -> None:
        super().__init__(f"{option}: {sentence}")
        self.option = option


class NotConfigured(TaskError):
    """The app has not been told its database or its current session."""


class NotMigrated(TaskError):
    """The database has no job tables, or those of another version."""


class SoftTimeLimitExceeded(TaskError):
    """The task has run longer than its `soft_time_limit`. Raised in it once, at a checkpoint."""


class TimeLimitExceeded(TaskError):
    """The task has run longer than its `time_limit`: its attempt has failed, whatever its thread does."""


class Steering(Exception):
    """Base of what a task raises to steer its own job; not an error of the task system."""


class Retry(Steering):
    """Fail this attempt and run again, after `countdown` seconds or as the task's policy says."""

    def __init__(self, countdown: float | None = None, detail: str = "the task asked to be run again") -> None:
        super().__init__(detail)
        self.countdown = countdown
        self.detail = detail


class Reject(Steering):
    """Fail the job for good, whatever budget is left."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Quarantine(Steering):
    """Set the job aside for a person: its input is not to be touched again without one."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail


class Postpone(Steering):
    """Hand the claim back and come again after `seconds`; the attempt is not counted."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"postponed by {seconds} s")
        self.seconds = seconds


def error_code(error: BaseException) -> str:
    """Derive the code of an exception from its class name: `FetchNotIndexed` → `FETCH_NOT_INDEXED`."""
    name = type(error).__name__.encode("ascii", "ignore").decode()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    code = re.sub(r"[^A-Z0-9_]", "", words.upper()).lstrip("_0123456789")[:64]
    return code or "ERROR"
