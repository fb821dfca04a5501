"""Celery on Redis, as bench/peers.py runs it: two processes, no results. Redis keeps its defaults: a job is in memory
when the enqueue is answered, on disk only later.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

import celery
import redis

from bench.peer import main, tell_started

URL = os.environ["REDIS_URL"]
PREFETCH = 100
app = celery.Celery("bench.peer_celery", broker=URL)
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=PREFETCH, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(number: int) -> None:
    """Do nothing."""


@app.task(name="started")
def started() -> None:
    """Tell when it started."""
    tell_started()


class CeleryPeer:
    """A client, and a connection to look with."""

    def __init__(self) -> None:
        self.redis = redis.Redis.from_url(URL)

    def describe(self) -> dict[str, str]:
        """Versions and settings."""
        server = self.redis.info("server")["redis_version"]
        settings = f"prefork 2, prefetch {PREFETCH}, no results, redis {server} with its defaults: not durable per job"
        return {"version": version("celery"), "settings": settings}

    def setup(self) -> None:
        """Nothing."""

    def enqueue(self, number: int) -> None:
        """Enqueue one."""
        noop.delay(number)

    def bulk(self, numbers: Sequence[int]) -> None:
        """There is no call for many: one by one on one connection."""
        with app.producer_pool.acquire(block=True) as producer:
            for number in numbers:
                noop.apply_async((number,), producer=producer)

    def enqueue_started(self) -> None:
        """Enqueue one."""
        started.delay()

    def idle(self) -> bool:
        """Look into the list of those that wait, and of those that a worker has taken."""
        return not self.redis.llen("celery") and not self.redis.hlen("unacked")

    def empty(self) -> None:
        """Remove all jobs."""
        app.control.purge()


def work() -> None:
    """Be the worker of the command line."""
    options = ["--pool", "prefork", "--concurrency", "2", "--without-gossip", "--without-mingle", "--loglevel", "ERROR"]
    command = [sys.executable, "-m", "celery", "-A", "bench.peer_celery", "worker", *options]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main(CeleryPeer, work)
