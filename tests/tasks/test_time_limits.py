from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tasks
from tasks import limits, operate
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, Stop, endings, job_row, make_app, wait_until_idle

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
NEVER = threading.Event()


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    return make_app(database_url, committed_db)


@pytest.fixture
def worker(app: tasks.App, committed_db: Connection) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, concurrency=1) as worker:
        yield worker
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.mark.parametrize("checkpoint", ["checkpoint", "heartbeat", "cancelled", "progress"])
def test_soft_limit_is_raised_at_the_next_checkpoint_and_once(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, checkpoint: str
) -> None:
    arguments = [1] if checkpoint == "progress" else []

    @app.task("long", bind=True, soft_time_limit=0.01)
    def long(self: tasks.Context) -> str:
        def work() -> None:
            while not NEVER.wait(0.005):
                getattr(self, checkpoint)(*arguments)

        with pytest.raises(tasks.SoftTimeLimitExceeded):
            work()
        getattr(self, checkpoint)(*arguments)
        return "tidied up"

    job = long.delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["succeeded"]
    assert job_row(committed_db, job.id)["result"] == "tidied up"


def test_soft_limit_that_the_task_lets_pass_fails_the_attempt(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    @app.task("long", bind=True, soft_time_limit=0.01)
    def long(self: tasks.Context) -> None:
        while not NEVER.wait(0.005):
            self.checkpoint()

    job = long.delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["retry"]
    assert job_row(committed_db, job.id)["last_error_code"] == "SOFT_TIME_LIMIT_EXCEEDED"


def run_in_slot(worker: tasks.Worker, conn: Connection, stop: Stop) -> None:
    """Start the job that waits in `stop`."""
    conn.commit()
    worker.start_slots()
    worker.tick()
    assert stop.reached.wait(WAIT_SECONDS)


def look_until_over(worker: tasks.Worker, conn: Connection, job_id: Any) -> None:
    """Look after the limits until the attempt was failed."""
    for _ in range(WAIT_SECONDS * 100):
        worker.limit()
        if endings(conn, job_id) == ["FAILED"]:
            return
        NEVER.wait(0.01)
    raise AssertionError("the limit does not end the attempt")


def test_attempt_over_its_time_limit_is_failed_and_its_thread_can_write_nothing(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    stop, refused = Stop(), []

    @app.task("long", bind=True, time_limit=0.05, max_attempts=1)
    def long(self: tasks.Context) -> str:
        stop()
        for write in (self.heartbeat, lambda: self.progress(1), self.checkpoint):
            with pytest.raises((tasks.ClaimLost, tasks.JobTerminal)):
                write()
            refused.append(self.cancelled())
        return "late"

    job = long.delay()
    run_in_slot(worker, committed_db, stop)
    look_until_over(worker, committed_db, job.id)
    stop.go.set()
    wait_until_idle(worker)
    assert refused == [True, True, True]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"], row["result"]) == ("failed", "TIME_LIMIT_EXCEEDED", None)
    assert not worker.spent


def test_process_is_spent_when_the_thread_goes_on(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNWIND_SECONDS", 0.0)
    stop = Stop()
    app.task("stop", time_limit=0.05, max_attempts=1)(stop)
    job = app["stop"].delay()
    run_in_slot(worker, committed_db, stop)
    look_until_over(worker, committed_db, job.id)
    worker.limit()
    assert worker.spent
    stop.go.set()
    wait_until_idle(worker)


def test_task_that_ends_in_time_is_left_alone(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    stop = Stop()
    app.task("stop", time_limit=3600, soft_time_limit=1800)(stop)
    job = app["stop"].delay()
    run_in_slot(worker, committed_db, stop)
    worker.limit()
    stop.go.set()
    wait_until_idle(worker)
    assert endings(committed_db, job.id) == ["SUCCEEDED"]


def test_running_task_learns_that_it_was_cancelled(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    stop, told = Stop(), []

    @app.task("long", bind=True)
    def long(self: tasks.Context) -> None:
        stop()
        told.append(self.cancelled())
        self.checkpoint()

    job = long.delay()
    run_in_slot(worker, committed_db, stop)
    operate.cancel_job(committed_db, job.id, reason="no longer wanted")
    committed_db.commit()
    assert worker.beat() == 1
    stop.go.set()
    wait_until_idle(worker)
    assert told == [True]
    assert endings(committed_db, job.id) == ["CANCELLED"]


@pytest.mark.parametrize("option", ["time_limit", "soft_time_limit"])
@pytest.mark.parametrize("value", [0, -1, True, "60", float("nan"), float("inf")])
def test_bad_limit_is_refused(app: tasks.App, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        app.task("long", **{option: value})(lambda: None)
