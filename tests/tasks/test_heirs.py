"""The children of a superseded job: they wait for the job that does its work. See docs/adr/0022."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import queue
from tasks.operate import prune_jobs
from tasks.sweep import sweep
from tasks.verify import verify
from tasks.why import why
from tests.tasks.rows import INDEX, at, claim, claim_one, enqueue, enqueue_and_claim, status_of

if TYPE_CHECKING:
    from uuid import UUID

Db = psycopg.Connection[Any]


def child_of(db: Db, *parents: UUID, now: float = 1.0, **options: Any) -> UUID:
    return enqueue(db, INDEX, parents=parents, now=now, **options).job_id


def superseded(db: Db, *, now: float = 0.0, **heir: Any) -> tuple[UUID, UUID]:
    """A job that failed while a newer one with its key waited, and that one."""
    parent = enqueue_and_claim(db, now=now, dedup_key="k")
    heir_id = enqueue(db, now=now + 1, **{"dedup_key": "k", **heir}).job_id
    assert queue.fail_job(db, parent.ref, code="X", detail="x", retry_delays=[0], now=at(now + 2)) == "superseded"
    return parent.job_id, heir_id


@pytest.mark.parametrize("policy", ["cancel", "run", "stay"])
def test_the_child_of_a_superseded_parent_waits_for_the_heir_and_gets_its_result(db: Db, policy: Any) -> None:
    parent, heir = superseded(db)
    child = child_of(db, parent, on_parent_failure=policy, pass_results="first")
    sweep(db, now=at(3))
    running = claim_one(db, now=4)
    assert running.job_id == heir
    assert claim(db, now=4) == []
    reason = why(db, child, now=at(4))[0]
    assert (reason.rule, reason.details["parent_id"]) == ("PARENT_WAITS", str(heir))
    assert f"waits for job {heir} in place of its parent {parent} (gc), running since" in reason.sentence
    assert queue.get_job(db, child).parked_on == heir
    queue.finish_job(db, running.ref, "done", now=at(5))
    assert claim_one(db, now=6).job_id == child
    assert queue.parent_results(db, child) == ["done"]
    assert verify(db) == []


def test_a_child_that_is_parked_on_its_parent_goes_over_to_the_heir_without_a_sweep(db: Db) -> None:
    parent = enqueue_and_claim(db, dedup_key="k")
    child = child_of(db, parent.job_id)
    assert claim(db, now=2) == []
    heir = enqueue(db, dedup_key="k", now=2).job_id
    queue.release_job(db, parent.ref, now=at(3))
    held = claim_one(db, now=4)
    assert (held.job_id, queue.get_job(db, child).parked_on) == (heir, heir)
    queue.finish_job(db, held.ref, now=at(5))
    assert claim_one(db, now=5).job_id == child


def test_a_line_of_heirs_is_followed_to_its_end(db: Db) -> None:
    parent, heir = superseded(db)
    child = child_of(db, parent)
    held = claim_one(db, now=3)
    assert held.job_id == heir
    last = enqueue(db, dedup_key="k", now=3).job_id
    queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(4))
    held = claim_one(db, now=5)
    assert (held.job_id, why(db, child, now=at(5))[0].details["parent_id"]) == (last, str(last))
    queue.finish_job(db, held.ref, now=at(6))
    assert claim_one(db, now=6).job_id == child


@pytest.mark.parametrize("line", [1, 2])
def test_a_superseded_parent_that_is_retried_is_waited_for_again(db: Db, line: int) -> None:
    """Its child is parked on the last heir, whose end was its own."""
    parent, heir = superseded(db)
    child = child_of(db, parent, on_parent_failure="stay")
    for now in range(3, 2 + line):
        held = claim_one(db, now=now)
        heir = enqueue(db, dedup_key="k", now=now).job_id
        queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(now))
    queue.cancel_job(db, heir, reason="not this one", now=at(10))
    assert claim(db, now=11) == []
    assert queue.get_job(db, child).parked_on == heir
    queue.retry_job(db, parent, reason="but the first one", now=at(12))
    held = claim_one(db, now=13)
    assert (held.job_id, claim(db, now=14), queue.get_job(db, child).parked_on) == (parent, [], parent)
    assert sweep(db, now=at(15)).unparked == 0
    queue.finish_job(db, held.ref, now=at(16))
    assert claim_one(db, now=16).job_id == child


@pytest.mark.parametrize("line", [1, 2])
def test_a_retry_of_the_parent_after_its_child_has_run_is_no_fault_of_the_child(db: Db, line: int) -> None:
    parent, heir = superseded(db)
    child = child_of(db, parent)
    retried = parent
    for now in range(3, 2 + line):
        held = claim_one(db, now=now)
        retried, heir = heir, enqueue(db, dedup_key="k", now=now).job_id
        queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(now))
    queue.finish_job(db, claim_one(db, now=10).ref, now=at(11))
    queue.finish_job(db, claim_one(db, now=12).ref, now=at(13))
    assert (status_of(db, heir), status_of(db, child)) == ("succeeded", "succeeded")
    queue.retry_job(db, retried, reason="once more", now=at(14))
    assert verify(db) == []
    queue.finish_job(db, claim_one(db, now=15).ref, now=at(16))
    assert verify(db) == []
    db.execute("UPDATE tasks.operation SET at = %s", (at(9),))
    assert {violation.job_id for violation in verify(db)} == {child}


@pytest.mark.parametrize(("policy", "becomes"), [("cancel", "cancelled"), ("run", "running"), ("stay", "pending")])
def test_an_heir_that_fails_is_a_parent_that_fails(db: Db, policy: Any, becomes: str) -> None:
    parent, heir = superseded(db)
    child = child_of(db, parent, on_parent_failure=policy)
    queue.fail_job(db, claim_one(db, now=3).ref, code="X", detail="x", retry_delays=None, now=at(4))
    sweep(db, now=at(5))
    claim(db, now=6)
    assert (status_of(db, heir), status_of(db, child)) == ("failed", becomes)


def test_a_child_that_is_itself_the_heir_runs(db: Db) -> None:
    parent = enqueue_and_claim(db, dedup_key="k")
    child = enqueue(db, parents=[parent.job_id], dedup_key="k", dedup_mode="reject").job_id
    queue.fail_job(db, parent.ref, code="X", detail="x", retry_delays=[0], now=at(2))
    sweep(db, now=at(3))
    held = claim_one(db, now=4)
    assert held.job_id == child
    queue.finish_job(db, held.ref, now=at(5))
    assert verify(db) == []


def test_an_heir_that_waits_for_parents_itself_is_not_waited_for(db: Db) -> None:
    parent = enqueue_and_claim(db, dedup_key="k")
    child = child_of(db, parent.job_id)
    enqueue(db, parents=[child], dedup_key="k", dedup_mode="reject")
    queue.fail_job(db, parent.ref, code="X", detail="x", retry_delays=[0], now=at(2))
    sweep(db, now=at(3))
    assert status_of(db, child) == "cancelled"


def test_an_heir_is_kept_for_as_long_as_a_child_waits(db: Db) -> None:
    parent, _ = superseded(db)
    other = enqueue(db, now=2, countdown=1e6).job_id
    child = child_of(db, parent, other)
    queue.finish_job(db, claim_one(db, now=3).ref, now=at(4))
    keep = dict.fromkeys(("succeeded", "failed", "cancelled", "quarantined"), 0.0)
    assert prune_jobs(db, keep=keep, now=at(5)) == 0
    queue.cancel_job(db, child, reason="enough", now=at(6))
    assert prune_jobs(db, keep=keep, now=at(7)) == 3
