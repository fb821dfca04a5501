"""For tests of real processes: enqueue, hear what tasks tell, start and stop worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg

from tasks import queue
from tasks.job import NewJob

Connection = psycopg.Connection[Any]
ROOT = Path(__file__).parents[2]
WAIT_SECONDS = 30


class World:
    """The test's end: enqueue, hear what tasks tell, start and stop worker processes."""

    def __init__(
        self, database_url: str, conn: Connection, ears: Connection, app: str = "tests.system.tasks_app:app"
    ) -> None:
        """`app`: what the processes run."""
        self.app = app
        self.database_url = database_url
        self.conn = conn
        self.ears = ears
        self.ears.autocommit = True
        self.ears.execute("LISTEN test")
        self.heard: list[str] = []

    def enqueue(self, task: str, *args: Any, lease: float = 60.0, **options: Any) -> UUID:
        payload = {"args": list(args), "kwargs": {}}
        new = NewJob(task=task, payload=payload, lease_seconds=lease, **options)
        job_id = queue.enqueue_job(self.conn, new).job_id
        self.conn.commit()
        return job_id

    def hear(self, event: str) -> None:
        """Wait until a task has told `event`."""
        while event not in self.heard:
            told = [note.payload for note in self.ears.notifies(timeout=WAIT_SECONDS, stop_after=1)]
            assert told, f"{event} was not told, only {self.heard}"
            self.heard += told

    def worker(self, *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return self.process("worker", "--poll", "0.5", *options)

    @contextmanager
    def process(self, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command of the task system on the application of the tests."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tasks", "--app", self.app, *arguments],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": self.database_url, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def end(self, process: subprocess.Popen[str]) -> str:
        """Wait for the exit, which must be a good one. Returns the log."""
        _, log = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0, log
        return log

    def until_registered(self, workers: int) -> None:
        """Wait until so many workers are at work."""
        self.until("SELECT count(*) = %s FROM tasks.worker", workers)

    def until_status(self, job_id: UUID, status: str) -> None:
        """Wait for the state of a job that another process writes."""
        self.until("SELECT status = %s FROM tasks.job WHERE job_id = %s", status, job_id)

    def until(self, query: LiteralString, *params: object) -> None:
        """Wait until a query answers true."""
        for _ in range(WAIT_SECONDS * 20):
            row = self.conn.execute(query, params).fetchone()
            self.conn.rollback()
            if row == (True,):
                return
            self.conn.execute("SELECT pg_sleep(0.05)")
        raise AssertionError(query)
