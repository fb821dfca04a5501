from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tasks
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, Stop, endings, in_thread, job_row, make_app, wait_until_idle

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> Iterator[tasks.App]:
    yield make_app(database_url, committed_db)
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.fixture
def stop(app: tasks.App) -> Stop:
    stop = Stop()
    app.task("stop")(stop)
    return stop


def start(app: tasks.App, conn: Connection, stop: Stop, **options: Any) -> tuple[tasks.Worker, Any]:
    worker = tasks.Worker(app, concurrency=1, **options)
    job = app["stop"].delay()
    conn.commit()
    worker.start_slots()
    worker.tick()
    assert stop.reached.wait(WAIT_SECONDS)
    return worker, job.id


def test_stop_lets_a_running_task_end(app: tasks.App, stop: Stop, committed_db: Connection) -> None:
    worker, job_id = start(app, committed_db, stop)
    released: list[int] = []
    stopping = in_thread(lambda: released.append(worker.stop(WAIT_SECONDS)))
    stop.go.set()
    stopping.join(WAIT_SECONDS)
    worker.close()
    assert released == [0]
    assert job_row(committed_db, job_id)["status"] == "succeeded"


def test_stop_releases_what_does_not_end_in_time(app: tasks.App, stop: Stop, committed_db: Connection) -> None:
    worker, job_id = start(app, committed_db, stop)
    assert worker.stop(0) == 1
    row = job_row(committed_db, job_id)
    assert (row["status"], row["attempt_count"], row["claim_count"]) == ("pending", 0, 1)
    assert endings(committed_db, job_id) == ["RELEASED"]
    stop.go.set()
    wait_until_idle(worker)
    worker.close()
    assert job_row(committed_db, job_id)["status"] == "pending", "the late success of a released attempt is refused"


def test_released_job_runs_at_once_elsewhere(app: tasks.App, stop: Stop, committed_db: Connection) -> None:
    worker, job_id = start(app, committed_db, stop)
    worker.stop(0)
    stop.go.set()
    with tasks.Worker(app) as other:
        assert [settled.attempt for settled in other.once()] == [2]
    wait_until_idle(worker)
    worker.close()
    assert job_row(committed_db, job_id)["status"] == "succeeded"


def test_hurry_ends_the_grace(app: tasks.App, stop: Stop, committed_db: Connection) -> None:
    worker, _ = start(app, committed_db, stop, grace=3600)
    released: list[int] = []
    stopping = in_thread(lambda: released.append(worker.stop()))
    worker.hurry()
    stopping.join(WAIT_SECONDS)
    assert released == [1]
    stop.go.set()
    wait_until_idle(worker)
    worker.close()


def test_stopped_worker_claims_nothing(app: tasks.App, stop: Stop, committed_db: Connection) -> None:
    with tasks.Worker(app) as worker:
        worker.stop(0)
        job = app["stop"].delay()
        committed_db.commit()
        assert (worker.tick(), worker.once()) == (0, [])
    assert job_row(committed_db, job.id)["status"] == "pending"


def test_task_learns_that_its_job_was_given_back(app: tasks.App, committed_db: Connection) -> None:
    reached, seen = threading.Event(), threading.Event()

    @app.task("patient", bind=True)
    def patient(self: tasks.Context) -> None:
        reached.set()
        while not self.cancelled():
            assert not seen.wait(0.01)
        seen.set()

    job = patient.delay()
    committed_db.commit()
    with tasks.Worker(app, concurrency=1) as worker:
        worker.start_slots()
        worker.tick()
        assert reached.wait(WAIT_SECONDS)
        assert worker.stop(0) == 1
        assert seen.wait(WAIT_SECONDS)
        wait_until_idle(worker)
    assert job_row(committed_db, job.id)["status"] == "pending", "a task that returns early for it has not succeeded"
