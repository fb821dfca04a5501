"""The servers and processes of a run. All of them end with it, whatever happens."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg

from hub.embedded.postgres import DURABLE, Postgres
from hub.embedded.processes import Child
from hub.embedded.state import State
from tests.chaos.plan import SWEEPS, WORKERS
from tests.conftest import migrate
from tests.servers import remove_abandoned

ROOT = Path(__file__).parents[2]
APP = "tests.chaos.app:app"
PREFIX = "packhouse-chaos-"
LEDGER = """
    CREATE SCHEMA chaos;
    CREATE TABLE chaos.pushed (scope text PRIMARY KEY, version integer NOT NULL);
    CREATE TABLE chaos.seen (scope text NOT NULL, version integer NOT NULL, job_id uuid NOT NULL);
    CREATE TABLE chaos.accepted (job_id uuid NOT NULL, outcome text NOT NULL);
"""
POLL_SECONDS = 0.05
STOP_SECONDS = 40.0
UNEXPECTED = ("unexpected error", "it runs again at its next time", "cannot be settled")
"""What the log says when something happened that nobody had thought of."""


class World:
    """A Postgres of its own with full durability, workers and sweeping processes. Use it in the main thread."""

    def __init__(self, seed: int, logs: Path | None = None) -> None:
        """`logs`: a directory that gets a copy of every log at the end."""
        self.seed = seed
        self._logs = logs
        self.killed = {"worker": 0, "sweep": 0, "connection": 0}
        self._stack = ExitStack()
        self._workers: list[Child] = []
        self._sweeps: list[Child] = []
        self._started = 0

    def __enter__(self) -> Self:
        with self._stack:
            remove_abandoned(PREFIX)
            self._state = State(Path(tempfile.mkdtemp(prefix=PREFIX)))
            self._stack.callback(shutil.rmtree, self._state.directory)
            self._stack.callback(self._state.close)
            self._stack.callback(self._keep_logs)
            self._postgres = Postgres(self._state, options=DURABLE)
            self._stack.callback(self._postgres.discard)
            self._postgres.launch()
            self.url = self._postgres.wait_ready()
            migrate(self.url)
            self.ask(LEDGER)
            self._stack.callback(self._end_processes)
            self._workers = [self._start("worker", number) for number in range(WORKERS)]
            self._sweeps = [self._start("sweep", number) for number in range(SWEEPS)]
            self.until("SELECT count(*) >= %s FROM tasks.worker", WORKERS)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, connect_timeout=5, autocommit=True)

    def ask(self, query: LiteralString, *params: object) -> list[Any]:
        """Run one statement, on a connection of its own: the last one may not be there any more."""
        with self.connect() as conn:
            cursor = conn.execute(query, params or None)
            return cursor.fetchall() if cursor.description else []

    def until(self, query: LiteralString, *params: object, seconds: float = 60.0) -> float:
        """Wait until a query answers true; return how long that took."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if self.ask(query, *params) == [(True,)]:
                return time.monotonic() - began
            self.check()
            time.sleep(POLL_SECONDS)  # other processes do the work: there is no event to wait for
        raise AssertionError(f"not within {seconds} s: {query}")

    def kill_worker(self, pick: int) -> None:
        self._kill(self._workers, "worker", pick)

    def kill_sweep(self, pick: int) -> None:
        self._kill(self._sweeps, "sweep", pick)

    def cut_connection(self, pick: int) -> None:
        """End one connection that is not ours, in the middle of whatever it does."""
        rows = self.ask(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " ORDER BY pid"
        )
        if rows:
            self.ask("SELECT pg_terminate_backend(%s)", rows[pick % len(rows)][0])
            self.killed["connection"] += 1

    def restart(self) -> dict[str, float]:
        """Restart the server immediately (SIGQUIT): no session ends well. Returns when it went and came back."""
        child = self._postgres.child
        assert child is not None
        away_at = time.time()
        child.popen.send_signal(signal.SIGQUIT)
        assert child.ended(STOP_SECONDS) is not None, "Postgres ignores SIGQUIT"
        self._postgres.launch()
        self._postgres.wait_ready()
        return {"away_at": away_at, "back_at": time.time()}

    def check(self) -> None:
        """Raise AssertionError when a process has ended that nobody has killed."""
        for child in (*self._workers, *self._sweeps):
            if child.ended() is not None:
                raise child.failure(f"ended by itself with status {child.ended()}")

    def stop(self) -> None:
        """Ask all processes to end, and see that they end well: each first gets the time to come to work."""
        processes = [*self._workers, *self._sweeps]
        pids = [child.popen.pid for child in self._workers]
        self.until("SELECT count(*) = %s FROM tasks.worker WHERE pid = ANY (%s)", len(pids), pids)
        deadline = time.monotonic() + STOP_SECONDS
        while not all(child.tail() for child in self._sweeps):
            assert time.monotonic() < deadline, "a sweep says nothing"
            time.sleep(POLL_SECONDS)  # it prints its counts when it has swept
        for child in processes:
            child.ask_to_stop()
        for child in processes:
            status = child.ended(STOP_SECONDS)
            if status != 0:
                raise child.failure(f"answered SIGTERM with status {status}")

    def unexpected(self) -> list[str]:
        """Lines of the logs that tell of an error which nobody had thought of."""
        logs = (log.read_text(errors="replace") for log in (self._state.directory / "log").glob("*-*.log"))
        lines = (line for log in logs for line in log.splitlines())
        return [line.strip() for line in lines if any(phrase in line for phrase in UNEXPECTED)]

    def _kill(self, children: list[Child], kind: str, pick: int) -> None:
        place = pick % len(children)
        children[place].popen.send_signal(signal.SIGKILL)
        children[place].popen.wait(STOP_SECONDS)
        self.killed[kind] += 1
        children[place] = self._start(kind, place)

    def _start(self, kind: str, number: int) -> Child:
        options = {
            "worker": ("worker", "--poll", "0.5", "--sweep", "5", "--concurrency", "4", "--grace", "10"),
            "sweep": ("sweep", "--every", "1"),
        }[kind]
        self._started += 1
        return Child.start(
            f"{kind}-{number}",
            [sys.executable, "-m", "tasks", "--app", APP, *options],
            log=self._state.log(f"{kind}-{number}"),
            env={**os.environ, "DATABASE_URL": self.url, "CHAOS_SEED": str(self.seed * 1000 + self._started)},
            cwd=ROOT,
            stop_seconds=STOP_SECONDS,
        )

    def _keep_logs(self) -> None:
        if self._logs is not None:
            shutil.copytree(self._state.directory / "log", self._logs, dirs_exist_ok=True)

    def _end_processes(self) -> None:
        """Not gently: whoever wanted a good end has called `stop`."""
        for child in (*self._workers, *self._sweeps):
            if child.popen.poll() is None:
                child.popen.kill()
                child.popen.wait(STOP_SECONDS)
