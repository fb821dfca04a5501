"""Lists and figures over very many finished jobs."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasks import queue
from tasks.console import looking
from tasks.job import NewJob
from tests.conftest import migrate
from tests.tasks.running import make_app

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

Db = psycopg.Connection[Any]
ROWS = 1_000_000
PAGE_SECONDS_MAX = 0.5
FILL = """
    INSERT INTO tasks.job (job_id, task, queue, scope, payload, status, created_at, available_at, lease_seconds,
        attempts_max, attempt_count, claim_count, postpones_max, started_at, finished_at, last_error_code,
        last_error, last_error_at)
    SELECT gen_random_uuid(), 'task.' || n %% 20, 'default', 'scope-' || n %% 1000, '{"args": [], "kwargs": {}}',
        CASE WHEN n %% 10000 = 0 THEN 'failed' ELSE 'succeeded' END, at, at, 60, 5, 1, 1, 100, at, at,
        CASE WHEN n %% 10000 = 0 THEN 'X' END, CASE WHEN n %% 10000 = 0 THEN 'x' END,
        CASE WHEN n %% 10000 = 0 THEN at END
    FROM generate_series(1, %s) AS n, LATERAL (SELECT now() - make_interval(secs => n) AS at) AS clock
"""


@pytest.fixture
def full(new_database: Callable[[], str]) -> Iterator[Db]:
    """A database of its own: a million finished jobs would take long to delete."""
    url = new_database()
    migrate(url)
    with psycopg.connect(url) as conn:
        conn.execute(FILL, (ROWS,))
        queue.enqueue_job(conn, NewJob("task.1", {"args": [], "kwargs": {}}, scope="scope-1"))
        conn.commit()
        conn.autocommit = True
        conn.execute("VACUUM ANALYZE tasks.job")
        yield conn


def seconds(call: Callable[[], object]) -> float:
    """The median of five calls, the first left out: it reads from the disk."""
    found = []
    for _ in range(6):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def test_lists_and_figures_answer_within_half_a_second_over_a_million_finished_jobs(full: Db) -> None:
    """Case 43."""
    job_id: UUID = queue.list_jobs(full, limit=1)[0].job_id
    calls: dict[str, Callable[[], object]] = {
        "newest": lambda: queue.list_jobs(full),
        "failed": lambda: queue.list_jobs(full, status="failed"),
        "pending": lambda: queue.list_jobs(full, status="pending"),
        "of a task": lambda: queue.list_jobs(full, task="task.7"),
        "of a scope": lambda: queue.list_jobs(full, scope="scope-7"),
        "failed of a task and scope": lambda: queue.list_jobs(full, status="failed", task="task.0", scope="scope-0"),
        "one": lambda: queue.get_job(full, job_id),
        "figures": lambda: queue.stats(full),
    }
    taken = {name: seconds(call) for name, call in calls.items()}
    slow = {name: f"{took:.3f} s" for name, took in taken.items() if took > PAGE_SECONDS_MAX}
    assert not slow, f"{slow} of {taken}"
    figures = queue.stats(full)
    assert (figures.estimated, figures.counts["pending"], figures.counts["failed"]) == (True, 1, ROWS // 10_000)
    assert figures.counts["succeeded"] == pytest.approx(ROWS, rel=0.05)
    sys.stdout.write(json.dumps({name: round(took, 4) for name, took in taken.items()}) + "\n")


def test_statements_of_the_command_line_have_a_time_out(database_url: str) -> None:
    """Case 43: a list that would take for ever ends, and does not hold back the vacuum until then."""
    app = make_app(database_url)
    with looking(lambda: app) as conn:
        (timeout,) = conn.execute("SELECT current_setting('statement_timeout')").fetchone() or (None,)
    assert timeout not in (None, "0")
