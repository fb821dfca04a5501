"""Real worker processes that are killed, blocked, or have wrong clocks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tasks import queue
from tasks.job import NewJob
from tasks.testing import check_invariants
from tasks.why import why
from tests.system.world import WAIT_SECONDS, World
from tests.tasks.rows import hold_end
from tests.tasks.running import endings, job_row

pytestmark = [
    pytest.mark.integration,
    pytest.mark.system,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

Db = psycopg.Connection[Any]
OVERLAPS = """
    SELECT count(*) FROM tasks.attempt AS a JOIN tasks.attempt AS b ON a.claim_token < b.claim_token
    WHERE a.claimed_at < COALESCE(b.ended_at, 'infinity') AND b.claimed_at < COALESCE(a.ended_at, 'infinity')
"""


@pytest.fixture
def world(database_url: str, committed_db: Db, connect: Callable[[], Db]) -> Iterator[World]:
    yield World(database_url, committed_db, connect(), app="tests.cases.tasks_app:app")
    committed_db.rollback()
    check_invariants(committed_db)


def claim_dead(world: World) -> list[UUID]:
    """Claim all notes as a worker that dies then."""
    claims = queue.claim_jobs(world.conn, worker="dead", tasks=["note"], queues=["default", "ahead"], limit=100)
    world.conn.commit()
    return [claim.job_id for claim in claims]


@pytest.mark.parametrize("budget", [1, 3])
def test_a_job_that_kills_its_worker_spends_its_budget_and_no_more(world: World, budget: int) -> None:
    """Case 6: under a supervisor that starts the worker again and again; the other jobs run all the same."""
    deadly = world.enqueue("die", lease=1.0, attempts_max=budget)
    others = [world.enqueue("note", f"note {n}", lease=1.0) for n in range(4)]
    for number in range(1, budget + 1):
        with world.worker("--sweep", "0.3") as worker:
            world.hear(f"die {number}")
            assert worker.wait(WAIT_SECONDS) == -signal.SIGKILL
    with world.worker("--sweep", "0.3") as worker:
        world.until_status(deadly, "failed")
        for job_id in others:
            world.until_status(job_id, "succeeded")
        worker.send_signal(signal.SIGTERM)
        world.end(worker)
    assert endings(world.conn, deadly) == ["ABANDONED"] * budget
    assert sum(event.startswith("die") for event in world.heard) == budget
    (reason,) = why(world.conn, deadly)
    assert reason.rule == "BUDGET_SPENT"
    assert "lease ran out" in reason.sentence


def test_a_task_longer_than_its_lease_runs_once_beside_two_idle_workers(world: World) -> None:
    """Case 7: the heartbeat lives outside the task's thread."""
    with world.worker("--sweep", "0.3") as one, world.worker("--sweep", "0.3") as two:
        world.until_registered(2)
        job_id = world.enqueue("wait", 5, lease=1.0)
        world.until_status(job_id, "succeeded")
        for worker in (one, two):
            worker.send_signal(signal.SIGTERM)
            world.end(worker)
    assert endings(world.conn, job_id) == ["SUCCEEDED"]


def test_a_task_that_blocks_its_interpreter_beyond_the_lease_has_one_success(world: World) -> None:
    """Case 7: no heartbeat is possible, so another worker runs it, and the first run's result is refused."""
    with world.worker("--sweep", "0.3") as one, world.worker("--sweep", "0.3") as two:
        world.until_registered(2)
        job_id = world.enqueue("block", 6, lease=2.0)
        world.until_status(job_id, "succeeded")
        assert "block is over" not in world.heard
        world.hear("block is over")
        for worker in (one, two):
            worker.send_signal(signal.SIGTERM)
        logs = [world.end(worker) for worker in (one, two)]
    assert endings(world.conn, job_id) == ["ABANDONED", "SUCCEEDED"]
    assert job_row(world.conn, job_id)["result"] == 2
    assert sum("claim lost" in log for log in logs) == 1


def test_a_sweep_that_is_killed_in_its_pass_blocks_nobody(world: World, connect: Callable[[], Db]) -> None:
    """Case 12: its process is gone while its statement waits in the server; the next sweep has it all."""
    jobs = [world.enqueue("note", "never", lease=1.0) for _ in range(20)]
    assert len(claim_dead(world)) == 20
    world.until("SELECT bool_and(lease_expires_at < clock_timestamp()) FROM tasks.job")
    locker = connect()
    hold_end(locker, jobs[-1])
    with world.process("sweep", "--every", "0.2") as sweeper:
        world.until(
            "SELECT count(*) > 0 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%T5a%%'"
        )
        sweeper.kill()
        sweeper.wait(WAIT_SECONDS)
        locker.rollback()
    # What the dead one's backend had locked is free when it finds that nobody listens: half a second at most.
    world.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with world.worker("--sweep", "0.5") as worker:
        world.until("SELECT bool_and(status = 'succeeded') FROM tasks.job")
        worker.send_signal(signal.SIGTERM)
        world.end(worker)
    assert all(endings(world.conn, job_id) == ["ABANDONED", "SUCCEEDED"] for job_id in jobs)


@pytest.mark.parametrize("grace", ["3600", "0.2"], ids=["killed within the grace", "handed back"])
def test_a_restart_never_runs_two_jobs_of_one_limit(world: World, grace: str) -> None:
    """Case 15: SIGTERM, SIGKILL, and a new worker at once."""
    limit: dict[str, Any] = {"limit_key": "k", "limit_max": 1}
    first, *others = [world.enqueue("hold", str(n), lease=2.0, **limit) for n in range(3)]
    with world.worker("--grace", grace, "--sweep", "0.3") as old:
        world.hear("hold 0 1")
        old.send_signal(signal.SIGTERM)
        if grace == "3600":
            old.kill()
            old.wait(WAIT_SECONDS)
        else:
            world.end(old)
        with world.worker("--grace", "0.2", "--sweep", "0.3") as heir:
            world.hear("hold 0 2")
            heir.send_signal(signal.SIGTERM)
            world.end(heir)
    handed_back = "RELEASED" if grace == "0.2" else "ABANDONED"
    assert endings(world.conn, first) == [handed_back, "RELEASED"]
    assert all(endings(world.conn, job_id) == [] for job_id in others)
    assert world.conn.execute(OVERLAPS).fetchone() == (0,)


def test_of_two_processes_one_is_killed_and_the_other_goes_on(world: World) -> None:
    """Case 41: the killed one is replaced, and its job runs again after its lease."""
    with world.worker("--processes", "2", "--concurrency", "1", "--sweep", "0.3") as parent:
        world.until_registered(2)
        jobs = [world.enqueue("wait", 6, lease=1.0) for _ in range(2)]
        world.until("SELECT count(DISTINCT claimed_by) = 2 FROM tasks.job WHERE status = 'running'")
        victim = world.conn.execute(
            "SELECT w.pid, j.job_id FROM tasks.worker AS w JOIN tasks.job AS j ON j.claimed_by = w.worker_id LIMIT 1"
        ).fetchone()
        assert victim is not None
        os.kill(victim[0], signal.SIGKILL)
        for job_id in jobs:
            world.until_status(job_id, "succeeded")
        world.until("SELECT count(*) = 3 FROM tasks.worker")
        parent.send_signal(signal.SIGTERM)
        assert "died with -9" in world.end(parent)
    (sibling,) = (job_id for job_id in jobs if job_id != victim[1])
    assert endings(world.conn, victim[1]) == ["ABANDONED", "SUCCEEDED"]
    assert endings(world.conn, sibling) == ["SUCCEEDED"]


def test_wrong_clocks_of_workers_decide_nothing(world: World) -> None:
    """Case 17: one worker's clock is ten minutes ahead, the other's behind; every instant is the database's."""
    with (
        world.process("worker", "-Q", "ahead", "--sweep", "0.3", "--poll", "0.3", CLOCK_SHIFT="600") as ahead,
        world.process("worker", "-Q", "behind", "--sweep", "0.3", "--poll", "0.3", CLOCK_SHIFT="-600") as behind,
    ):
        world.until_registered(2)
        # In one transaction, so that no living worker sees it before.
        new = NewJob("note", {"args": ["again"], "kwargs": {}}, queue="ahead", lease_seconds=3.0)
        dead = queue.enqueue_job(world.conn, new).job_id
        assert claim_dead(world) == [dead]
        names = ("ahead", "behind")
        long = [world.enqueue("wait", 4, lease=1.0, queue=name) for name in names]
        later = [world.enqueue("note", f"later {name}", queue=name, countdown=3.0) for name in names]
        again = [world.enqueue("fail.once", queue=name) for name in names]
        for job_id in (*long, *later, *again, dead):
            world.until_status(job_id, "succeeded")
        for worker in (ahead, behind):
            worker.send_signal(signal.SIGTERM)
            world.end(worker)
    assert all(endings(world.conn, job_id) == ["SUCCEEDED"] for job_id in (*long, *later))
    assert endings(world.conn, dead) == ["ABANDONED", "SUCCEEDED"]
    assert _early(world) == []
    waits = "SELECT b.claimed_at - a.ended_at FROM tasks.attempt AS a JOIN tasks.attempt AS b USING (job_id)"
    rows = world.conn.execute(waits + " WHERE a.number = 1 AND b.number = 2 AND a.result = 'FAILED'").fetchall()
    assert [2 <= wait.total_seconds() < 8 for (wait,) in rows] == [True, True]


def _early(world: World) -> list[Any]:
    """Jobs that began before they were due, and leases that were taken away before their end."""
    return world.conn.execute(
        "SELECT a.job_id FROM tasks.attempt AS a JOIN tasks.job AS j USING (job_id)"
        " WHERE (a.number = 1 AND a.claimed_at < j.created_at)"
        " OR (a.result = 'ABANDONED' AND a.ended_at < a.claimed_at + make_interval(secs => j.lease_seconds))"
        " OR (a.number = j.claim_count AND a.claimed_at < j.available_at)"
    ).fetchall()
