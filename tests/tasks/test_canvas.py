from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tasks
from tasks import chain, chord, group, queue
from tasks.sweep import sweep
from tasks.testing import drain, enqueued
from tests.tasks.running import later, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]


@pytest.fixture
def app(database_url: str, committed_db: Connection) -> tasks.App:
    app = make_app(database_url, committed_db)
    app.task("add")(lambda x, y: x + y)
    app.task("total")(sum)
    app.task("boom", max_attempts=1)(lambda: 1 / 0)
    app.task("echo")(lambda *values: list(values))
    return app


def run(app: tasks.App, conn: Connection) -> None:
    conn.commit()
    drain(app)


def test_chain_is_enqueued_at_once_and_runs_in_order(app: tasks.App, committed_db: Connection) -> None:
    add = app["add"]
    result = chain(add.s(1, 2), add.s(10), add.si(5, 5))()
    assert [job.parent_count for job in enqueued(committed_db)] == [0, 1, 1]
    run(app, committed_db)
    assert (result.get(), result.parent.get(), result.parent.parent.get()) == (10, 13, 3)
    assert result.parent.parent.parent is None


def test_chain_that_is_rolled_back_leaves_nothing(app: tasks.App, committed_db: Connection) -> None:
    chain(app["add"].s(1, 2), app["add"].s(3))()
    committed_db.rollback()
    assert enqueued(committed_db) == []


def test_group_returns_results_in_order(app: tasks.App, committed_db: Connection) -> None:
    result = group(app["add"].s(n, n) for n in range(5))()
    committed_db.commit()
    assert (len(result), result.ready(), result.completed_count()) == (5, False, 0)
    drain(app)
    assert result.get() == result.join() == [0, 2, 4, 6, 8]
    assert (result.ready(), result.successful(), result.failed(), result.completed_count()) == (True, True, False, 5)
    assert [member.get() for member in result] == [0, 2, 4, 6, 8]
    assert result[1] == result.children[1]


def test_group_with_a_failure_raises_the_first_in_order(app: tasks.App, committed_db: Connection) -> None:
    result = group(app["add"].s(1, 1), app["boom"].s())()
    run(app, committed_db)
    assert (result.ready(), result.successful(), result.failed()) == (True, False, True)
    with pytest.raises(tasks.JobFailed, match="ZERO_DIVISION_ERROR"):
        result.get()
    assert result.get(propagate=False)[0] == 2


def test_chord_body_runs_once_after_all_of_the_header(app: tasks.App, committed_db: Connection) -> None:
    add, total = app["add"], app["total"]
    result = chord([add.s(1, 1), add.s(2, 2)])(total.s())
    nested = (group(chain(add.s(1, 1), add.s(1)), add.s(2, 2)) | total.s() | add.s(100)).delay()
    run(app, committed_db)
    assert result.get() == 6
    assert (nested.get(), nested.parent.get(), nested.parent.parent.get()) == (107, 7, [3, 4])


def test_chord_of_an_empty_header_runs_its_body_with_an_empty_list(app: tasks.App, committed_db: Connection) -> None:
    result = chord([])(app["total"].s())
    run(app, committed_db)
    assert result.get() == 0


def test_group_after_a_task_runs_every_member_with_its_result(app: tasks.App, committed_db: Connection) -> None:
    add = app["add"]
    result = (add.s(1, 1) | group(add.s(n) for n in range(3)) | app["total"].s()).delay()
    run(app, committed_db)
    assert result.get() == 2 + 3 + 4


@pytest.mark.parametrize(("policy", "state"), [("cancel", "REVOKED"), ("run", "SUCCESS"), ("stay", "PENDING")])
def test_child_of_a_failed_parent_follows_its_policy_within_one_sweep(
    app: tasks.App, committed_db: Connection, policy: str, state: str
) -> None:
    """Case 25, by Celery's words."""
    child = chain(app["boom"].s(), app["echo"].s("own").set(on_parent_failure=policy))()
    run(app, committed_db)
    sweep(committed_db)
    drain(app)
    assert child.state == state
    if policy == "run":
        assert child.get() == [None, "own"]


def test_chord_body_does_not_run_when_one_of_the_header_is_cancelled(app: tasks.App, committed_db: Connection) -> None:
    result = chord([app["add"].s(1, 1), app["add"].s(2, 2)])(app["total"].s())
    committed_db.commit()
    result.parent[0].revoke()
    drain(app)
    sweep(committed_db)
    with pytest.raises(tasks.JobCancelled, match="parent"):
        result.get()


def test_partial_signatures_take_the_rest_of_their_arguments_later(app: tasks.App, committed_db: Connection) -> None:
    echo = app["echo"]
    results = [
        echo.s("b").delay("a"),
        echo.s("b").apply_async(("a",)),
        chain(echo.s(1), echo.s(2))("first"),
        group(echo.s(1), echo.s(2)).delay("first")[1],
        chord(group(echo.s(1)), echo.s()).apply_async(("first",)),
    ]
    run(app, committed_db)
    assert [result.get() for result in results] == [
        ["a", "b"], ["a", "b"], [["first", 1], 2], ["first", 2], [[["first", 1]]],
    ]  # fmt: skip
    assert echo.s("b")("a") == ["a", "b"]
    with pytest.raises(ValueError, match="immutable"):
        echo.si("b").delay("a")


def test_options_of_a_signature_are_those_of_apply_async(app: tasks.App, committed_db: Connection) -> None:
    add = app["add"]
    signature = add.s(1, 2).set(queue="slow", scope="repo").set(priority=3)
    signature.apply_async(priority=4)
    (job,) = enqueued(committed_db)
    assert (job.queue, job.scope, job.priority) == ("slow", "repo", 4)
    assert signature == add.signature((1, 2), queue="slow", scope="repo", priority=3)
    assert repr(signature) == "add(1, 2)"
    for call in (
        lambda: add.s(1).set(routing_key="x"),
        lambda: chain(signature, signature).apply_async(countdown=5),
        lambda: group(signature).apply_async(link=signature),
    ):
        with pytest.raises(tasks.UnknownOption):
            call()


def test_canvas_is_made_of_signatures(app: tasks.App) -> None:
    with pytest.raises(TypeError, match="chain is made of signatures"):
        chain(app["add"], app["add"])
    with pytest.raises(TypeError, match="group is made of signatures"):
        group([1, 2])
    with pytest.raises(ValueError, match="at least one step"):
        chain()
    with pytest.raises(ValueError, match="it has no body"):
        chord([app["add"].s(1, 2)])()
    with pytest.raises(tasks.PayloadError, match="Signature is not a JSON value"):
        app["echo"].delay(app["add"].s(1, 2))
    with pytest.raises(ValueError, match="its place in the chain"):
        chain(app["add"].s(1, 1), app["add"].s(1).set(parents=[]))()


def test_arguments_are_fitted_with_the_results_to_come(app: tasks.App) -> None:
    with pytest.raises(TypeError, match="add: too many positional arguments"):
        chain(app["add"].s(1, 2), app["add"].s(3, 4))()
    with pytest.raises(TypeError, match="add: missing a required argument"):
        chain(app["add"].s(1, 2), app["add"].si(3))()


def test_task_with_a_dedup_key_leaves_it_out_inside_a_chain(app: tasks.App, committed_db: Connection) -> None:
    build = app.task("build", dedup=tasks.Dedup(by=("name",)))(lambda name: name)
    result = chain(build.s("a"), build.si("a"))()
    assert [job.dedup_key is None for job in enqueued(committed_db)] == [False, True]
    run(app, committed_db)
    assert result.get() == "a"
    with pytest.raises(tasks.PayloadError, match=r"kwargs\.name"):
        build.delay(None)


def test_parents_may_be_named_without_a_canvas(app: tasks.App, committed_db: Connection) -> None:
    first, second = app["add"].delay(1, 1), app["add"].delay(2, 2)
    child = app["echo"].apply_async(("own",), parents=[first, second.id], pass_results="list")
    run(app, committed_db)
    assert child.get() == [[2, 4], "own"]


def test_apply_many_enqueues_in_one_statement_and_in_order(app: tasks.App, committed_db: Connection) -> None:
    add = app["add"]
    calls = [(1, 1), [2, 2], {"x": 3, "y": 3}, add.s(4, 4).set(priority=9)]
    results = add.apply_many(calls, scope="repo", priority=1)
    assert [job.priority for job in enqueued(committed_db)] == [1, 1, 1, 9]
    run(app, committed_db)
    assert [result.get() for result in results] == [2, 4, 6, 8]


def test_apply_many_takes_thousands_and_joins_within(app: tasks.App, committed_db: Connection) -> None:
    keyed = app.task("keyed", dedup=tasks.Dedup(by=("n",)))(lambda n: n)
    results = keyed.apply_many([(n % 1500,) for n in range(3000)])
    assert [result.outcome for result in (results[0], results[-1])] == ["inserted", "joined"]
    assert results[0].id == results[1500].id
    assert queue.stats(committed_db).counts == {"pending": 1500}


def test_apply_many_refuses_before_anything_is_enqueued(app: tasks.App, committed_db: Connection) -> None:
    add = app["add"]
    for calls, error in (
        ([(1, 2), (3,)], TypeError),
        ([(1, 2), 3], TypeError),
        ([(1, 2), (3, {4})], tasks.PayloadError),
        ([app["echo"].s()], ValueError),
    ):
        with pytest.raises(error):
            add.apply_many(calls)
    with pytest.raises(tasks.UnknownOption):
        add.apply_many([], routing_key="x")
    assert enqueued(committed_db) == []


def test_expired_job_is_not_run(app: tasks.App, committed_db: Connection) -> None:
    task = app.task("fresh", expires=30)(lambda: None)
    results = [
        task.delay(),
        app["echo"].apply_async(expires=30),
        app["echo"].apply_async(expires=datetime.now(UTC) + timedelta(seconds=30)),
        task.apply_async(expires=2 * 3600 + 60),
    ]
    committed_db.commit()
    assert len(drain(app, now=later())) == 1
    sweep(committed_db, now=later())
    assert [result.state for result in results] == ["REVOKED"] * 3 + ["SUCCESS"]
    assert results[0].result.reason == "expired"


def test_wrong_expiry_is_refused(app: tasks.App) -> None:
    for expires in (-1, "soon", datetime(2027, 1, 1)):  # noqa: DTZ001
        with pytest.raises(tasks.PayloadError, match="expires"):
            app["echo"].apply_async(expires=expires)
    with pytest.raises(ValueError, match="expires must be"):
        app.task("x", expires=-1)(lambda: None)


def test_chain_is_one_transaction_also_where_each_statement_is_one(
    app: tasks.App, database_url: str, committed_db: Connection
) -> None:
    """Nobody may see a child before its parents, or half of a chain."""
    add = app["add"]
    with psycopg.connect(database_url, autocommit=True) as own:
        with pytest.raises(TypeError):
            chain(add.s(1, 2), add.s(1, 2)).apply_async(session=own)
        assert enqueued(committed_db) == []
        result = chain(add.s(1, 2), add.s(3)).apply_async(session=own)
        queue.cancel_job(own, result.parent.id, reason="not needed")
        parent, child = queue.get_job(own, result.parent.id), queue.get_job(own, result.id)
        stamps = own.execute(
            "SELECT xmin FROM tasks.job WHERE job_id = %(id)s UNION SELECT xmin FROM tasks.dependency",
            {"id": child.job_id},
        ).fetchall()
    assert (parent.status, child.parent_count, len(stamps)) == ("cancelled", 1, 1)
