"""Bulk enqueue: one statement for thousands, and the same as one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

import tasks.enqueue
from tasks import queue
from tasks.errors import DuplicateJob, PayloadError
from tasks.job import Enqueued
from tests.tasks.rows import INDEX, at, claim, enqueue_and_claim, new

Db = psycopg.Connection[Any]
TAKEN = uuid4()
SEEN = (
    "SELECT task, scope, payload, priority, status, after_tasks, created_at, available_at, attempts_max, postpones_max,"
    " dedup_key, dedup_mode, coalesced, coalesced_at, expires_at, limit_key, limit_max, parent_count,"
    " on_parent_failure, pass_results, lane, gated, queue, lease_seconds FROM tasks.job ORDER BY seq"
)
REQUESTS = st.builds(
    new,
    st.sampled_from(["gc", INDEX]),
    kwargs=st.fixed_dictionaries({"n": st.integers(0, 3)}),
    priority=st.integers(-1, 1),
    after_tasks=st.sampled_from([(), (INDEX,), ('a"b\\c', "d,e")]),
    countdown=st.sampled_from([None, 0.0, 5.0]),
    attempts_max=st.integers(1, 3),
    postpones_max=st.integers(0, 2),
    dedup_key=st.sampled_from([None, "a", "b"]),
    dedup_mode=st.sampled_from(["join", "join", "once"]),
    expires=st.sampled_from([None, 7.0, 9.0]),
    tier=st.sampled_from([0, 2.5]),
    pass_results=st.sampled_from(["none", "list"]),
)
ALIKE = st.builds(
    lambda one, several, limit: [one._replace(**limit, payload={"args": [n], "kwargs": {}}) for n in range(several)],
    REQUESTS,
    st.integers(2, 5),
    st.sampled_from([{}, {"limit_key": "k", "limit_max": 2}, {"available_at": at(9), "countdown": None}]),
)
"""What most requests are in bulk: all the same but for their arguments; with and without a key."""


@contextmanager
def clean(conn: Db) -> Iterator[None]:
    """Leave no job behind, committed or not."""
    try:
        yield
    finally:
        conn.rollback()
        conn.execute("DELETE FROM tasks.job")
        conn.commit()


@settings(max_examples=60)
@given(requests=st.lists(REQUESTS, max_size=8) | ALIKE, page_size=st.sampled_from([2, 1000]))
def test_many_at_once_are_what_one_by_one_would_be(database_url: str, requests: list[Any], page_size: int) -> None:
    with psycopg.connect(database_url) as conn, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.enqueue, "PAGE_SIZE", page_size)
        single = [queue.enqueue_job(conn, one, now=at(1)) for one in requests]
        rows = conn.execute(SEEN).fetchall()
        conn.rollback()
        bulk = queue.enqueue_jobs(conn, requests, now=at(1))
        assert conn.execute(SEEN).fetchall() == rows
        assert [one.outcome for one in bulk] == [one.outcome for one in single]
        same = {one.job_id: other.job_id for one, other in zip(single, bulk, strict=True)}
        assert [same[one.job_id] for one in single] == [one.job_id for one in bulk]
        conn.rollback()


def test_thousands_are_claimed_in_the_order_in_which_they_were_given(db: Db) -> None:
    done = queue.enqueue_jobs(db, [new(kwargs={"n": n}) for n in range(4500)], now=at(0))
    assert {one.outcome for one in done} == {"inserted"}
    claimed = claim(db, limit=4500)
    assert [held.payload["kwargs"]["n"] for held in claimed] == list(range(4500))
    assert [held.job_id for held in claimed] == [one.job_id for one in done]


def test_duplicates_join_within_one_statement_and_with_what_is_there(db: Db) -> None:
    held = enqueue_and_claim(db, dedup_key="k")
    queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=[0], now=at(2))
    done = queue.enqueue_jobs(db, [new(dedup_key="k"), new(dedup_key="k", attempts_max=7), new()], now=at(3))
    assert done[:2] == [Enqueued(held.job_id, "joined")] * 2
    job = queue.get_job(db, held.job_id)
    assert (job.coalesced, job.attempts_max) == (2, 8)


def test_a_bad_one_refuses_all_before_any_sql(db: Db) -> None:
    with pytest.raises(PayloadError) as caught:
        queue.enqueue_jobs(db, [new(), new(priority=10**6)])
    assert caught.value.field == "priority"
    assert queue.list_jobs(db) == []


@pytest.mark.parametrize("odd", [True, 1.0])
def test_a_value_of_another_type_does_not_pass_for_its_equal(db: Db, odd: Any) -> None:
    with pytest.raises(PayloadError, match="attempts_max: must be a whole number"):
        queue.enqueue_jobs(db, [new(attempts_max=1), new(attempts_max=odd)])


def test_the_limit_of_requests_that_are_alike_holds(db: Db) -> None:
    queue.enqueue_jobs(db, [new(kwargs={"n": n}, limit_key="k", limit_max=2) for n in range(5)], now=at(0))
    assert len(claim(db, limit=5)) == 2


def test_the_bell_rings_once_a_page_for_what_is_due_and_not_for_what_is_not(
    committed_db: Db, database_url: str
) -> None:
    with psycopg.connect(database_url, autocommit=True) as ears:
        ears.execute("LISTEN tasks")
        queue.enqueue_jobs(committed_db, [new(kwargs={"n": n}) for n in range(5)])
        queue.enqueue_jobs(committed_db, [new(queue="other", countdown=60, kwargs={"n": n}) for n in range(5)])
        committed_db.commit()
        assert [heard.payload for heard in ears.notifies(timeout=5, stop_after=1)] == ["default"]
        assert [heard.payload for heard in ears.notifies(timeout=0)] == []


def test_an_id_that_is_taken_is_refused(db: Db) -> None:
    job_id = uuid4()
    with pytest.raises(DuplicateJob, match=str(job_id)):
        queue.enqueue_jobs(db, [new(job_id=job_id), new(job_id=job_id)])


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize(("bad", "error"), [({"scope": "a\0"}, PayloadError), ({"job_id": TAKEN}, DuplicateJob)])
def test_a_refusal_in_a_later_page_takes_all_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch, bad: dict[str, Any], error: type[Exception], *, autocommit: bool
) -> None:
    monkeypatch.setattr(tasks.enqueue, "PAGE_SIZE", 2)
    requests = [new(kwargs={"n": n}) for n in range(9)]
    requests[0] = new(job_id=TAKEN) if "job_id" in bad else requests[0]
    requests[6] = new(**bad)
    with psycopg.connect(database_url, autocommit=autocommit) as conn, clean(conn):
        with pytest.raises(error):
            queue.enqueue_jobs(conn, requests, now=at(0))
        assert conn.execute("SELECT count(*) FROM tasks.job").fetchone() == (0,)
        kept = queue.enqueue_jobs(conn, requests[1:6], now=at(0))
        assert conn.execute("SELECT job_id FROM tasks.job ORDER BY seq").fetchall() == [(one.job_id,) for one in kept]


def test_pages_are_sent_through_a_session_too(committed_db: Db, database_url: str) -> None:
    engine = sa.create_engine(database_url.replace("postgresql:", "postgresql+psycopg:", 1))
    with Session(engine) as session:
        done = queue.enqueue_jobs(session, [new(kwargs={"n": n}) for n in range(2500)])
        session.rollback()
        assert committed_db.execute("SELECT count(*) FROM tasks.job").fetchone() == (0,)
        again = queue.enqueue_jobs(session, [new(kwargs={"n": n}) for n in range(2500)])
        session.commit()
    engine.dispose()
    committed_db.rollback()
    assert (len(done), len(again)) == (2500, 2500)
    assert committed_db.execute("SELECT count(*) FROM tasks.job").fetchone() == (2500,)


def test_nothing_is_nothing(db: Db) -> None:
    assert queue.enqueue_jobs(db, []) == []


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"expires": -1.0}, "expires"),
        ({"expires": 1.0, "expires_at": at(1)}, "expires"),
        ({"expires_at": at(1).replace(tzinfo=None)}, "expires_at"),
        ({"limit_key": "k"}, "limit_max"),
        ({"limit_max": 1}, "limit_max"),
        ({"limit_key": "k", "limit_max": 0}, "limit_max"),
        ({"limit_key": "k\x00", "limit_max": 1}, "limit_key"),
        ({"parents": ["no id"]}, "parents"),
        ({"parents": [uuid4()], "dedup_key": "k"}, "parents"),
        ({"on_parent_failure": "cry"}, "on_parent_failure"),
        ({"pass_results": "some"}, "pass_results"),
    ],
)
def test_what_cannot_be_is_refused_by_field(db: Db, options: dict[str, Any], field: str) -> None:
    with pytest.raises(PayloadError) as caught:
        queue.enqueue_job(db, new(**options))
    assert caught.value.field == field
