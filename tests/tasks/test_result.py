from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import tasks
from tasks import queue
from tasks.testing import drain
from tests.tasks.running import WAIT_SECONDS, in_thread, later, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    app = make_app(database_url, committed_db)
    app.task("echo")(lambda value=None: value)
    app.task("boom", max_attempts=2, retry=tasks.Fixed(60))(lambda: 1 / 0)
    return app


def test_result_that_is_not_committed_says_so_instead_of_waiting(app: tasks.App) -> None:
    result = app["echo"].delay()
    with pytest.raises(tasks.NotCommitted, match="commit the transaction that enqueued it first"):
        result.get()
    with pytest.raises(tasks.JobNotFound, match="there is no job"):
        assert app.AsyncResult(uuid4()).state


def test_id_that_is_none_and_time_that_is_no_number_are_refused_by_name(app: tasks.App) -> None:
    with pytest.raises(tasks.PayloadError, match="^id: must be a UUID, not '12'"):
        app.AsyncResult("12")
    with pytest.raises(tasks.PayloadError, match="^timeout: must be a number of seconds"):
        app.AsyncResult(uuid4()).get(timeout="5")  # type: ignore[arg-type]


def test_state_is_told_in_the_words_of_celery(app: tasks.App, committed_db: Connection) -> None:
    good, bad = app["echo"].delay(1), app["boom"].delay()
    committed_db.commit()
    assert (good.state, good.status, good.result, good.ready()) == ("PENDING", "PENDING", None, False)
    queue.claim_jobs(committed_db, worker="w", tasks=["echo"], queues=["default"], limit=1)
    committed_db.commit()
    assert good.state == "STARTED"
    drain(app)
    assert bad.state == "RETRY"
    drain(app, now=later())
    assert (bad.state, bad.failed(), bad.successful(), bad.ready()) == ("FAILURE", True, False, True)


def test_get_waits_for_the_end_and_returns_the_result(app: tasks.App, committed_db: Connection) -> None:
    result = app["echo"].delay({"a": [1, None]})
    committed_db.commit()
    threading.Timer(0.1, drain, [app]).start()
    assert result.get(timeout=WAIT_SECONDS) == {"a": [1, None]}
    assert app.AsyncResult(str(result.id)) == result
    assert app.AsyncResult(result.id).get() == {"a": [1, None]}
    assert result.task_id == result.id


def test_get_gives_up_in_time(app: tasks.App, committed_db: Connection) -> None:
    result = app["echo"].delay()
    committed_db.commit()
    with pytest.raises(TimeoutError, match="has not ended in time: pending"):
        result.get(timeout=0.05)


def test_get_raises_what_the_job_died_of(app: tasks.App, committed_db: Connection) -> None:
    bad = app["boom"].delay()
    committed_db.commit()
    drain(app)
    drain(app, now=later())
    with pytest.raises(tasks.JobFailed, match="ZERO_DIVISION_ERROR") as caught:
        bad.get()
    assert (caught.value.code, caught.value.job_id) == ("ZERO_DIVISION_ERROR", bad.id)
    assert isinstance(bad.get(propagate=False), tasks.JobFailed)
    assert isinstance(bad.result, tasks.JobFailed)


def test_job_of_lost_workers_failed_without_an_error_of_its_own(app: tasks.App, committed_db: Connection) -> None:
    result = app["echo"].apply_async(max_attempts=1)
    committed_db.commit()
    queue.claim_jobs(committed_db, worker="dead", tasks=["echo"], queues=["default"], limit=1)
    queue.sweep_expired(committed_db, now=later())
    committed_db.commit()
    assert result.result.code == "WORKER_LOST"


def test_revoke_cancels_at_once_or_in_the_callers_transaction(app: tasks.App, committed_db: Connection) -> None:
    first, second = app["echo"].delay(), app["echo"].delay()
    committed_db.commit()
    first.revoke()
    assert first.state == "REVOKED"
    with pytest.raises(tasks.JobCancelled, match="was cancelled: revoked"):
        first.get()
    second.revoke(reason="no longer wanted", session=committed_db)
    committed_db.rollback()
    assert second.state == "PENDING"
    with pytest.raises(tasks.JobTerminal):
        first.revoke()
    with pytest.raises(tasks.UnknownOption, match="the claim dies at once"):
        second.revoke(terminate=True)


def test_get_inside_a_task_is_refused(app: tasks.App, committed_db: Connection) -> None:
    other = app["echo"].delay()
    committed_db.commit()

    @app.task("waits", max_attempts=1)
    def waits() -> None:
        other.get(timeout=0)

    waits.delay()
    committed_db.commit()
    outcomes = {settled.task: settled for settled in drain(app)}
    assert isinstance(outcomes["waits"].error, RuntimeError)
    assert "chain or a chord" in str(outcomes["waits"].error)


def test_progress_is_seen_while_the_task_runs(app: tasks.App, committed_db: Connection) -> None:
    shown, go = threading.Event(), threading.Event()

    @app.task("long", bind=True)
    def long(self: tasks.Context) -> None:
        self.progress(1, 3, "first")
        shown.set()
        assert go.wait(WAIT_SECONDS)

    result = long.delay()
    committed_db.commit()
    worker = in_thread(lambda: drain(app))
    assert shown.wait(WAIT_SECONDS)
    assert result.progress == {"done": 1, "total": 3, "text": "first"}
    go.set()
    worker.join(WAIT_SECONDS)
    assert result.successful()


def test_result_can_be_read_in_a_session_of_the_caller(app: tasks.App, committed_db: Connection) -> None:
    made = app["echo"].delay()
    assert app.AsyncResult(made.id, session=committed_db).state == "PENDING"


def test_option_of_get_that_means_nothing_is_refused(app: tasks.App, committed_db: Connection) -> None:
    result = app["echo"].delay()
    committed_db.commit()
    with pytest.raises(tasks.UnknownOption, match="interval"):
        result.get(interval=1)


def test_autocommit_is_for_programs_without_a_transaction(database_url: str, committed_db: Connection) -> None:
    current = tasks.Autocommit(database_url)
    app = tasks.App("script", database_url=database_url, current=current)
    result = app.task("echo")(lambda value: value).delay(1)
    assert result.state == "PENDING"
    assert current() is current()
    before = current()
    before.close()
    assert current() is not before
    current.close()
    assert current._opened == []
