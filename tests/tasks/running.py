"""What the tests of the running half share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

import tasks

WAIT_SECONDS = 20
"""Longer than anything here takes; a test that needs it has failed."""
APP_NAME = "under.test"
LATER = timedelta(hours=1)


def make_app(database_url: str, conn: psycopg.Connection[Any] | None = None) -> tasks.App:
    """An app on the test's database that enqueues in the transaction of `conn`."""
    app = tasks.App(APP_NAME)
    app.configure(database_url=database_url, current=None if conn is None else lambda: conn)
    return app


def job_row(conn: psycopg.Connection[Any], job_id: UUID) -> dict[str, Any]:
    """The job as committed now."""
    conn.rollback()
    with conn.cursor(row_factory=dict_row) as cur:
        row = cur.execute("SELECT * FROM tasks.job WHERE job_id = %s", (job_id,)).fetchone()
    assert row is not None
    conn.rollback()
    return row


def endings(conn: psycopg.Connection[Any], job_id: UUID) -> list[str | None]:
    """How the attempts of a job ended, in order; None for an open one."""
    conn.rollback()
    found = conn.execute("SELECT result FROM tasks.attempt WHERE job_id = %s ORDER BY number", (job_id,)).fetchall()
    conn.rollback()
    return [row[0] for row in found]


def later() -> datetime:
    """An instant at which every lease and back-off of these tests is over."""
    return datetime.now(UTC) + LATER


class Stop:
    """A point at which a task waits until the test lets it go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go.wait(WAIT_SECONDS)


def wait_until_idle(worker: tasks.Worker) -> None:
    """Wait until the worker holds no claim."""
    with worker._flow.changed:
        assert worker._flow.changed.wait_for(lambda: not worker._flow.held, WAIT_SECONDS)


def in_thread(call: Callable[[], object]) -> threading.Thread:
    """Run `call` in a thread of its own."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread
