"""`why`: a reason for each rule, from the predicates of the claim itself."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasks import queue, workers
from tasks.errors import JobNotFound
from tasks.job import WorkerInfo
from tasks.why import Reason, jobs_ahead, why
from tests.tasks.rows import INDEX, PREBUILD, TASKS, at, claim_one, enqueue, enqueue_and_claim

Db = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def _a_live_worker(db: Db) -> None:
    workers.register_worker(db, WorkerInfo("w", "host", 1, ["default"], list(TASKS)), now=at(0))


def rules(db: Db, job_id: Any, *, now: float = 1.0) -> list[str]:
    return [reason.rule for reason in why(db, job_id, now=at(now))]


def only(db: Db, job_id: Any, *, now: float = 1.0) -> Reason:
    (reason,) = why(db, job_id, now=at(now))
    return reason


def test_a_claimable_job_has_no_reason(db: Db) -> None:
    assert why(db, enqueue(db).job_id, now=at(1)) == []


def test_before_a_job_come_the_due_ones_of_its_queue_in_the_order_of_the_claim(db: Db) -> None:
    blocker = enqueue(db, INDEX, now=0, scope="r", queue="other").job_id
    parked = enqueue(db, now=0, scope="r", after_tasks=(INDEX,)).job_id
    assert claim_one(db, tasks=[INDEX, "gc"], queues=["default", "other"]).job_id == blocker
    running = enqueue_and_claim(db, now=1)
    before = [enqueue(db, now=5, priority=1).job_id, enqueue(db, now=1).job_id, enqueue(db, now=2).job_id]
    mine = enqueue(db, now=2).job_id
    enqueue(db, now=0, queue="other")
    enqueue(db, now=0, countdown=100.0)
    enqueue(db, now=2)
    enqueue(db, now=0, priority=-1)
    assert [jobs_ahead(db, job_id, now=at(6)) for job_id in (*before, mine)] == [0, 1, 2, 3]
    assert jobs_ahead(db, running.job_id, now=at(6)) == 0
    assert queue.get_job(db, parked).lane == "parked"


def test_a_job_that_is_not_due_says_when(db: Db) -> None:
    reason = only(db, enqueue(db, countdown=10.0).job_id, now=4)
    assert (reason.rule, reason.details["available_at"], reason.details["seconds"]) == ("NOT_DUE", at(10), 6)
    assert reason.sentence == "it is due in 6.0 s, at 2030-01-01T00:00:10+00:00"


def test_a_job_that_waits_for_its_retry_names_the_error(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.fail_job(db, held.ref, code="BOOM", detail="x", retry_delays=[60], now=at(2))
    assert only(db, held.job_id, now=3).sentence.endswith("after BOOM")


def test_a_gated_job_names_its_blocker_and_since_when(db: Db) -> None:
    index = enqueue(db, INDEX, scope="r").job_id
    prebuild = enqueue(db, PREBUILD, scope="r", after_tasks=(INDEX,)).job_id
    reason = only(db, prebuild)
    assert reason.rule == "GATE_SHUT"
    assert reason.sentence == (
        f"its gate is shut by job {index} (mpack.index), pending since 2030-01-01T00:00:00+00:00"
    )
    held = claim_one(db, now=5, tasks=[INDEX])
    assert only(db, prebuild, now=6).details == {
        "job_id": str(index), "task": INDEX, "status": "running", "since": at(5), "blockers": 1, "passed": 0,
    }  # fmt: skip
    queue.finish_job(db, held.ref, now=at(6))
    assert why(db, prebuild, now=at(7)) == []


def test_of_many_blockers_one_is_named_and_the_others_are_counted(db: Db) -> None:
    for _ in range(3):
        enqueue(db, INDEX, scope="r")
    prebuild = enqueue(db, PREBUILD, scope="r", after_tasks=(INDEX,)).job_id
    reason = only(db, prebuild)
    assert reason.sentence.endswith("and 2 more")
    assert reason.details["blockers"] == 3


def test_what_has_come_and_gone_are_jobs_of_the_gates_tasks_in_its_scope(db: Db) -> None:
    prebuild = enqueue(db, PREBUILD, scope="r", after_tasks=(INDEX,)).job_id
    for task, scope in ((INDEX, "r"), ("gc", "r"), (INDEX, "other")):
        queue.finish_job(db, enqueue_and_claim(db, task, scope=scope).ref, now=at(2))
    enqueue(db, INDEX, scope="r")
    assert only(db, prebuild, now=3).details["passed"] == 1


def test_a_waiting_child_names_its_own_parent_and_a_failed_one_first(db: Db) -> None:
    failed = enqueue_and_claim(db)
    queue.fail_job(db, failed.ref, code="X", detail="x", retry_delays=None, now=at(2))
    waiting, other = enqueue(db).job_id, enqueue(db).job_id
    enqueue(db, parents=[other])
    child = enqueue(db, parents=[waiting, failed.job_id], on_parent_failure="stay").job_id
    reason = only(db, child, now=3)
    assert (reason.rule, reason.details["parent_id"]) == ("PARENT_FAILED", str(failed.job_id))
    queue.retry_job(db, failed.job_id, reason="again", now=at(3))
    assert only(db, child, now=3).details["parent_id"] == str(waiting)


def test_a_running_job_tells_its_own_lease(db: Db) -> None:
    enqueue_and_claim(db, lease_seconds=500.0)
    mine = enqueue_and_claim(db, lease_seconds=60.0)
    enqueue_and_claim(db, lease_seconds=700.0)
    assert only(db, mine.job_id, now=11).details["lease_left_seconds"] == 50


def test_every_reason_is_given(db: Db) -> None:
    enqueue(db, INDEX, scope="r")
    job_id = enqueue(db, "unheard.of", scope="r", countdown=9.0, after_tasks=(INDEX,)).job_id
    assert rules(db, job_id) == ["NOT_DUE", "GATE_SHUT", "TASK_UNKNOWN"]


def test_a_task_that_no_live_worker_knows_is_told(db: Db) -> None:
    job_id = enqueue(db, "unheard.of").job_id
    assert only(db, job_id).sentence == "no live worker knows the task unheard.of"


def test_a_worker_that_has_gone_silent_does_not_count(db: Db) -> None:
    job_id = enqueue(db).job_id
    assert rules(db, job_id, now=59) == []
    assert rules(db, job_id, now=61) == ["TASK_UNKNOWN"]


def test_a_queue_that_no_such_worker_serves_is_told(db: Db) -> None:
    workers.register_worker(db, WorkerInfo("v", "host", 2, ["slow"], ["other"]), now=at(0))
    assert rules(db, enqueue(db, queue="slow").job_id) == ["QUEUE_UNSERVED"]


def test_a_running_job_says_by_whom_and_for_how_long(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    queue.save_progress(db, held.ref, {"done": 1})
    queue.extend_leases(db, [held.ref], now=at(11))
    reason = only(db, held.job_id, now=21)
    assert reason.rule == "LEASED"
    assert reason.details == {
        "worker": "worker-1", "attempt": 1, "lease_left_seconds": 50, "heartbeat_age_seconds": 10,
        "running_seconds": 20, "progress": {"done": 1},
    }  # fmt: skip


def test_a_running_job_whose_lease_is_over_says_so(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    reason = only(db, held.job_id, now=71)
    assert reason.rule == "LEASE_OVER"
    assert "has been over for 10.0 s" in reason.sentence
    assert reason.sentence.endswith("the next sweep takes it back")


def test_a_job_at_an_end_names_the_rule_that_ended_it(db: Db) -> None:
    def ended(how: str) -> list[str]:
        held = enqueue_and_claim(db, attempts_max=1 if "spent" in how else 5, postpones_max=0, dedup_key=how)
        if how == "superseded":
            enqueue(db, dedup_key=how, priority=-1, now=2)
        {
            "succeeded": lambda: queue.finish_job(db, held.ref, now=at(2)),
            "not retryable": lambda: queue.fail_job(
                db, held.ref, code="BAD", detail="no", retry_delays=None, now=at(2)
            ),
            "spent": lambda: queue.fail_job(db, held.ref, code="BAD", detail="no", retry_delays=[0], now=at(2)),
            "spent by the sweep": lambda: queue.sweep_expired(db, now=at(100)),
            "postponed": lambda: queue.release_job(db, held.ref, postpone=True, now=at(2)),
            "quarantined": lambda: queue.quarantine_job(db, held.ref, code="BAD", detail="no", now=at(2)),
            "superseded": lambda: queue.release_job(db, held.ref, now=at(2)),
        }[how]()
        return rules(db, held.job_id, now=101)

    assert ended("succeeded") == ["SUCCEEDED"]
    assert ended("not retryable") == ["NOT_RETRYABLE"]
    assert ended("spent") == ["BUDGET_SPENT"]
    assert ended("spent by the sweep") == ["BUDGET_SPENT"]
    assert ended("postponed") == ["POSTPONED_TOO_OFTEN"]
    assert ended("quarantined") == ["QUARANTINED"]
    assert ended("superseded") == ["SUPERSEDED"]


def test_a_job_that_is_not_there_is_not_found(db: Db) -> None:
    with pytest.raises(JobNotFound):
        why(db, uuid4(), now=at(0))
