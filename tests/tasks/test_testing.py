from __future__ import annotations

from typing import Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.testing import check_invariants, drain, enqueued
from tests.tasks.running import job_row, later, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    return make_app(database_url, committed_db)


def test_drain_runs_what_its_jobs_enqueue_too(app: tasks.App, committed_db: Connection) -> None:
    @app.task("count")
    def count(left: int) -> int:
        if left:
            count.delay(left - 1)
            committed_db.commit()
        return left

    count.delay(3)
    committed_db.commit()
    assert [settled.outcome for settled in drain(app)] == ["succeeded"] * 4


def test_drain_leaves_what_is_not_due_until_now_makes_it_due(app: tasks.App, committed_db: Connection) -> None:
    app.task("note")(lambda: None)
    app["note"].apply_async(countdown=600)
    committed_db.commit()
    assert drain(app) == []
    assert len(drain(app, now=later())) == 1


def test_drain_looks_into_every_queue_that_tasks_name(app: tasks.App, committed_db: Connection) -> None:
    app.task("note", queue="slow")(lambda: None)
    app["note"].delay()
    app["note"].apply_async(queue="elsewhere")
    committed_db.commit()
    assert len(drain(app)) == 1
    assert len(drain(app, queues=["elsewhere"])) == 1


def test_drain_resolves_a_chord_whose_header_fails(app: tasks.App, committed_db: Connection) -> None:
    def fail() -> None:
        raise tasks.Reject("NO", "not today")

    app.task("fail")(fail)
    app.task("add")(lambda values: values)
    app.task("clean")(lambda: None)
    result = tasks.chord([app["fail"].s(), app["fail"].s()], app["add"].s()).apply_async(session=committed_db)
    after = app["clean"].apply_async(parents=[result.id], session=committed_db)
    beside = app["clean"].apply_async(parents=[result.id], on_parent_failure="run", session=committed_db)
    committed_db.commit()
    assert [(settled.task, settled.outcome) for settled in drain(app)] == [
        ("fail", "failed"), ("fail", "failed"), ("clean", "succeeded"),
    ]  # fmt: skip
    assert (result.state, after.state, beside.state) == ("REVOKED", "REVOKED", "SUCCESS")


def test_drain_takes_back_what_a_dead_worker_held(app: tasks.App, committed_db: Connection) -> None:
    app.task("note")(lambda: None)
    app["note"].delay()
    queue.claim_jobs(committed_db, worker="dead", tasks=["note"], queues=["default"], limit=1)
    committed_db.commit()
    assert drain(app) == []
    assert [settled.attempt for settled in drain(app, now=later())] == [2]


def test_drain_that_does_not_end_is_an_error(app: tasks.App, committed_db: Connection) -> None:
    @app.task("endless")
    def endless() -> None:
        endless.delay()
        committed_db.commit()

    endless.delay()
    committed_db.commit()
    with pytest.raises(AssertionError, match="still claimable after 5 jobs; the last was endless"):
        drain(app, limit=5)


def test_drain_returns_the_error_of_each_failed_job(app: tasks.App, committed_db: Connection) -> None:
    error = ValueError("no")

    @app.task("fail")
    def fail() -> None:
        raise error

    fail.delay()
    committed_db.commit()
    (settled,) = drain(app)
    assert settled.error is error


def test_enqueued_lists_waiting_jobs_by_task_and_scope(app: tasks.App, committed_db: Connection) -> None:
    for name in ("a", "b"):
        app.task(name)(lambda: None)
    app["a"].apply_async(scope="1")
    app["a"].apply_async(scope="2")
    app["b"].apply_async(scope="1")
    assert [(job.task, job.scope) for job in enqueued(committed_db)] == [("a", "1"), ("a", "2"), ("b", "1")]
    assert [job.scope for job in enqueued(committed_db, "a")] == ["1", "2"]
    assert [job.task for job in enqueued(committed_db, scope="1")] == ["a", "b"]


def _history(app: tasks.App, conn: Connection) -> Any:
    """A job that failed, was postponed and succeeded, another that was joined and runs."""

    @app.task("note", bind=True, retry=tasks.Fixed(0))
    def note(self: tasks.Context) -> None:
        if self.request.attempt == 1:
            raise ValueError
        if self.request.attempt == 2:
            raise tasks.Postpone(0)

    job = note.delay()
    conn.commit()
    assert [settled.outcome for settled in drain(app)] == ["retry", "released", "succeeded"]
    return job.id


def test_true_history_is_accepted(app: tasks.App, committed_db: Connection) -> None:
    _history(app, committed_db)
    check_invariants(committed_db)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        ("DELETE FROM tasks.ended_attempt WHERE number = 1", "numbered 1 to claim_count"),
        ("UPDATE tasks.job SET claim_count = 4", "numbered 1 to claim_count"),
        ("UPDATE tasks.job SET attempt_count = 3", "not released"),
        ("UPDATE tasks.ended_attempt SET result = 'ABANDONED' WHERE number = 3", "last attempt"),
        ("UPDATE tasks.job SET status = 'failed'", "last attempt"),
        ("UPDATE tasks.ended_attempt SET claimed_at = claimed_at - interval '1 hour' WHERE number = 3", "began before"),
        ("UPDATE tasks.job SET coalesced = 1, coalesced_at = now() + interval '1 hour'", "joined after"),
        ("DELETE FROM tasks.job", "without a job"),
    ],
)
def test_broken_promise_is_found(app: tasks.App, committed_db: Connection, damage: str, rule: str) -> None:
    job_id = _history(app, committed_db)
    committed_db.execute(damage)
    with pytest.raises(AssertionError, match=rule) as broken:
        check_invariants(committed_db)
    assert str(job_id) in str(broken.value)


def test_a_holder_whose_attempt_has_ended_is_found(app: tasks.App, committed_db: Connection) -> None:
    app.task("note")(lambda: None)
    job = app["note"].delay()
    (ended,) = queue.claim_jobs(committed_db, worker="w", tasks=["note"], queues=["default"], limit=1)
    queue.release_job(committed_db, ended.ref)
    queue.claim_jobs(committed_db, worker="w", tasks=["note"], queues=["default"], limit=1)
    check_invariants(committed_db)
    committed_db.execute("UPDATE tasks.job SET claim_token = %s", (ended.claim_token,))
    with pytest.raises(AssertionError, match=f"{job.id}: it runs by the token of an attempt that has ended"):
        check_invariants(committed_db)
    committed_db.rollback()


def test_worker_of_drain_is_gone_afterwards(app: tasks.App, committed_db: Connection) -> None:
    job_id = _history(app, committed_db)
    assert job_row(committed_db, job_id)["claimed_by"] is None
    assert committed_db.execute("SELECT count(*) FROM tasks.worker").fetchone() == (0,)
