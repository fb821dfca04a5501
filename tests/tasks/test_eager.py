from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import tasks
from tasks import chain, chord, group


@pytest.fixture
def app() -> tasks.App:
    app = tasks.App("under.test")
    app.configure(eager=True)

    @app.task("add")
    def add(x: int, y: int) -> int:
        return x + y

    @app.task("total")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    return app


def test_delay_runs_at_once_without_a_database(app: tasks.App) -> None:
    result = app["add"].delay(2, 3)
    assert result.get(timeout=1) == 5
    assert (result.state, result.status, result.result, result.info) == ("SUCCESS",) * 2 + (5, 5)
    assert result.ready()
    assert result.successful()
    assert not result.failed()
    assert (result.progress, result.task, result.id.version) == (None, "add", 7)


def test_arguments_and_result_pass_through_json(app: tasks.App) -> None:
    task = app.task("echo")(lambda value: value)
    assert task.delay((1, 2)).get() == [1, 2]
    with pytest.raises(tasks.PayloadError, match=r"args\[0\]: set is not a JSON value"):
        task.delay({1})


def test_result_that_is_no_json_fails_the_task(app: tasks.App) -> None:
    result = app.task("bad")(object).delay()
    assert result.failed()
    with pytest.raises(tasks.JobFailed, match="PAYLOAD_ERROR"):
        result.get()


def test_error_is_kept_until_it_is_asked_for(app: tasks.App) -> None:
    @app.task("boom", max_attempts=3)
    def boom() -> None:
        calls.append(1)
        raise LookupError("no such thing")

    calls: list[int] = []
    result = boom.delay()
    assert (len(calls), result.state) == (3, "FAILURE")
    with pytest.raises(tasks.JobFailed, match="LOOKUP_ERROR: LookupError: no such thing") as caught:
        result.get()
    assert isinstance(caught.value.__cause__, LookupError)
    assert result.get(propagate=False) is caught.value


def test_errors_propagate_when_told_to(app: tasks.App) -> None:
    app.configure(eager_propagates=True)
    with pytest.raises(ZeroDivisionError):
        app.task("boom", max_attempts=1)(lambda: 1 / 0).delay()


@pytest.mark.parametrize(
    ("raised", "runs", "code"),
    [
        (tasks.Retry(countdown=100), 3, "RETRY"),
        (tasks.Reject("BAD_INPUT", "no"), 1, "BAD_INPUT"),
        (tasks.Quarantine("ODD_INPUT", "no"), 1, "ODD_INPUT"),
        (tasks.Postpone(100), 101, "POSTPONED_TOO_OFTEN"),
        (KeyError("x"), 1, "KEY_ERROR"),
    ],
)
def test_steering_is_obeyed_without_waiting(app: tasks.App, raised: Exception, runs: int, code: str) -> None:
    @app.task("steered", bind=True, max_attempts=3, dont_retry_for=(KeyError,))
    def steered(self: tasks.Context) -> None:
        seen.append((self.request.attempt, self.request.retries))
        raise raised

    seen: list[tuple[int, int]] = []
    error = steered.delay().result
    assert error.code == code
    assert [attempt for attempt, _ in seen] == list(range(1, runs + 1))
    assert seen[-1][1] == (0 if code == "POSTPONED_TOO_OFTEN" else runs - 1)


def test_options_are_checked_as_for_a_real_job(app: tasks.App) -> None:
    add = app["add"]
    for options, error in (
        ({"acks_late": False}, tasks.UnknownOption),
        ({"countdown": -1}, tasks.PayloadError),
        ({"scope": "a\x00"}, tasks.PayloadError),
    ):
        with pytest.raises(error):
            add.apply_async((1, 2), **options)
    with pytest.raises(TypeError, match="missing a required argument"):
        add.delay(1)


def test_context_describes_the_run(app: tasks.App) -> None:
    @app.task("look", bind=True)
    def look(self: tasks.Context, *, size: int) -> list[Any]:
        self.heartbeat()
        self.progress(1, 2, "half")
        return [self.scope, self.request.queue, self.request.kwargs, self.request.max_attempts, self.cancelled()]

    result = look.apply_async(kwargs={"size": 1}, scope="repo", queue="slow", max_attempts=7)
    assert result.get() == ["repo", "slow", {"size": 1}, 7, False]


def test_chain_group_and_chord_pass_results_on(app: tasks.App) -> None:
    add, total = app["add"], app["total"]
    assert chain(add.s(1, 2), add.s(10), add.si(5, 5))().get() == 10
    assert (add.s(1, 2) | add.s(10)).delay().get() == 13
    assert group(add.s(n, n) for n in range(3))().get() == [0, 2, 4]
    assert chord([add.s(1, 1), add.s(2, 2)])(total.s()).get() == 6
    assert (group(add.s(1, 1), add.s(2, 2)) | total.s() | add.s(1)).delay().get() == 7
    assert chord([])(total.s()).get() == 0
    assert add.apply_many([(1, 2), {"x": 3, "y": 4}, add.s(5, 6)])[2].get() == 11


def test_child_of_a_failed_parent_is_cancelled_unless_told_to_run(app: tasks.App) -> None:
    boom = app.task("boom", max_attempts=1)(lambda: 1 / 0)
    echo = app.task("echo")(lambda value: value)
    result = chain(boom.s(), echo.s())()
    assert (result.state, result.parent.state) == ("REVOKED", "FAILURE")
    with pytest.raises(tasks.JobCancelled, match="parent"):
        result.get()
    assert chain(boom.s(), echo.s().set(on_parent_failure="run"))().state == "SUCCESS"


def test_eager_result_has_no_job(app: tasks.App) -> None:
    result = app["add"].delay(1, 2)
    with pytest.raises(tasks.JobNotFound):
        result.revoke()
    with pytest.raises(tasks.JobNotFound):
        assert result.job


def test_transactional_task_writes_in_the_session_of_the_caller(app: tasks.App) -> None:
    @app.task("write", bind=True, transactional=True, max_attempts=2)
    def write(self: tasks.Context, number: int) -> None:
        self.session.execute(text("INSERT INTO note VALUES (:number)"), {"number": number})
        if number < 0:
            raise ValueError("negative")

    engine = create_engine("sqlite://")
    with Session(engine) as session:
        session.execute(text("CREATE TABLE note (number int)"))
        app.configure(current=lambda: session)
        assert write.delay(1).successful()
        assert write.delay(-1).failed()
        assert session.scalars(text("SELECT number FROM note")).all() == [1]
        session.rollback()
    engine.dispose()
