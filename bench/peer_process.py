"""The processes of bench/peers.py: a client and a worker for each system, and the Redis of Celery."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from bench import database
from bench.database import ROOT, Counters
from bench.peer import SOCKET
from bench.processes import use_of
from hub.embedded.ports import LOOPBACK, Ports

NEEDS = {
    "packhouse": (),
    "pgqueuer": ("pgqueuer", "asyncpg", "uvloop"),
    "procrastinate": ("procrastinate",),
    "celery": ("celery", "redis"),
}
NAMES = tuple(NEEDS)
STOP_SECONDS = 30
START_SECONDS = 10


class Redis:
    """A Redis with its defaults, started when a system first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.program = shutil.which("redis-server")
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_SECONDS)

    def start(self) -> str:
        """Start it and return its URL once it answers."""
        with closing(Ports()) as ports:
            (self.port,) = ports.choose(1)
        command = [str(self.program), "--bind", LOOPBACK, "--port", str(self.port), "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                with socket.create_connection((LOOPBACK, self.port)):
                    return f"redis://{LOOPBACK}:{self.port}/0"
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)  # another process starts: there is no event to wait for

    def cpu_seconds(self) -> float:
        """What it has used."""
        return 0.0 if self._process is None else use_of(self._process.pid).cpu_seconds


class Worker:
    """A worker process and its children, a process group of its own."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def stop(self) -> None:
        """Let it stand still."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """What it and its children have used."""
        return use_of(self._process.pid).cpu_seconds

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        self.go_on()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


class System:
    """One system: its database, its client. Use it as a context manager."""

    def __init__(self, name: str, url: str, python: str, folder: Path, redis: Redis) -> None:
        self.name = name
        self._url = url
        self._python = sys.executable if name == "packhouse" else python
        self._redis = redis
        self._environment = {**os.environ, SOCKET: str(folder / f"{name}.socket")}
        self._stack = ExitStack()

    def missing(self) -> str:
        """What is not installed of what it needs, or nothing."""
        for module in NEEDS[self.name]:
            if subprocess.run([self._python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
                return module
        return "redis-server" if self.name == "celery" and not self._redis.program else ""

    def __enter__(self) -> Self:
        with self._stack:
            self._conn = self._stack.enter_context(psycopg.connect(self._database(), autocommit=True))
            self._server = database.server_pid(self._conn)
            self._client = subprocess.Popen(
                self._command("client"), cwd=ROOT, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._stack.enter_context(self._client)
            self.ask("setup")
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def ask(self, command: str, number: int = 0) -> dict[str, Any]:
        """Let the client do something and answer. Raises RuntimeError when it has ended instead."""
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(f"{command} {number}\n".encode())
        self._client.stdin.flush()
        answer = self._client.stdout.readline()
        if not answer:
            raise RuntimeError(f"the client of {self.name} ended at {command}")
        found: dict[str, Any] = json.loads(answer)
        return found

    @contextmanager
    def worker(self) -> Iterator[Worker]:
        """A worker on this system."""
        process = subprocess.Popen(
            self._command("work"),
            cwd=ROOT,
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        worker = Worker(process)
        try:
            yield worker
        finally:
            worker.end()

    def counters(self) -> Counters:
        """What the server has done for this system."""
        if self.name == "celery":
            return Counters(0, 0, 0, self._redis.cpu_seconds())
        return database.counters(self._conn, self._server)

    def empty(self) -> None:
        """Remove all jobs, and let the server begin from rest."""
        self.ask("empty")
        if self.name != "celery":
            self._conn.execute("CHECKPOINT")

    def _command(self, role: str) -> list[str]:
        return [self._python, "-m", f"bench.peer_{self.name}", role]

    def _database(self) -> str:
        """The URL of its own database; ours is the one with our tables."""
        if self.name == "celery":
            self._environment["REDIS_URL"] = self._redis.start()
        if self.name in ("packhouse", "celery"):
            self._environment["DATABASE_URL"] = self._url
            return self._url
        with psycopg.connect(self._url, autocommit=True) as conn:
            conn.execute(f"CREATE DATABASE {self.name}".encode())
        self._environment["DATABASE_URL"] = self._url.rpartition("/")[0] + f"/{self.name}"
        return self._environment["DATABASE_URL"]
