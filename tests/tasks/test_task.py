from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import tasks
from tasks.testing import enqueued
from tests.tasks.running import job_row, make_app

pytestmark = pytest.mark.integration

Connection = psycopg.Connection[Any]
Connect = Callable[[], Connection]


@pytest.fixture
def app(database_url: str, db: Connection) -> tasks.App:
    return make_app(database_url, db)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


def declare(app: tasks.App, **options: Any) -> tasks.Task[..., str]:
    @app.task("mpack.index", **options)
    def index(mpack_key: str, head: str = "main") -> str:
        return f"{mpack_key}@{head}"

    return index


def test_calling_a_task_runs_it_here_and_makes_no_job(app: tasks.App, db: Connection) -> None:
    assert declare(app)("k", head="dev") == "k@dev"
    assert enqueued(db) == []


def test_direct_call_of_a_bound_task_has_an_idle_context(app: tasks.App) -> None:
    @app.task("bound", bind=True)
    def bound(self: tasks.Context, x: int) -> tuple[bool, UUID | None, bool]:
        self.heartbeat()
        self.progress(1, 2, "half")
        return self.request.called_directly, self.request.id, self.cancelled()

    assert bound(1) == (True, None, False)


def test_direct_call_of_a_transactional_task_works_in_the_callers_session(database_url: str, engine: Engine) -> None:
    with Session(engine) as session:
        app = tasks.App("under.test")
        app.configure(database_url=database_url, current=lambda: session)

        @app.task("bound", bind=True, transactional=True)
        def bound(self: tasks.Context) -> Session:
            return self.session

        assert bound() is session


def test_delay_enqueues_the_arguments(app: tasks.App, db: Connection) -> None:
    result = declare(app).delay("k", head="dev")
    (job,) = enqueued(db)
    assert (job.job_id, job.task, job.payload) == (result.id, "mpack.index", {"args": ["k"], "kwargs": {"head": "dev"}})
    assert (result.outcome, str(result)) == ("inserted", str(result.id))


def test_job_exists_for_others_only_after_the_callers_commit(
    database_url: str, committed_db: Connection, connect: Connect
) -> None:
    index = declare(make_app(database_url, committed_db))
    other = connect()
    index.delay("k")
    assert enqueued(other) == []
    other.rollback()
    committed_db.commit()
    assert len(enqueued(other)) == 1


def test_rollback_of_the_caller_takes_the_job_with_it(app: tasks.App, db: Connection) -> None:
    declare(app).delay("k")
    db.rollback()
    assert enqueued(db) == []


def test_session_given_at_the_call_goes_before_the_current_one(app: tasks.App, db: Connection, engine: Engine) -> None:
    with Session(engine) as session:
        declare(app).apply_async(("k",), session=session)
        assert len(enqueued(session)) == 1
        assert enqueued(db) == []
        session.rollback()


def test_scoped_session_can_be_the_current_one(database_url: str, engine: Engine) -> None:
    registry = scoped_session(sessionmaker(engine))
    app = tasks.App("under.test")
    app.configure(database_url=database_url, current=lambda: registry)
    declare(app).delay("k")
    assert len(enqueued(registry)) == 1
    registry.remove()


def test_enqueue_without_any_transaction_is_refused(database_url: str) -> None:
    with pytest.raises(tasks.NotConfigured, match="no current transaction"):
        declare(make_app(database_url)).delay("k")


def test_arguments_that_do_not_fit_are_refused_at_the_call(app: tasks.App, db: Connection) -> None:
    index = declare(app)
    with pytest.raises(TypeError, match=r"mpack\.index: missing a required argument: 'mpack_key'"):
        index.apply_async()
    with pytest.raises(TypeError, match="unexpected keyword argument 'tail'"):
        index.apply_async(("k",), {"tail": 1})
    assert enqueued(db) == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"args": (object(),)}, "args"),
        ({"args": ("\x00",)}, "args"),
        ({"args": ("k",), "eta": datetime(2027, 1, 1)}, "eta"),  # noqa: DTZ001  # naive on purpose
        ({"args": ("k",), "countdown": -1}, "countdown"),
        ({"args": ("k",), "countdown": 1, "eta": datetime(2027, 1, 1, tzinfo=UTC)}, "eta"),
        ({"args": ("k",), "task_id": "no uuid"}, "task_id"),
        ({"args": ("k",), "priority": 99_999}, "priority"),
        ({"args": ("k",), "scope": "\ud800"}, "scope"),
        ({"args": ("k",), "mode": "join"}, "mode"),
        ({"args": ("k",), "dedup_key": "d", "mode": "never"}, "mode"),
        ({"args": "k"}, "args"),
        ({"args": 1}, "args"),
        ({"args": (), "kwargs": ["mpack_key"]}, "kwargs"),
        ({"args": ("k",), "eta": "2027-01-01"}, "eta"),
        ({"args": ("k",), "parents": uuid4()}, "parents"),
        ({"args": ("k",), "parents": ["no uuid"]}, "parents"),
        ({"args": ("k",), "on_parent_failure": "never"}, "on_parent_failure"),
    ],
)
def test_value_that_cannot_be_stored_is_refused_naming_the_field(
    app: tasks.App, db: Connection, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(tasks.PayloadError) as refusal:
        declare(app).apply_async(**options)
    assert refusal.value.field.startswith(field)
    assert enqueued(db) == []


@pytest.mark.parametrize("queue", ["high-priority", "a b", "", 1])
def test_queue_that_no_worker_could_serve_is_refused(app: tasks.App, db: Connection, queue: Any) -> None:
    with pytest.raises(tasks.PayloadError, match=r"^queue: must be words"):
        declare(app).apply_async(("k",), queue=queue)
    assert enqueued(db) == []


@pytest.mark.parametrize("option", ["lease", "max_attempts"])
def test_number_out_of_range_is_refused_by_its_name(app: tasks.App, db: Connection, option: str) -> None:
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ValueError, match=option):
        declare(app).apply_async(("k",), **options)
    assert enqueued(db) == []


@pytest.mark.parametrize("option", ["shadow", "link", "routing_key", "nonsense"])
def test_unsupported_option_at_the_call_is_refused_by_name(app: tasks.App, option: str) -> None:
    options: dict[str, Any] = {option: 1}
    with pytest.raises(tasks.UnknownOption) as refusal:
        declare(app).apply_async(("k",), **options)
    assert refusal.value.option == option


def test_options_of_the_task_land_in_the_row(app: tasks.App, db: Connection) -> None:
    index = declare(app, queue="slow", priority=3, tier=2, lease=10, max_attempts=7, gate=tasks.After("mpack.receive"))
    index.delay("k")
    (job,) = enqueued(db)
    assert (job.queue, job.priority, job.lease_seconds, job.attempts_max) == ("slow", 3, 10.0, 7)
    assert job.after_tasks == ["mpack.receive"]
    assert job.created_at - job.available_at == timedelta(seconds=2)


def test_options_at_the_call_go_before_those_of_the_task(app: tasks.App, db: Connection) -> None:
    chosen = UUID("01a22dc6-5fe4-7704-a995-3d3071131293")
    declare(app, queue="slow", priority=3, lease=10, max_attempts=7).apply_async(
        ("k",), queue="fast", priority=0, lease=5, max_attempts=2, task_id=str(chosen), scope="repo-1"
    )
    (job,) = enqueued(db)
    assert (job.queue, job.priority, job.lease_seconds, job.attempts_max) == ("fast", 0, 5.0, 2)
    assert (job.job_id, job.scope) == (chosen, "repo-1")


def test_countdown_and_eta_set_when_the_job_is_due(app: tasks.App, db: Connection) -> None:
    eta = datetime(2030, 1, 1, tzinfo=UTC)
    index = declare(app)
    index.apply_async(("k",), countdown=90)
    index.apply_async(("k",), eta=eta)
    first, second = enqueued(db)
    assert first.available_at - first.created_at == timedelta(seconds=90)
    assert second.available_at == eta


def test_second_request_for_the_same_effect_joins_the_waiting_job(app: tasks.App, db: Connection) -> None:
    index = declare(app, dedup=tasks.Dedup(by=("mpack_key",)))
    first = index.apply_async(("k",), scope="repo-1")
    second = index.apply_async((), {"mpack_key": "k", "head": "dev"}, scope="repo-1")
    third = index.apply_async(("k",), scope="repo-2")
    assert (second.id, second.outcome) == (first.id, "joined")
    assert third.outcome == "inserted"
    assert [job.coalesced for job in enqueued(db)] == [1, 0]


def test_default_of_a_parameter_counts_as_a_component_of_the_key(app: tasks.App) -> None:
    index = declare(app, dedup=tasks.Dedup(by=("head",)))
    assert index.delay("a").id == index.delay("b", head="main").id


def test_missing_component_of_the_key_is_refused(app: tasks.App, db: Connection) -> None:
    index = declare(app, dedup=tasks.Dedup(by=("mpack_key",)))
    with pytest.raises(tasks.PayloadError, match="mpack_key"):
        index.delay("")
    with pytest.raises(tasks.PayloadError, match="mpack_key"):
        index.delay(None)
    assert enqueued(db) == []


def test_key_per_scope_needs_a_scope(app: tasks.App) -> None:
    with pytest.raises(tasks.PayloadError, match="scope"):
        declare(app, dedup=tasks.Dedup()).delay("k")


def test_key_and_mode_at_the_call_go_before_those_of_the_task(app: tasks.App) -> None:
    index = declare(app, dedup=tasks.Dedup(by=("mpack_key",)))
    first = index.apply_async(("a",), dedup_key="mine", mode="reject")
    assert first.outcome == "inserted"
    with pytest.raises(tasks.DuplicateJob):
        index.apply_async(("b",), dedup_key="mine", mode="reject")


def test_taken_task_id_is_refused(database_url: str, committed_db: Connection) -> None:
    index = declare(make_app(database_url, committed_db))
    taken = index.delay("k")
    committed_db.commit()
    with pytest.raises(tasks.DuplicateJob):
        index.apply_async(("k",), task_id=taken.id)
    assert job_row(committed_db, taken.id)["status"] == "pending"


def test_retry_refuses_options_that_it_cannot_honour(app: tasks.App) -> None:
    @app.task("again", bind=True)
    def again(self: tasks.Context) -> None:
        self.retry(max_retries=3)

    with pytest.raises(tasks.UnknownOption, match="max_retries"):
        again()


def test_gates_of_a_task_are_stamped_on_its_jobs(app: tasks.App, db: Connection) -> None:
    build = app.task("build", gate=(tasks.After("index"), tasks.Limit("disk", 2)))(lambda: None)
    build.delay()
    (job,) = enqueued(db)
    assert (job.after_tasks, job.limit_key, job.limit_max) == (["index"], "disk", 2)
    with pytest.raises(ValueError, match="gate"):
        app.task("other", gate="index")(lambda: None)
