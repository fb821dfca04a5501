"""What a worker does while the database is away. Each test has a database of its own, which it can shut."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

import tasks
from tasks.sweep import sweep
from tasks.testing import check_invariants, drain
from tests.conftest import migrate
from tests.tasks.running import WAIT_SECONDS, Stop, endings, job_row, later, make_app, wait_until_idle

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


class Database:
    """A database that can be shut: nobody gets in, and whoever is in is thrown out."""

    def __init__(self, url: str, admin: Connection) -> None:
        self.url = url
        self.name = url.rpartition("/")[2]
        self.admin = admin

    def throw_out(self) -> None:
        self.admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (self.name,)
        )

    def shut(self) -> None:
        self._allow(allowed=False)
        self.throw_out()

    def open(self) -> None:
        self._allow(allowed=True)

    def _allow(self, *, allowed: bool) -> None:
        self.admin.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(sql.Identifier(self.name), sql.Literal(allowed))
        )

    def connect(self) -> Connection:
        return psycopg.connect(self.url)


@pytest.fixture
def database(new_database: Callable[[], str], postgres_url: str) -> Iterator[Database]:
    url = new_database()
    migrate(url)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        database = Database(url, admin)
        yield database
        database.open()


@pytest.fixture
def stop() -> Stop:
    return Stop()


@pytest.fixture
def app(database: Database, stop: Stop) -> tasks.App:
    app = make_app(database.url)
    app.task("stop")(stop)
    return app


class Heard(logging.Handler):
    """Sets an event when the worker says `phrase`."""

    def __init__(self, phrase: str) -> None:
        super().__init__()
        self.phrase = phrase
        self.event = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self.phrase in record.getMessage():
            self.event.set()


@pytest.fixture
def heard() -> Iterator[Callable[[str], threading.Event]]:
    handlers: list[Heard] = []

    def listen(phrase: str) -> threading.Event:
        handlers.append(Heard(phrase))
        logging.getLogger("tasks").addHandler(handlers[-1])
        return handlers[-1].event

    yield listen
    for handler in handlers:
        logging.getLogger("tasks").removeHandler(handler)


def enqueue(app: tasks.App, database: Database, **options: Any) -> Any:
    with database.connect() as conn:
        return app["stop"].apply_async(session=conn, **options).id


def claim(worker: tasks.Worker, stop: Stop) -> None:
    worker.start_slots()
    worker.tick()
    assert stop.reached.wait(WAIT_SECONDS)


def test_result_is_stored_although_all_connections_were_cut(app: tasks.App, database: Database, stop: Stop) -> None:
    job_id = enqueue(app, database)
    with tasks.Worker(app) as worker:
        claim(worker, stop)
        database.throw_out()
        stop.go.set()
        wait_until_idle(worker)
    with database.connect() as conn:
        assert job_row(conn, job_id)["status"] == "succeeded"
        check_invariants(conn)


def test_result_waits_for_the_database_to_return(
    app: tasks.App, database: Database, stop: Stop, heard: Callable[[str], threading.Event]
) -> None:
    job_id = enqueue(app, database)
    waits = heard("waits for the database to settle")
    with tasks.Worker(app) as worker:
        claim(worker, stop)
        database.shut()
        stop.go.set()
        assert waits.wait(WAIT_SECONDS)
        assert worker.held == 1, "a slot is free only after the database said yes"
        database.open()
        wait_until_idle(worker)
    with database.connect() as conn:
        assert job_row(conn, job_id)["status"] == "succeeded"
        assert endings(conn, job_id) == ["SUCCEEDED"]


def test_worker_gives_up_a_result_when_the_lease_is_over_and_the_sweep_takes_the_job_back(
    app: tasks.App, database: Database, stop: Stop, heard: Callable[[str], threading.Event]
) -> None:
    job_id = enqueue(app, database, lease=1)
    given_up = heard("given up")
    with tasks.Worker(app) as worker:
        claim(worker, stop)
        database.shut()
        stop.go.set()
        assert given_up.wait(WAIT_SECONDS)
        wait_until_idle(worker)
        database.open()
        with database.connect() as conn:
            assert sweep(conn, now=later()).requeued == 1
        assert [settled.attempt for settled in drain(app, now=later())] == [2]
    with database.connect() as conn:
        assert endings(conn, job_id) == ["ABANDONED", "SUCCEEDED"]
        check_invariants(conn)


def test_tick_raises_while_the_database_is_away_and_works_when_it_is_back(
    app: tasks.App, database: Database, stop: Stop
) -> None:
    stop.go.set()
    with tasks.Worker(app) as worker:
        assert worker.tick() == 0
        database.shut()
        with pytest.raises(psycopg.OperationalError):
            worker.tick()
        database.open()
        enqueue(app, database)
        assert [settled.outcome for settled in worker.once()] == ["succeeded"]
