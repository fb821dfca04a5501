"""Superseded between look and lock: T8, and the children of such a job, against old snapshots. See docs/adr/0022."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tasks import queue
from tasks.db import records, rows
from tasks.job import Claim
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.racing import WAIT_SECONDS, Db, Failpoint, blocked
from tests.tasks.rows import INDEX, PLANNER, TASKS, at, claim, claim_one, endings, enqueue, enqueue_and_claim

PUT_BACKS: dict[str, Callable[[Db, Any], Any]] = {
    "fail": lambda db, ref: queue.fail_job(db, ref, code="X", detail="x", retry_delays=[0], now=at(100)),
    "release": lambda db, ref: queue.release_job(db, ref, now=at(100)),
    "sweep": lambda db, _: sweep(db, lock_wait_ms=WAIT_SECONDS * 1000, now=at(100)),
}


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


def supersede(db: Db, held: Claim, now: float = 3) -> UUID:
    """A push makes a newer job of the key, then the attempt hands the older one back."""
    heir = enqueue(db, dedup_key="k", now=now).job_id
    assert queue.release_job(db, held.ref, now=at(now)) == "superseded"
    db.commit()
    return heir


def the_heir_then_the_child(db: Db, heir: UUID, child: UUID) -> None:
    """Nothing but claims and a finish: no sweep comes to help, and each runs once."""
    (held,) = claim(db, now=10, limit=9)
    assert (held.job_id, queue.get_job(db, child).parked_on) == (heir, heir)
    queue.finish_job(db, held.ref, now=at(11))
    assert [one.job_id for one in claim(db, now=12, limit=9)] == [child]
    assert claim(db, now=12, limit=9) == []
    db.commit()
    assert endings(db, child) == [None]


@pytest.mark.parametrize("put_back", PUT_BACKS)
def test_a_put_back_is_superseded_by_a_job_that_its_snapshot_did_not_show(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint, put_back: str
) -> None:
    """It has looked for an heir, and there was none; the unique index refuses it, and it decides anew."""
    held = enqueue_and_claim(committed_db, dedup_key="k")
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    with failpoint.shut(), blocked(connect(), stale, lambda: PUT_BACKS[put_back](stale, held.ref)) as putting_back:
        heir = enqueue(committed_db, dedup_key="k", now=2).job_id
        committed_db.commit()
    putting_back.result()
    stale.commit()
    job = queue.get_job(committed_db, held.job_id)
    assert (job.status, job.cancel_reason, job.superseded_by) == ("cancelled", "superseded", heir)
    assert len(endings(committed_db, held.job_id)) == 1
    assert [one.job_id for one in claim(committed_db, now=101, limit=9)] == [heir]
    committed_db.commit()


def test_a_child_is_not_parked_on_a_parent_that_was_superseded_after_the_look(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    parent = enqueue_and_claim(committed_db, dedup_key="k")
    child = enqueue(committed_db, INDEX, parents=[parent.job_id], now=1).job_id
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    asked = {"limit": 8, "keys": [], "claims": 1}
    with failpoint.shut(), blocked(connect(), stale, lambda: rows(stale, "check_gates", asked)) as checking:
        heir = supersede(committed_db, parent)
    assert checking.result() == [(1, 0, 0)]
    stale.commit()
    the_heir_then_the_child(committed_db, heir, child)


def test_a_supersession_waits_for_the_claim_that_parks_a_child_and_frees_it(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    parent = enqueue_and_claim(committed_db, dedup_key="k")
    child = enqueue(committed_db, INDEX, parents=[parent.job_id], now=1).job_id
    committed_db.commit()
    other, worker = connect(), connect()
    assert claim(other, now=2) == []
    with blocked(connect(), worker, lambda: supersede(worker, parent)) as superseding:
        other.commit()
    the_heir_then_the_child(committed_db, superseding.result(), child)


def test_a_claim_that_looked_at_a_running_parent_leaves_the_child_to_the_heir(
    committed_db: Db, connect: Callable[[], Db], failpoint: Failpoint
) -> None:
    """The child was ready, for its parent had failed; a person's retry made that one run again."""
    parent = enqueue_and_claim(committed_db, dedup_key="k")
    queue.fail_job(committed_db, parent.ref, code="X", detail="x", retry_delays=None, now=at(2))
    child = enqueue(committed_db, INDEX, parents=[parent.job_id], on_parent_failure="run", now=2).job_id
    assert claim(committed_db, now=2, tasks=["gc"]) == []
    assert queue.get_job(committed_db, child).lane == "ready"
    queue.retry_job(committed_db, parent.job_id, reason="again", now=at(2))
    again = claim_one(committed_db, now=2, tasks=["gc"])
    # As if this claim's own look behind itself had not come to the child yet.
    committed_db.execute("UPDATE tasks.job SET lane = 'ready', parked_on = NULL WHERE job_id = %s", (child,))
    committed_db.commit()
    stale = connect()
    failpoint.take(stale)
    asked = {"worker": "w", "tasks": list(TASKS), "queues": ["default"], "limit": 9, "admitted": [], "now": at(3)}
    with (
        failpoint.shut(),
        blocked(connect(), stale, lambda: records(stale, "claim_jobs", Claim, {**asked, **PLANNER})) as claiming,
    ):
        heir = supersede(committed_db, again)
    assert claiming.result() == []
    stale.commit()
    (held,) = claim(committed_db, now=10, limit=9)
    assert held.job_id == heir
    queue.finish_job(committed_db, held.ref, now=at(11))
    assert [one.job_id for one in claim(committed_db, now=12, limit=9)] == [child]
    committed_db.commit()
