"""How attempts end in the database: a batch of them in one transaction, or one by one until it has answered."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks import queue
from tasks.errors import JobTerminal, PayloadError
from tasks.holding import REFUSED, Held
from tasks.payload import encode
from tasks.pool import DATABASE_AWAY, Pool
from tasks.states import Ending
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
    from collections.abc import Sequence
    from uuid import UUID

    from tasks.app import App
    from tasks.attempt import Ended
    from tasks.db import Conn
    from tasks.job import Claim, Ref

log = logging.getLogger("tasks.worker")

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 5.0


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


class Settler:
    """Writes verdicts for one worker. Thread-safe; holds no state of any attempt."""

    def __init__(self, app: App, pool: Pool, hurry: threading.Event) -> None:
        self._app = app
        self._pool = pool
        self._hurry = hurry

    def write_batch(self, conn: Conn, batch: Sequence[Ended]) -> list[str | None]:
        """Write the verdicts in the transaction of `conn`: the successes in one statement, the failures in one.

        Returns the outcome of each, true once the caller has committed. None: nothing was written, settle it
        alone: its claim is lost, or its result cannot be stored. Raises what the database raises: then none
        of them is written.
        """
        results: list[tuple[Ref, Any]] = []
        failures: list[queue.Failure] = []
        outcomes: dict[UUID, str] = {}
        for ended in batch:
            held, verdict = ended.held, ended.verdict
            if isinstance(verdict, Succeeded):
                results.append((held.ref, verdict.result))
                continue
            try:
                if isinstance(verdict, Failed):
                    failures.append(_failure(held, verdict))
                else:
                    outcomes[held.token] = write(conn, held, verdict)
            except (*REFUSED, PayloadError):
                continue
        try:
            written = queue.finish_jobs(conn, results)
        except PayloadError:
            # Raised before any statement: those that can be stored need not wait for the others.
            written = queue.finish_jobs(conn, [(ref, result) for ref, result in results if _can_be_stored(result)])
        outcomes |= dict.fromkeys(written, "succeeded")
        outcomes |= queue.fail_jobs(conn, failures)
        return [outcomes.get(ended.held.token) for ended in batch]

    def settle(self, ended: Ended) -> str:
        """Write one verdict until the database has answered, for as long as the lease may hold."""
        held, verdict = ended.held, ended.verdict
        pause = PAUSE_SECONDS
        replaced = False
        while True:
            try:
                return self._write_alone(held, verdict)
            except REFUSED as refusal:
                if ended.unanswered and self._was_written(held, refusal):
                    return "succeeded"
                held.lost = True
                log.warning("job_id=%s claim lost, nothing written: %s", held.claim.job_id, refusal)
                return "lost"
            except DATABASE_AWAY as away:
                ended.unanswered = True
                if held.lease_is_over or self._hurry.is_set():
                    log.error(  # noqa: TRY400  # a trace of the connection adds nothing
                        "job_id=%s given up, its lease must run out: %s", held.claim.job_id, describe(away)
                    )
                    return "given up"
                log.warning("job_id=%s waits for the database to settle: %s", held.claim.job_id, describe(away))
                self._hurry.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311  # jitter, no secret
                pause = min(pause * 2, PAUSE_SECONDS_MAX)
            except Exception as error:
                if replaced:
                    log.exception("job_id=%s cannot be settled, its lease must run out", held.claim.job_id)
                    return "given up"
                # A result or a code that cannot be stored is the task's fault: it fails the attempt.
                log.warning("job_id=%s verdict not stored", held.claim.job_id, exc_info=error)
                verdict = verdict_of(error, self._app[held.claim.task], held.claim.attempts_max)
                replaced = True

    def _was_written(self, held: Held, refusal: Exception) -> bool:
        """Whether a commit whose answer was lost has happened all the same: the refusal is our own success.

        The job's status alone does not tell: another attempt may have succeeded since.
        """
        if not isinstance(refusal, JobTerminal):
            return False
        try:
            with self._pool.transaction() as conn:
                attempts = queue.attempts_of(conn, held.claim.job_id)
        except DATABASE_AWAY:
            return False  # said of the log only: the database knows what became of the job
        ours = [attempt.result for attempt in attempts if attempt.claim_token == held.claim.claim_token]
        return ours == [Ending.SUCCEEDED]

    def _write_alone(self, held: Held, verdict: Verdict) -> str:
        if isinstance(verdict, Committed):
            return "succeeded"
        if isinstance(verdict, Refused):
            held.lost = True
            log.warning("job_id=%s claim lost, all of it rolled back: %s", held.claim.job_id, verdict.reason)
            return "lost"
        with self._pool.transaction() as conn:
            return write(conn, held, verdict)


def write(conn: Conn, held: Held, verdict: Verdict) -> str:
    """Write one verdict in the transaction of `conn`; return its outcome. Raises ClaimLost and its kind."""
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
                conn, held.ref, code=code, detail=detail, retry_delays=delays, spread=spread, now=held.now
            )
        case Committed() | Refused():
            raise ValueError("a transactional task has written its own end")


def _failure(held: Held, verdict: Failed) -> queue.Failure:
    return queue.Failure(held.ref, verdict.code, verdict.detail, verdict.retry_delays, verdict.spread)


def _can_be_stored(result: object) -> bool:
    try:
        encode("result", result)
    except PayloadError:
        return False
    return True


ENDED = (
    "job_id=%(job_id)s attempt=%(attempt)d task=%(task)s queue=%(queue)s"
    " wait_seconds=%(wait_seconds).3f run_seconds=%(run_seconds).3f outcome=%(outcome)s"
)
FAILED = f"{ENDED} code=%(code)s"


def log_attempt(ended: Ended, outcome: str) -> Settled:
    """Say in one line of the log how an attempt ended."""
    claim, verdict = ended.held.claim, ended.verdict
    if log.isEnabledFor(logging.INFO):
        fields = {
            "job_id": claim.job_id,
            "attempt": claim.attempt_number,
            "task": claim.task,
            "queue": claim.queue,
            "wait_seconds": _waited(claim),
            "run_seconds": ended.run_seconds,
            "outcome": outcome,
        }
        if isinstance(verdict, Failed | Quarantined):
            log.info(FAILED, {**fields, "code": verdict.code})
        else:
            log.info(ENDED, fields)
    return Settled(claim.job_id, claim.task, claim.attempt_number, outcome, ended.error)


def _waited(claim: Claim) -> float:
    """Seconds since the job was due, as the database's clock has it."""
    return max(0.0, (claim.claimed_at - claim.available_at).total_seconds())
