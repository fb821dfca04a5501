"""The budget of attempts is exact on every path."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.job import NewJob
from tasks.operate import retry_job
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.running import WAIT_SECONDS, endings, job_row, make_app

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration

Db = psycopg.Connection[Any]
OPTIONS: dict[str, Any] = {"retry": tasks.Fixed(0), "lease": 10}


class Tries:
    """Runs one job by whatever path, an hour apart, on the database's clock as this says."""

    def __init__(self, app: tasks.App, conn: Db) -> None:
        self.app = app
        self.conn = conn
        self.now = datetime.now(UTC)
        self.starts = 0
        self.never = threading.Event()
        self.worker = tasks.Worker(app, concurrency=1)

    def run(self) -> int:
        """Start what is due. Returns the number of starts, as the others do."""
        self.now += timedelta(hours=1)
        return len(self.worker.once(now=self.now))

    def overrun(self) -> int:
        """Start what is due, by the true clock, in a slot of the worker, until its time limit has ended all of it."""
        self.worker.start_slots()
        before = self.starts
        self.worker.tick()
        for _ in range(WAIT_SECONDS * 100):
            # The slot claims the next attempt by itself: only the end of the job is a moment without a successor.
            if all(job.finished_at for job in queue.list_jobs(self.conn)):
                self.conn.rollback()
                return self.starts - before
            self.conn.rollback()
            self.worker.limit()
            self.never.wait(0.01)
        raise AssertionError("the time limit does not end it")

    def crash(self) -> int:
        """Claim like a worker that is killed then, and let its lease run out."""
        self.now += timedelta(hours=1)
        claims = queue.claim_jobs(
            self.conn, worker="dead", tasks=list(self.app), queues=["default"], limit=1, now=self.now
        )
        self.starts += len(claims)
        self.now += timedelta(minutes=1)
        sweep(self.conn, now=self.now)
        self.conn.commit()
        return len(claims)


@pytest.fixture
def tries(database_url: str, committed_db: Db) -> Iterator[Tries]:
    app = make_app(database_url, committed_db)
    tries = Tries(app, committed_db)

    @app.task("raises", **OPTIONS)
    def raises() -> None:
        tries.starts += 1
        raise OSError

    @app.task("asks", **OPTIONS)
    def asks() -> None:
        tries.starts += 1
        raise tasks.Retry(countdown=1)

    @app.task("overruns.softly", bind=True, soft_time_limit=0.001, **OPTIONS)
    def overruns_softly(self: tasks.Context) -> None:
        tries.starts += 1
        while not tries.never.wait(0.002):
            self.checkpoint()

    @app.task("overruns", bind=True, time_limit=0.01, **OPTIONS)
    def overruns(self: tasks.Context) -> None:
        tries.starts += 1
        while not self.cancelled():
            tries.never.wait(0.002)

    @app.task("changed", **OPTIONS)
    def changed(new_name: str) -> None:
        raise AssertionError("its arguments do not fit")

    with tries.worker:
        yield tries
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.mark.parametrize("budget", [1, 2, 25])
@pytest.mark.parametrize("path", ["raises", "asks", "overruns.softly", "overruns", "changed", "crash", "mixed"])
def test_a_job_starts_exactly_as_often_as_its_budget_allows_on_every_path(
    tries: Tries, committed_db: Db, path: str, budget: int
) -> None:
    """Case 18: then it is dead with as many rows of history, and a person's retry adds exactly one start."""
    task = path if path in tries.app else "raises"
    payload = {"args": [], "kwargs": {"old_name": "x"} if path == "changed" else {}}
    new = NewJob(task, payload, attempts_max=budget, lease_seconds=10)
    job_id = queue.enqueue_job(committed_db, new).job_id
    committed_db.commit()

    def start(number: int) -> int:
        if path == "overruns":
            return tries.overrun()
        return tries.crash() if path == "crash" or (path == "mixed" and number % 2) else tries.run()

    count = 0
    while started := start(count):
        count += started
        assert count <= budget
    assert count == budget
    row = job_row(committed_db, job_id)
    assert (row["status"], row["attempt_count"], row["claim_count"]) == ("failed", budget, budget)
    assert len(endings(committed_db, job_id)) == budget
    assert tries.starts == (0 if path == "changed" else budget)
    retry_job(committed_db, job_id, reason="the disk is larger now", now=tries.now)
    committed_db.commit()
    assert [start(0), start(0)] == [1, 0]
    row = job_row(committed_db, job_id)
    assert (row["status"], row["attempt_count"], row["attempts_max"]) == ("failed", budget + 1, budget + 1)
