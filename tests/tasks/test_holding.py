from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.holding import Held
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, Stop, job_row, later, make_app, wait_until_idle

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    return make_app(database_url, committed_db)


@pytest.fixture
def worker(app: tasks.App, committed_db: Connection) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, concurrency=2) as worker:
        worker.start_slots()
        yield worker
    check_invariants(committed_db)


class Running:
    """A bound task that waits in its slot, and shows what its context says then."""

    def __init__(self, worker: tasks.Worker, app: tasks.App, conn: Connection) -> None:
        self.stop = Stop()
        self.context: tasks.Context | None = None
        self.worker = worker

        @app.task("stop", bind=True)
        def stop(context: tasks.Context) -> None:
            self.context = context
            self.stop()

        self.job_id: UUID = stop.delay().id
        conn.commit()
        worker.tick()
        assert self.stop.reached.wait(WAIT_SECONDS)

    def held(self) -> Held:
        (held,) = self.worker._flow.held.values()
        return held

    def end(self) -> None:
        self.stop.go.set()
        wait_until_idle(self.worker)


@pytest.fixture
def running(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> Iterator[Running]:
    running = Running(worker, app, committed_db)
    yield running
    running.end()


def test_heartbeat_extends_the_lease_of_a_running_task(
    running: Running, worker: tasks.Worker, committed_db: Connection
) -> None:
    before = job_row(committed_db, running.job_id)["lease_expires_at"]
    assert worker.beat() == 0
    assert job_row(committed_db, running.job_id)["lease_expires_at"] > before


def test_heartbeat_is_due_at_a_third_of_the_lease(
    running: Running, worker: tasks.Worker, committed_db: Connection
) -> None:
    held, lease = running.held(), running.held().claim.lease_seconds
    before = job_row(committed_db, running.job_id)["heartbeat_at"]
    worker.beat(due_only=True)
    assert job_row(committed_db, running.job_id)["heartbeat_at"] == before
    held.extended(time.monotonic() - lease / 3)
    worker.beat(due_only=True)
    assert job_row(committed_db, running.job_id)["heartbeat_at"] > before
    assert not held.beat_is_due


def test_task_is_told_once_that_its_claim_is_lost(
    running: Running, worker: tasks.Worker, committed_db: Connection
) -> None:
    assert running.context is not None
    assert not running.context.cancelled()
    sweep(committed_db, now=later())
    committed_db.commit()
    assert [worker.beat(), worker.beat()] == [1, 0]
    assert running.context.cancelled()
    with pytest.raises(tasks.ClaimLost):
        running.context.progress(1)


def test_job_that_is_being_settled_is_not_taken_for_lost(
    running: Running, worker: tasks.Worker, committed_db: Connection
) -> None:
    held = running.held()
    held.settling = True
    queue.finish_job(committed_db, held.ref)
    committed_db.commit()
    assert (worker.beat(), held.lost) == (0, False)


def test_locked_row_of_one_task_does_not_hold_up_the_heartbeat(
    running: Running, worker: tasks.Worker, connect: Callable[[], Connection]
) -> None:
    locker = connect()
    locker.execute("SELECT 1 FROM tasks.job FOR UPDATE")
    assert worker.beat() == 0
    locker.rollback()
    assert not running.held().lost


def test_progress_is_visible_at_once(running: Running, committed_db: Connection) -> None:
    assert running.context is not None
    running.context.progress(3, 10, "blocks")
    assert job_row(committed_db, running.job_id)["progress"] == {"done": 3, "total": 10, "text": "blocks"}


def test_heartbeat_of_the_task_itself_extends_the_lease(running: Running, committed_db: Connection) -> None:
    assert running.context is not None
    before = job_row(committed_db, running.job_id)["lease_expires_at"]
    running.context.heartbeat()
    assert job_row(committed_db, running.job_id)["lease_expires_at"] > before


def test_sweep_of_the_worker_takes_back_what_others_left(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    app.task("note")(lambda: None)
    job = app["note"].delay()
    queue.claim_jobs(committed_db, worker="dead", tasks=["note"], queues=["default"], limit=1)
    committed_db.commit()
    assert worker.sweep().total == 0
    assert worker.sweep(now=later()).requeued == 1
    assert job_row(committed_db, job.id)["status"] == "pending"


def test_fence_key_names_the_attempt(running: Running) -> None:
    assert running.context is not None
    assert running.context.fence_key("packs/a") == f"packs/a.{running.held().claim.claim_token}"


def test_fence_key_without_a_worker_is_never_the_same_twice() -> None:
    context = tasks.Context(tasks.Request(id=None, task="build", kwargs={}))
    assert len({context.fence_key("packs/a") for _ in range(3)}) == 3
