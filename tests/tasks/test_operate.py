"""What a person does: cancel, set aside, retry, pause, prune; and expiry, which a rule does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tasks import operate, queue
from tasks.errors import ClaimLost, DuplicateJob, JobActive, JobNotFound, JobTerminal, PayloadError
from tasks.job import SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tasks.why import why
from tests.tasks.rows import at, claim, claim_one, endings, enqueue, enqueue_and_claim, status_of

Db = psycopg.Connection[Any]
ENDS = ("cancel_job", "set_aside_job")


def failed(db: Db, **options: Any) -> Any:
    held = enqueue_and_claim(db, attempts_max=1, **options)
    queue.fail_job(db, held.ref, code="BOOM", detail="it broke", retry_delays=[0], now=at(2))
    return held


def test_a_cancelled_waiting_job_is_never_claimed(db: Db) -> None:
    """T6."""
    job_id = enqueue(db).job_id
    queue.cancel_job(db, job_id, reason="sent twice", now=at(1))
    job = queue.get_job(db, job_id)
    assert (job.status, job.cancel_reason, job.finished_at) == ("cancelled", "sent twice", at(1))
    assert claim(db, now=2) == []
    assert why(db, job_id, now=at(2))[0].sentence.endswith("sent twice")


def test_the_token_of_a_cancelled_running_job_dies_at_once(db: Db) -> None:
    """T7; case 34: no write of the attempt is accepted, and cancelled is never followed by a retry."""
    held = enqueue_and_claim(db)
    queue.cancel_job(db, held.job_id, reason="enough", now=at(2))
    assert endings(db, held.job_id) == ["CANCELLED"]
    assert queue.extend_leases(db, [held.ref], now=at(3)) == set()
    with pytest.raises(JobTerminal):
        queue.finish_job(db, held.ref, now=at(3))
    with pytest.raises(JobTerminal):
        queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(3))
    assert sweep(db, now=at(500)) == SweepCounts()
    assert status_of(db, held.job_id) == "cancelled"
    check_invariants(db)


def test_a_job_that_is_set_aside_keeps_what_its_worker_reported_and_says_who_did_it(db: Db) -> None:
    """T10 by a person."""
    held = enqueue_and_claim(db)
    queue.fail_job(db, held.ref, code="BOOM", detail="it broke", retry_delays=[0], now=at(2))
    again = claim_one(db, now=3)
    queue.set_aside_job(db, held.job_id, reason="poison", now=at(4))
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.last_error_code) == ("quarantined", "BOOM")
    assert endings(db, held.job_id) == ["FAILED", "QUARANTINED"]
    assert [(one.action, one.reason, one.at) for one in operate.operations_of(db, held.job_id)] == [
        ("set_aside", "poison", at(4))
    ]
    (reason,) = why(db, held.job_id, now=at(5))
    assert (reason.rule, reason.sentence.endswith("poison")) == ("SET_ASIDE", True)
    with pytest.raises(JobTerminal):
        queue.finish_job(db, again.ref, now=at(5))
    check_invariants(db)


@pytest.mark.parametrize("move", ENDS)
def test_a_job_at_an_end_cannot_be_ended_again(db: Db, move: str) -> None:
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, now=at(2))
    with pytest.raises(JobTerminal):
        getattr(queue, move)(db, held.job_id, reason="no", now=at(3))
    with pytest.raises(JobNotFound):
        getattr(queue, move)(db, uuid4(), reason="no", now=at(3))
    assert status_of(db, held.job_id) == "succeeded"


@pytest.mark.parametrize("reason", ["", "  ", "superseded", "expired", "parent"])
def test_a_person_says_why_in_words_of_their_own(db: Db, reason: str) -> None:
    job_id = enqueue(db).job_id
    for move in (*ENDS, "retry_job"):
        with pytest.raises(PayloadError) as caught:
            getattr(queue, move)(db, job_id, reason=reason)
        assert caught.value.field == "reason"


def test_a_retry_adds_exactly_one_start_to_a_spent_budget_and_keeps_the_history(db: Db) -> None:
    """T11; case 18."""
    held = failed(db)
    queue.retry_job(db, held.job_id, reason="fixed the disk", now=at(3))
    again = claim_one(db, now=3)
    assert (again.job_id, again.attempt_number, again.attempt_count, again.attempts_max) == (held.job_id, 2, 2, 2)
    assert queue.get_job(db, held.job_id).last_error_code == "BOOM"
    queue.fail_job(db, again.ref, code="BOOM", detail="again", retry_delays=[0], now=at(4))
    assert status_of(db, held.job_id) == "failed"
    assert claim(db, now=5) == []
    queue.retry_job(db, held.job_id, reason="once more", now=at(5))
    with pytest.raises(ClaimLost):
        queue.finish_job(db, held.ref, now=at(6))
    assert endings(db, held.job_id) == ["FAILED", "FAILED"]
    check_invariants(db)


def test_a_retry_adds_one_run_to_a_budget_that_is_not_spent(db: Db) -> None:
    held = enqueue_and_claim(db, attempts_max=5)
    queue.quarantine_job(db, held.ref, code="BAD", detail="x", now=at(2))
    queue.retry_job(db, held.job_id, reason="looked at it", now=at(3))
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.attempt_count, job.attempts_max) == ("pending", 1, 6)


def test_a_retry_shows_its_reason(db: Db) -> None:
    held = failed(db)
    queue.retry_job(db, held.job_id, reason="fixed", now=at(3))
    assert [one.reason for one in operate.operations_of(db, held.job_id)] == ["fixed"]


def test_only_a_job_at_an_end_that_is_no_success_can_be_retried(db: Db) -> None:
    waiting = enqueue(db, priority=-1).job_id
    with pytest.raises(JobActive) as caught:
        queue.retry_job(db, waiting, reason="x")
    assert caught.value.status == "pending"
    held = enqueue_and_claim(db)
    with pytest.raises(JobActive):
        queue.retry_job(db, held.job_id, reason="x")
    queue.finish_job(db, held.ref, now=at(2))
    with pytest.raises(JobTerminal):
        queue.retry_job(db, held.job_id, reason="x")
    with pytest.raises(JobNotFound):
        queue.retry_job(db, uuid4(), reason="x")


def test_what_people_did_is_told_in_its_order_and_the_last_of_it_counts(db: Db) -> None:
    job_id = enqueue(db).job_id
    for reason in ("first", "second", "third"):
        operate.set_aside_job(db, job_id, reason=reason, now=at(9))
        queue.retry_job(db, job_id, reason=f"after the {reason}", now=at(9))
    queue.set_aside_job(db, job_id, reason="for good", now=at(9))
    done = [(one.action, one.reason) for one in operate.operations_of(db, job_id)]
    assert done[:2] == [("set_aside", "first"), ("retry", "after the first")]
    assert done[-1] == ("set_aside", "for good")
    assert why(db, job_id)[0].sentence.endswith(": for good")


def test_a_queue_that_is_resumed_rings(committed_db: Db, connect: Callable[[], Db]) -> None:
    listener = connect()
    listener.autocommit = True
    listener.execute("LISTEN tasks")
    operate.pause_queue(committed_db, "slow")
    operate.resume_queue(committed_db, "slow")
    committed_db.commit()
    assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == ["slow"]


def test_a_retry_whose_key_a_pending_job_has_is_refused_and_names_it(db: Db) -> None:
    enqueue(db, dedup_key="another", priority=-1)
    held = failed(db, dedup_key="k")
    heir = enqueue(db, dedup_key="k", now=3).job_id
    with pytest.raises(DuplicateJob, match=str(heir)):
        queue.retry_job(db, held.job_id, reason="x", now=at(4))
    assert status_of(db, held.job_id) == "failed"
    assert operate.operations_of(db, held.job_id) == []


def test_a_superseded_job_can_be_retried_once_its_heir_is_done(db: Db) -> None:
    old = enqueue_and_claim(db, dedup_key="k")
    enqueue(db, dedup_key="k", now=2)
    queue.release_job(db, old.ref, now=at(3))
    queue.finish_job(db, claim_one(db, now=4).ref, now=at(5))
    queue.retry_job(db, old.job_id, reason="to be sure", now=at(6))
    job = queue.get_job(db, old.job_id)
    assert (job.status, job.superseded_by, job.cancel_reason) == ("pending", None, None)
    check_invariants(db)


def test_an_expired_job_is_not_claimed_and_the_sweep_cancels_it(db: Db) -> None:
    job_id = enqueue(db, expires=10.0).job_id
    assert queue.get_job(db, job_id).expires_at == at(10)
    assert claim(db, now=10) == []
    assert why(db, job_id, now=at(10))[0].rule == "EXPIRED"
    assert sweep(db, now=at(10)) == SweepCounts(expired=1)
    job = queue.get_job(db, job_id)
    assert (job.status, job.cancel_reason) == ("cancelled", "expired")
    assert [reason.rule for reason in why(db, job_id, now=at(11))] == ["EXPIRED"]


def test_a_run_that_failed_is_not_repeated_after_the_expiry(db: Db) -> None:
    held = enqueue_and_claim(db, expires_at=at(5))
    queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(5))
    assert claim(db, now=5) == []
    assert sweep(db, now=at(5)) == SweepCounts(expired=1)
    assert "before it could run again" in why(db, held.job_id)[0].sentence


def test_a_job_that_has_started_does_not_expire(db: Db) -> None:
    held = enqueue_and_claim(db, expires_at=at(5))
    assert sweep(db, now=at(6)) == SweepCounts()
    queue.finish_job(db, held.ref, now=at(7))
    assert status_of(db, held.job_id) == "succeeded"


def test_a_retry_lifts_an_expiry_that_is_over(db: Db) -> None:
    job_id = enqueue(db, expires=10.0).job_id
    sweep(db, now=at(10))
    queue.retry_job(db, job_id, reason="still wanted", now=at(20))
    assert sweep(db, now=at(21)) == SweepCounts()
    assert claim_one(db, now=21).job_id == job_id


@pytest.mark.parametrize(
    ("mine", "its", "then"), [(10.0, 20.0, 20.0), (20.0, 10.0, 20.0), (10.0, None, None), (None, 10.0, None)]
)
def test_a_join_takes_the_later_expiry(db: Db, mine: float | None, its: float | None, then: float | None) -> None:
    job_id = enqueue(db, dedup_key="k", expires=mine).job_id
    enqueue(db, dedup_key="k", expires=its)
    assert queue.get_job(db, job_id).expires_at == (None if then is None else at(then))


def test_a_paused_queue_is_not_claimed_from_and_why_says_so(db: Db) -> None:
    job_id = enqueue(db).job_id
    other = enqueue(db, queue="other").job_id
    operate.pause_queue(db, "default", reason="disk full", now=at(1))
    assert [held.job_id for held in claim(db, now=2, limit=9, queues=["default", "other"])] == [other]
    reason = why(db, job_id, now=at(2))[0]
    assert (reason.rule, reason.sentence.endswith("disk full")) == ("QUEUE_PAUSED", True)
    assert operate.resume_queue(db, "default")
    assert not operate.resume_queue(db, "default")
    assert claim_one(db, now=3).job_id == job_id


def test_queues_are_listed_with_what_waits_and_runs_in_them(db: Db) -> None:
    enqueue(db, now=0)
    enqueue(db, now=0, countdown=60.0)
    enqueue(db, queue="busy")
    claim_one(db, now=1, queues=["busy"])
    operate.pause_queue(db, "empty", now=at(1))
    rows = [(r.queue, r.paused_at, r.pending, r.due, r.running) for r in operate.list_queues(db, now=at(2))]
    assert rows == [("busy", None, 0, 0, 1), ("default", None, 2, 1, 0), ("empty", at(1), 0, 0, 0)]


def test_pruning_deletes_what_ended_long_enough_ago_with_its_attempts_in_bites(db: Db) -> None:
    keep = {"succeeded": 100.0, "failed": 1000.0}
    done = []
    for n in range(3):
        held = enqueue_and_claim(db, now=n * 10)
        queue.finish_job(db, held.ref, now=at(n * 10 + 2))
        done.append(held.job_id)
    bad = failed(db).job_id
    waiting = enqueue(db).job_id
    assert operate.prune_jobs(db, keep=keep, limit=1, now=at(112)) == 1
    assert operate.prune_jobs(db, keep=keep, limit=10, now=at(112)) == 1
    assert operate.prune_jobs(db, keep=keep, limit=10, now=at(112)) == 0
    assert {job.job_id for job in queue.list_jobs(db)} == {done[2], bad, waiting}
    assert {row[0] for row in db.execute("SELECT job_id FROM tasks.attempt")} == {done[2], bad}
    check_invariants(db)


def test_pruning_keeps_a_key_that_is_unique_for_ever(db: Db) -> None:
    held = enqueue_and_claim(db, dedup_key="k", dedup_mode="once")
    queue.finish_job(db, held.ref, now=at(2))
    assert operate.prune_jobs(db, now=at(10**8)) == 0
    assert operate.prune_jobs(db, forget_once=True, now=at(10**8)) == 1


def test_pruning_keeps_a_parent_while_a_child_waits(db: Db) -> None:
    parent = enqueue_and_claim(db)
    queue.finish_job(db, parent.ref, {"n": 1}, now=at(2))
    child = enqueue(db, parents=[parent.job_id], countdown=10**7, now=2).job_id
    assert operate.prune_jobs(db, now=at(10**7)) == 0
    assert claim_one(db, now=10**7 + 3).job_id == child
    assert operate.prune_jobs(db, now=at(10**7 + 4)) == 0, "it reads its parent's result while it runs"


def test_pruning_takes_the_longest_ended_first_and_leaves_what_belongs_to_others(db: Db) -> None:
    late, early = enqueue_and_claim(db), enqueue_and_claim(db)
    for held, now in ((early, 2), (late, 3)):
        queue.finish_job(db, held.ref, now=at(now))
    child = enqueue(db, parents=[early.job_id], now=4).job_id
    parent = enqueue(db, now=4).job_id
    waiting = enqueue(db, parents=[parent], now=4).job_id
    for job_id in (child, waiting):
        queue.set_aside_job(db, job_id, reason="look at it", now=at(4))
    queue.retry_job(db, waiting, reason="go on", now=at(4))
    keep = {"succeeded": 10.0, "quarantined": 10.0}
    left = []
    for _ in range(3):
        assert operate.prune_jobs(db, keep=keep, limit=1, now=at(50)) == 1
        left.append({job.job_id for job in queue.list_jobs(db)})
    assert left == [{late.job_id, child, parent, waiting}, {child, parent, waiting}, {parent, waiting}]
    assert db.execute("SELECT child_id FROM tasks.dependency").fetchall() == [(waiting,)]
    assert db.execute("SELECT DISTINCT job_id FROM tasks.operation").fetchall() == [(waiting,)]
    check_invariants(db)


@pytest.mark.parametrize("keep", [{"pending": 1.0}, {"succeeded": -1.0}])
def test_pruning_refuses_nonsense(db: Db, keep: dict[str, float]) -> None:
    with pytest.raises(PayloadError):
        operate.prune_jobs(db, keep=keep)
