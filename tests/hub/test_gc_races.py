"""A push and a gc that meet at every place where it matters: what the push commits is there, whole.

gc is run without any age: what protects the push is the mark and the lock, not the day that it waits in production.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from hub.keys import archive_key
from storage import FaultyStore, MemoryStore, Stat
from tests.hub.collecting import collect_at_once, marks, orphan, packs
from tests.hub.racing import (
    Connect,
    Failpoint,
    at_tip,
    backend,
    before_commit_of_a_push,
    beside,
    pushed,
    wait_until_blocked,
)
from tests.hub.views import rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

Told = TypeVar("Told")

HOLDER = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()
"""


def whole(world: World, history: History, tip: str) -> None:
    """Every pack that has a row has its bytes; the clone is exact; another gc changes nothing."""
    world.drain()
    collect_at_once(world)
    named = {row[0] for row in rows(world, "SELECT encode(mpack_id, 'hex') FROM hub.mpack")}
    assert named == packs(world)
    at_tip(world, history, tip)


class Arrivals(FaultyStore):
    """Calls its hook around whatever brings bytes to a key or finds them there, whether that succeeds or not."""

    def put(self, key: str, *args: Any, **options: Any) -> int:
        return self._between(key, lambda: super(Arrivals, self).put(key, *args, **options))

    def copy(self, source: str, key: str, **options: Any) -> Stat:
        return self._between(key, lambda: super(Arrivals, self).copy(source, key, **options))

    def head(self, key: str) -> Stat:
        return self._between(key, lambda: super(Arrivals, self).head(key))

    def _between(self, key: str, call: Callable[[], Told]) -> Told:
        self._hook("arrival", key, "before")
        try:
            return call()
        finally:
            self._hook("arrival", key, "after")


class Killed(BaseException):
    """The process ended here."""


@pytest.mark.parametrize("transport", ["mpack", "muse"])
@pytest.mark.parametrize("phase", ["before", "after"])
def test_gc_deletes_while_a_push_is_between_its_bytes_and_its_rows(
    new_world: Callable[..., World], history: History, transport: str, phase: str
) -> None:
    """The push finds the bytes of an earlier one that died, or has just stored its own; then gc takes them."""
    failpoint = Failpoint("arrival", phase)
    world = new_world(archive=Arrivals(MemoryStore(), hook=failpoint))
    tip = history.line(1)[0]
    orphan(world, history, tip)
    failpoint.arm(lambda: collect_at_once(world))
    pushed((world.push_mpack if transport == "mpack" else world.push_muse)(history, tip))
    assert failpoint.was_reached
    whole(world, history, tip)


def test_gc_marks_while_a_push_is_between_its_bytes_and_its_rows_and_deletes_later(
    new_world: Callable[..., World], history: History
) -> None:
    """The mark goes with the push's commit: the deletion that comes later finds none."""
    failpoint, deletion = Failpoint("arrival", "after"), Failpoint("delete", "before")
    world = new_world(archive=Arrivals(MemoryStore(), hook=lambda *call: (failpoint(*call), deletion(*call))[0]))
    tip = history.line(1)[0]
    mpack_id = orphan(world, history, tip)

    def mark_only() -> None:
        def stop() -> None:
            raise Killed

        deletion.arm(stop)
        with pytest.raises(Killed):
            collect_at_once(world)

    failpoint.arm(mark_only)
    pushed(world.push_mpack(history, tip))
    assert deletion.was_reached
    assert marks(world) == []
    assert mpack_id in packs(world)
    whole(world, history, tip)


def test_gc_waits_for_a_push_that_is_about_to_commit(
    new_world: Callable[..., World], history: History, connect: Connect
) -> None:
    """The mark stands before the push begins; gc comes to delete while the push's rows are not visible yet."""
    world = new_world()
    tip = history.line(1)[0]
    orphan(world, history, tip)
    futures: list[Any] = []

    def meet(session: Any) -> None:
        # Marked again by a gc that could not see the push's row: the lock alone keeps it from deleting.
        with connect() as marker:
            marker.execute(
                "INSERT INTO hub.doomed (store, key) VALUES ('archive', %s)",
                [archive_key(world.repository_id, next(iter(packs(world))))],
            )
        manager = beside(lambda: collect_at_once(world))
        futures.append(manager)
        manager.__enter__()
        wait_until_blocked(connect, backend(session))

    with before_commit_of_a_push(world, meet):
        pushed(world.push_mpack(history, tip))
    futures[0].__exit__(None, None, None)
    whole(world, history, tip)


def test_a_push_waits_for_gc_that_is_deleting_and_stores_again(
    new_world: Callable[..., World], history: History, connect: Connect
) -> None:
    deletion = Failpoint("delete", "before")
    world = new_world(archive=FaultyStore(MemoryStore(), hook=deletion))
    tip = history.line(1)[0]
    orphan(world, history, tip)
    pushing: list[Any] = []

    def meet() -> None:
        with connect() as watcher:
            watcher.autocommit = True
            (holder,) = watcher.execute(HOLDER).fetchone() or (0,)
        manager = beside(lambda: pushed(world.push_mpack(history, tip)))
        pushing.append(manager)
        manager.__enter__()
        wait_until_blocked(connect, holder)

    deletion.arm(meet)
    assert collect_at_once(world).deleted == 1
    pushing[0].__exit__(None, None, None)
    whole(world, history, tip)


@pytest.mark.parametrize("phase", ["before", "after"])
def test_gc_that_dies_at_a_deletion_is_seen_by_the_push(
    new_world: Callable[..., World], history: History, phase: str
) -> None:
    deletion = Failpoint("delete", phase)
    arrival = Failpoint("arrival", "after")
    world = new_world(archive=Arrivals(MemoryStore(), hook=lambda *call: (deletion(*call), arrival(*call))[0]))
    tip = history.line(1)[0]
    orphan(world, history, tip)

    def die() -> None:
        raise Killed

    def gc_dies() -> None:
        deletion.arm(die)
        with pytest.raises(Killed):
            collect_at_once(world)

    arrival.arm(gc_dies)
    pushed(world.push_mpack(history, tip))
    assert arrival.was_reached
    whole(world, history, tip)


def test_a_push_that_dies_after_storing_again_leaves_the_mark(
    new_world: Callable[..., World], history: History
) -> None:
    world = new_world()
    tip = history.line(1)[0]
    mpack_id = orphan(world, history, tip)
    assert collect_at_once(world).deleted == 1

    def die(_: Any) -> None:
        raise Killed

    with before_commit_of_a_push(world, die), pytest.raises(Killed):
        world.push_mpack(history, tip)
    assert marks(world) == [(mpack_id, True)]
    pushed(world.push_mpack(history, tip))
    whole(world, history, tip)


def test_staged_objects_that_expire_during_a_push_are_asked_for_again(
    new_world: Callable[..., World], history: History
) -> None:
    """The push is refused, with nothing half done; the client's next one sends them."""
    failpoint = Failpoint("put", "after")
    world = new_world(archive=FaultyStore(MemoryStore(), hook=failpoint))
    tip = history.line(1)[0]
    objects = [{"object_id": item, "content": history.contents[item]} for item in history.objects_of([tip])]
    pushed(world.post("/push/objects", {"objects": objects}, muse=True))
    failpoint.arm(lambda: collect_at_once(world))
    assert world.push_muse(history, tip).status_code == 422
    assert failpoint.was_reached
    pushed(world.push_muse(history, tip))
    whole(world, history, tip)


def test_staged_objects_do_not_expire_under_a_push_that_adopts_them(
    new_world: Callable[..., World], history: History, connect: Connect
) -> None:
    world = new_world()
    tip = history.line(1)[0]
    futures: list[Any] = []

    def meet(session: Any) -> None:
        manager = beside(lambda: collect_at_once(world))
        futures.append(manager)
        manager.__enter__()
        wait_until_blocked(connect, backend(session))

    with before_commit_of_a_push(world, meet):
        pushed(world.push_muse(history, tip))
    futures[0].__exit__(None, None, None)
    whole(world, history, tip)


def test_two_runs_at_once_delete_once(new_world: Callable[..., World], connect: Connect) -> None:
    deletion = Failpoint("delete", "before")
    world = new_world(cache=FaultyStore(MemoryStore(), hook=deletion))
    world.cache.put(f"mpacks/{world.repository_id}/{'a' * 64}", b"left over")
    running: list[Any] = []
    others: list[int] = []

    def meet() -> None:
        with connect() as watcher:
            watcher.autocommit = True
            (holder,) = watcher.execute(HOLDER).fetchone() or (0,)
        manager = beside(lambda: others.append(collect_at_once(world).deleted))
        running.append(manager)
        manager.__enter__()
        wait_until_blocked(connect, holder)

    deletion.arm(meet)
    assert collect_at_once(world).deleted == 1
    running[0].__exit__(None, None, None)
    assert others == [0]
