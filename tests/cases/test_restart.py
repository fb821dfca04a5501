"""The database goes away in the middle of a sweep."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tasks
from hub.embedded.postgres import DURABLE, Postgres
from hub.embedded.state import State
from tasks import queue
from tasks.job import NewJob
from tasks.testing import check_invariants
from tasks.timers import Timers
from tests.conftest import migrate
from tests.tasks.rows import hold_end
from tests.tasks.running import WAIT_SECONDS

pytestmark = [pytest.mark.integration, pytest.mark.system, pytest.mark.slow]

JOBS = 250
HALF = JOBS // 2
DOWN_SECONDS = 2.0


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A server of the test's own, fully durable, with the tables."""
    state = State(Path(tempfile.mkdtemp(prefix="packhouse-restart-")))
    server = Postgres(state, options=DURABLE)
    try:
        server.launch()
        migrate(server.wait_ready())
        yield server
    finally:
        server.discard()
        state.close()
        shutil.rmtree(state.directory)


def until_pending(url: str, count: int) -> None:
    """Wait until so many jobs are back in the queue."""
    deadline = time.monotonic() + WAIT_SECONDS
    found: Any = None
    while found != (count,):
        assert time.monotonic() < deadline, f"{found} of {count} jobs are back"
        with psycopg.connect(url) as conn:
            found = conn.execute("SELECT count(*) FROM tasks.job WHERE status = 'pending'").fetchone()
            conn.execute("SELECT pg_sleep(0.02)")


def test_a_sweep_goes_on_after_the_restart_that_broke_it_off(postgres: Postgres) -> None:
    """Case 11: 250 jobs of a dead worker, half of them taken back when the server dies; no row is dropped."""
    with psycopg.connect(postgres.url) as conn:
        new = [NewJob("note", {"args": [], "kwargs": {}}, lease_seconds=0.001 * n) for n in range(1, JOBS + 1)]
        made = queue.enqueue_jobs(conn, new)
        assert len(queue.claim_jobs(conn, worker="dead", tasks=["note"], queues=["default"], limit=JOBS)) == JOBS
        conn.commit()
        # There the sweep waits, row by row by then.
        hold_end(conn, made[HALF].job_id)
        app = tasks.App("under.test")
        app.configure(database_url=postgres.url)
        with tasks.Worker(app) as worker:
            timers = Timers(worker, sweep=0.3, listen=False)
            timers.start()
            until_pending(postgres.url, HALF)
            assert postgres.child is not None
            postgres.child.popen.send_signal(signal.SIGQUIT)
            assert postgres.child.ended(WAIT_SECONDS) is not None
            time.sleep(DOWN_SECONDS)
            postgres.launch()
            postgres.wait_ready()
            until_pending(postgres.url, JOBS)
            timers.stop()
        conn.close()
    with psycopg.connect(postgres.url) as conn:
        check_invariants(conn)
        assert conn.execute("SELECT result, count(*) FROM tasks.attempt GROUP BY 1").fetchall() == [("ABANDONED", JOBS)]
