"""Leases, claim tokens and the sweep: what a worker that came late, or died, must not do."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.errors import ClaimLost
from tasks.job import NewJob, SweepCounts, WorkerInfo
from tasks.operate import prune_jobs
from tasks.sweep import sweep
from tasks.testing import check_invariants, drain
from tasks.timers import Timers
from tests.tasks.rows import at, claim, claim_one, endings, enqueue, enqueue_and_claim, everything, status_of
from tests.tasks.running import WAIT_SECONDS, Stop, in_thread, job_row, later, make_app, wait_until_idle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.job import Ref

Db = psycopg.Connection[Any]

ZOMBIE: dict[str, Callable[[Db, Ref], object]] = {
    "progress": lambda db, ref: queue.save_progress(db, ref, {"done": 1}, now=at(90)),
    "success": lambda db, ref: queue.finish_job(db, ref, {"late": True}, now=at(90)),
    "failure": lambda db, ref: queue.fail_job(db, ref, code="X", detail="x", retry_delays=[0], now=at(90)),
    "final failure": lambda db, ref: queue.fail_job(db, ref, code="X", detail="x", retry_delays=None, now=at(90)),
    "retry later": lambda db, ref: queue.release_job(db, ref, delay=5, postpone=True, now=at(90)),
    "release": lambda db, ref: queue.release_job(db, ref, now=at(90)),
    "quarantine": lambda db, ref: queue.quarantine_job(db, ref, code="X", detail="x", now=at(90)),
}


@pytest.mark.parametrize("turn", range(2 * len(ZOMBIE)))
def test_a_zombie_changes_nothing_of_a_newer_attempt_in_whatever_order_it_writes(db: Db, turn: int) -> None:
    """Case 2: each of its writes is refused as a lost claim, and a sweep that still means attempt 1 finds nothing."""
    zombie = enqueue_and_claim(db, lease_seconds=60.0)
    queue.sweep_expired(db, now=at(61))
    held = claim_one(db, now=62, worker="worker-2")
    before = everything(db)
    names = list(ZOMBIE)[turn % len(ZOMBIE) :] + list(ZOMBIE)[: turn % len(ZOMBIE)]
    for name in names if turn < len(ZOMBIE) else reversed(names):
        with pytest.raises(ClaimLost):
            ZOMBIE[name](db, zombie.ref)
    assert queue.extend_leases(db, [zombie.ref], now=at(90)) == set()
    assert queue.sweep_expired(db, only=zombie.job_id, now=at(61)) == SweepCounts()
    assert everything(db) == before
    assert endings(db, zombie.job_id) == ["ABANDONED", None]
    queue.finish_job(db, held.ref, now=at(91))
    check_invariants(db)


def test_a_late_zombie_gives_the_place_of_its_limit_back_only_once(db: Db) -> None:
    """Case 3: twenty times; the limit counts open attempts, so it cannot drift."""
    limit: dict[str, Any] = {"limit_key": "k", "limit_max": 1}
    for start in range(0, 20_000, 1000):
        first = enqueue_and_claim(db, now=start, lease_seconds=10.0, attempts_max=1, **limit)
        second = enqueue(db, now=start + 2, **limit).job_id
        third = enqueue(db, now=start + 3, **limit).job_id
        assert claim(db, now=start + 4, limit=5) == []
        assert queue.sweep_expired(db, now=at(start + 20)).failed == 1
        held = claim_one(db, now=start + 21)
        assert held.job_id == second
        for name in ("success", "failure"):
            with pytest.raises(tasks.JobTerminal):
                ZOMBIE[name](db, first.ref)
        assert claim(db, now=start + 22, limit=5) == []
        queue.finish_job(db, held.ref, now=at(start + 23))
        (last,) = claim(db, now=start + 24, limit=5)
        assert last.job_id == third
        queue.finish_job(db, last.ref, now=at(start + 25))
    check_invariants(db)


def test_a_failure_that_collides_with_its_successor_ends_the_run_and_not_the_worker(
    database_url: str, committed_db: Db
) -> None:
    """Case 5: run 2 waits under the key when run 1 fails with budget left."""
    app = make_app(database_url, committed_db)
    ran: list[int] = []

    @app.task("periodic", bind=True, dedup=tasks.Dedup(), retry=tasks.Fixed(0))
    def periodic(self: tasks.Context) -> None:
        ran.append(self.request.attempt)
        if len(ran) == 1:
            periodic.apply_async(scope="s")
            committed_db.commit()
            raise OSError

    first = periodic.apply_async(scope="s").id
    committed_db.commit()
    assert [settled.outcome for settled in drain(app)] == ["superseded", "succeeded"]
    row = job_row(committed_db, first)
    assert (row["status"], row["attempt_count"], row["claim_token"]) == ("cancelled", 1, None)
    assert endings(committed_db, first) == ["FAILED"]
    check_invariants(committed_db)


CROWD = 8
CROWD_SECONDS = 10.0


@pytest.mark.slow
def test_a_crowd_of_sweeps_and_claimers_meets_no_deadlock(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Case 10: eight of each for ten seconds; half of the claims are dropped, every seventh job has a key."""
    new = [
        NewJob(
            "gc",
            {"args": [], "kwargs": {}},
            lease_seconds=0.02,
            attempts_max=1000,
            dedup_key=None if n % 7 else f"k{n}",
            limit_key="few" if n % 10 == 0 else None,
            limit_max=3 if n % 10 == 0 else None,
        )
        for n in range(3000)
    ]
    made = [done.job_id for done in queue.enqueue_jobs(committed_db, new)]
    committed_db.commit()
    until = time.monotonic() + CROWD_SECONDS

    def claimer(conn: Db, name: str) -> int:
        claims = 0
        while time.monotonic() < until:
            batch = queue.claim_jobs(conn, worker=name, tasks=["gc"], queues=["default"], limit=6)
            conn.commit()
            queue.finish_jobs(conn, [(held.ref, None) for held in batch[::2]])
            queue.enqueue_jobs(conn, [NewJob("gc", held.payload, dedup_key=held.dedup_key) for held in batch[:1]])
            conn.commit()
            claims += len(batch)
        return claims

    def sweeper(conn: Db) -> int:
        taken_back = 0
        while time.monotonic() < until:
            taken_back += sweep(conn).total
        return taken_back

    with ThreadPoolExecutor(2 * CROWD) as pool:
        claims = [pool.submit(claimer, connect(), f"w{n}") for n in range(CROWD)]
        swept = [pool.submit(sweeper, connect()) for _ in range(CROWD)]
    assert sum(future.result() for future in claims) > len(made) / 2
    assert sum(future.result() for future in swept) > 100
    check_invariants(committed_db)


@pytest.mark.slow
def test_claims_that_wait_for_a_slot_do_not_expire(database_url: str, committed_db: Db) -> None:
    """Case 8: ten short jobs turn out to be long, one slot, six tenths of the lease each, and somebody else sweeps."""
    app, slow, ran, held = make_app(database_url, committed_db), threading.Event(), [], []

    @app.task("step", lease=1, max_attempts=2)
    def step(number: int) -> None:
        if slow.is_set():
            ran.append(number)
            held.append(worker.held)
            threading.Event().wait(0.6)

    for number in range(300):
        step.delay(number)
    committed_db.commit()
    with tasks.Worker(app, concurrency=1) as worker, tasks.Worker(app) as other:
        timers = Timers(worker)
        timers.start()
        _sweep_until_done(other, committed_db)
        slow.set()
        jobs = [step.delay(number).id for number in range(10)]
        committed_db.commit()
        _sweep_until_done(other, committed_db)
        timers.stop()
    assert ran == list(range(10))
    assert max(held) > 1, "none was claimed ahead"
    for job_id in jobs:
        assert set(endings(committed_db, job_id)) <= {"RELEASED", "SUCCEEDED"}
        assert job_row(committed_db, job_id)["attempt_count"] == 1
    check_invariants(committed_db)


def _sweep_until_done(sweeper: tasks.Worker, conn: Db) -> None:
    """Sweep until no job is left; nothing may be taken back."""
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline
        assert sweeper.sweep().requeued == 0
        left = conn.execute("SELECT count(*) FROM tasks.job WHERE finished_at IS NULL").fetchone()
        conn.execute("SELECT pg_sleep(0.05)")
        conn.rollback()
        if left == (0,):
            return


def test_a_worker_of_the_name_of_a_dead_one_owns_none_of_its_jobs(database_url: str, committed_db: Db) -> None:
    """Case 9: one is dead, one has its name, a third of that name drains."""
    app, stop = make_app(database_url, committed_db), Stop()
    app.task("stop")(stop)
    dead = app["stop"].delay().id
    queue.claim_jobs(committed_db, worker="host-1", tasks=["stop"], queues=["default"], limit=1)
    app["stop"].delay()
    committed_db.commit()
    with tasks.Worker(app, worker_id="host-1", concurrency=1) as draining:
        draining.start_slots()
        assert draining.tick() == 1
        assert stop.reached.wait(WAIT_SECONDS)
        ending = in_thread(lambda: draining.stop(WAIT_SECONDS))
        with tasks.Worker(app, worker_id="host-1", concurrency=1) as heir:
            assert heir.beat() == 0, "it holds nothing that it has not claimed itself"
            assert heir.sweep().total == 0, "the lease of the dead one is not over"
            assert draining.tick() == 0, "it claims nothing after its stop, whatever its name"
            assert draining.beat(now=later()) == 0
            assert heir.sweep(now=later()).requeued == 1
            stop.go.set()
            ending.join(WAIT_SECONDS)
            assert [settled.job_id for settled in heir.once(now=later())] == [dead]
        wait_until_idle(draining)
    assert endings(committed_db, dead) == ["ABANDONED", "SUCCEEDED"]
    check_invariants(committed_db)


def test_success_is_final_against_sweep_and_retention(db: Db) -> None:
    """Case 14: the worker dies between its commit and its own cleaning up; nothing fails the job afterwards."""
    held = enqueue_and_claim(db, lease_seconds=10.0)
    queue.register_worker(db, WorkerInfo("worker-1", "host", 1, ["default"], ["gc"]), now=at(1))
    queue.finish_job(db, held.ref, {"uploaded": True}, now=at(2))
    for now in (11, 100, 86_400):
        assert sweep(db, now=at(now)).total == 0
        assert prune_jobs(db, now=at(now)) == 0
        assert status_of(db, held.job_id) == "succeeded"
        assert endings(db, held.job_id) == ["SUCCEEDED"]
    check_invariants(db)
    assert prune_jobs(db, now=at(8 * 86_400)) == 1
    assert endings(db, held.job_id) == []
    check_invariants(db)
