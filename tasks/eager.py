"""Eager mode, for tests: `delay` runs the task at once, in the caller's thread and transaction. There is no job.

The arguments and the result pass through JSON as they would in the queue, and a failed run is repeated at once while
the budget lasts. Time, gates, dedup and priority mean nothing here: `tasks.testing.drain` runs those for real.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from tasks.context import Context, Request, running_in
from tasks.errors import JobCancelled, JobFailed, JobNotFound
from tasks.ids import new_job_id
from tasks.options import refuse
from tasks.payload import encode
from tasks.request import new_job_params
from tasks.result import REVOKED, AsyncResult
from tasks.verdict import Failed, Postponed, Quarantined, Verdict, verdict_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy.orm import Session

    from tasks.app import App
    from tasks.db import Conn
    from tasks.job import Job, NewJob
    from tasks.task import Task


class EagerResult(AsyncResult):
    """The result of a task that ran at once, in eager mode: there is no job."""

    def __init__(self, id: UUID, *, app: App, task: str, error: Exception | None, value: Any) -> None:  # noqa: A002
        super().__init__(id, app=app, task=task, outcome="inserted")
        self._error = error
        self._value = value

    @property
    def job(self) -> Job:
        """There is none. Raises JobNotFound."""
        raise JobNotFound(self.id)

    @property
    def state(self) -> str:
        """SUCCESS, FAILURE or REVOKED."""
        if self._error is None:
            return "SUCCESS"
        return "REVOKED" if isinstance(self._error, JobCancelled) else "FAILURE"

    status = state

    @property
    def result(self) -> Any:
        """What the task returned, or the error."""
        return self._value if self._error is None else self._error

    info = result

    @property
    def progress(self) -> None:
        """Nothing is kept of it."""

    def ready(self) -> bool:
        """Always."""
        return True

    def successful(self) -> bool:
        """Whether the task returned."""
        return self._error is None

    def get(self, timeout: float | None = None, *, propagate: bool = True, **options: Any) -> Any:
        """Return what the task returned, or raise what it raised; nothing is waited for."""
        del timeout
        refuse("get", options, ("propagate", "timeout"))
        if propagate and self._error is not None:
            raise self._error
        return self.result

    def revoke(self, *, reason: str = REVOKED, session: Conn | None = None, **options: Any) -> None:
        """There is no job to revoke. Raises JobNotFound."""
        del reason, session, options
        raise JobNotFound(self.id)


def run_now(
    task: Task[..., Any], new: NewJob, session: Conn | None, parents: Sequence[AsyncResult] = ()
) -> EagerResult:
    """Run the job that `new` asks for. Raises what an enqueue of it would raise."""
    params = new_job_params(new)
    job_id = new.job_id or new_job_id()
    if new.on_parent_failure != "run" and not all(parent.successful() for parent in parents):
        return _ended(task, job_id, JobCancelled(job_id, "parent"), None)
    payload = json.loads(params["payload"])
    args = [*_passed(new, parents), *payload["args"]]
    charged = postponed = 0
    while True:
        request = Request(
            id=job_id,
            task=task.name,
            args=args,
            kwargs=payload["kwargs"],
            attempt=charged + postponed + 1,
            retries=charged,
            max_attempts=new.attempts_max,
            scope=new.scope,
            queue=new.queue,
        )
        try:
            return _ended(task, job_id, None, _call(task, request, session))
        except Exception as raised:
            verdict = verdict_of(raised, task, new.attempts_max)
            if isinstance(verdict, Postponed):
                postponed += 1
                again = postponed <= new.postpones_max
            else:
                charged += 1
                again = isinstance(verdict, Failed) and verdict.retry_delays is not None and charged < new.attempts_max
            if again:
                continue
            if task.app.eager_propagates:
                raise
            return _ended(task, job_id, _failure(job_id, verdict, raised), None)


def _call(task: Task[..., Any], request: Request, session: Conn | None) -> Any:
    if not task.options.transactional:
        with running_in(None):
            value = task.run(Context(request), request.args, request.kwargs)
    else:
        own = cast("Session", session if session is not None else task.app.current_session())
        # What a failed run has written goes, the caller's own work stays.
        with own.begin_nested(), running_in(own):
            value = task.run(Context(request, session=own), request.args, request.kwargs)
    return json.loads(encode("result", value))


def _passed(new: NewJob, parents: Sequence[AsyncResult]) -> list[Any]:
    results = [parent.result if parent.successful() else None for parent in parents]
    ways: dict[str, list[Any]] = {"none": [], "first": results[:1], "list": [results]}
    return ways[new.pass_results]


def _failure(job_id: UUID, verdict: Verdict, raised: Exception) -> JobFailed:
    if isinstance(verdict, Failed | Quarantined):
        failure = JobFailed(job_id, verdict.code, verdict.detail)
    else:
        failure = JobFailed(job_id, "POSTPONED_TOO_OFTEN", str(raised))
    failure.__cause__ = raised
    return failure


def _ended(task: Task[..., Any], job_id: UUID, error: Exception | None, value: Any) -> EagerResult:
    return EagerResult(job_id, app=task.app, task=task.name, error=error, value=value)
