"""gc deletes what nothing names, once it is old, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from click.testing import CliRunner

from hub.chores import GC
from hub.cli.gc import gc
from hub.gc import AGES, collect
from hub.keys import staging_key, upload_key
from hub.models.doomed import doom
from storage import Fault, FaultyStore, MemoryStore, Unavailable
from tests.hub.collecting import AT_ONCE, collect_at_once, marks, orphan, packs
from tests.hub.racing import at_tip, pushed
from tests.hub.views import cached, check, fetch_mpack, footprint, jobs, model
from tests.hub.world import History, World

pytestmark = pytest.mark.integration


class Clock:
    """The stores' clock, which a test turns forward."""

    def __init__(self) -> None:
        self.shift = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.shift


def pass_a_day(world: World) -> None:
    """Make every mark a day older."""
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("UPDATE hub.doomed SET doomed_at = doomed_at - interval '25 hours'")


def test_what_a_push_names_stays(world: World, history: History) -> None:
    for tip, transport in zip(history.line(4), [world.push_mpack, world.push_muse] * 2, strict=True):
        pushed(transport(history, tip))
    world.drain()
    before = footprint(world)
    done = collect_at_once(world)
    assert (done.marked, done.deleted, done.expired) == (0, 0, 0)
    assert footprint(world) == before


def test_a_pack_that_no_push_committed_is_marked_and_a_day_later_deleted(
    new_world: Callable[..., World], history: History
) -> None:
    clock = Clock()
    world = new_world(archive=MemoryStore(clock))
    clock.shift = -timedelta(hours=25)
    lost = orphan(world, history, history.line(1)[0])
    clock.shift = timedelta(0)
    young = orphan(world, history, history.commit({"g": b"young"}))
    assert collect(world.hub.services).marked == 1
    assert marks(world) == [(lost, False)]
    assert collect(world.hub.services).deleted == 0
    pass_a_day(world)
    done = collect(world.hub.services)
    assert done.deleted == 1
    assert done.deleted_bytes > 0
    assert packs(world) == {young}
    assert marks(world) == [(lost, True)]


def test_a_deletion_is_forgotten_after_a_week(world: World, history: History) -> None:
    orphan(world, history, history.line(1)[0])
    collect_at_once(world)
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("UPDATE hub.doomed SET deleted_at = deleted_at - interval '8 days'")
    collect_at_once(world)
    assert marks(world) == []


def test_garbage_that_comes_again_after_its_deletion_goes_again(world: World, history: History) -> None:
    tip = history.line(1)[0]
    for _ in range(2):
        orphan(world, history, tip)
        assert collect_at_once(world).deleted == 1
        assert packs(world) == set()


def test_staged_objects_that_nobody_pushes_go_after_a_day(world: World, history: History) -> None:
    tip = history.line(1)[0]
    objects = [{"object_id": item, "content": history.contents[item]} for item in history.objects_of([tip])]
    pushed(world.post("/push/objects", {"objects": objects}, muse=True))
    assert collect(world.hub.services).expired == 0
    done = collect_at_once(world)
    assert (done.expired, done.deleted) == (1, 1)
    assert packs(world) == set()
    pushed(world.push_muse(history, tip))
    world.drain()
    at_tip(world, history, tip)


def test_staged_objects_that_a_push_adopted_stay(world: World, history: History) -> None:
    tip = history.line(1)[0]
    pushed(world.push_muse(history, tip))
    assert collect_at_once(world).expired == 0
    world.drain()
    at_tip(world, history, tip)


def test_objects_that_are_sent_again_have_another_day(world: World, history: History) -> None:
    objects = [{"object_id": item, "content": history.contents[item]} for item in history.objects_of(history.line(1))]
    pushed(world.post("/push/objects", {"objects": objects}, muse=True))
    with world.hub.services.sessions.begin() as session:
        session.connection().exec_driver_sql("UPDATE hub.mpack SET created_at = now() - interval '25 hours'")
        session.connection().exec_driver_sql("DELETE FROM hub.mpack_index")
    # As a client does that never heard the first answer: it was not told what is held.
    from hub.staging import StagedPack

    with StagedPack(world.hub.services, world.repository_id) as pack:
        for item in objects:
            pack.add(item["object_id"], item["content"], len(item["content"]))  # type: ignore[arg-type]
        pack.store()
    assert collect(world.hub.services).expired == 0


def test_uploads_that_nobody_pushed_go_after_a_day(new_world: Callable[..., World]) -> None:
    clock = Clock()
    world = new_world(archive=MemoryStore(clock))
    clock.shift = -timedelta(hours=25)
    world.archive.put(staging_key(world.repository_id, "a" * 64), b"old")
    world.archive.put(upload_key(world.repository_id, "b" * 64), b"old")
    clock.shift = timedelta(0)
    fresh = staging_key(world.repository_id, "c" * 64)
    world.archive.put(fresh, b"new")
    assert collect(world.hub.services).uploads == 2
    assert [stat.key for stat in world.archive.list()] == [fresh]


def test_a_clone_cache_that_was_replaced_goes_a_day_later(world: World, history: History) -> None:
    first, second = history.line(2)
    pushed(world.push_mpack(history, first))
    world.drain()
    (old,) = set(cached(world).values())
    pushed(world.push_mpack(history, second))
    world.drain()
    ages = replace(AGES, unnamed=timedelta(hours=-1))
    assert collect(world.hub.services, ages=ages).marked == 2, "the pack, and the body of a Muse fetch"
    assert len(list(world.cache.list())) == 4, "a clone may still be reading them"
    pass_a_day(world)
    assert collect(world.hub.services, ages=ages).deleted == 2
    assert old not in {stat.key.rpartition("/")[2] for stat in world.cache.list()}
    at_tip(world, history, second)


def test_a_delta_that_is_built_again_has_another_day(world: World, history: History) -> None:
    first, second = history.line(2)
    pushed(world.push_mpack(history, second))
    world.drain()
    assert fetch_mpack(world, [second], [first]) == model(history, [second], [first])
    assert collect(world.hub.services, ages=replace(AGES, unnamed=timedelta(hours=-1))).marked == 1
    pass_a_day(world)
    assert fetch_mpack(world, [second], [first]) == model(history, [second], [first])
    assert collect(world.hub.services).deleted == 0
    assert marks(world) == []


def test_bytes_of_a_repository_that_is_gone_are_deleted_and_foreign_keys_left_alone(world: World) -> None:
    world.archive.put(f"mpacks/{uuid4()}/{'a' * 64}", b"left over")
    world.archive.put("mpacks/README", b"not ours")
    done = collect(world.hub.services, ages=AT_ONCE)
    assert (done.deleted, done.unknown) == (1, 1)
    assert [stat.key for stat in world.archive.list()] == ["mpacks/README"]


def test_gc_of_one_repository_leaves_others_alone(world: World, history: History) -> None:
    other = uuid4()
    world.archive.put(f"mpacks/{other}/{'a' * 64}", b"left over")
    with world.hub.services.sessions.begin() as session:
        doom(session, "archive", [f"mpacks/{other}/{'a' * 64}"])
    assert collect_at_once(world).deleted == 0


def test_dry_run_counts_and_changes_nothing(world: World, history: History) -> None:
    orphan(world, history, history.line(1)[0])
    assert collect_at_once(world, dry_run=True).marked == 1
    assert marks(world) == []
    with world.hub.services.sessions.begin() as session:
        doom(session, "archive", [stat.key for stat in world.archive.list()])
    before = footprint(world)
    assert collect_at_once(world, dry_run=True).deleted == 1
    assert footprint(world) == before


def test_a_run_that_the_store_cuts_off_is_followed_by_the_next(new_world: Callable[..., World]) -> None:
    script: list[tuple[str, Fault | None]] = [("delete", None), ("delete", Fault.ANSWER_LOST)]
    world = new_world(archive=FaultyStore(MemoryStore(), script=script))
    for number in range(4):
        world.archive.put(f"mpacks/{world.repository_id}/{number:064x}", b"left over")
    with pytest.raises(Unavailable):
        collect_at_once(world)
    assert len(packs(world)) == 2
    collect_at_once(world)
    assert packs(world) == set()
    assert {deleted for _, deleted in marks(world)} == {True}


def test_a_run_ends_at_its_bound_and_says_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hub.gc.CHANGES_MAX", 3)
    monkeypatch.setattr("hub.gc.PAGE_KEYS", 2)
    monkeypatch.setattr("hub.gc.LOCKED_KEYS", 2)
    for number in range(10):
        world.archive.put(f"mpacks/{world.repository_id}/{number:064x}", b"left over")
    runs = 0
    while collect_at_once(world).more:
        runs += 1
        assert runs < 10
    assert packs(world) == set()
    assert runs >= 2


def test_many_pushes_queue_one_gc(world: World, history: History) -> None:
    for tip in history.line(3):
        pushed(world.push_mpack(history, tip))
    (job,) = jobs(world, GC)
    assert job.coalesced == 2
    world.drain()
    (job,) = jobs(world, GC)
    assert job.status == "succeeded"
    assert job.result is not None
    assert job.result["deleted"] == 0
    check(world)


def test_gc_of_the_whole_store_runs_every_day(world: World) -> None:
    (schedule,) = [item for item in world.hub.work.app.schedules.values() if item.task.name == "gc.all"]
    assert "gc.all" in schedule.name


def test_the_command_counts_and_deletes(world: World, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    mpack_id = orphan(world, history, history.line(1)[0])
    with world.hub.services.sessions.begin() as session:
        doom(session, "archive", [stat.key for stat in world.archive.list()])
    pass_a_day(world)
    monkeypatch.setattr("hub.app.create_app", lambda: world.app)
    result = CliRunner().invoke(gc, ["--json", "--dry-run"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["deleted"] == 1
    assert packs(world) == {mpack_id}
    assert "Deleted 1 packs" in CliRunner().invoke(gc, []).output
    assert packs(world) == set()
