"""Claims ahead and batched ends, step by step: here the test is the slot, so that nothing happens by chance."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psycopg
import pytest

import tasks
from tasks import flow as flowing
from tasks import operate, queue
from tasks.attempt import Ended
from tasks.holding import Held
from tasks.sweep import sweep
from tasks.testing import check_invariants, drain
from tests.tasks.running import WAIT_SECONDS, Stop, endings, job_row, later, make_app, wait_until_idle

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    app = make_app(database_url, committed_db)
    app.task("note", max_attempts=1)(lambda number: number)
    app.task("bad", max_attempts=1)(lambda: {1})
    return app


@pytest.fixture
def worker(app: tasks.App, committed_db: Connection) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, concurrency=3) as worker:
        yield worker
    check_invariants(committed_db)


def enqueue(app: tasks.App, conn: Connection, *names: str) -> list[Any]:
    found = [app[name].delay(*([number] if name == "note" else [])).id for number, name in enumerate(names)]
    conn.commit()
    return found


def claimed(worker: tasks.Worker) -> list[Held]:
    worker.tick()
    return worker._flow.slots.take_back()


def run(worker: tasks.Worker, claims: list[Held]) -> list[Ended]:
    return [worker._flow._attempts.run(held) for held in claims]


def statuses(conn: Connection, ids: list[Any]) -> list[str]:
    return [job_row(conn, job_id)["status"] for job_id in ids]


def test_many_short_jobs_share_their_commits(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    jobs = enqueue(app, committed_db, *["note"] * 400)
    worker.start_slots()
    worker.tick()
    while statuses(committed_db, jobs[-1:]) != ["succeeded"]:
        committed_db.execute("SELECT pg_sleep(0.02)")
    wait_until_idle(worker)
    # One statement, one instant.
    row = committed_db.execute(
        "SELECT count(DISTINCT ended_at), count(DISTINCT claimed_at), count(*) FROM tasks.attempt"
    )
    finishes, claims, attempts = row.fetchone() or (0, 0, 0)
    assert attempts == 400
    assert finishes + claims <= 0.25 * attempts


def test_ends_of_a_batch_are_written_in_one_transaction_that_claims_as_well(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, *["note"] * 6)
    worker._flow._ended.extend(run(worker, claimed(worker)))
    assert worker.tick() == 3
    assert statuses(committed_db, jobs[:4]) == ["succeeded", "succeeded", "succeeded", "running"]
    assert committed_db.execute("SELECT count(DISTINCT xmin::text) FROM tasks.job").fetchone() == (1,)


def test_result_that_cannot_be_stored_does_not_hurt_the_others_of_its_batch(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, "note", "bad", "note")
    worker._flow._ended.extend(run(worker, claimed(worker)))
    worker.tick()
    assert statuses(committed_db, jobs) == ["succeeded", "running", "succeeded"]
    worker.start_slots()
    wait_until_idle(worker)
    assert statuses(committed_db, jobs) == ["succeeded", "failed", "succeeded"]


def test_failures_of_a_batch_are_one_statement(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.task("broken", max_attempts=1)(lambda: {}["missing"])
    jobs = enqueue(app, committed_db, "broken", "note", "broken")
    sizes: list[int] = []
    fail_jobs = queue.fail_jobs

    def count_and_fail(conn: Connection, failures: Sequence[queue.Failure]) -> object:
        if failures:
            sizes.append(len(failures))
        return fail_jobs(conn, failures)

    monkeypatch.setattr(queue, "fail_jobs", count_and_fail)
    worker._flow._ended.extend(run(worker, claimed(worker)))
    worker.tick()
    assert statuses(committed_db, jobs) == ["failed", "succeeded", "failed"]
    assert sizes == [2]


def test_lost_claim_does_not_hurt_the_others_of_its_batch(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, "note", "note", "note")
    ended = run(worker, claimed(worker))
    operate.cancel_job(committed_db, jobs[1], reason="not wanted")
    committed_db.commit()
    worker._flow._ended.extend(ended)
    worker.start_slots()
    worker.tick()
    wait_until_idle(worker)
    assert statuses(committed_db, jobs) == ["succeeded", "cancelled", "succeeded"]


def test_batch_that_fails_is_settled_one_by_one(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = enqueue(app, committed_db, "note", "note", "note")
    worker._flow._ended.extend(run(worker, claimed(worker)))

    def broken(*_: object, **__: object) -> None:
        raise psycopg.errors.DataError("only together")

    with monkeypatch.context() as patch:
        patch.setattr(queue, "claim_jobs", broken)
        with pytest.raises(psycopg.errors.DataError):
            worker.tick()
    assert statuses(committed_db, jobs) == ["running"] * 3
    assert worker.held == 3, "a slot is free only after the database said yes"
    worker.start_slots()
    wait_until_idle(worker)
    assert statuses(committed_db, jobs) == ["succeeded"] * 3


def test_batch_whose_commit_was_not_answered_is_known_for_its_own_success(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = enqueue(app, committed_db, "note")
    (ended,) = run(worker, claimed(worker))
    queue.finish_job(committed_db, ended.held.ref, 0)
    committed_db.commit()
    ended.unanswered = True
    worker._flow.slots.put(ended)
    worker.start_slots()
    wait_until_idle(worker)
    assert statuses(committed_db, jobs) == ["succeeded"]
    assert "claim lost" not in caplog.text


def test_success_of_another_attempt_is_not_taken_for_an_unanswered_one_of_ours(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app.task("again")(lambda: None)
    jobs = enqueue(app, committed_db, "again")
    (ended,) = run(worker, claimed(worker))
    ended.unanswered = True
    assert sweep(committed_db, now=later()).requeued == 1
    committed_db.commit()
    drain(app, now=later())
    worker._flow.slots.put(ended)
    worker.start_slots()
    wait_until_idle(worker)
    assert endings(committed_db, jobs[0]) == ["ABANDONED", "SUCCEEDED"]
    assert "claim lost" in caplog.text


def test_job_that_ended_but_was_not_written_runs_again_after_a_crash(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    app.task("again")(lambda: None)
    jobs = enqueue(app, committed_db, "again")
    run(worker, claimed(worker))
    assert sweep(committed_db, now=later()).requeued == 1
    committed_db.commit()
    drain(app, now=later())
    assert endings(committed_db, jobs[0]) == ["ABANDONED", "SUCCEEDED"]


def test_lease_of_a_claim_that_waits_for_a_slot_is_kept(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, "note")
    worker.tick()
    before = job_row(committed_db, jobs[0])["lease_expires_at"]
    worker.beat()
    assert job_row(committed_db, jobs[0])["lease_expires_at"] > before


def test_stop_hands_back_in_order_what_has_not_started(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, *["note"] * 5)
    worker.tick()
    assert worker.stop(0) == 3
    assert statuses(committed_db, jobs) == ["pending"] * 5
    assert [settled.job_id for settled in drain(app)] == jobs
    assert endings(committed_db, jobs[0]) == ["RELEASED", "SUCCEEDED"]


def test_stop_writes_what_has_ended(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    jobs = enqueue(app, committed_db, "note", "note")
    worker._flow._ended.extend(run(worker, claimed(worker)))
    assert worker.stop(0) == 0
    assert statuses(committed_db, jobs) == ["succeeded", "succeeded"]


def test_locked_row_does_not_keep_the_others_from_being_handed_back(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, connect: Callable[[], Connection]
) -> None:
    jobs = enqueue(app, committed_db, *["note"] * 3)
    worker.tick()
    locker = connect()
    locker.execute("SELECT 1 FROM tasks.job WHERE job_id = %s FOR UPDATE", (jobs[1],))
    assert worker.stop(0) == 2
    locker.rollback()
    assert statuses(committed_db, jobs) == ["pending", "running", "pending"]


def test_claims_behind_a_task_that_takes_longer_than_expected_are_handed_back(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = Stop()
    app.task("stop")(stop)
    worker._flow._times.ran("note", 0.0)
    worker._flow._times.ran("stop", 0.0)
    worker._flow._times.claimed(["note", "stop"])
    jobs = enqueue(app, committed_db, "stop", "stop", "stop", *["note"] * 4)
    worker.start_slots()
    assert worker.tick() == 7
    assert stop.reached.wait(WAIT_SECONDS)
    assert worker.beat() == 0
    monkeypatch.setattr(flowing, "STUCK_SECONDS", 0.0)
    while worker._flow.slots.waiting > 4:
        time.sleep(0.001)  # the other two slots take theirs
    worker.beat()
    assert statuses(committed_db, jobs) == ["running"] * 3 + ["pending"] * 4
    assert worker.tick() == 0, "they are not claimed again while the slots are taken"
    stop.go.set()
    wait_until_idle(worker)


def test_end_of_a_short_task_does_not_wait_for_a_long_one(
    app: tasks.App, committed_db: Connection, worker: tasks.Worker
) -> None:
    stop = Stop()
    app.task("stop")(stop)
    jobs = enqueue(app, committed_db, "note", "stop")
    with tasks.Worker(app, concurrency=1) as one:
        one._flow._times.ran("note", 0.0)
        one._flow._times.claimed(["note"])
        one.start_slots()
        assert one.tick() == 2
        assert stop.reached.wait(WAIT_SECONDS)
        assert statuses(committed_db, jobs) == ["succeeded", "running"]
        stop.go.set()
        wait_until_idle(one)


def test_end_does_not_wait_for_a_short_task_that_takes_long(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    jobs = enqueue(app, committed_db, "note", "note")
    first, second = claimed(worker)
    worker._flow.slots.put(second)
    (ended,) = run(worker, [first])
    worker._flow._ended.append(ended)
    worker.settle_late()
    assert statuses(committed_db, jobs) == ["running", "running"], "the other one is about to end"
    ended.at -= flowing.WINDOW_SECONDS
    worker.settle_late()
    assert statuses(committed_db, jobs) == ["succeeded", "running"]


def test_surplus_of_long_tasks_is_left_to_others(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    seen = threading.Semaphore(0)
    app.task("long")(seen.release)
    worker._flow._times.ran("note", 0.0)
    worker._flow._times.claimed(["note"])
    jobs = enqueue(app, committed_db, *["long"] * 10)
    assert worker.tick() == 6
    assert statuses(committed_db, jobs) == ["running"] * 6 + ["pending"] * 4
    assert worker.tick() == 0, "the next claim knows what comes"
