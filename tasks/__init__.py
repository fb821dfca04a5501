"""A task system on Postgres: Celery's words, no broker, jobs that begin with the commit of the caller.

Timers (`tasks.timers`), the command line (`tasks.cli`) and the tools for tests (`tasks.testing`) are imported
by name.
"""

from tasks.app import App
from tasks.autocommit import Autocommit
from tasks.canvas import chain, chord, group
from tasks.context import Context, Request
from tasks.cron import crontab
from tasks.dedup import Dedup
from tasks.errors import (
    ClaimLost,
    DuplicateJob,
    JobCancelled,
    JobFailed,
    JobNotFound,
    JobTerminal,
    NotCommitted,
    NotConfigured,
    PayloadError,
    Postpone,
    Quarantine,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    TaskError,
    UnknownOption,
)
from tasks.gates import After, All, Limit
from tasks.group_result import GroupResult
from tasks.result import AsyncResult
from tasks.retry import Exponential, Fixed, Schedule
from tasks.signature import Signature
from tasks.task import Task
from tasks.worker import Worker

__all__ = [
    "After",
    "All",
    "App",
    "AsyncResult",
    "Autocommit",
    "ClaimLost",
    "Context",
    "Dedup",
    "DuplicateJob",
    "Exponential",
    "Fixed",
    "GroupResult",
    "JobCancelled",
    "JobFailed",
    "JobNotFound",
    "JobTerminal",
    "Limit",
    "NotCommitted",
    "NotConfigured",
    "PayloadError",
    "Postpone",
    "Quarantine",
    "Reject",
    "Request",
    "Retry",
    "Schedule",
    "Signature",
    "SoftTimeLimitExceeded",
    "Task",
    "TaskError",
    "UnknownOption",
    "Worker",
    "chain",
    "chord",
    "crontab",
    "group",
]
