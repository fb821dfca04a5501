"""Limit gates: never more than so many of a key at a time, and no place is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tasks import operate, queue
from tasks.errors import ClaimLost, PayloadError
from tasks.gates import After, All, Limit, stamp
from tasks.sweep import sweep
from tasks.testing import check_invariants
from tasks.why import why
from tests.tasks.racing import WAIT_SECONDS
from tests.tasks.rows import INDEX, PREBUILD, at, claim, claim_one, enqueue, status_of

Db = psycopg.Connection[Any]


def limited(db: Db, n: int, *, key: str = "k", running: int = 1, now: float = 0.0, **options: Any) -> list[Any]:
    gate = stamp(Limit(key, running))
    return [enqueue(db, now=now, **{**gate, **options}).job_id for _ in range(n)]


def test_no_more_run_than_the_limit_and_each_end_lets_the_next_one_start(db: Db) -> None:
    jobs = limited(db, 5, running=2)
    first = claim(db, limit=10)
    assert [held.job_id for held in first] == jobs[:2]
    assert claim(db, limit=10) == []
    queue.finish_job(db, first[1].ref, now=at(2))
    assert [held.job_id for held in claim(db, now=3, limit=10)] == [jobs[2]]
    queue.fail_job(db, first[0].ref, code="X", detail="x", retry_delays=[100], now=at(4))
    assert [held.job_id for held in claim(db, now=5, limit=10)] == [jobs[3]]
    check_invariants(db)


@pytest.mark.parametrize("way", ["finish", "fail", "release", "cancel", "set aside", "sweep"])
def test_every_end_of_a_run_gives_its_place_back(db: Db, way: str) -> None:
    limited(db, 2)
    held = claim_one(db)
    assert claim(db, now=2) == []
    {
        "finish": lambda: queue.finish_job(db, held.ref, now=at(2)),
        "fail": lambda: queue.fail_job(db, held.ref, code="X", detail="x", retry_delays=None, now=at(2)),
        "release": lambda: queue.release_job(db, held.ref, delay=500, now=at(2)),
        "cancel": lambda: queue.cancel_job(db, held.job_id, reason="no", now=at(2)),
        "set aside": lambda: queue.set_aside_job(db, held.job_id, reason="no", now=at(2)),
        "sweep": lambda: queue.sweep_expired(db, now=at(100)),
    }[way]()
    assert len(claim(db, now=101, limit=10)) == 1
    check_invariants(db)


def test_a_place_that_comes_free_rings_for_the_first_in_order_and_for_nobody_else(
    committed_db: Db, connect: Callable[[], Db]
) -> None:
    held = [claim_one(committed_db) for key in ("k", "other") for _ in limited(committed_db, 1, key=key)]
    first, second = limited(committed_db, 2, now=1)
    urgent = limited(committed_db, 1, now=2, priority=1)[0]
    others = limited(committed_db, 1, key="other")[0]
    assert claim(committed_db, now=3, limit=9) == []
    committed_db.commit()
    listener = connect()
    listener.autocommit = True
    listener.execute("LISTEN tasks")
    queue.finish_job(committed_db, held[0].ref, now=at(4))
    committed_db.commit()
    assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == ["default"]
    lanes = [queue.get_job(committed_db, job_id).lane for job_id in (urgent, first, second, others)]
    assert lanes == ["unchecked", "parked", "parked", "parked"]
    assert claim_one(committed_db, now=5).job_id == urgent


def test_the_sweep_frees_nothing_that_is_still_held(db: Db) -> None:
    enqueue(db, INDEX, scope="r")
    limited(db, 2)
    gated = enqueue(db, PREBUILD, scope="r", after_tasks=(INDEX,)).job_id
    assert len(claim(db, tasks=["gc", PREBUILD], limit=9)) == 1
    assert sweep(db, now=at(2)).unparked == 0
    assert queue.get_job(db, gated).lane == "parked"


def test_a_zombie_never_gives_a_place_back_twice(db: Db) -> None:
    """Case 3, twenty times over."""
    limited(db, 30, attempts_max=1)
    for n in range(20):
        now = n * 100.0
        zombie = claim_one(db, now=now + 1)
        sweep(db, now=at(now + 80))
        (current,) = claim(db, now=now + 81, limit=10)
        for _ in range(2):
            with pytest.raises((ClaimLost, queue.JobTerminal)):
                queue.finish_job(db, zombie.ref, now=at(now + 82))
        assert claim(db, now=now + 82, limit=10) == []
        queue.cancel_job(db, current.job_id, reason="next", now=at(now + 83))
        limited(db, 2, now=now + 84, attempts_max=1)
    check_invariants(db)


def test_order_holds_across_limited_and_free_jobs(db: Db) -> None:
    free = [enqueue(db, now=0).job_id]
    mine = limited(db, 3, now=1, running=2)
    free.append(enqueue(db, now=2).job_id)
    assert [held.job_id for held in claim(db, now=5, limit=10)] == [free[0], mine[0], mine[1], free[1]]


def test_a_limit_counts_over_scopes_queues_and_tasks(db: Db) -> None:
    gate = stamp(Limit("k", 1))
    enqueue(db, scope="a", **gate)
    enqueue(db, INDEX, scope="b", queue="other", now=0.5, **gate)
    assert len(claim(db, limit=9, queues=["default", "other"])) == 1


def test_a_place_goes_past_a_job_that_this_worker_cannot_run(db: Db) -> None:
    gate = stamp(Limit("k", 1))
    enqueue(db, "unheard.of", **gate)
    mine = enqueue(db, now=0.5, **gate).job_id
    assert claim_one(db).job_id == mine


@pytest.mark.parametrize("held_back", ["nobody serves their queue", "their queue is paused", "nobody knows their task"])
def test_jobs_that_this_worker_cannot_take_do_not_hide_a_limit_behind_them(db: Db, held_back: str) -> None:
    """They are ready and more than a claim looks at; a claim of another worker has found the job's gate open."""
    task = "unheard.of" if "task" in held_back else "gc"
    limited(db, 100, key="theirs", running=1000, task=task, queue="default" if task != "gc" else "theirs")
    if "paused" in held_back:
        operate.pause_queue(db, "theirs", now=at(0))
    queues = ["default", "theirs"] if "paused" in held_back else ["default"]
    (mine,) = limited(db, 1, key="mine")
    assert claim(db, tasks=["other"], queues=["other"]) == []
    assert claim_one(db, queues=queues).job_id == mine


def test_jobs_whose_gate_has_shut_do_not_hide_a_limit_behind_them(db: Db) -> None:
    """They were found open and are more than a claim looks at; so are those before them, which are another worker's."""
    limited(db, 100, key="theirs", running=1000, task="unheard.of")
    limited(db, 20, key="shut", running=100, scope="r", after_tasks=(INDEX,))
    (mine,) = limited(db, 1, key="mine")
    assert claim(db, tasks=["other"], queues=["other"]) == []
    enqueue(db, INDEX, scope="r")
    found = [held.job_id for _ in range(5) for held in claim(db, tasks=["gc"])]
    assert found == [mine]


def test_a_job_may_have_a_limit_and_wait_for_other_tasks(db: Db) -> None:
    gate = stamp((After(INDEX), Limit("k", 1)))
    assert gate == stamp(All(After(INDEX), Limit("k", 1)))
    index = enqueue(db, INDEX, scope="r").job_id
    both = enqueue(db, PREBUILD, scope="r", **gate).job_id
    other = enqueue(db, now=0.5, **stamp(Limit("k", 1))).job_id
    held = {one.job_id: one for one in claim(db, limit=9)}
    assert set(held) == {index, other}
    queue.finish_job(db, held[index].ref, now=at(2))
    assert claim(db, now=3) == []
    queue.finish_job(db, held[other].ref, now=at(4))
    assert claim_one(db, now=5).job_id == both


def test_cancelling_the_next_one_in_line_does_not_strand_the_others(db: Db) -> None:
    jobs = limited(db, 3)
    held = claim_one(db)
    assert claim(db) == []
    queue.finish_job(db, held.ref, now=at(2))
    queue.cancel_job(db, jobs[1], reason="no", now=at(3))
    assert claim_one(db, now=4).job_id == jobs[2]


def test_why_says_that_the_limit_is_reached_and_by_whom(db: Db) -> None:
    jobs = limited(db, 2)
    held = claim_one(db)
    reason = why(db, jobs[1], now=at(2))[0]
    assert (reason.rule, reason.details["running"], reason.details["limit_max"]) == ("LIMIT_REACHED", 1, 1)
    assert str(held.job_id) in reason.sentence


def test_claims_at_once_never_exceed_the_limit(committed_db: Db, connect: Callable[[], Db]) -> None:
    """Two claims that count inside themselves would both see the place free."""
    limited(committed_db, 60, running=3)
    committed_db.commit()
    barrier = threading.Barrier(4)
    ran: list[Any] = []

    def work(name: str, conn: Db) -> None:
        barrier.wait(WAIT_SECONDS)
        for _ in range(400):
            held = claim(conn, now=10, limit=2, worker=name)
            conn.commit()
            if held:
                (running,) = conn.execute("SELECT count(*) FROM tasks.job WHERE status = 'running'").fetchone() or (0,)
                conn.commit()
                assert running <= 3
                queue.finish_jobs(conn, [(one.ref, None) for one in held], now=at(11))
                conn.commit()
                ran.extend(held)
            if len(ran) >= 60:
                break

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, f"w{n}", connect()) for n in range(4)]:
            future.result(60)
    assert len({held.job_id for held in ran}) == 60


def test_gates_refuse_nonsense() -> None:
    for bad in (lambda: Limit("", 1), lambda: Limit("k", 0), lambda: All(Limit("a", 1), Limit("b", 1))):
        with pytest.raises(PayloadError):
            bad()
    with pytest.raises(PayloadError):
        stamp("mpack.index")  # type: ignore[arg-type]
    assert stamp(None) == {"after_tasks": (), "limit_key": None, "limit_max": None}
    assert stamp((After("a", "b"), After("b", "c")))["after_tasks"] == ("a", "b", "c")


def test_a_limit_job_that_waits_is_out_of_the_claims_way(db: Db) -> None:
    jobs = limited(db, 50)
    claim_one(db)
    for _ in range(2):
        assert claim(db, limit=50) == []
    assert {queue.get_job(db, job_id).lane for job_id in jobs[1:]} == {"parked"}
    assert status_of(db, jobs[0]) == "running"
