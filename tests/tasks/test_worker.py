from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

import tasks
from tasks.testing import check_invariants, drain
from tests.tasks.running import (
    WAIT_SECONDS,
    Stop,
    endings,
    job_row,
    later,
    make_app,
    wait_until_idle,
)

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    return make_app(database_url, committed_db)


@pytest.fixture
def worker(app: tasks.App, committed_db: Connection) -> Iterator[tasks.Worker]:
    with tasks.Worker(app, concurrency=2) as worker:
        yield worker
    check_invariants(committed_db)


def raising(app: tasks.App, error: BaseException, **options: Any) -> tasks.Task[[], None]:
    @app.task("raising", **options)
    def task() -> None:
        raise error

    return task


def test_once_runs_and_settles_in_order(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    ran: list[int] = []

    @app.task("note")
    def note(number: int) -> int:
        ran.append(number)
        return number * 2

    ids = [note.delay(number).id for number in range(3)]
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["succeeded", "succeeded"]
    assert ran == [0, 1]
    assert [len(worker.once()), len(worker.once())] == [1, 0]
    row = job_row(committed_db, ids[2])
    assert (row["status"], row["result"], row["claimed_by"]) == ("succeeded", 4, None)


def test_bound_task_knows_its_job(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    seen: list[tasks.Request] = []

    @app.task("look", bind=True, retry=tasks.Fixed(0), max_attempts=3)
    def look(self: tasks.Context, *, x: int) -> None:
        seen.append(self.request)
        if self.request.retries == 0:
            raise ValueError(x)

    job = look.apply_async(kwargs={"x": 7}, scope="repo-1")
    committed_db.commit()
    drain(app)
    first, second = seen
    assert (first.id, first.scope, first.kwargs, first.queue) == (job.id, "repo-1", {"x": 7}, "default")
    assert (first.attempt, first.retries, first.max_attempts) == (1, 0, 3)
    assert (second.attempt, second.retries, second.called_directly) == (2, 1, False)


def test_failing_task_runs_exactly_max_attempts_times(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    job = raising(app, KeyError("x"), max_attempts=3, retry=tasks.Fixed(0)).delay()
    committed_db.commit()
    assert [settled.outcome for settled in drain(app)] == ["retry", "retry", "failed"]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"], row["last_error"]) == ("failed", "KEY_ERROR", "KeyError: 'x'")
    assert endings(committed_db, job.id) == ["FAILED"] * 3


def test_retry_waits_for_the_back_off(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    job = raising(app, KeyError("x"), retry=tasks.Schedule([30, 60])).delay()
    committed_db.commit()
    worker.once()
    assert worker.once() == []
    row = job_row(committed_db, job.id)
    assert (row["available_at"] - row["last_error_at"]).total_seconds() == pytest.approx(30)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exception_that_would_end_a_program_fails_the_attempt_only(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, error: BaseException
) -> None:
    done = threading.Event()
    app.task("fine")(done.set)
    job = raising(app, error, max_attempts=1).delay()
    for _ in range(4):
        app["fine"].delay()
    committed_db.commit()
    worker.start_slots()
    worker.tick()
    assert done.wait(WAIT_SECONDS)
    wait_until_idle(worker)
    assert job_row(committed_db, job.id)["status"] == "failed"
    assert all(slot.is_alive() for slot in worker._flow.slots.threads)


def test_control_c_in_the_main_thread_is_settled_and_then_passed_on(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    job = raising(app, KeyboardInterrupt()).delay()
    committed_db.commit()
    with pytest.raises(KeyboardInterrupt):
        worker.once()
    assert endings(committed_db, job.id) == ["FAILED"]


def test_exception_named_in_dont_retry_for_fails_at_once(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    raising(app, KeyError("x"), dont_retry_for=(LookupError,)).delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["failed"]


def test_exception_outside_autoretry_for_fails_at_once(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    raising(app, KeyError("x"), autoretry_for=(OSError,)).delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["failed"]


def test_reject_fails_whatever_budget_is_left(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    job = raising(app, tasks.Reject("BAD_PACK", "not ours")).delay()
    committed_db.commit()
    worker.once()
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"], row["last_error"]) == ("failed", "BAD_PACK", "not ours")


def test_quarantine_keeps_the_evidence(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    job = raising(app, tasks.Quarantine("CORRUPT_PACK", "block 3")).delay()
    committed_db.commit()
    worker.once()
    row = job_row(committed_db, job.id)
    assert (row["status"], row["last_error_code"], row["last_error"]) == ("quarantined", "CORRUPT_PACK", "block 3")
    assert endings(committed_db, job.id) == ["QUARANTINED"]


def test_retry_after_a_countdown_keeps_the_code_of_its_cause(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    @app.task("again", bind=True)
    def again(self: tasks.Context) -> None:
        try:
            raise ConnectionResetError("peer")
        except ConnectionResetError as error:
            self.retry(exc=error, countdown=90)

    job = again.delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["retry"]
    row = job_row(committed_db, job.id)
    assert row["last_error_code"] == "CONNECTION_RESET_ERROR"
    assert (row["available_at"] - row["last_error_at"]).total_seconds() == pytest.approx(90)


def test_postponed_attempt_is_given_back(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    job = raising(app, tasks.Postpone(45), max_attempts=1).delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["released"]
    row = job_row(committed_db, job.id)
    assert (row["status"], row["attempt_count"], row["postpone_count"]) == ("pending", 0, 1)
    assert row["last_error_code"] is None
    assert [settled.outcome for settled in worker.once(now=later())] == ["released"]


def test_postponed_job_whose_effect_waits_already_leaves_it_to_that_one(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    ran: list[str] = []

    @app.task("build", dedup=tasks.Dedup())
    def build() -> None:
        ran.append("build")
        if len(ran) == 1:
            build.apply_async(scope="repo-1")
            committed_db.commit()
            raise tasks.Postpone(60)

    first = build.apply_async(scope="repo-1")
    committed_db.commit()
    assert [settled.outcome for settled in drain(app)] == ["superseded", "succeeded"]
    row = job_row(committed_db, first.id)
    assert (row["status"], row["cancel_reason"]) == ("cancelled", "superseded")
    assert job_row(committed_db, row["superseded_by"])["status"] == "succeeded"


def test_arguments_of_an_old_signature_fail_with_budget(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    old = make_app(app.database_url, committed_db)
    old.task("index")(lambda pack: pack)
    app.task("index", max_attempts=2, retry=tasks.Fixed(0))(lambda key: key)
    job = old["index"].apply_async(kwargs={"pack": "p"}, max_attempts=2)
    committed_db.commit()
    assert [settled.outcome for settled in drain(app)] == ["retry", "failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == "TYPE_ERROR"


def test_job_of_a_task_that_nobody_knows_stays_pending(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    other = make_app(app.database_url, committed_db)
    other.task("unknown")(lambda: None)
    app.task("known")(lambda: None)
    job = other["unknown"].delay()
    committed_db.commit()
    assert worker.once() == []
    assert job_row(committed_db, job.id)["status"] == "pending"


def test_worker_takes_only_its_queues(app: tasks.App, committed_db: Connection) -> None:
    app.task("note", queue="slow")(lambda: None)
    app["note"].delay()
    committed_db.commit()
    with tasks.Worker(app) as default, tasks.Worker(app, queues=["slow"]) as slow:
        assert (len(default.once()), len(slow.once())) == (0, 1)


@pytest.mark.parametrize(
    ("result", "code"), [(object(), "PAYLOAD_ERROR"), ("\x00", "PAYLOAD_ERROR"), ("x" * 70_000, "PAYLOAD_ERROR")]
)
def test_result_that_cannot_be_stored_fails_the_attempt(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, result: object, code: str
) -> None:
    app.task("make", max_attempts=1)(lambda: result)
    job = app["make"].delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == code


@pytest.mark.parametrize(
    "error", [tasks.Reject("no code", "x"), tasks.Quarantine("", "x"), tasks.Postpone(-1), tasks.Retry(countdown=-1)]
)
def test_verdict_that_cannot_be_stored_fails_the_attempt(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, error: Exception
) -> None:
    job = raising(app, error, max_attempts=1).delay()
    committed_db.commit()
    assert [settled.outcome for settled in worker.once()] == ["failed"]
    assert job_row(committed_db, job.id)["last_error_code"] == "PAYLOAD_ERROR"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Unprintable(), ValueError("\x00\ud800" + "x" * 5_000_000), RecursionError()])
def test_any_exception_text_ends_the_attempt(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, error: Exception
) -> None:
    job = raising(app, error).delay()
    committed_db.commit()
    logging.disable()  # a traceback of five million characters helps nobody
    try:
        assert [settled.outcome for settled in worker.once()] == ["retry"]
    finally:
        logging.disable(logging.NOTSET)
    assert len(job_row(committed_db, job.id)["last_error"]) <= 2048


def test_log_has_one_line_per_job(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    app.task("note")(lambda: None)
    job = app["note"].delay()
    committed_db.commit()
    with caplog.at_level(logging.INFO, "tasks.worker"):
        worker.once()
    (line,) = [record.getMessage() for record in caplog.records if record.name == "tasks.worker"]
    assert line.startswith(f"job_id={job.id} attempt=1 task=note queue=default wait_seconds=0.")
    assert line.endswith("outcome=succeeded")


def test_tick_claims_no_more_than_there_are_free_slots(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    stop = Stop()
    app.task("stop")(stop)
    for _ in range(3):
        app["stop"].delay()
    committed_db.commit()
    worker.start_slots()
    assert worker.tick() == 2
    assert stop.reached.wait(WAIT_SECONDS)
    assert (worker.tick(), worker.held) == (0, 2)
    stop.go.set()
    wait_until_idle(worker)


def test_slow_task_does_not_stop_the_others_and_a_free_slot_claims_by_itself(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    stop, fifth, ran = Stop(), threading.Event(), []
    app.task("stop")(stop)

    @app.task("note")
    def note(number: int) -> None:
        ran.append(number)
        if number == 4:
            fifth.set()

    app["stop"].delay()
    for number in range(5):
        note.delay(number)
    committed_db.commit()
    worker.start_slots()
    worker.tick()
    assert fifth.wait(WAIT_SECONDS)
    assert ran == [0, 1, 2, 3, 4]
    stop.go.set()
    wait_until_idle(worker)


def test_slot_is_free_only_after_the_database_said_yes(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection, connect: Callable[[], Connection]
) -> None:
    stop = Stop()
    app.task("stop")(stop)
    job = app["stop"].delay()
    committed_db.commit()
    worker.start_slots()
    worker.tick()
    assert stop.reached.wait(WAIT_SECONDS)
    locker = connect()
    locker.execute("SELECT 1 FROM tasks.job WHERE job_id = %s FOR UPDATE", (job.id,))
    stop.go.set()
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
    with connect() as watcher:
        watcher.autocommit = True
        _until(watcher, blocked, worker.worker_id)
    assert worker.held == 1
    locker.rollback()
    wait_until_idle(worker)
    assert job_row(committed_db, job.id)["status"] == "succeeded"


def _until(conn: Connection, query: str, *params: object) -> None:
    """Repeat a count on the server until it is not 0: another backend's wait cannot be waited for otherwise."""
    for _ in range(WAIT_SECONDS * 100):
        row = conn.execute(query, params).fetchone()
        assert row is not None
        if row[0]:
            return
        conn.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(query)


def test_gated_job_runs_as_soon_as_its_blocker_has_ended(
    worker: tasks.Worker, app: tasks.App, committed_db: Connection
) -> None:
    ran, built = [], threading.Event()

    @app.task("build", gate=tasks.After("index"))
    def build() -> None:
        ran.append("build")
        built.set()

    app.task("index")(lambda: ran.append("index"))
    build.apply_async(scope="repo-1", priority=5)
    app["index"].apply_async(scope="repo-1")
    committed_db.commit()
    worker.start_slots()
    assert worker.tick() == 1
    assert built.wait(WAIT_SECONDS)
    assert ran == ["index", "build"]
    wait_until_idle(worker)


def test_worker_shows_itself_while_it_lives(worker: tasks.Worker, app: tasks.App, committed_db: Connection) -> None:
    app.task("note")(lambda: None)
    with tasks.Worker(app, queues=["default", "slow"], worker_id="one") as one:
        one.register()
        row = committed_db.execute("SELECT queues, tasks FROM tasks.worker WHERE worker_id = 'one'").fetchone()
        committed_db.rollback()
        assert row == (["default", "slow"], ["note"])
    assert committed_db.execute("SELECT count(*) FROM tasks.worker").fetchone() == (0,)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"queues": []},
        {"queues": ["a b"]},
        {"queues": "default"},
        {"grace": -1},
        {"worker_id": "x" * 401},
    ],
)
def test_bad_worker_option_is_refused(app: tasks.App, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))[:5]):
        tasks.Worker(app, **options)
