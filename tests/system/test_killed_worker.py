"""A worker is killed in the middle of `mpack.index`: the clone is served all the same, a lease and a sweep later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from hub.work import INDEX
from storage import Prefixed, S3Settings, S3Store
from tasks.options import SWEEP_SECONDS
from tasks.queue import attempts_of, list_jobs
from tests.hub.world import History, World
from tests.system.gateway import Gateway

pytestmark = [pytest.mark.system, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

LEASE_SECONDS = 60.0
JOB_SECONDS = 15.0
"""What the job itself, the start of a worker and a busy machine may take."""


@contextmanager
def worker(database_url: str, s3: S3Settings, endpoint_url: str) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker process with default settings."""
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PACKHOUSE_", "S3_"))},
        "DATABASE_URL": database_url,
        "S3_ENDPOINT_URL": endpoint_url,
        "S3_ACCESS_KEY_ID": s3.access_key,
        "S3_SECRET_ACCESS_KEY": s3.secret_key,
        "S3_BUCKET": s3.bucket,
        "PACKHOUSE_SECRET_KEY": "x" * 32,
    }
    process = subprocess.Popen([sys.executable, "-m", "hub.cli", "worker"], env=environ, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        finally:
            process.kill()


def clone_status(world: World) -> int:
    return world.post("/fetch/mpack", {"want": [], "have": []}).status_code


def test_a_clone_survives_the_kill_of_the_worker_that_indexes(
    new_world: Callable[..., World],
    database_url: str,
    committed_db: psycopg.Connection[Any],
    s3_settings: S3Settings,
    history: History,
) -> None:
    with closing(S3Store(s3_settings)) as store, _gateway(s3_settings) as gateway:
        world = new_world(archive=Prefixed(store, "archive/"), cache=Prefixed(store, "cache/"), presign=False)
        assert world.push_mpack(history, history.line(5)[-1]).status_code == 200
        gateway.shut()
        with worker(database_url, s3_settings, f"http://127.0.0.1:{gateway.port}") as first:
            assert gateway.held.wait(60), "the worker never asked for the pack"
            first.send_signal(signal.SIGKILL)
            first.wait(10)
        killed_at = time.monotonic()
        assert clone_status(world) == 503
        with worker(database_url, s3_settings, s3_settings.endpoint_url):
            bound = LEASE_SECONDS + SWEEP_SECONDS + JOB_SECONDS
            while (status := clone_status(world)) == 503 and time.monotonic() < killed_at + bound:
                time.sleep(0.2)
        assert status == 200, "the clone was not served within lease, sweep interval and the job's own time"
        [job] = list_jobs(committed_db, task=INDEX)
        assert [attempt.result for attempt in attempts_of(committed_db, job.job_id)] == ["ABANDONED", "SUCCEEDED"]


@contextmanager
def _gateway(s3: S3Settings) -> Iterator[Gateway]:
    address = urlsplit(s3.endpoint_url)
    with Gateway(str(address.hostname), int(address.port or 80)) as gateway:
        yield gateway
