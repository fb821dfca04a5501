"""The application that bench/queue.py runs: tasks that do nothing, or next to nothing."""

from __future__ import annotations

import os
import time

import psycopg

import tasks

URL = os.environ["DATABASE_URL"]
app = tasks.App("bench")
app.configure(database_url=URL)


@app.task("noop")
def noop(number: int) -> None:
    """Do nothing."""


@app.task("gated", gate=tasks.After("blocker"))
def gated(number: int) -> None:
    """Do nothing, once no blocker of the scope is left."""


@app.task("blocker")
def blocker() -> None:
    """Do nothing."""


@app.task("started")
def started(channel: str) -> None:
    """Tell when it was started, on the machine's monotonic clock."""
    now = time.monotonic_ns()
    with psycopg.connect(URL, autocommit=True) as conn:
        conn.execute("SELECT pg_notify(%s, %s)", (channel, str(now)))


@app.task("hang", bind=True, lease=10)
def hang(self: tasks.Context, channel: str) -> None:
    """Hang in the first attempt; tell of both."""
    started.function(channel)
    if self.request.attempt == 1:
        time.sleep(3600)
