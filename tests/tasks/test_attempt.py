from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

import tasks
from tasks import queue
from tasks.job import Claim, SweepCounts
from tasks.sweep import sweep
from tasks.testing import check_invariants, drain, enqueued
from tests.tasks.running import endings, job_row, later, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
NOTE = text("INSERT INTO public.note VALUES (:note)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


@pytest.fixture
def app(database_url: str, committed_db: Connection, engine: Engine) -> Iterator[tasks.App]:
    committed_db.execute("CREATE TABLE public.note (note text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    committed_db.commit()
    app = make_app(database_url, committed_db)
    app.configure(session=lambda: Session(engine))
    yield app
    committed_db.rollback()
    check_invariants(committed_db)
    committed_db.execute("DROP TABLE public.note")
    committed_db.commit()


def notes(conn: Connection) -> list[str]:
    conn.rollback()
    found = [row[0] for row in conn.execute("SELECT note FROM public.note ORDER BY note").fetchall()]
    conn.rollback()
    return found


def run_one(app: tasks.App) -> list[str]:
    with tasks.Worker(app, concurrency=1) as worker:
        return [settled.outcome for settled in worker.once()]


@pytest.mark.parametrize("transactional", [False, True])
def test_each_attempt_runs_inside_what_the_app_was_configured_with(
    app: tasks.App, committed_db: Connection, *, transactional: bool
) -> None:
    seen: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        seen.append("in")
        try:
            yield
        finally:
            seen.append("out")

    @app.task("try", transactional=transactional, max_attempts=2, retry=tasks.Fixed(0))
    def attempt() -> None:
        seen.append("run")
        if len(seen) < 3:
            raise OSError

    app.configure(around=around)
    attempt.delay()
    committed_db.commit()
    assert [run_one(app), run_one(app)] == [["retry"], ["succeeded"]]
    assert seen == ["in", "run", "out"] * 2


def test_attempt_fails_when_what_it_runs_inside_cannot_be_made(app: tasks.App, committed_db: Connection) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        raise OSError("no context")
        yield

    app.task("never", max_attempts=1)(lambda: None)
    app.configure(around=around)
    job = app["never"].delay()
    committed_db.commit()
    assert run_one(app) == ["failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == "OS_ERROR"


def test_rows_and_success_are_committed_together(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> str:
        self.session.execute(NOTE, {"note": "a"})
        assert notes(committed_db) == []
        return "done"

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["succeeded"]
    assert notes(committed_db) == ["a"]
    assert job_row(committed_db, job.id)["result"] == "done"


def test_exception_takes_the_rows_with_it(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "a"})
        raise ValueError

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["retry"]
    assert notes(committed_db) == []
    assert endings(committed_db, job.id) == ["FAILED"]


def test_commit_that_the_database_refuses_is_a_failed_attempt(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "a"})
        self.session.execute(NOTE, {"note": "a"})

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["retry"]
    assert notes(committed_db) == []
    assert job_row(committed_db, job.id)["last_error_code"] == "INTEGRITY_ERROR"


def test_result_that_cannot_be_stored_takes_the_rows_with_it(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> object:
        self.session.execute(NOTE, {"note": "a"})
        return object()

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["retry"]
    assert (notes(committed_db), endings(committed_db, job.id)) == ([], ["FAILED"])


def test_postponing_takes_the_rows_with_it_and_costs_nothing(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "a"})
        raise tasks.Postpone(60)

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["released"]
    assert (notes(committed_db), endings(committed_db, job.id)) == ([], ["RELEASED"])


def test_follow_up_begins_with_the_commit_of_the_task(app: tasks.App, committed_db: Connection) -> None:
    ran: list[str] = []
    app.task("second")(lambda: ran.append("second"))

    @app.task("first", bind=True, transactional=True, retry=tasks.Fixed(0))
    def first(self: tasks.Context) -> None:
        app["second"].delay()
        committed_db.rollback()
        assert enqueued(committed_db, "second") == []
        ran.append("first")
        if self.request.retries == 0:
            raise ValueError

    first.delay()
    committed_db.commit()
    drain(app)
    assert ran == ["first", "first", "second"]


def lose_claim(conn: Connection) -> SweepCounts:
    """Sweep as if the lease were over, as another worker would."""
    counts = sweep(conn, now=later())
    conn.commit()
    return counts


def test_lost_claim_takes_the_rows_with_it(
    app: tasks.App, committed_db: Connection, connect: Callable[[], Connection]
) -> None:
    other = connect()

    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "zombie"})
        assert lose_claim(other).requeued == 1

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["lost"]
    assert notes(committed_db) == []
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"]) == ("pending", None)
    assert endings(committed_db, job.id) == ["ABANDONED"]


def test_zombie_cannot_finish_while_a_newer_attempt_runs(
    app: tasks.App, committed_db: Connection, connect: Callable[[], Connection]
) -> None:
    other = connect()
    claims: list[Claim] = []

    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "zombie"})
        lose_claim(other)
        claims.extend(queue.claim_jobs(other, worker="two", tasks=["write"], queues=["default"], limit=1, now=later()))
        other.commit()

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["lost"]
    assert (notes(committed_db), endings(committed_db, job.id)) == ([], ["ABANDONED", None])
    row = job_row(committed_db, job.id)
    assert (row["claimed_by"], row["claim_token"]) == ("two", claims[0].claim_token)


def test_session_refuses_a_task_that_is_known_to_have_lost_its_claim(
    app: tasks.App, committed_db: Connection, connect: Callable[[], Connection]
) -> None:
    other = connect()
    seen: list[bool] = []

    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        lose_claim(other)
        with pytest.raises(tasks.ClaimLost):
            self.heartbeat()
        seen.append(self.cancelled())
        self.session.execute(NOTE, {"note": "zombie"})

    write.delay()
    committed_db.commit()
    assert run_one(app) == ["lost"]
    assert (seen, notes(committed_db)) == ([True], [])


def test_connection_lost_before_the_commit_fails_the_attempt_whole(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "a"})
        pid = self.session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        committed_db.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["retry"]
    assert (notes(committed_db), endings(committed_db, job.id)) == ([], ["FAILED"])


def test_task_without_transactional_has_no_session(app: tasks.App, committed_db: Connection) -> None:
    @app.task("write", bind=True, max_attempts=1)
    def write(self: tasks.Context) -> None:
        self.session.execute(NOTE, {"note": "a"})

    job = write.delay()
    committed_db.commit()
    assert run_one(app) == ["failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == "NOT_CONFIGURED"


def test_each_thread_enqueues_in_its_own_tasks_session(app: tasks.App, committed_db: Connection) -> None:
    both, started = threading.Barrier(2), threading.Barrier(3)
    seen: list[bool] = []

    @app.task("write", bind=True, transactional=True)
    def write(self: tasks.Context) -> None:
        started.wait(20)
        seen.append(app.current_session() is self.session)
        both.wait(20)

    write.delay()
    write.delay()
    committed_db.commit()
    with tasks.Worker(app, concurrency=2) as worker:
        worker.start_slots()
        worker.tick()
        started.wait(20)
        assert worker.stop(20) == 0
    assert seen == [True, True]
