"""The body of a Muse fetch: its exact size beforehand, and the ready-made one that a clone streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub import prebuild
from hub.fetch_body import snapshot_size
from hub.keys import body_key, cache_key
from hub.manifest import encode_manifest, msgpack_size
from hub.wire import pull
from storage import FaultyStore, MemoryStore
from tests.hub.offers import refused
from tests.hub.racing import Failpoint, pushed
from tests.hub.views import fetch_mpack, fetch_muse, jobs, model, rows
from tests.hub.world import History, World

pytestmark = pytest.mark.integration

PATHS = st.text("aé\U0001f600", min_size=1, max_size=140)


class Log:
    """Hook of a store that notes what is read."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def __call__(self, op: str, key: str, phase: str) -> None:
        if phase == "before" and op in ("get", "get_range"):
            self.reads.append(key)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def seen(new_world: Callable[..., World], log: Log) -> World:
    """A hub whose reads from both stores are noted."""
    return new_world(archive=FaultyStore(MemoryStore(), hook=log), cache=FaultyStore(MemoryStore(), hook=log))


def fetch(world: World, want: list[str], have: list[str] | None = None) -> Any:
    return world.post("/fetch", {"want": want, "have": have or []}, muse=True)


def bodies(world: World) -> set[tuple[str | None, int | None]]:
    return {
        tuple(row)
        for row in rows(world, "SELECT encode(body_id, 'hex'), body_size FROM hub.fetch_mpack_cache")
    }  # fmt: skip


@contextmanager
def without_ready_made() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pull, "prebuilt", lambda *_: None)
        yield


class TestSize:
    @given(st.dictionaries(PATHS, st.just("ab" * 32), max_size=40))
    def test_manifest_is_measured_without_being_built(self, manifest: dict[str, str]) -> None:
        assert msgpack_size(encode_manifest(manifest)) == len(msgpack.packb(manifest))

    @pytest.mark.parametrize("count", [0, 15, 16, 65535, 65536])
    def test_manifest_of_any_size_is_measured(self, count: int) -> None:
        manifest = {str(number): "ab" * 32 for number in range(count)}
        record = {"snapshot_id": "cd" * 32, "manifest": manifest, "created_at": "x" * 40}
        assert snapshot_size(encode_manifest(manifest), "x" * 40) == len(msgpack.packb(record))

    @pytest.mark.parametrize("length", [1, 255, 256, 65_535, 65_536, 3_000_000])
    def test_answer_has_the_size_that_was_planned(self, world: World, history: History, length: int) -> None:
        ids = history.line(3)
        tip = history.commit({"a": b"x" * length, "b/c": b"b"}, ids[-1], structured_delta={"ops": [1, 2]})
        world.push_muse(history, tip)
        world.drain()
        with without_ready_made():
            assembled = fetch(world, [tip]).data
            plan = pull.plan_fetch(world.hub.services, world.hub.work, world.repository_id, [tip], [], remote="u")
        assert plan.size == len(assembled)
        stored = fetch(world, [tip])
        assert stored.content_length == len(stored.data) == len(assembled)
        # Objects come in another order, nothing else differs.
        said, other = (msgpack.unpackb(body) for body in (stored.data, assembled))
        assert sorted(said.pop("objects"), key=str) == sorted(other.pop("objects"), key=str)
        assert said == other


class TestReadyMade:
    def test_clone_reads_one_object_of_the_cache_and_nothing_else(
        self, seen: World, history: History, log: Log
    ) -> None:
        tip = history.line(4)[-1]
        pushed(seen.push_muse(history, tip))
        seen.drain()
        log.reads.clear()
        assert fetch_muse(seen, [tip, tip], ["ab" * 32]) == model(history, [tip])
        ((body_id, _),) = bodies(seen)
        assert body_id is not None
        assert log.reads == [body_key(seen.repository_id, body_id)]

    def test_it_needs_all_tips(self, seen: World, history: History, log: Log) -> None:
        first, second = history.line(2)
        pushed(seen.push_muse(history, second))
        other = history.commit({"o": b"other"}, first)
        pushed(seen.push_muse(history, other, "other"))
        seen.drain()
        ((body_id, _),) = bodies(seen)
        key = body_key(seen.repository_id, str(body_id))
        for want, expected in (([second], False), ([second, other], True), ([other, second], True), ([first], False)):
            log.reads.clear()
            assert fetch_muse(seen, want) == model(history, want)
            assert (log.reads == [key]) is expected

    def test_receiver_with_a_commit_gets_the_difference(self, world: World, history: History) -> None:
        ids = history.line(4)
        pushed(world.push_muse(history, ids[-1]))
        world.drain()
        assert fetch_muse(world, [ids[-1]], [ids[1]]) == model(history, [ids[-1]], [ids[1]])

    def test_tips_of_a_moment_ago_are_still_served_from_it(self, seen: World, history: History, log: Log) -> None:
        """The branch moved between the client's refs and its fetch."""
        old, new = history.line(2)
        pushed(seen.push_muse(history, old))
        seen.drain()
        pushed(seen.push_muse(history, new))
        log.reads.clear()
        assert fetch_muse(seen, [old]) == model(history, [old])
        assert [key.split("/")[0] for key in log.reads] == ["bodies"]

    def test_heads_are_those_of_now(self, world: World, history: History) -> None:
        """A branch that is made at a known tip leaves the body as it is."""
        tip = history.line(2)[-1]
        pushed(world.push_muse(history, tip))
        world.drain()
        before = bodies(world)
        pushed(world.push_muse(history, tip, "later"))
        world.drain()
        assert bodies(world) == before
        assert msgpack.unpackb(fetch(world, [tip]).data)["branch_heads"] == {"later": tip, "main": tip}

    def test_body_that_the_cache_has_lost_is_assembled_and_made_again(self, world: World, history: History) -> None:
        tip = history.line(2)[-1]
        pushed(world.push_muse(history, tip))
        world.drain()
        ((body_id, _),) = bodies(world)
        key = body_key(world.repository_id, str(body_id))
        world.cache.delete(key)
        assert fetch_muse(world, [tip]) == model(history, [tip])
        world.drain()
        assert world.cache.head(key).size > 0

    def test_body_is_made_of_the_same_bytes_every_time(self, world: World, history: History) -> None:
        tip = history.line(3)[-1]
        pushed(world.push_mpack(history, tip))
        world.drain()
        before = bodies(world)
        ((mpack_id,),) = {tuple(r) for r in rows(world, "SELECT encode(mpack_id, 'hex') FROM hub.fetch_mpack_cache")}
        world.cache.delete(cache_key(world.repository_id, mpack_id))
        fetch_mpack_again = world.post("/fetch/mpack", {"want": [], "have": []})
        assert fetch_mpack_again.status_code == 503
        world.drain()
        assert bodies(world) == before
        assert fetch_mpack(world) == fetch_muse(world, [tip]) == model(history, [tip])


class TestFence:
    def test_build_that_was_overtaken_names_no_body(self, new_world: Callable[..., World], history: History) -> None:
        """The branch moves while the body is being stored: the rows that are written are those of the new tip."""
        failpoint = Failpoint("put", prefix="bodies/")
        world = new_world(cache=FaultyStore(MemoryStore(), hook=failpoint))
        old, new = history.line(2)
        pushed(world.push_muse(history, old))
        failpoint.arm(lambda: pushed(world.push_muse(history, new)))
        world.drain()
        assert failpoint.was_reached
        assert len(list(world.cache.list("bodies/"))) == 2
        assert len(bodies(world)) == 1
        assert fetch_muse(world, [new]) == model(history, [new])
        assert fetch_muse(world, [old]) == model(history, [old])

    def test_store_that_fails_leaves_the_old_rows(self, new_world: Callable[..., World], history: History) -> None:
        failing = False

        def hook(op: str, key: str, phase: str) -> None:
            if failing and phase == "before" and op == "put" and key.startswith("bodies/"):
                raise OSError("full")

        world = new_world(cache=FaultyStore(MemoryStore(), hook=hook))
        old, new = history.line(2)
        pushed(world.push_muse(history, old))
        world.drain()
        before = bodies(world)
        failing = True
        pushed(world.push_muse(history, new))
        world.drain()
        assert bodies(world) == before
        assert [job.status for job in jobs(world)][-1] == "pending"


class TestTooLarge:
    def test_no_body_is_kept_and_the_refusal_costs_no_read(
        self, seen: World, history: History, log: Log, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tip = history.commit({"a": bytes(100_000)})
        monkeypatch.setattr(prebuild, "ANSWER_BYTES", 50_000)
        monkeypatch.setattr(pull, "ANSWER_BYTES", 50_000)
        pushed(seen.push_muse(history, tip))
        seen.drain()
        ((body_id, size),) = bodies(seen)
        assert body_id is None
        assert size is not None
        assert size > 100_000
        assert list(seen.cache.list("bodies/")) == []
        log.reads.clear()
        refused(fetch(seen, [tip]), 413, "packhouse clone")
        assert log.reads == []
        assert fetch_mpack(seen) == model(history, [tip])
