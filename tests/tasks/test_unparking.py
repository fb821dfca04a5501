"""A job that ends frees a bounded number of those that wait for it; claims free the rest, in order, none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import lanes, queue
from tasks.job import WorkerInfo
from tasks.sweep import sweep
from tasks.why import jobs_ahead, why
from tests.tasks.racing import blocked
from tests.tasks.rows import INDEX, PREBUILD, at, claim, enqueue, enqueue_and_claim

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tasks.job import Claim

Db = psycopg.Connection[Any]
WAITING = 30
GATED = {"scope": "r", "after_tasks": (INDEX,)}


@pytest.fixture(autouse=True)
def _small_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "BITE", 3)


def wall(conn: Db) -> tuple[Claim, list[UUID]]:
    """A running job, and those that are parked on it, in the order of claims: the last ones come first."""
    index = enqueue_and_claim(conn, INDEX, scope="r")
    waiting = [enqueue(conn, PREBUILD, now=1, priority=n, **GATED).job_id for n in range(WAITING)]
    assert claim(conn, now=2, limit=WAITING) == []
    assert lanes_of(conn) == {"parked": WAITING}
    return index, waiting[::-1]


def lanes_of(conn: Db) -> dict[str, int]:
    return dict(conn.execute("SELECT lane, count(*) FROM tasks.job WHERE status = 'pending' GROUP BY lane").fetchall())


def unparking(conn: Db) -> int:
    return len(conn.execute("SELECT FROM tasks.unparking").fetchall())


def rules(conn: Db, job_id: UUID) -> set[str]:
    return {reason.rule for reason in why(conn, job_id, now=at(4))}


def test_an_end_frees_the_first_in_order_and_says_that_there_are_more(db: Db) -> None:
    index, waiting = wall(db)
    queue.finish_job(db, index.ref, now=at(3))
    assert lanes_of(db) == {"unchecked": 3, "parked": WAITING - 3}
    freed = db.execute("SELECT job_id FROM tasks.job WHERE lane = 'unchecked'").fetchall()
    assert {job_id for (job_id,) in freed} == set(waiting[:3])
    assert unparking(db) == 1


def test_why_has_no_reason_for_what_the_next_claims_free(db: Db) -> None:
    queue.register_worker(db, WorkerInfo("w", "host", 1, ["default"], [PREBUILD]), now=at(4))
    index, waiting = wall(db)
    assert [rules(db, job_id) for job_id in waiting] == [{"GATE_SHUT"}] * WAITING
    queue.finish_job(db, index.ref, now=at(3))
    assert [rules(db, job_id) for job_id in waiting] == [set()] * WAITING
    assert jobs_ahead(db, waiting[-1], now=at(4)) == WAITING - 1
    db.execute("DELETE FROM tasks.unparking")
    assert [rules(db, job_id) for job_id in waiting] == [set()] * 3 + [{"PARKED"}] * (WAITING - 3)


def test_an_end_that_frees_all_leaves_nothing_to_the_claims(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "BITE", WAITING)
    index, _ = wall(db)
    queue.finish_job(db, index.ref, now=at(3))
    assert (lanes_of(db), unparking(db)) == ({"unchecked": WAITING}, 0)


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_claims_get_the_rest_in_order_without_a_sweep(db: Db, limit: int) -> None:
    index, waiting = wall(db)
    queue.finish_job(db, index.ref, now=at(3))
    claimed: list[UUID] = []
    while held := claim(db, now=4, limit=limit):
        claimed += [one.job_id for one in held]
    assert claimed == waiting
    assert unparking(db) == 0


def test_jobs_of_several_ends_come_in_one_order(db: Db) -> None:
    index, first = wall(db)
    other = enqueue_and_claim(db, INDEX, now=2, scope="s")
    second = [enqueue(db, PREBUILD, priority=n, scope="s", after_tasks=(INDEX,)).job_id for n in range(0, 60, 2)]
    assert claim(db, now=3, limit=100) == []
    queue.finish_jobs(db, [(other.ref, None), (index.ref, None)], now=at(3))
    claimed = []
    while held := claim(db, now=4, limit=4):
        claimed += [one.priority for one in held]
    assert claimed == sorted(claimed, reverse=True)
    assert len(claimed) == len(first) + len(second)


def test_jobs_that_a_claim_does_not_serve_do_not_hide_those_that_it_does(db: Db) -> None:
    index, _ = wall(db)
    mine = enqueue(db, PREBUILD, now=1, queue="mine", priority=-1, **GATED).job_id
    assert claim(db, now=2, limit=1) == []
    queue.finish_job(db, index.ref, now=at(3))
    assert [held.job_id for held in claim(db, now=4, queues=["mine"])] == [mine]


def test_an_end_with_a_rest_rings_every_queue_that_a_worker_serves(committed_db: Db, database_url: str) -> None:
    serving = WorkerInfo("w", "host", 1, ["default", "mine"], [PREBUILD])
    queue.register_worker(committed_db, serving, now=at(0))
    index, _ = wall(committed_db)
    enqueue(committed_db, PREBUILD, now=1, queue="mine", priority=-1, **GATED)
    assert claim(committed_db, now=2, limit=1, queues=["mine"]) == []
    committed_db.commit()
    with psycopg.connect(database_url, autocommit=True) as ears:
        ears.execute("LISTEN tasks")
        queue.finish_job(committed_db, index.ref, now=at(3))
        committed_db.commit()
        assert {heard.payload for heard in ears.notifies(timeout=5, stop_after=2)} == {"default", "mine"}
    assert claim(committed_db, now=4, queues=["mine"]) != []


def test_a_job_that_a_person_retries_holds_the_rest_again(db: Db) -> None:
    index, waiting = wall(db)
    queue.fail_job(db, index.ref, code="X", detail="x", retry_delays=None, now=at(3))
    queue.retry_job(db, index.job_id, reason="again", now=at(4))
    assert [held.job_id for held in claim(db, now=5, limit=100)] == [index.job_id]
    assert claim(db, now=6, limit=100) == []
    queue.cancel_job(db, index.job_id, reason="enough", now=at(7))
    assert [held.job_id for held in claim(db, now=8, limit=100)] == waiting
    assert claim(db, now=9) == []
    assert unparking(db) == 0


def test_the_sweep_frees_the_rest_where_nobody_claims(db: Db) -> None:
    index, _ = wall(db)
    queue.finish_job(db, index.ref, now=at(3))
    assert sweep(db, now=at(4)).unparked == WAITING - 3
    assert lanes_of(db) == {"unchecked": WAITING}


@pytest.mark.parametrize("way", ["commits", "rolls back"])
def test_two_claims_at_once_share_the_rest_and_lose_none(committed_db: Db, connect: Callable[[], Db], way: str) -> None:
    index, waiting = wall(committed_db)
    queue.finish_job(committed_db, index.ref, now=at(3))
    committed_db.commit()
    one, other = connect(), connect()
    claimed = [held.job_id for held in claim(one, now=4, limit=2)]
    claimed_beside = [held.job_id for held in claim(other, now=4, limit=2, worker="worker-2")]
    other.commit()
    if way == "commits":
        one.commit()
    else:
        one.rollback()
        claimed = []
    assert not set(claimed) & set(claimed_beside)
    claimed += claimed_beside
    while held := claim(committed_db, now=5, limit=2):
        claimed += [taken.job_id for taken in held]
    committed_db.commit()
    assert sorted(claimed) == sorted(waiting)
    assert unparking(committed_db) == 0


def test_what_is_parked_while_the_blocker_ends_is_not_lost(committed_db: Db, connect: Callable[[], Db]) -> None:
    index = enqueue_and_claim(committed_db, INDEX, scope="r")
    waiting = [enqueue(committed_db, PREBUILD, now=1, **GATED).job_id for _ in range(WAITING)]
    committed_db.commit()
    worker, other = connect(), connect()
    assert claim(other, now=2, limit=WAITING) == []
    with blocked(connect(), worker, lambda: queue.finish_job(worker, index.ref, now=at(3))) as finishing:
        other.commit()
    finishing.result()
    worker.commit()
    claimed = []
    while held := claim(committed_db, now=4, limit=4):
        claimed += [one.job_id for one in held]
    committed_db.commit()
    assert claimed == waiting
