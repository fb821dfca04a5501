"""What bench/peers.py asks of a task system, ours or another: a client process that obeys lines, and a worker.

A module of a system (`bench/peer_NAME.py`) has a class like `Peer` and a function that works, and calls `main` with
both. It runs in an interpreter that has the system installed, which need not be ours: nothing but the standard library
is imported here.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

BULK = 1000
"""Jobs a call, where a system can enqueue many in one."""
POLL_SECONDS = 0.05
WAIT_SECONDS = 60
SOCKET = "BENCH_SOCKET"
"""Variable of the environment: where a task tells that it has started."""

_told: list[socket.socket] = []


class Peer(Protocol):
    """One task system in one database."""

    def describe(self) -> dict[str, str]:
        """Versions and settings."""

    def setup(self) -> None:
        """Make the tables."""

    def enqueue(self, number: int) -> None:
        """Enqueue one no-op job, durably as far as the system has it."""

    def bulk(self, numbers: Sequence[int]) -> None:
        """Enqueue many in the system's quickest way."""

    def enqueue_started(self) -> None:
        """Enqueue a job that calls `tell_started`."""

    def idle(self) -> bool:
        """Whether every job has ended, as the system's own store has it."""

    def empty(self) -> None:
        """Remove all jobs."""


def tell_started() -> None:
    """Say, in a task, that it has started: the machine's monotonic clock, in ns."""
    now = time.monotonic_ns()
    if not _told:
        _told.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        _told[0].connect(os.environ[SOCKET])
    _told[0].send(str(now).encode())


class Client:
    """Answers the commands of one line each."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ears.bind(os.environ[SOCKET])
        self.ears.settimeout(WAIT_SECONDS)

    def describe(self, _: int) -> dict[str, Any]:
        """Versions and settings."""
        return dict(self.peer.describe())

    def setup(self, _: int) -> dict[str, Any]:
        """Make the tables."""
        self.peer.setup()
        return {}

    def one(self, jobs: int) -> dict[str, Any]:
        """Enqueue one by one."""
        began = time.monotonic()
        for number in range(jobs):
            self.peer.enqueue(number)
        return {"per_second": jobs / (time.monotonic() - began)}

    def bulk(self, jobs: int) -> dict[str, Any]:
        """Enqueue in bulk."""
        began = time.monotonic()
        for begin in range(0, jobs, BULK):
            self.peer.bulk(range(begin, min(begin + BULK, jobs)))
        return {"per_second": jobs / (time.monotonic() - began)}

    def idle(self, _: int) -> dict[str, Any]:
        """Wait until nothing is left. Says how often it had to ask: each is a commit, which is not the worker's."""
        end = time.monotonic() + WAIT_SECONDS
        asked = 1
        while not self.peer.idle():
            if time.monotonic() > end:
                raise TimeoutError("its worker does not get done")
            time.sleep(POLL_SECONDS)
            asked += 1
        return {"asked": asked}

    def empty(self, _: int) -> dict[str, Any]:
        """Remove all jobs."""
        self.peer.empty()
        return {}

    def pickup(self, samples: int) -> dict[str, Any]:
        """Milliseconds from the answer to an enqueue until its task starts, in an idle worker."""
        waited = []
        for _ in range(samples):
            self.peer.enqueue_started()
            at = time.monotonic_ns()
            waited.append((int(self.ears.recv(64)) - at) / 1e6)
            time.sleep(0.02)  # both sides begin from rest
        waited.sort()
        return {"p50": statistics.median(waited), "p99": waited[min(samples - 1, int(samples * 0.99))]}


def main(peer: Callable[[], Peer], work: Callable[[], None]) -> None:
    """Be what the command line says: `client`, or with `work` a worker until SIGTERM."""
    if sys.argv[1:] == ["work"]:
        work()
        return
    client = Client(peer())
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        sys.stdout.write(json.dumps(getattr(client, command)(int(number or 0))) + "\n")
        sys.stdout.flush()
