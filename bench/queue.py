"""The queue beside two raw psycopg loops in the same run, on a Postgres of its own with full durability.

`make bench` runs it; `python -m bench.queue --quick` takes a minute. Prints one JSON line for each measurement: the
median of the runs, and `own` and `bare`, its ratio to the raw loop with our own statements and to the loop on a bare
table (see bench/raw.py). CPU is that of the workers and of all processes of the server, between the moment when the
queue is opened and the moment when the last job has ended: neither the start of a worker nor its idle seconds count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench import claims, database, raw
from bench.database import ROOT, Connection, counters
from bench.processes import use_of
from tasks import App, enqueue, operate, queue
from tasks.job import NewJob
from tasks.pool import PLANNER

RUNS = 3
COMMIT = 10_000
WAIT_SECONDS = 120


class Bench:
    """One server, one connection to it, and worker processes on it."""

    def __init__(self, url: str, conn: Connection, *, quick: bool) -> None:
        self.url = url
        self.conn = conn
        self.quick = quick
        self.server = database.server_pid(conn)

    def size(self, full: int) -> int:
        """Number of jobs: a fifth for a quick run."""
        return full // 5 if self.quick else full

    @contextmanager
    def workers(self, count: int, *options: str) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Worker processes that are at work; what they log is thrown away, but written."""
        command = [sys.executable, "-m", "tasks", "--app", "bench.noop:app", "worker", *options]
        with Path(os.devnull).open("wb") as log:
            started = [
                subprocess.Popen(command, cwd=ROOT, env={**os.environ, "DATABASE_URL": self.url}, stderr=log)
                for _ in range(count)
            ]
            try:
                self.until("SELECT count(*) >= %s FROM tasks.worker", count)
                yield started
            finally:
                for process in started:
                    process.terminate()
                for process in started:
                    process.wait(WAIT_SECONDS)

    def until(self, query: str, *params: object, pause: float = 0.1) -> None:
        """Wait until the query says true."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            row = self.conn.execute(query.encode(), params).fetchone()
            self.conn.commit()
            if row == (True,):
                return
            time.sleep(pause)
        raise SystemExit(f"waited in vain for {query} {params}")


def report(what: str, **figures: Any) -> None:
    """Print one line."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps({"what": what, **rounded}), flush=True)


def rate(jobs: int, call: Callable[[], object]) -> float:
    """Jobs a second."""
    began = time.monotonic()
    call()
    return jobs / (time.monotonic() - began)


def bench_enqueue(bench: Bench) -> None:
    """One job a commit, and ten thousand, a thousand to a statement; all sides alike."""
    conn, one, many = bench.conn, bench.size(500), bench.size(20_000)

    def enqueue_one_by_one() -> None:
        for number in range(one):
            queue.enqueue_job(conn, NewJob("noop", {"args": [number], "kwargs": {}}))
            conn.commit()

    def enqueue_bulk() -> None:
        for numbers in _slices(range(many), COMMIT):
            queue.enqueue_jobs(conn, (NewJob("noop", {"args": [n], "kwargs": {}}) for n in numbers))
            conn.commit()

    def apply_many() -> None:
        for numbers in _slices(range(many), COMMIT):
            noop.apply_many([(n,) for n in numbers], session=conn)
            conn.commit()

    def insert(page: Callable[[Connection, range], None]) -> Callable[[], None]:
        def insert_bulk() -> None:
            for numbers in _slices(range(many), COMMIT):
                for part in _slices(numbers, enqueue.PAGE_SIZE):
                    page(conn, part)
                conn.commit()

        return insert_bulk

    noop = App("bench").task("noop")(lambda number: number)
    one_by_one = {"ours": enqueue_one_by_one, "bare": lambda: [raw.insert_one(conn, n) for n in range(one)]}
    bulk = {"ours": enqueue_bulk, "many": apply_many, "own": insert(raw.own_insert), "bare": insert(raw.insert_many)}
    found = _interleaved(bench, one, one_by_one)
    report("enqueue_one_by_one", jobs=one, runs=RUNS, per_second=found["ours"], bare_per_second=found["bare"],
           bare=found["ours"] / found["bare"])  # fmt: skip
    found = _interleaved(bench, many, bulk)
    for what, mine in (("enqueue_bulk", found["ours"]), ("apply_many", found["many"])):
        report(what, jobs=many, runs=RUNS, per_second=mine, own_per_second=found["own"],
               bare_per_second=found["bare"], own=mine / found["own"], bare=mine / found["bare"])  # fmt: skip


def _slices(numbers: range, size: int) -> Iterator[range]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]


def _interleaved(bench: Bench, jobs: int, sides: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Jobs a second of each side, the median of runs that take turns; each begins with empty tables."""
    rates: dict[str, list[float]] = {what: [] for what in sides}
    for _ in range(RUNS):
        for what, side in sides.items():
            database.bare_rows(bench.conn, 0)
            database.empty(bench.conn)
            rates[what].append(rate(jobs, side))
    return {what: statistics.median(of) for what, of in rates.items()}


def bench_drain(bench: Bench) -> None:
    """No-op jobs: one and two worker processes, one that logs no line for each job, one beside an open snapshot."""
    jobs = bench.size(20_000)
    found: dict[str, list[float]] = {"own": [], "bare": []}
    for _ in range(RUNS):
        database.fill(bench.conn, jobs)
        found["own"].append(_own_once(bench, jobs))
        database.empty(bench.conn)
        database.bare_rows(bench.conn, jobs)
        found["bare"].append(rate(jobs, lambda: raw.bare_drain(bench.conn)))
        for processes in (1, 2):
            _drain_once(bench, jobs, processes, found.setdefault(f"drain_{processes}", []))
            database.empty(bench.conn)
        _drain_once(bench, jobs, 1, found.setdefault("drain_1_unlogged", []), "--log-level", "warning")
        database.empty(bench.conn)
        with psycopg.connect(bench.url) as holder:
            holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            holder.execute("SELECT pg_current_xact_id(), count(*) FROM tasks.job")
            _drain_once(bench, jobs, 1, found.setdefault("drain_1_snapshot_held", []))
        database.empty(bench.conn)
    medians = {what: statistics.median(rates) for what, rates in found.items()}
    for what in ("drain_1", "drain_1_unlogged", "drain_2", "drain_1_snapshot_held"):
        own, bare = medians[what] / medians["own"], medians[what] / medians["bare"]
        report(what, jobs=jobs, runs=RUNS, per_second=medians[what], own=own, bare=bare)
    report("raw_loops", jobs=jobs, own_per_second=medians["own"], bare_per_second=medians["bare"])


def _own_once(bench: Bench, jobs: int) -> float:
    """Drain with our own statements alone."""
    before, used = counters(bench.conn, bench.server), time.process_time()
    with psycopg.connect(bench.url, options=PLANNER) as conn:
        per_second = rate(jobs, lambda: raw.own_drain(conn))
    used = time.process_time() - used
    after = counters(bench.conn, bench.server)
    report(
        "own_loop_run",
        per_second=per_second,
        client_cpu_s_per_1000=used / jobs * 1000,
        server_cpu_s_per_1000=(after.cpu_seconds - before.cpu_seconds) / jobs * 1000,
        commits_per_job=(after.commits - before.commits) / jobs,
        wal_bytes_per_job=(after.wal_bytes - before.wal_bytes) / jobs,
    )
    return per_second


def _drain_once(bench: Bench, jobs: int, processes: int, rates: list[float], *options: str) -> None:
    """Let workers that are up begin at one moment; the rate is from the first claim to the last end."""
    conn = bench.conn
    operate.pause_queue(conn, "default")
    conn.commit()
    database.fill(conn, jobs)
    with bench.workers(processes, "--poll", "0.2", *options) as workers:
        time.sleep(1.5)  # the workers' own start is over, and the server has reported it
        before, used = counters(conn, bench.server), [use_of(worker.pid) for worker in workers]
        operate.resume_queue(conn, "default")
        conn.commit()
        bench.until(database.ENDED)
        server_cpu, now = database.server_cpu(bench.server), [use_of(worker.pid) for worker in workers]
        time.sleep(1.5)  # idle sessions have reported their commits
        after = counters(conn, bench.server)
    (seconds,) = conn.execute(
        "SELECT extract(epoch FROM max(ended_at) - min(claimed_at))::float8 FROM tasks.attempt"
    ).fetchone() or (0.0,)
    rates.append(jobs / seconds)
    worker_cpu = sum(end.cpu_seconds - begin.cpu_seconds for end, begin in zip(now, used, strict=True))
    report(
        "drain_run",
        processes=processes,
        options=" ".join(options),
        per_second=rates[-1],
        worker_cpu_s_per_1000=worker_cpu / jobs * 1000,
        server_cpu_s_per_1000=(server_cpu - before.cpu_seconds) / jobs * 1000,
        commits_per_job=(after.commits - before.commits) / jobs,
        wal_bytes_per_job=(after.wal_bytes - before.wal_bytes) / jobs,
        fsyncs_per_job=(after.fsyncs - before.fsyncs) / jobs,
        peak_rss_mb=max(use.peak_mb for use in now),
    )


def main(arguments: list[str]) -> None:
    """Measure everything, or only what is named: enqueue drain pickup walls recovery."""
    parts: dict[str, Callable[[Bench], None]] = {
        "enqueue": bench_enqueue,
        "drain": bench_drain,
        "pickup": claims.bench_pickup,
        "walls": claims.bench_walls,
        "recovery": claims.bench_recovery,
    }
    names = [name for name in arguments if name != "--quick"] or list(parts)
    with database.new_server() as url, psycopg.connect(url) as conn:
        bench = Bench(url, conn, quick="--quick" in arguments)
        for name in names:
            parts[name](bench)


if __name__ == "__main__":
    main(sys.argv[1:])
