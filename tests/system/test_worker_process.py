"""Real worker processes on a real database: signals, death, lost connections."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tasks import queue
from tasks.testing import check_invariants
from tests.conftest import migrate
from tests.system.world import WAIT_SECONDS, World
from tests.tasks.running import endings, job_row

pytestmark = [pytest.mark.integration, pytest.mark.system]

Connection = psycopg.Connection[Any]


@pytest.fixture
def world(database_url: str, committed_db: Connection, connect: Callable[[], Connection]) -> Iterator[World]:
    yield World(database_url, committed_db, connect())
    committed_db.rollback()
    check_invariants(committed_db)


def test_first_signal_lets_running_tasks_end(world: World) -> None:
    job_id = world.enqueue("slow")
    with world.worker("--json") as process:
        world.hear("slow")
        process.send_signal(signal.SIGTERM)
        log = [json.loads(line) for line in world.end(process).splitlines()]
    assert job_row(world.conn, job_id)["result"] == "ended"
    (line,) = [line for line in log if line.get("job_id") == str(job_id)]
    assert (line["task"], line["attempt"], line["outcome"]) == ("slow", 1, "succeeded")
    assert line["run_seconds"] >= 1
    assert world.conn.execute("SELECT count(*) FROM tasks.worker").fetchone() == (0,)


def test_stop_releases_what_does_not_end_within_the_grace(world: World) -> None:
    job_id = world.enqueue("hang")
    with world.worker("--grace", "0.2") as process:
        world.hear("hang 1")
        process.send_signal(signal.SIGINT)
        world.end(process)
    row = job_row(world.conn, job_id)
    assert (row["status"], row["attempt_count"]) == ("pending", 0)
    assert endings(world.conn, job_id) == ["RELEASED"]


def test_second_signal_releases_at_once(world: World) -> None:
    job_id = world.enqueue("hang")
    with world.worker("--grace", "3600") as process:
        world.hear("hang 1")
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        world.end(process)
    assert endings(world.conn, job_id) == ["RELEASED"]


def test_job_of_a_killed_worker_runs_again_after_its_lease(world: World) -> None:
    job_id = world.enqueue("hang", lease=2)
    with world.worker() as victim:
        world.hear("hang 1")
        victim.kill()
        victim.wait(WAIT_SECONDS)
    with world.worker("--sweep", "0.5") as heir:
        world.hear("hang 2")
        world.until_status(job_id, "succeeded")
        heir.send_signal(signal.SIGTERM)
        world.end(heir)
    assert endings(world.conn, job_id) == ["ABANDONED", "SUCCEEDED"]
    row = job_row(world.conn, job_id)
    assert (row["attempt_count"], row["last_error"]) == (2, None)


def test_worker_survives_the_loss_of_all_its_connections(world: World) -> None:
    before = world.enqueue("slow")
    with world.worker() as process:
        world.hear("slow")
        world.conn.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> ALL (%s)",
            ([world.conn.info.backend_pid, world.ears.info.backend_pid],),
        )
        world.conn.commit()
        world.until_status(before, "succeeded")
        world.enqueue("note", "after")
        world.hear("after")
        process.send_signal(signal.SIGTERM)
        world.end(process)
    assert endings(world.conn, before) == ["SUCCEEDED"]


def test_two_workers_share_the_jobs_and_run_none_twice(world: World) -> None:
    with world.worker() as one, world.worker() as two:
        world.until_registered(2)
        jobs = [world.enqueue("note", f"note {number}") for number in range(20)]
        for number in range(20):
            world.hear(f"note {number}")
        for job_id in jobs:
            world.until_status(job_id, "succeeded")
        for process in (one, two):
            process.send_signal(signal.SIGTERM)
            world.end(process)
    assert all(endings(world.conn, job_id) == ["SUCCEEDED"] for job_id in jobs)


def test_sweeping_process_takes_jobs_back_until_it_is_stopped(world: World) -> None:
    job_id = world.enqueue("note", "never", lease=1)
    queue.claim_jobs(world.conn, worker="dead", tasks=["note"], queues=["default"], limit=1)
    world.conn.commit()
    with world.process("sweep", "--every", "0.2", "--json") as process:
        world.until_status(job_id, "pending")
        process.send_signal(signal.SIGTERM)
        printed, log = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 0, log
    assert sum(json.loads(line)["requeued"] for line in printed.splitlines()) == 1
    assert endings(world.conn, job_id) == ["ABANDONED"]


@pytest.mark.slow
def test_worker_that_starts_without_a_database_waits_for_it(new_database: Callable[[], str], postgres_url: str) -> None:
    url = new_database()
    migrate(url)
    name = sql.Identifier(url.rpartition("/")[2])
    with psycopg.connect(url) as conn, psycopg.connect(url) as ears, psycopg.connect(postgres_url) as admin:
        admin.autocommit = True
        world = World(url, conn, ears)
        world.enqueue("note", "here")
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        with world.worker() as process:
            assert process.stderr is not None
            assert any("the database did not answer" in line for line in process.stderr)
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
            world.hear("here")
            process.send_signal(signal.SIGTERM)
            world.end(process)
