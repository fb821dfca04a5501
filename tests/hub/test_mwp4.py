"""A clone pack is never built before the index of what it needs: through the real push and the worker's own claims.

The gate alone is tested in tests/tasks/test_gates.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hub.errors import FetchNotIndexed
from hub.keys import archive_key
from hub.work import INDEX, PREBUILD
from storage import FaultyStore, MemoryStore, Unavailable
from tasks.queue import attempts_of
from tests.hub.views import (
    cached,
    check,
    drain_for_hours,
    fetch_mpack,
    jobs,
    model,
    pushed_mpacks,
    rows,
)
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

EARLY = """
SELECT count(*)
FROM tasks.attempt a
JOIN tasks.job prebuild ON prebuild.job_id = a.job_id AND prebuild.task = 'fetch.mpack.prebuild'
JOIN tasks.job index ON index.task = 'mpack.index' AND index.scope = prebuild.scope
WHERE index.created_at < a.claimed_at AND COALESCE(index.finished_at, 'infinity') > a.claimed_at
"""
"""Claims of a prebuild at a moment when an index job of its repository waited or ran."""


def forget_index_job(world: World) -> None:
    """As if the index job had never been: the gap that no job explains."""
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("DELETE FROM tasks.job WHERE task = 'mpack.index'")


def test_index_jobs_are_older_than_the_prebuild_of_their_push(world: World, history: History) -> None:
    """MWP4_03."""
    world.push_muse(history, history.line(2)[-1])
    indexes, (prebuild,) = jobs(world, INDEX), jobs(world, PREBUILD)
    assert len(indexes) == 2  # the uploaded objects' pack, and the pushed one
    assert all(index.created_at < prebuild.created_at for index in indexes)


def test_gap_in_the_index_is_raised_and_caches_nothing(world: World, history: History) -> None:
    """MWP4_02, MWP4_10: the queue records the error, and no success hides it."""
    tip = history.line(2)[-1]
    world.push_mpack(history, tip)
    forget_index_job(world)
    (ran,) = world.drain()
    assert ran.outcome == "retry"
    assert isinstance(ran.error, FetchNotIndexed)
    assert ran.error.missing == len(model(history, [tip]).objects)
    (prebuild,) = jobs(world, PREBUILD)
    assert prebuild.last_error_code == "FETCH_NOT_INDEXED"
    assert cached(world) == {}
    assert list(world.cache.list()) == []


def test_gap_that_stays_ends_as_a_failed_job(world: World, history: History) -> None:
    """MWP4_10: after its budget, the prebuild is failed, not forgotten."""
    world.push_mpack(history, history.line(2)[-1])
    forget_index_job(world)
    outcomes = [ran.outcome for ran in drain_for_hours(world)]
    assert outcomes == ["retry"] * 4 + ["failed"]
    (prebuild,) = jobs(world, PREBUILD, "failed")
    assert (prebuild.attempt_count, prebuild.last_error_code) == (5, "FETCH_NOT_INDEXED")
    check(world)


def test_index_is_done_before_the_prebuild_is_claimed(world: World, history: History) -> None:
    """MWP4_11."""
    tip = history.line(3)[-1]
    world.push_mpack(history, tip)
    assert [ran.task for ran in world.drain()] == [INDEX, PREBUILD]
    (index,), (prebuild,) = jobs(world, INDEX), jobs(world, PREBUILD)
    with world.hub.services.sessions() as session:
        (indexed,), (built,) = attempts_of(session, index.job_id), attempts_of(session, prebuild.job_id)
    assert indexed.ended_at is not None
    assert indexed.ended_at <= built.claimed_at
    assert cached(world).keys() == {tip}


def test_order_of_creation_does_not_open_the_gate(world: World, history: History) -> None:
    """MWP4_01, MWP4_04: a prebuild that looks older than the index job is still behind it."""
    world.push_mpack(history, history.line(1)[-1])
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql(
            "UPDATE tasks.job SET created_at = created_at - interval '1 hour' WHERE task = 'fetch.mpack.prebuild'"
        )
    assert [ran.task for ran in world.drain()] == [INDEX, PREBUILD]


def test_ten_pushes_then_a_drain_never_build_early(world: World, history: History) -> None:
    """MWP4_12: on three branches, without a drain in between."""
    branches = ["main", "dev", "docs"]
    for number, tip in enumerate(history.line(10)):
        assert world.push_mpack(history, tip, branches[number % 3]).status_code == 200
    ran = world.drain()
    assert [settled.task for settled in ran] == [INDEX] * 10 + [PREBUILD]
    assert [settled.error for settled in ran] == [None] * 11
    assert rows(world, EARLY)[0][0] == 0
    assert cached(world).keys() == set(world.heads().values())
    assert len(set(cached(world).values())) == 1
    assert fetch_mpack(world) == model(history, world.heads().values())
    check(world)


def failed_index(world: World, history: History) -> None:
    """The prebuild surfaces as a failed job, and both a clone and the push's status name the index job."""
    (index,) = jobs(world, INDEX)
    (prebuild,) = jobs(world, PREBUILD)
    assert (prebuild.status, prebuild.last_error_code) == ("failed", "FETCH_NOT_INDEXED")
    clone = world.post("/fetch/mpack", {"want": [], "have": []}, token=None)
    assert clone.status_code == 500
    said = clone.get_json()
    assert (said["error"], said["job_id"]) == ("MPACK_INDEX_FAILED", str(index.job_id))
    assert INDEX in said["message"]
    assert str(index.last_error_code) in said["message"]
    muse = world.post("/fetch", {"want": [history.line(1)[0]], "have": []}, token=None, muse=True)
    assert muse.status_code == 500
    assert INDEX in muse.text
    (push_id,) = rows(world, "SELECT push_id FROM hub.push")[0]
    status = world.get(f"/pushes/{push_id}").get_json()
    assert status["status"] == "failed"
    assert INDEX in status["reason"]
    assert cached(world) == {}


def test_index_that_failed_for_good_is_what_the_clone_says(new_world: Callable[..., World]) -> None:
    """MWP4_07, end to end: a terminal index job is no gate, and its failure is not hidden."""
    broken = False

    def refuse(op: str, key: str, phase: str) -> None:
        if broken and op == "get" and phase == "before":
            raise Unavailable(key)

    history = History()
    world = new_world(archive=FaultyStore(MemoryStore(), hook=refuse))
    world.push_mpack(history, history.line(1)[0])
    broken = True
    drain_for_hours(world, 12)
    (index,) = jobs(world, INDEX)
    assert (index.status, index.last_error_code, index.attempt_count) == ("failed", "UNAVAILABLE", 5)
    failed_index(world, History())


def test_corrupt_pack_is_quarantined_and_the_clone_says_so(world: World) -> None:
    """MWP4_07, end to end: the stored bytes went bad after the push."""
    history = History()
    world.push_mpack(history, history.line(1)[0])
    (mpack_id,) = pushed_mpacks(world)
    world.archive.put(archive_key(world.repository_id, mpack_id), b"\0" * 100)
    drain_for_hours(world)
    (index,) = jobs(world, INDEX)
    assert (index.status, index.last_error_code, index.attempt_count) == ("quarantined", "MPACK_CORRUPT", 1)
    assert rows(world, "SELECT state FROM hub.mpack") == [("quarantined",)]
    failed_index(world, History())


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_corrupt_pack_is_mended_by_pushing_it_again(world: World, history: History, transport: str) -> None:
    """The pack is the same, so is its name; the bytes of the second push take the place of the bad ones."""
    tip = history.line(1)[0]

    def push() -> int:
        if transport == "muse":
            return world.push_muse(history, tip).status_code
        return world.push_bytes(*history.mpack([tip]), tip).status_code

    assert push() == 200
    for bad in pushed_mpacks(world):
        world.archive.put(archive_key(world.repository_id, bad), b"\0" * 100)
    drain_for_hours(world)
    assert world.post("/fetch/mpack", {}).status_code == 500
    assert push() == 200
    assert {ran.outcome for ran in world.drain()} == {"succeeded"}
    assert fetch_mpack(world) == model(history, [tip])
    assert {row[0] for row in rows(world, "SELECT state FROM hub.mpack")} == {"live"}
    check(world)
