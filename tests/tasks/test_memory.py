"""A worker's memory does not grow with what waits or fails. Slow: it takes many jobs to show."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.job import NewJob
from tests.tasks.running import make_app, wait_until_idle

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Connection = psycopg.Connection[Any]
GROWTH_MB = 24
"""The allocator and the rest of the test run move the figure by some MB; half a KB for each job would be seen."""
FUTURE = """
    INSERT INTO tasks.job (job_id, task, payload, created_at, available_at, lease_seconds, attempts_max, postpones_max)
    SELECT gen_random_uuid(), 'note', '{"args": [], "kwargs": {}}', now(), now() + interval '1 day', 60, 5, 100
    FROM generate_series(1, 1000000)
"""


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture
def worker(database_url: str, committed_db: Connection) -> Iterator[tasks.Worker]:
    app = make_app(database_url, committed_db)
    app.task("note")(lambda: None)
    app.task("broken", max_attempts=1)(lambda: {}["missing"])
    logging.disable()  # pytest keeps every record
    with tasks.Worker(app) as worker:
        worker.start_slots()
        yield worker
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600)
def test_million_of_future_jobs_cost_a_poll_no_memory(worker: tasks.Worker, committed_db: Connection) -> None:
    for _ in range(20):
        worker.tick()
    before = resident_mb()
    committed_db.execute(FUTURE)
    committed_db.commit()
    for _ in range(50):
        assert worker.tick() == 0
    assert resident_mb() - before < GROWTH_MB
    committed_db.execute("TRUNCATE tasks.job")
    committed_db.commit()


@pytest.mark.timeout(900)
def test_fifty_thousand_failing_tasks_leave_nothing_behind(worker: tasks.Worker, committed_db: Connection) -> None:
    def fail(jobs: int) -> None:
        for begin in range(0, jobs, 1000):
            queue.enqueue_jobs(committed_db, [NewJob("broken", {"args": [], "kwargs": {}})] * min(1000, jobs - begin))
        committed_db.commit()
        while committed_db.execute("SELECT EXISTS (SELECT FROM tasks.job WHERE finished_at IS NULL)").fetchone() == (
            True,
        ):
            committed_db.rollback()
            worker.tick()
            committed_db.execute("SELECT pg_sleep(0.1)")
        committed_db.rollback()
        wait_until_idle(worker)

    fail(2_000)
    before = resident_mb()
    fail(50_000)
    assert resident_mb() - before < GROWTH_MB
