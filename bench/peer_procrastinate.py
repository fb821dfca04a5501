"""Procrastinate, as bench/peers.py runs it: 20 coroutines at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from importlib.metadata import version

import procrastinate
import psycopg

from bench.peer import main, tell_started

URL = os.environ["DATABASE_URL"]
CONCURRENCY = 20
app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=URL))


@app.task(name="noop")
async def noop(number: int) -> None:
    """Do nothing."""


@app.task(name="started")
async def started() -> None:
    """Tell when it started."""
    tell_started()


class Procrastinate:
    """A synchronous client, and a connection to look with."""

    def __init__(self) -> None:
        app.open()
        self.conn = psycopg.connect(URL, autocommit=True)

    def describe(self) -> dict[str, str]:
        """Versions and settings."""
        settings = f"concurrency {CONCURRENCY}, psycopg {version('psycopg')} ({psycopg.pq.__impl__}), async tasks"
        return {"version": version("procrastinate"), "settings": settings}

    def setup(self) -> None:
        """Make the tables."""
        app.schema_manager.apply_schema()

    def enqueue(self, number: int) -> None:
        """Enqueue and commit."""
        noop.defer(number=number)

    def bulk(self, numbers: Sequence[int]) -> None:
        """Enqueue in one statement."""
        noop.batch_defer(*({"number": number} for number in numbers))

    def enqueue_started(self) -> None:
        """Enqueue and commit."""
        started.defer()

    def idle(self) -> bool:
        """Look for jobs that have not ended."""
        query = "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
        return self.conn.execute(query).fetchone() == (False,)

    def empty(self) -> None:
        """Remove all jobs."""
        self.conn.execute("TRUNCATE procrastinate_jobs CASCADE")


async def _work() -> None:
    worker = app.with_connector(procrastinate.PsycopgConnector(conninfo=URL))
    async with worker.open_async():
        await worker.run_worker_async(concurrency=CONCURRENCY)


def work() -> None:
    """Run one worker."""
    asyncio.run(_work())


if __name__ == "__main__":
    main(Procrastinate, work)
