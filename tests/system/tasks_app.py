"""A small application of tasks alone, run by the worker processes of the tests."""

from __future__ import annotations

import os
import threading

import psycopg

import tasks

URL = os.environ["DATABASE_URL"]
"""Set by the test that starts the process."""
FOREVER = threading.Event()

app = tasks.App("tests.system")
app.configure(database_url=URL)


def tell(event: str) -> None:
    """Tell the test, at once."""
    with psycopg.connect(URL, autocommit=True) as conn:
        conn.execute("SELECT pg_notify('test', %s)", (event,))


@app.task("note")
def note(event: str) -> None:
    tell(event)


@app.task("hang", bind=True, lease=2)
def hang(self: tasks.Context) -> None:
    """Hang in the first attempt; the second one ends."""
    tell(f"hang {self.request.attempt}")
    if self.request.attempt == 1:
        FOREVER.wait()


@app.task("stuck", bind=True, time_limit=0.5, retry=tasks.Fixed(0))
def stuck(self: tasks.Context) -> None:
    """Hang in the first attempt, deaf to everything; the second one ends."""
    tell(f"stuck {self.request.attempt}")
    if self.request.attempt == 1:
        FOREVER.wait()


@app.task("slow", bind=True)
def slow(self: tasks.Context) -> str:
    """End soon, but not before the test has seen the start."""
    tell("slow")
    FOREVER.wait(1)
    return "ended"
