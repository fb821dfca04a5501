"""T0: enqueue and join, in the caller's transaction."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tasks import queue
from tasks.dedup import Dedup
from tasks.errors import DuplicateJob, PayloadError
from tasks.job import Enqueued, NewJob
from tests.tasks.rows import INDEX, PREBUILD, at, claim_one, endings, enqueue, enqueue_and_claim, new, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

Db = psycopg.Connection[Any]
PER_KEY = Dedup(by=("mpack_key",))


def push(db: Db, mpack_key: str, tips: list[str], *, now: float = 0.0, scope: str = "repo-1") -> None:
    """What one push enqueues."""
    kwargs = {"mpack_key": mpack_key}
    enqueue(db, INDEX, kwargs=kwargs, scope=scope, dedup_key=PER_KEY.key(scope, kwargs), now=now)
    enqueue(
        db,
        PREBUILD,
        kwargs={"tip_commit_ids": tips},
        scope=scope,
        dedup_key=Dedup().key(scope, {}),
        after_tasks=(INDEX,),
        tier=1,
        now=now,
    )


def pending(db: Db, task: str) -> list[Any]:
    return queue.list_jobs(db, status="pending", task=task)


def test_pushes_of_distinct_packs_make_distinct_index_jobs(db: Db) -> None:
    """MWP3_01, MWP3_07: the first index job still waits when the second push comes."""
    push(db, "pack-a", ["a"])
    push(db, "pack-b", ["b"])
    assert {job.payload["kwargs"]["mpack_key"] for job in pending(db, INDEX)} == {"pack-a", "pack-b"}


def test_pushes_before_a_prebuild_share_one_that_starts_after_the_last(db: Db) -> None:
    """MWP3_02: one prebuild waits, counted for both; its payload is the first one's, for observation only."""
    push(db, "pack-a", ["a"])
    push(db, "pack-b", ["b"], now=5)
    (job,) = pending(db, PREBUILD)
    assert (job.coalesced, job.coalesced_at) == (1, at(5))
    assert job.payload["kwargs"]["tip_commit_ids"] == ["a"]


def test_one_push_makes_one_job_of_each_task(db: Db) -> None:
    """MWP3_03."""
    push(db, "pack-a", ["a"])
    assert [len(pending(db, task)) for task in (INDEX, PREBUILD)] == [1, 1]


def test_an_identical_push_joins_both_jobs(db: Db) -> None:
    """MWP3_08."""
    push(db, "pack-a", ["a"])
    push(db, "pack-a", ["a"])
    assert [len(pending(db, task)) for task in (INDEX, PREBUILD)] == [1, 1]
    assert pending(db, INDEX)[0].coalesced == 1


def test_a_key_component_makes_distinct_jobs_and_without_one_the_scope_does(db: Db) -> None:
    """MWP3_08b."""
    keys = [PER_KEY.key("r", {"mpack_key": name}) for name in ("x", "y", "x")]
    assert [enqueue(db, INDEX, dedup_key=key).outcome for key in keys] == ["inserted", "inserted", "joined"]
    keys = [Dedup().key(scope, {"mpack_key": name}) for scope, name in (("r", "x"), ("r", "y"), ("s", "x"))]
    assert [enqueue(db, PREBUILD, dedup_key=key).outcome for key in keys] == ["inserted", "joined", "inserted"]


def test_a_key_per_pack_does_not_loosen_the_key_per_scope(db: Db) -> None:
    """MWP3_09."""
    for name in "abc":
        push(db, f"pack-{name}", [name])
    assert [len(pending(db, task)) for task in (INDEX, PREBUILD)] == [3, 1]


def test_the_prebuild_sorts_after_every_index_job_of_its_push(db: Db) -> None:
    """MWP4_03: index t+0, prebuild t+1, the next tier t+2; due at once all the same."""
    push(db, "pack-a", ["a"])
    enqueue(db, "intel.code", tier=2)
    created = {job.task: job.created_at for job in queue.list_jobs(db)}
    assert created == {INDEX: at(0), PREBUILD: at(1), "intel.code": at(2)}
    assert {job.available_at for job in queue.list_jobs(db)} == {at(0)}


def test_a_running_job_absorbs_nothing(db: Db) -> None:
    first = enqueue_and_claim(db, dedup_key="k")
    second = enqueue(db, dedup_key="k", now=2)
    assert second.outcome == "inserted"
    assert second.job_id != first.job_id


def test_the_key_of_a_job_at_an_end_is_free(db: Db) -> None:
    first = enqueue_and_claim(db, dedup_key="k")
    queue.finish_job(db, first.ref, now=at(2))
    assert enqueue(db, dedup_key="k", now=3).outcome == "inserted"


def test_one_key_of_two_tasks_is_two_keys(db: Db) -> None:
    assert [enqueue(db, task, dedup_key="k").outcome for task in (INDEX, PREBUILD)] == ["inserted", "inserted"]


def test_a_join_brings_the_due_time_forward_and_never_back(db: Db) -> None:
    job_id = enqueue(db, dedup_key="k", countdown=60.0).job_id
    enqueue(db, dedup_key="k", countdown=10.0, now=5)
    assert queue.get_job(db, job_id).available_at == at(15)
    enqueue(db, dedup_key="k", countdown=100.0, now=5)
    assert queue.get_job(db, job_id).available_at == at(15)


def test_a_join_takes_the_higher_priority(db: Db) -> None:
    job_id = enqueue(db, dedup_key="k", priority=2).job_id
    enqueue(db, dedup_key="k", priority=1)
    assert queue.get_job(db, job_id).priority == 2
    enqueue(db, dedup_key="k", priority=3)
    assert queue.get_job(db, job_id).priority == 3


def test_joining_a_job_that_has_failed_before_gives_it_a_full_budget_now(db: Db) -> None:
    first = enqueue_and_claim(db, dedup_key="k", attempts_max=2, postpones_max=1)
    queue.release_job(db, first.ref, postpone=True, now=at(2))
    queue.fail_job(db, claim_one(db, now=3).ref, code="X", detail="x", retry_delays=[600], now=at(4))
    assert enqueue(db, dedup_key="k", attempts_max=2, postpones_max=1, now=5).outcome == "joined"
    job = queue.get_job(db, first.job_id)
    assert (job.attempt_count, job.attempts_max) == (1, 3)
    assert (job.postpone_count, job.postpones_max) == (1, 2)
    assert job.available_at == at(5)


@pytest.mark.parametrize("mode", ["once", "reject"])
def test_the_duplicate_that_is_named_is_the_pending_one_of_the_same_task_and_key(db: Db, mode: Any) -> None:
    done = enqueue_and_claim(db, dedup_key="k", dedup_mode="reject")
    queue.finish_job(db, done.ref, now=at(2))
    enqueue(db, INDEX, dedup_key="k")
    enqueue(db, dedup_key="another")
    first = enqueue(db, dedup_key="k").job_id
    if mode == "once":
        assert enqueue(db, dedup_key="k", dedup_mode="once") == Enqueued(first, "duplicate")
    else:
        with pytest.raises(DuplicateJob, match=str(first)):
            enqueue(db, dedup_key="k", dedup_mode="reject")


def test_mode_reject_raises_while_a_pending_job_has_the_key(db: Db) -> None:
    first = enqueue(db, dedup_key="k", dedup_mode="reject")
    with pytest.raises(DuplicateJob, match=str(first.job_id)):
        enqueue(db, dedup_key="k", dedup_mode="reject")
    claim_one(db)
    assert enqueue(db, dedup_key="k", dedup_mode="reject", now=2).outcome == "inserted"


def test_mode_once_is_once_for_ever(db: Db) -> None:
    first = enqueue(db, dedup_key="k", dedup_mode="once")
    queue.finish_job(db, claim_one(db).ref, now=at(2))
    again = enqueue(db, dedup_key="k", dedup_mode="once", now=3)
    assert (again.job_id, again.outcome) == (first.job_id, "duplicate")


def test_a_given_id_is_kept_and_taken_once(db: Db) -> None:
    given = UUID("01890000-0000-7000-8000-000000000001")
    assert enqueue(db, job_id=given).job_id == given
    with pytest.raises(DuplicateJob, match=str(given)):
        enqueue(db, job_id=given)


def test_rollback_leaves_no_job_and_commit_leaves_one(committed_db: Db, connect: Callable[[], Db]) -> None:
    enqueue(committed_db)
    committed_db.rollback()
    kept = enqueue(committed_db)
    committed_db.commit()
    assert [job.job_id for job in queue.list_jobs(connect())] == [kept.job_id]


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_enqueue_belongs_to_the_sqlalchemy_transaction(database_url: str, _clean_rows: None, kind: str) -> None:
    engine = sa.create_engine(sa.make_url(database_url).set(drivername="postgresql+psycopg"))
    opened: Session | sa.Connection = Session(engine) if kind == "session" else engine.connect()
    with opened as conn:
        enqueue(conn)
        conn.rollback()
        enqueue(conn)
        conn.commit()
        assert len(queue.list_jobs(conn)) == 1
    engine.dispose()


def test_a_put_back_first_thing_in_a_session_is_not_committed(database_url: str, committed_db: Db) -> None:
    claimed = enqueue_and_claim(committed_db)
    committed_db.commit()
    engine = sa.create_engine(sa.make_url(database_url).set(drivername="postgresql+psycopg"))
    with Session(engine) as session:
        queue.release_job(session, claimed.ref, now=at(2))
        session.rollback()
    engine.dispose()
    assert status_of(committed_db, claimed.job_id) == "running"
    assert endings(committed_db, claimed.job_id) == [None]


def test_one_wake_up_per_transaction_and_queue_and_none_for_later(committed_db: Db, connect: Callable[[], Db]) -> None:
    listener = connect()
    listener.execute("LISTEN tasks")
    listener.commit()
    for name in ("a", "a", "b"):
        enqueue(committed_db, queue=name)
    enqueue(committed_db, queue="later", countdown=60.0)
    committed_db.commit()
    heard = list(listener.notifies(timeout=10, stop_after=2))
    heard += list(listener.notifies(timeout=0))
    assert sorted(note.payload for note in heard) == ["a", "b"]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("kwargs.a", {"payload": {"args": [], "kwargs": {"a": "x\x00"}}}),
    ("kwargs (a key)", {"payload": {"args": [], "kwargs": {"\x00": 1}}}),
    ("kwargs.a[1]", {"payload": {"args": [], "kwargs": {"a": [1, "\ud800"]}}}),
    ("args[0]", {"payload": {"args": [{1, 2}], "kwargs": {}}}),
    ("args[0]", {"payload": {"args": [float("nan")], "kwargs": {}}}),
    ("args[0]", {"payload": {"args": [1 << 5000], "kwargs": {}}}),
    ("kwargs", {"payload": {"args": [], "kwargs": {1: 2}}}),
    ("kwargs.when", {"payload": {"args": [], "kwargs": {"when": datetime(2030, 1, 1)}}}),  # noqa: DTZ001
    ("payload", {"payload": {"args": ["x" * 40_000, "x" * 30_000], "kwargs": {}}}),
    ("payload", {"payload": {"args": []}}),
    ("task", {"task": ""}),
    ("scope", {"scope": "\ud800"}),
    ("scope", {"scope": "x" * 401}),
    ("queue", {"queue": "a\x00"}),
    ("dedup_key", {"dedup_key": "\x00"}),
    ("dedup_key", {"dedup_key": "x" * 2049}),
    ("dedup_mode", {"dedup_key": "k", "dedup_mode": "never"}),
    ("countdown", {"countdown": -1.0}),
    ("countdown", {"countdown": float("inf")}),
    ("countdown", {"countdown": 1.0, "available_at": at(0)}),
    ("available_at", {"available_at": datetime(2030, 1, 1)}),  # noqa: DTZ001
    ("priority", {"priority": 40_000}),
    ("attempts_max", {"attempts_max": 0}),
    ("postpones_max", {"postpones_max": -1}),
    ("lease_seconds", {"lease_seconds": 0.0}),
    ("tier", {"tier": -1.0}),
    ("after_tasks", {"after_tasks": ("",)}),
]


@pytest.mark.parametrize(("field", "options"), BAD, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_stored_is_refused_by_name_before_any_sql(db: Db, field: str, options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"task": "gc", "payload": {"args": [], "kwargs": {}}, **options}
    with pytest.raises(PayloadError) as caught:
        queue.enqueue_job(db, NewJob(**given))
    assert caught.value.field == field
    assert db.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_deep_nesting_is_refused(db: Db) -> None:
    value: Any = 1
    for _ in range(70):
        value = [value]
    with pytest.raises(PayloadError, match="nested"):
        queue.enqueue_job(db, new(kwargs={"a": value}))


def test_a_naive_now_is_refused(db: Db) -> None:
    with pytest.raises(PayloadError, match="now"):
        queue.enqueue_job(db, new(), now=datetime(2030, 1, 1))  # noqa: DTZ001


def test_any_other_unicode_passes_unchanged_and_keys_differ_by_code_point(db: Db) -> None:
    text = "\ufffe 😀 \u202e é e\u0301 \x7f"
    stored = queue.get_job(db, enqueue(db, kwargs={text: text}, scope=text, dedup_key="é").job_id)
    assert stored.payload["kwargs"] == {text: text}
    assert stored.scope == text
    assert enqueue(db, dedup_key="e\u0301").outcome == "inserted"


def test_the_longest_names_and_key_fit_into_the_indexes(db: Db) -> None:
    task, key, scope = "t" * 200, "".join(chr(0x4E00 + n * 7 % 9000) for n in range(682)), "s" * 400
    assert enqueue(db, task, dedup_key=key, scope=scope).outcome == "inserted"
    assert enqueue(db, task, dedup_key=key, scope=scope).outcome == "joined"


def test_the_database_clock_is_used_without_now(db: Db) -> None:
    before = db.execute("SELECT clock_timestamp()").fetchone()
    job = queue.get_job(db, queue.enqueue_job(db, new(countdown=60.0)).job_id)
    after = db.execute("SELECT clock_timestamp()").fetchone()
    assert before is not None
    assert after is not None
    assert before[0] <= job.created_at <= after[0]
    assert (job.available_at - job.created_at).total_seconds() == 60
