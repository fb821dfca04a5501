"""Races, with real connections and no sleeps: who waits for whom is read from Postgres itself."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import IsolationLevel

from tasks import queue
from tasks.errors import ClaimLost, JobTerminal
from tasks.job import SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.racing import WAIT_SECONDS, Db, blocked
from tests.tasks.rows import (
    INDEX,
    PREBUILD,
    at,
    claim,
    claim_one,
    endings,
    enqueue,
    enqueue_and_claim,
    everything,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _oracle(committed_db: Db) -> Iterator[None]:
    """After each race the history is whole."""
    yield
    committed_db.rollback()
    check_invariants(committed_db)


def test_a_claim_skips_a_job_that_an_open_push_has_joined(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Race (a), join first: the run must not start before the rows of the push are visible."""
    job_id = enqueue(committed_db, dedup_key="k").job_id
    committed_db.commit()
    push, worker = connect(), connect()
    assert enqueue(push, dedup_key="k").outcome == "joined"
    worker.execute("SET lock_timeout = '1ms'")
    assert claim(worker) == []
    worker.commit()
    push.commit()
    held = claim_one(worker)
    assert (held.job_id, held.coalesced) == (job_id, 1)
    worker.commit()


def test_a_push_that_meets_an_open_claim_waits_and_makes_its_own_job(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """Race (a), claim first: the claim has the row, so the push cannot count on that run."""
    job_id = enqueue(committed_db, dedup_key="k").job_id
    committed_db.commit()
    push, worker = connect(), connect()
    assert claim_one(worker).job_id == job_id
    with blocked(connect(), push, lambda: enqueue(push, dedup_key="k", now=2)) as joining:
        worker.commit()
    done = joining.result()
    push.commit()
    assert done.outcome == "inserted"
    assert done.job_id != job_id
    assert status_of(committed_db, done.job_id) == "pending"


def test_a_push_that_meets_a_claim_which_rolls_back_joins(committed_db: Db, connect: Callable[[], Db]) -> None:
    job_id = enqueue(committed_db, dedup_key="k").job_id
    committed_db.commit()
    push, worker = connect(), connect()
    claim_one(worker)
    with blocked(connect(), push, lambda: enqueue(push, dedup_key="k", now=2)) as joining:
        worker.rollback()
    done = joining.result()
    push.commit()
    assert (done.job_id, done.outcome) == (job_id, "joined")


def test_a_push_while_its_job_runs_makes_one_more_run_however_many_pushes_come(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """Race (b); case 20."""
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    push = connect()
    for n in range(50):
        enqueue(push, dedup_key="k", now=2 + n)
        push.commit()
    queue.finish_job(committed_db, held.ref, now=at(60))
    (again,) = claim(committed_db, now=60, limit=10)
    committed_db.commit()
    assert (again.coalesced, status_of(committed_db, held.job_id)) == (49, "succeeded")


@pytest.mark.parametrize("level", [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ])
@pytest.mark.parametrize("way", ["rollback", "connection dies"])
def test_a_rollback_does_not_swallow_the_enqueue_that_met_it(
    committed_db: Db, connect: Callable[[], Db], level: IsolationLevel, way: str
) -> None:
    """Race (c); case 22: the job that B would have joined is never there."""
    first, second = connect(), connect()
    second.isolation_level = level
    gone = enqueue(first, dedup_key="k").job_id
    with blocked(connect(), second, lambda: enqueue(second, dedup_key="k")) as joining:
        if way == "rollback":
            first.rollback()
        else:
            committed_db.execute("SELECT pg_terminate_backend(%s)", (first.info.backend_pid,))
            committed_db.commit()
    done = joining.result()
    second.commit()
    assert done.outcome == "inserted"
    assert [job.job_id for job in queue.list_jobs(committed_db)] == [done.job_id]
    assert done.job_id != gone


def test_a_rollback_of_the_joiner_leaves_the_job_as_it_was(committed_db: Db, connect: Callable[[], Db]) -> None:
    enqueue(committed_db, dedup_key="k", countdown=60.0)
    committed_db.commit()
    before = everything(committed_db)
    committed_db.rollback()
    push = connect()
    enqueue(push, dedup_key="k", priority=9)
    push.rollback()
    assert everything(committed_db) == before


def test_an_enqueue_that_meets_one_which_commits_joins_it(committed_db: Db, connect: Callable[[], Db]) -> None:
    first, second = connect(), connect()
    job_id = enqueue(first, dedup_key="k").job_id
    with blocked(connect(), second, lambda: enqueue(second, dedup_key="k")) as joining:
        first.commit()
    done = joining.result()
    second.commit()
    assert (done.job_id, done.outcome) == (job_id, "joined")


@pytest.mark.parametrize("order", ["finish first", "enqueue first"])
def test_a_push_at_the_finish_line_always_gets_a_later_run(
    committed_db: Db, connect: Callable[[], Db], order: str
) -> None:
    """Case 21: neither waits for the other, and in both orders a pending job is left."""
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    worker, push = connect(), connect()
    for conn in (worker, push):
        conn.execute("SET lock_timeout = '1ms'")
    steps: list[Callable[[], Any]] = [
        lambda: queue.finish_job(worker, held.ref, now=at(3)),
        lambda: enqueue(push, dedup_key="k", now=3),
    ]
    for step in steps if order == "finish first" else reversed(steps):
        step()
    for conn in (worker, push) if order == "finish first" else (push, worker):
        conn.commit()
    assert status_of(committed_db, held.job_id) == "succeeded"
    assert claim_one(committed_db, now=4).job_id != held.job_id
    committed_db.commit()


def test_the_sweep_skips_a_job_that_is_being_finished(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Case 1, the sweep in the middle of the finish: it neither waits nor takes the job back."""
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    worker, sweeper = connect(), connect()
    queue.finish_job(worker, held.ref, now=at(100))
    assert sweep(sweeper, lock_wait_ms=1, now=at(100)) == SweepCounts()
    worker.commit()
    assert sweep(sweeper, now=at(100)) == SweepCounts()
    assert endings(committed_db, held.job_id) == ["SUCCEEDED"]


def test_a_finish_that_meets_an_open_sweep_waits_and_is_refused(committed_db: Db, connect: Callable[[], Db]) -> None:
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    worker, sweeper = connect(), connect()
    queue.sweep_expired(sweeper, now=at(100))
    with blocked(connect(), worker, lambda: queue.finish_job(worker, held.ref, now=at(100))) as finishing:
        sweeper.commit()
    with pytest.raises(ClaimLost):
        finishing.result()
    assert endings(committed_db, held.job_id) == ["ABANDONED"]


def test_a_finish_that_meets_a_sweep_which_rolls_back_succeeds(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Case 12: the sweep dies in mid-pass."""
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    worker, sweeper = connect(), connect()
    queue.sweep_expired(sweeper, now=at(100))
    with blocked(connect(), worker, lambda: queue.finish_job(worker, held.ref, now=at(100))) as finishing:
        committed_db.execute("SELECT pg_terminate_backend(%s)", (sweeper.info.backend_pid,))
        committed_db.commit()
    finishing.result()
    worker.commit()
    assert endings(committed_db, held.job_id) == ["SUCCEEDED"]


def test_two_sweeps_at_once_take_each_job_back_once(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Case 10."""
    jobs = [enqueue_and_claim(committed_db, now=n).job_id for n in range(4)]
    committed_db.commit()
    first, second = connect(), connect()
    second.execute("SET lock_timeout = '1ms'")
    assert queue.sweep_expired(first, limit=2, now=at(100)).requeued == 2
    assert queue.sweep_expired(second, now=at(100)).requeued == 2
    first.commit()
    second.commit()
    assert [endings(committed_db, job_id) for job_id in jobs] == [["ABANDONED"]] * 4


def test_a_zombie_after_sweep_and_new_claim_changes_nothing(committed_db: Db, connect: Callable[[], Db]) -> None:
    zombie = enqueue_and_claim(committed_db, lease_seconds=60.0)
    committed_db.commit()
    sweep(committed_db, now=at(61))
    worker, late = connect(), connect()
    current = claim_one(worker, now=62, worker="worker-2")
    worker.commit()
    before = everything(committed_db)
    committed_db.rollback()
    with pytest.raises(ClaimLost):
        queue.finish_job(late, zombie.ref, {"late": True}, now=at(63))
    late.commit()
    assert everything(committed_db) == before
    queue.finish_job(worker, current.ref, {"late": False}, now=at(64))
    worker.commit()
    with pytest.raises(JobTerminal):
        queue.finish_job(late, zombie.ref, {"late": True}, now=at(65))
    committed_db.rollback()
    assert queue.get_job(committed_db, zombie.job_id).result == {"late": False}


PUT_BACKS: dict[str, Callable[[Db, Any], Any]] = {
    "fail": lambda db, ref: queue.fail_job(db, ref, code="X", detail="x", retry_delays=[0], now=at(100)),
    "release": lambda db, ref: queue.release_job(db, ref, now=at(100)),
    "sweep": lambda db, _: sweep(db, lock_wait_ms=WAIT_SECONDS * 1000, now=at(100)),
}


@pytest.mark.parametrize("put_back", PUT_BACKS)
@pytest.mark.parametrize("way", ["commits", "rolls back"])
def test_a_put_back_that_meets_an_open_insert_of_its_key_waits_and_decides_then(
    committed_db: Db, connect: Callable[[], Db], put_back: str, way: str
) -> None:
    """T8 against the racing insert: superseded when it commits, back in the queue when it rolls back."""
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    push, worker = connect(), connect()
    heir = enqueue(push, dedup_key="k", now=2).job_id
    with blocked(connect(), worker, lambda: PUT_BACKS[put_back](worker, held.ref)) as putting_back:
        push.commit() if way == "commits" else push.rollback()
    putting_back.result()
    worker.commit()
    job = queue.get_job(committed_db, held.job_id)
    if way == "commits":
        assert (job.status, job.superseded_by) == ("cancelled", heir)
    else:
        assert job.status == "pending"


@pytest.mark.parametrize("put_back", ["fail", "release"])
def test_a_collision_leaves_the_rest_of_the_workers_transaction_as_it_was(
    committed_db: Db, connect: Callable[[], Db], put_back: str
) -> None:
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    push, worker = connect(), connect()
    own = enqueue(worker, INDEX).job_id
    enqueue(push, dedup_key="k", now=2)
    with blocked(connect(), worker, lambda: PUT_BACKS[put_back](worker, held.ref)) as putting_back:
        push.commit()
    assert putting_back.result() == "superseded"
    worker.commit()
    assert status_of(committed_db, own) == "pending"


def test_a_push_that_meets_an_open_put_back_of_its_key_joins_it(committed_db: Db, connect: Callable[[], Db]) -> None:
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    push, worker = connect(), connect()
    queue.release_job(worker, held.ref, now=at(2))
    with blocked(connect(), push, lambda: enqueue(push, dedup_key="k", now=3)) as joining:
        worker.commit()
    done = joining.result()
    push.commit()
    assert (done.job_id, done.outcome) == (held.job_id, "joined")


def test_a_sweep_gives_way_to_an_insert_that_stays_open_and_sweeps_the_rest(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    stuck = enqueue_and_claim(committed_db, dedup_key="k")
    free = [enqueue_and_claim(committed_db, dedup_key=f"free-{n}").job_id for n in range(3)]
    committed_db.commit()
    push = connect()
    enqueue(push, dedup_key="k", now=2)
    assert sweep(committed_db, lock_wait_ms=20, now=at(100)) == SweepCounts(requeued=3, skipped=1)
    assert status_of(committed_db, stuck.job_id) == "running"
    push.commit()
    assert sweep(committed_db, now=at(100)) == SweepCounts(superseded=1)
    assert {status_of(committed_db, job_id) for job_id in free} == {"pending"}


def test_claims_at_once_share_the_jobs_without_waiting(committed_db: Db, connect: Callable[[], Db]) -> None:
    jobs = {enqueue(committed_db, now=n / 10).job_id for n in range(40)}
    committed_db.commit()
    barrier = threading.Barrier(4)

    def work(name: str, conn: Db) -> list[Any]:
        barrier.wait(WAIT_SECONDS)
        mine: list[Any] = []
        while batch := claim(conn, now=10, limit=3, worker=name):
            mine += [held.job_id for held in batch]
            conn.commit()
        return mine

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(work, f"w{n}", connect()) for n in range(4)]
        claimed = [job_id for future in found for job_id in future.result(WAIT_SECONDS)]
    assert len(claimed) == len(jobs)
    assert set(claimed) == jobs


def test_a_child_whose_blocker_ends_while_it_is_added_runs_once(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Case 24: the gate is asked at the claim, nobody has to be woken."""
    parent = enqueue_and_claim(committed_db, INDEX, scope="r")
    committed_db.commit()
    push, worker = connect(), connect()
    child = enqueue(push, PREBUILD, scope="r", after_tasks=(INDEX,), now=2).job_id
    queue.finish_job(worker, parent.ref, now=at(2))
    worker.commit()
    push.commit()
    assert [held.job_id for held in claim(committed_db, now=3, limit=10)] == [child]
    committed_db.commit()


def test_a_blocker_that_is_not_committed_yet_does_not_gate_and_the_push_is_not_lost(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """The gate's race: the prebuild starts while a push is in mid-air, and that push gets a run of its own."""
    prebuild: dict[str, Any] = {"scope": "r", "after_tasks": (INDEX,), "dedup_key": "r"}
    first = enqueue(committed_db, PREBUILD, **prebuild).job_id
    committed_db.commit()
    push, worker = connect(), connect()
    index = enqueue(push, INDEX, scope="r", now=2).job_id
    assert claim_one(worker, now=2).job_id == first
    worker.commit()
    done = enqueue(push, PREBUILD, now=2, **prebuild)
    push.commit()
    assert done.outcome == "inserted"
    assert [held.job_id for held in claim(committed_db, now=3, limit=10)] == [index]
    committed_db.commit()
