"""Job-to-job dependencies: a child runs after its parents, and nothing waits silently for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasks import queue
from tasks.errors import PayloadError
from tasks.job import SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tasks.why import why
from tests.tasks.rows import INDEX, at, claim, claim_one, enqueue, enqueue_and_claim, new, status_of

Db = psycopg.Connection[Any]
POLICIES = ("cancel", "run", "stay")


def child_of(db: Db, *parents: UUID, now: float = 1.0, **options: Any) -> UUID:
    return enqueue(db, INDEX, parents=parents, now=now, **options).job_id


def spent(db: Db, held: Any) -> None:
    """Its worker dies in the last attempt."""
    sweep(db, now=at(1000))


BAD_ENDS: dict[str, Callable[[Db, Any], Any]] = {
    "failed": lambda db, held: queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=None, now=at(3)),
    "lost": spent,
    "cancelled": lambda db, held: queue.cancel_job(db, held.job_id, reason="enough", now=at(3)),
    "quarantined": lambda db, held: queue.quarantine_job(db, held.ref, code="X", detail="x", now=at(3)),
    "deleted": lambda db, held: db.execute("DELETE FROM tasks.job WHERE job_id = %s", (held.job_id,)),
}


def test_a_child_runs_once_all_its_parents_have_succeeded(db: Db) -> None:
    first, second = enqueue_and_claim(db), enqueue_and_claim(db)
    child = child_of(db, first.job_id, second.job_id)
    assert claim(db, now=2) == []
    queue.finish_job(db, second.ref, now=at(2))
    assert claim(db, now=3) == []
    queue.finish_job(db, first.ref, now=at(4))
    assert claim_one(db, now=5).job_id == child
    check_invariants(db)


def test_a_parent_that_waits_for_its_retry_is_waited_for(db: Db) -> None:
    parent = enqueue_and_claim(db)
    child = child_of(db, parent.job_id)
    queue.fail_job(db, parent.ref, code="X", detail="x", retry_delays=[5], now=at(2))
    assert claim(db, now=3) == []
    assert sweep(db, now=at(3)) == SweepCounts()
    queue.finish_job(db, claim_one(db, now=8).ref, now=at(9))
    assert claim_one(db, now=9).job_id == child


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("end", BAD_ENDS)
@pytest.mark.parametrize("seen", [True, False], ids=["parked before", "not looked at before"])
def test_a_child_of_a_parent_that_did_not_succeed_follows_its_policy_within_one_sweep(
    db: Db, policy: str, end: str, seen: bool
) -> None:
    """Case 25."""
    parent = enqueue_and_claim(db, attempts_max=1)
    child = child_of(db, parent.job_id, on_parent_failure=policy)
    if seen:
        assert claim(db, now=2) == []
    BAD_ENDS[end](db, parent)
    sweep(db, now=at(1000))
    sweep(db, now=at(1001))
    claimed = [held.job_id for held in claim(db, now=1001)]
    assert claimed == ([child] if policy == "run" else [])
    assert status_of(db, child) == {"cancel": "cancelled", "run": "running", "stay": "pending"}[policy]
    if policy != "run":
        reason = why(db, child, now=at(1002))[0]
        assert reason.rule == "PARENT_FAILED"
    if policy == "stay":
        assert str(parent.job_id) in reason.sentence


def test_the_children_of_a_cancelled_child_are_cancelled_in_the_same_sweep(db: Db) -> None:
    parent = enqueue(db).job_id
    chain = [parent]
    for _ in range(5):
        chain.append(child_of(db, chain[-1]))
    claim(db, limit=9, tasks=[INDEX])
    queue.cancel_job(db, parent, reason="no", now=at(2))
    assert sweep(db, now=at(3)) == SweepCounts(orphaned=5)
    assert {status_of(db, job_id) for job_id in chain} == {"cancelled"}


def test_a_child_that_stays_runs_after_its_parent_was_retried(db: Db) -> None:
    parent = enqueue_and_claim(db, attempts_max=1)
    child = child_of(db, parent.job_id, on_parent_failure="stay")
    queue.fail_job(db, parent.ref, code="X", detail="x", retry_delays=[0], now=at(2))
    assert claim(db, now=3) == []
    sweep(db, now=at(3))
    queue.retry_job(db, parent.job_id, reason="fixed", now=at(4))
    queue.finish_job(db, claim_one(db, now=5).ref, now=at(6))
    assert claim_one(db, now=6).job_id == child


def test_a_parent_that_never_was_is_treated_as_failed(db: Db) -> None:
    unknown = uuid4()
    cancelled, stays = child_of(db, unknown), child_of(db, unknown, on_parent_failure="stay")
    runs = child_of(db, unknown, on_parent_failure="run")
    assert [held.job_id for held in claim(db, now=2, limit=9)] == [runs]
    sweep(db, now=at(3))
    assert (status_of(db, cancelled), status_of(db, stays)) == ("cancelled", "pending")
    assert str(unknown) in why(db, stays, now=at(4))[0].sentence


def test_parents_may_come_after_their_children_in_one_transaction(db: Db) -> None:
    ids = [uuid4(), uuid4()]
    requests = [new(INDEX, parents=[ids[1]], job_id=ids[0]), new(job_id=ids[1])]
    queue.enqueue_jobs(db, requests, now=at(0))
    held = claim_one(db, now=1)
    assert held.job_id == ids[1]
    queue.finish_job(db, held.ref, now=at(2))
    assert claim_one(db, now=2).job_id == ids[0]


def test_the_results_of_parents_come_in_their_order(db: Db) -> None:
    held = [enqueue_and_claim(db, attempts_max=1) for _ in range(3)]
    child = child_of(db, *(one.job_id for one in reversed(held)), on_parent_failure="run", pass_results="list")
    queue.finish_job(db, held[0].ref, {"n": 0}, now=at(2))
    queue.fail_job(db, held[1].ref, code="X", detail="x", retry_delays=None, now=at(2))
    queue.finish_job(db, held[2].ref, now=at(2))
    claimed = claim_one(db, now=3)
    assert (claimed.job_id, claimed.pass_results, claimed.parent_count) == (child, "list", 3)
    assert queue.parent_results(db, child) == [None, None, {"n": 0}]


def test_why_names_the_parent_that_is_waited_for(db: Db) -> None:
    first, second = enqueue(db).job_id, enqueue(db).job_id
    child = child_of(db, first, second)
    reason = why(db, child, now=at(2))[0]
    assert (reason.rule, reason.details["parent_id"], reason.details["parents"]) == ("PARENT_WAITS", str(first), 2)
    assert reason.sentence == (
        f"it waits for its parent {first} (gc), pending since 2030-01-01T00:00:00+00:00, and 1 more"
    )


def test_a_job_is_not_its_own_parent(db: Db) -> None:
    job_id = uuid4()
    with pytest.raises(PayloadError):
        enqueue(db, parents=[job_id], job_id=job_id)


def test_a_chord_of_many_runs_its_body_once_after_the_last(db: Db) -> None:
    header = [one.job_id for one in queue.enqueue_jobs(db, [new() for _ in range(300)], now=at(0))]
    body = child_of(db, *header)
    for n in range(3):
        claims = claim(db, now=2 + n, limit=100)
        assert len(claims) == 100
        queue.finish_jobs(db, [(held.ref, n) for held in claims], now=at(2 + n))
    assert claim_one(db, now=6).job_id == body
    assert queue.parent_results(db, body) == [n for n in range(3) for _ in range(100)]
