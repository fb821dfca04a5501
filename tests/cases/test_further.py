"""Cancelling, late commits, old snapshots, deploys."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import IsolationLevel

import tasks
from tasks import queue
from tasks.operate import cancel_job, operations_of, retry_job
from tasks.testing import check_invariants, drain
from tasks.why import why
from tests.tasks.racing import blocked
from tests.tasks.rows import at, claim, claim_one, enqueue, enqueue_and_claim, new, status_of
from tests.tasks.running import WAIT_SECONDS, Stop, endings, job_row, later, make_app, wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.integration

Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def _oracle(committed_db: Db) -> Iterator[None]:
    yield
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.mark.parametrize("end", ["returns", "raises", "asks again", "postpones"])
def test_a_cancelled_run_ends_cancelled_whatever_its_task_does_afterwards(
    database_url: str, committed_db: Db, connect: Callable[[], Db], end: str
) -> None:
    """Case 34: from another connection, no listener; the task is told at the next beat, nothing of it is kept."""
    app, stop, told = make_app(database_url, committed_db), Stop(), []

    @app.task("work", bind=True, retry=tasks.Fixed(0))
    def work(self: tasks.Context) -> str:
        stop()
        told.append(self.cancelled())
        match end:
            case "raises":
                raise OSError
            case "asks again":
                self.retry(countdown=0)
            case "postpones":
                raise tasks.Postpone(0)
        return "late"

    job = work.delay()
    committed_db.commit()
    with tasks.Worker(app, concurrency=1) as worker:
        worker.start_slots()
        worker.tick()
        assert stop.reached.wait(WAIT_SECONDS)
        other = connect()
        cancel_job(other, job.id, reason="not wanted any more")
        other.commit()
        assert worker.beat() == 1
        stop.go.set()
        wait_until_idle(worker)
        assert worker.once(now=later()) == [], "a cancelled job is never tried again"
    assert told == [True]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["cancel_reason"], row["result"]) == ("cancelled", "not wanted any more", None)
    assert endings(committed_db, job.id) == ["CANCELLED"]
    assert [done.action for done in operations_of(committed_db, job.id)] == ["cancel"]


def test_a_waiting_job_that_is_cancelled_never_runs_and_a_finished_one_stays_finished(committed_db: Db) -> None:
    """Case 34: before the claim, and after the final write."""
    waiting, done = enqueue(committed_db).job_id, enqueue_and_claim(committed_db, "mpack.index")
    cancel_job(committed_db, waiting, reason="no", now=at(2))
    queue.finish_job(committed_db, done.ref, 1, now=at(2))
    with pytest.raises(tasks.JobTerminal, match="succeeded"):
        cancel_job(committed_db, done.job_id, reason="too late", now=at(3))
    assert claim(committed_db, now=1000) == []
    assert [status_of(committed_db, job_id) for job_id in (waiting, done.job_id)] == ["cancelled", "succeeded"]
    committed_db.commit()


@pytest.mark.parametrize("first", ["cancel", "finish"])
@pytest.mark.parametrize("way", ["commits", "rolls back"])
def test_of_a_cancel_and_a_finish_at_one_moment_the_first_to_lock_the_job_decides(
    committed_db: Db, connect: Callable[[], Db], first: str, way: str
) -> None:
    """Case 34: the other waits, and then is refused, or goes on where the first has given up."""
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    moves: dict[str, Callable[[Db], None]] = {
        "cancel": lambda conn: cancel_job(conn, held.job_id, reason="no", now=at(3)),
        "finish": lambda conn: queue.finish_job(conn, held.ref, now=at(3)),
    }
    ends = {"cancel": "cancelled", "finish": "succeeded"}
    second = "finish" if first == "cancel" else "cancel"
    one, two = connect(), connect()
    moves[first](one)
    with blocked(connect(), two, lambda: moves[second](two)) as waiting:
        one.commit() if way == "commits" else one.rollback()
    if way == "commits":
        with pytest.raises(tasks.JobTerminal, match=ends[first]):
            waiting.result()
    else:
        waiting.result()
    two.commit()
    assert status_of(committed_db, held.job_id) == ends[first if way == "commits" else second]


def test_a_job_that_was_committed_late_is_next_and_a_gap_in_the_sequence_hides_nothing(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """Case 37: one transaction takes an early number and commits last, another takes one and rolls back."""
    late, gone = connect(), connect()
    late_id = enqueue(late, now=0).job_id
    enqueue(gone, now=0)
    first = enqueue(committed_db, now=1).job_id
    committed_db.commit()
    assert claim_one(committed_db, now=2).job_id == first
    gone.rollback()
    newer = enqueue(committed_db, now=3).job_id
    committed_db.commit()
    late.commit()
    assert [held.job_id for held in claim(committed_db, now=4, limit=10)] == [late_id, newer]
    committed_db.commit()


ROUNDS = 40
BATCH = 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_claims_stay_quick_while_an_old_snapshot_is_held_and_the_backlog_drains_after(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """Case 39: 4,000 jobs come and go while nothing of them can be vacuumed."""
    before = _rounds(committed_db, 5)
    old = connect()
    old.isolation_level = IsolationLevel.REPEATABLE_READ
    enqueue(old, "never.seen")
    held = _rounds(committed_db, ROUNDS)
    half = statistics.median(held[ROUNDS // 2 :])
    assert half <= 3 * statistics.median(before) + 0.02, f"{half:.3f} s a batch, {before} before"
    old.rollback()
    queue.enqueue_jobs(committed_db, [new() for _ in range(10 * BATCH)], now=at(0))
    committed_db.commit()
    drained = 0
    while claims := claim(committed_db, now=10, limit=BATCH):
        queue.finish_jobs(committed_db, [(one.ref, None) for one in claims], now=at(11))
        committed_db.commit()
        drained += len(claims)
    assert drained == 10 * BATCH


def _rounds(db: Db, count: int) -> list[float]:
    """Seconds of each claim of a hundred jobs, which are finished then."""
    seconds = []
    for _ in range(count):
        queue.enqueue_jobs(db, [new() for _ in range(BATCH)], now=at(0))
        db.commit()
        began = time.perf_counter()
        claims = claim(db, now=1, limit=BATCH)
        db.commit()
        seconds.append(time.perf_counter() - began)
        queue.finish_jobs(db, [(one.ref, None) for one in claims], now=at(2))
        db.commit()
    return seconds


def test_a_job_of_an_unknown_task_waits_visibly_until_a_worker_knows_it_or_a_person_drops_it(
    database_url: str, committed_db: Db
) -> None:
    """Case 40: half-way through a deploy."""
    old, newer = make_app(database_url, committed_db), make_app(database_url, committed_db)
    old.task("known")(lambda: None)
    newer.task("known")(lambda: None)
    newer.task("brand.new")(lambda: None)
    kept, dropped = newer["brand.new"].delay(), newer["brand.new"].delay()
    committed_db.commit()
    with tasks.Worker(old) as worker:
        worker.register()
        assert worker.once() == []
        assert queue.stats(committed_db).unknown == 2
        assert "TASK_UNKNOWN" in [reason.rule for reason in why(committed_db, kept.id)]
        cancel_job(committed_db, dropped.id, reason="deployed by mistake")
        committed_db.commit()
    assert [settled.job_id for settled in drain(newer)] == [kept.id]


def test_arguments_of_an_old_signature_fail_within_the_budget_and_can_be_dropped_or_tried_again(
    database_url: str, committed_db: Db
) -> None:
    """Case 40: the code changed between enqueue and run, and changes back."""
    old, newer = make_app(database_url, committed_db), make_app(database_url, committed_db)
    old.task("index")(lambda pack: pack)
    newer.task("index", retry=tasks.Fixed(0))(lambda key: key)
    job = old["index"].apply_async(kwargs={"pack": "p"}, max_attempts=2)
    committed_db.commit()
    assert [settled.outcome for settled in drain(newer)] == ["retry", "failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == "TYPE_ERROR"
    retry_job(committed_db, job.id, reason="rolled back to the old code")
    committed_db.commit()
    assert [settled.outcome for settled in drain(old)] == ["succeeded"]
