"""One attempt of one job: call the function, settle with the database, say so in one line of the log."""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tasks import queue
from tasks.context import Context, Request, running_in
from tasks.errors import JobTerminal
from tasks.holding import REFUSED, Held
from tasks.pool import DATABASE_AWAY, Pool
from tasks.states import Status
from tasks.verdict import (
    Committed,
    Failed,
    Postponed,
    Quarantined,
    Refused,
    Succeeded,
    Verdict,
    describe,
    verdict_of,
)

if TYPE_CHECKING:
    import threading
    from uuid import UUID

    from tasks.app import App
    from tasks.task import Task

log = logging.getLogger("tasks.worker")

SETTLE_PAUSE_SECONDS = 0.1
SETTLE_PAUSE_SECONDS_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Settled:
    """An attempt that has ended on this side.

    `outcome`: succeeded, retry, failed, superseded, released, quarantined; or `lost` when the database
    refused it, `given up` when the database stayed away for longer than the lease (the sweep takes the job
    back then).
    """

    job_id: UUID
    task: str
    attempt: int
    outcome: str
    error: BaseException | None = None


class _Ended(Protocol):
    def rollback(self) -> None: ...
    def close(self) -> None: ...


class Attempts:
    """Runs attempts for one worker. Thread-safe; holds no state of any attempt."""

    def __init__(self, app: App, pool: Pool, worker_id: str, hurry: threading.Event) -> None:
        self._app = app
        self._pool = pool
        self._worker_id = worker_id
        self._hurry = hurry

    def run(self, held: Held) -> Settled:
        """Call the task and settle. Raises nothing that the task or the database raises."""
        claim, task = held.claim, self._app[held.claim.task]
        started = time.monotonic()
        verdict, error = self._call(task, held)
        ran = time.monotonic() - started
        held.settling = True
        outcome = self._settle(held, verdict)
        line: dict[str, object] = {
            "job_id": claim.job_id,
            "attempt": claim.attempt_number,
            "task": claim.task,
            "queue": claim.queue,
            "wait_seconds": round(_waited(held), 3),
            "run_seconds": round(ran, 3),
            "outcome": outcome,
        }
        if isinstance(verdict, Failed | Quarantined):
            line["code"] = verdict.code
        log.info(" ".join(f"{name}={value}" for name, value in line.items()), extra={"fields": line})
        return Settled(claim.job_id, claim.task, claim.attempt_number, outcome, error)

    def _call(self, task: Task[..., Any], held: Held) -> tuple[Verdict, BaseException | None]:
        try:
            if task.options.transactional:
                return self._call_in_transaction(task, held), None
            with running_in(None):
                return Succeeded(self._invoke(task, held, None)), None
        # SystemExit and KeyboardInterrupt too: what a task raises ends its attempt, never the worker.
        except BaseException as error:
            verdict = verdict_of(error, task, held.claim.attempts_max)
            if isinstance(verdict, Failed):
                log.warning("job_id=%s task=%s raised", held.claim.job_id, task.name, exc_info=error)
            return verdict, error

    def _invoke(self, task: Task[..., Any], held: Held, session: Any) -> Any:
        claim = held.claim
        args, kwargs = claim.payload["args"], claim.payload["kwargs"]
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

    def _settle(self, held: Held, verdict: Verdict) -> str:
        """Write the verdict until the database has answered, for as long as the lease may hold."""
        pause = SETTLE_PAUSE_SECONDS
        unanswered = replaced = False
        while True:
            try:
                return self._write(held, verdict)
            except REFUSED as refusal:
                # A commit whose answer was lost has happened all the same: the refusal is our own success.
                if unanswered and isinstance(verdict, Succeeded) and _is_success(refusal):
                    return "succeeded"
                held.lost = True
                log.warning("job_id=%s claim lost, nothing written: %s", held.claim.job_id, refusal)
                return "lost"
            except DATABASE_AWAY as away:
                unanswered = True
                if held.lease_is_over or self._hurry.is_set():
                    log.error(  # noqa: TRY400  # a trace of the connection adds nothing
                        "job_id=%s given up, its lease must run out: %s", held.claim.job_id, describe(away)
                    )
                    return "given up"
                log.warning("job_id=%s waits for the database to settle: %s", held.claim.job_id, describe(away))
                self._hurry.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret
                pause = min(pause * 2, SETTLE_PAUSE_SECONDS_MAX)
            except Exception as error:
                if replaced:
                    log.exception("job_id=%s cannot be settled, its lease must run out", held.claim.job_id)
                    return "given up"
                # A result or a code that cannot be stored is the task's fault: it fails the attempt.
                log.warning("job_id=%s verdict not stored", held.claim.job_id, exc_info=error)
                verdict = verdict_of(error, self._app[held.claim.task], held.claim.attempts_max)
                replaced = True

    def _write(self, held: Held, verdict: Verdict) -> str:
        if isinstance(verdict, Committed):
            return "succeeded"
        if isinstance(verdict, Refused):
            held.lost = True
            log.warning("job_id=%s claim lost, all of it rolled back: %s", held.claim.job_id, verdict.reason)
            return "lost"
        with self._pool.transaction() as conn:
            match verdict:
                case Succeeded(result):
                    queue.finish_job(conn, held.ref, result, now=held.now)
                    return "succeeded"
                case Postponed(seconds):
                    return queue.release_job(conn, held.ref, delay=seconds, postpone=True, now=held.now)
                case Quarantined(code, detail):
                    queue.quarantine_job(conn, held.ref, code=code, detail=detail, now=held.now)
                    return "quarantined"
                case Failed(code, detail, delays, spread):
                    return queue.fail_job(
                        conn,
                        held.ref,
                        code=code,
                        detail=detail,
                        retry_delays=delays,
                        spread=spread,
                        now=held.now,
                    )


def _end(session: _Ended) -> None:
    """Roll back what is not committed and give the connection back, also when it is broken."""
    try:
        session.rollback()
    except Exception:
        log.warning("rollback failed, the server ends the transaction with its connection", exc_info=True)
    finally:
        session.close()


def _is_success(refusal: Exception) -> bool:
    return isinstance(refusal, JobTerminal) and refusal.status == Status.SUCCEEDED


def _waited(held: Held) -> float:
    """Seconds since the job was due, as the database's clock has it."""
    return max(0.0, (held.claim.claimed_at - held.claim.available_at).total_seconds())
