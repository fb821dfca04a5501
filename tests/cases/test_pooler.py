"""Behind a pooler in transaction mode nothing may be kept on a connection, and nothing is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import tasks
from tasks import listener as listening
from tasks import queue
from tasks.cli import group
from tasks.listener import Listener
from tasks.testing import check_invariants
from tasks.timers import Timers
from tests.cases.pooler import Pooler, pooled
from tests.tasks.running import WAIT_SECONDS, endings, job_row, make_app

pytestmark = [pytest.mark.integration, pytest.mark.system]

Db = psycopg.Connection[Any]
JOBS = 60


@pytest.fixture
def pooler(database_url: str) -> Iterator[tuple[Pooler, str]]:
    with pooled(database_url) as made:
        yield made


def test_the_pooler_gives_every_transaction_another_connection(pooler: tuple[Pooler, str]) -> None:
    with psycopg.connect(pooler[1], prepare_threshold=None) as conn:
        pids = []
        for _ in range(4):
            pids.append(conn.execute("SELECT pg_backend_pid()").fetchone())
            assert conn.execute("SELECT pg_backend_pid()").fetchone() == pids[-1]
            conn.commit()
    assert len(set(pids)) == 4


def test_workers_behind_a_pooler_run_retry_sweep_and_fence_as_without(
    pooler: tuple[Pooler, str], committed_db: Db
) -> None:
    """Case 45: cases 1 to 6 in one run; two workers, failures, a dead worker's jobs, a collision, a crash loop."""
    app = make_app(pooler[1], committed_db)
    chance = iter(range(10**9))

    @app.task("work", bind=True, retry=tasks.Fixed(0), lease=1, max_attempts=20)
    def work(self: tasks.Context) -> int:
        self.progress(1)
        if next(chance) % 3 == 0:
            raise OSError
        return self.request.attempt

    @app.task("effect", bind=True, dedup=tasks.Dedup(), retry=tasks.Fixed(0))
    def effect(self: tasks.Context) -> None:
        if self.request.scope == "collides" and self.request.attempt == 1 and not collided.is_set():
            collided.set()
            with psycopg.connect(pooler[1], prepare_threshold=None) as conn:
                effect.apply_async(scope="collides", session=conn, countdown=1.5)
            raise OSError

    collided = threading.Event()
    jobs = [work.delay().id for _ in range(JOBS)]
    zombies = queue.claim_jobs(committed_db, worker="dead", tasks=["work"], queues=["default"], limit=10)
    doomed = work.apply_async(max_attempts=1).id
    assert queue.claim_jobs(committed_db, worker="dead", tasks=["work"], queues=["default"], limit=JOBS)
    first = effect.apply_async(scope="collides").id
    committed_db.commit()
    workers = [tasks.Worker(app, pooled=True), tasks.Worker(app, pooled=True)]
    timers = [Timers(worker, poll=0.2, sweep=0.3, listen=False) for worker in workers]
    try:
        for timer in timers:
            timer.start()
        _until_done(committed_db)
    finally:
        for timer, worker in zip(timers, workers, strict=True):
            timer.stop()
            worker.close()
    for zombie in zombies:
        with pytest.raises(tasks.JobTerminal):
            queue.finish_job(committed_db, zombie.ref)
    committed_db.rollback()
    assert {job_row(committed_db, job_id)["status"] for job_id in jobs} == {"succeeded"}
    assert endings(committed_db, doomed) == ["ABANDONED"]
    assert job_row(committed_db, first)["cancel_reason"] == "superseded"
    assert pooler[0].turns > JOBS
    check_invariants(committed_db)


def _until_done(conn: Db) -> None:
    for _ in range(WAIT_SECONDS * 20):
        left = conn.execute("SELECT count(*) FROM tasks.job WHERE finished_at IS NULL").fetchone()
        conn.rollback()
        if left == (0,):
            return
        conn.execute("SELECT pg_sleep(0.05)")
    raise AssertionError(f"{left} jobs are left")


def test_handles_and_commands_work_behind_a_pooler_and_leave_nothing_on_its_connections(
    pooler: tuple[Pooler, str], committed_db: Db
) -> None:
    """They ask more often than psycopg would ask without preparing the statement."""
    app = make_app(pooler[1], committed_db)
    app.task("note")(lambda: None)
    job = app["note"].delay()
    committed_db.commit()
    looks = iter(range(10**9))

    def look(_: float) -> None:
        if next(looks) == 20:
            with tasks.Worker(app, pooled=True) as worker:
                worker.once()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.result.time.sleep", look)
        assert job.get(timeout=WAIT_SECONDS) is None
    second = tasks.Autocommit(pooler[1])
    for _ in range(20):
        app["note"].apply_async(session=second())
    second.close()
    for command in (["list"], ["stats"], ["tail", str(job.id)], ["purge"]):
        assert CliRunner().invoke(group(lambda: app), ["jobs", *command]).exit_code == 0
    with psycopg.connect(pooler[1], prepare_threshold=None, autocommit=True) as conn:
        asked = "SELECT current_setting('statement_timeout'), (SELECT count(*) FROM pg_prepared_statements)"
        assert {conn.execute(asked).fetchone() for _ in range(16)} == {("0", 0)}


def test_a_listen_behind_a_pooler_is_noticed(pooler: tuple[Pooler, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 45: at the start, and it is said what to do; polling goes on all the same."""
    said = threading.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "--no-listen" in record.getMessage():
                said.set()

    for name in ("LOOK_SECONDS", "PROBE_SECONDS"):
        monkeypatch.setattr(listening, name, 0.05)
    monkeypatch.setattr(listening, "ANSWER_SECONDS", 0.3)
    handler = Handler()
    logging.getLogger("tasks").addHandler(handler)
    listener = Listener(pooler[1], ["default"], lambda: None)
    listener.start()
    try:
        assert said.wait(WAIT_SECONDS)
    finally:
        listener.stop()
        logging.getLogger("tasks").removeHandler(handler)
