"""Races of what a person does, of parents and of parked jobs: real connections, no sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tasks import queue
from tasks.errors import DuplicateJob, JobTerminal
from tasks.gates import Limit, stamp
from tasks.job import SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.racing import Db, blocked
from tests.tasks.rows import INDEX, PREBUILD, at, claim, claim_one, endings, enqueue, enqueue_and_claim, status_of

PREBUILD_OF_R: dict[str, Any] = {"scope": "r", "after_tasks": (INDEX,), "dedup_key": "r"}


@pytest.fixture(autouse=True)
def _oracle(committed_db: Db) -> Iterator[None]:
    """After each race the history is whole."""
    yield
    committed_db.rollback()
    check_invariants(committed_db)


def parked(db: Db) -> tuple[Any, Any]:
    """A running index job and a prebuild that a claim has parked on it."""
    index = enqueue_and_claim(db, INDEX, scope="r")
    prebuild = enqueue(db, PREBUILD, now=1, **PREBUILD_OF_R).job_id
    assert claim(db, now=2) == []
    assert queue.get_job(db, prebuild).parked_on == index.job_id
    db.commit()
    return index, prebuild


def heard(conn: Db) -> set[str]:
    """What rings on `conn` within a moment."""
    return {note.payload for note in conn.notifies(timeout=5, stop_after=1)}


def test_a_cancel_that_meets_an_open_claim_waits_and_closes_its_attempt(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """T7: in one statement with the lock, the cancel would not see the attempt that the claim has just opened."""
    job_id = enqueue(committed_db).job_id
    committed_db.commit()
    worker, person = connect(), connect()
    held = claim_one(worker)
    with blocked(connect(), person, lambda: queue.cancel_job(person, job_id, reason="no", now=at(2))) as cancelling:
        worker.commit()
    cancelling.result()
    person.commit()
    assert endings(committed_db, job_id) == ["CANCELLED"]
    with pytest.raises(JobTerminal):
        queue.finish_job(committed_db, held.ref, now=at(3))


def test_a_claim_passes_over_a_job_that_is_being_cancelled(committed_db: Db, connect: Callable[[], Db]) -> None:
    job_id = enqueue(committed_db).job_id
    committed_db.commit()
    worker, person = connect(), connect()
    queue.cancel_job(person, job_id, reason="no", now=at(1))
    worker.execute("SET lock_timeout = '1ms'")
    assert claim(worker) == []
    worker.commit()
    person.commit()
    assert endings(committed_db, job_id) == []


@pytest.mark.parametrize("order", ["finish first", "cancel first"])
def test_of_a_cancel_and_a_finish_the_first_one_counts(committed_db: Db, connect: Callable[[], Db], order: str) -> None:
    """Case 34: one end, and the other side is told which."""
    held = enqueue_and_claim(committed_db)
    committed_db.commit()
    worker, person = connect(), connect()

    def finish() -> None:
        queue.finish_job(worker, held.ref, now=at(2))

    def cancel() -> None:
        queue.cancel_job(person, held.job_id, reason="no", now=at(2))

    first, second = (finish, cancel) if order == "finish first" else (cancel, finish)
    ahead, behind = (worker, person) if order == "finish first" else (person, worker)
    first()
    with blocked(connect(), behind, second) as waiting:
        ahead.commit()
    with pytest.raises(JobTerminal):
        waiting.result()
    behind.rollback()
    assert status_of(committed_db, held.job_id) == ("succeeded" if order == "finish first" else "cancelled")


def test_the_end_of_a_blocker_frees_and_rings_for_what_is_parked_on_it(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    index, prebuild = parked(committed_db)
    listener = connect()
    listener.autocommit = True
    listener.execute("LISTEN tasks")
    queue.finish_job(committed_db, index.ref, now=at(3))
    committed_db.commit()
    assert heard(listener) == {"default"}
    assert claim_one(committed_db, now=4).job_id == prebuild
    committed_db.commit()


def test_a_finish_waits_for_the_claim_that_parks_on_its_job_and_frees_what_it_parked(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    """No lost wake: by its old snapshot the finish would not see the parked job; a later statement does."""
    index = enqueue_and_claim(committed_db, INDEX, scope="r")
    prebuild = enqueue(committed_db, PREBUILD, now=1, **PREBUILD_OF_R).job_id
    committed_db.commit()
    other, worker = connect(), connect()
    assert claim(other, now=2) == []
    with blocked(connect(), worker, lambda: queue.finish_job(worker, index.ref, now=at(3))) as finishing:
        other.commit()
    finishing.result()
    worker.commit()
    assert claim_one(committed_db, now=4).job_id == prebuild
    committed_db.commit()


def test_a_claim_does_not_park_on_a_blocker_that_is_ending(committed_db: Db, connect: Callable[[], Db]) -> None:
    index = enqueue_and_claim(committed_db, INDEX, scope="r")
    prebuild = enqueue(committed_db, PREBUILD, now=1, **PREBUILD_OF_R).job_id
    committed_db.commit()
    worker, other = connect(), connect()
    queue.finish_job(worker, index.ref, now=at(3))
    other.execute("SET lock_timeout = '1ms'")
    assert claim(other, now=3) == []
    other.commit()
    worker.commit()
    assert queue.get_job(committed_db, prebuild).lane == "unchecked"
    assert claim_one(committed_db, now=4).job_id == prebuild
    committed_db.commit()


@pytest.mark.parametrize("way", ["commits", "rolls back"])
def test_a_finish_does_not_wait_for_a_push_that_has_joined_what_it_frees(
    committed_db: Db, connect: Callable[[], Db], way: str
) -> None:
    """The push takes the job out of the lane itself; when it rolls back, the sweep does."""
    index, prebuild = parked(committed_db)
    push, worker = connect(), connect()
    assert enqueue(push, PREBUILD, now=2, **PREBUILD_OF_R).job_id == prebuild
    worker.execute("SET lock_timeout = '1ms'")
    queue.finish_job(worker, index.ref, now=at(3))
    worker.commit()
    push.commit() if way == "commits" else push.rollback()
    assert sweep(committed_db, now=at(4)) == SweepCounts(unparked=0 if way == "commits" else 1)
    assert claim_one(committed_db, now=5).job_id == prebuild
    committed_db.commit()


@pytest.mark.parametrize("parents", [1, 2])
def test_a_child_that_is_added_while_its_parents_finish_runs_once(
    committed_db: Db, connect: Callable[[], Db], parents: int
) -> None:
    """Case 24, also with two parents that finish at once."""
    held = [enqueue_and_claim(committed_db) for _ in range(parents)]
    committed_db.commit()
    push = connect()
    child = enqueue(push, INDEX, parents=[one.job_id for one in held], now=2).job_id
    workers = [connect() for _ in held]
    for worker, one in zip(workers, held, strict=True):
        queue.finish_job(worker, one.ref, now=at(3))
    assert claim(committed_db, now=3, limit=9) == []
    committed_db.commit()
    push.commit()
    assert claim(committed_db, now=3, limit=9) == []
    committed_db.commit()
    for worker in workers:
        worker.commit()
    assert [one.job_id for one in claim(committed_db, now=4, limit=9)] == [child]
    committed_db.commit()


def test_two_claims_at_once_do_not_share_the_last_place_of_a_limit(committed_db: Db, connect: Callable[[], Db]) -> None:
    jobs = [enqueue(committed_db, **stamp(Limit("k", 1))).job_id for _ in range(2)]
    committed_db.commit()
    first, second = connect(), connect()
    second.execute("SET lock_timeout = '1ms'")
    held = claim_one(first, now=1)
    assert claim(second, now=1, limit=9) == []
    first.commit()
    assert claim(second, now=2, limit=9) == []
    second.commit()
    queue.finish_job(first, held.ref, now=at(3))
    first.commit()
    assert [one.job_id for one in claim(second, now=4, limit=9)] == [jobs[1]]
    second.commit()


def test_a_retry_that_meets_an_open_insert_of_its_key_waits_and_is_refused(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    held = enqueue_and_claim(committed_db, dedup_key="k")
    queue.quarantine_job(committed_db, held.ref, code="X", detail="x", now=at(2))
    committed_db.commit()
    push, person = connect(), connect()
    heir = enqueue(push, dedup_key="k", now=3).job_id
    with blocked(connect(), person, lambda: queue.retry_job(person, held.job_id, reason="x", now=at(4))) as retrying:
        push.commit()
    with pytest.raises(DuplicateJob, match=str(heir)):
        retrying.result()
    person.commit()
    assert status_of(committed_db, held.job_id) == "quarantined"
