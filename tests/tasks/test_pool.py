from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import tasks
from tasks.pool import Pool
from tests.tasks.running import endings, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
TIME_OUTS = "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')"
PREPARED = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture
def pooled(database_url: str) -> Iterator[Pool]:
    pool = Pool(database_url, 1, "pooled", pooled=True)
    yield pool
    pool.close()


@pytest.fixture
def direct(database_url: str) -> Iterator[Pool]:
    pool = Pool(database_url, 1, "direct")
    yield pool
    pool.close()


def test_statements_of_a_worker_have_time_outs(direct: Pool, pooled: Pool) -> None:
    for pool in (direct, pooled):
        for _ in range(2):
            with pool.transaction() as conn:
                assert conn.execute(TIME_OUTS).fetchone() == ("10s", "2s")


def test_nothing_is_left_on_a_connection_behind_a_pooler(pooled: Pool) -> None:
    with pooled.transaction() as conn:
        for _ in range(20):
            conn.execute("SELECT %s::int", (1,))
        assert conn.execute(PREPARED).fetchone() == (0,)
        conn.commit()
        assert conn.execute(TIME_OUTS).fetchone() == ("0", "0"), "a setting would be the next client's"


def test_error_gives_the_connection_back(direct: Pool) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero), direct.transaction() as conn:
        conn.execute("SELECT 1/0")
    with direct.transaction() as conn:
        assert conn.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("pooled", [False, True])
def test_each_page_of_a_workers_sweep_is_a_transaction(
    database_url: str, committed_db: Connection, monkeypatch: pytest.MonkeyPatch, *, pooled: bool
) -> None:
    app = make_app(database_url, committed_db)
    app.task("note")(lambda: None)
    job = app["note"].apply_async(expires=0)
    committed_db.commit()

    def broken(*_: object, **__: object) -> int:
        raise RuntimeError

    monkeypatch.setattr("tasks.sweep.workers.forget_silent_workers", broken)
    with tasks.Worker(app, pooled=pooled) as worker:
        with pytest.raises(RuntimeError):
            worker.sweep()
        with worker._pool.transaction() as conn:
            assert conn.execute(TIME_OUTS).fetchone() == ("10s", "2s")
    assert job.state == "REVOKED"


def test_worker_behind_a_pooler_prepares_nothing(database_url: str, committed_db: Connection) -> None:
    app = make_app(database_url, committed_db)
    app.task("note")(lambda: None)
    jobs = [app["note"].delay().id for _ in range(12)]
    committed_db.commit()
    with tasks.Worker(app, concurrency=12, pooled=True) as worker:
        assert len(worker.once()) == 12
        worker.beat()
        worker.sweep()
        with worker._pool.transaction() as conn:
            assert conn.execute(PREPARED).fetchone() == (0,)
    assert all(endings(committed_db, job_id) == ["SUCCEEDED"] for job_id in jobs)
