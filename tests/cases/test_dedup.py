"""Dedup keys: no push is lost, and no key stays taken."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import queue
from tasks.job import Enqueued
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tests.tasks.rows import at, claim, claim_one, endings, enqueue, enqueue_and_claim, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Db = psycopg.Connection[Any]
STEPS = ("insert", "commit the push", "finish", "commit the finish")
ORDERS = [
    order
    for order in permutations(STEPS)
    if order.index(STEPS[0]) < order.index(STEPS[1]) and order.index(STEPS[2]) < order.index(STEPS[3])
]


@pytest.fixture(autouse=True)
def _oracle(committed_db: Db) -> Iterator[None]:
    yield
    committed_db.rollback()
    check_invariants(committed_db)


@pytest.mark.parametrize("waiting", [False, True], ids=["nothing waits", "one waits"])
@pytest.mark.parametrize("order", ORDERS, ids=", ".join)
def test_a_run_starts_after_each_push_however_it_interleaves_with_the_finish(
    committed_db: Db, connect: Callable[[], Db], order: tuple[str, ...], waiting: bool
) -> None:
    """Case 21: every order of the four steps; neither waits for the other, and at most one job waits."""
    held = enqueue_and_claim(committed_db, dedup_key="k")
    if waiting:
        enqueue(committed_db, dedup_key="k", now=2)
    committed_db.commit()
    push, worker = connect(), connect()
    for conn in (push, worker):
        conn.execute("SET lock_timeout = '1ms'")
    pushed: list[Enqueued] = []
    steps: dict[str, Callable[[], object]] = {
        "insert": lambda: pushed.append(enqueue(push, dedup_key="k", now=3)),
        "commit the push": push.commit,
        "finish": lambda: queue.finish_job(worker, held.ref, now=at(3)),
        "commit the finish": worker.commit,
    }
    for step in order:
        steps[step]()
    assert status_of(committed_db, held.job_id) == "succeeded"
    assert pushed[0].outcome == ("joined" if waiting else "inserted")
    (again,) = claim(committed_db, now=4, limit=10)
    committed_db.commit()
    assert again.job_id == pushed[0].job_id != held.job_id


@pytest.mark.parametrize("budget", [1, 2])
def test_the_key_of_a_dead_run_is_free_after_its_lease_and_a_sweep(committed_db: Db, budget: int) -> None:
    """Case 23: and a push before that is accepted as well; a key is never blocked."""
    dead = enqueue_and_claim(committed_db, dedup_key="k", attempts_max=budget, lease_seconds=10.0)
    early = enqueue(committed_db, dedup_key="k", now=5)
    assert early.outcome == "inserted", "a running job absorbs nothing, dead or alive"
    counts = sweep(committed_db, now=at(11))
    assert (counts.failed, counts.superseded) == ((1, 0) if budget == 1 else (0, 1))
    queue.finish_job(committed_db, claim_one(committed_db, now=12).ref, now=at(13))
    late = enqueue(committed_db, dedup_key="k", now=14)
    assert late.outcome == "inserted"
    assert claim_one(committed_db, now=15).job_id == late.job_id
    committed_db.commit()
    assert endings(committed_db, dead.job_id) == ["ABANDONED"]
