"""What moves have in common: each touches its own job only, by any clock, from any lane, and rings when it is due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import psycopg
import pytest

from tasks import queue
from tasks.job import Claim
from tasks.operate import operations_of
from tasks.states import TERMINAL
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.rows import INDEX, PREBUILD, at, claim, claim_one, enqueue, enqueue_and_claim, status_of

Db = psycopg.Connection[Any]
Move = Callable[[Db, Claim, datetime], object]

RUN_ENDS: dict[str, Move] = {
    "finish": lambda db, held, now: queue.finish_job(db, held.ref, 1, now=now),
    "fail": lambda db, held, now: queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=None, now=now),
    "fail once": lambda db, held, now: queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=now),
    "fail, later": lambda db, held, now: queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[9], now=now),
    "release": lambda db, held, now: queue.release_job(db, held.ref, now=now),
    "postpone": lambda db, held, now: queue.release_job(db, held.ref, delay=9, postpone=True, now=now),
    "quarantine": lambda db, held, now: queue.quarantine_job(db, held.ref, code="X", detail="x", now=now),
    "cancel": lambda db, held, now: queue.cancel_job(db, held.job_id, reason="no", now=now),
    "set aside": lambda db, held, now: queue.set_aside_job(db, held.job_id, reason="no", now=now),
}
MOVES: dict[str, Move] = {
    **RUN_ENDS,
    "sweep": lambda db, held, _: queue.sweep_expired(db, only=held.job_id, now=at(1000)),
    "progress": lambda db, held, _: queue.save_progress(db, held.ref, 1),
    "heartbeat": lambda db, held, now: queue.extend_leases(db, [held.ref], now=now),
}


def rows_but(db: Db, job_id: Any) -> list[Any]:
    jobs = [job for job in queue.list_jobs(db, limit=1000) if job.job_id != job_id]
    return [(job, queue.attempts_of(db, job.job_id), operations_of(db, job.job_id)) for job in jobs]


def bystanders(db: Db) -> None:
    """A job in every status, with its attempts."""
    for end in RUN_ENDS.values():
        end(db, enqueue_and_claim(db), at(2))
        for waiting in queue.list_jobs(db, status="pending"):
            queue.cancel_job(db, waiting.job_id, reason="out of the way", now=at(2))
    enqueue_and_claim(db)
    enqueue(db, now=100)


@pytest.mark.parametrize("move", MOVES)
def test_a_move_of_one_job_touches_no_other(db: Db, move: str) -> None:
    bystanders(db)
    held = enqueue_and_claim(db, now=3)
    before = rows_but(db, held.job_id)
    MOVES[move](db, held, at(5))
    assert rows_but(db, held.job_id) == before
    check_invariants(db)


def test_a_retry_of_one_job_touches_no_other(db: Db) -> None:
    bystanders(db)
    (failed, *_) = queue.list_jobs(db, status="failed")
    before = rows_but(db, failed.job_id)
    queue.retry_job(db, failed.job_id, reason="again", now=at(5))
    assert rows_but(db, failed.job_id) == before
    check_invariants(db)


@pytest.mark.parametrize("move", RUN_ENDS)
def test_no_run_ends_before_it_began_whatever_the_clock_says(db: Db, move: str) -> None:
    held = enqueue_and_claim(db)
    RUN_ENDS[move](db, held, at(-100))
    job = queue.get_job(db, held.job_id)
    assert job.finished_at == (at(1) if job.status in TERMINAL else None)
    assert [attempt.ended_at for attempt in queue.attempts_of(db, held.job_id)] == [at(1)]


def _later(db: Db) -> Any:
    return enqueue(db, countdown=500.0, expires=50.0).job_id


def _unchecked(db: Db) -> Any:
    return enqueue(db, PREBUILD, scope="r", after_tasks=(INDEX,), expires=50.0).job_id


def _parked_on_a_job(db: Db) -> Any:
    enqueue_and_claim(db, INDEX, scope="r")
    waiting = _unchecked(db)
    assert claim(db, now=2) == []
    return waiting


def _parked_by_its_limit(db: Db) -> Any:
    enqueue_and_claim(db, limit_key="k", limit_max=1)
    waiting = enqueue(db, limit_key="k", limit_max=1, expires=50.0).job_id
    assert claim(db, now=2) == []
    return waiting


LANES = {"later": _later, "unchecked": _unchecked, "parked": _parked_on_a_job, "parked ": _parked_by_its_limit}
WAITING_ENDS: dict[str, Callable[[Db, Any], object]] = {
    "cancel": lambda db, job_id: queue.cancel_job(db, job_id, reason="no", now=at(60)),
    "set aside": lambda db, job_id: queue.set_aside_job(db, job_id, reason="no", now=at(60)),
    "expire": lambda db, _: sweep(db, now=at(60)),
}


@pytest.mark.parametrize("end", WAITING_ENDS)
@pytest.mark.parametrize("lane", LANES)
def test_a_waiting_job_comes_to_its_end_in_whatever_lane_it_is(db: Db, lane: str, end: str) -> None:
    job_id = LANES[lane](db)
    assert queue.get_job(db, job_id).lane == lane.strip()
    WAITING_ENDS[end](db, job_id)
    job = queue.get_job(db, job_id)
    assert job.status == ("quarantined" if end == "set aside" else "cancelled")
    assert (job.lane, job.parked_on, job.finished_at) == ("ready", None, at(60))
    check_invariants(db)


def test_the_oldest_lease_is_swept_first_and_the_longest_expired_job_cancelled_first(db: Db) -> None:
    young = enqueue_and_claim(db, lease_seconds=90.0)
    old = enqueue_and_claim(db, lease_seconds=30.0)
    queue.sweep_expired(db, limit=1, now=at(500))
    assert (status_of(db, old.job_id), status_of(db, young.job_id)) == ("pending", "running")
    late, early = enqueue(db, expires=90.0).job_id, enqueue(db, expires=30.0).job_id
    queue.expire_jobs(db, limit=1, now=at(500))
    assert (status_of(db, early), status_of(db, late)) == ("cancelled", "pending")


def test_a_retry_makes_a_job_due_at_once_and_lets_it_postpone_itself_once_more(db: Db) -> None:
    later = enqueue(db, countdown=1000.0).job_id
    queue.cancel_job(db, later, reason="no", now=at(1))
    queue.retry_job(db, later, reason="after all", now=at(5))
    assert queue.get_job(db, later).available_at == at(5)
    queue.finish_job(db, claim_one(db, now=5).ref, now=at(5))
    tired = enqueue_and_claim(db, now=6, postpones_max=0)
    assert queue.release_job(db, tired.ref, postpone=True, now=at(8)) == "failed"
    queue.retry_job(db, tired.job_id, reason="again", now=at(9))
    again = claim_one(db, now=9)
    assert queue.release_job(db, again.ref, postpone=True, now=at(10)) == "released"


@pytest.mark.parametrize(
    ("move", "rings"),
    [("fail once", True), ("release", True), ("retry", True), ("fail, later", False), ("postpone", False)],
)
def test_a_job_that_goes_back_rings_if_it_is_due(
    committed_db: Db, connect: Callable[[], Db], move: str, *, rings: bool
) -> None:
    held = enqueue_and_claim(committed_db)
    if move == "retry":
        queue.cancel_job(committed_db, held.job_id, reason="no", now=at(2))
    committed_db.commit()
    listener = connect()
    listener.autocommit = True
    listener.execute("LISTEN tasks")
    if move == "retry":
        queue.retry_job(committed_db, held.job_id, reason="again", now=at(3))
    else:
        RUN_ENDS[move](committed_db, held, at(3))
    committed_db.commit()
    committed_db.execute("SELECT pg_notify('tasks', 'that was all')")
    committed_db.commit()
    heard = [note.payload for note in listener.notifies(timeout=10, stop_after=2 if rings else 1)]
    assert heard == (["default", "that was all"] if rings else ["that was all"])
