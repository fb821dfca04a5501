"""Worker processes under a parent: replaced when they die, ended with it, given up when they cannot live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tasks.processes import EARLY_DEATHS_MAX, EXIT_GAVE_UP, EXIT_SPENT
from tasks.testing import check_invariants
from tests.system.world import WAIT_SECONDS, World
from tests.tasks.running import endings

pytestmark = [pytest.mark.integration, pytest.mark.system]

Connection = psycopg.Connection[Any]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def world(database_url: str, committed_db: Connection, connect: Callable[[], Connection]) -> Iterator[World]:
    yield World(database_url, committed_db, connect())
    committed_db.rollback()
    check_invariants(committed_db)


def pids(world: World) -> set[int]:
    found = {row[0] for row in world.conn.execute("SELECT pid FROM tasks.worker").fetchall()}
    world.conn.rollback()
    return found


def test_processes_share_the_jobs_and_end_with_their_parents_signal(world: World) -> None:
    with world.worker("--processes", "2", "--worker-id", "pair") as parent:
        world.until_registered(2)
        assert parent.pid not in pids(world)
        names = world.conn.execute("SELECT worker_id FROM tasks.worker ORDER BY 1").fetchall()
        assert names == [("pair.0",), ("pair.1",)]
        world.enqueue("note", "one")
        world.hear("one")
        parent.send_signal(signal.SIGTERM)
        world.end(parent)
    assert pids(world) == set()


def test_killed_child_is_replaced(world: World) -> None:
    with world.worker("--processes", "2") as parent:
        world.until_registered(2)
        before = pids(world)
        os.kill(min(before), signal.SIGKILL)
        world.until_registered(3)  # the dead one is listed until it is stale
        assert len(pids(world) - before) == 1
        parent.send_signal(signal.SIGINT)
        assert "died with -9" in world.end(parent)


def test_children_stop_when_their_parent_is_killed(world: World) -> None:
    job_id = world.enqueue("slow")
    with world.worker("--processes", "2") as parent:
        world.until_registered(2)
        world.hear("slow")
        parent.kill()
        world.until_registered(0)
    assert endings(world.conn, job_id) == ["SUCCEEDED"], "as by SIGTERM: running tasks may end"


def test_process_with_a_thread_that_no_limit_can_end_exits_with_the_code_for_a_restart(world: World) -> None:
    job_id = world.enqueue("stuck")
    with world.worker("--concurrency", "1") as process:
        world.hear("stuck 1")
        _, log = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, "is spent" in log) == (EXIT_SPENT, True), log
    assert endings(world.conn, job_id) == ["FAILED"]


@pytest.mark.slow
def test_spent_child_is_replaced_and_its_job_runs_again(world: World) -> None:
    job_id = world.enqueue("stuck")
    with world.worker("--processes", "2", "--concurrency", "1") as parent:
        world.hear("stuck 2")
        world.until_status(job_id, "succeeded")
        parent.send_signal(signal.SIGTERM)
        world.end(parent)
    assert endings(world.conn, job_id) == ["FAILED", "SUCCEEDED"]


def test_parent_gives_up_when_its_children_cannot_live() -> None:
    """Case 41: with an exit code of its own, so that its supervisor knows."""
    program = (
        "import sys; from tasks.processes import Parent; "
        "sys.exit(Parent([sys.executable, '-c', 'raise SystemExit(3)'], 2).run())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False
    )
    assert done.returncode == EXIT_GAVE_UP
    assert (done.stderr.count("died with 3"), done.stderr.count("giving up")) == (EARLY_DEATHS_MAX, 1), done.stderr
