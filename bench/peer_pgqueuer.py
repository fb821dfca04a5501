"""PgQueuer, as bench/peers.py runs it: asyncpg and uvloop, batches of 200, tasks that are coroutines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from importlib.metadata import version
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peer import main, tell_started

BATCH = 200


class PgQueuerPeer:
    """A client on one connection and one event loop."""

    def __init__(self) -> None:
        self._loop = uvloop.new_event_loop()
        self._conn: Any = self._run(asyncpg.connect(os.environ["DATABASE_URL"]))
        self._queries = Queries(AsyncpgDriver(self._conn))

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(call)

    def describe(self) -> dict[str, str]:
        """Versions and settings."""
        settings = f"batch_size {BATCH}, durable, asyncpg {version('asyncpg')}, uvloop {version('uvloop')}, async tasks"
        return {"version": version("pgqueuer"), "settings": settings}

    def setup(self) -> None:
        """Make the tables, with the autovacuum settings that it recommends."""
        self._run(self._queries.install())
        self._run(self._queries.optimize_autovacuum())

    def enqueue(self, number: int) -> None:
        """Enqueue; the connection commits by itself."""
        self._run(self._queries.enqueue("noop", f'{{"args": [{number}]}}'.encode()))

    def bulk(self, numbers: Sequence[int]) -> None:
        """Enqueue in one statement."""
        payloads = [f'{{"args": [{number}]}}'.encode() for number in numbers]
        self._run(self._queries.enqueue(["noop"] * len(payloads), payloads, [0] * len(payloads)))

    def enqueue_started(self) -> None:
        """Enqueue; the connection commits by itself."""
        self._run(self._queries.enqueue("started", None))

    def idle(self) -> bool:
        """Jobs that have ended are moved to the log."""
        return not self._run(self._conn.fetchval("SELECT EXISTS (SELECT FROM pgqueuer)"))

    def empty(self) -> None:
        """Remove all jobs, and what is kept of those that ended."""
        self._run(self._conn.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics"))


async def _work() -> None:
    conn = await asyncpg.connect(os.environ["DATABASE_URL"])
    worker = PgQueuer(AsyncpgDriver(conn))

    @worker.entrypoint("noop")
    async def noop(_: Job) -> None:
        """Do nothing."""

    @worker.entrypoint("started")
    async def started(_: Job) -> None:
        tell_started()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.shutdown.set)
    await worker.run(dequeue_timeout=timedelta(seconds=30), batch_size=BATCH)
    await conn.close()


def work() -> None:
    """Run one worker."""
    uvloop.run(_work())


if __name__ == "__main__":
    main(PgQueuerPeer, work)
