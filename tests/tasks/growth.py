"""How much the memory of a worker grows in one of its loads: python -m tests.tasks.growth LOAD, with DATABASE_URL.

A process of its own, because the figure is of the whole process: in one that has run a thousand tests, their garbage
and the allocator's mood move it by more than what is looked for.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import tasks
from tasks import queue
from tasks.job import NewJob
from tests.tasks.running import make_app, wait_until_idle

Connection = psycopg.Connection[Any]
FUTURE = """
    INSERT INTO tasks.job (job_id, task, payload, created_at, available_at, lease_seconds, attempts_max, postpones_max)
    SELECT gen_random_uuid(), 'note', '{"args": [], "kwargs": {}}', now(), now() + interval '1 day', 60, 5, 100
    FROM generate_series(1, 1000000)
"""
OPEN = "SELECT EXISTS (SELECT FROM tasks.job WHERE finished_at IS NULL)"


def resident_mb() -> float:
    """The memory of this process that is in RAM, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def waiting(worker: tasks.Worker, db: Connection) -> float:
    """A million jobs that wait for tomorrow, polled fifty times: MiB more than before them."""
    for _ in range(20):
        worker.tick()
    before = resident_mb()
    db.execute(FUTURE)
    db.commit()
    for _ in range(50):
        if worker.tick():
            raise AssertionError("a job of tomorrow was claimed")
    return resident_mb() - before


def failing(worker: tasks.Worker, db: Connection) -> float:
    """50,000 jobs that fail: MiB more than after the first 20,000, which fill its allocator."""
    _fail(worker, db, 20_000)
    before = resident_mb()
    _fail(worker, db, 50_000)
    return resident_mb() - before


def _fail(worker: tasks.Worker, db: Connection, jobs: int) -> None:
    broken = NewJob("broken", {"args": [], "kwargs": {}})
    for _ in range(0, jobs, 1000):
        queue.enqueue_jobs(db, [broken] * 1000)
    db.commit()
    while db.execute(OPEN).fetchone() == (True,):
        db.rollback()
        worker.tick()
        db.execute("SELECT pg_sleep(0.1)")
    db.rollback()
    wait_until_idle(worker)


LOADS: dict[str, Callable[[tasks.Worker, Connection], float]] = {"waiting": waiting, "failing": failing}


def main() -> None:
    """Write the growth of the load that the command line names."""
    logging.disable()
    database_url = os.environ["DATABASE_URL"]
    with psycopg.connect(database_url) as db:
        app = make_app(database_url, db)
        app.task("note")(lambda: None)
        app.task("broken", max_attempts=1)(lambda: {}["missing"])
        with tasks.Worker(app) as worker:
            worker.start_slots()
            sys.stdout.write(str(LOADS[sys.argv[1]](worker, db)))


if __name__ == "__main__":
    main()
