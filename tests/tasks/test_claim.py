"""T1: order, batches, what is not claimable, the attempt that a claim opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from tasks import queue
from tasks.db import statement
from tests.tasks.rows import INDEX, PLANNER, at, claim, claim_one, endings, enqueue, enqueue_and_claim, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

Db = psycopg.Connection[Any]


def test_order_is_priority_then_creation_then_insertion(db: Db) -> None:
    late = enqueue(db, now=5, queue="default").job_id
    first, second, third = (enqueue(db, now=0).job_id for _ in range(3))
    urgent = enqueue(db, now=9, priority=1).job_id
    claimed = [job.job_id for job in claim(db, now=10, limit=10)]
    assert claimed == [urgent, first, second, third, late]


def test_a_tier_is_for_order_only(db: Db) -> None:
    second = enqueue(db, tier=1).job_id
    first = enqueue(db, now=0.5).job_id
    assert [job.job_id for job in claim(db, now=0.5, limit=10)] == [first, second]


def test_an_older_job_committed_late_is_claimed_next(committed_db: Db, connect: Callable[[], Db]) -> None:
    slow, quick = connect(), committed_db
    old = enqueue(slow, now=0).job_id
    done = enqueue(quick, now=1).job_id
    enqueue(quick, now=2)
    quick.commit()
    assert claim_one(quick, now=3).job_id == done
    slow.commit()
    assert claim_one(quick, now=3).job_id == old


def test_a_batch_is_no_larger_than_asked_and_holds_each_job_once(db: Db) -> None:
    jobs = [enqueue(db, now=n / 10).job_id for n in range(5)]
    assert [job.job_id for job in claim(db, limit=3)] == jobs[:3]
    assert [job.job_id for job in claim(db, limit=3)] == jobs[3:]
    assert claim(db, limit=3) == []


def test_a_claim_of_nothing_asks_nothing(db: Db) -> None:
    enqueue(db)
    assert claim(db, limit=0) == claim(db, tasks=[]) == claim(db, queues=[]) == []


def test_a_job_is_due_at_its_time_and_not_before(db: Db) -> None:
    enqueue(db, countdown=10.0)
    assert claim(db, now=9.999) == []
    assert len(claim(db, now=10)) == 1


def test_a_worker_claims_only_tasks_that_it_knows(db: Db) -> None:
    job_id = enqueue(db, "unheard.of").job_id
    assert claim(db) == []
    assert status_of(db, job_id) == "pending"


def test_a_worker_claims_only_from_its_queues(db: Db) -> None:
    enqueue(db, queue="slow")
    assert claim(db) == []
    assert len(claim(db, queues=["default", "slow"])) == 1


def test_a_claim_shows_the_row_and_opens_the_attempt(db: Db) -> None:
    job_id = enqueue(db, INDEX, scope="r", kwargs={"a": 1}, lease_seconds=30.0).job_id
    held = claim_one(db, now=2, worker="w")
    job, (attempt,) = queue.get_job(db, job_id), queue.attempts_of(db, job_id)
    assert (held.payload, held.scope) == ({"args": [], "kwargs": {"a": 1}}, "r")
    assert (job.claim_token, job.claimed_by, job.claimed_at) == (held.claim_token, "w", at(2))
    assert job.lease_expires_at == held.lease_expires_at == at(32)
    assert (job.attempt_count, job.claim_count, job.started_at) == (1, 1, at(2))
    assert (attempt.claim_token, attempt.number, attempt.worker) == (held.claim_token, 1, "w")
    assert (attempt.claimed_at, attempt.ended_at, attempt.result) == (at(2), None, None)


def test_every_claim_has_a_token_of_its_own_and_the_next_number(db: Db) -> None:
    tokens = set()
    held = enqueue_and_claim(db, attempts_max=3)
    for number in (1, 2, 3):
        assert (held.attempt_number, held.attempt_count) == (number, number)
        tokens.add(held.claim_token)
        if number < 3:
            queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(number))
            held = claim_one(db, now=number)
    assert len(tokens) == 3


def test_the_number_of_an_attempt_is_never_given_back(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.release_job(db, held.ref, now=at(2))
    again = claim_one(db, now=3)
    assert (again.attempt_number, again.attempt_count) == (2, 1)
    assert endings(db, held.job_id) == ["RELEASED", None]


def test_a_heartbeat_extends_the_lease_by_its_length_and_never_shortens_it(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    assert queue.extend_leases(db, [held.ref], now=at(31)) == {held.claim_token}
    assert queue.get_job(db, held.job_id).lease_expires_at == at(91)
    assert queue.extend_leases(db, [held.ref], now=at(2)) == {held.claim_token}
    job = queue.get_job(db, held.job_id)
    assert (job.lease_expires_at, job.heartbeat_at) == (at(91), at(31))


def test_a_heartbeat_tells_which_claims_are_lost(db: Db) -> None:
    kept, lost = enqueue_and_claim(db), enqueue_and_claim(db)
    queue.release_job(db, lost.ref, now=at(2))
    assert queue.extend_leases(db, [kept.ref, lost.ref], now=at(3)) == {kept.claim_token}
    assert queue.extend_leases(db, [], now=at(3)) == set()


def test_a_heartbeat_waits_for_nobody_and_still_counts_a_locked_claim_as_held(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    busy, idle = enqueue_and_claim(committed_db), enqueue_and_claim(committed_db)
    committed_db.commit()
    task, beat = connect(), connect()
    queue.save_progress(task, busy.ref, {"done": 1})
    beat.execute("SET lock_timeout = '1ms'")
    held = queue.extend_leases(beat, [busy.ref, idle.ref], now=at(10))
    beat.commit()
    task.commit()
    assert held == {busy.claim_token, idle.claim_token}
    assert queue.get_job(committed_db, idle.job_id).heartbeat_at == at(10)
    assert queue.get_job(committed_db, busy.job_id).heartbeat_at == at(1)


def test_a_claim_leaves_the_planners_settings_as_they_were(db: Db) -> None:
    db.execute("SET LOCAL jit = 'on'")
    enqueue(db, INDEX, scope="r")
    enqueue(db, "gc", scope="r", after_tasks=(INDEX,))
    claim(db, limit=5)
    assert db.execute("SELECT current_setting('enable_seqscan'), current_setting('jit')").fetchone() == ("on", "on")


def test_claims_find_their_plan_in_the_partial_index(db: Db) -> None:
    db.execute(
        "INSERT INTO tasks.job (job_id, task, scope, payload, created_at, available_at, lease_seconds, attempts_max,"
        " postpones_max, status, finished_at) SELECT gen_random_uuid(), 'gc', 's' || n, '{}', now(), now(), 60, 5, 100,"
        " CASE WHEN n % 10 = 0 THEN 'pending' ELSE 'succeeded' END, CASE WHEN n % 10 > 0 THEN now() END"
        " FROM generate_series(1, 20000) AS n"
    )
    db.execute("ANALYZE tasks.job")
    params = {
        "worker": "w",
        "tasks": ["gc"],
        "queues": ["default"],
        "limit": 100,
        "now": None,
        "admitted": [],
        **PLANNER,
    }
    text = statement("claim_jobs")
    plan = "\n".join(row[0] for row in db.execute(b"EXPLAIN " + text, params))
    assert "Index Scan using job_claim" in plan
    assert "Index Scan using job_blocker" in plan
    assert "Index Scan using job_pkey" in plan
