"""Races inside one statement: what changes between its snapshot and its locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tasks import queue
from tasks.db import records
from tasks.job import Claim, Enqueued, SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.racing import Db, Failpoint, blocked
from tests.tasks.rows import (
    INDEX,
    PLANNER,
    PREBUILD,
    TASKS,
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


@pytest.fixture
def failpoint(committed_db: Db, connect: Callable[[], Db]) -> Iterator[Failpoint]:
    point = Failpoint(connect())
    yield point
    committed_db.rollback()
    point.remove()


def test_a_sweep_with_an_old_snapshot_leaves_the_newer_attempt_alone(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """Cases 2 and 10: between its snapshot and its lock the job is swept and claimed again.

    The newer claim has expired as well by the stale sweep's clock. Its attempt is not in the snapshot and
    could not be closed: a sweep that took the job back would leave that attempt open for ever.
    """
    held = enqueue_and_claim(committed_db, lease_seconds=10.0)
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    with failpoint.shut(), blocked(connect(), stale, lambda: queue.sweep_expired(stale, now=at(200))) as sweeping:
        assert sweep(committed_db, now=at(100)) == SweepCounts(requeued=1)
        again = claim_one(committed_db, now=101)
        committed_db.commit()
    assert sweeping.result() == SweepCounts()
    stale.commit()
    assert endings(committed_db, held.job_id) == ["ABANDONED", None]
    queue.finish_job(committed_db, again.ref, now=at(102))
    committed_db.commit()


def test_a_heartbeat_between_the_snapshot_and_the_lock_saves_the_claim(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """Case 1."""
    held = enqueue_and_claim(committed_db, lease_seconds=10.0)
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    with failpoint.shut(), blocked(connect(), stale, lambda: queue.sweep_expired(stale, now=at(12))) as sweeping:
        assert queue.extend_leases(committed_db, [held.ref], now=at(12)) == {held.claim_token}
        committed_db.commit()
    assert sweeping.result() == SweepCounts()
    stale.commit()
    assert status_of(committed_db, held.job_id) == "running"


def test_a_finish_between_the_snapshot_and_the_lock_of_the_sweep_is_final(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """Case 1: the sweep decides on a stale snapshot."""
    held = enqueue_and_claim(committed_db, lease_seconds=10.0)
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    with failpoint.shut(), blocked(connect(), stale, lambda: queue.sweep_expired(stale, now=at(200))) as sweeping:
        queue.finish_job(committed_db, held.ref, now=at(100))
        committed_db.commit()
        before = everything(committed_db)
        committed_db.rollback()
    assert sweeping.result() == SweepCounts()
    stale.commit()
    assert everything(committed_db) == before


def test_a_sweep_between_the_snapshot_and_the_lock_of_a_claim_makes_no_second_attempt(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """The job that the stale claim read as pending was claimed, swept and is pending again: it may have it."""
    job_id = enqueue(committed_db, lease_seconds=10.0).job_id
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    with failpoint.shut(), blocked(connect(), stale, lambda: claim(stale, now=300)) as claiming:
        claim_one(committed_db, now=1)
        committed_db.commit()
        assert sweep(committed_db, now=at(100)) == SweepCounts(requeued=1)
    (held,) = claiming.result()
    stale.commit()
    assert (held.job_id, held.attempt_number) == (job_id, 2)
    assert endings(committed_db, job_id) == ["ABANDONED", None]


def test_a_claim_may_miss_a_blocker_committed_after_its_snapshot_and_then_postpones(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """Why a gate is not enough: the blockers are read by the snapshot, the job itself under its lock.

    The run starts after the push, sees its rows and finds them not indexed; the index job is alive, so it hands its
    claim back, which costs nothing.
    """
    prebuild: dict[str, Any] = {"scope": "r", "after_tasks": (INDEX,), "dedup_key": "r"}
    job_id = enqueue(committed_db, PREBUILD, **prebuild).job_id
    # Its gate is looked at, and open; what is stopped is the claim's own statement.
    assert claim(committed_db, tasks=["gc"]) == []
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    asked = {
        "worker": "w",
        "tasks": list(TASKS),
        "queues": ["default"],
        "limit": 1,
        "admitted": [],
        "now": at(3),
        **PLANNER,
    }
    with failpoint.shut(), blocked(connect(), stale, lambda: records(stale, "claim_jobs", Claim, asked)) as claiming:
        enqueue(committed_db, INDEX, scope="r", now=2)
        committed_db.commit()
    (early,) = claiming.result()
    stale.commit()
    assert early.job_id == job_id
    assert queue.release_job(committed_db, early.ref, delay=1, postpone=True, now=at(4)) == "released"
    held = claim_one(committed_db, now=10)
    assert held.task == INDEX
    queue.finish_job(committed_db, held.ref, now=at(11))
    again = claim_one(committed_db, now=12)
    assert (again.job_id, again.attempt_count) == (job_id, 1)
    committed_db.commit()


def test_a_join_takes_its_job_out_of_the_reach_of_a_claim_with_an_old_snapshot(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """The push brings a blocker and joins the gated job: a claim that has not seen it does not get the job."""
    prebuild: dict[str, Any] = {"scope": "r", "after_tasks": (INDEX,), "dedup_key": "r"}
    job_id = enqueue(committed_db, PREBUILD, **prebuild).job_id
    assert claim(committed_db, tasks=["gc"]) == []
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    asked = {
        "worker": "w",
        "tasks": list(TASKS),
        "queues": ["default"],
        "limit": 1,
        "admitted": [],
        "now": at(3),
        **PLANNER,
    }
    with failpoint.shut(), blocked(connect(), stale, lambda: records(stale, "claim_jobs", Claim, asked)) as claiming:
        index = enqueue(committed_db, INDEX, scope="r", now=2).job_id
        assert enqueue(committed_db, PREBUILD, now=2, **prebuild) == Enqueued(job_id, "joined")
        committed_db.commit()
    assert claiming.result() == []
    stale.commit()
    assert [held.job_id for held in claim(committed_db, now=3, limit=9)] == [index]
    committed_db.commit()
