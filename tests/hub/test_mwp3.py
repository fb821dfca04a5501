"""No fresh work is lost on back-to-back pushes: through the real push, queue, index and prebuild.

The queue's own half of these rules is in tests/tasks/test_enqueue.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hub.keys import mpack_key
from hub.pack.format import Kind
from hub.work import INDEX, PREBUILD
from storage import Store
from tasks.worker import Worker
from tests.hub.views import (
    cached,
    cached_contents,
    check,
    fetch_mpack,
    indexed_mpacks,
    jobs,
    model,
    pushed_mpacks,
    rows,
)
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


def push(world: World, history: History, tip: str, transport: str = "mpack", branch: str = "main") -> None:
    answer = (world.push_mpack if transport == "mpack" else world.push_muse)(history, tip, branch)
    assert answer.status_code == 200, answer.data


def test_two_pushes_have_two_index_jobs(world: World, history: History) -> None:
    """MWP3_01, MWP3_07: the first push's index job still waits when the second push lands."""
    first, second = history.line(2)
    push(world, history, first)
    push(world, history, second)
    keys = [job.payload["kwargs"]["mpack_key"] for job in jobs(world, INDEX, "pending")]
    assert len(keys) == len(set(keys)) == 2
    assert set(keys) == {mpack_key(mpack_id) for mpack_id in pushed_mpacks(world)}


def test_prebuild_that_was_queued_by_the_first_push_covers_the_second(world: World, history: History) -> None:
    """MWP3_02."""
    first, second = history.line(2)
    push(world, history, first)
    push(world, history, second, branch="dev")
    (prebuild,) = jobs(world, PREBUILD, "pending")
    assert prebuild.payload["kwargs"]["tip_commit_ids"] == [first]
    assert prebuild.coalesced == 1
    world.drain()
    assert cached(world).keys() == {first, second}


def test_one_push_has_one_job_of_each_kind(world: World, history: History) -> None:
    """MWP3_03."""
    push(world, history, history.line(3)[-1])
    assert [job.task for job in jobs(world)] == [INDEX, PREBUILD]


@pytest.mark.parametrize("captured", [0, 1], ids=["nothing captured", "an old tip captured"])
def test_prebuild_reads_live_tips_whatever_it_was_given(world: World, history: History, captured: int) -> None:
    """MWP3_04, MWP3_05."""
    first, second = history.line(2)
    push(world, history, first)
    push(world, history, second, branch="dev")
    world.drain()
    rows_before = cached(world)
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("DELETE FROM hub.fetch_mpack_cache")
        world.hub.work.enqueue_prebuild(session, world.repository_id, [first][:captured])
    world.drain()
    assert cached(world) == rows_before
    assert cached(world).keys() == {first, second}


def test_all_tips_name_one_pack_with_everything(world: World, history: History) -> None:
    """MWP3_06: queued for push A, run after push B moved the branch and a second branch came."""
    ids = history.line(3)
    push(world, history, ids[0])
    push(world, history, ids[1])
    push(world, history, ids[2], branch="dev")
    assert len(jobs(world, PREBUILD, "pending")) == 1
    world.drain()
    assert cached(world).keys() == {ids[1], ids[2]}
    assert len(set(cached(world).values())) == 1
    assert cached_contents(world) == model(history, ids)


def test_the_same_pack_again_joins_its_index_job(world: World, history: History) -> None:
    """MWP3_08: pushed to a second branch, the pack is the same work."""
    tip = history.line(2)[-1]
    mpack_id, raw = history.mpack(history.ancestors(tip))
    assert world.push_bytes(mpack_id, raw, tip, "main").status_code == 200
    assert world.push_bytes(mpack_id, raw, tip, "dev").status_code == 200
    (index,) = jobs(world, INDEX)
    assert index.coalesced == 1
    world.drain()
    assert indexed_mpacks(world) == {mpack_id}


def test_only_index_jobs_multiply(world: World, history: History) -> None:
    """MWP3_09."""
    for tip in history.line(4):
        push(world, history, tip)
    assert [job.task for job in jobs(world)].count(INDEX) == 4
    assert [job.task for job in jobs(world)].count(PREBUILD) == 1


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_two_pushes_then_one_drain_index_both_and_serve_the_second(
    new_world: Callable[..., World], history: History, s3_store: Store, transport: str
) -> None:
    """MWP3_10: the acceptance gate, on the real object store."""
    world = new_world(archive=s3_store, cache=s3_store, presign=False)
    first, second = history.line(2)
    push(world, history, first, transport)
    push(world, history, second, transport)
    assert jobs(world, status="pending") == jobs(world)
    assert {ran.outcome for ran in world.drain()} == {"succeeded"}
    assert indexed_mpacks(world) == pushed_mpacks(world)
    assert cached(world).keys() == {second}
    assert second in cached_contents(world).commits
    assert fetch_mpack(world) == model(history, [second])
    check(world)


@pytest.mark.parametrize("transport", ["mpack", "muse"])
def test_ten_rapid_pushes_with_a_worker_in_between(
    world: World, history: History, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MWP3_11: whatever the worker gets done between the pushes, nothing stays unindexed or stale."""
    monkeypatch.setattr("hub.repack.FOLD_MIN", 1000)  # the packs are looked at one by one below
    with Worker(world.hub.work.app, queues=world.hub.work.app.queues(), concurrency=1) as worker:
        for number, tip in enumerate(history.line(10)):
            push(world, history, tip, transport)
            for _ in range(number % 4):
                worker.once()
    world.drain()
    assert indexed_mpacks(world) == pushed_mpacks(world)
    assert rows(world, "SELECT count(*) FROM hub.mpack WHERE indexed_at IS NULL")[0][0] == 0
    assert cached(world).keys() == {tip}
    assert fetch_mpack(world) == model(history, [tip])
    assert {job.status for job in jobs(world)} == {"succeeded"}
    check(world)


def test_index_knows_every_entity_of_every_pack(world: World, history: History) -> None:
    """MWP3_10 (a), in full: what a pack has is what the index says."""
    first, second = history.line(2)
    push(world, history, first)
    push(world, history, second)
    world.drain()
    found = rows(world, "SELECT kind, encode(entity_id, 'hex') FROM hub.mpack_index")
    ids = {kind: {entity_id for number, entity_id in found if number == kind} for kind in Kind}
    everything = model(history, [second])
    assert ids == {
        Kind.OBJECT: everything.objects, Kind.SNAPSHOT: everything.snapshots, Kind.COMMIT: everything.commits
    }  # fmt: skip


def test_every_rule_has_a_test_that_is_not_skipped() -> None:
    """MWP3_12."""
    wanted = {f"MWP{ticket}_{number:02}" for ticket in (3, 4) for number in range(1, 13)} | {"MWP3_08b"}
    found: set[str] = set()
    for path in (Path(__file__).parent.parent).rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
                if not re.search("skip|xfail", marks):
                    found |= set(re.findall(r"MWP[34]_\d\db?", ast.get_docstring(node) or ""))
    assert wanted - found == set()
