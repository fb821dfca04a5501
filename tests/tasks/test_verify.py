"""The oracle finds what it is for: each promise broken by hand, in rows that every CHECK lets pass."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasks import queue
from tasks.gates import Limit, stamp
from tasks.verify import verify
from tests.tasks.rows import INDEX, at, claim, claim_one, enqueue, enqueue_and_claim

Db = psycopg.Connection[Any]


def rules(db: Db) -> set[str]:
    return {violation.rule for violation in verify(db)}


def test_a_whole_history_has_no_violation(db: Db) -> None:
    held = enqueue_and_claim(db, **stamp(Limit("k", 1)))
    child = enqueue(db, INDEX, parents=[held.job_id], now=2).job_id
    queue.finish_job(db, held.ref, now=at(3))
    queue.cancel_job(db, child, reason="no", now=at(4))
    queue.retry_job(db, child, reason="yes", now=at(5))
    queue.finish_job(db, claim_one(db, now=6).ref, now=at(7))
    assert verify(db) == []


def test_a_join_committed_between_the_claims_clock_and_its_lock_came_before_the_run(db: Db) -> None:
    enqueue(db, dedup_key="k")
    enqueue(db, dedup_key="k", now=1.5)
    held = claim_one(db, now=1)
    assert held.claimed_at == at(1.5)
    queue.finish_job(db, held.ref, now=at(1.2))
    assert verify(db) == []


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        ("DELETE FROM tasks.ended_attempt", "its attempts are not numbered 1 to claim_count"),
        (
            "UPDATE tasks.job SET attempt_count = attempt_count + 1, claim_count = claim_count + 1",
            "attempt_count is not the number of attempts that were not released",
        ),
        (
            "UPDATE tasks.ended_attempt SET result = 'RELEASED'",
            "it succeeded without a last attempt that did, or the other way round",
        ),
        (
            "UPDATE tasks.job SET coalesced = 1, coalesced_at = finished_at",
            "it succeeded, but was joined after its last run had begun",
        ),
        ("DELETE FROM tasks.job", "attempt without a job"),
    ],
)
def test_damage_is_found_and_named(db: Db, damage: str, rule: str) -> None:
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, now=at(3))
    db.execute(damage.encode())
    assert rule in rules(db)
    assert {violation.job_id for violation in verify(db)} == {held.job_id}


def test_two_runs_of_one_place_at_one_time_are_found(db: Db) -> None:
    for now in (0, 10):
        enqueue(db, now=now, **stamp(Limit("k", 1)))
        queue.finish_job(db, claim_one(db, now=now + 1).ref, now=at(now + 5))
    assert verify(db) == []
    db.execute("UPDATE tasks.ended_attempt SET claimed_at = %s WHERE claimed_at = %s", (at(4), at(11)))
    assert rules(db) == {"more jobs of its limit ran at one time than it allows"}


def test_a_child_that_ran_before_its_parent_had_succeeded_is_found(db: Db) -> None:
    parent = enqueue_and_claim(db)
    child = enqueue(db, INDEX, parents=[parent.job_id], now=2).job_id
    queue.finish_job(db, parent.ref, now=at(3))
    assert claim_one(db, now=4).job_id == child
    assert verify(db) == []
    db.execute("UPDATE tasks.job SET finished_at = %s WHERE job_id = %s", (at(5), parent.job_id))
    assert "it ran before its parents had succeeded" in rules(db)


def test_a_run_after_a_cancellation_that_nobody_took_back_is_found(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.cancel_job(db, held.job_id, reason="no", now=at(2))
    queue.retry_job(db, held.job_id, reason="yes", now=at(3))
    assert len(claim(db, now=4)) == 1
    assert verify(db) == []
    db.execute("DELETE FROM tasks.operation WHERE action = 'retry'")
    assert rules(db) == {"it ran again after an end that only a person may undo, and no person did"}


def test_a_dependency_of_nobody_is_found(db: Db) -> None:
    child = enqueue(db, parents=[enqueue(db).job_id]).job_id
    db.execute("DELETE FROM tasks.job WHERE job_id = %s", (child,))
    assert rules(db) == {"dependency without a job"}
