from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.timers import PAUSE_SECONDS_MAX, POLL_SECONDS_MIN, Pace, Timers, guarded
from tests.tasks.running import WAIT_SECONDS, Stop, endings, job_row, make_app

Connection = psycopg.Connection[Any]
SELDOM = 3600.0
"""An interval that does not come within a test: what happens, something else has triggered."""


def test_pause_between_polls_doubles_while_idle_up_to_the_interval() -> None:
    pace = Pace(2.0)
    pauses = []
    for _ in range(6):
        pauses.append(pace._pause)
        pace.found(0)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    pace.found(1)
    assert pace._pause == POLL_SECONDS_MIN


def test_pause_after_errors_is_bounded_also_for_a_long_interval() -> None:
    pace = Pace(3600.0)
    for _ in range(20):
        pace.failed()
    assert 0 < pace.seconds() <= PAUSE_SECONDS_MAX


def test_short_interval_is_kept() -> None:
    assert Pace(0.1).seconds() <= 0.1


def test_guarded_call_logs_an_error_and_returns(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    guarded("poll", broken)()
    assert "poll failed, it runs again at its next time" in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_lost_database_is_one_line_without_a_trace(caplog: pytest.LogCaptureFixture) -> None:
    def away() -> None:
        raise psycopg.OperationalError("server closed the connection")

    guarded("sweep", away)()
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert "sweep: the database did not answer" in record.getMessage()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (psycopg.errors.UndefinedTable('relation "tasks.job" does not exist\nLINE 1'), "no job tables"),
        (psycopg.errors.UndefinedColumn('column "lane" does not exist\nLINE 1'), "another version (column "),
    ],
)
def test_missing_migration_is_one_line_that_says_what_to_do(
    caplog: pytest.LogCaptureFixture, error: Exception, told: str
) -> None:
    def missing() -> None:
        raise error

    guarded("poll", missing)()
    (record,) = caplog.records
    assert (record.levelno, record.exc_info) == (logging.WARNING, None)
    assert told in record.getMessage()
    assert ": run the migrations" in record.getMessage()


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    return make_app(database_url, committed_db)


@pytest.fixture
def ran(app: tasks.App) -> threading.Event:
    ran = threading.Event()
    app.task("note")(ran.set)
    return ran


@pytest.fixture
def worker(app: tasks.App, ran: threading.Event) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, grace=WAIT_SECONDS) as worker:
        yield worker


def enqueue(app: tasks.App, conn: Connection) -> Any:
    job = app["note"].delay()
    conn.commit()
    return job.id


@pytest.mark.integration
def test_notification_rings_the_worker_long_before_the_next_poll(
    worker: tasks.Worker, app: tasks.App, ran: threading.Event, committed_db: Connection
) -> None:
    timers = Timers(worker, poll=SELDOM, sweep=SELDOM)
    timers._scheduler.pause_job("poll")
    timers.start()
    assert timers._listener is not None
    assert timers._listener.listening.wait(WAIT_SECONDS)
    job_id = enqueue(app, committed_db)
    assert ran.wait(WAIT_SECONDS)
    assert timers.stop() == 0
    assert job_row(committed_db, job_id)["status"] == "succeeded"


@pytest.mark.integration
def test_polling_alone_finds_jobs(
    worker: tasks.Worker, app: tasks.App, ran: threading.Event, committed_db: Connection
) -> None:
    timers = Timers(worker, poll=0.1, listen=False)
    timers.start()
    enqueue(app, committed_db)
    assert ran.wait(WAIT_SECONDS)
    timers.stop()


@pytest.mark.integration
def test_listener_is_back_after_its_connection_was_cut(
    worker: tasks.Worker, app: tasks.App, ran: threading.Event, committed_db: Connection
) -> None:
    timers = Timers(worker, poll=SELDOM, sweep=SELDOM)
    timers._scheduler.pause_job("poll")
    listener = timers._listener
    assert listener is not None
    timers.start()
    assert listener.listening.wait(WAIT_SECONDS)
    committed_db.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database()"
        " AND query LIKE 'LISTEN tasks;%'"
    )
    enqueue(app, committed_db)
    assert ran.wait(WAIT_SECONDS), "the look after the reconnect finds what was announced meanwhile"
    timers.stop()


@pytest.mark.integration
def test_notification_for_another_queue_rings_nobody(database_url: str, committed_db: Connection) -> None:
    from tasks.listener import Listener

    rings: list[str] = []
    rung = threading.Semaphore(0)

    def ring() -> None:
        rings.append("ring")
        rung.release()

    listener = Listener(database_url, ["mine"], ring)
    listener.start()
    assert rung.acquire(timeout=WAIT_SECONDS), "once after the connect"
    for name in ("other", "mine"):
        committed_db.execute("SELECT pg_notify('tasks', %s)", (name,))
        committed_db.commit()
    assert rung.acquire(timeout=WAIT_SECONDS)
    listener.stop()
    assert not listener.is_alive()
    assert rings == ["ring", "ring"]


@pytest.mark.integration
def test_raising_poll_is_polled_again(
    worker: tasks.Worker,
    app: tasks.App,
    ran: threading.Event,
    committed_db: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tick, calls = worker.tick, []

    def broken_twice() -> int:
        calls.append("tick")
        if len(calls) <= 2:
            raise RuntimeError("broken")
        return tick()

    monkeypatch.setattr(worker, "tick", broken_twice)
    enqueue(app, committed_db)
    timers = Timers(worker, poll=0.1, listen=False)
    timers.start()
    assert ran.wait(WAIT_SECONDS)
    timers.stop()
    assert len(calls) >= 3


@pytest.mark.integration
def test_short_lease_is_kept_while_a_task_runs_longer(app: tasks.App, committed_db: Connection) -> None:
    @app.task("long", bind=True, lease=1)
    def long(self: tasks.Context) -> bool:
        # Two leases long; the sweep of the timers looks all the while.
        return threading.Event().wait(2.2) or self.cancelled()

    job = long.delay()
    committed_db.commit()
    with tasks.Worker(app, grace=WAIT_SECONDS) as worker:
        timers = Timers(worker, poll=0.1, sweep=0.2)
        timers.start()
        while job_row(committed_db, job.id)["status"] != "running":
            committed_db.execute("SELECT pg_sleep(0.02)")
        timers.stop()
    assert (endings(committed_db, job.id), job_row(committed_db, job.id)["result"]) == (["SUCCEEDED"], False)


@pytest.mark.integration
def test_start_sweeps_and_registers_at_once(
    worker: tasks.Worker,
    app: tasks.App,
    ran: threading.Event,
    committed_db: Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register, registered = worker.register, threading.Event()

    def register_and_tell() -> None:
        register()
        registered.set()

    monkeypatch.setattr(worker, "register", register_and_tell)
    job_id = enqueue(app, committed_db)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    committed_db.execute("UPDATE tasks.job SET available_at = %s", (long_ago,))
    queue.claim_jobs(committed_db, worker="dead", tasks=["note"], queues=["default"], limit=1, now=long_ago)
    committed_db.commit()
    timers = Timers(worker, poll=0.1, sweep=SELDOM)
    timers.start()
    assert ran.wait(WAIT_SECONDS)
    assert registered.wait(WAIT_SECONDS)
    timers.stop()
    row = committed_db.execute("SELECT tasks FROM tasks.worker WHERE worker_id = %s", (worker.worker_id,)).fetchone()
    assert row == (["note"],)
    assert endings(committed_db, job_id) == ["ABANDONED", "SUCCEEDED"]


@pytest.mark.integration
def test_stop_keeps_the_leases_of_what_still_runs(app: tasks.App, committed_db: Connection) -> None:
    stop = Stop()
    app.task("stop", lease=1)(stop)
    job = app["stop"].delay()
    committed_db.commit()
    with tasks.Worker(app, grace=WAIT_SECONDS) as worker:
        timers = Timers(worker, poll=0.1, sweep=SELDOM)
        timers.start()
        assert stop.reached.wait(WAIT_SECONDS)
        before = job_row(committed_db, job.id)["heartbeat_at"]
        released: list[int] = []
        stopping = threading.Thread(target=lambda: released.append(timers.stop()))
        stopping.start()
        assert timers._listener is not None
        timers._listener.join(WAIT_SECONDS)
        while job_row(committed_db, job.id)["heartbeat_at"] == before:
            committed_db.execute("SELECT pg_sleep(0.02)")
        stop.go.set()
        stopping.join(WAIT_SECONDS)
    assert (released, endings(committed_db, job.id)) == ([0], ["SUCCEEDED"])
