"""How soon a job starts: from idle, behind walls of jobs that may not run, and after its worker was killed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg

from bench import database
from bench.database import Connection
from bench.raw import BareListener
from tasks import queue
from tasks.job import NewJob
from tasks.pool import PLANNER

if TYPE_CHECKING:
    from bench.queue import Bench

RUNS = 3
TASKS = ["noop", "gated"]


def _report(what: str, **figures: Any) -> None:
    from bench.queue import report

    report(what, **figures)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def _enqueue(conn: Connection, task: str, *args: object, **options: Any) -> int:
    """Enqueue and commit; return the monotonic ns of the commit's answer."""
    queue.enqueue_job(conn, NewJob(task, {"args": list(args), "kwargs": {}}, **options))
    conn.commit()
    return time.monotonic_ns()


def _until_idle(bench: Bench) -> None:
    """Both sides begin from rest: what has just run is still in the caches."""
    time.sleep(0.02)
    bench.until(database.ENDED, pause=0.02)


def bench_pickup(bench: Bench) -> None:
    """Milliseconds from the commit of an enqueue to the start of its task, of an idle worker and of the bare way."""
    samples = bench.size(200)
    bare = BareListener(bench.url)
    bare.start()
    bare.listening.wait()
    commits = []
    for _ in range(samples):
        commits.append(_enqueue(bench.conn, "started", "bench"))
        bare.ran.acquire()
        _until_idle(bench)
    bare.stopping = True
    bare.join()
    theirs = [(started - at) / 1e6 for at, started in zip(commits, bare.started, strict=True)]
    ours = []
    with bench.workers(1), psycopg.connect(bench.url, autocommit=True) as ears:
        ears.execute("LISTEN bench")
        for _ in range(samples):
            at = _enqueue(bench.conn, "started", "bench")
            (told,) = ears.notifies(timeout=30, stop_after=1)
            ours.append((int(told.payload) - at) / 1e6)
            _until_idle(bench)
    p50, bare_p50 = statistics.median(ours), statistics.median(theirs)
    _report(
        "pickup_ms", samples=samples, p50=p50, p99=_percentile(ours, 0.99), bare_p50=bare_p50,
        bare_p99=_percentile(theirs, 0.99), bare=p50 / bare_p50,
    )  # fmt: skip
    database.empty(bench.conn)


def bench_walls(bench: Bench) -> None:
    """p95 in ms of claiming one job behind jobs that may not run, and its ratio to an empty queue.

    `fresh`: behind gated jobs that no claim has looked at before; each of these claims parks some of them.
    """
    gated, future = bench.size(100_000), bench.size(500_000)

    def wall_of_gated() -> None:
        _enqueue(bench.conn, "blocker", scope="wall", countdown=3600)
        database.fill(bench.conn, gated, "gated", scope="wall", after_tasks=("blocker",))

    walls: dict[str, Callable[[], object]] = {
        f"claim_behind_{gated}_gated": wall_of_gated,
        f"claim_behind_{future}_future": lambda: database.fill(bench.conn, future, countdown=3600),
    }
    with psycopg.connect(bench.url, options=PLANNER) as conn:
        for what, build in walls.items():
            _claim_p95(conn)  # the statements are prepared
            empty = statistics.median(_claim_p95(conn) for _ in range(RUNS))
            build()
            fresh = statistics.median(_claim_p95(conn) for _ in range(RUNS))
            if build is wall_of_gated:
                _park(conn)
            behind = statistics.median(_claim_p95(conn) for _ in range(RUNS))
            _report(
                what, runs=RUNS, p95_ms=behind, fresh_p95_ms=fresh, empty_p95_ms=empty, ratio=behind / empty,
                fresh_ratio=fresh / empty,
            )  # fmt: skip
            database.empty(bench.conn)


def _park(conn: Connection) -> None:
    """Claim until there is nothing left that no claim has looked at: these find nothing, and park as they go."""
    while conn.execute("SELECT EXISTS (SELECT FROM tasks.job WHERE lane = 'unchecked')").fetchone() == (True,):
        queue.claim_jobs(conn, worker="raw", tasks=TASKS, queues=["default"], limit=1)
        conn.commit()


def _claim_p95(conn: Connection) -> float:
    times = []
    for _ in range(100):
        _enqueue(conn, "noop", 1)
        began = time.monotonic()
        claims = queue.claim_jobs(conn, worker="raw", tasks=TASKS, queues=["default"], limit=1)
        conn.commit()
        times.append((time.monotonic() - began) * 1000)
        queue.finish_jobs(conn, [(claim.ref, None) for claim in claims])
        conn.commit()
    return _percentile(times, 0.95)


def bench_recovery(bench: Bench) -> None:
    """Seconds from the SIGKILL of a worker to the next start of its job, with a lease of 10 s and a sweep of 1 s."""
    runs = 1 if bench.quick else RUNS
    found = []
    for _ in range(runs):
        with psycopg.connect(bench.url, autocommit=True) as ears:
            ears.execute("LISTEN bench")
            with bench.workers(1) as (victim,):
                _enqueue(bench.conn, "hang", "bench", lease_seconds=10.0)
                list(ears.notifies(timeout=30, stop_after=1))
                victim.kill()
                killed = time.monotonic_ns()
            with bench.workers(1, "--sweep", "1"):
                (told,) = ears.notifies(timeout=60, stop_after=1)
                found.append((int(told.payload) - killed) / 1e9)
        database.empty(bench.conn)
    _report("recovery_s", runs=runs, lease=10, sweep=1, seconds=statistics.median(found), worst=max(found))
