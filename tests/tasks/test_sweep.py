"""T5a, T5b, T8: the sweep takes back claims whose lease is over, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import queue, workers
from tasks.errors import ClaimLost
from tasks.job import SweepCounts, WorkerInfo
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.rows import at, claim, claim_one, endings, enqueue, enqueue_and_claim, everything, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

Db = psycopg.Connection[Any]


def test_a_sweep_inside_a_transaction_leaves_its_settings_alone(db: Db) -> None:
    db.execute("SELECT set_config('lock_timeout', '3s', true)")
    sweep(db, now=at(0))
    shown = db.execute("SELECT current_setting('lock_timeout'), current_setting('statement_timeout')").fetchone()
    assert shown == ("3s", "0")


def test_an_expired_claim_goes_back_and_is_due_now(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    assert queue.sweep_expired(db, now=at(61)) == SweepCounts(requeued=1)
    job, (attempt,) = queue.get_job(db, held.job_id), queue.attempts_of(db, held.job_id)
    assert (job.status, job.available_at, job.attempt_count) == ("pending", at(61), 1)
    assert (attempt.result, attempt.ended_at, attempt.error) == ("ABANDONED", at(61), None)
    assert claim_one(db, now=61).attempt_number == 2


def test_a_lease_is_good_until_its_last_moment(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    assert queue.sweep_expired(db, now=at(60.999)).total == 0
    queue.extend_leases(db, [held.ref], now=at(60))
    assert queue.sweep_expired(db, now=at(61)).total == 0
    assert queue.sweep_expired(db, now=at(120)).total == 1


def test_a_job_that_was_abandoned_once_too_often_fails(db: Db) -> None:
    """Case 6: the crash counts."""
    job_id = enqueue(db, attempts_max=3, lease_seconds=60.0).job_id
    for run in range(3):
        claim_one(db, now=100 * run)
        counts = queue.sweep_expired(db, now=at(100 * run + 60))
    assert counts == SweepCounts(failed=1)
    assert endings(db, job_id) == ["ABANDONED"] * 3
    assert claim(db, now=1000) == []
    assert queue.get_job(db, job_id).finished_at == at(260)


@pytest.mark.parametrize("budget", [1, 2])
def test_the_sweep_neither_sets_nor_clears_the_last_error(db: Db, budget: int) -> None:
    held = enqueue_and_claim(db, attempts_max=budget + 1)
    queue.fail_job(db, held.ref, code="BOOM", detail="it broke", retry_delays=[0], now=at(2))
    claim_one(db, now=3)
    queue.sweep_expired(db, now=at(100))
    job = queue.get_job(db, held.job_id)
    assert (job.last_error_code, job.last_error, job.last_error_at) == ("BOOM", "it broke", at(2))


def test_success_is_final_against_the_sweep(db: Db) -> None:
    """Case 14."""
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, now=at(2))
    before = everything(db)
    assert sweep(db, now=at(100_000)) == SweepCounts()
    assert everything(db) == before


def test_an_expired_job_whose_key_is_taken_is_superseded(db: Db) -> None:
    held = enqueue_and_claim(db, dedup_key="k")
    heir = enqueue(db, dedup_key="k", now=2).job_id
    assert queue.sweep_expired(db, now=at(100)) == SweepCounts(superseded=1)
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.cancel_reason, job.superseded_by) == ("cancelled", "superseded", heir)
    assert endings(db, held.job_id) == ["ABANDONED"]


def test_of_two_expired_jobs_with_one_key_the_newest_goes_back(db: Db) -> None:
    jobs = [enqueue_and_claim(db, dedup_key="k", now=n).job_id for n in range(3)]
    assert queue.sweep_expired(db, now=at(100)) == SweepCounts(requeued=1, superseded=2)
    assert [status_of(db, job_id) for job_id in jobs] == ["cancelled", "cancelled", "pending"]
    assert [queue.get_job(db, job_id).superseded_by for job_id in jobs] == [jobs[2], jobs[2], None]


def test_a_job_with_no_budget_left_is_nobodys_heir(db: Db) -> None:
    old = enqueue_and_claim(db, dedup_key="k").job_id
    spent = enqueue_and_claim(db, dedup_key="k", attempts_max=1, now=1).job_id
    assert queue.sweep_expired(db, now=at(100)) == SweepCounts(requeued=1, failed=1)
    assert [status_of(db, job_id) for job_id in (old, spent)] == ["pending", "failed"]


def test_one_row_that_collides_does_not_stop_the_others(db: Db) -> None:
    """Case 4: 500 expired jobs, the key of number 137 is taken."""
    for n in range(500):
        enqueue(db, dedup_key=f"k{n}")
    claimed = claim(db, limit=500)
    heir = enqueue(db, dedup_key="k137", now=2).job_id
    assert sweep(db, now=at(100)) == SweepCounts(requeued=499, superseded=1)
    assert queue.get_job(db, claimed[137].job_id).superseded_by == heir
    assert sweep(db, now=at(100)) == SweepCounts()
    check_invariants(db)


def test_pages_follow_until_one_is_not_full_oldest_lease_first(db: Db) -> None:
    jobs = [enqueue_and_claim(db, now=n, lease_seconds=10.0).job_id for n in range(5)]
    assert queue.sweep_expired(db, limit=2, now=at(100)).requeued == 2
    assert [status_of(db, job_id) for job_id in jobs] == ["pending"] * 2 + ["running"] * 3
    assert sweep(db, page_size=2, now=at(100)) == SweepCounts(requeued=3)


def test_a_locked_row_is_left_for_the_next_sweep(committed_db: Db, connect: Callable[[], Db]) -> None:
    busy, idle = enqueue_and_claim(committed_db), enqueue_and_claim(committed_db)
    committed_db.commit()
    task, sweeper = connect(), connect()
    queue.save_progress(task, busy.ref, {"done": 1})
    assert sweep(sweeper, now=at(100)) == SweepCounts(requeued=1)
    task.commit()
    assert status_of(committed_db, idle.job_id) == "pending"
    assert sweep(sweeper, now=at(100)) == SweepCounts(requeued=1)


def test_each_page_is_committed(committed_db: Db, connect: Callable[[], Db]) -> None:
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    sweeper = connect()
    sweep(sweeper, now=at(100))
    sweeper.rollback()
    assert status_of(committed_db, held.job_id) == "pending"


def test_the_sweep_wakes_the_workers_of_the_queue(committed_db: Db, connect: Callable[[], Db]) -> None:
    enqueue_and_claim(committed_db)
    committed_db.commit()
    listener = connect()
    listener.execute("LISTEN tasks")
    listener.commit()
    sweep(committed_db, now=at(100))
    assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == ["default"]


def test_a_worker_of_the_same_name_owns_nothing_of_the_old_one(db: Db) -> None:
    """Case 9: ownership is per token."""
    old = enqueue_and_claim(db)
    queue.sweep_expired(db, now=at(100))
    again = claim_one(db, now=101, worker="worker-1")
    with pytest.raises(ClaimLost):
        queue.finish_job(db, old.ref, now=at(102))
    queue.finish_job(db, again.ref, now=at(103))
    assert endings(db, old.job_id) == ["ABANDONED", "SUCCEEDED"]


def test_workers_that_died_without_a_word_are_forgotten_after_a_day(db: Db) -> None:
    for name, now in (("old", 0), ("new", 50_000)):
        workers.register_worker(db, WorkerInfo(name, "host", 1, ["default"], ["gc"]), now=at(now))
    sweep(db, now=at(86_401))
    assert [worker.worker_id for worker in workers.list_workers(db)] == ["new"]


def test_registering_again_moves_last_seen_only(db: Db) -> None:
    info = WorkerInfo("w", "host", 1, ["default"], ["gc"], "0.1")
    workers.register_worker(db, info, now=at(0))
    workers.register_worker(db, info, now=at(9))
    (row,) = workers.list_workers(db)
    assert (row.started_at, row.last_seen, row.tasks) == (at(0), at(9), ["gc"])
    workers.forget_worker(db, "w")
    assert workers.list_workers(db) == []


def test_a_worker_that_registers_anew_shows_what_it_is_now(db: Db) -> None:
    workers.register_worker(db, WorkerInfo("w", "old", 1, ["default"], ["gc"], "0.1"), now=at(0))
    workers.register_worker(db, WorkerInfo("w", "new", 2, ["slow"], ["mail"], "0.2"), now=at(9))
    (row,) = workers.list_workers(db)
    assert (row.host, row.pid, row.queues, row.tasks, row.version) == ("new", 2, ["slow"], ["mail"], "0.2")


def test_a_silent_workers_tasks_are_unknown_in_the_figures(db: Db) -> None:
    workers.register_worker(db, WorkerInfo("w", "host", 1, ["default"], ["gc"]), now=at(0))
    enqueue(db)
    assert [queue.stats(db, now=at(now)).unknown for now in (59, 60)] == [0, 1]


def test_the_figures_show_what_waits_and_should_not(db: Db) -> None:
    workers.register_worker(db, WorkerInfo("w", "host", 1, ["default"], ["gc"]), now=at(100))
    enqueue_and_claim(db, lease_seconds=60.0)
    enqueue(db, now=10)
    enqueue(db, "unheard.of", countdown=1000.0)
    figures = queue.stats(db, now=at(100))
    assert figures.counts == {"running": 1, "pending": 2}
    assert (figures.due, figures.unknown) == (1, 1)
    assert (figures.oldest_due_seconds, figures.oldest_expired_lease_seconds) == (90, 39)
