"""T2, T3, T4, T8, T9, T10: what the holder of a token may write, and that nobody else may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from tasks import queue
from tasks.errors import ClaimLost, JobNotFound, JobTerminal, PayloadError
from tasks.job import Ref
from tests.tasks.rows import (
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
    from collections.abc import Callable

Db = psycopg.Connection[Any]


def fail(db: Db, ref: Ref, *, now: float = 2.0, delays: list[float] | None = None, **options: Any) -> str:
    given = {"code": "BOOM", "detail": "it broke", **options}
    return queue.fail_job(db, ref, retry_delays=[0.0] if delays is None else delays, now=at(now), **given)


WRITES: dict[str, Callable[[Db, Ref], object]] = {
    "progress": lambda db, ref: queue.save_progress(db, ref, {"done": 1}, now=at(90)),
    "finish": lambda db, ref: queue.finish_job(db, ref, {"n": 1}, now=at(90)),
    "fail": lambda db, ref: fail(db, ref, now=90),
    "fail for good": lambda db, ref: queue.fail_job(db, ref, code="X", detail="x", retry_delays=None, now=at(90)),
    "release": lambda db, ref: queue.release_job(db, ref, now=at(90)),
    "postpone": lambda db, ref: queue.release_job(db, ref, delay=5, postpone=True, now=at(90)),
    "quarantine": lambda db, ref: queue.quarantine_job(db, ref, code="X", detail="x", now=at(90)),
}


def test_finish_ends_the_job_and_closes_the_attempt(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, {"blobs": [1, None]}, now=at(3))
    job, (attempt,) = queue.get_job(db, held.job_id), queue.attempts_of(db, held.job_id)
    assert (job.status, job.finished_at, job.result) == ("succeeded", at(3), {"blobs": [1, None]})
    assert (attempt.result, attempt.ended_at) == ("SUCCEEDED", at(3))


def test_success_clears_the_last_error(db: Db) -> None:
    held = enqueue_and_claim(db)
    fail(db, held.ref)
    queue.finish_job(db, claim_one(db, now=3).ref, now=at(4))
    job = queue.get_job(db, held.job_id)
    assert (job.last_error_code, job.last_error, job.last_error_at) == (None, None, None)


def test_no_end_lies_before_the_start(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.finish_job(db, held.ref, now=at(-5))
    job, (attempt,) = queue.get_job(db, held.job_id), queue.attempts_of(db, held.job_id)
    assert job.finished_at == attempt.ended_at == job.started_at == at(1)


def test_a_late_success_before_the_sweep_is_accepted(db: Db) -> None:
    held = enqueue_and_claim(db, lease_seconds=60.0)
    queue.finish_job(db, held.ref, now=at(500))
    assert status_of(db, held.job_id) == "succeeded"


def test_many_are_finished_at_once_and_the_lost_ones_are_told_apart(db: Db) -> None:
    first, lost, last = (enqueue_and_claim(db) for _ in range(3))
    queue.release_job(db, lost.ref, now=at(2))
    results = [(first.ref, 1), (lost.ref, 2), (last.ref, None)]
    assert queue.finish_jobs(db, results, now=at(3)) == {first.claim_token, last.claim_token}
    assert [queue.get_job(db, job.job_id).result for job in (first, lost, last)] == [1, None, None]
    assert queue.finish_jobs(db, [], now=at(3)) == set()


@pytest.mark.parametrize("result", ["x\x00", {"a": "\ud800"}, {1: 2}, object(), "x" * 70_000, float("inf")])
def test_a_result_that_cannot_be_stored_is_refused_before_any_sql(db: Db, result: object) -> None:
    held = enqueue_and_claim(db)
    with pytest.raises(PayloadError, match="^result"):
        queue.finish_job(db, held.ref, result, now=at(2))
    assert status_of(db, held.job_id) == "running"


def test_a_retryable_failure_goes_back_and_comes_again_after_its_delay(db: Db) -> None:
    held = enqueue_and_claim(db, attempts_max=3)
    assert fail(db, held.ref, now=2, delays=[10.0, 20.0]) == "retry"
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.available_at, job.attempt_count) == ("pending", at(12), 1)
    assert (job.last_error_code, job.last_error, job.last_error_at) == ("BOOM", "it broke", at(2))
    (attempt,) = queue.attempts_of(db, held.job_id)
    assert (attempt.result, attempt.error_code, attempt.error) == ("FAILED", "BOOM", "it broke")
    assert claim(db, now=11) == []
    assert fail(db, claim_one(db, now=12).ref, now=13, delays=[10.0, 20.0]) == "retry"
    assert queue.get_job(db, held.job_id).available_at == at(33)


def test_the_last_delay_goes_on_for_ever(db: Db) -> None:
    held = enqueue_and_claim(db, attempts_max=4)
    for now in (2, 3):
        fail(db, held.ref, now=now, delays=[0.0])
        held = claim_one(db, now=now)
    fail(db, held.ref, now=4, delays=[1.0, 7.0])
    assert queue.get_job(db, held.job_id).available_at == at(11)


def test_jitter_stays_within_its_spread(db: Db) -> None:
    waits = []
    for _ in range(20):
        held = enqueue_and_claim(db)
        fail(db, held.ref, now=2, delays=[100.0], spread=0.25)
        waits.append((queue.get_job(db, held.job_id).available_at - at(2)).total_seconds())
    assert all(75 <= wait <= 125 for wait in waits)
    assert len(set(waits)) > 1


@pytest.mark.parametrize("budget", [1, 2, 25])
def test_a_job_starts_exactly_as_often_as_its_budget_says(db: Db, budget: int) -> None:
    """Case 18."""
    held = enqueue_and_claim(db, attempts_max=budget)
    for run in range(1, budget):
        assert fail(db, held.ref, now=run) == "retry"
        held = claim_one(db, now=run)
    assert fail(db, held.ref, now=99) == "failed"
    assert claim(db, now=1000) == []
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.finished_at, job.attempt_count) == ("failed", at(99), budget)
    assert endings(db, held.job_id) == ["FAILED"] * budget


def test_a_failure_that_is_not_retryable_is_the_end(db: Db) -> None:
    held = enqueue_and_claim(db)
    assert queue.fail_job(db, held.ref, code="BAD", detail="no", retry_delays=None, now=at(2)) == "failed"
    assert status_of(db, held.job_id) == "failed"


def test_many_fail_at_once_each_by_its_own_budget_and_the_lost_ones_are_told_apart(db: Db) -> None:
    for budget in (1, 2, 2):
        enqueue(db, attempts_max=budget)
    spent, back, lost = claim(db, limit=3)
    queue.finish_job(db, lost.ref, now=at(2))
    failures = [queue.Failure(held.ref, "BOOM", f"broke {held.attempts_max}", [5.0]) for held in (spent, back, lost)]
    assert queue.fail_jobs(db, failures, now=at(3)) == {spent.claim_token: "failed", back.claim_token: "retry"}
    assert [queue.get_job(db, held.job_id).last_error for held in (spent, back, lost)] == ["broke 1", "broke 2", None]
    assert endings(db, spent.job_id) == endings(db, back.job_id) == ["FAILED"]
    assert queue.get_job(db, back.job_id).available_at == at(8)
    assert queue.fail_jobs(db, []) == {}


def test_of_many_that_fail_one_whose_key_is_taken_meanwhile_does_not_hurt_the_others(db: Db) -> None:
    first = enqueue_and_claim(db, dedup_key="k")
    second = enqueue_and_claim(db, dedup_key="k")
    other = enqueue_and_claim(db)
    failures = [queue.Failure(held.ref, "BOOM", "it broke", [0.0]) for held in (first, other, second)]
    outcomes = queue.fail_jobs(db, failures, now=at(3))
    assert outcomes == {first.claim_token: "retry", other.claim_token: "retry", second.claim_token: "superseded"}
    assert queue.get_job(db, second.job_id).superseded_by == first.job_id


def test_error_text_is_made_storable_and_cut_with_a_mark(db: Db) -> None:
    held = enqueue_and_claim(db)
    fail(db, held.ref, detail="a\x00\x07\x9b\tb\nc\ud800" + "x" * 5_000_000)
    (attempt,) = queue.attempts_of(db, held.job_id)
    assert attempt.error is not None
    assert attempt.error.startswith("a\tb\nc\\ud800xxx")
    assert attempt.error.endswith("x… [cut]")
    assert len(attempt.error) == 2048


def test_an_error_code_is_well_formed(db: Db) -> None:
    held = enqueue_and_claim(db)
    with pytest.raises(PayloadError, match="^code"):
        fail(db, held.ref, code="not a code")


def test_release_gives_the_attempt_back(db: Db) -> None:
    held = enqueue_and_claim(db, attempts_max=1)
    assert queue.release_job(db, held.ref, delay=5, now=at(2)) == "released"
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.attempt_count, job.claim_count) == ("pending", 0, 1)
    assert (job.available_at, job.postpone_count, job.last_error) == (at(7), 0, None)
    assert endings(db, held.job_id) == ["RELEASED"]


def test_postponing_has_a_bound_of_its_own(db: Db) -> None:
    held = enqueue_and_claim(db, attempts_max=1, postpones_max=2)
    for now in (2, 3):
        assert queue.release_job(db, held.ref, postpone=True, now=at(now)) == "released"
        held = claim_one(db, now=now)
    assert queue.release_job(db, held.ref, postpone=True, now=at(4)) == "failed"
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.last_error_code) == ("failed", "POSTPONED_TOO_OFTEN")
    assert (job.attempt_count, job.postpone_count, job.claim_count) == (1, 2, 3)
    assert endings(db, held.job_id) == ["RELEASED", "RELEASED", "FAILED"]


def test_a_release_without_postponing_has_no_bound(db: Db) -> None:
    held = enqueue_and_claim(db, postpones_max=0)
    assert queue.release_job(db, held.ref, now=at(2)) == "released"


def test_quarantine_keeps_the_evidence(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.quarantine_job(db, held.ref, code="CORRUPT_PACK", detail="digest differs", now=at(2))
    job, (attempt,) = queue.get_job(db, held.job_id), queue.attempts_of(db, held.job_id)
    assert (job.status, job.finished_at, job.last_error_code) == ("quarantined", at(2), "CORRUPT_PACK")
    assert (attempt.result, attempt.error) == ("QUARANTINED", "digest differs")


def test_progress_is_stored_and_the_job_goes_on(db: Db) -> None:
    held = enqueue_and_claim(db)
    queue.save_progress(db, held.ref, {"done": 3, "total": 9}, now=at(2))
    job = queue.get_job(db, held.job_id)
    assert (job.status, job.progress) == ("running", {"done": 3, "total": 9})


@pytest.mark.parametrize("put_back", ["fail", "release", "postpone"])
def test_a_put_back_whose_key_is_taken_is_superseded(db: Db, put_back: str) -> None:
    """T8; cases 4 and 5."""
    old = enqueue_and_claim(db, dedup_key="k")
    heir = enqueue(db, dedup_key="k", now=2).job_id
    assert WRITES[put_back](db, old.ref) == "superseded"
    job = queue.get_job(db, old.job_id)
    assert (job.status, job.cancel_reason, job.superseded_by) == ("cancelled", "superseded", heir)
    assert job.finished_at == at(90)
    assert endings(db, old.job_id) == ["FAILED" if put_back == "fail" else "RELEASED"]
    assert job.attempt_count == (1 if put_back == "fail" else 0)
    assert status_of(db, heir) == "pending"


def test_a_spent_budget_comes_before_a_taken_key(db: Db) -> None:
    old = enqueue_and_claim(db, dedup_key="k", attempts_max=1)
    enqueue(db, dedup_key="k", now=2)
    assert fail(db, old.ref) == "failed"


def test_the_key_of_another_task_supersedes_nothing(db: Db) -> None:
    old = enqueue_and_claim(db, dedup_key="k")
    enqueue(db, "mpack.index", dedup_key="k", now=2)
    assert fail(db, old.ref) == "retry"


@pytest.mark.parametrize("write", WRITES)
def test_stale_claim_cannot_write_while_the_job_waits(db: Db, write: str) -> None:
    stale = enqueue_and_claim(db)
    queue.release_job(db, stale.ref, now=at(2))
    _refused(db, write, stale.ref, ClaimLost)


@pytest.mark.parametrize("write", WRITES)
def test_stale_claim_cannot_write_on_a_newer_attempt(db: Db, write: str) -> None:
    """Case 2: a guard on `status = running` alone would let all of these through."""
    stale = enqueue_and_claim(db, lease_seconds=60.0)
    queue.sweep_expired(db, now=at(61))
    claim_one(db, now=62, worker="worker-2")
    _refused(db, write, stale.ref, ClaimLost)
    assert queue.extend_leases(db, [stale.ref], now=at(90)) == set()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "quarantined"])
def test_nobody_writes_on_a_job_at_an_end(db: Db, write: str, end: str) -> None:
    held = enqueue_and_claim(db, dedup_key="k")
    if end == "cancelled":
        enqueue(db, dedup_key="k", now=2)
    {
        "succeeded": WRITES["finish"],
        "failed": WRITES["fail for good"],
        "cancelled": WRITES["release"],
        "quarantined": WRITES["quarantine"],
    }[end](db, held.ref)
    assert status_of(db, held.job_id) == end
    _refused(db, write, held.ref, JobTerminal)


@pytest.mark.parametrize("write", WRITES)
def test_a_job_that_is_not_there_is_not_found(db: Db, write: str) -> None:
    _refused(db, write, Ref(uuid4(), uuid4()), JobNotFound)


@pytest.mark.parametrize("write", WRITES)
def test_the_token_of_one_job_opens_no_other(db: Db, write: str) -> None:
    mine, other = enqueue_and_claim(db), enqueue_and_claim(db)
    _refused(db, write, Ref(other.job_id, mine.claim_token), ClaimLost)


def _refused(db: Db, write: str, ref: Ref, error: type[Exception]) -> None:
    before = everything(db)
    with pytest.raises(error):
        WRITES[write](db, ref)
    assert everything(db) == before
