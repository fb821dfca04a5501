"""A task system on Postgres: Celery's words, no broker, jobs that begin with the commit of the caller.

Timers (`tasks.timers`), the command line (`tasks.cli`) and the tools for tests (`tasks.testing`) are imported
by name.
"""

from tasks.app import App
from tasks.context import Context, Request
from tasks.cron import crontab
from tasks.dedup import Dedup
from tasks.errors import (
    ClaimLost,
    DuplicateJob,
    JobNotFound,
    JobTerminal,
    NotConfigured,
    PayloadError,
    Postpone,
    Quarantine,
    Reject,
    Retry,
    TaskError,
    UnknownOption,
)
from tasks.gates import After
from tasks.retry import Exponential, Fixed, Schedule
from tasks.task import AsyncResult, Task
from tasks.worker import Worker

__all__ = [
    "After",
    "App",
    "AsyncResult",
    "ClaimLost",
    "Context",
    "Dedup",
    "DuplicateJob",
    "Exponential",
    "Fixed",
    "JobNotFound",
    "JobTerminal",
    "NotConfigured",
    "PayloadError",
    "Postpone",
    "Quarantine",
    "Reject",
    "Request",
    "Retry",
    "Schedule",
    "Task",
    "TaskError",
    "UnknownOption",
    "Worker",
    "crontab",
]
