"""The databases that bench/queue.py measures in, and what their server says that it did."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from psycopg.types.json import Jsonb

from bench.processes import TICKS
from hub.embedded.postgres import Postgres
from hub.embedded.state import State
from tasks import queue
from tasks.ids import new_job_id
from tasks.job import NewJob

ROOT = Path(__file__).parent.parent
Connection = psycopg.Connection[Any]
ENDED = "SELECT NOT EXISTS (SELECT FROM tasks.job WHERE finished_at IS NULL ORDER BY scope, task LIMIT 1)"
"""Whether every job has ended, in the order of an index: without one it is a walk over the table at each question."""


@contextmanager
def new_server() -> Iterator[str]:
    """A durable Postgres of its own with the job tables, gone at the end. Yields the URL of the database."""
    with tempfile.TemporaryDirectory() as folder, closing(State(Path(folder) / "state")) as state:
        server = Postgres(state)
        server.launch()
        try:
            url = server.wait_ready()
            config = Config(ROOT / "setup.cfg")
            config.set_main_option("script_location", str(ROOT / "migrations"))
            config.attributes["database_url"] = url
            command.upgrade(config, "tasks@head")
            yield url
        finally:
            server.discard()


@dataclass(frozen=True)
class Counters:
    """What the server has done so far. CPU is that of all its processes, commits those of one database."""

    commits: int
    wal_bytes: int
    fsyncs: int
    cpu_seconds: float


def counters(conn: Connection, server_pid: int) -> Counters:
    """Read the counters. Sessions report theirs when they are idle, at the latest after a second."""
    conn.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
    conn.commit()
    commits, wal, fsyncs = conn.execute(
        "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),"
        " (SELECT wal_bytes::bigint FROM pg_stat_wal),"
        " (SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal')"
    ).fetchone() or (0, 0, 0)
    conn.commit()
    return Counters(commits, wal, fsyncs, server_cpu(server_pid))


def server_pid(conn: Connection) -> int:
    """Pid of the postmaster, when the server runs on this machine."""
    (backend,) = conn.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    conn.commit()
    return int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])


def server_cpu(pid: int) -> float:
    """CPU seconds of the postmaster's processes, ended ones too (those it has waited for)."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(entry.name) == pid:
            ticks += sum(map(int, fields[11:15]))
        elif int(fields[1]) == pid:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def fill(conn: Connection, jobs: int, task: str = "noop", **options: Any) -> None:
    """Enqueue and commit, quickly, and let the planner know."""
    for begin in range(0, jobs, 1000):
        queue.enqueue_jobs(
            conn,
            [
                NewJob(task, {"args": [number], "kwargs": {}}, **options)
                for number in range(begin, min(begin + 1000, jobs))
            ],
        )
    conn.commit()
    conn.autocommit = True
    conn.execute("VACUUM ANALYZE tasks.job")
    conn.autocommit = False


def empty(conn: Connection) -> None:
    """Remove all jobs."""
    conn.execute("TRUNCATE tasks.job, tasks.ended_attempt, tasks.worker, tasks.dependency, tasks.unparking")
    conn.commit()


def bare_rows(conn: Connection, jobs: int) -> None:
    """Fill the bare table of the raw loops."""
    conn.execute("DROP TABLE IF EXISTS bare")
    conn.execute("CREATE TABLE bare (id uuid PRIMARY KEY, seq bigint GENERATED ALWAYS AS IDENTITY, payload jsonb)")
    conn.execute("CREATE INDEX ON bare (seq)")
    with conn.cursor() as cur, cur.copy("COPY bare (id, payload) FROM STDIN") as copy:
        for number in range(jobs):
            copy.write_row((new_job_id(), Jsonb({"args": [number], "kwargs": {}})))
    conn.commit()
    conn.autocommit = True
    conn.execute("VACUUM ANALYZE bare")
    conn.autocommit = False
