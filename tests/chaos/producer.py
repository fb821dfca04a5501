"""Producers: each enqueues in transactions of its own, at a steady pace, whatever happens to its connection."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg

from tasks import queue
from tests.chaos.app import after, effect, long, single, upload

SCOPES = 12
PER_SECOND = 15
STOP_SECONDS = 30
ACCEPT = "INSERT INTO chaos.accepted (job_id, outcome) VALUES (%s, %s)"
PUSH = """
    INSERT INTO chaos.pushed (scope, version) VALUES (%s, 1)
    ON CONFLICT (scope) DO UPDATE SET version = pushed.version + 1
"""


class Producer:
    """One thread. What it enqueues follows from the seed; which of it is committed is for the database to say."""

    def __init__(self, database_url: str, seed: int) -> None:
        self._url = database_url
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._work: Future[None] | None = None
        self._last: list[UUID] = []
        self.refused = 0
        """Transactions that the database did not confirm."""

    def start(self) -> None:
        self._work = self._pool.submit(self._run)

    def stop(self) -> None:
        """End, and raise what the producer could not bear."""
        self._stop.set()
        if self._work is not None:
            self._work.result(STOP_SECONDS)
        self._pool.shutdown()

    def _run(self) -> None:
        conn: psycopg.Connection[Any] | None = None
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / PER_SECOND, time.monotonic() - 1)
            try:
                if conn is None:
                    conn = psycopg.connect(self._url, connect_timeout=5)
                self._enqueue(conn)
            except psycopg.OperationalError:
                self.refused += 1
                if conn is not None:
                    conn.close()
                conn = None
        if conn is not None:
            conn.close()

    def _enqueue(self, conn: psycopg.Connection[Any]) -> None:
        scope = f"scope-{self._chance.randrange(SCOPES)}"
        draw = self._chance.random()
        if draw < 0.6:
            conn.execute(PUSH, (scope,))
            new = effect.new_job(scope=scope)
        elif draw < 0.8:
            new = upload.new_job(kwargs={"text": scope * self._chance.randrange(1, 50)})
        elif draw < 0.85:
            new = long.new_job()
        elif draw < 0.92:
            new = after.new_job(scope=scope)
        else:
            # One at a time of its scope, and only after the last job that this producer knows of.
            new = single.new_job(scope=scope)._replace(limit_key=scope, limit_max=1, parents=self._last)
        made = queue.enqueue_job(conn, new)
        conn.execute(ACCEPT, (made.job_id, made.outcome))
        conn.commit()
        if new.dedup_key is None:
            self._last = [made.job_id]
