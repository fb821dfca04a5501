"""Our own queue, as bench/peers.py runs it: the same work in the same way as the others."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import psycopg

import tasks
from bench.peer import main, tell_started

URL = os.environ["DATABASE_URL"]
app = tasks.App("bench", database_url=URL)


@app.task("noop")
def noop(number: int) -> None:
    """Do nothing."""


@app.task("started")
def started() -> None:
    """Tell when it started."""
    tell_started()


class Packhouse:
    """One connection, as an application's."""

    def __init__(self) -> None:
        from bench.database import ENDED  # not above: the worker imports this module, too

        self.conn = psycopg.connect(URL)
        self._ended = ENDED
        app.configure(current=lambda: self.conn)

    def describe(self) -> dict[str, str]:
        """Versions and settings."""
        return {
            "version": version("packhouse"),
            "settings": "--log-level warning: no line for each job",
        }

    def setup(self) -> None:
        """Nothing: bench/database.py has run the migrations."""

    def enqueue(self, number: int) -> None:
        """Enqueue and commit."""
        noop.delay(number)
        self.conn.commit()

    def bulk(self, numbers: Sequence[int]) -> None:
        """Enqueue in one statement."""
        noop.apply_many([(number,) for number in numbers])
        self.conn.commit()

    def enqueue_started(self) -> None:
        """Enqueue and commit."""
        started.delay()
        self.conn.commit()

    def idle(self) -> bool:
        """Look for jobs that have not ended."""
        ended = self.conn.execute(self._ended).fetchone() == (True,)
        self.conn.commit()
        return ended

    def empty(self) -> None:
        """Remove all jobs."""
        self.conn.execute("TRUNCATE tasks.job, tasks.ended_attempt, tasks.dependency, tasks.unparking")
        self.conn.commit()


def work() -> None:
    """Be the worker of the command line."""
    command = [sys.executable, "-m", "tasks", "--app", "bench.peer_packhouse:app", "worker", "--log-level", "warning"]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main(Packhouse, work)
