"""Our queue beside PgQueuer, Procrastinate and Celery: the same work, in the same run, on the same Postgres.

    python3 -m venv PEERS
    PEERS/bin/pip install pgqueuer asyncpg uvloop procrastinate 'psycopg[binary]' 'celery[redis]'
    .venv/bin/python -m bench.peers --python PEERS/bin/python

They are no dependencies of ours, so they live in an environment of their own; Celery needs `redis-server` as well. One
that is not installed gets a line that says so. Behind the options stand the parts to measure, `enqueue drain pickup`,
if not all (about four minutes), and `--quick` for a fifth of the jobs.

Each system has its own database on one server with full durability, its own best settings, and coroutines for tasks if
it can run them; ours runs as it comes. Prints one JSON line for each measurement and system, the median of the runs,
and `ours`: our rate divided by theirs, or their time divided by ours, so that more than 1 is in our favour. A drain is
timed from the moment when a stopped worker (SIGSTOP), with all jobs before it, is let go until its store says that
every job has ended. CPU is that of the worker with its children and of all processes of the server, Redis for Celery.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg

from bench import database
from bench.peer_process import NAMES, Redis, System
from bench.queue import report

RUNS = 3
DRAIN = {"packhouse": 30_000, "pgqueuer": 30_000, "procrastinate": 1_000, "celery": 4_000}
BULK = {"packhouse": 20_000, "pgqueuer": 20_000, "procrastinate": 10_000, "celery": 4_000}
ONE, SAMPLES = 500, 200


class Peers:
    """The systems that are there, ours first."""

    def __init__(self, systems: list[System], *, quick: bool) -> None:
        self.systems = systems
        self.quick = quick

    def size(self, full: int) -> int:
        """Number of jobs: a fifth for a quick run."""
        return full // 5 if self.quick else full

    def enqueue(self) -> None:
        """One job a commit, and many a call."""
        for what, command, sizes in (
            ("enqueue_one_by_one", "one", dict.fromkeys(NAMES, ONE)),
            ("enqueue_bulk", "bulk", BULK),
        ):
            found: dict[str, list[float]] = {system.name: [] for system in self.systems}
            for _ in range(RUNS):
                for system in self.systems:
                    found[system.name].append(system.ask(command, self.size(sizes[system.name]))["per_second"])
                    system.empty()
            self._report(what, {name: {"per_second": statistics.median(rates)} for name, rates in found.items()})

    def drain(self) -> None:
        """No-op jobs with one worker process."""
        found: dict[str, list[dict[str, float]]] = {system.name: [] for system in self.systems}
        for _ in range(RUNS):
            for system in self.systems:
                found[system.name].append(self._drain_once(system))
        medians = {
            name: {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
            for name, runs in found.items()
        }
        self._report("drain_1", medians)

    def _drain_once(self, system: System) -> dict[str, float]:
        jobs = self.size(DRAIN[system.name])
        with system.worker() as worker:
            system.ask("pickup", 3)  # it is at work
            system.ask("idle")
            worker.stop()
            system.ask("bulk", jobs)
            time.sleep(1.5)  # what is written behind the answers is written, and the server has reported it
            before, began = system.counters(), time.monotonic()
            worker_before = worker.cpu_seconds()
            worker.go_on()
            asked = system.ask("idle")["asked"]
            seconds = time.monotonic() - began
            time.sleep(1.5)
            after = system.counters()
            used = {"worker": worker.cpu_seconds() - worker_before, "server": after.cpu_seconds - before.cpu_seconds}
        system.empty()
        figures = {
            "jobs": jobs,
            "per_second": jobs / seconds,
            **{f"{who}_cpu_s_per_1000": spent / jobs * 1000 for who, spent in used.items()},
        }
        if after.commits:
            figures["commits_per_job"] = (after.commits - before.commits - asked) / jobs
            figures["wal_bytes_per_job"] = (after.wal_bytes - before.wal_bytes) / jobs
        report("drain_run", system=system.name, **figures)
        return figures

    def pickup(self) -> None:
        """Milliseconds from the answer to an enqueue until its task starts, in an idle worker."""
        found = {}
        for system in self.systems:
            with system.worker():
                system.ask("pickup", 3)
                found[system.name] = system.ask("pickup", self.size(SAMPLES))
            system.empty()
        self._report("pickup_ms", found)

    def _report(self, what: str, found: dict[str, dict[str, float]]) -> None:
        mine = found["packhouse"]
        for name, figures in found.items():
            rate = "per_second" in figures
            ours = mine["per_second"] / figures["per_second"] if rate else figures["p50"] / mine["p50"]
            runs = {"runs": RUNS} if rate else {}
            report(what, system=name, **runs, **figures, ours=ours)


def main() -> None:
    """Measure everything, or only what is named."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter that has the peers")
    parser.add_argument("--quick", action="store_true", help="a fifth of the jobs")
    parser.add_argument("parts", nargs="*", metavar="PART", help="enqueue, drain, pickup (all)")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = stack.enter_context(database.new_server())
        conn = stack.enter_context(psycopg.connect(url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(Redis(folder))
        systems = []
        for name in NAMES:
            system = System(name, url, options.python, folder, redis)
            missing = system.missing()
            if missing:
                report("peer", system=name, installed=False, missing=missing)
                continue
            systems.append(stack.enter_context(system))
            report("peer", system=name, installed=True, **systems[-1].ask("describe"))
        (server,) = conn.execute("SHOW server_version").fetchone() or ("",)
        report("server", postgres=server, fsync="on", synchronous_commit="on")
        peers = Peers(systems, quick=options.quick)
        parts: dict[str, Callable[[], None]] = {"enqueue": peers.enqueue, "drain": peers.drain, "pickup": peers.pickup}
        for part in options.parts or parts:
            parts[part]()


if __name__ == "__main__":
    main()
