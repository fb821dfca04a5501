"""Gates: the behaviour table of the prebuild that waits for index jobs, and what a gate never does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tasks import queue
from tasks.gates import After
from tests.tasks.rows import INDEX, PREBUILD, at, claim, claim_one, enqueue, enqueue_and_claim, status_of

if TYPE_CHECKING:
    from uuid import UUID

Db = psycopg.Connection[Any]


def gated(db: Db, *, scope: str = "repo-1", now: float = 0.0) -> UUID:
    return enqueue(db, PREBUILD, scope=scope, after_tasks=After(INDEX).tasks, now=now).job_id


def index(db: Db, *, scope: str = "repo-1", now: float = 0.0, **options: Any) -> UUID:
    return enqueue(db, INDEX, scope=scope, now=now, **options).job_id


def test_a_pending_index_job_shuts_the_gate_even_of_an_older_prebuild(db: Db) -> None:
    """MWP4_01, MWP4_04: the prebuild was created first and is passed over."""
    prebuild = gated(db)
    first = index(db, now=0.5)
    assert [job.job_id for job in claim(db, limit=10)] == [first]
    assert status_of(db, prebuild) == "pending"


def test_a_blocker_that_is_not_due_yet_shuts_the_gate(db: Db) -> None:
    """MWP4_04: an index job that waits for its retry gates like any pending one."""
    gated(db)
    index(db, countdown=600.0)
    assert claim(db, limit=10) == []


def test_the_gate_opens_when_the_index_job_has_succeeded(db: Db) -> None:
    """MWP4_05."""
    prebuild = gated(db)
    index(db)
    queue.finish_job(db, claim_one(db).ref, now=at(2))
    assert claim_one(db, now=2).job_id == prebuild


def test_a_running_index_job_shuts_the_gate(db: Db) -> None:
    """MWP4_06."""
    gated(db)
    index(db)
    claim_one(db, tasks=[INDEX])
    assert claim(db, limit=10) == []


@pytest.mark.parametrize("end", ["failed", "quarantined"])
def test_an_index_job_at_an_end_never_gates(db: Db, end: str) -> None:
    """MWP4_07."""
    prebuild = gated(db)
    index(db)
    held = claim_one(db, tasks=[INDEX])
    if end == "failed":
        queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=None, now=at(2))
    else:
        queue.quarantine_job(db, held.ref, code="CORRUPT_PACK", detail="x", now=at(2))
    assert status_of(db, held.job_id) == end
    assert claim_one(db, now=2).job_id == prebuild


def test_a_superseded_index_job_never_gates(db: Db) -> None:
    """MWP4_07, for the end that only join dedup brings about."""
    gated(db)
    old = enqueue_and_claim(db, INDEX, scope="repo-1", dedup_key="k")
    heir = index(db, dedup_key="k", now=2)
    queue.release_job(db, old.ref, now=at(3))
    assert status_of(db, old.job_id) == "cancelled"
    held = claim_one(db, now=3)
    assert held.job_id == heir
    queue.finish_job(db, held.ref, now=at(4))
    assert claim_one(db, now=4).task == PREBUILD


def test_an_index_job_gates_its_own_scope_only(db: Db) -> None:
    """MWP4_08."""
    index(db, scope="repo-x")
    gated(db, scope="repo-x")
    free = gated(db, scope="repo-y")
    assert [job.job_id for job in claim(db, tasks=[PREBUILD], limit=10)] == [free]


def test_the_gate_holds_back_the_gated_task_only(db: Db) -> None:
    """MWP4_09."""
    gated(db)
    index(db)
    index(db)
    enqueue(db, "gc", scope="repo-1")
    assert sorted(job.task for job in claim(db, limit=10)) == ["gc", INDEX, INDEX]


def test_of_several_blockers_the_last_one_opens_the_gate(db: Db) -> None:
    prebuild = gated(db)
    index(db)
    index(db)
    for held in claim(db, tasks=[INDEX], limit=2):
        assert claim(db, tasks=[PREBUILD]) == []
        queue.finish_job(db, held.ref, now=at(2))
    assert claim_one(db, now=2).job_id == prebuild


def test_a_job_never_gates_itself(db: Db) -> None:
    job_id = enqueue(db, "gc", scope="r", after_tasks=("gc",)).job_id
    assert claim_one(db).job_id == job_id


def test_a_gate_on_its_own_task_runs_one_at_a_time(db: Db) -> None:
    enqueue(db, "gc", scope="r", after_tasks=("gc",), dedup_key="r")
    first = claim_one(db)
    second = enqueue(db, "gc", scope="r", after_tasks=("gc",), dedup_key="r", now=2).job_id
    assert claim(db, now=3) == []
    queue.finish_job(db, first.ref, now=at(3))
    assert claim_one(db, now=3).job_id == second


def test_the_gate_is_stamped_on_the_row(db: Db) -> None:
    assert queue.get_job(db, gated(db)).after_tasks == [INDEX]


def test_an_endless_stream_of_pushes_keeps_the_gate_shut_and_its_end_opens_it(db: Db) -> None:
    prebuild = gated(db)
    index(db)
    for second in range(1, 20):
        held = claim_one(db, now=second)
        assert held.task == INDEX
        index(db, now=second)
        queue.finish_job(db, held.ref, now=at(second))
    queue.finish_job(db, claim_one(db, now=20).ref, now=at(20))
    assert claim_one(db, now=20).job_id == prebuild


def test_a_gate_needs_a_name() -> None:
    with pytest.raises(TypeError):
        After()
    assert After("a", "b") == After("a", "b") != After("b", "a")
