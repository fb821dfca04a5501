"""Parents and gates: a child that waits is woken, or its policy decides; a wall of waiting jobs costs nothing."""

from __future__ import annotations

import statistics
import time
from itertools import permutations
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasks import queue
from tasks.operate import cancel_job, prune_jobs, set_aside_job
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tasks.why import why
from tests.tasks.rows import INDEX, PREBUILD, at, claim, claim_one, enqueue, enqueue_and_claim, new, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def _oracle(committed_db: Db) -> Iterator[None]:
    yield
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.mark.parametrize("order", list(permutations(("child", "first", "second"))), ids=", ".join)
@pytest.mark.parametrize("looked", [False, True], ids=["unseen", "seen by claims in between"])
def test_a_child_runs_once_however_its_parents_end_while_it_is_added(
    committed_db: Db, connect: Callable[[], Db], order: tuple[str, ...], looked: bool
) -> None:
    """Case 24: three open transactions, committed in every order; no sweep is needed to wake the child."""
    parents = [enqueue_and_claim(committed_db, INDEX) for _ in range(2)]
    committed_db.commit()
    open_ones = {"child": connect(), "first": connect(), "second": connect()}
    child = enqueue(open_ones["child"], now=2, parents=[parent.job_id for parent in parents]).job_id
    for name, parent in zip(("first", "second"), parents, strict=True):
        queue.finish_job(open_ones[name], parent.ref, now=at(2))
    claimed = []
    for name in order:
        open_ones[name].commit()
        if looked or name == order[-1]:
            claimed.append([held.job_id for held in claim(committed_db, now=3, limit=10)])
            committed_db.commit()
    assert claimed.pop() == [child]
    assert not any(claimed)
    assert claim(committed_db, now=4, limit=10) == []


@pytest.mark.parametrize("order", [("first", "second"), ("second", "first")], ids=", ".join)
@pytest.mark.parametrize("looked", [False, True], ids=["unseen", "seen by a claim in between"])
def test_a_parked_child_is_woken_by_the_last_of_its_parents_without_a_sweep(
    committed_db: Db, connect: Callable[[], Db], order: tuple[str, ...], looked: bool
) -> None:
    """Case 24: a claim has put the child aside before; its parents end in two transactions at once."""
    parents = [enqueue_and_claim(committed_db, INDEX) for _ in range(2)]
    child = enqueue(committed_db, now=2, parents=[parent.job_id for parent in parents]).job_id
    committed_db.commit()
    assert claim(committed_db, now=3, limit=10) == []
    committed_db.commit()
    assert queue.get_job(committed_db, child).lane == "parked"
    committed_db.commit()
    open_ones = {"first": connect(), "second": connect()}
    for name, parent in zip(open_ones, parents, strict=True):
        queue.finish_job(open_ones[name], parent.ref, now=at(4))
    open_ones[order[0]].commit()
    if looked:
        assert claim(committed_db, now=5, limit=10) == []
        committed_db.commit()
    open_ones[order[1]].commit()
    assert [held.job_id for held in claim(committed_db, now=6, limit=10)] == [child]
    committed_db.commit()


def crash(db: Db) -> UUID:
    """A parent whose worker is killed until its budget is gone."""
    held = enqueue_and_claim(db, INDEX, attempts_max=2, lease_seconds=10.0)
    sweep(db, now=at(20))
    claim_one(db, now=21, tasks=[INDEX])
    return held.job_id


def cancelled(db: Db) -> UUID:
    job_id = enqueue(db, INDEX).job_id
    cancel_job(db, job_id, reason="not wanted", now=at(50))
    return job_id


def set_aside(db: Db) -> UUID:
    held = enqueue_and_claim(db, INDEX)
    set_aside_job(db, held.job_id, reason="look at it", now=at(50))
    return held.job_id


def purged(db: Db) -> UUID:
    held = enqueue_and_claim(db, INDEX)
    queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=None, now=at(2))
    assert prune_jobs(db, keep={"failed": 10.0}, now=at(50)) == 1
    return held.job_id


def never_there(db: Db) -> UUID:
    return uuid4()


@pytest.mark.parametrize("policy", ["cancel", "run", "stay"])
@pytest.mark.parametrize("die", [crash, cancelled, set_aside, purged, never_there])
def test_a_child_follows_its_policy_within_one_sweep_when_a_parent_dies_without_a_word(
    committed_db: Db, die: Callable[[Db], UUID], policy: str
) -> None:
    """Case 25: nothing waits silently for ever, and `why` names the parent."""
    parent = die(committed_db)
    good = enqueue_and_claim(committed_db, "gc", now=51)
    child = enqueue(committed_db, PREBUILD, now=60, parents=[good.job_id, parent], on_parent_failure=policy).job_id
    assert claim(committed_db, now=61, limit=10) == [], "one parent runs still"
    queue.finish_job(committed_db, good.ref, now=at(62))
    sweep(committed_db, now=at(100))
    runs = [held.job_id for held in claim(committed_db, now=101, limit=10)]
    committed_db.commit()
    assert runs == ([child] if policy == "run" else [])
    expected = {"cancel": "cancelled", "run": "running", "stay": "pending"}
    assert status_of(committed_db, child) == expected[policy]
    reasons = why(committed_db, child, now=at(102))
    if policy == "cancel":
        assert queue.get_job(committed_db, child).cancel_reason == "parent"
    if policy == "stay":
        assert str(parent) in " ".join(reason.sentence for reason in reasons)


def test_a_child_of_a_parent_that_nobody_knows_waits_and_says_for_whom(committed_db: Db) -> None:
    """Case 25: the parent is neither dead nor done; a person may end the wait, and then the policy decides."""
    parent = enqueue(committed_db, "task.of.yesterday").job_id
    child = enqueue(committed_db, now=1, parents=[parent]).job_id
    assert claim(committed_db, now=2, limit=10) == []
    assert sweep(committed_db, now=at(3)).total == 0
    assert str(parent) in " ".join(reason.sentence for reason in why(committed_db, child, now=at(4)))
    cancel_job(committed_db, parent, reason="nobody does this any more", now=at(5))
    assert sweep(committed_db, now=at(6)).orphaned == 1
    committed_db.commit()
    assert status_of(committed_db, child) == "cancelled"


WALL = 100_000
PAGE = 10_000


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(300)
def test_a_wall_of_gated_jobs_hides_nothing_and_costs_little(committed_db: Db) -> None:
    """Case 26: 100,000 older jobs wait behind a gate; one young job is free, and one behind the same gate elsewhere."""
    bare = statistics.median(_claims(committed_db, 30))
    blocker = enqueue(committed_db, INDEX, scope="shut").job_id
    for start in range(0, WALL, PAGE):
        wall = [new(PREBUILD, scope="shut", after_tasks=(INDEX,), kwargs={"n": start + n}) for n in range(PAGE)]
        queue.enqueue_jobs(committed_db, wall, now=at(0))
    committed_db.commit()
    committed_db.execute("ANALYZE tasks.job")
    committed_db.commit()
    free = enqueue(committed_db, "gc", now=1).job_id
    behind = enqueue(committed_db, PREBUILD, scope="open", after_tasks=(INDEX,), now=2).job_id
    found: list[UUID] = []
    for _ in range(2 * WALL // PAGE):
        found += [held.job_id for held in claim(committed_db, now=3, limit=2, tasks=(PREBUILD, "gc"))]
        committed_db.commit()
    assert found == [free, behind]
    walled = statistics.median(_claims(committed_db, 30))
    assert walled <= 3 * bare + 0.002, f"{walled * 1000:.1f} ms a claim, {bare * 1000:.1f} ms without the wall"
    cancel_job(committed_db, blocker, reason="open the gate", now=at(4))
    committed_db.commit()
    assert len(claim(committed_db, now=5, limit=100, tasks=(PREBUILD,))) == 100
    committed_db.commit()


def _claims(db: Db, count: int) -> list[float]:
    """Seconds of each of so many claims of one free job, which is then finished."""
    seconds = []
    for n in range(count):
        enqueue(db, "gc", now=n)
        db.commit()
        began = time.perf_counter()
        held = claim_one(db, now=n + 1, tasks=(PREBUILD, "gc"))
        db.commit()
        seconds.append(time.perf_counter() - began)
        queue.finish_job(db, held.ref, now=at(n + 2))
        db.commit()
    return seconds
