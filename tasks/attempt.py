"""One attempt of one job: call the function. What is to be written of it is `tasks.settle`'s."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tasks import queue
from tasks.context import Context, Request, running_in
from tasks.holding import REFUSED, Held
from tasks.periodic import nominal_time
from tasks.verdict import Committed, Failed, Refused, Succeeded, Verdict, describe, verdict_of

if TYPE_CHECKING:
    from tasks.app import App
    from tasks.task import Task

log = logging.getLogger("tasks.worker")


@dataclass(slots=True)
class Ended:
    """An attempt whose function has ended, until the database has said yes to its verdict.

    `unanswered`: the verdict was sent before and no answer came; it may be written already.
    """

    held: Held
    verdict: Verdict
    error: BaseException | None
    run_seconds: float
    at: float = field(default_factory=time.monotonic)
    unanswered: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to write: a transactional task writes its own end."""
        return isinstance(self.verdict, Committed | Refused)


class _Session(Protocol):
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Attempts:
    """Runs attempts for one worker. Thread-safe; holds no state of any attempt."""

    def __init__(self, app: App, worker_id: str) -> None:
        self._app = app
        self._worker_id = worker_id

    def run(self, held: Held) -> Ended:
        """Call the task. Raises nothing that the task raises."""
        task = self._app[held.claim.task]
        started = time.monotonic()
        held.begin(task.options.soft_time_limit, task.options.time_limit)
        verdict, error = self._call(task, held)
        held.settling = True
        now = time.monotonic()
        return Ended(held, verdict, error, now - started, now)

    def _call(self, task: Task[..., Any], held: Held) -> tuple[Verdict, BaseException | None]:
        try:
            with self._app.around():
                if task.options.transactional:
                    verdict = self._call_in_transaction(task, held)
                else:
                    with running_in(None):
                        verdict = Succeeded(self._invoke(task, held, None))
            return verdict, None
        # SystemExit and KeyboardInterrupt too: what a task raises ends its attempt, never the worker.
        except BaseException as error:
            verdict = verdict_of(error, task, held.claim.attempts_max)
            if isinstance(verdict, Failed):
                log.warning("job_id=%s task=%s raised", held.claim.job_id, task.name, exc_info=error)
            return verdict, error

    def _invoke(self, task: Task[..., Any], held: Held, session: Any) -> Any:
        claim = held.claim
        args, kwargs = [*held.passed(), *claim.payload["args"]], claim.payload["kwargs"]
        if not task.options.bind:
            return task.function(*args, **kwargs)
        request = Request(
            id=claim.job_id,
            task=claim.task,
            args=args,
            kwargs=kwargs,
            attempt=claim.attempt_number,
            retries=claim.attempt_count - 1,
            max_attempts=claim.attempts_max,
            scope=claim.scope,
            queue=claim.queue,
            worker=self._worker_id,
            nominal_at=nominal_time(claim.dedup_key),
        )
        return task.run(Context(request, holding=held, session=session), args, kwargs)

    def _call_in_transaction(self, task: Task[..., Any], held: Held) -> Verdict:
        session = self._app.new_session()
        try:
            with running_in(session):
                result = self._invoke(task, held, session)
            # Own rows first: the job's row is then locked for no longer than the commit takes.
            session.flush()
            held.settling = True
            try:
                queue.finish_job(session, held.ref, result, now=held.now)
            except REFUSED as refusal:
                return Refused(describe(refusal))
            session.commit()
            return Committed()
        finally:
            _end(session)


def _end(session: _Session) -> None:
    """Roll back what is not committed and give the connection back, also when it is broken."""
    try:
        session.rollback()
    except Exception:
        log.warning("rollback failed, the server ends the transaction with its connection", exc_info=True)
    finally:
        session.close()
