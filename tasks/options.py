"""What `@app.task` and `apply_async` accept, and the sentence with which they refuse the rest.

An option that is accepted and then ignored is a lie that shows only in production. So each option of Celery's
that means something else here, or nothing yet, is refused by name, with what to say instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tasks.errors import UnknownOption

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TASK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
NAME_LENGTH_MAX = 200
LEASE_SECONDS_MIN = 1.0
"""Shorter leases would need heartbeats faster than the worker's own tick."""
LEASE_SECONDS_MAX = 24 * 3600.0
ATTEMPTS_MAX = 1000
TIER_MAX = 3600
TIME_LIMIT_MAX = 30 * 24 * 3600.0
CONCURRENCY_MAX = 256
PROCESSES_MAX = 64
POLL_SECONDS = 2.0
SWEEP_SECONDS = 15.0
GRACE_SECONDS = 25.0
"""What running tasks have to end in; below the 30 seconds after which most platforms send SIGKILL."""
PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
"""The range of the column, a Postgres smallint."""

SAME: Mapping[str, Any] = {"acks_late": True, "serializer": "json", "typing": True, "track_started": True}
"""Options of Celery's with the one value that says what happens here anyway."""

REFUSED: Mapping[str, str] = {
    "acks_late": "a job is acknowledged when it has ended, never before it runs",
    "reject_on_worker_lost": "the job of a lost worker always runs again, within its max_attempts",
    "serializer": "payloads are JSON",
    "accept_content": "payloads are JSON",
    "compression": "payloads are small JSON documents; put large data into a store and pass its key",
    "typing": "arguments are always checked against the signature",
    "track_started": "every start is recorded",
    "ignore_result": "results are kept with the job; return None where there is none",
    "time_limit": "declare it with the task, @app.task(time_limit=…)",
    "soft_time_limit": "declare it with the task, @app.task(soft_time_limit=…)",
    "rate_limit": "there is no limit of starts per second; gate=Limit(key, n) bounds what runs at a time",
    "default_retry_delay": "say retry=Fixed(seconds)",
    "retry_backoff": "say retry=Exponential(base=…, cap=…)",
    "retry_backoff_max": "say retry=Exponential(base=…, cap=…)",
    "retry_jitter": "say retry=Exponential(base=…, jitter=…)",
    "retry_kwargs": "say max_attempts= and retry=",
    "retry_policy": "the job is a row of the caller's transaction; there is no broker to try again",
    "dont_autoretry_for": "say dont_retry_for=(…)",
    "throws": "say dont_retry_for=(…)",
    "retries": "the number of retries is counted by the queue",
    "throw": "retry() always raises",
    "base": "tasks are plain functions; share behaviour by calling functions",
    "exchange": "there is no broker; say queue=",
    "routing_key": "there is no broker; say queue=",
    "delivery_mode": "jobs are always durable",
    "connection": "say session=, the transaction that the job belongs to",
    "producer": "say session=, the transaction that the job belongs to",
    "publisher": "say session=, the transaction that the job belongs to",
    "link": "say chain(task.s(…), next.s(…))",
    "link_error": "say parents=[result.id], on_parent_failure='run' of the next: it runs however that ends",
    "chord": "say chord(header, body)",
    "add_to_parent": "say parents=[…]",
    "group_id": "say group(…)",
    "root_id": "say parents=[…]",
    "parent_id": "say parents=[…]",
    "reply_to": "results are kept with the job",
    "backend": "results are kept with the job, in the same database",
    "store_errors_even_if_ignored": "errors are always kept with the job",
    "store_eager_result": "eager runs make no job",
    "acks_on_failure_or_timeout": "a job that failed runs again within its max_attempts",
    "broker": "there is no broker; say database_url=",
    "include": "import the modules of the tasks where the app is put together",
    "task_always_eager": "say eager=True",
    "task_eager_propagates": "say eager_propagates=True",
    "trail": "a result knows its parent; nothing else is kept",
    "pydantic": "arguments are JSON; make models of them in the task",
    "abstract": "tasks are plain functions; share behaviour by calling functions",
    "terminate": "a thread cannot be killed; the claim dies at once, the task sees self.cancelled()",
    "signal": "a thread cannot be killed; the claim dies at once, the task sees self.cancelled()",
    "wait": "a cancellation is done when the call returns",
    "interval": "looks follow each other at 0.02 to 0.5 seconds",
    "no_ack": "results are rows; reading one takes nothing away",
    "follow_parents": "ask result.parent",
    "callback": "call it with what get() returns",
    "on_message": "there are no messages; ask result.state or result.progress",
    "on_interval": "ask result.state or result.progress in a loop of your own",
    "disable_sync_subtasks": "get() inside a task is always refused",
    "headers": "pass what the task needs as arguments",
    "shadow": "a job is shown under its task's name",
}


ACCEPTED: Mapping[str, str] = {
    "name": "the first argument of `@app.task`; dotted words of ASCII",
    "bind": "the same",
    "queue": "the same; queues need no declaration",
    "priority": "higher goes first, from -32768 to 32767",
    "max_retries": "the same; `max_attempts=n+1` says it in runs. There is no endless retry",
    "autoretry_for": "`(Exception,)` by default: a failed run is tried again",
    "args": "JSON values; a tuple arrives as a list",
    "kwargs": "JSON values",
    "countdown": "the same",
    "eta": "an aware datetime; a naive one is refused",
    "expires": "seconds or an aware datetime; the job is cancelled with the reason `expired`",
    "task_id": "a UUID, which no other job may have",
    "soft_time_limit": "of `@app.task`, seconds: SoftTimeLimitExceeded at the next checkpoint. Refused in a call",
    "time_limit": "of `@app.task`, seconds: fails the attempt, whatever its thread does. Refused in a call",
    "exc": "of `self.retry`: gives the job its error code",
    "timeout": "of `get`: seconds; raises the builtin `TimeoutError`",
    "propagate": "of `get`: the same",
}
"""Celery's options that exist here, with what differs."""


def table() -> str:
    """Write what becomes of each of Celery's options as a Markdown table."""
    lines = ["| option | here | |", "| --- | --- | --- |"]
    rows = {name: ("refused", sentence) for name, sentence in REFUSED.items()}
    rows.update({name: (f"refused, but for `{value!r}`", REFUSED[name]) for name, value in SAME.items()})
    rows.update({name: ("accepted", sentence) for name, sentence in ACCEPTED.items()})
    lines.extend(f"| `{name}` | {verdict} | {sentence} |" for name, (verdict, sentence) in sorted(rows.items()))
    return "\n".join(lines)


def refuse(call: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise UnknownOption for the first option of `given` that `call` cannot honour."""
    for name, value in given.items():
        if name in SAME and value == SAME[name]:
            continue
        if name in REFUSED:
            raise UnknownOption(name, f"{value!r} is not supported by {call}: {REFUSED[name]}")
        raise UnknownOption(name, f"{call} has no such option; known are {', '.join(sorted(known))}")


NAME_RULE = (
    "words of ASCII letters, digits and underscores with dots between them, e.g. 'mpack.index', "
    f"at most {NAME_LENGTH_MAX} characters"
)


def is_name(name: object) -> bool:
    """Whether a task or a queue may have this name, see NAME_RULE."""
    return isinstance(name, str) and len(name) <= NAME_LENGTH_MAX and TASK_NAME.fullmatch(name) is not None


def check_name(name: str, what: str = "task name") -> str:
    """Return `name`, or raise ValueError: dotted words of ASCII, at most 200 characters."""
    if not is_name(name):
        raise ValueError(f"{what} {name!r}: write {NAME_RULE}")
    return name


def check_number(what: str, value: float, low: float, high: float, *, whole: bool = False) -> None:
    """Raise ValueError unless `value` is a number (an int when `whole`) with low ≤ value ≤ high."""
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{what} must be {kind} from {low} to {high}, not {value!r}")


def attempts_of(max_attempts: int | None, max_retries: int | None, default: int) -> int:
    """Number of runs in all; `max_retries=n` is Celery's `max_attempts=n+1`. ValueError for both."""
    if max_attempts is not None and max_retries is not None:
        raise ValueError("give max_attempts or max_retries, not both (max_retries=n means max_attempts=n+1)")
    if max_retries is not None:
        check_number("max_retries", max_retries, 0, ATTEMPTS_MAX - 1, whole=True)
        return max_retries + 1
    if max_attempts is not None:
        check_number("max_attempts", max_attempts, 1, ATTEMPTS_MAX, whole=True)
        return max_attempts
    return default
